/* host_env.c - variables that MPI and similar libraries need to work well.
 *
 * The effect of the variables of Open MPI 4.1 and gloo was measured. Those of Open MPI 5, UCX and
 * NCCL are set as in their manuals.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "mpi_bridge/host_env.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define MIB (UINT64_C(1) << 20)

/* ---- A host ---- */

/* While it waits for the others, a rank of Open MPI sleeps 100 us at a time. Ranks that wait
 * take the processors from the ranks that they wait for; the more ranks wait, the more they
 * take. */
unsigned long fbr_host_env_slack(uint32_t ranks, uint32_t cpus)
{
    const unsigned long least = 500000, most = 2000000, each = 125000; /* ns */
    unsigned long wanted = cpus ? ranks / cpus * each : most;

    if (ranks <= cpus)
        return 0;
    return wanted < least ? least : wanted > most ? most : wanted;
}

/* The environment that gets the variables, and the function that gets the sentences. */
struct cure {
    struct fbr_env *env;
    void (*say)(void *user, const char *text);
    void *user;
};

__attribute__((format(printf, 4, 5))) static void cure(const struct cure *c, const char *why,
                                                       const char *name, const char *fmt, ...)
{
    char value[512], text[768];
    va_list ap;

    if (fbr_env_get(c->env, name))
        return;
    va_start(ap, fmt);
    vsnprintf(value, sizeof(value), fmt, ap);
    va_end(ap);
    fbr_env_default(c->env, name, "%s", value);
    snprintf(text, sizeof(text), "%s: %s=%s", why, name, value);
    if (c->say)
        c->say(c->user, text);
}

/* Without a fabric Open MPI's search for one costs 200 ms for each job, and ends with ob1. */
static void cure_transport(const struct fbr_probe *p, const struct fbr_host_use *use,
                           const struct cure *c)
{
    if (!p->fabric)
        cure(c, p->no_fabric[0] ? p->no_fabric : "no fabric", "OMPI_MCA_pml", "ob1");
    /* Over TCP the windows of Open MPI 4.1 fail with osc/rdma ("invalid window"). In version 5
     * osc/rdma may be the only component, so it comes last and is not excluded. osc/monitoring
     * is: it would choose osc/rdma. */
    if (!p->fabric && use->nodes > 1) {
        cure(c, "TCP between hosts", "OMPI_MCA_osc", "^monitoring");
        cure(c, "TCP between hosts", "OMPI_MCA_osc_rdma_priority", "0");
    }
    if (!p->cma && !p->xpmem) {
        cure(c, p->no_cma, "OMPI_MCA_btl_vader_single_copy_mechanism", "none");
        cure(c, p->no_cma, "OMPI_MCA_smsc", "^cma"); /* Open MPI 5 */
    }
}

static void cure_memory(const struct fbr_probe *p, const struct fbr_host_use *use,
                        const struct cure *c)
{
    char why[96];

    if (p->shm && p->shm_free >= fbr_probe_shm_need(use->ranks))
        return;
    if (p->shm)
        snprintf(why, sizeof(why), "/dev/shm has %.1f MiB left for %u ranks",
                 (double)p->shm_free / (double)MIB, use->ranks);
    else
        snprintf(why, sizeof(why), "/dev/shm is missing or cannot be written");
    if (use->scratch) {
        cure(c, why, "OMPI_MCA_btl_vader_backing_directory", "%s", use->scratch);
        cure(c, why, "OMPI_MCA_btl_sm_backing_directory", "%s", use->scratch); /* Open MPI 5 */
        cure(c, why, "OMPI_MCA_osc_sm_backing_directory", "%s", use->scratch);
        cure(c, why, "OMPI_MCA_osc_rdma_backing_directory", "%s", use->scratch);
        cure(c, why, "OMPI_MCA_shmem_mmap_relocate_backing_file", "1");
        cure(c, why, "OMPI_MCA_shmem_mmap_backing_file_base_dir", "%s", use->scratch);
        cure(c, why, "UCX_POSIX_DIR", "%s", use->scratch);
    }
    cure(c, why, "NCCL_SHM_DISABLE", "1");
}

