/* slurm.c - the backend of Slurm (20.11 or newer), which uses Slurm's commands.
 *
 * Inside an allocation a job is a step of it, by srun (steps.c); elsewhere it is a job of its own,
 * by sbatch (batch.c). A job that sbatch started has an allocation for itself alone, so the jobs
 * that it starts are queued again.
 *
 * Both kinds have names fiber-RUN-NAME..., by which the jobs of dead runs are found.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "backends/slurm/query.h"
#include "backends/slurm/batch.h"
#include "backends/slurm/slurm_state.h"
#include "backends/slurm/steps.h"
#include "backends/tool/tool.h"
#include "runtime/base/fds.h"
#include "runtime/net/host_address.h"
#include "runtime/base/environ.h"
#include "runtime/base/log.h"

#define ASK_MS 10000
#define LOOK_UP_MS 1000
#define RUN_DIGITS 32         /* in the uid of a run */
#define SOMEWHERE "192.0.2.1" /* in no network that exists: its route is the default route */

struct fbr_backend {
    struct fbr_backend_env env;
    struct fbr_slurm_settings settings;
    struct fbr_slurm_steps *steps; /* either `steps` or `batch` is set */
    struct fbr_slurm_batch *batch;
    bool said_image;
};

/* The values are those of the configuration's "auto step batch". */
static bool want_steps(const struct fbr_config *config)
{
    const char *mode = fbr_config_str(config, "slurm_mode"), *id = fbr_getenv("SLURM_JOB_ID"),
               *own = fbr_getenv("FIBER_SLURM");

    if (strcmp(mode, "auto") != 0)
        return strcmp(mode, "step") == 0;
    return id && id[0] && !(own && strncmp(own, FBR_SLURM_OWN, strlen(FBR_SLURM_OWN)) == 0);
}

/* All commands must be about the one cluster that has our jobs: elsewhere their ids are those of
 * other jobs. */
static int check_clusters(struct fbr_error *err)
{
    const char *all = fbr_getenv("SLURM_CLUSTERS"), *own = fbr_getenv("SBATCH_CLUSTERS");

    all = all ? all : "";
    if (own && own[0] && strcmp(own, all) != 0)
        return fbr_fail(err, -EINVAL, "only sbatch reads SBATCH_CLUSTERS (%.60s): %s", own,
                        FBR_SLURM_CLUSTERS);
    if (strchr(all, ',') || strcmp(all, "all") == 0)
        return fbr_fail(err, -EINVAL, "SLURM_CLUSTERS must name one cluster, not '%.60s'", all);
    return 0;
}

static int load_settings(struct fbr_slurm_settings *s, const struct fbr_config *config,
                         struct fbr_error *err)
{
    int rc = fbr_slurm_settings_load(s, config, err);

    return rc < 0 || want_steps(config) ? rc : check_clusters(err);
}

static void slurm_close(struct fbr_backend *b)
{
    fbr_slurm_steps_close(b->steps);
    fbr_slurm_batch_close(b->batch);
    fbr_slurm_settings_fini(&b->settings);
    free(b);
}

static int slurm_open(struct fbr_backend **out, const struct fbr_backend_env *env,
                      struct fbr_error *err)
{
    struct fbr_backend *b = calloc(1, sizeof(*b));
    bool steps = want_steps(env->config);
    char file[512];
    int rc;

    if (!b)
        return fbr_fail(err, -ENOMEM, "out of memory");
    b->env = *env;
    rc = load_settings(&b->settings, env->config, err);
    if (rc < 0)
        goto fail;
    if (fbr_tool_find(steps ? "srun" : "sbatch", file, sizeof(file), err) < 0) {
        rc = fbr_wrap(err, "Slurm's commands are not here");
        goto fail;
    }
    rc = steps ? fbr_slurm_steps_open(&b->steps, env, &b->settings, err)
               : fbr_slurm_batch_open(&b->batch, env, &b->settings, err);
    if (rc < 0)
        goto fail;
    *out = b;
    return 0;
fail:
    slurm_close(b);
    return rc;
}

