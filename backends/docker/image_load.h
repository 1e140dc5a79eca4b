/* image_load.h - an image, put straight into the Docker engine.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef FBR_IMAGE_LOAD_H
#define FBR_IMAGE_LOAD_H

#include "backends/image/image.h"

/* Writes it straight into the Docker engine that the configuration names; waits until the engine
 * has it. `engine` becomes where that is, for people. */
int fbr_image_load(struct fbr_image *i, const char *name, const struct fbr_config *config,
                   char engine[FBR_IMAGE_ENGINE_MAX], struct fbr_error *err);

#endif
