/* torch.c - the bridge of torch.distributed: sets what torchrun gives its workers, with the store
 * in the launcher.
 *
 * MASTER_ADDR and MASTER_PORT name a port on the loopback of each agent, which carries the bytes to
 * the service "tcpstore". With TORCHELASTIC_USE_AGENT_STORE rank 0 does not serve the store itself.
 * So env:// works unmodified, the store outlives every rank, and no port of a rank has to be free
 * or reachable from elsewhere. Most versions of torch look at that variable for every address (pull
 * request 192113 of torch), so a program that chooses one itself (MASTER_PORT, tcp://) waits for a
 * store that nobody serves; its user can set the variable to False. Then rank 0 does serve the
 * store, so MASTER_ADDR and MASTER_PORT stay as the user has set them. torch prefixes the keys of a
 * restart with TORCHELASTIC_RESTART_COUNT; here a restart also has a store of its own.
 *
 * The names are those of torch/distributed/elastic/agent/server/local_elastic_agent.py and
 * launcher/run.py.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "mpi_bridge/bridge.h"
#include "mpi_bridge/proxy.h"

#include <string.h>

/* Whether the user has said that the program serves the store. torch compares in the same way. */
static bool serves_itself(const struct fbr_env *env)
{
    const char *agent = fbr_env_get(env, "TORCHELASTIC_USE_AGENT_STORE");

    return agent && strcmp(agent, "True") != 0;
}

static int torch_rank(struct fbr_bridge *b, const struct fbr_bridge_job *job, uint32_t rank,
                      struct fbr_env *env, int *fd, struct fbr_error *err)
{
    static const char *const address[] = {"MASTER_ADDR=", "MASTER_PORT=", NULL};
    uint32_t node = (uint32_t)job->node, local;
    uint16_t port;
    int rc = fbr_lo_proxy_port(b, job, "tcpstore", &port, err);

    if (rc < 0)
        return fbr_wrap(err, "torch");
    local = rank - job->first[node];
    if (!serves_itself(env))
        fbr_env_drop(env, address);
    fbr_env_default(env, "MASTER_ADDR", "127.0.0.1");
    fbr_env_default(env, "MASTER_PORT", "%u", port);
    fbr_env_set(env, "RANK", "%u", rank);
    fbr_env_set(env, "WORLD_SIZE", "%u", job->size);
    /* Programs call torch.cuda.set_device(LOCAL_RANK). A rank with GPUs of its own sees no
     * others, and its first GPU is number 0 (torchrun --virtual-local-rank does the same). */
    fbr_env_set(env, "LOCAL_RANK", "%u", job->local[local].gpus ? 0 : local);
    fbr_env_set(env, "LOCAL_WORLD_SIZE", "%u", fbr_bridge_local(job));
    fbr_env_set(env, "GROUP_RANK", "%u", node);
    fbr_env_set(env, "GROUP_WORLD_SIZE", "%u", job->nodes);
    fbr_env_set(env, "ROLE_RANK", "%u", rank);
    fbr_env_set(env, "ROLE_WORLD_SIZE", "%u", job->size);
    fbr_env_set(env, "ROLE_NAME", "default");
    fbr_env_set(env, "TORCHELASTIC_RESTART_COUNT", "%u", job->epoch);
    fbr_env_set(env, "TORCHELASTIC_MAX_RESTARTS", "%u", job->max_restarts);
    fbr_env_set(env, "TORCHELASTIC_RUN_ID", "%s", job->run);
    fbr_env_default(env, "TORCHELASTIC_USE_AGENT_STORE", "True");
    /* torch before 2.2 reads this name without TORCH_; later versions warn of that name. */
    fbr_env_default(env, "TORCH_NCCL_ASYNC_ERROR_HANDLING", "1");
    return 0;
}

const struct fbr_bridge_ops fbr_bridge_torch = {
    .name = "torch",
    .open = fbr_lo_proxy_bridge_open,
    .rank = torch_rank,
    .job_end = fbr_lo_proxy_bridge_job_end,
    .close = fbr_lo_proxy_bridge_close,
};
