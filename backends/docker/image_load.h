/* image_load.h - loads an image straight into the Docker engine.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "backends/image/image.h"

/* Loads the image into the Docker engine that the configuration names, and waits until the engine
 * has it. `engine` becomes the name of that engine, for messages. */
int fbr_image_load(struct fbr_image *i, const char *name, const struct fbr_config *config,
                   char engine[FBR_IMAGE_ENGINE_MAX], struct fbr_error *err);
