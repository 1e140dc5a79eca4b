/* bridge_host.c - see bridge_host.h.
 *
 * All state belongs to the loop thread but for the process ids, which are only read after a call to
 * it.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/bridge_host.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/support/bridge_host_priv.h"
#include "tests/support/sync.h"

extern char **environ;

int host_call(struct bridge_host *h, int (*fn)(void *arg), void *arg)
{
    return fbr_loop_call(h->loop, fn, arg);
}

struct fbr_loop *host_loop(struct bridge_host *h)
{
    return h->loop;
}

/* ---- jobs and processes ---- */

static uint32_t node_of(const struct job *j, uint32_t rank)
{
    uint32_t node = 0;

    while (rank >= j->first[node + 1])
        node++;
    return node;
}

static int env_now(struct bridge_host *h, uint32_t id, uint32_t rank, struct fbr_env *env, int *fd,
                   struct fbr_error *err)
{
    struct job *j = h->jobs[id];
    uint32_t agent = j->agents[node_of(j, rank)];

    for (uint32_t i = 0; i < h->nbridges; i++) {
        int rc = h->ops[i]->rank(h->agents[agent].bridges[i], &j->of[agent], rank, env, fd, err);

        if (rc < 0)
            return rc;
    }
    return env->failed ? -ENOMEM : 0;
}

static void output_path(struct bridge_host *h, uint32_t job, uint32_t rank, char path[192])
{
    snprintf(path, 192, "%s/out.%u.%u", h->dir, job, rank);
}

static void start_now(struct bridge_host *h, uint32_t id, uint32_t rank, const char *const *argv,
                      char *const *env)
{
    struct host_rank *r = &h->jobs[id]->ranks[rank];
    struct fbr_error err = {0};
    struct fbr_env all = {0};
    char path[192];
    int fd = -1, out;

    fbr_env_copy(&all, environ);
    for (; env && *env; env++)
        fbr_env_put(&all, *env);
    if (env_now(h, id, rank, &all, &fd, &err) < 0) {
        fprintf(stderr, "%s\n", err.text);
        abort();
    }
    output_path(h, id, rank, path);
    out = open(path, O_CREAT | O_TRUNC | O_WRONLY | O_CLOEXEC, 0600);
    host_must(out >= 0, path);
    r->pid = fork();
    host_must(r->pid >= 0, "fork");
    if (r->pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        dup2(out, 1);
        dup2(out, 2);
        if (fd == FBR_BRIDGE_FD)
            fcntl(fd, F_SETFD, 0);
        else if (fd >= 0)
            dup2(fd, FBR_BRIDGE_FD);
        signal(SIGPIPE, SIG_DFL);
        sigset_t none;
        sigemptyset(&none);
        sigprocmask(SIG_SETMASK, &none, NULL);
        execvpe(argv[0], (char *const *)(uintptr_t)argv, all.list);
        _exit(127);
    }
    r->started = true;
    if (h->jobs[id]->aborted) /* by another one, which was started before */
        kill(r->pid, SIGKILL);
    close(out);
    if (fd >= 0)
        close(fd);
    fbr_env_fini(&all);
}

static uint32_t job_now(struct bridge_host *h, const uint32_t *per_agent, bool spawned,
                        uint32_t parent, uint32_t parent_rank)
{
    struct job *j = host_make(sizeof(*j));
    uint32_t id = h->njobs, nodes = 0;
    int node[HOST_AGENTS];

    host_must(id < HOST_JOBS, "too many jobs");
    h->jobs[h->njobs++] = j;
    snprintf(j->nspace, sizeof(j->nspace), "fbrtest-%d-%016llx-%u", (int)getpid(),
             (unsigned long long)fbr_now_ns(), id);
    snprintf(j->dir, sizeof(j->dir), "%s/job%u", h->dir, id);
    host_must(mkdir(j->dir, 0700) == 0, j->dir);
    for (uint32_t k = 0; k < h->nagents; k++) {
        node[k] = per_agent[k] ? (int)nodes : -1;
        if (!per_agent[k])
            continue;
        j->agents[nodes] = k;
        j->hosts[nodes] = h->agents[k].name;
        j->first[nodes + 1] = j->first[nodes] + per_agent[k];
        host_must(j->first[nodes + 1] <= HOST_RANKS, "too many ranks");
        for (uint32_t i = 0; i < per_agent[k]; i++)
            j->local[nodes][i] = (struct fbr_bridge_rank){.rank = j->first[nodes] + i, .cpus = ""};
        nodes++;
    }
    for (uint32_t k = 0; k < h->nagents; k++) {
        struct fbr_error err = {0};

        j->of[k] = (struct fbr_bridge_job){.id = id,
                                           .run = "fbrtest",
                                           .nspace = j->nspace,
                                           .size = j->first[nodes],
                                           .nodes = nodes,
                                           .first = j->first,
                                           .hosts = j->hosts,
                                           .agents = j->agents,
                                           .node = node[k],
                                           .dir = j->dir,
                                           .max_restarts = 3,
                                           .spawned = spawned,
                                           .parent = parent,
                                           .parent_rank = parent_rank,
                                           .master_host = "127.0.0.1",
                                           .local = node[k] < 0 ? NULL : j->local[node[k]]};
        for (uint32_t i = 0; i < h->nbridges; i++)
            if (h->ops[i]->job && h->ops[i]->job(h->agents[k].bridges[i], &j->of[k], &err) < 0) {
                fprintf(stderr, "%s: %s\n", h->ops[i]->name, err.text);
                abort();
            }
    }
    return id;
}

