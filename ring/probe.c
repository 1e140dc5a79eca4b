/* probe.c - looks at this host and chooses the variables that ranks do well with; see probe.h.
 *
 * What the variables of Open MPI 4.1 and gloo cure was measured; those of Open MPI 5, UCX and NCCL
 * are set as their manuals have them. The roots below ("/sys", "/dev", "/proc") can be moved by a
 * test.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "ring/probe.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <linux/capability.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/statvfs.h>
#include <sys/uio.h>
#include <unistd.h>

#include "ring/probe_priv.h"

#define MIB (UINT64_C(1) << 20)

/* The first line of a small file, without its newline; false when it cannot be read. */
static bool read_line(const char *path, char *line, size_t size)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : read(fd, line, size - 1);

    if (fd >= 0)
        close(fd);
    if (n < 0)
        return false;
    line[n] = '\0';
    line[strcspn(line, "\n")] = '\0';
    return true;
}

/* ---- Memory ---- */

/* Whether we have CAP_SYS_PTRACE: root of a container need not. */
static bool may_trace(const char *proc)
{
    char path[FBR_PROBE_PATH], line[256];
    unsigned long long effective = 0;
    FILE *f;

    snprintf(path, sizeof(path), "%s/self/status", proc);
    f = fopen(path, "re");
    while (f && fgets(line, sizeof(line), f) && sscanf(line, "CapEff: %llx", &effective) != 1)
        ;
    if (f)
        fclose(f);
    return effective >> CAP_SYS_PTRACE & 1;
}

/* Reading our own memory shows whether the system call is there and let through. Yama's level 1 is no obstacle, since
 * MPI libraries allow it for themselves; 2 wants a capability, and 3 forbids it to all. */
static void probe_cma(struct fbr_probe *p, const char *proc)
{
    char path[FBR_PROBE_PATH], line[16];
    uint64_t from = 1, to = 0;
    struct iovec local = {&to, sizeof(to)}, remote = {&from, sizeof(from)};
    int yama = 0;

    snprintf(path, sizeof(path), "%s/sys/kernel/yama/ptrace_scope", proc);
    if (read_line(path, line, sizeof(line)))
        yama = atoi(line);
    if (process_vm_readv(getpid(), &local, 1, &remote, 1, 0) != (ssize_t)sizeof(to))
        snprintf(p->no_cma, sizeof(p->no_cma), "process_vm_readv: %s", strerror(errno));
    else if (yama > 2 || (yama == 2 && !may_trace(proc)))
        snprintf(p->no_cma, sizeof(p->no_cma), "kernel.yama.ptrace_scope is %d%s", yama,
                 yama == 2 ? ", and we lack SYS_PTRACE" : "");
    else
        p->cma = true;
}

static void probe_memory(struct fbr_probe *p, const struct fbr_probe_roots *roots)
{
    char path[FBR_PROBE_PATH];
    struct statvfs st;

    probe_cma(p, roots->proc);
    snprintf(path, sizeof(path), "%s/xpmem", roots->dev);
    p->xpmem = access(path, R_OK | W_OK) == 0;
    snprintf(path, sizeof(path), "%s/shm", roots->dev);
    p->shm = access(path, W_OK | X_OK) == 0 && statvfs(path, &st) == 0;
    if (p->shm) {
        p->shm_size = (uint64_t)st.f_blocks * st.f_frsize;
        p->shm_free = (uint64_t)st.f_bavail * st.f_frsize;
    }
}

uint64_t fbr_probe_shm_need(unsigned ranks)
{
    return 8 * MIB + ranks * MIB;
}

/* ---- Devices ---- */

static bool has_entry(const char *dir, const char *prefix)
{
    DIR *d = opendir(dir);
    struct dirent *e;
    bool found = false;

    while (d && !found && (e = readdir(d)))
        found = e->d_name[0] != '.' && !strncmp(e->d_name, prefix, strlen(prefix));
    if (d)
        closedir(d);
    return found;
}

/* Any port of the device is ACTIVE: "4: ACTIVE". */
static bool port_is_up(const char *device)
{
    char path[FBR_PROBE_PATH], line[32];
    DIR *d;
    struct dirent *e;
    bool up = false;

    snprintf(path, sizeof(path), "%.400s/ports", device);
    d = opendir(path);
    while (d && !up && (e = readdir(d))) {
        if (e->d_name[0] == '.')
            continue;
        snprintf(path, sizeof(path), "%.400s/ports/%.60s/state", device, e->d_name);
        up = read_line(path, line, sizeof(line)) && strstr(line, "ACTIVE");
    }
    if (d)
        closedir(d);
    return up;
}

