/* run_image.h - what of a command goes into an image that is made for it.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef CLI_RUN_IMAGE_H
#define CLI_RUN_IMAGE_H

#include <stddef.h>

#include "fiber.h"
#include "runtime/error.h"

/* Words for the key image_add: the program, as the ranks find it from `workdir` (NULL: here) or in PATH, and the script
 * that it is to read. -ENOENT when it is not here, -ENOTSUP for one that needs more than its libraries, each with a
 * sentence. */
int run_image_files(const char *const *command, const char *workdir, char *out, size_t size,
                    struct fbr_error *err);

struct run_image_wish {
    const struct fiber_ring_options *ring;
    const char *backend; /* as an option; NULL: not given */
};

/* With a backend that makes its image by itself, and none named: sees to it that the programs will be in it. */
int run_image_prepare(const struct run_image_wish *w, struct fbr_error *err);

#endif
