/* agent_rank.c - the ranks of an agent: their processors, their environment, their start and end.
 *
 * A rank is a job of the local backend, started by the agent: it leads its own process group, it is
 * killed with the agent, and its end is an event of its pidfd.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <limits.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "ring/agent_priv.h"
#include "runtime/program/elf.h"
#include "runtime/base/environ.h"
#include "runtime/base/fds.h"
#include "runtime/pin/cgroup.h"
#include "runtime/proc/entry.h"
#include "runtime/inspect/registry.h"
#include "runtime/inspect/stack.h"

#define CLAIM_TRIES 8
#define THREADS_ENV "OMP_NUM_THREADS"

extern char **environ;

/* ---- Where ranks go ---- */

/* Opens the machine as hwloc sees it, for places. Also writes it to a file for PMIx, whose own
 * look would cost ten times as much. */
int fbr_agent_open_machine(struct agent *a, struct fbr_error *err)
{
    const struct fbr_pin_wish *wish = &a->order.wish;
    unsigned flags = wish->gpus_per_rank || wish->map == FBR_MAP_GPU ? FBR_TOPOLOGY_DEVICES : 0;
    /* hwloc's plugins find devices only, and opening them costs twice what the look at the
     * processors does. */
    struct fbr_setting no_plugins = {.name = "HWLOC_PLUGINS_PATH", .value = "/dev/null"};
    char *xml;
    FILE *f;
    int rc;

    if (a->machine)
        return 0;
    a->pin = fbr_pin_load(err);
    if (!flags)
        fbr_settings_apply(&no_plugins, 1);
    rc = a->pin ? a->pin->open(&a->machine, NULL, flags, err) : err->code;
    if (!flags)
        fbr_settings_undo(&no_plugins, 1);
    if (rc < 0) {
        a->pin = NULL;
        return rc;
    }
    snprintf(a->topology, sizeof(a->topology), "%s/topology.xml", a->dir);
    xml = a->pin->xml(a->machine);
    f = xml ? fopen(a->topology, "wxe") : NULL;
    if (!f || fputs(xml, f) == EOF || fclose(f) == EOF)
        a->topology[0] = '\0';
    free(xml);
    return 0;
}

static int check_machine(struct agent *a, struct fbr_error *err)
{
    struct fbr_topology_facts facts;
    int rc = fbr_agent_open_machine(a, err);

    if (rc < 0)
        return rc;
    a->pin->facts(a->machine, &facts);
    if (!facts.this_machine)
        return fbr_fail(err, -ENOTSUP,
                        "HWLOC_XMLFILE or HWLOC_SYNTHETIC describes another machine, not this one");
    return 0;
}

/* Ranks of other agents may use the same processors. So each agent places all of these ranks in
 * the same way and takes the places of its own. If that is not possible (each agent sees its own
 * GPUs, or there are more ranks than places), the agent places its own ranks alone. */
static int plan_places(struct agent_job *j, const struct fbr_topology *machine,
                       struct fbr_pin_wish *wish, char *note, size_t size, struct fbr_error *err)
{
    struct agent *a = j->agent;
    uint32_t before, all = fbr_ring_job_sharing(&j->job, j->job.info.node, &before);
    int rc = -ENOSPC;

    free(j->pins);
    j->pins = calloc(all, sizeof(*j->pins));
    if (!j->pins)
        return fbr_fail(err, -ENOMEM, "out of memory");
    wish->count = all;
    if (all > j->nlocal)
        rc = a->pin->plan(machine, wish, j->pins, note, size, NULL);
    if (rc < 0) {
        wish->count = j->nlocal;
        before = 0;
        rc = a->pin->plan(machine, wish, j->pins, note, size, err);
    }
    if (rc < 0)
        return rc;
    for (uint32_t i = 0; i < j->nlocal; i++)
        j->ranks[i].threads = fbr_pin_threads(j->pins, wish->count, before + i);
    memmove(j->pins, j->pins + before, j->nlocal * sizeof(*j->pins));
    return 0;
}

/* Adds the processors of the job's ranks to the set. False: a rank is not bound, or shares its
 * processors. */
static bool add_cpus(const struct agent_job *j, struct fbr_cpuset *set)
{
    for (uint32_t i = 0; j->pins && i < j->nlocal; i++)
        if (!j->pins[i].cpus[0] || j->pins[i].shared || fbr_cpuset_add(set, j->pins[i].cpus) < 0)
            return false;
    return j->pins;
}

