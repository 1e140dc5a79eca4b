/* mini_agent.c - the agent of mini_ring.h: it runs a bridge, and ranks.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include <errno.h>

#include "mpi_bridge/bridge.h"
#include "runtime/program/module.h"
#include "tests/support/mini_ring.h"

extern char **environ;

/* ---- Packets ---- */

bool mini_send(int fd, struct fbr_buf *b)
{
    bool sent = !b->failed && send(fd, b->data, b->len, MSG_NOSIGNAL) == (ssize_t)b->len;

    fbr_buf_fini(b);
    return sent;
}

void mini_packet(struct fbr_buf *b, char type)
{
    fbr_buf_init(b);
    fbr_put_u8(b, (uint8_t)type);
}

/* ---- An agent ---- */

struct started {
    struct agent *agent;
    struct job *job;
    uint32_t rank;
    pid_t pid; /* 0: it has ended */
    int code;
    pthread_t waiter;
};

struct job {
    struct fbr_bridge_job about;
    uint32_t first[MINI_AGENTS + 1], agents[MINI_AGENTS];
    const char *hosts[MINI_AGENTS];
    char nspace[64], dir[128], argv[8][256];
    char *args[9];
    struct fbr_env env;
    struct fbr_bridge_rank local[MINI_RANKS];
    struct started started[MINI_RANKS];
};

struct wanted { /* an answer that the launcher owes */
    fbr_bridge_done *done;
    void *arg;
};

struct agent {
    int fd;
    uint32_t number;
    const char *module;
    char dir[96], hostname[32];
    struct fbr_loop *loop;
    const struct fbr_bridge_ops *ops;
    struct fbr_bridge *bridge;
    struct fbr_bridge_host host;
    struct wanted wanted[1024];
    uint32_t nwanted;
    struct job jobs[MINI_JOBS];
    struct fbr_cur packet; /* what handle() is about */
    bool quit;
};

static int host_post(void *user, void (*fn)(void *arg), void *arg)
{
    return fbr_loop_post(((struct agent *)user)->loop, fn, arg);
}

/* A packet whose answer goes to done. */
static void begin_request(struct agent *a, struct fbr_buf *b, char type, fbr_bridge_done *done,
                          void *arg)
{
    if (a->nwanted == 1024)
        abort();
    mini_packet(b, type);
    fbr_put_u32(b, a->nwanted);
    a->wanted[a->nwanted++] = (struct wanted){done, arg};
}

static int host_fence(void *user, const void *key, size_t key_len, const uint32_t *agents,
                      uint32_t parts, const void *data, size_t len, fbr_bridge_done *done,
                      void *arg)
{
    struct agent *a = user;
    struct fbr_buf b;

    begin_request(a, &b, 'F', done, arg);
    fbr_put_bytes(&b, key, key_len);
    fbr_put_u32(&b, parts);
    fbr_put_bytes(&b, data, len);
    return mini_send(a->fd, &b) ? 0 : -EIO;
}

static int host_notify(void *user, uint32_t agent, const void *data, size_t len)
{
    struct agent *a = user;
    struct fbr_buf b;

    mini_packet(&b, 'T');
    fbr_put_u32(&b, agent);
    fbr_put_bytes(&b, data, len);
    return mini_send(a->fd, &b) ? 0 : -EIO;
}

static int host_publish(void *user, uint32_t job, uint32_t rank, const char *key, const void *value,
                        size_t len, fbr_bridge_done *done, void *arg)
{
    struct agent *a = user;
    struct fbr_buf b;

    begin_request(a, &b, 'P', done, arg);
    fbr_put_str(&b, key);
    fbr_put_u32(&b, job);
    fbr_put_u32(&b, rank);
    fbr_put(&b, value, len);
    return mini_send(a->fd, &b) ? 0 : -EIO;
}

static int host_lookup(void *user, const char *key, int wait_ms, fbr_bridge_done *done, void *arg)
{
    struct agent *a = user;
    struct fbr_buf b;

    begin_request(a, &b, 'L', done, arg);
    fbr_put_str(&b, key);
    fbr_put_u32(&b, (uint32_t)wait_ms);
    return mini_send(a->fd, &b) ? 0 : -EIO;
}

static int host_unpublish(void *user, uint32_t job, uint32_t rank, const char *key,
                          fbr_bridge_done *done, void *arg)
{
    struct agent *a = user;
    struct fbr_buf b;

    begin_request(a, &b, 'U', done, arg);
    fbr_put_str(&b, key);
    return mini_send(a->fd, &b) ? 0 : -EIO;
}

static int host_spawn(void *user, const struct fbr_bridge_spawn *spawn, fbr_bridge_done *done,
                      void *arg)
{
    struct agent *a = user;
    struct fbr_buf b;

    if (spawn->napps != 1)
        return -EINVAL;
    begin_request(a, &b, 'S', done, arg);
    fbr_put_u32(&b, spawn->parent);
    fbr_put_u32(&b, spawn->parent_rank);
    fbr_put_u32(&b, spawn->apps[0].count);
    for (size_t i = 0; spawn->apps[0].argv[i]; i++)
        fbr_put_str(&b, spawn->apps[0].argv[i]);
    fbr_put_str(&b, "");
    for (size_t i = 0; spawn->apps[0].env && spawn->apps[0].env[i]; i++)
        fbr_put_str(&b, spawn->apps[0].env[i]);
    return mini_send(a->fd, &b) ? 0 : -EIO;
}

