/* pull_command.h - pulls an image by the docker or podman command, which has this user's logins to
 * registries.
 *
 * The commands know where logins are kept (files, helpers, stores), so no login passes through us.
 * They use the engine that we use: DOCKER_HOST, and CONTAINER_HOST for podman, have its address.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdatomic.h>

#include "backends/docker/engine.h"

/* Pulls the image. Blocks until the command ends, or until *stop; then the command is killed.
 * Returns 0, or a negative errno and a sentence. */
int fbr_docker_pull_command(const struct fbr_docker_engine *e, const char *image,
                            const atomic_bool *stop, struct fbr_error *err);