/* Places the job's ranks on processors to which no other run of this user is bound. `note`: as
 * of the plan. -EBUSY: too few processors are left. */
static int plan_apart(struct agent_job *j, struct fbr_pin_wish *wish, char *note, size_t size)
{
    struct agent *a = j->agent;
    struct fbr_topology *rest;
    char source[FBR_PIN_LIST + sizeof(a->topology) + 16], list[FBR_PIN_LIST];
    struct fbr_cpuset others, ours;
    int rc = -EBUSY;

    for (int i = 0; i < CLAIM_TRIES && rc == -EBUSY; i++) { /* another run may claim them first */
        rest = a->machine;
        fbr_claim_others(a->claims, &others);
        if (fbr_cpuset_count(&others)) {
            if (!fbr_cpuset_rest(&others, list, sizeof(list)))
                return -EBUSY;
            snprintf(source, sizeof(source), "only:%s:xml:%s", list, a->topology);
            /* no processor is left */
            if (a->pin->open(&rest, source, 0, NULL) < 0)
                return -EBUSY;
        }
        memset(&ours, 0, sizeof(ours));
        rc = plan_places(j, rest, wish, note, size, NULL);
        if (rest != a->machine)
            a->pin->close(rest);
        if (rc < 0 || !add_cpus(j, &ours))
            return -EBUSY;
        rc = fbr_claim_take(a->claims, &ours) < 0 ? -EBUSY : 0;
    }
    return rc;
}

/* True if the ranks may move away from other runs. Ranks with GPUs may not, because they stay
 * near their GPUs; nor may ranks that share the machine with other agents of their run. */
static bool may_move(const struct agent_job *j, const struct fbr_pin_wish *wish)
{
    struct agent *a = j->agent;
    char root[FBR_REGISTRY_MAX];
    uint32_t before;

    if (a->claims < 0 && fbr_registry_root(root, NULL) >= 0)
        a->claims = fbr_claim_open(root);
    return a->claims >= 0 && a->topology[0] && !wish->gpus_per_rank &&
           fbr_ring_job_sharing(&j->job, j->job.info.node, &before) == j->nlocal;
}

/* Called at the end of a job. Drops all claims of the agent and claims again for the jobs that
 * are left: their ranks may use the same processors as the ranks of the ended job. */
void fbr_agent_job_unclaim(struct agent *a)
{
    const struct agent_job *j;

    if (a->claims < 0)
        return;
    fbr_claim_drop(a->claims);
    DL_FOREACH(a->jobs, j) {
        struct fbr_cpuset set = {{0}};

        if (add_cpus(j, &set))
            fbr_claim_take(a->claims, &set);
    }
}

/* Places the ranks, away from other runs of this user if possible. `chosen`: the user asked for
 * a binding. */
static int plan_for_all(struct agent_job *j, struct fbr_pin_wish *wish, bool chosen, char *note,
                        size_t size, struct fbr_error *err)
{
    struct agent *a = j->agent;
    struct fbr_cpuset others, ours = {{0}};
    bool moves = may_move(j, wish);
    int rc;

    if (moves && plan_apart(j, wish, note, size) == 0)
        return 0;
    rc = plan_places(j, a->machine, wish, note, size, err);
    if (rc < 0 || a->claims < 0 || !add_cpus(j, &ours) || fbr_claim_take(a->claims, &ours) == 0)
        return rc;
    j->shares_cpus = true;
    fbr_claim_others(a->claims, &others);
    fbr_cpuset_allowed(&others);
    if (chosen) {
        snprintf(note, size,
                 "your other runs are bound to %u of the processors here; these ranks may share "
                 "some with them",
                 fbr_cpuset_count(&others));
        return 0;
    }
    free(j->pins);
    j->pins = NULL;
    if (moves)
        snprintf(note, size,
                 "ranks are not bound, and yield the processor when they wait: your other runs are "
                 "bound to %u of the %u processors here",
                 fbr_cpuset_count(&others), a->limits.affinity);
    else /* other agents of our own run on this machine count as others */
        snprintf(
            note, size,
            "ranks are not bound, and yield the processor when they wait: another run of yours "
            "is bound to the processors that they need");
    return 0;
}