/* MPI libraries bring hwloc along, and hwloc opens all of its plugins before it asks for one:
 * OpenCL, X, an XML library and their dependencies take a fifth of MPI_Init with few ranks. hwloc
 * reads and writes its XML without that library as well, and without a GPU the others find nothing.
 *
 * Then hwloc reads the configuration of each PCI device, to know which processors are near it.
 * In a virtual machine each word of this goes to the hypervisor: 8 ms for six devices. Without a
 * GPU and a fabric no program asks for it. hwloc also runs on each processor in turn, to ask it
 * for the caches that the kernel has reported already. */
static void cure_hwloc(const struct fbr_probe *p, const struct cure *c)
{
    static const char gpus[] = "hwloc_cuda.so,hwloc_gl.so,hwloc_levelzero.so,hwloc_nvml.so,"
                               "hwloc_opencl.so,hwloc_rsmi.so";
    bool near = p->gpu || p->fabric;
    const char *pci = near ? "" : "-pci,-linux:pci", *x86 = p->caches ? "-x86" : "";

    if (p->gpu)
        cure(c, "hwloc reads XML itself", "HWLOC_PLUGINS_BLACKLIST", "hwloc_xml_libxml.so");
    else
        cure(c, "no GPU", "HWLOC_PLUGINS_BLACKLIST", "hwloc_xml_libxml.so,%s%s", gpus,
             near ? "" : ",hwloc_pci.so");
    if (!near || p->caches)
        cure(c, near ? "the kernel knows the processors" : "no GPU and no fabric",
             "HWLOC_COMPONENTS", "%s%s%s", pci, *pci && *x86 ? "," : "", x86);
}

/* On one host gloo needs only the loopback, and it does not matter what the host's name resolves
 * to. Between hosts all ranks must use the interface that we know to work, not the first in a
 * list. With a fabric UCX makes the better choice. */
static void cure_interfaces(const struct fbr_probe *p, const struct fbr_host_use *use,
                            const struct cure *c)
{
    char why[64];

    if (use->nodes <= 1 && p->loopback)
        cure(c, "one host", "GLOO_SOCKET_IFNAME", "lo");
    if (!p->interface[0]) {
        if (p->loopback)
            cure(c, "no interface but lo", "OMPI_MCA_btl_tcp_if_include", "lo");
        return;
    }
    snprintf(why, sizeof(why), "reached by %s", p->address);
    /* Most builds of Open MPI know IPv4 only, and complain about an interface without it. */
    if (!strchr(p->address, ':'))
        cure(c, why, "OMPI_MCA_btl_tcp_if_include", "%s", p->interface);
    if (!p->fabric) /* also on one host: to look at each of many takes a tenth of MPI_Init */
        cure(c, why, "UCX_NET_DEVICES", "%s", p->interface);
    if (use->nodes <= 1)
        return;
    cure(c, why, "GLOO_SOCKET_IFNAME", "%s", p->interface);
    /* without "=", NCCL takes all interfaces whose names begin so */
    cure(c, why, "NCCL_SOCKET_IFNAME", "=%s", p->interface);
}

void fbr_host_env(const struct fbr_probe *p, const struct fbr_host_use *use, struct fbr_env *env,
                  void (*say)(void *user, const char *text), void *user)
{
    const struct cure c = {env, say, user};

    cure_transport(p, use, &c);
    cure_memory(p, use, &c);
    cure_interfaces(p, use, &c);
    cure_hwloc(p, &c);
    if (use->oversubscribed) {
        cure(&c, "more ranks than processors", "OMPI_MCA_mpi_yield_when_idle", "1");
        cure(&c, "more ranks than processors", "OMPI_MCA_mpi_oversubscribe", "1");
    }
}

/* ---- A rank ---- */

/* Names folders for files that ranks share: nothing of a killed run may stay in /dev/shm itself.
 * Agents may share a host. */
static void name_shared_files(struct fbr_env *e, const char *shm)
{
    /* mmap is Open MPI's default. The other choices try a name in /dev/shm, which may stay
     * there. */
    fbr_env_default(e, "OMPI_MCA_shmem", "mmap");
    if (!shm)
        return;
    fbr_env_default(e, "OMPI_MCA_btl_vader_backing_directory", "%s", shm);
    fbr_env_default(e, "OMPI_MCA_btl_sm_backing_directory", "%s", shm);
    fbr_env_default(e, "OMPI_MCA_osc_rdma_backing_directory", "%s", shm);
    fbr_env_default(e, "OMPI_MCA_osc_sm_backing_directory", "%s", shm);
    fbr_env_default(e, "UCX_POSIX_DIR", "%s", shm); /* UCX unlinks them, but not if it is killed */
}

