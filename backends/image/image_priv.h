/* image_priv.h - the data of an image, which the files image*.c share.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "backends/image/image.h"

#define IMAGE_DIGEST 72 /* "sha256:", 64 digits, NUL */
#define IMAGE_BLOB 80   /* "blobs/sha256/", 64 digits, NUL */

#define IMAGE_LAYERS 2 /* libraries and packages; the rest */

struct archive;

struct image_layer {
    char digest[IMAGE_DIGEST];
    uint64_t len; /* bytes of its archive */
};

struct fbr_image {
    struct fbr_closure *closure;
    struct fbr_args env, entrypoint, cmd;
    char *workdir;
    char id[FBR_IMAGE_ID + 1];
    char digest[IMAGE_DIGEST]; /* of the configuration; "" before it is written */
    uint64_t archive;
};

/* Make the documents of the archive, for free(). NULL and a message. */
char *image_config(const struct fbr_image *i, const struct image_layer *layers,
                   struct fbr_error *err);
char *image_manifest(const char *config, size_t config_len, const struct image_layer *layers,
                     struct fbr_error *err);
char *image_index(const char *manifest, size_t manifest_len, const char *whole,
                  struct fbr_error *err);
/* Writes the manifest that `docker load` reads. */
char *image_docker(const char *config, const struct image_layer *layers, const char *tagged,
                   struct fbr_error *err);

/* Names the place in the archive of the bytes with that digest. */
void image_blob(const char *digest, char out[IMAGE_BLOB]);

/* image_own.c. Whether a path is that of a module of Fiber: in a folder "fiber". */
bool image_is_module(const char *path);

/* image.c. "sha256:" and 64 digits. */
int image_digest(const void *data, size_t len, char out[IMAGE_DIGEST], struct fbr_error *err);
/* Adds a file to an archive of libarchive, as `name`. */
int image_put_file(struct archive *a, const char *name, const struct fbr_file *f,
                   struct fbr_error *err);
/* Returns the reason why the last call of libarchive failed, and a sentence about it. */
int image_tar_failed(struct archive *a, const char *name, struct fbr_error *err);