/* The user did not ask for a binding. True if there is a reason not to bind. */
static bool better_free(struct agent_job *j)
{
    struct agent *a = j->agent;
    uint32_t before, all = fbr_ring_job_sharing(&j->job, j->job.info.node, &before);

    if (j->job.info.spawned)
        return true;
    if (all > a->cpus && !a->order.oversubscribe)
        fbr_agent_note(
            a,
            "%u ranks share %u processor%s; they are not bound, and yield the processor when they "
            "wait",
            all, a->cpus, a->cpus == 1 ? "" : "s");
    if (all > a->cpus)
        return true;
    if (fbr_cgroup_floats(&a->limits))
        fbr_agent_note(a,
                       "ranks are not bound: the cgroup limit allows the time of %g of %u "
                       "processors, and does not fix which (use --bind-to core to bind)",
                       a->limits.quota, a->limits.affinity);
    return fbr_cgroup_floats(&a->limits);
}

static int find_places(struct agent_job *j, struct fbr_error *err)
{
    struct agent *a = j->agent;
    struct fbr_pin_wish wish = a->order.wish;
    bool chosen = wish.bind != FBR_BIND_DEFAULT || wish.gpus_per_rank || wish.cpus_per_rank;
    char note[256] = "";
    int rc;

    if (wish.gpus_per_rank)
        fbr_pin_gpu_outer(fbr_pin_getenv, NULL, wish.visible);
    if (j->nlocal == 0 || (wish.bind == FBR_BIND_NONE && !wish.gpus_per_rank))
        return 0;
    if (!chosen && better_free(j))
        return 0;
    rc = check_machine(a, err);
    if (rc < 0 && !chosen) {
        fbr_agent_note(a, "ranks are not bound: %s", err->text);
        return 0;
    }
    if (rc < 0 || (rc = plan_for_all(j, &wish, chosen, note, sizeof(note), err)) < 0)
        return rc;
    if (note[0])
        fbr_agent_note(a, "%s", note);
    return 0;
}

static bool is_set(struct agent_rank *r, const char *name)
{
    char **more = fbr_ring_job_program(&r->job->job, r->rank)->env;
    size_t len = strlen(name);

    for (; more && *more; more++)
        if (strncmp(*more, name, len) == 0 && (*more)[len] == '=')
            return true;
    return getenv(name) != NULL;
}

uint32_t fbr_agent_job_sharing(const struct agent_job *j)
{
    uint32_t before, sharing = fbr_ring_job_sharing(&j->job, j->job.info.node, &before);
    const struct agent_job *other;

    DL_FOREACH(j->agent->jobs, other) /* the ranks that spawned these still live */
        sharing += j->job.info.spawned && other != j ? other->nlocal : 0;
    return sharing;
}

/* OpenMP, and libraries that count threads as OpenMP does, start a thread on each processor that
 * a rank may run on. This is right for a rank with processors of its own, and too many for ranks
 * that share theirs. */
static void count_threads(struct agent_job *j)
{
    struct agent *a = j->agent;
    uint32_t sharing = fbr_agent_job_sharing(j);
    unsigned wanted = a->order.wish.cpus_per_rank, share = 0;

    if (sharing > 1 || fbr_cgroup_floats(&a->limits))
        share = a->cpus > sharing ? a->cpus / sharing : 1;
    for (uint32_t i = 0; i < j->nlocal; i++) {
        bool bound = j->pins && j->pins[i].cpus[0];

        j->ranks[i].threads = wanted ? wanted : bound ? j->ranks[i].threads : share;
    }
    if (j->nlocal > 0 && j->ranks[0].threads && a->order.verbose &&
        !is_set(&j->ranks[0], THREADS_ENV))
        fbr_agent_note(a, "%s: %s=%u",
                       wanted ? "processors per rank" : "its share of the processors", THREADS_ENV,
                       j->ranks[0].threads);
}

int fbr_agent_job_place(struct agent_job *j, struct fbr_error *err)
{
    int rc = find_places(j, err);

    if (rc < 0)
        return rc;
    count_threads(j);
    return 0;
}

/* ---- Program and environment ---- */

/* stat() of a file that is named from the working directory of the ranks. */
static int look_at(const char *name, const char *workdir, struct stat *st)
{
    char path[2 * PATH_MAX];

    snprintf(path, sizeof(path), "%s%s%s", name[0] == '/' ? "" : workdir,
             name[0] == '/' || !workdir[0] ? "" : "/", name);
    return stat(path, st);
}

/* Explains a program that is not in PATH: the user may have meant a file of the folder that the
 * ranks start in. */
