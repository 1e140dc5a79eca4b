/* pmi1.c - the bridge of PMI-1 and PMI-2: for MPICH, its descendants, and users of Slurm's libpmi2.
 *
 * A rank gets a connected socket as descriptor 3, and PMI_FD=3. If another program runs before the
 * MPI program (a wrapper that closes descriptors, a container in the rank's place), the user can
 * ask for PMI_PORT instead, with FIBER_PMI=port in the rank's environment: an address on the
 * loopback, and PMI_ID to name the rank. A rank does not get both: MPICH takes PMI_FD if it is
 * there, so the port would only be one more thing to reach. pmi1_engine.c and pmi2_engine.c have
 * the protocols.
 *
 * Barriers use host->fence with the key "pmi1:<nspace>". The initial store of a spawned job travels
 * in the environment of its ranks, as FIBER_PMI_PREPUT, which is removed before the ranks start.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <utlist.h>

#include "mpi_bridge/bridge.h"
#include "mpi_bridge/loopback.h"
#include "mpi_bridge/pmi1_engine.h"
#include "runtime/base/log.h"

#define PREPUT "FIBER_PMI_PREPUT"

struct job;

/* A connection of a rank. */
struct client {
    struct job *job;
    struct fbr_lo_link *link;
    struct fbr_pmi1_conn *conn; /* NULL: the engine has hung up */
    struct client *prev, *next;
};

struct job {
    struct fbr_bridge *bridge;
    const struct fbr_bridge_job *job;
    struct fbr_pmi1 *engine;          /* NULL: the job has no rank here */
    struct fbr_lo_listener *listener; /* NULL until a rank asks for it */
    struct client *clients;
    struct job *prev, *next;
};

/* A request to the host that is not answered yet. */
struct ask {
    struct fbr_bridge *bridge;
    uint32_t job, rank;
    struct ask *prev, *next;
};

struct fbr_bridge {
    const struct fbr_bridge_host *host;
    struct job *jobs;
    struct ask *asks;
};

static struct job *job_find(struct fbr_bridge *b, uint32_t id)
{
    struct job *j;

    DL_FOREACH(b->jobs, j)
        if (j->job->id == id)
            return j;
    return NULL;
}

/* ---- connections ---- */

static void client_free(struct client *c)
{
    DL_DELETE(c->job->clients, c);
    if (c->conn)
        fbr_pmi1_detach(c->conn);
    fbr_lo_link_close(c->link);
    free(c);
}

static void on_bytes(void *user, const void *data, size_t len)
{
    struct client *c = user;

    if (c->conn)
        fbr_pmi1_bytes(c->conn, data, len);
}

static void on_gone(void *user)
{
    client_free(user);
}

static const struct fbr_lo_link_ops link_ops = {on_bytes, on_gone};

/* Takes over the link. */
static int client_add(struct job *j, struct fbr_lo_link *link, int64_t rank)
{
    struct client *c = calloc(1, sizeof(*c));

    if (c)
        c->conn = fbr_pmi1_attach(j->engine, c, rank);
    if (!c || !c->conn) {
        free(c);
        fbr_lo_link_close(link);
        return -ENOMEM;
    }
    c->job = j;
    c->link = link;
    DL_APPEND(j->clients, c);
    fbr_lo_link_start(link, &link_ops, c);
    return 0;
}

static void on_accepted(void *user, struct fbr_lo_link *link)
{
    client_add(user, link, -1);
}

/* ---- calls of the engine ---- */

static void engine_send(void *user, void *link, const void *data, size_t len)
{
    struct client *c = link;

    fbr_lo_link_send(c->link, data, len);
}

static void engine_hang_up(void *user, void *link, const char *why)
{
    struct job *j = user;
    struct client *c = link;

    fbr_warn("PMI-1: closed the connection of a process of job %.16s...: %s", j->job->nspace, why);
    c->conn = NULL;
    fbr_lo_link_finish(c->link);
}

static void engine_met(void *user, uint32_t rank, const char *how)
{
    struct job *j = user;
    const struct fbr_bridge_host *host = j->bridge->host;

    host->met(host->user, j->job->id, rank, how);
}