/* Finds the file of a job that is our own program. */
static int find_program(struct fbr_job *job, char file[PATH_MAX], struct fbr_error *err)
{
    if (!job->own_program)
        return 0;
    job->file = file;
    return fbr_tool_own_program(file, PATH_MAX, "put it back", err);
}

static int slurm_start(struct fbr_backend *b, const struct fbr_job *job, void *user, void **handle,
                       struct fbr_error *err)
{
    struct fbr_job whole = *job;
    char path[PATH_MAX];
    int rc = find_program(&whole, path, err);

    if (rc < 0)
        return rc;
    if (job->image && job->image[0] && !b->said_image) {
        b->said_image = true;
        fbr_warn("slurm: jobs run on the nodes as they are, not in image %.200s; an option like "
                 "--container-image in slurm_options may do it, if your site has it",
                 job->image);
    }
    return b->steps ? fbr_slurm_steps_start(b->steps, &whole, user, handle, err)
                    : fbr_slurm_batch_start(b->batch, &whole, user, handle, err);
}

static int slurm_signal(struct fbr_backend *b, void *handle, int sig)
{
    return b->steps ? fbr_slurm_steps_signal(b->steps, handle, sig)
                    : fbr_slurm_batch_signal(handle, sig);
}

static void slurm_pause_output(struct fbr_backend *b, void *handle, int paused)
{
    if (b->steps)
        fbr_slurm_steps_pause(b->steps, handle, paused);
    else
        fbr_slurm_batch_pause(b->batch, handle, paused);
}

static void slurm_release(struct fbr_backend *b, void *handle)
{
    if (b->steps)
        fbr_slurm_steps_release(b->steps, handle);
    else
        fbr_slurm_batch_release(handle);
}

/* ---- Queries of Slurm that are waited for ---- */

/* Finds the run and the name in "fiber-RUN-NAME.TAG.N" (batch) or "fiber-RUN-NAME.PID" (a step).
 * RUN is the whole uid of a run; a user's own job may be "fiber-optics-sim". */
static bool cut_name(char *name, bool step, struct fbr_orphan *job)
{
    char *run, *own;

    if (strncmp(name, "fiber-", 6) != 0)
        return false;
    run = name + strlen("fiber-");
    own = run + strspn(run, "0123456789abcdef");
    if (own - run != RUN_DIGITS || *own != '-')
        return false;
    *own++ = '\0';
    for (int dots = step ? 1 : 2; dots > 0; dots--)
        if (strrchr(own, '.'))
            *strrchr(own, '.') = '\0';
    job->run = run;
    job->name = own;
    return true;
}

/* Cuts "ID|STATE|SINCE|NAME|COMMENT". Each batch job of ours has a comment; a step has none. */
static bool cut_line(char *line, bool step, struct fbr_orphan *job)
{
    enum fbr_slurm_phase phase;
    char *at[5], *master;

    if (!fbr_slurm_cut(line, at, 5) || (!step && !strstr(at[4], "fiber.job=")))
        return false;
    master = strstr(at[4], "fiber.master=");
    phase = fbr_slurm_phase(at[1]);
    *job = (struct fbr_orphan){.id = at[0],
                               .master = master ? master + strlen("fiber.master=") : "",
                               .since_ms = 1000 * strtoll(at[2], NULL, 10),
                               .runs = phase == FBR_SLURM_RUNS || phase == FBR_SLURM_LEAVES};
    return cut_name(at[3], step, job);
}

static int list_those(const char *command, bool steps, fbr_backend_found *found, void *user,
                      struct fbr_error *err)
{
    struct fbr_buf out = {0};
    char *rest = NULL;
    int rc;

    rc = fbr_slurm_ask_about(command, "", NULL, ASK_MS, &out, err);
    for (char *line = rc == 0 ? strtok_r((char *)out.data, "\n", &rest) : NULL; line;
         line = strtok_r(NULL, "\n", &rest)) {
        struct fbr_orphan job;

        if (cut_line(line, steps, &job))
            found(user, &job);
    }
    fbr_buf_fini(&out);
    return rc;
}

static int slurm_list(struct fbr_backend *b, fbr_backend_found *found, void *user,
                      struct fbr_error *err)
{
    int rc = list_those("squeue --noheader --me --format=%i|%T|%V|%j|%k", false, found, user, err);

