/* proxy.h - carries connections of local ranks to a service of the launcher: the common part of the
 * bridges of torch and Horovod.
 *
 * A proxy is one port on the loopback, for one job and one service. Loop thread only.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "mpi_bridge/bridge.h"

struct fbr_lo_proxy;

/* The common part of these bridges' tables: .open, .job_end, .close. */
struct fbr_bridge {
    const struct fbr_bridge_host *host;
    struct fbr_lo_proxy *proxies; /* one for each job with a rank here */
};

int fbr_lo_proxy_bridge_open(struct fbr_bridge **b, const struct fbr_bridge_host *host,
                             struct fbr_error *err);
void fbr_lo_proxy_bridge_job_end(struct fbr_bridge *b, const struct fbr_bridge_job *job);
void fbr_lo_proxy_bridge_close(struct fbr_bridge *b);
/* Stores the port of the job's proxy, which is opened for the job's first rank. */
int fbr_lo_proxy_port(struct fbr_bridge *b, const struct fbr_bridge_job *job, const char *service,
                      uint16_t *port, struct fbr_error *err);
