/* probe.c - probes this host. A test can move the roots below ("/sys", "/dev", "/proc").
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "mpi_bridge/probe.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <glob.h>
#include <ifaddrs.h>
#include <linux/capability.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/statvfs.h>
#include <sys/uio.h>
#include <unistd.h>

#include "mpi_bridge/probe_priv.h"
#include "runtime/base/environ.h"
#include "runtime/base/fds.h"

#define MIB (UINT64_C(1) << 20)

/* ---- Memory ---- */

/* True if we have CAP_SYS_PTRACE: root in a container may lack it. */
static bool may_trace(const char *proc)
{
    char path[FBR_PROBE_PATH], text[16384];
    const char *line;

    snprintf(path, sizeof(path), "%s/self/status", proc);
    line = fbr_fds_read_file(path, text, sizeof(text)) > 0 ? strstr(text, "CapEff:") : NULL;
    return line && strtoull(line + strlen("CapEff:"), NULL, 16) >> CAP_SYS_PTRACE & 1;
}

/* A read of our own memory shows whether the system call exists and is allowed. Yama's level 1
 * is no obstacle, because MPI libraries allow the access themselves; level 2 needs a capability,
 * and level 3 forbids it to all. */
static void probe_cma(struct fbr_probe *p, const char *proc)
{
    char path[FBR_PROBE_PATH], line[16];
    uint64_t from = 1, to = 0;
    struct iovec local = {&to, sizeof(to)}, remote = {&from, sizeof(from)};
    int yama = 0;

    snprintf(path, sizeof(path), "%s/sys/kernel/yama/ptrace_scope", proc);
    if (fbr_fds_read_file(path, line, sizeof(line)) > 0)
        yama = atoi(line);
    if (process_vm_readv(getpid(), &local, 1, &remote, 1, 0) != (ssize_t)sizeof(to))
        snprintf(p->no_cma, sizeof(p->no_cma), "process_vm_readv: %s", strerror(errno));
    else if (yama > 2 || (yama == 2 && !may_trace(proc)))
        snprintf(p->no_cma, sizeof(p->no_cma), "kernel.yama.ptrace_scope is %d%s", yama,
                 yama == 2 ? ", and SYS_PTRACE is missing" : "");
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

/* True if any port of the device is ACTIVE: "4: ACTIVE". */
static bool port_is_up(const char *device)
{
    char path[FBR_PROBE_PATH], line[32];
    bool up = false;
    glob_t states;

    snprintf(path, sizeof(path), "%.400s/ports/*/state", device);
    glob(path, 0, NULL, &states);
    for (size_t i = 0; i < states.gl_pathc && !up; i++)
        up =
            fbr_fds_read_file(states.gl_pathv[i], line, sizeof(line)) > 0 && strstr(line, "ACTIVE");
    globfree(&states);
    return up;
}

/* InfiniBand, RoCE, EFA and Omni-Path all appear as devices of the class "infiniband". */
static void probe_verbs(struct fbr_probe *p, const struct fbr_probe_roots *roots, bool omnipath)
{
    char path[FBR_PROBE_PATH];
    glob_t devices;
    bool usable;

    snprintf(path, sizeof(path), "%s/infiniband/uverbs*", roots->dev);
    usable = omnipath || glob(path, 0, NULL, &devices) == 0;
    if (!omnipath)
        globfree(&devices);
    snprintf(path, sizeof(path), "%s/class/infiniband/*", roots->sys);
    glob(path, 0, NULL, &devices);
    for (size_t i = 0; i < devices.gl_pathc && !p->fabric; i++) {
        snprintf(p->fabric_name, sizeof(p->fabric_name), "%.31s", basename(devices.gl_pathv[i]));
        if (!port_is_up(devices.gl_pathv[i]))
            snprintf(p->no_fabric, sizeof(p->no_fabric), "no port of %s is active", p->fabric_name);
        else if (!usable)
            snprintf(p->no_fabric, sizeof(p->no_fabric),
                     "%s exists, but /dev/infiniband/uverbs* does not", p->fabric_name);
        else
            p->fabric = true;
    }
    globfree(&devices);
}

/* The names begin so. */
static const char *const omnipath_devices[] = {"hfi1_", NULL};
static const char *const slingshot_devices[] = {"cxi", NULL};
/* NVIDIA, AMD, all with a kernel driver, Windows' own, ARM's, accelerators, FPGAs */
static const char *const gpu_devices[] = {"nvidia", "kfd",   "dri",     "dxg",
                                          "mali",   "accel", "xclmgmt", NULL};

/* /dev is long on most hosts and every agent reads it, so one pass finds everything. */
static void probe_devices(struct fbr_probe *p, const struct fbr_probe_roots *roots)
{
    bool omnipath = false, slingshot = false;
    DIR *d = opendir(roots->dev);
    struct dirent *e;

    while (d && (e = readdir(d))) {
        omnipath |= fbr_strings_begin(e->d_name, omnipath_devices);
        slingshot |= fbr_strings_begin(e->d_name, slingshot_devices);
        p->gpu |= fbr_strings_begin(e->d_name, gpu_devices);
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

/* Finds the interface of the default route with the lowest metric; "": none. */
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

/* Bridges of container engines have the same address on every host, so no host is reached by
 * them. */
static bool is_bridge(const char *name, const char *sys)
{
    char path[FBR_PROBE_PATH];

    snprintf(path, sizeof(path), "%s/class/net/%s/bridge", sys, name);
    return access(path, F_OK) == 0;
}

/* Rates an interface with an address; 0: it cannot be used. */
static int merit(const struct ifaddrs *i, const char *wanted, const char *address, const char *sys)
{
    const unsigned needed = IFF_UP | IFF_RUNNING;
    char text[INET6_ADDRSTRLEN];

    if ((i->ifa_flags & needed) != needed || (i->ifa_flags & IFF_LOOPBACK) ||
        !address_text(i->ifa_addr, text))
        return 0;
    return 1 + (i->ifa_addr->sa_family == AF_INET) + 2 * !is_bridge(i->ifa_name, sys) +
           4 * !strcmp(i->ifa_name, wanted) + 8 * !strcmp(text, address);
}

static void probe_interfaces(struct fbr_probe *p, const struct fbr_probe_roots *roots,
                             const char *address)
{
    char wanted[IF_NAMESIZE];
    struct ifaddrs *all = NULL;
    int best = 0;

    default_route(roots->proc, wanted);
    if (getifaddrs(&all) < 0)
        return;
    for (struct ifaddrs *i = all; i; i = i->ifa_next) {
        int m = merit(i, wanted, address, roots->sys);

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

void fbr_probe_at(struct fbr_probe *p, const struct fbr_probe_roots *roots, const char *address)
{
    memset(p, 0, sizeof(*p));
    probe_memory(p, roots);
    probe_devices(p, roots);
    probe_processors(p, roots);
    probe_interfaces(p, roots, address);
}

void fbr_probe_run(struct fbr_probe *p, const char *address)
{
    fbr_probe_at(p, &(const struct fbr_probe_roots){"/sys", "/dev", "/proc"}, address);
}
