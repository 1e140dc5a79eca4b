/* cluster.c - the table of the module "cluster", which holds the backends that need libraries.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "backends/cluster.h"

#include "backends/docker/image_load.h"
#include "backends/image/bundle.h"

extern const struct fbr_backend_ops fbr_docker_ops, fbr_kube_ops;

static const struct fbr_backend_ops *const backends[] = {&fbr_docker_ops, &fbr_kube_ops, NULL};

static const struct fbr_image_ops image = {.open = fbr_image_open,
                                           .close = fbr_image_close,
                                           .facts = fbr_image_facts,
                                           .write = fbr_image_write,
                                           .load = fbr_image_load,
                                           .name = fbr_image_name};

extern const struct fbr_cluster fbr_module_cluster;
__attribute__((visibility("default"))) const struct fbr_cluster fbr_module_cluster = {
    .backends = backends,
    .image = &image,
    .bundle_into = fbr_bundle_into,
};
