/* backends.c - the registry of backends: one line for each.
 *
 * Backends that need third-party libraries have only their facts here (NAME/NAME_table.c). Their
 * code is in the module "cluster", which is loaded when one of these backends is asked for.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <string.h>

#include "backends/cluster.h"
#include "runtime/program/module.h"
#include "runtime/proc/backend.h"

/* All backends but "local", which is always the first. Users see the backends and their settings in
 * this order; `backend = auto` asks each backend in this order whether we run inside it. */
#define BACKENDS(X) \
    X(docker)       \
    X(kubernetes)   \
    X(slurm)        \
    X(command)

#define DECLARE(name) extern const struct fbr_backend_ops fbr_backend_##name;
#define ENTRY(name) &fbr_backend_##name,
#define WORD(name) " " #name

DECLARE(local)
BACKENDS(DECLARE)

/* Tests add the mock backend (tests/support/mock.c) and its name. In other programs the address of
 * fbr_backend_mock is NULL, which ends the list. */
#define TESTS_MAY __attribute__((weak, visibility("hidden")))
extern const struct fbr_backend_ops fbr_backend_mock TESTS_MAY;

const struct fbr_backend_ops *const fbr_backends[] = {&fbr_backend_local,
                                                      BACKENDS(ENTRY) & fbr_backend_mock, NULL};
const char fbr_backend_names[] = FBR_BACKEND_LOCAL BACKENDS(WORD);
TESTS_MAY const char fbr_backend_words[] = "auto local" BACKENDS(WORD);

int fbr_backend_keys(size_t index, const struct fbr_config_key **keys, size_t *n)
{
    const struct fbr_backend_ops *b = fbr_backends[index];

    *keys = b && b->about ? b->about->keys : NULL;
    *n = *keys ? b->about->nkeys : 0;
    return b != NULL;
}

bool fbr_backend_variable(const char *name)
{
    for (size_t i = 0; fbr_backends[i]; i++) {
        const struct fbr_backend_about *about = fbr_backends[i]->about;

        for (const char *const *v = about ? about->variables : NULL; v && *v; v++)
            if (strcmp(*v, name) == 0)
                return true;
    }
    return false;
}

static const struct fbr_backend_ops *find(const struct fbr_backend_ops *const *list,
                                          const char *name)
{
    while (*list && strcmp((*list)->name, name) != 0)
        list++;
    return *list;
}

const struct fbr_backend_about *fbr_backend_about(const char *name)
{
    const struct fbr_backend_ops *b = find(fbr_backends, name);

    return b ? b->about : NULL;
}

const struct fbr_backend_ops *fbr_backend_find(const char *name, struct fbr_error *err)
{
    const struct fbr_backend_ops *b = find(fbr_backends, name);
    const struct fbr_cluster *cluster;

    if (!b)
        fbr_fail(err, -ENOENT, "there is no backend '%s' in this build; it has: %s", name,
                 fbr_backend_names);
    if (!b || b->open)
        return b;
    cluster = fbr_module("cluster", err);
    if (!cluster) {
        fbr_wrap(err, "backend %s", name);
        return NULL;
    }
    b = find(cluster->backends, name);
    if (!b)
        fbr_fail(err, -ENOENT, "backend %s: the module has no such backend", name);
    return b;
}