static int no_program(const char *name, const char *workdir, bool image, struct fbr_error *err)
{
    size_t len = strlen(name);
    struct stat st;

    if (strchr(name, ' '))
        return fbr_fail(err, -ENOENT,
                        "there is no program '%s' in PATH: the quotes make it one word; remove "
                        "them, or use a shell: sh -c '...'",
                        name);
    if (strchr(name, '='))
        return fbr_fail(err, -ENOENT,
                        "there is no program '%s' in PATH; to set a variable for the ranks, use -x "
                        "%s before the program",
                        name, name);
    if (look_at(name, workdir, &st) < 0 || !S_ISREG(st.st_mode))
        return fbr_fail(err, -ENOENT,
                        "there is no program '%s' in PATH or in the working directory%s", name,
                        image ? "; a container has only the files of its image (--image)" : "");
    if (len > 3 && !strcmp(name + len - 3, ".py"))
        return fbr_fail(err, -ENOENT,
                        "there is no program '%s' in PATH; to run the Python script in this "
                        "folder, use python3 %s",
                        name, name);
    return fbr_fail(err, -ENOENT,
                    "there is no program '%s' in PATH; to run the file in this folder, use ./%s",
                    name, name);
}

/* Explains a path that does not exist: a container has another working directory and other files
 * than those that the user sees. */
static int no_file(const char *name, const char *workdir, bool image, struct fbr_error *err)
{
    char here[PATH_MAX] = "";

    if (name[0] == '/')
        return fbr_fail(err, -ENOENT, "cannot start %s: there is no such file%s", name,
                        image ? " in the image; use --workdir DIR to start ./NAME from its "
                                "directory DIR"
                              : "");
    if (workdir[0] != '/' && !getcwd(here, sizeof(here)))
        snprintf(here, sizeof(here), "(deleted)");
    return fbr_fail(err, -ENOENT,
                    "cannot start %s: there is no such file in the working directory %s%s%s; use "
                    "--workdir DIR to start in another one",
                    name, here, here[0] && workdir[0] ? "/" : "", workdir);
}

static int set_file(struct agent_rank *r, const char *file, struct fbr_error *err)
{
    free(r->file);
    r->file = strdup(file);
    return r->file ? 0 : fbr_fail(err, -ENOMEM, "out of memory");
}

/* Finds the program as execvp() does, in the rank's own PATH. `name` NULL: our own file. */
static int find_program(struct agent_rank *r, const char *name, const char *workdir,
                        const struct fbr_env *env, struct fbr_error *err)
{
    const char *path = fbr_env_get(env, "PATH");
    bool image = r->job->agent->order.image;
    char file[PATH_MAX];
    struct stat st;

    if (!name)
        return set_file(r, "/proc/self/exe", err);
    if (strchr(name, '/')) {
        if (!strchr(name, ' ') && look_at(name, workdir, &st) < 0 &&
            (errno == ENOENT || errno == ENOTDIR))
            return no_file(name, workdir, image, err);
        return set_file(r, name, err);
    }
    for (const char *at = path ? path : "/usr/local/bin:/usr/bin:/bin", *end;; at = end + 1) {
        end = strchrnul(at, ':');
        if (snprintf(file, sizeof(file), "%.*s/%s", end > at ? (int)(end - at) : 1,
                     end > at ? at : ".", name) < (int)sizeof(file) &&
            stat(file, &st) == 0 && S_ISREG(st.st_mode) && access(file, X_OK) == 0)
            return set_file(r, file, err);
        if (!*end)
            return no_program(name, workdir, image, err);
    }
}

static void set_gpu(void *user, const char *name, const char *value)
{
    fbr_env_set(user, name, "%s", value);
}

static const char *outer_gpu(void *user, const char *name)
{
    return fbr_env_get(user, name);
}

/* Writes what the ranks of this host run, and where their run has its directory. */
static int write_work(struct agent_job *j, const char *path, struct fbr_error *err)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0400);
    struct fbr_buf head = {0};
    int rc;

    if (fd < 0)
        return errno == EEXIST
                   ? 0
                   : fbr_fail(err, -errno, "cannot write %s: %s", path, fbr_strerror(errno));
    fbr_put_str(&head, j->agent->rt->dir.root);
    rc = head.failed ? -ENOMEM : fbr_fds_write(fd, head.data, head.len);
    if (rc == 0)
        rc = fbr_fds_write(fd, j->job.work, j->job.work_len);
    fbr_buf_fini(&head);
    close(fd);
    if (rc < 0) {
        unlink(path);
        return fbr_fail(err, rc, "cannot write %s: %s", path, fbr_strerror(rc));
    }
    return 0;
}