static void news(struct agent *a, char type, uint32_t job, uint32_t rank, int code,
                 const char *text)
{
    struct fbr_buf b;

    mini_packet(&b, type);
    fbr_put_u32(&b, job);
    fbr_put_u32(&b, rank);
    fbr_put_u32(&b, (uint32_t)code);
    fbr_put_str(&b, text);
    mini_send(a->fd, &b);
}

static void host_met(void *user, uint32_t job, uint32_t rank, const char *how)
{
    news(user, 'M', job, rank, 0, how);
}

static void host_left(void *user, uint32_t job, uint32_t rank)
{
    news(user, 'G', job, rank, 0, "");
}

static void host_abort(void *user, uint32_t job, uint32_t rank, int code, const char *text)
{
    news(user, 'A', job, rank, code, text);
}

static void host_print(void *user, uint32_t job, uint32_t rank, int stream, const char *text,
                       size_t len)
{
    dprintf(stream, "[%u:%u] %.*s\n", job, rank, (int)len, text);
}

static int ended_call(void *arg)
{
    struct started *s = arg;
    struct agent *a = s->agent;

    s->pid = 0;
    a->ops->ended(a->bridge, &s->job->about, s->rank, s->code);
    news(a, 'E', s->job->about.id, s->rank, s->code, "");
    return 0;
}

static void *wait_rank(void *arg)
{
    struct started *s = arg;
    int status;

    while (waitpid(s->pid, &status, 0) < 0)
        continue;
    s->code = WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
    fbr_loop_call(s->agent->loop, ended_call, s);
    return NULL;
}

static uint32_t local_count(const struct job *j)
{
    return j->about.node < 0 ? 0 : j->first[j->about.node + 1] - j->first[j->about.node];
}

static void start_ranks(struct agent *a, struct job *j)
{
    for (uint32_t i = 0; i < local_count(j); i++) {
        struct started *s = &j->started[i];
        struct fbr_env env = {0};
        struct fbr_error err;
        posix_spawnattr_t attr;
        sigset_t none;
        int fd = -1;

        *s = (struct started){.agent = a, .job = j, .rank = j->local[i].rank};
        env = (struct fbr_env){0};
        fbr_env_copy(&env, j->env.list);
        fbr_env_set(&env, "OMPI_MCA_pml", "ob1");
        fbr_env_set(&env, "OMPI_MCA_mpi_yield_when_idle", "1");
        fbr_env_set(&env, "OMPI_MCA_btl_tcp_if_include", "lo");
        fbr_env_set(&env, "OMPI_MCA_btl_vader_backing_directory", "%s", j->about.dir);
        fbr_env_set(&env, "OMPI_MCA_btl_sm_backing_directory", "%s", j->about.dir);
        if (a->ops->rank(a->bridge, &j->about, s->rank, &env, &fd, &err) < 0) {
            fprintf(stderr, "rank: %s\n", err.text);
            exit(3);
        }
        sigemptyset(&none);
        posix_spawnattr_init(&attr);
        posix_spawnattr_setflags(&attr, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETPGROUP);
        posix_spawnattr_setsigmask(&attr, &none);
        if (posix_spawn(&s->pid, j->args[0], NULL, &attr, j->args, env.list) != 0)
            exit(3);
        posix_spawnattr_destroy(&attr);
        fbr_env_fini(&env);
        pthread_create(&s->waiter, NULL, wait_rank, s);
    }
}

static void register_job(struct agent *a, struct fbr_cur *c)
{
    uint32_t id = fbr_get_u32(c);
    struct job *j = &a->jobs[id];
    struct fbr_error err;

    j->about = (struct fbr_bridge_job){.id = id,
                                       .nspace = j->nspace,
                                       .first = j->first,
                                       .hosts = j->hosts,
                                       .node = -1,
                                       .agents = j->agents,
                                       .dir = j->dir,
                                       .local = j->local};
    j->about.size = fbr_get_u32(c);
    j->about.nodes = fbr_get_u32(c);
    fbr_get_str(c, j->nspace, sizeof(j->nspace));
    j->about.spawned = fbr_get_u8(c);
    j->about.parent = fbr_get_u32(c);
    j->about.parent_rank = fbr_get_u32(c);
    for (uint32_t k = 0; k < j->about.nodes; k++) {
        j->first[k] = (uint32_t)((uint64_t)j->about.size * k / j->about.nodes);
        j->agents[k] = k;
        j->hosts[k] = k == 0 ? "agent0" : "agent1";
        if (k == a->number)
            j->about.node = (int)k;
    }
    j->first[j->about.nodes] = j->about.size;
    for (uint32_t i = 0; i < local_count(j); i++)
        j->local[i] = (struct fbr_bridge_rank){.rank = j->first[j->about.node] + i,
                                               .cpus = i == 0 ? "0" : ""};
    for (int i = 0; i < 8 && fbr_cur_left(c); i++) {
        fbr_get_str(c, j->argv[i], sizeof(j->argv[i]));
        if (!j->argv[i][0])
            break;
        j->args[i] = j->argv[i];
    }
    j->env = (struct fbr_env){0};
    fbr_env_copy(&j->env, environ);
    while (fbr_cur_left(c) && fbr_cur_ok(c)) {
        char *pair = fbr_get_strdup(c, MINI_PACKET);

        fbr_env_put(&j->env, pair ? pair : "");
        free(pair);
    }
    snprintf(j->dir, sizeof(j->dir), "%s/job%u", a->dir, id);
    mkdir(j->dir, 0700);
    if (a->ops->job(a->bridge, &j->about, &err) < 0) {
        fprintf(stderr, "job: %s\n", err.text);
        exit(3);
    }
    news(a, 'R', id, 0, 0, "");
}