/* InfiniBand, RoCE, EFA and Omni-Path all show as devices of the class "infiniband". */
static void probe_verbs(struct fbr_probe *p, const struct fbr_probe_roots *roots, bool omnipath)
{
    char path[FBR_PROBE_PATH], nodes[FBR_PROBE_PATH];
    DIR *d;
    struct dirent *e;
    bool usable;

    snprintf(nodes, sizeof(nodes), "%s/infiniband", roots->dev);
    usable = omnipath || has_entry(nodes, "uverbs");
    snprintf(path, sizeof(path), "%s/class/infiniband", roots->sys);
    d = opendir(path);
    while (d && !p->fabric && (e = readdir(d))) {
        if (e->d_name[0] == '.')
            continue;
        snprintf(path, sizeof(path), "%.300s/class/infiniband/%.60s", roots->sys, e->d_name);
        snprintf(p->fabric_name, sizeof(p->fabric_name), "%.31s", e->d_name);
        if (!port_is_up(path))
            snprintf(p->no_fabric, sizeof(p->no_fabric), "no port of %s is active", p->fabric_name);
        else if (!usable)
            snprintf(p->no_fabric, sizeof(p->no_fabric),
                     "%s is there, but not /dev/infiniband/uverbs*", p->fabric_name);
        else
            p->fabric = true;
    }
    if (d)
        closedir(d);
}

static bool begins(const char *name, const char *prefix)
{
    return strncmp(name, prefix, strlen(prefix)) == 0;
}

static bool is_gpu(const char *name)
{
    /* NVIDIA, AMD, all with a driver of the kernel's, Windows' own, ARM's, accelerators, FPGAs */
    static const char *const devices[] = {"nvidia", "kfd",   "dri",    "dxg",
                                          "mali",   "accel", "xclmgmt"};
    size_t i = 0;

    while (i < sizeof(devices) / sizeof(*devices) && !begins(name, devices[i]))
        i++;
    return i < sizeof(devices) / sizeof(*devices);
}

/* /dev is long on most hosts, and every agent looks: once, for all that it tells. */
static void probe_devices(struct fbr_probe *p, const struct fbr_probe_roots *roots)
{
    bool omnipath = false, slingshot = false;
    DIR *d = opendir(roots->dev);
    struct dirent *e;

    while (d && (e = readdir(d))) {
        omnipath |= begins(e->d_name, "hfi1_");
        slingshot |= begins(e->d_name, "cxi");
        p->gpu |= is_gpu(e->d_name);
    }
    if (d)
        closedir(d);
    probe_verbs(p, roots, omnipath);
    if (!p->fabric && slingshot) {
        p->fabric = true;
        snprintf(p->fabric_name, sizeof(p->fabric_name), "cxi");
    }
    if (p->fabric)
        p->no_fabric[0] = '\0';
}

static void probe_processors(struct fbr_probe *p, const struct fbr_probe_roots *roots)
{
    char path[FBR_PROBE_PATH];

    snprintf(path, sizeof(path), "%s/devices/system/cpu/cpu0/cache/index0/shared_cpu_map",
             roots->sys);
    p->caches = access(path, R_OK) == 0;
}

/* ---- Interfaces ---- */

/* The interface of the default route with the lowest metric; "" when there is none. */
static void default_route(const char *proc, char name[IF_NAMESIZE])
{
    char path[FBR_PROBE_PATH], line[256];
    unsigned long best = (unsigned long)-1;
    FILE *f;

    name[0] = '\0';
    snprintf(path, sizeof(path), "%s/net/route", proc);
    f = fopen(path, "re");
    while (f && fgets(line, sizeof(line), f)) {
        char interface[IF_NAMESIZE];
        unsigned long destination, metric, mask;
        unsigned flags;

        if (sscanf(line, "%15s %lx %*x %x %*d %*d %lu %lx", interface, &destination, &flags,
                   &metric, &mask) != 5)
            continue;
        if (destination == 0 && mask == 0 && (flags & 1) && metric < best) { /* RTF_UP */
            best = metric;
            snprintf(name, IF_NAMESIZE, "%s", interface);
        }
    }
    if (f)
        fclose(f);
}

static bool address_text(const struct sockaddr *a, char text[INET6_ADDRSTRLEN])
{
    if (a && a->sa_family == AF_INET)
        return inet_ntop(AF_INET, &((const struct sockaddr_in *)a)->sin_addr, text,
                         INET6_ADDRSTRLEN);
    if (a && a->sa_family == AF_INET6 &&
        !IN6_IS_ADDR_LINKLOCAL(&((const struct sockaddr_in6 *)a)->sin6_addr))
        return inet_ntop(AF_INET6, &((const struct sockaddr_in6 *)a)->sin6_addr, text,
                         INET6_ADDRSTRLEN);
    return false;
}

/* Bridges of container engines have the same address on every host, so nobody is reached by
 * them. */