/* All of it on agent 0. */
static int host_spawn(void *user, const struct fbr_bridge_spawn *spawn, fbr_bridge_done *done,
                      void *arg)
{
    struct bridge_host *h = ((struct agent *)user)->h;
    uint32_t per_agent[HOST_AGENTS] = {0}, id, rank = 0;

    for (size_t i = 0; i < spawn->napps; i++)
        per_agent[0] += spawn->apps[i].count;
    id = job_now(h, per_agent, true, spawn->parent, spawn->parent_rank);
    for (size_t i = 0; i < spawn->napps; i++)
        for (uint32_t k = 0; k < spawn->apps[i].count; k++)
            start_now(h, id, rank++, spawn->apps[i].argv,
                      (char *const *)(uintptr_t)spawn->apps[i].env);
    host_answer(h, done, arg, 0, &id, sizeof(id));
    return 0;
}

struct request {
    struct bridge_host *h;
    uint32_t job, rank;
    const uint32_t *per_agent;
    const char *const *argv;
    char *const *env;
    struct fbr_env *env_out;
    int *fd;
    struct fbr_error *err;
    const struct fbr_bridge_ops *ops;
    struct host_rank *out;
    int code;
};

static int run_job(void *arg)
{
    struct request *r = arg;

    r->job = job_now(r->h, r->per_agent, false, 0, 0);
    return 0;
}

uint32_t host_job(struct bridge_host *h, const uint32_t *per_agent)
{
    struct request r = {.h = h, .per_agent = per_agent};

    host_call(h, run_job, &r);
    return r.job;
}

const struct fbr_bridge_job *host_job_of(struct bridge_host *h, uint32_t agent, uint32_t job)
{
    return &h->jobs[job]->of[agent];
}

static int run_env(void *arg)
{
    struct request *r = arg;

    return env_now(r->h, r->job, r->rank, r->env_out, r->fd, r->err);
}

int host_env(struct bridge_host *h, uint32_t job, uint32_t rank, char *const *env,
             struct fbr_env *env_out, int *fd, struct fbr_error *err)
{
    int unused = -1, rc;
    struct request r = {
        .h = h, .job = job, .rank = rank, .env_out = env_out, .fd = fd ? fd : &unused, .err = err};

    *r.fd = -1;
    *env_out = (struct fbr_env){0};
    for (; env && *env; env++)
        fbr_env_put(env_out, *env);
    rc = host_call(h, run_env, &r);
    if (unused >= 0)
        close(unused);
    return rc;
}

static int run_start(void *arg)
{
    struct request *r = arg;

    start_now(r->h, r->job, r->rank, r->argv, r->env);
    return 0;
}

void host_start(struct bridge_host *h, uint32_t job, uint32_t rank, const char *const *argv,
                char *const *env)
{
    struct request r = {.h = h, .job = job, .rank = rank, .argv = argv, .env = env};

    host_call(h, run_start, &r);
}

void host_start_all(struct bridge_host *h, uint32_t job, const char *const *argv, char *const *env)
{
    for (uint32_t i = 0; i < h->jobs[job]->of[0].size; i++)
        host_start(h, job, i, argv, env);
}

static int run_ended(void *arg)
{
    struct request *r = arg;
    struct job *j = r->h->jobs[r->job];
    uint32_t agent = j->agents[node_of(j, r->rank)];

    j->ranks[r->rank].pid = 0;
    j->ranks[r->rank].ended = true;
    j->ranks[r->rank].code = r->code;
    for (uint32_t i = 0; i < r->h->nbridges; i++)
        if (r->h->ops[i]->ended)
            r->h->ops[i]->ended(r->h->agents[agent].bridges[i], &j->of[agent], r->rank, r->code);
    return 0;
}

static int run_size(void *arg)
{
    struct request *r = arg;

    return (int)r->h->jobs[r->job]->of[0].size;
}

