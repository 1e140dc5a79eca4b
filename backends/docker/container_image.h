/* container_image.h - which image a container gets, and how the engine comes to have it.
 *
 * In this order: the one that the job names; the key `image`; that of the container which we are
 * in; else one that is made of this program, with the libraries that it needs and what the key
 * `image_add` names (closure.h). Such an image is named by what is in it, and made once.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef FBR_DOCKER_IMAGE_H
#define FBR_DOCKER_IMAGE_H

#include "backends/docker/engine.h"

struct fbr_docker_images;

/* Told about an image: text while it is on the way, at the end once with done. */
typedef void fbr_docker_on_image(void *user, const char *text, bool done, bool good);

int fbr_docker_images_open(struct fbr_docker_images **out, struct fbr_docker_engine *engine,
                           const struct fbr_config *config, struct fbr_loop *loop,
                           struct fbr_error *err);
/* Nothing is called after it. */
void fbr_docker_images_close(struct fbr_docker_images *m);

/* Returns the contents of the file of the key docker_template, or NULL. */
const struct json_t *fbr_docker_images_overlay(const struct fbr_docker_images *m);

/* The name of the image for a job that names `image` (NULL: none). */
int fbr_docker_images_choose(struct fbr_docker_images *m, const char *image, char *out, size_t size,
                             struct fbr_error *err);
/* Whether our program is in it for certain: it was made of it, or we run in it. */
bool fbr_docker_images_is_own(const struct fbr_docker_images *m, const char *image);
/* Whether it is the one that is made of our program. */
bool fbr_docker_images_is_made(const struct fbr_docker_images *m, const char *image);
/* Makes it when it is to be made; tells at once when there is nothing to do. */
void fbr_docker_images_want(struct fbr_docker_images *m, const char *image, fbr_docker_on_image *on,
                            void *user);
/* The engine does not have it: gets it from its registry. Several jobs wait for one. */
void fbr_docker_images_pull(struct fbr_docker_images *m, const char *image, fbr_docker_on_image *on,
                            void *user);
/* That one does not want to be told any more. */
void fbr_docker_images_forget(struct fbr_docker_images *m, const void *user);

#endif
