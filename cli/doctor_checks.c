/* doctor_checks.c - the checks of this machine for `fiber doctor`: Fiber itself, and the
 * bootstraps.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "cli/run_client.h"
#include "cli/doctor.h"
#include "mpi_bridge/bridge.h"
#include "mpi_bridge/probe.h"
#include "runtime/inspect/registry.h"
#include "runtime/base/fds.h"
#include "runtime/base/config.h"
#include "runtime/pin/cpulist.h"
#include "runtime/pin/pin.h"
#include "runtime/proc/context.h"
#include "runtime/proc/rundir.h"
#include "runtime/program/spawn.h"

/* ---- The machine ---- */

static void check_configuration(struct doctor *d)
{
    struct fbr_error err = {0, ""};
    struct fbr_config *c;

    if (fbr_config_load_again(&c, &err) < 0) {
        doctor_report(d, "configuration", DOCTOR_BAD,
                      "correct that line; `fiber config show` lists the settings", "%s", err.text);
        return;
    }
    doctor_report(d, "configuration", DOCTOR_GOOD, "", "well formed");
    fbr_config_free(c);
}

/* Whether the path belongs to a user whose services systemd ends with the last session. */
static bool goes_at_logout(const char *path)
{
    const struct passwd *user = getpwuid(geteuid());
    char linger[PATH_MAX];

    if (strncmp(path, "/run/user/", 10) != 0 || access("/run/systemd/system", F_OK) < 0 || !user)
        return false;
    snprintf(linger, sizeof(linger), "/var/lib/systemd/linger/%s", user->pw_name);
    return access(linger, F_OK) < 0;
}

/* Checks the directory that a run would make now, below run_dir. */
static void check_run_dir(struct doctor *d)
{
    struct fbr_error err = {0, ""};
    const struct fbr_runtime *rt = fbr_rt_any();
    struct fbr_rundir dir;

    /* already reported */
    if (!rt)
        return;
    if (fbr_rundir_make(&dir, fbr_config_str(rt->config, "run_dir"), &err) < 0) {
        doctor_report(d, "run directory", DOCTOR_BAD,
                      "set run_dir (FIBER_RUN_DIR), or mount a tmpfs at /tmp", "%s", err.text);
    } else {
        doctor_report(d, "run directory", DOCTOR_GOOD, "", "%.*s%s",
                      (int)(strrchr(dir.root, '/') - dir.root), dir.root,
                      goes_at_logout(dir.root)
                          ? "; systemd removes it when you log out; to keep runs alive, use "
                            "loginctl enable-linger"
                          : "");
        fbr_rundir_remove(&dir);
    }
}

static void check_registry(struct doctor *d)
{
    struct fbr_error err = {0, ""};
    char root[FBR_REGISTRY_MAX];

    if (fbr_registry_root(root, &err) < 0)
        doctor_report(d, "list of runs", DOCTOR_BAD,
                      "remove it, or set XDG_RUNTIME_DIR to a directory of yours", "%s", err.text);
    else
        doctor_report(d, "list of runs", DOCTOR_GOOD, "", "%s", root);
}

/* Starts a process in the same way as ranks and workers. */
static void check_starting(struct doctor *d)
{
    char *argv[] = {"true", NULL};
    struct fbr_spawn s = {.argv = argv, .env = environ, .fds = {-1, -1, -1}, .nfds = 3};
    struct fbr_error err = {0, ""};
    char path[PATH_MAX];
    siginfo_t how;
    int pidfd;
    pid_t pid;

    if (fbr_spawn_find("true", path, sizeof(path), &err) < 0)
        return;
    s.file = path;
    if (fbr_spawn(&s, &pid, &pidfd, &err) < 0) {
        doctor_report(d, "processes", DOCTOR_BAD,
                      "a limit (ulimit -u, pids of the container) or a seccomp profile forbids it",
                      "%s", err.text);
        return;
    }
    fbr_spawn_wait(pid, pidfd, &how, NULL);
    close(pidfd);
    doctor_report(d, "processes", DOCTOR_GOOD, "", "%s was started", path);
}

static void check_processors(struct doctor *d)
{
    const struct fbr_pin_ops *pin;
    struct fbr_topology_facts f;
    struct fbr_error err = {0, ""};
    struct fbr_topology *t;
    struct fbr_cpuset set;
    unsigned count = fbr_cpuset_read(&set, 0) == 0 ? fbr_cpuset_count(&set) : 0;

    pin = fbr_pin_load(&err);
    if (!pin || pin->open(&t, NULL, FBR_TOPOLOGY_DEVICES, &err) < 0) {
        doctor_report(d, "processors", DOCTOR_GOOD, "", "%u usable", count);
        doctor_report(
            d, "binding", DOCTOR_BAD,
            "apt install libhwloc15, or build Fiber with libhwloc-dev; otherwise use --bind-to "
            "none",
            "%s", err.text);
        return;
    }
    pin->facts(t, &f);
    pin->close(t);
    doctor_report(d, "processors", DOCTOR_GOOD, "", "%u usable%s%s%s", count,
                  f.restricted ? ", of more" : "", f.model[0] ? ": " : "", f.model);
    doctor_report(d, "binding", DOCTOR_GOOD, "",
                  "hwloc: %u package%s, %u NUMA node%s, %u L3, %u core%s, %u GPU%s", f.packages,
                  f.packages == 1 ? "" : "s", f.numa_nodes, f.numa_nodes == 1 ? "" : "s", f.l3s,
                  f.cores, f.cores == 1 ? "" : "s", f.gpus, f.gpus == 1 ? "" : "s");
}

