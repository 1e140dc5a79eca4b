/* cluster.c - the table of the module "cluster"; see cluster.h.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "backends/cluster.h"

#include "backends/image/bundle.h"

extern const struct fbr_backend_ops fbr_docker_ops, fbr_kube_ops;

static const struct fbr_backend_ops *const backends[] = {&fbr_docker_ops, &fbr_kube_ops, NULL};

extern const struct fbr_cluster fbr_module_cluster;
__attribute__((visibility("default"))) const struct fbr_cluster fbr_module_cluster = {
    .backends = backends,
    .image = &fbr_image_ops,
    .bundle_into = fbr_bundle_into,
};