/* Notes variables that Open MPI passes on to ranks that a rank spawns, on whatever host they
 * start: see put_env() in agent_host.c. */
static void note_inherited(struct agent_rank *r, const struct fbr_env *e)
{
    for (size_t i = 0; i < e->count; i++) {
        const char *pair = e->list[i];
        char name[128];

        snprintf(name, sizeof(name), "%.*s", (int)strcspn(pair, "="), pair);
        if (fbr_rank_env_is_inherited(name) && !is_set(r, name))
            fbr_env_put(&r->job->given, pair);
    }
}

/* Sets which program the rank runs, and how many ranks each program has, as in "1,8". */
static void put_apps(struct agent_rank *r, struct fbr_env *e)
{
    const struct fbr_ring_job *j = &r->job->job;
    struct fbr_buf b = {0};

    for (uint32_t i = 0; i < j->nprograms; i++) {
        uint32_t end = i + 1 < j->nprograms ? j->programs[i + 1].first : j->info.size;

        fbr_putf(&b, "%s%u", i ? "," : "", end - j->programs[i].first);
    }
    fbr_put_u8(&b, 0);
    fbr_env_set(e, "FIBER_APPNUM", "%u",
                (unsigned)(fbr_ring_job_program(j, r->rank) - j->programs));
    if (!b.failed)
        fbr_env_set(e, "FIBER_APP_SIZES", "%s", (const char *)b.data);
    fbr_buf_fini(&b);
}

/* Adds the variables that follow from the rank's host and its place there: for libraries, and
 * for its GPUs. */
static void put_host(struct agent_rank *r, struct fbr_env *e)
{
    const struct agent_job *j = r->job;
    const struct agent *a = j->agent;
    const struct fbr_pin *pin = j->pins ? &j->pins[r->rank - j->local[0].rank] : NULL;
    const struct fbr_rank_use use = {.nodes = j->job.info.nodes,
                                     .shm = a->shm[0] ? a->shm : NULL,
                                     .shares_cpus = j->shares_cpus || (pin && pin->shared),
                                     .survives = a->order.survive,
                                     .nic = pin && pin->nic[0] ? pin->nic : NULL};

    fbr_rank_env(&a->probe, &use, e);
    if (pin)
        fbr_pin_gpu_env(pin, outer_gpu, set_gpu, e);
}

static int make_env(struct agent_rank *r, struct fbr_env *e, int *fd, struct fbr_error *err)
{
    struct agent_job *j = r->job;
    struct agent *a = j->agent;
    const struct fbr_app *p = fbr_ring_job_program(&j->job, r->rank);
    int rc;

    fbr_env_copy(e, j->cures.list); /* all that follows replaces them */
    fbr_env_copy(e, environ);
    fbr_rank_env_drop_outer(e);
    for (char **more = p->env; more && *more; more++)
        fbr_env_put(e, *more);
    if (j->job.last_failure[0])
        fbr_env_set(e, "FIBER_LAST_FAILURE", "%s", j->job.last_failure);
    fbr_rank_env_drop_servers(e); /* also from a file for --env-file that was made under mpirun */
    put_host(r, e);
    if (r->threads)
        fbr_env_default(e, THREADS_ENV, "%u", r->threads);
    fbr_env_default(e, "PYTHONUNBUFFERED", "1"); /* a killed rank has printed all */
    for (int i = 0; i < a->nbridges; i++) {
        rc = a->bridges[i].ops->rank(a->bridges[i].bridge, &j->job.info, r->rank, e, fd, err);
        if (rc < 0)
            return fbr_wrap(err, "%s", a->bridges[i].ops->name);
    }
    put_apps(r, e);
    if (j->job.pty && r->rank == j->job.reader && j->job.term[0])
        fbr_env_set(e, "TERM", "%s", j->job.term);
    note_inherited(r, e);
    if (r->restarts > 0)
        fbr_env_set(e, "FIBER_RANK_RESTARTS", "%u", r->restarts);
    if (!p->argv[0]) {
        char path[sizeof(j->dir) + 8];

        snprintf(path, sizeof(path), "%s/work", j->dir);
        fbr_env_set(e, FBR_ENTRY_ENV, "%s", path);
        rc = write_work(j, path, err);
        if (rc < 0)
            return rc;
    }
    return e->failed ? fbr_fail(err, -ENOMEM, "out of memory") : 0;
}

