/* horovod.c - the bridge of Horovod with its Gloo controller: sets what horovodrun gives its
 * workers.
 *
 * HOROVOD_GLOO_RENDEZVOUS_ADDR and _PORT name a port on the loopback of each agent, which carries
 * the bytes to the service "rendezvous". A cross rank counts the nodes that have a rank with this
 * local rank, as in Horovod: with nodes of different sizes it is not the number of the node.
 *
 * The names are those of horovod/common/gloo/gloo_context.cc and horovod/runner/gloo_run.py.
 * HOROVOD_CONTROLLER and HOROVOD_CPU_OPERATIONS stay if the user has set them: the other bridges
 * serve a program that runs Horovod over MPI.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "mpi_bridge/bridge.h"
#include "mpi_bridge/proxy.h"

static int horovod_rank(struct fbr_bridge *b, const struct fbr_bridge_job *job, uint32_t rank,
                        struct fbr_env *env, int *fd, struct fbr_error *err)
{
    uint32_t node = (uint32_t)job->node, local, cross = 0, cross_size = 0;
    uint16_t port;
    int rc = fbr_lo_proxy_port(b, job, "rendezvous", &port, err);

    if (rc < 0)
        return fbr_wrap(err, "Horovod");
    local = rank - job->first[node];
    for (uint32_t k = 0; k < job->nodes; k++)
        if (job->first[k + 1] - job->first[k] > local) {
            cross += k < node;
            cross_size++;
        }
    fbr_env_set(env, "HOROVOD_RANK", "%u", rank);
    fbr_env_set(env, "HOROVOD_SIZE", "%u", job->size);
    fbr_env_set(env, "HOROVOD_LOCAL_RANK", "%u", local);
    fbr_env_set(env, "HOROVOD_LOCAL_SIZE", "%u", fbr_bridge_local(job));
    fbr_env_set(env, "HOROVOD_CROSS_RANK", "%u", cross);
    fbr_env_set(env, "HOROVOD_CROSS_SIZE", "%u", cross_size);
    fbr_env_set(env, "HOROVOD_HOSTNAME", "%s", job->hosts[node]);
    fbr_env_set(env, "HOROVOD_GLOO_RENDEZVOUS_ADDR", "127.0.0.1");
    fbr_env_set(env, "HOROVOD_GLOO_RENDEZVOUS_PORT", "%u", port);
    fbr_env_default(env, "HOROVOD_CONTROLLER", "gloo");
    fbr_env_default(env, "HOROVOD_CPU_OPERATIONS", "gloo");
    return 0;
}

const struct fbr_bridge_ops fbr_bridge_horovod = {
    .name = "horovod",
    .open = fbr_lo_proxy_bridge_open,
    .rank = horovod_rank,
    .job_end = fbr_lo_proxy_bridge_job_end,
    .close = fbr_lo_proxy_bridge_close,
};