static void engine_left(void *user, uint32_t rank)
{
    struct job *j = user;
    const struct fbr_bridge_host *host = j->bridge->host;

    host->left(host->user, j->job->id, rank);
}

static void engine_abort(void *user, uint32_t rank, int code, const char *text)
{
    struct job *j = user;
    const struct fbr_bridge_host *host = j->bridge->host;

    host->abort(host->user, j->job->id, rank, code, text);
}

/* ---- requests to the host ---- */

static struct ask *ask_new(struct job *j, uint32_t rank)
{
    struct ask *a = malloc(sizeof(*a));

    if (!a)
        return NULL;
    *a = (struct ask){.bridge = j->bridge, .job = j->job->id, .rank = rank};
    DL_APPEND(j->bridge->asks, a);
    return a;
}

static void ask_free(struct ask *a)
{
    DL_DELETE(a->bridge->asks, a);
    free(a);
}

/* Returns `rc`; frees the request if the host refused it. */
static int asked(struct ask *a, int rc)
{
    if (rc < 0)
        ask_free(a);
    return rc;
}

static void on_fenced(void *arg, int code, const void *data, size_t len)
{
    struct ask *a = arg;
    struct job *j = job_find(a->bridge, a->job);

    ask_free(a);
    if (j)
        fbr_pmi1_fenced(j->engine, code, data, len);
}

static int engine_fence(void *user, const void *puts, size_t len)
{
    struct job *j = user;
    const struct fbr_bridge_host *host = j->bridge->host;
    struct ask *a = ask_new(j, 0);
    char key[FBR_PMI1_NAME_MAX + 8];
    int n = snprintf(key, sizeof(key), "pmi1:%s", j->job->nspace);

    if (!a)
        return -ENOMEM;
    return asked(a, host->fence(host->user, key, (size_t)n, j->job->agents, j->job->nodes, puts,
                                len, on_fenced, a));
}

static void on_done(void *arg, int code, const void *data, size_t len)
{
    struct ask *a = arg;
    struct job *j = job_find(a->bridge, a->job);
    uint32_t rank = a->rank;

    ask_free(a);
    if (j)
        fbr_pmi1_answer(j->engine, rank, code, NULL);
}

static void on_found(void *arg, int code, const void *data, size_t len)
{
    struct ask *a = arg;
    struct job *j = job_find(a->bridge, a->job);
    struct fbr_cur c = fbr_cur(data, code < 0 ? 0 : len);
    char port[FBR_PMI1_VALUE_MAX] = "";
    uint32_t rank = a->rank;

    ask_free(a);
    fbr_get_u32(&c);
    fbr_get_u32(&c);
    if (code >= 0 && (!fbr_cur_ok(&c) || fbr_cur_left(&c) >= sizeof(port)))
        code = -EPROTO;
    else if (code >= 0)
        memcpy(port, c.at, fbr_cur_left(&c));
    if (j)
        fbr_pmi1_answer(j->engine, rank, code, port);
}

static int engine_name(void *user, uint32_t rank, enum fbr_pmi1_wait what, const char *name,
                       const char *port)
{
    struct job *j = user;
    const struct fbr_bridge_host *host = j->bridge->host;
    struct ask *a = ask_new(j, rank);
    char key[FBR_PMI1_VALUE_MAX + 8];
    uint32_t job = j->job->id;

    if (!a)
        return -ENOMEM;
    snprintf(key, sizeof(key), "pmi1:%s", name); /* apart from names of other bridges */
    if (what == FBR_PMI1_LOOKUP)
        return asked(a, host->lookup(host->user, key, 0, on_found, a));
    if (what == FBR_PMI1_UNPUBLISH)
        return asked(a, host->unpublish(host->user, job, rank, key, on_done, a));
    return asked(a, host->publish(host->user, job, rank, key, port, strlen(port), on_done, a));
}

/* The bridge knows the new job by now. */
static void on_spawned(void *arg, int code, const void *data, size_t len)
{
    struct ask *a = arg;
    struct job *j = job_find(a->bridge, a->job), *child;
    struct fbr_cur c = fbr_cur(data, code < 0 ? 0 : len);
    uint32_t rank = a->rank;

    child = job_find(a->bridge, fbr_get_u32(&c));
    ask_free(a);
    if (j)
        fbr_pmi1_answer(j->engine, rank, code, fbr_cur_ok(&c) && child ? child->job->nspace : NULL);
}