static bool is_bridge(const char *name, const char *sys)
{
    char path[FBR_PROBE_PATH];

    snprintf(path, sizeof(path), "%s/class/net/%s/bridge", sys, name);
    return access(path, F_OK) == 0;
}

/* How much an interface has for it: 0 not at all. */
static int merit(const struct ifaddrs *i, const char *wanted, const char *sys)
{
    const unsigned needed = IFF_UP | IFF_RUNNING;
    char text[INET6_ADDRSTRLEN];

    if ((i->ifa_flags & needed) != needed || (i->ifa_flags & IFF_LOOPBACK) ||
        !address_text(i->ifa_addr, text))
        return 0;
    return 1 + (i->ifa_addr->sa_family == AF_INET) + 2 * !is_bridge(i->ifa_name, sys) +
           4 * !strcmp(i->ifa_name, wanted);
}

static void probe_interfaces(struct fbr_probe *p, const struct fbr_probe_roots *roots)
{
    char wanted[IF_NAMESIZE];
    struct ifaddrs *all = NULL;
    int best = 0;

    default_route(roots->proc, wanted);
    if (getifaddrs(&all) < 0)
        return;
    for (struct ifaddrs *i = all; i; i = i->ifa_next) {
        int m = merit(i, wanted, roots->sys);

        if ((i->ifa_flags & IFF_LOOPBACK) && (i->ifa_flags & IFF_UP))
            p->loopback = true;
        if (m <= best)
            continue;
        best = m;
        snprintf(p->interface, sizeof(p->interface), "%s", i->ifa_name);
        address_text(i->ifa_addr, p->address);
    }
    freeifaddrs(all);
}

/* A connected datagram socket has the address that its route begins with. */
static int local_address(const char *peer, char text[INET6_ADDRSTRLEN])
{
    union {
        struct sockaddr any;
        struct sockaddr_in v4;
        struct sockaddr_in6 v6;
    } a;
    socklen_t len;
    int fd, rc = 0;

    memset(&a, 0, sizeof(a));
    if (inet_pton(AF_INET, peer, &a.v4.sin_addr) == 1) {
        a.v4.sin_family = AF_INET;
        a.v4.sin_port = htons(9);
        len = sizeof(a.v4);
    } else if (inet_pton(AF_INET6, peer, &a.v6.sin6_addr) == 1) {
        a.v6.sin6_family = AF_INET6;
        a.v6.sin6_port = htons(9);
        len = sizeof(a.v6);
    } else {
        return -EINVAL;
    }
    fd = socket(a.any.sa_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return -errno;
    if (connect(fd, &a.any, len) < 0 || getsockname(fd, &a.any, &len) < 0)
        rc = -errno;
    else if (!address_text(&a.any, text))
        rc = -EADDRNOTAVAIL;
    close(fd);
    return rc;
}

int fbr_probe_toward(struct fbr_probe *p, const char *peer)
{
    char text[INET6_ADDRSTRLEN], other[INET6_ADDRSTRLEN];
    struct ifaddrs *all = NULL;
    int rc = local_address(peer, text);

    if (rc == 0 && getifaddrs(&all) < 0)
        rc = -errno;
    if (rc < 0)
        return rc;
    rc = -EADDRNOTAVAIL;
    for (struct ifaddrs *i = all; i && rc < 0; i = i->ifa_next) {
        if ((i->ifa_flags & IFF_LOOPBACK) || !address_text(i->ifa_addr, other) ||
            strcmp(text, other) != 0)
            continue;
        snprintf(p->interface, sizeof(p->interface), "%s", i->ifa_name);
        memcpy(p->address, text, sizeof(text));
        rc = 0;
    }
    freeifaddrs(all);
    return rc;
}

int fbr_probe_raise_loopback(void)
{
    struct ifreq r = {.ifr_name = "lo"};
    int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0), rc = 0;

    if (fd < 0)
        return -errno;
    if (ioctl(fd, SIOCGIFFLAGS, &r) < 0) {
        rc = -errno;
    } else if (!(r.ifr_flags & IFF_UP)) {
        r.ifr_flags |= IFF_UP;
        rc = ioctl(fd, SIOCSIFFLAGS, &r) < 0 ? -errno : 0;
    }
    close(fd);
    return rc;
}

void fbr_probe_at(struct fbr_probe *p, const struct fbr_probe_roots *roots)
{
    memset(p, 0, sizeof(*p));
    p->uid = geteuid();
    probe_memory(p, roots);
    probe_devices(p, roots);
    probe_processors(p, roots);
    probe_interfaces(p, roots);
}

void fbr_probe_run(struct fbr_probe *p)
{
    fbr_probe_at(p, &(const struct fbr_probe_roots){"/sys", "/dev", "/proc"});
}