static void check_limits(struct doctor *d)
{
    struct rlimit r;

    if (getrlimit(RLIMIT_NOFILE, &r) < 0)
        return;
    if (r.rlim_max < 4096)
        doctor_report(d, "descriptors", DOCTOR_BAD,
                      "ulimit -n 65536, or LimitNOFILE in the unit that starts this",
                      "at most %llu: enough for about %llu ranks a job",
                      (unsigned long long)r.rlim_max, (unsigned long long)r.rlim_max / 4);
    else
        doctor_report(d, "descriptors", DOCTOR_GOOD, "", "at most %llu",
                      (unsigned long long)r.rlim_max);
}

static void check_shm(struct doctor *d, const struct fbr_probe *p)
{
    char size[32], left[32];
    uint64_t need = fbr_probe_shm_need(8);

    run_client_bytes(size, p->shm_size);
    run_client_bytes(left, p->shm_free);
    if (!p->shm)
        doctor_report(d, "shared memory", DOCTOR_BAD, "mount a tmpfs at /dev/shm",
                      "/dev/shm is missing or cannot be written");
    else if (p->shm_free < need)
        doctor_report(d, "shared memory", DOCTOR_BAD,
                      "docker run --shm-size=1g, or an emptyDir of medium Memory at /dev/shm",
                      "/dev/shm has %s left of %s: MPI will use files instead", left, size);
    else
        doctor_report(d, "shared memory", DOCTOR_GOOD, "", "/dev/shm has %s left of %s", left,
                      size);
}

static void check_network(struct doctor *d, const struct fbr_probe *p)
{
    if (p->loopback)
        doctor_report(d, "loopback", DOCTOR_GOOD, "", "up");
    else
        doctor_report(d, "loopback", DOCTOR_BAD, "ip link set lo up",
                      "lo is down: Open MPI needs it");
    if (p->interface[0])
        doctor_report(d, "network", DOCTOR_GOOD, "", "%s, %s", p->interface, p->address);
    else
        doctor_report(d, "network", DOCTOR_ABSENT, "", "no interface but lo: only this host");
    if (p->fabric)
        doctor_report(d, "fabric", DOCTOR_GOOD, "", "%s", p->fabric_name);
    else if (p->no_fabric[0])
        doctor_report(
            d, "fabric", DOCTOR_BAD,
            "give the container /dev/infiniband and ulimit -l unlimited, or bring the port up",
            "%s", p->no_fabric);
    else
        doctor_report(d, "fabric", DOCTOR_ABSENT, "", "none: Fiber makes Open MPI use pml ob1");
}

/* Reads "0x10de\n" as a number; -1: failed. */
static long read_hex(const char *device, const char *file)
{
    char path[PATH_MAX], text[32];

    snprintf(path, sizeof(path), "/sys/bus/pci/devices/%.40s/%s", device, file);
    return fbr_fds_read_file(path, text, sizeof(text)) > 0 ? strtol(text, NULL, 16) : -1;
}

struct vendor {
    long id;
    const char *name, *node, *mend;
};

static void check_vendor(struct doctor *d, const struct vendor *v)
{
    DIR *dir = opendir("/sys/bus/pci/devices");
    struct dirent *e;
    char first[32] = "";
    unsigned count = 0;

    while (dir && (e = readdir(dir))) {
        long class = e->d_name[0] == '.' ? -1 : read_hex(e->d_name, "class") >> 8;

        /* 0x302: a GPU without a display; 0x300: with a display (Intel's is a part of the
         * processor); 0x1200: AMD's */
        if (read_hex(e->d_name, "vendor") != v->id ||
            (class != 0x302 && class != 0x300 && class != 0x1200))
            continue;
        if (!count++)
            snprintf(first, sizeof(first), "%.31s", e->d_name);
    }
    if (dir)
        closedir(dir);
    if (!count)
        return;
    if (access(v->node, F_OK) == 0)
        doctor_report(d, "GPUs", DOCTOR_GOOD, "", "%u of %s, the first at %s", count, v->name,
                      first);
    else
        doctor_report(d, "GPUs", DOCTOR_BAD, v->mend,
                      "%u of %s on the PCI bus, the first at %s, but there is no %s", count,
                      v->name, first, v->node);
}