static int engine_spawn(void *user, uint32_t rank, const struct fbr_bridge_app *apps, size_t napps,
                        const char *preput)
{
    struct job *j = user;
    const struct fbr_bridge_host *host = j->bridge->host;
    struct fbr_bridge_app *with = calloc(napps, sizeof(*with));
    struct ask *a = with ? ask_new(j, rank) : NULL;
    struct fbr_bridge_spawn spawn = {j->job->id, rank, with, napps};
    const char *env[2] = {NULL, NULL};
    char *variable = NULL;
    int rc = -ENOMEM;

    if (a && asprintf(&variable, PREPUT "=%s", preput) >= 0) {
        env[0] = variable;
        for (size_t i = 0; i < napps; i++) {
            with[i] = apps[i];
            with[i].env = env;
        }
        rc = host->spawn(host->user, &spawn, on_spawned, a);
        free(variable);
    }
    if (a && rc < 0)
        ask_free(a);
    free(with);
    return rc;
}

static const struct fbr_pmi1_ops engine_ops = {
    .send = engine_send,
    .hang_up = engine_hang_up,
    .met = engine_met,
    .left = engine_left,
    .abort = engine_abort,
    .fence = engine_fence,
    .name = engine_name,
    .spawn = engine_spawn,
};

/* ---- the table ---- */

static int pmi1_open(struct fbr_bridge **out, const struct fbr_bridge_host *host,
                     struct fbr_error *err)
{
    struct fbr_bridge *b = calloc(1, sizeof(*b));

    if (!b)
        return fbr_fail(err, -ENOMEM, "PMI-1: out of memory");
    b->host = host;
    *out = b;
    return 0;
}

static void job_free(struct job *j)
{
    DL_DELETE(j->bridge->jobs, j);
    while (j->clients)
        client_free(j->clients);
    fbr_lo_listener_close(j->listener);
    fbr_pmi1_close(j->engine);
    free(j);
}

static int engine_open(struct job *j)
{
    const struct fbr_bridge_job *job = j->job;
    const struct job *parent = job->spawned ? job_find(j->bridge, job->parent) : NULL;
    struct fbr_pmi1_config config = {.nspace = job->nspace,
                                     .size = job->size,
                                     .first = job->first[job->node],
                                     .count = fbr_bridge_local(job),
                                     .alone = job->nodes == 1,
                                     .local = job->local};
    char mapping[FBR_PMI1_VALUE_MAX];

    if (job->spawned)
        config.parent = parent ? parent->job->nspace : "unknown";
    j->engine = fbr_pmi1_open(&engine_ops, j, &config);
    if (!j->engine)
        return -ENOMEM;
    fbr_pmi1_mapping(mapping, job->first, job->nodes);
    return fbr_pmi1_set(j->engine, "PMI_process_mapping", mapping);
}

static int pmi1_job(struct fbr_bridge *b, const struct fbr_bridge_job *job, struct fbr_error *err)
{
    struct job *j = calloc(1, sizeof(*j));

    if (!j)
        return fbr_fail(err, -ENOMEM, "PMI-1: out of memory");
    j->bridge = b;
    j->job = job;
    DL_APPEND(b->jobs, j);
    if (job->node < 0 || engine_open(j) == 0)
        return 0;
    job_free(j);
    return fbr_fail(err, -ENOMEM, "PMI-1: out of memory");
}

static int pass_fd(struct job *j, uint32_t rank, struct fbr_env *env, int *fd,
                   struct fbr_error *err)
{
    struct fbr_lo_link *link;
    int sv[2], rc;

    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sv) < 0)
        return fbr_fail(err, -errno, "PMI-1: cannot make a socket for rank %u: %s", rank,
                        fbr_strerror(errno));
    if ((rc = fbr_lo_link_open(&link, j->bridge->host->loop, sv[0])) < 0 ||
        (rc = client_add(j, link, rank)) < 0) {
        close(sv[1]);
        return fbr_fail(err, rc, "PMI-1: cannot make a connection for rank %u: %s", rank,
                        fbr_strerror(rc));
    }
    *fd = sv[1];
    fbr_env_set(env, "PMI_FD", "%d", FBR_BRIDGE_FD);
    fbr_env_set(env, "PMI_RANK", "%u", rank);
    fbr_env_set(env, "PMI_SIZE", "%u", j->job->size);
    return 0;
}

