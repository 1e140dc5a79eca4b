/* run_image.h - the files of a command for an image that is made for it.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "fiber.h"
#include "runtime/base/buf.h"
#include "runtime/base/error.h"

/* The files for the image of a command; zeroed at first. */
struct run_image_files {
    /* programs and scripts, separated by blanks: PATH of the image has their folders */
    struct fbr_buf words;
    struct fbr_buf lines; /* other files and directories, each with a '\n' after it */
};

void run_image_files_fini(struct run_image_files *f);

/* Adds the program, as the ranks find it from `workdir` (NULL: here) or in PATH; the script that it
 * reads; and the further files of an interpreter (interpreter.h). named: the user has named files
 * for the image. -ENOENT: the program does not exist here; -ENOTSUP: it needs files that cannot be
 * found; each with a message. */
int run_image_add(struct run_image_files *f, const char *const *command, const char *workdir,
                  bool named, struct fbr_error *err);

/* For a backend that makes its image itself, when no image is named: makes sure that the programs
 * will be in it. */
int run_image_prepare(const struct fiber_ring_options *ring, struct fbr_error *err);