int host_wait(struct bridge_host *h, uint32_t job)
{
    struct request r = {.h = h, .job = job};
    int rc = 0, size = host_call(h, run_size, &r);

    for (r.rank = 0; (int)r.rank < size; r.rank++) {
        struct host_rank rank = host_rank(h, job, r.rank);
        int status;

        if (!rank.started || rank.ended)
            continue;
        host_must(waitpid(rank.pid, &status, 0) > 0, "waitpid");
        r.code = WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
        rc = rc ? rc : r.code;
        host_call(h, run_ended, &r);
    }
    return rc;
}

const char *host_output(struct bridge_host *h, uint32_t job, uint32_t rank)
{
    char path[192];
    size_t room = 0;
    FILE *f;

    output_path(h, job, rank, path);
    f = fopen(path, "re");
    host_must(f != NULL, path);
    free(h->output);
    h->output = NULL;
    if (getdelim(&h->output, &room, EOF, f) < 0) {
        free(h->output);
        h->output = strdup("");
    }
    fclose(f);
    return h->output;
}

static int run_rank(void *arg)
{
    struct request *r = arg;

    *r->out = r->h->jobs[r->job]->ranks[r->rank];
    return 0;
}

struct host_rank host_rank(struct bridge_host *h, uint32_t job, uint32_t rank)
{
    struct host_rank out;
    struct request r = {.h = h, .job = job, .rank = rank, .out = &out};

    host_call(h, run_rank, &r);
    return out;
}

static int run_job_end(void *arg)
{
    struct request *r = arg;
    struct job *j = r->h->jobs[r->job];

    if (j->ended)
        return 0;
    j->ended = true;
    for (uint32_t k = 0; k < r->h->nagents; k++)
        for (uint32_t i = 0; i < r->h->nbridges; i++)
            if (r->h->ops[i]->job_end)
                r->h->ops[i]->job_end(r->h->agents[k].bridges[i], &j->of[k]);
    return 0;
}

void host_job_end(struct bridge_host *h, uint32_t job)
{
    struct request r = {.h = h, .job = job};

    host_call(h, run_job_end, &r);
}

static int run_jobs(void *arg)
{
    return (int)((struct bridge_host *)arg)->njobs;
}

uint32_t host_jobs(struct bridge_host *h)
{
    return (uint32_t)host_call(h, run_jobs, h);
}

/* ---- the whole ---- */

static int run_use(void *arg)
{
    struct request *r = arg;
    struct bridge_host *h = r->h;

    host_must(h->nbridges < BRIDGES, "too many bridges");
    h->ops[h->nbridges] = r->ops;
    for (uint32_t k = 0; k < h->nagents; k++) {
        struct fbr_error err = {0};

        if (r->ops->open &&
            r->ops->open(&h->agents[k].bridges[h->nbridges], &h->agents[k].host, &err) < 0) {
            fprintf(stderr, "%s: %s\n", r->ops->name, err.text);
            abort();
        }
    }
    h->nbridges++;
    return 0;
}

void host_use(struct bridge_host *h, const struct fbr_bridge_ops *ops)
{
    struct request r = {.h = h, .ops = ops};

    host_call(h, run_use, &r);
}

struct bridge_host *host_open(uint32_t agents)
{
    struct bridge_host *h = host_make(sizeof(*h));

    host_must(agents <= HOST_AGENTS && fbr_loop_open(&h->loop, NULL) == 0, "loop");
    temp_dir_make(h->dir);
    h->nagents = agents;
    for (uint32_t k = 0; k < agents; k++) {
        struct agent *a = &h->agents[k];

        *a = (struct agent){.h = h, .number = k};
        snprintf(a->name, sizeof(a->name), "testnode%u", k);
        snprintf(a->dir, sizeof(a->dir), "%s/agent%u", h->dir, k);
        host_must(mkdir(a->dir, 0700) == 0, a->dir);
        a->host = (struct fbr_bridge_host){.loop = h->loop,
                                           .agent = k,
                                           .hostname = a->name,
                                           .dir = a->dir,
                                           .topology = "",
                                           .user = a,
                                           .spawn = host_spawn};
        host_ops_fill(&a->host);
    }
    return h;
}

static int run_close(void *arg)
{
    struct bridge_host *h = arg;

    for (uint32_t i = 0; i < h->njobs; i++)
        run_job_end(&(struct request){.h = h, .job = i});
    for (uint32_t k = 0; k < h->nagents; k++)
        for (uint32_t i = 0; i < h->nbridges; i++)
            if (h->ops[i]->close)
                h->ops[i]->close(h->agents[k].bridges[i]);
    return 0;
}

void host_close(struct bridge_host *h)
{
    host_call(h, run_close, h);
    fbr_loop_close(h->loop);
    host_ops_free(h);
    for (uint32_t i = 0; i < h->njobs; i++)
        free(h->jobs[i]);
    free(h->output);
    temp_dir_remove(h->dir);
    free(h);
}