/* ---- Cures ---- */

/* While it waits for the others, a rank of Open MPI sleeps 100 us at a time, and those that wait
 * take the processors from those that they wait for: the more, the more of them there are. */
unsigned long fbr_probe_slack(uint32_t ranks, uint32_t cpus)
{
    const unsigned long least = 500000, most = 2000000, each = 125000; /* ns */
    unsigned long wanted = cpus ? ranks / cpus * each : most;

    if (ranks <= cpus)
        return 0;
    return wanted < least ? least : wanted > most ? most : wanted;
}

/* Where the variables go, and who is told. */
struct cure {
    struct fbr_env *env;
    void (*say)(void *user, const char *text);
    void *user;
};

static void cure(const struct cure *c, const char *why, const char *name, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));

static void cure(const struct cure *c, const char *why, const char *name, const char *fmt, ...)
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

/* Without a fabric Open MPI's search for one costs 200 ms a job, and ob1 is what it ends with. */
static void cure_transport(const struct fbr_probe *p, const struct fbr_probe_use *use,
                           const struct cure *c)
{
    if (!p->fabric)
        cure(c, p->no_fabric[0] ? p->no_fabric : "no fabric", "OMPI_MCA_pml", "ob1");
    /* Open MPI 4.1's windows fail there with osc/rdma ("invalid window"), which in version 5 may be
     * all that there is: so it comes last, as far as osc/monitoring does not choose it. */
    if (!p->fabric && use->nodes > 1) {
        cure(c, "TCP between hosts", "OMPI_MCA_osc", "^monitoring");
        cure(c, "TCP between hosts", "OMPI_MCA_osc_rdma_priority", "0");
    }
    if (!p->cma && !p->xpmem) {
        cure(c, p->no_cma, "OMPI_MCA_btl_vader_single_copy_mechanism", "none");
        cure(c, p->no_cma, "OMPI_MCA_smsc", "^cma"); /* Open MPI 5 */
    }
}

static void cure_memory(const struct fbr_probe *p, const struct fbr_probe_use *use,
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

/* MPI libraries bring hwloc along, and it opens all of its plugins before it asks for one: OpenCL, X,
 * an XML library and what they need take a fifth of MPI_Init with few ranks. It reads and writes
 * its XML without that library as well, and where there is no GPU the others have nothing to find.
 *
 * Then it reads the configuration of each PCI device, to know which processors are near to it: in a
 * virtual machine each word of that goes to the hypervisor, 8 ms for six devices. Without a GPU and
 * a fabric nobody asks. And it runs on each processor in turn, to ask it for the caches that the
 * kernel has told of already. */
static void cure_hwloc(const struct fbr_probe *p, const struct cure *c)
{
    static const char gpus[] = "hwloc_cuda.so,hwloc_gl.so,hwloc_levelzero.so,hwloc_nvml.so,"
                               "hwloc_opencl.so,hwloc_rsmi.so";
    bool near = p->gpu || p->fabric;
    const char *pci = near ? "" : "-pci,-linux:pci", *x86 = p->caches ? "-x86" : "";

    if (p->gpu)
        cure(c, "hwloc has its own", "HWLOC_PLUGINS_BLACKLIST", "hwloc_xml_libxml.so");
    else
        cure(c, "no GPU", "HWLOC_PLUGINS_BLACKLIST", "hwloc_xml_libxml.so,%s%s", gpus,
             near ? "" : ",hwloc_pci.so");
    if (!near || p->caches)
        cure(c, near ? "the kernel knows the processors" : "no GPU and no fabric",
             "HWLOC_COMPONENTS", "%s%s%s", pci, *pci && *x86 ? "," : "", x86);
}

/* On one host gloo needs no more than the loopback, and whatever the host's name resolves to does
 * not matter. Between hosts all must use the interface that we know to work, not the first in a
 * list. With a fabric UCX knows better. */
static void cure_interfaces(const struct fbr_probe *p, const struct fbr_probe_use *use,
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
    if (!strchr(
            p->address,
            /* most builds of Open MPI know IPv4 only, and complain of an interface without it */
            ':'))
        cure(c, why, "OMPI_MCA_btl_tcp_if_include", "%s", p->interface);
    if (!p->fabric) /* also on one host: looking at each of many takes a tenth of MPI_Init */
        cure(c, why, "UCX_NET_DEVICES", "%s", p->interface);
    if (use->nodes <= 1)
        return;
    cure(c, why, "GLOO_SOCKET_IFNAME", "%s", p->interface);
    cure(c, why, "NCCL_SOCKET_IFNAME", "%s", p->interface);
}

void fbr_probe_env(const struct fbr_probe *p, const struct fbr_probe_use *use, struct fbr_env *env,
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