static void check_gpus(struct doctor *d)
{
    static const struct vendor vendors[] = {
        {0x10de, "NVIDIA", "/dev/nvidiactl",
         "install the driver; in a container: docker run --gpus all"},
        {0x1002, "AMD", "/dev/kfd",
         "install amdgpu and ROCm; in a container: --device /dev/kfd --device /dev/dri"},
        {0x8086, "Intel", "/dev/dri", "install the driver; in a container: --device /dev/dri"},
    };

    for (size_t i = 0; i < sizeof(vendors) / sizeof(vendors[0]); i++)
        check_vendor(d, &vendors[i]);
}

void doctor_place(struct doctor *d)
{
    check_configuration(d);
    check_run_dir(d);
    check_registry(d);
}

void doctor_machine(struct doctor *d)
{
    struct fbr_probe p;

    fbr_probe_run(&p, "");
    check_starting(d);
    check_processors(d);
    check_limits(d);
    check_shm(d, &p);
    if (p.cma || p.xpmem)
        doctor_report(d, "copies", DOCTOR_GOOD, "", "%s",
                      p.xpmem ? "xpmem" : "process_vm_readv (CMA)");
    else
        doctor_report(d, "copies", DOCTOR_BAD,
                      "docker run --cap-add SYS_PTRACE; or kernel.yama.ptrace_scope=0",
                      "ranks cannot copy from each other, large messages are slower: %s", p.no_cma);
    check_network(d, &p);
    check_gpus(d);
}

/* ---- Bootstraps ---- */

static void check_open_mpi(struct doctor *d)
{
    static const char *const argv[] = {"ompi_info", "--version", NULL};
    const char *missing = fbr_bridge_missing("pmix");
    char line[160];
    int rc = doctor_ask(argv, line, sizeof(line));

    if (missing)
        doctor_report(d, "PMIx server", DOCTOR_BAD,
                      "apt install libpmix2, or build Fiber with libpmix-dev", "%s", missing);
    else
        doctor_report(d, "PMIx server", DOCTOR_GOOD, "",
                      "libpmix is installed: Open MPI can start");
    if (rc == 0 && strstr(line, "Open MPI"))
        doctor_report(d, "Open MPI", DOCTOR_GOOD, "", "%s", line);
    else if (rc == -ETIMEDOUT)
        doctor_report(d, "Open MPI", DOCTOR_BAD,
                      "run `ompi_info --version` to see what it waits for",
                      "ompi_info does not answer within 5 s");
    else
        doctor_report(d, "Open MPI", DOCTOR_ABSENT, "apt install openmpi-bin libopenmpi-dev",
                      "not found here (ompi_info)");
}

static void check_mpich(struct doctor *d)
{
    static const char *const argv[] = {"mpichversion", NULL};
    static const char *const vanilla[] = {"mpichversion.mpich", NULL};
    char line[160], path[PATH_MAX];

    if (doctor_ask(argv, line, sizeof(line)) == 0 || doctor_ask(vanilla, line, sizeof(line)) == 0) {
        for (char *p = line; *p; p++)
            *p = *p == '\t' ? ' ' : *p;
        doctor_report(d, "MPICH", DOCTOR_GOOD, "", "%s", line);
    } else if (fbr_spawn_find("mpiexec.hydra", path, sizeof(path), NULL) == 0 ||
               fbr_spawn_find("mpicc.mpich", path, sizeof(path), NULL) == 0) {
        doctor_report(d, "MPICH", DOCTOR_GOOD, "", "%s", path);
    } else {
        doctor_report(d, "MPICH", DOCTOR_ABSENT, "apt install mpich", "not found here");
    }
}

/* Finds the modules without importing them, which would take seconds. */
static void check_python(struct doctor *d)
{
    static const char *const modules[][2] = {
        {"torch", "apt install python3-torch, or pip install torch"},
        {"horovod", "pip install horovod"},
        {"mpi4py", "apt install python3-mpi4py"}};
    char line[160], path[PATH_MAX];

    if (fbr_spawn_find("python3", path, sizeof(path), NULL) < 0) {
        doctor_report(d, "python3", DOCTOR_ABSENT, "apt install python3", "not found here");
        return;
    }
    for (size_t i = 0; i < sizeof(modules) / sizeof(modules[0]); i++) {
        const char *const argv[] = {"python3", "-c",
                                    "import importlib.metadata as m, importlib.util as u, sys\n"
                                    "n = sys.argv[1]\n"
                                    "if u.find_spec(n) is None: sys.exit(1)\n"
                                    "try: print(n, m.version(n))\n"
                                    "except m.PackageNotFoundError: print(n)\n",
                                    modules[i][0], NULL};

        if (doctor_ask(argv, line, sizeof(line)) == 0)
            doctor_report(d, modules[i][0], DOCTOR_GOOD, "", "%s", line);
        else
            doctor_report(d, modules[i][0], DOCTOR_ABSENT, modules[i][1], "not found by %s", path);
    }
}

void doctor_bootstraps(struct doctor *d)
{
    check_open_mpi(d);
    check_mpich(d);
    check_python(d);
}
