/* run_image.h - what of a command goes into an image that is made for it.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef CLI_RUN_IMAGE_H
#define CLI_RUN_IMAGE_H

#include <stdbool.h>
#include <stddef.h>

#include "fiber.h"
#include "runtime/base/buf.h"
#include "runtime/base/error.h"

/* The files for the image of a command. */
struct run_image_files {
    /* programs and scripts, with blanks between them: their folders are in its PATH */
    struct fbr_buf words;
    struct fbr_buf lines; /* other files and directories, each with a '\n' behind it */
};

void run_image_files_init(struct run_image_files *f);
void run_image_files_fini(struct run_image_files *f);

/* Adds the program, as the ranks find it from `workdir` (NULL: here) or in PATH, the script that it
 * is to read, and what an interpreter needs besides (interpreter.h). named: files for the image
 * were named. -ENOENT when it is not here, -ENOTSUP for one that needs more than can be told, each
 * with a sentence. */
int run_image_add(struct run_image_files *f, const char *const *command, const char *workdir,
                  bool named, struct fbr_error *err);

struct run_image_wish {
    const struct fiber_ring_options *ring;
    const char *backend; /* as an option; NULL: not given */
};

/* With a backend that makes its image by itself, and none named: sees to it that the programs will
 * be in it. */
int run_image_prepare(const struct run_image_wish *w, struct fbr_error *err);

#endif
