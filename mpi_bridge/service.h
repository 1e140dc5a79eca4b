/* service.h - the contract of a service: a small server that the launcher has for all ranks of a
 * job, e.g. torch's TCPStore.
 *
 * A service never listens. A rank connects to its agent on the loopback; the agent's bridge carries
 * the bytes over the authenticated control channel (bridge.h, stream_open). So no other host can
 * reach a service, and a service outlives every rank. A service is pure: connections and bytes in,
 * bytes out; it has no clock.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stddef.h>

struct fbr_service;
struct fbr_service_conn; /* a connection, as the service sees it */

/* The calls that a service may make on a connection, during any call of its table below. `peer` is
 * what opened() got. */
struct fbr_service_host {
    void (*send)(void *peer, const void *data, size_t len);
    void (*hang_up)(void *peer); /* closed() is not called for it */
};

struct fbr_service_ops {
    const char *name;
    /* the advice to the user when a rank is replaced and its job has used the service */
    const char *replaced;
    struct fbr_service *(*open)(const struct fbr_service_host *host);      /* NULL without memory */
    struct fbr_service_conn *(*opened)(struct fbr_service *s, void *peer); /* the same */
    void (*bytes)(struct fbr_service_conn *c, const void *data, size_t len);
    void (*closed)(struct fbr_service_conn *c);
    void (*close)(struct fbr_service *s); /* all its connections are closed */
};

/* NULL at its end (mpi_bridge/bridges.c) */
extern const struct fbr_service_ops *const fbr_services[];
