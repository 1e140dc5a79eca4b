/* bridges.c - the registries: the bridges that an agent opens, and the services that the launcher
 * has for them.
 *
 * The bridge of PMIx is a module, because it needs libpmix. Without that library the other bridges
 * still serve their programs.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <pthread.h>
#include <string.h>

#include "mpi_bridge/bridge.h"
#include "mpi_bridge/service.h"
#include "runtime/program/module.h"

extern const struct fbr_bridge_ops fbr_bridge_plain, fbr_bridge_pmi1, fbr_bridge_torch,
    fbr_bridge_horovod;
extern const struct fbr_service_ops fbr_service_tcpstore, fbr_service_rendezvous;

static const struct fbr_bridge_ops *const linked[] = {&fbr_bridge_plain, &fbr_bridge_pmi1,
                                                      &fbr_bridge_torch, &fbr_bridge_horovod};
#define LINKED (sizeof(linked) / sizeof(linked[0]))

const struct fbr_service_ops *const fbr_services[] = {
    &fbr_service_tcpstore,
    &fbr_service_rendezvous,
    NULL,
};

static struct {
    pthread_once_t once;
    const struct fbr_bridge_ops *all[LINKED + 2]; /* and PMIx, and NULL */
    char pmix_missing[FBR_ERROR_TEXT];            /* why the PMIx bridge is missing */
} registry = {.once = PTHREAD_ONCE_INIT};

static void load(void)
{
    struct fbr_error err = {0};
    const struct fbr_bridge_ops *pmix = fbr_module("pmix", &err);

    memcpy(registry.all, linked, sizeof(linked));
    registry.all[LINKED] = pmix;
    if (!pmix)
        memcpy(registry.pmix_missing, err.text, sizeof(err.text));
}

const struct fbr_bridge_ops *const *fbr_bridges(void)
{
    pthread_once(&registry.once, load);
    return registry.all;
}

const struct fbr_bridge_ops *fbr_bridge_met(const char *how)
{
    for (size_t i = 0; i < LINKED; i++)
        if (linked[i]->met_as && strncmp(how, linked[i]->met_as, strlen(linked[i]->met_as)) == 0)
            return linked[i];
    return NULL;
}

const char *fbr_bridge_missing(const char *name)
{
    pthread_once(&registry.once, load);
    return !strcmp(name, "pmix") && *registry.pmix_missing ? registry.pmix_missing : NULL;
}
