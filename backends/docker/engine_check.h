/* engine_check.h - the checks of a Docker engine for `fiber doctor`.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "backends/docker/engine.h"
#include "backends/docker/container_image.h"
#include "runtime/proc/backend.h"

/* Asks the engine and reports; blocks for some seconds. Creates, pulls and starts nothing. */
void fbr_docker_check(struct fbr_docker_engine *e, struct fbr_docker_images *images,
                      const struct fbr_config *config, const struct fbr_findings *to);

/* Whether the answer of GET /info lists that security option. */
bool fbr_docker_has_option(const struct json_t *info, const char *option);

/* The part that only reads the answer of GET /info; `gpus`: this machine has GPUs. Pure. */
void fbr_docker_check_info(const struct json_t *info, bool gpus, const char *machine,
                           const struct fbr_findings *to);