    return rc < 0 ? rc
                  : list_those("squeue --noheader --me --steps --format=%i|RUNNING|%S|%j|", true,
                               found, user, err);
}

static int slurm_remove(struct fbr_backend *b, const char *id, struct fbr_error *err)
{
    if (id[0] < '0' || id[0] > '9')
        return fbr_fail(err, -EINVAL, "'%.60s' is not the id of a Slurm job", id);
    return fbr_slurm_ask_about("scancel --quiet", "", id, ASK_MS, NULL, err);
}

static int slurm_sweep(struct fbr_backend *b, int64_t before_ms, int dry, fbr_backend_swept *swept,
                       void *user, struct fbr_error *err)
{
    (void)before_ms; /* no run comes back to the folder of a dead master */
    if (b->batch)
        fbr_slurm_batch_sweep(b->batch, dry, swept, user);
    return 0;
}

/* Returns the value of the line "   StdOut=/path", for free(); NULL: there is none, or no
 * memory. */
static char *line_of(const char *text, const char *key)
{
    const char *at = strstr(text, key);

    return at ? strndup(at + strlen(key), strcspn(at + strlen(key), "\n")) : NULL;
}

static int forward_file(const char *path, int stream, const struct fbr_backend_reader *r, char *why,
                        size_t size)
{
    char data[16384];
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : 0;

    while (fd >= 0 && (n = read(fd, data, sizeof(data))) > 0)
        r->out(r->user, stream, data, (size_t)n);
    if (n < 0)
        snprintf(why, size, "%.300s: %s", path, fbr_strerror(errno));
    fbr_fds_close(fd);
    return n < 0 ? -EIO : 0;
}

/* For a job of sbatch: reads the files to which Slurm writes its output. */
static int slurm_logs(struct fbr_backend *b, const char *id, int follow,
                      const struct fbr_backend_reader *r, struct fbr_error *err)
{
    struct fbr_buf text = {0};
    char *out = NULL, *log = NULL, why[400] = "";
    int rc;

    if (id[0] < '0' || id[0] > '9')
        return fbr_fail(err, -EINVAL, "'%.60s' is not the id of a Slurm job", id);
    if (strchr(id, '.'))
        return fbr_fail(err, -ENOTSUP, "%.60s is a step: its output goes only to its master", id);
    rc = fbr_slurm_ask_about("scontrol show job", "", id, ASK_MS, &text, err);
    if (rc < 0)
        goto done;
    out = line_of((char *)text.data, " StdOut=");
    log = line_of((char *)text.data, " StdErr=");
    if (!out || !log) {
        rc = fbr_fail(err, -ENODATA, "Slurm does not report where job %.60s writes to", id);
    } else if (follow) {
        rc = fbr_fail(err, -ENOTSUP, "Slurm cannot follow a job's files: use tail -F %.200s %.200s",
                      out, log);
    } else {
        forward_file(log, 2, r, why, sizeof(why));
        forward_file(out, 1, r, why, sizeof(why));
        r->done(r->user, why);
    }
done:
    free(log);
    free(out);
    fbr_buf_fini(&text);
    return rc;
}

/* Finds the address of a node in lines "NAME|ADDRESS"; of another node than ours, if there is
 * one. */
static bool find_node(char *text, char *peer, size_t size)
{
    const char *node = fbr_getenv("SLURMD_NODENAME");
    char host[256] = "", *rest = NULL;

    gethostname(host, sizeof(host) - 1);
    peer[0] = '\0';
    for (char *line = strtok_r(text, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest)) {
        char *address = strchr(line, '|');
        bool ours;

        if (!address || !address[1])
            continue;
        *address++ = '\0';
        ours = (node && strcmp(node, line) == 0) || strcmp(host, line) == 0;
        if (!ours || !peer[0])
            snprintf(peer, size, "%s", address);
        if (!ours)
            return true;
    }
    return peer[0] != '\0';
}

static int slurm_address(struct fbr_backend *b, char out[FBR_HOST_ADDRESS_MAX],
                         struct fbr_error *err)
{
    const char *nodes = fbr_getenv("SLURM_JOB_NODELIST"),
               *launcher = fbr_getenv("SLURM_LAUNCH_NODE_IPADDR");
    const char *partition = b->settings.partition[0] ? b->settings.partition : NULL;
    char peer[256] = "", who[sizeof(peer) + sizeof("the node ")];
    bool ours = b->steps && nodes;
    struct fbr_buf text = {0};
    int rc;

