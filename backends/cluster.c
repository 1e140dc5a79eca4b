/* cluster.c - the table of the module "cluster"; see cluster.h.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "backends/cluster.h"

#include "backends/image/bundle.h"

extern const struct fbr_backend_ops fbr_backend_docker, fbr_backend_kubernetes;

extern const struct fbr_cluster fbr_module_cluster;
__attribute__((visibility("default"))) const struct fbr_cluster fbr_module_cluster = {
    .docker = &fbr_backend_docker,
    .kubernetes = &fbr_backend_kubernetes,
    .image = &fbr_image_ops,
    .bundle_into = fbr_bundle_into,
};
