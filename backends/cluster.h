/* cluster.h - the module "cluster": the code that speaks with the APIs of cluster managers and
 * therefore needs libcurl, jansson, libyaml and libarchive.
 *
 * fbr_module("cluster") returns this table.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "backends/image/image.h"
#include "runtime/proc/backend.h"

struct fbr_cluster {
    const struct fbr_backend_ops *const *backends; /* NULL-terminated */
    const struct fbr_image_ops *image;
    /* bundle.h */
    int (*bundle_into)(const char *program, const char *dir, bool cluster, struct fbr_error *err);
};