/* ---- Starting ---- */

static int launch(struct agent_rank *r, struct fbr_env *env, int fd, struct fbr_error *err)
{
    static char *self[] = {(char *)"fiber-rank", NULL};
    char *const *again = (char *const *)(uintptr_t)fbr_process_program();
    struct agent_job *j = r->job;
    struct agent *a = j->agent;
    const struct fbr_app *p = fbr_ring_job_program(&j->job, r->rank);
    const struct fbr_pin *pin = j->pins ? &j->pins[r->rank - j->local[0].rank] : NULL;
    char *const *argv = p->argv[0] ? p->argv : again ? again : self;
    struct fbr_job_local local = {.in = -1, .fd = fd, .slack = j->slack};
    char name[32];
    struct fbr_job job = {.name = name,
                          .run_uid = a->rt->run_uid,
                          .argv = argv,
                          .env = env->list,
                          .workdir = p->workdir[0] ? p->workdir : NULL,
                          .local = &local};
    uint8_t mask[1024];
    int masked = 0, rc = 0;

    snprintf(name, sizeof(name), "rank-%u", r->rank);
    if (pin && pin->cpus[0])
        masked = fbr_pin_mask(pin->cpus, mask, sizeof(mask));
    if (masked < 0)
        return fbr_fail(err, masked, "its binding %s is not a list of processors", pin->cpus);
    if (pin && pin->nodes[0]) /* a node above 63 has no bit: memory is not bound */
        fbr_pin_mask(pin->nodes, &local.nodes, sizeof(local.nodes));
    if ((rc = fbr_agent_stdin_open(r, &local.in, err)) < 0 ||
        (rc = find_program(r, argv == self ? NULL : argv[0], p->workdir, env, err)) < 0)
        goto done;
    job.file = r->file;
    local.terminal = r->pty;
    local.cpus = masked ? mask : NULL;
    local.cpus_len = (size_t)masked;
    rc = a->local->start(a->backend, &job, r, &r->handle, err);
    if (rc == 0 && a->full) /* later pauses are for ranks that run by then */
        a->local->pause_output(a->backend, r->handle, true);
done:
    fbr_fds_close(local.in);
    if (rc < 0)
        fbr_agent_stdin_close(r);
    return rc;
}

static void notify_started(struct agent_rank *r)
{
    struct agent_job *j = r->job;
    const struct fbr_pin *pin = j->pins ? &j->pins[r->rank - j->local[0].rank] : NULL;
    struct fbr_pin_seen seen = {"", "", ""};
    struct fbr_buf b;
    char text[512] = "";

    if (j->agent->order.report && fbr_pin_read(r->pid, &seen) == 0) {
        int n = snprintf(text, sizeof(text), "cpus %s%s%s%s%s", seen.cpus,
                         seen.policy[0] ? ", memory " : "", seen.policy, /* "": it has ended */
                         seen.gpus[0] ? ", " : "", seen.gpus);

        for (unsigned i = 0; pin && i < pin->ngpus && n < (int)sizeof(text); i++)
            n += snprintf(text + n, sizeof(text) - (size_t)n, "%s%u (%s)", i ? ", " : ", GPU ",
                          pin->gpus[i].index, pin->gpus[i].bus_id);
    }
    fbr_agent_about(&b, j->job.info.id, r->rank);
    fbr_put_u64(&b, (uint64_t)r->pid);
    fbr_put_str(&b, pin ? pin->cpus : "");
    fbr_put_str(&b, pin ? pin->where : "");
    fbr_put_str(&b, text);
    fbr_agent_send(j->agent, FBR_RING_STARTED, &b);
}

int fbr_agent_rank_start(struct agent_rank *r)
{
    struct fbr_error err = {0, ""};
    struct fbr_env env = {0};
    int fd = -1, rc;

    rc = make_env(r, &env, &fd, &err);
    if (rc == 0)
        rc = launch(r, &env, fd, &err);
    fbr_fds_close(fd);
    fbr_env_fini(&env);
    if (rc < 0)
        fbr_agent_failed(r->job->agent, r->job->job.info.id, r->rank, err.text);
    else
        notify_started(r);
    return rc;
}

