/* container_image.h - which image a container gets, and how the engine gets that image.
 *
 * In this order: the image that the job names; the image of the key `image`; the image of the
 * container in which we run; else an image made of this program, the libraries that it needs, and
 * the files that the key `image_add` names (closure.h). The name of such an image depends on its
 * contents, and it is made once.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "backends/docker/engine.h"

struct fbr_docker_images;

/* Receives news of an image that is on its way: text; at the end, once, with done. `fetch` is the
 * number that fbr_docker_images_want() or _pull() has returned. */
typedef void fbr_docker_image_news(void *user, int fetch, const char *text, bool done, bool good);

int fbr_docker_images_open(struct fbr_docker_images **out, struct fbr_docker_engine *engine,
                           const struct fbr_config *config, struct fbr_loop *loop,
                           fbr_docker_image_news *news, void *user, struct fbr_error *err);
/* No callback runs after it. */
void fbr_docker_images_close(struct fbr_docker_images *m);

/* Writes the name of the image for a job that names `image` (NULL: none). */
int fbr_docker_images_choose(struct fbr_docker_images *m, const char *image, char *out, size_t size,
                             struct fbr_error *err);
/* Whether the image certainly has our program: it was made of the program, or we run in it. */
bool fbr_docker_images_is_own(const struct fbr_docker_images *m, const char *image);
/* Whether the image is the one that is made of our program. */
bool fbr_docker_images_is_made(const struct fbr_docker_images *m, const char *image);
/* Makes the image if it must be made. 0: there is nothing to do; a positive number: of the fetch,
 * which may have begun before; -ENOMEM. */
int fbr_docker_images_want(struct fbr_docker_images *m, const char *image);
/* The same for an image that the engine lacks: pulls it from its registry. */
int fbr_docker_images_pull(struct fbr_docker_images *m, const char *image);