static int pass_port(struct job *j, uint32_t rank, struct fbr_env *env, struct fbr_error *err)
{
    const struct fbr_bridge_host *host = j->bridge->host;

    if (!j->listener && fbr_lo_listener_open(&j->listener, host->loop, on_accepted, j, err) < 0)
        return fbr_wrap(err, "PMI-1");
    fbr_env_set(env, "PMI_PORT", "127.0.0.1:%u", fbr_lo_listener_port(j->listener));
    fbr_env_set(env, "PMI_ID", "%u", rank);
    return 0;
}

static int pmi1_rank(struct fbr_bridge *b, const struct fbr_bridge_job *job, uint32_t rank,
                     struct fbr_env *env, int *fd, struct fbr_error *err)
{
    struct job *j = job_find(b, job->id);
    const char *preput = fbr_env_get(env, PREPUT), *how = fbr_env_get(env, "FIBER_PMI");
    int rc;

    if (preput && fbr_pmi1_preput(j->engine, preput) < 0)
        return fbr_fail(err, -EINVAL,
                        "PMI-1: cannot read the data that the parent job stored for this one");
    fbr_env_drop(env, (const char *const[]){PREPUT "=", NULL});
    if (how && strcmp(how, "port") != 0 && strcmp(how, "fd") != 0)
        return fbr_fail(err, -EINVAL,
                        "FIBER_PMI is \"%.32s\"; use \"fd\" (the default) or \"port\"", how);
    rc = how && *how == 'p' ? pass_port(j, rank, env, err) : pass_fd(j, rank, env, fd, err);
    if (rc < 0)
        return rc;
    /* MPICH 5 looks for the version itself, and gives up if it finds PMI's variables and PMIx's. */
    fbr_env_default(env, "MPIR_CVAR_PMI_VERSION", "1");
    if (job->spawned)
        fbr_env_set(env, "PMI_SPAWNED", "1");
    return 0;
}

/* Reads the messages that the rank sent before its end. */
static void pmi1_ended(struct fbr_bridge *b, const struct fbr_bridge_job *job, uint32_t rank,
                       int code)
{
    struct job *j = job_find(b, job->id);
    struct client *c, *next;

    (void)rank; /* only the engine knows which connections are the rank's */
    if (j)
        DL_FOREACH_SAFE(j->clients, c, next)
            if (c->conn)
                fbr_lo_link_read(c->link);
}

/* PMI cannot shrink a job: ranks that wait for all get an error. */
static void pmi1_lost(struct fbr_bridge *b, const struct fbr_bridge_job *job, uint32_t rank,
                      int code)
{
    struct job *j = job_find(b, job->id);

    if (j && j->engine)
        fbr_pmi1_lost(j->engine);
}

static void pmi1_job_end(struct fbr_bridge *b, const struct fbr_bridge_job *job)
{
    struct job *j = job_find(b, job->id);

    if (j) /* it may have been too much for pmi1_job() */
        job_free(j);
}

static void pmi1_close(struct fbr_bridge *b)
{
    while (b->asks)
        ask_free(b->asks);
    while (b->jobs)
        job_free(b->jobs);
    free(b);
}

const struct fbr_bridge_ops fbr_bridge_pmi1 = {
    .name = "pmi1",
    .open = pmi1_open,
    .job = pmi1_job,
    .rank = pmi1_rank,
    .ended = pmi1_ended,
    .lost = pmi1_lost,
    .job_end = pmi1_job_end,
    .close = pmi1_close,
    .met_as = "PMI ",
    .no_rejoin =
        "PMI (MPICH) admits no new process in place of a known one, so this run cannot replace the "
        "rank. Use --on-failure restart to start all ranks again.",
    .spawns_any = true,
    .abort_said = "Error in spawn call",
    .abort_advice =
        "MPICH built with UCX, such as Debian's, cannot spawn: use Open MPI, or MPICH built with "
        "OFI (ch4:ofi).",
};
