/* backends.c - the registry of backends: one array.
 *
 * Those that bring libraries with them stand there by name only; their tables are in the module "cluster", which is
 * loaded when one of them is asked for.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <string.h>

#include "backends/cluster.h"
#include "runtime/proc/backend.h"
#include "runtime/base/module.h"

extern const struct fbr_backend_ops fbr_backend_local, fbr_backend_mock, fbr_backend_command,
    fbr_backend_slurm;
static const struct fbr_backend_ops docker = {.name = "docker", .reach = FBR_REACH_TCP},
                                    kubernetes = {.name = "kubernetes", .reach = FBR_REACH_TCP};

const struct fbr_backend_ops *const fbr_backends[] = {&fbr_backend_local,
                                                      &fbr_backend_mock,
                                                      &fbr_backend_command,
                                                      &fbr_backend_slurm,
                                                      &docker,
                                                      &kubernetes,
                                                      NULL};

static const struct fbr_backend_ops *whole(const struct fbr_backend_ops *b, struct fbr_error *err)
{
    const struct fbr_cluster *cluster;

    if (b->open)
        return b;
    cluster = fbr_module("cluster", err);
    if (!cluster) {
        fbr_wrap(err, "backend %s", b->name);
        return NULL;
    }
    return b == &docker ? cluster->docker : cluster->kubernetes;
}

const struct fbr_backend_ops *fbr_backend_find(const char *name, struct fbr_error *err)
{
    char names[128] = "";

    for (int i = 0; fbr_backends[i]; i++) {
        if (strcmp(fbr_backends[i]->name, name) == 0)
            return whole(fbr_backends[i], err);
        if (i)
            strncat(names, " ", sizeof(names) - strlen(names) - 1);
        strncat(names, fbr_backends[i]->name, sizeof(names) - strlen(names) - 1);
    }
    fbr_fail(err, -ENOENT, "there is no backend '%s' in this build; it has: %s", name, names);
    return NULL;
}