static void kill_ranks(struct agent *a, int signo)
{
    for (int k = 0; k < MINI_JOBS; k++) {
        for (int i = 0; i < MINI_RANKS; i++) {
            if (a->jobs[k].started[i].pid > 0)
                kill(a->jobs[k].started[i].pid, signo);
        }
    }
}

static int handle(void *arg)
{
    struct agent *a = arg;
    struct fbr_cur *c = &a->packet;
    uint8_t type = fbr_get_u8(c);
    uint32_t n = fbr_get_u32(c);

    if (type == 'r') {
        int code = (int)fbr_get_u32(c);
        size_t left = fbr_cur_left(c);

        a->wanted[n].done(a->wanted[n].arg, code, fbr_get(c, left), left);
    } else if (type == 'T') {
        a->ops->message(a->bridge, n, c);
    } else if (type == 'J') {
        c->at -= 4;
        register_job(a, c);
    } else if (type == 'B') {
        start_ranks(a, &a->jobs[n]);
        news(a, 'O', n, 0, 0, "");
    } else if (type == 'X') {
        uint32_t rank = fbr_get_u32(c);

        a->ops->lost(a->bridge, &a->jobs[n].about, rank, (int)fbr_get_u32(c));
    } else if (type == 'K') {
        kill_ranks(a, SIGKILL);
    } else if (type == 'Q') {
        a->quit = true;
    }
    return 0;
}

static int open_call(void *arg)
{
    struct agent *a = arg;
    struct fbr_error err;

    a->ops = fbr_module(a->module, &err);
    if (!a->ops || a->ops->open(&a->bridge, &a->host, &err) < 0) {
        fprintf(stderr, "open: %s\n", err.text);
        return 3;
    }
    return 0;
}

static int close_call(void *arg)
{
    struct agent *a = arg;

    for (int k = 0; k < MINI_JOBS; k++) {
        if (a->jobs[k].nspace[0])
            a->ops->job_end(a->bridge, &a->jobs[k].about);
        fbr_env_fini(&a->jobs[k].env);
    }
    a->ops->close(a->bridge);
    return 0;
}

/* The socket is descriptor 3. */
int mini_agent_main(char **argv, const char *module)
{
    static struct agent a;
    static char packet[MINI_PACKET];
    ssize_t n;

    prctl(PR_SET_PDEATHSIG, SIGKILL);
    fcntl(3, F_SETFD, FD_CLOEXEC);
    a.fd = 3;
    a.module = module;
    a.number = (uint32_t)atoi(argv[2]);
    snprintf(a.dir, sizeof(a.dir), "%s", argv[3]);
    snprintf(a.hostname, sizeof(a.hostname), "agent%u", a.number);
    a.host = (struct fbr_bridge_host){.agent = a.number,
                                      .hostname = a.hostname,
                                      .dir = a.dir,
                                      .topology = "",
                                      .user = &a,
                                      .post = host_post,
                                      .fence = host_fence,
                                      .notify = host_notify,
                                      .publish = host_publish,
                                      .lookup = host_lookup,
                                      .unpublish = host_unpublish,
                                      .spawn = host_spawn,
                                      .met = host_met,
                                      .left = host_left,
                                      .abort = host_abort,
                                      .print = host_print};
    if (fbr_loop_open(&a.loop, NULL) < 0)
        return 3;
    a.host.loop = a.loop;
    if (fbr_loop_call(a.loop, open_call, &a) != 0)
        return 3;
    while (!a.quit && (n = recv(3, packet, sizeof(packet), 0)) > 0) {
        a.packet = fbr_cur(packet, (size_t)n);
        fbr_loop_call(a.loop, handle, &a);
    }
    kill_ranks(&a, SIGKILL);
    for (int k = 0; k < MINI_JOBS; k++) {
        for (int i = 0; i < MINI_RANKS; i++) {
            if (a.jobs[k].started[i].agent)
                pthread_join(a.jobs[k].started[i].waiter, NULL);
        }
    }
    fbr_loop_call(a.loop, close_call, &a);
    fbr_loop_close(a.loop);
    return 0;
}
