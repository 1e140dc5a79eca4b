/* service.h - the contract of a service: a small server that the launcher has for all ranks of a
 * job, e.g. torch's TCPStore.
 *
 * A service never listens. A rank connects to its agent on the loopback; the agent's bridge carries
 * the bytes over the authenticated control channel (bridge.h, stream_open). So no other host can
 * reach a service, and a service outlives every rank. A service is pure: connections and bytes in,
 * bytes out; it has no clock.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef FBR_SERVICE_H
#define FBR_SERVICE_H

#include <stddef.h>
#include <stdint.h>

struct fbr_service;

/* The calls that a service may make on a connection, during any call of its table below. */
struct fbr_service_host {
    void (*send)(void *user, uint64_t conn, const void *data, size_t len);
    void (*hang_up)(void *user, uint64_t conn); /* closed() is not called for it */
    void *user;
};

struct fbr_service_ops {
    const char *name;
    /* the advice to the user when a rank is replaced and its job has used the service */
    const char *replaced;
    struct fbr_service *(*open)(const struct fbr_service_host *host); /* NULL without memory */
    void (*opened)(struct fbr_service *s, uint64_t conn);
    void (*bytes)(struct fbr_service *s, uint64_t conn, const void *data, size_t len);
    void (*closed)(struct fbr_service *s, uint64_t conn);
    void (*close)(struct fbr_service *s);
};

/* NULL at its end (mpi_bridge/bridges.c) */
extern const struct fbr_service_ops *const fbr_services[];

#endif