struct agent_rank *fbr_agent_rank_find(struct agent_job *j, uint32_t rank)
{
    if (j->nlocal == 0 || rank < j->local[0].rank || rank - j->local[0].rank >= j->nlocal)
        return NULL;
    return &j->ranks[rank - j->local[0].rank];
}

/* ---- Events ---- */

/* Adds facts of the kernel about the death that the exit code does not show. */
static void explain(struct agent *a, const struct fbr_job_event *e, char *text, size_t size)
{
    struct fbr_cgroup l = a->limits;
    double peak = (double)e->peak / (1u << 20);

    snprintf(text, size, "%s", e->text);
    if (e->code == -SIGKILL)
        fbr_cgroup_read(&l);
    if (l.oom_kills == a->limits.oom_kills || text[0])
        return;
    a->limits.oom_kills = l.oom_kills;
    if (l.memory)
        snprintf(text, size, "out of memory: it used up to %.0f MiB, and the limit is %.0f MiB",
                 peak, (double)l.memory / (1u << 20));
    else
        snprintf(text, size, "the host was out of memory; the rank used up to %.0f MiB", peak);
}

static void on_exited(struct agent_rank *r, const struct fbr_job_event *e)
{
    struct agent_job *j = r->job;
    struct agent *a = j->agent;
    int code = e->code == FBR_EXIT_UNKNOWN ? 1 : e->code;
    unsigned flags;
    struct fbr_buf b;
    char text[128];

    explain(a, e, text, sizeof(text));
    a->local->release(a->backend, r->handle);
    r->handle = NULL;
    fbr_agent_stdin_close(r);
    /* A bridge may still report that the rank has met its server, or has left it. */
    for (int i = 0; i < a->nbridges; i++)
        if (a->bridges[i].ops->ended)
            a->bridges[i].ops->ended(a->bridges[i].bridge, &j->job.info, r->rank, code);
    if (a->leaving) {
        fbr_agent_leave(a);
        return;
    }
    flags = (r->met ? FBR_RANK_MET : 0) | (r->left ? FBR_RANK_LEFT : 0);
    /* Some builds of torch load an MPI library. If a rank of the job has used a service (of
     * torch or Horovod), a loaded library alone does not mean that the program uses MPI. */
    if (!r->met && code == 0 && fbr_agent_need_server(j) &&
        ((r->mpi && !j->served) || fbr_elf_needs_mpi(r->file)))
        flags |= FBR_RANK_MPI;
    fbr_agent_about(&b, j->job.info.id, r->rank);
    fbr_put_u32(&b, (uint32_t)code);
    fbr_put_u8(&b, (uint8_t)flags);
    fbr_put_str(&b, text);
    fbr_agent_send(a, FBR_RING_EXITED, &b);
    if (j->ending)
        fbr_agent_job_ended(j);
}

void fbr_agent_on_event(void *user, const struct fbr_job_event *e)
{
    struct agent_rank *r = user;

    switch (e->type) {
    case FBR_JOB_STARTED:
        r->pid = (pid_t)e->pid;
        break;
    case FBR_JOB_OUTPUT:
        fbr_agent_send_output(r, e);
        break;
    case FBR_JOB_EXITED:
        on_exited(r, e);
        break;
    case FBR_JOB_PENDING:
    case FBR_JOB_SUSPENDED:
        break;
    }
}

void fbr_agent_rank_signal(struct agent_rank *r, int sig)
{
    struct agent *a = r->job->agent;

    if (!r->handle)
        return;
    /* its children get the signal, too, as at a terminal */
    a->local->signal(a->backend, r->handle, sig == SIGKILL ? sig : -sig);
}

/* ---- Processor time and memory ---- */

void fbr_agent_on_look(struct agent *a, struct fbr_cur *body)
{
    struct agent_job *j;
    struct fbr_buf b = {0};

    DL_FOREACH(a->jobs, j) {
        for (uint32_t i = 0; i < j->nlocal; i++) {
            uint64_t cpu, resident;

            if (!j->ranks[i].handle || !fbr_stack_usage(j->ranks[i].pid, &cpu, &resident))
                continue;
            fbr_put_u32(&b, j->job.info.id);
            fbr_put_u32(&b, j->ranks[i].rank);
            fbr_put_u64(&b, cpu);
            fbr_put_u64(&b, resident);
        }
    }
    fbr_agent_send(a, FBR_RING_USE, &b);
}