    if (fbr_slurm_ask_about("sinfo --noheader --Node --format=%N|%o",
                            ours ? "--nodes=" : "--partition=", ours ? nodes : partition, ASK_MS,
                            &text, err) < 0 ||
        !find_node((char *)text.data, peer, sizeof(peer)))
        snprintf(peer, sizeof(peer), "%s", launcher && launcher[0] ? launcher : SOMEWHERE);
    fbr_buf_fini(&text);
    snprintf(who, sizeof(who), "the node %s", peer);
    rc = fbr_host_address_toward(peer, LOOK_UP_MS, out, NULL);
    return rc < 0 ? fbr_host_address_fail(err, rc, who) : 0;
}

/* ---- fiber doctor ---- */

static void slurm_check(struct fbr_backend *b, const struct fbr_findings *to)
{
    struct fbr_error err = {0, ""};

    if (b->batch && fbr_slurm_batch_check(b->batch, &err) < 0)
        fbr_report(to, FBR_FINDING_BAD, "",
                   "set slurm_dir to a folder of yours that the nodes share", "%s", err.text);
    else
        fbr_slurm_check(&b->settings, b->steps, to);
}

/* ---- fiber run --dry-run ---- */

static int slurm_show(const struct fbr_config *config, const struct fbr_job *job, int json,
                      char **text, struct fbr_error *err)
{
    const char *base = fbr_config_str(config, "slurm_dir");
    struct fbr_slurm_settings settings = {0};
    char file[PATH_MAX], dir[PATH_MAX];
    struct fbr_job whole = *job;
    struct fbr_buf b = {0};
    int rc;

    if (json)
        return -ENOTSUP;
    if ((rc = load_settings(&settings, config, err)) < 0 ||
        (rc = find_program(&whole, file, err)) < 0)
        goto done;
    snprintf(dir, sizeof(dir), "%.3000s/RUN", base[0] ? base : "~/.fiber");
    rc = want_steps(config) ? fbr_slurm_steps_show(&settings, &whole, &b)
                            : fbr_slurm_batch_show(&settings, dir, &whole, &b);
    b.failed |= rc < 0;
    *text = fbr_buf_text(&b);
    rc = *text ? 0 : fbr_fail(err, -ENOMEM, "out of memory");
done:
    fbr_slurm_settings_fini(&settings);
    return rc;
}

/* ---- The room for jobs ---- */

static int slurm_room(const struct fbr_backend_env *env, int sizes, struct fbr_capacity *room,
                      struct fbr_error *err)
{
    struct fbr_slurm_settings settings;
    int rc;

    if (want_steps(env->config)) {
        const struct fbr_slurm_allocation a = {
            .nodes = fbr_getenv("SLURM_JOB_NODELIST"),
            .tasks = fbr_getenv("SLURM_TASKS_PER_NODE"),
            .cpus = fbr_getenv("SLURM_JOB_CPUS_PER_NODE"),
            .ntasks = fbr_getenv("SLURM_NTASKS"),
            .cpus_per_task = fbr_getenv("SLURM_CPUS_PER_TASK"),
            .gpus_per_task = fbr_getenv("SLURM_GPUS_PER_TASK"),
            /* With --pty only the first task has the terminal and goes on. */
            .copies = fbr_getenv("SLURM_PTY_PORT") ? NULL : fbr_getenv("SLURM_STEP_NUM_TASKS")};

        rc = fbr_slurm_room_of(&a, room);
        return rc < 0 ? fbr_fail(err, rc, "out of memory") : 0;
    }
    if (!sizes)
        return 0;
    rc = load_settings(&settings, env->config, err);
    rc = rc < 0 ? rc : fbr_slurm_ask_room(&settings, room, err);
    fbr_slurm_settings_fini(&settings);
    return rc;
}

/* ---- The table ---- */

