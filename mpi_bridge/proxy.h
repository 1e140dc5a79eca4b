/* proxy.h - carries connections of local ranks to a service of the launcher: the common part of the
 * bridges of torch and Horovod.
 *
 * A proxy is one port on the loopback, for one job and one service. Loop thread only.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef FBR_PROXY_H
#define FBR_PROXY_H

#include "mpi_bridge/bridge.h"

struct fbr_lo_proxy;

uint16_t fbr_lo_proxy_port(const struct fbr_lo_proxy *p);

/* A job of such a bridge on this agent. Its proxy is opened for its first rank. */
struct fbr_lo_proxy_job {
    const struct fbr_bridge_job *job;
    struct fbr_lo_proxy *proxy; /* NULL before the first rank */
    struct fbr_lo_proxy_job *prev, *next;
};

/* The common part of these bridges' tables: .open, .job, .job_end, .close. */
struct fbr_bridge {
    const struct fbr_bridge_host *host;
    struct fbr_lo_proxy_job *jobs;
};

int fbr_lo_proxy_bridge_open(struct fbr_bridge **b, const struct fbr_bridge_host *host,
                             struct fbr_error *err);
int fbr_lo_proxy_bridge_job(struct fbr_bridge *b, const struct fbr_bridge_job *job,
                            struct fbr_error *err);
void fbr_lo_proxy_bridge_job_end(struct fbr_bridge *b, const struct fbr_bridge_job *job);
void fbr_lo_proxy_bridge_close(struct fbr_bridge *b);
/* Stores the job's proxy in *p, and opens it if it is not open yet. */
int fbr_lo_proxy_of(struct fbr_bridge *b, const struct fbr_bridge_job *job, const char *service,
                    struct fbr_lo_proxy **p, struct fbr_error *err);

#endif