/* Removes the interface that cure_interfaces() chose, if the user has excluded some: with both
 * lists Open MPI uses no TCP. */
static void yield_interfaces(const struct fbr_probe *p, struct fbr_env *e)
{
    const char *include = fbr_env_get(e, "OMPI_MCA_btl_tcp_if_include");

    if (include && !strcmp(include, p->interface[0] ? p->interface : "lo") &&
        fbr_env_get(e, "OMPI_MCA_btl_tcp_if_exclude"))
        fbr_env_drop(e, (const char *const[]){"OMPI_MCA_btl_tcp_if_include=", NULL});
}

void fbr_rank_env(const struct fbr_probe *p, const struct fbr_rank_use *use, struct fbr_env *e)
{
    yield_interfaces(p, e);
    if (use->nodes > 1 && p->interface[0])
        fbr_env_default(e, "HOROVOD_GLOO_IFACE", "%s", p->interface);
    /* If the kernel's routes cannot be read, as in many containers, Open MPI's other choice
     * reaches no host. */
    fbr_env_default(e, "OMPI_MCA_reachable", "weighted");
    name_shared_files(e, use->shm);
    if (use->shares_cpus)
        fbr_env_default(e, "OMPI_MCA_mpi_yield_when_idle", "1");
    /* The first is what `mpirun --with-ft` sets. Before 5.0.10 Open MPI's collectives by host
     * (coll/han) do not notice that a communicator was revoked. Over several hosts, the survivors
     * of a death then wait for ever, or go on with a wrong sum. */
    if (use->survives) {
        fbr_env_default(e, "OMPI_MCA_mpi_ft_enable", "1");
        fbr_env_default(e, "OMPI_MCA_coll_han_priority", "0");
    }
    if (use->nic && p->fabric) {
        fbr_env_default(e, "UCX_NET_DEVICES", "%s:1", use->nic);
        fbr_env_default(e, "NCCL_IB_HCA", "=%s", use->nic);
    }
}

void fbr_rank_env_drop_outer(struct fbr_env *e)
{
    /* By SLURM_PROCID JAX would take all ranks of a node for the step's one task, and give them the
     * same GPU. By orte_hnp_uri it takes Fiber for mpirun, if the user asks for that. */
    static const char *const outer[] = {"FIBER_TICKET=",
                                        "FIBER_RANK_RESTARTS=",
                                        "FIBER_LAST_FAILURE=",
                                        "SLURM_PROCID=",
                                        "SLURM_LOCALID=",
                                        "SLURM_NODEID=",
                                        "TORCHELASTIC_USE_AGENT_STORE=",
                                        "OMPI_MCA_orte_hnp_uri=",
                                        NULL};

    fbr_env_drop(e, outer);
}

void fbr_rank_env_drop_servers(struct fbr_env *e)
{
    /* With orte_launch Open MPI 4 takes the name of its job for a number of mpirun's: then every
     * job is number 0. */
    static const char *const servers[] = {"PMIX_NAMESPACE=",
                                          "PMIX_RANK=",
                                          "PMIX_SERVER_URI",
                                          "PMIX_DSTORE_",
                                          "PMI_FD=",
                                          "PMI_PORT=",
                                          "PMI_ID=",
                                          "PMI_RANK=",
                                          "PMI_SIZE=",
                                          "PMI_JOBID=",
                                          "PMI_SPAWNED=",
                                          "PMI2_SUN_PATH=",
                                          "PMI2_CONNECT_TO_SERVER=",
                                          "OMPI_MCA_orte_local_daemon_uri=",
                                          "OMPI_MCA_orte_launch=",
                                          "OMPI_MCA_orte_jobfam_session_dir=",
                                          "OMPI_MCA_orte_top_session_dir=",
                                          NULL};

    fbr_env_drop(e, servers);
}

bool fbr_rank_env_is_inherited(const char *name)
{
    return !strncmp(name, FBR_MCA_PREFIX, strlen(FBR_MCA_PREFIX)) || !strncmp(name, "PMIX_MCA_", 9);
}