static const struct fbr_config_key keys[] = {
    {"slurm_mode", "FIBER_SLURM_MODE", FBR_CONFIG_ENUM, "auto", 0, 0, "auto step batch",
     "step: jobs are steps of the current allocation (srun); batch: they are jobs of their own "
     "(sbatch)"},
    {"slurm_partition", "FIBER_SLURM_PARTITION", FBR_CONFIG_STR, "", 0, 256, NULL,
     "partition of batch jobs; empty: Slurm's default"},
    {"slurm_account", "FIBER_SLURM_ACCOUNT", FBR_CONFIG_STR, "", 0, 256, NULL,
     "account of batch jobs; empty: Slurm's default"},
    {"slurm_qos", "FIBER_SLURM_QOS", FBR_CONFIG_STR, "", 0, 256, NULL,
     "quality of service of batch jobs; empty: Slurm's default"},
    {"slurm_constraint", "FIBER_SLURM_CONSTRAINT", FBR_CONFIG_STR, "", 0, 1024, NULL,
     "features that nodes of batch jobs must have, e.g. \"gpu&ib\""},
    {"slurm_time", "FIBER_SLURM_TIME", FBR_CONFIG_STR, "", 0, 64, NULL,
     "time limit of batch jobs as sbatch takes it, e.g. 1:30:00; empty: the partition's"},
    {"slurm_options", "FIBER_SLURM_OPTIONS", FBR_CONFIG_STR, "", 0, FBR_CONFIG_TEXT_MAX, NULL,
     "more options of sbatch or srun, e.g. \"--reservation=x --exclude=n7\"; another cluster is "
     "named by SLURM_CLUSTERS instead"},
    {"slurm_dir", "FIBER_SLURM_DIR", FBR_CONFIG_STR, "", 0, 2048, NULL,
     "folder that the nodes share, for tickets and output of batch jobs; empty: ~/.fiber"},
    {"slurm_poll", "FIBER_SLURM_POLL", FBR_CONFIG_MS, "1s", 50, FBR_HOUR_MS, NULL,
     "time between two queries of the states of batch jobs, one squeue for all of them"},
};

static const struct fbr_backend_sign signs[] = {
    {"SLURM_CONF", NULL, "/etc/slurm/slurm.conf"},
    {"SLURM_JOB_ID", NULL, "/run/slurm/conf/slurm.conf"},
};

static const struct fbr_backend_advice advice = {
    .absent = "apt install slurm-client, on a host that the cluster knows",
    .bad = "put sbatch, srun and sinfo into PATH; correct the slurm_ settings: fiber config show",
};

/* Whether we run in an allocation. salloc sets no list of nodes for a heterogeneous one. */
static int here(void)
{
    const char *job = fbr_getenv("SLURM_JOB_ID");

    return job && job[0] && (fbr_getenv("SLURM_JOB_NODELIST") || fbr_getenv("SLURM_HET_SIZE"));
}

static void remove_command(const struct fbr_config *config, const char *id, char *out, size_t size)
{
    snprintf(out, size, "scancel %s", id);
}

static const char *const variables[] = {"FIBER_SLURM", NULL};

static const struct fbr_backend_about about = {
    .keys = keys,
    .nkeys = sizeof(keys) / sizeof(keys[0]),
    .signs = signs,
    .nsigns = sizeof(signs) / sizeof(signs[0]),
    .advice = &advice,
    .here = here,
    .remove_command = remove_command,
    .variables = variables,
    .hosts = ", or name nodes by FIBER_SLURM_OPTIONS=--nodelist=n1,n2",
    .leaves_jobs = 1,
    .shows = 1,
};

static const struct fbr_backend_housekeeping housekeeping = {
    .list = slurm_list,
    .remove = slurm_remove,
    .sweep = slurm_sweep,
    .logs = slurm_logs,
};

const struct fbr_backend_ops fbr_backend_slurm = {
    .name = "slurm",
    .about = &about,
    .reach = FBR_REACH_TCP,
    .room = slurm_room,
    .open = slurm_open,
    .close = slurm_close,
    .start = slurm_start,
    .signal = slurm_signal,
    .pause_output = slurm_pause_output,
    .release = slurm_release,
    .housekeeping = &housekeeping,
    .address = slurm_address,
    .check = slurm_check,
    .show = slurm_show,
};
