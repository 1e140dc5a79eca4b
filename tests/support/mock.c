/* mock.c - a backend with faults to order: local jobs, spoilt on the way. Linked with each unit test and with the
 * command of tests/mock; the library has a place for it in its list (backends/backends.c).
 *
 * A job orders its fault by the variable FIBER_MOCK in its environment (fiber_jobspec.env):
 *
 *     start_fails      start() answers an error
 *     fails_later      the engine takes the job, then says that it failed: EXITED 1 with a reason
 *     never_joins      sleep(1) runs in its place, and says nothing ever
 *     slow_start=MS    PENDING with a reason, and the real start after MS
 *     dies_after=MS    killed by the engine after MS
 *     freezes_after=MS stopped (SIGSTOP) after MS, and stays so
 *     exit_unknown     the engine knows that it ended, not how
 *     mute             the engine never tells of its end
 *     late_word        the engine tells of its end, and why, when it is asked to kill it
 *     evicted          when it ends, the engine says that it has taken it away
 *     unreachable      no signal reaches it, as on a host that is cut off
 *
 * A backend does not see tasks, so there is no death after so many of them to order here: the task
 * functions of tests/pool/storm_test.c and tests/system/chaos_test.c count, and kill their worker.
 *
 * NAME: before an order restricts it to the job of that name: "agent-2:slow_start=500". A job obeys
 * the last order for it in a list: "start_fails;worker-1:slow_start=500".
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <utlist.h>

#include "backends/tool/kept_job.h"
#include "runtime/proc/backend.h"
#include "tests/support/mock.h"

extern const struct fbr_backend_ops fbr_backend_local;
extern const struct fbr_backend_ops fbr_backend_mock;

const char fbr_backend_words[] = "auto local docker kubernetes slurm command mock";

enum fault {
    NONE,
    START_FAILS,
    FAILS_LATER,
    NEVER_JOINS,
    SLOW_START,
    DIES_AFTER,
    FREEZES_AFTER,
    EXIT_UNKNOWN,
    MUTE,
    LATE_WORD,
    EVICTED,
    UNREACHABLE
};

static const struct {
    const char *name;
    enum fault fault;
} faults[] = {
    {"start_fails", START_FAILS},   {"fails_later", FAILS_LATER},
    {"never_joins", NEVER_JOINS},   {"slow_start=", SLOW_START},
    {"dies_after=", DIES_AFTER},    {"freezes_after=", FREEZES_AFTER},
    {"exit_unknown", EXIT_UNKNOWN}, {"mute", MUTE},
    {"late_word", LATE_WORD},       {"evicted", EVICTED},
    {"unreachable", UNREACHABLE},
};

struct mock_job {
    struct mock_job *next, *prev;
    struct fbr_backend *b;
    void *user, *inner;
    enum fault fault;
    int ms;
    bool ended;   /* EXITED was told, or swallowed */
    int32_t code; /* with which */
    struct fbr_timer timer;
    struct fbr_job *job; /* slow_start: kept until then */
};

struct fbr_backend {
    struct fbr_backend_env env;
    struct fbr_backend *local;
    struct mock_job *jobs;
};

static void order_one(struct mock_job *j, const char *name, const char *text)
{
    size_t n = strcspn(text, ":;");

    if (text[n] == ':') {
        if (strncmp(text, name, strlen(name)) != 0)
            return;
        text += n + 1;
    }
    for (size_t i = 0; i < sizeof(faults) / sizeof(faults[0]); i++)
        if (strncmp(text, faults[i].name, strlen(faults[i].name)) == 0) {
            j->fault = faults[i].fault;
            j->ms = atoi(text + strlen(faults[i].name));
        }
}

static void order(struct mock_job *j, const struct fbr_job *job)
{
    for (char *const *env = job->env; *env; env++) {
        const char *text = *env + 11;

        if (strncmp(*env, "FIBER_MOCK=", 11) != 0)
            continue;
        order_one(j, job->name, text);
        while ((text = strchr(text, ';')))
            order_one(j, job->name, ++text);
    }
}

static void on_event(void *user, const struct fbr_job_event *e)
{
    struct mock_job *j = user;
    struct fbr_job_event copy = *e;

    if (e->type == FBR_JOB_EXITED) {
        j->ended = true;
        fbr_timer_stop(&j->timer);
        j->code = e->code;
        if (j->fault == MUTE || j->fault == LATE_WORD)
            return;
        if (j->fault == EXIT_UNKNOWN)
            copy.code = FBR_EXIT_UNKNOWN;
        copy.disrupted = j->fault == EVICTED;
    }
    j->b->env.event(j->user, &copy);
}

static int mock_open(struct fbr_backend **out, const struct fbr_backend_env *env,
                     struct fbr_error *err)
{
    struct fbr_backend *b = calloc(1, sizeof(*b));
    const struct fbr_backend_env inner = {env->loop, env->config, on_event, NULL};
    int rc;

    if (!b)
        return fbr_fail(err, -ENOMEM, "out of memory");
    b->env = *env;
    rc = fbr_backend_local.open(&b->local, &inner, err);
    if (rc < 0)
        free(b);
    else
        *out = b;
    return rc;
}

static void free_job(struct mock_job *j)
{
    fbr_timer_fini(&j->timer);
    fbr_kept_job_free(j->job);
    free(j);
}

static void mock_close(struct fbr_backend *b)
{
    fbr_backend_local.close(b->local);
    while (b->jobs) {
        struct mock_job *j = b->jobs;

        DL_DELETE(b->jobs, j);
        free_job(j);
    }
    free(b);
}

static void notify_exit(struct mock_job *j, int32_t code, const char *text)
{
    j->ended = true;
    j->b->env.event(j->user,
                    &(struct fbr_job_event){.type = FBR_JOB_EXITED, .code = code, .text = text});
}

static void on_time(void *arg)
{
    struct mock_job *j = arg;
    struct fbr_error err;

    switch (j->fault) {
    case SLOW_START:
        if (fbr_backend_local.start(j->b->local, j->job, j, &j->inner, &err) < 0)
            notify_exit(j, 125, err.text);
        break;
    case FAILS_LATER:
        notify_exit(j, 1, "the mock engine failed it, as ordered");
        break;
    case DIES_AFTER:
        fbr_backend_local.signal(j->b->local, j->inner, SIGKILL);
        break;
    case FREEZES_AFTER:
        fbr_backend_local.signal(j->b->local, j->inner, SIGSTOP);
        break;
    default:
        break;
    }
}

/* A program that knows nothing of Fiber. One that is stopped may have joined before that. */
static int start_stranger(struct mock_job *j, const struct fbr_job *job, struct fbr_error *err)
{
    struct fbr_job stranger = *job;

    stranger.file = "/bin/sleep";
    stranger.argv = (char *[]){"sleep", "infinity", NULL};
    return fbr_backend_local.start(j->b->local, &stranger, j, &j->inner, err);
}

static int mock_start(struct fbr_backend *b, const struct fbr_job *job, void *user, void **handle,
                      struct fbr_error *err)
{
    struct mock_job *j = calloc(1, sizeof(*j));
    int rc = 0;

    if (!j || fbr_timer_init(&j->timer, b->env.loop, on_time, j) < 0) {
        free(j);
        return fbr_fail(err, -ENOMEM, "out of memory");
    }
    j->b = b;
    j->user = user;
    order(j, job);
    if (j->fault == START_FAILS)
        rc = fbr_fail(err, -EIO, "the mock engine refuses the job, as ordered");
    else if (j->fault == SLOW_START)
        rc = (j->job = fbr_kept_job(job)) ? 0 : fbr_fail(err, -ENOMEM, "out of memory");
    else if (j->fault == NEVER_JOINS)
        rc = start_stranger(j, job, err);
    else if (j->fault != FAILS_LATER)
        rc = fbr_backend_local.start(b->local, job, j, &j->inner, err);
    if (rc < 0) {
        free_job(j);
        return rc;
    }
    DL_APPEND(b->jobs, j);
    *handle = j;
    if (j->fault == SLOW_START)
        b->env.event(user, &(struct fbr_job_event){.type = FBR_JOB_PENDING,
                                                   .text = "the mock engine takes its time"});
    if (j->fault == SLOW_START || j->fault == DIES_AFTER || j->fault == FREEZES_AFTER ||
        j->fault == FAILS_LATER)
        fbr_timer_start(&j->timer, (uint64_t)j->ms, 0);
    return 0;
}

static int mock_signal(struct fbr_backend *b, void *handle, int sig)
{
    struct mock_job *j = handle;

    if (j->fault == LATE_WORD && j->ended) {
        notify_exit(j, j->code, "had gone beyond its time in the mock engine, as ordered");
        return 0;
    }
    if (j->fault == UNREACHABLE)
        return 0;
    if (j->inner)
        return fbr_backend_local.signal(b->local, j->inner, sig);
    fbr_timer_stop(&j->timer); /* it has not started: now it never will */
    if (!j->ended)
        notify_exit(j, -sig, "");
    return 0;
}

static void mock_pause_output(struct fbr_backend *b, void *handle, int paused)
{
    struct mock_job *j = handle;

    if (j->inner)
        fbr_backend_local.pause_output(b->local, j->inner, paused);
}

static void mock_release(struct fbr_backend *b, void *handle)
{
    struct mock_job *j = handle;

    if (j->inner)
        fbr_backend_local.release(b->local, j->inner);
    DL_DELETE(b->jobs, j);
    free_job(j);
}

/* ---- What outlives its master: as mock_engine has it ---- */

struct mock_engine mock_engine;

static int mock_list(struct fbr_backend *b, fbr_backend_found *found, void *user,
                     struct fbr_error *err)
{
    if (mock_engine.silent)
        return fbr_fail(err, -ECONNREFUSED, "the mock engine does not answer, as ordered");
    for (size_t i = 0; i < mock_engine.njobs; i++)
        found(user, &mock_engine.jobs[i]);
    return 0;
}

static int mock_remove(struct fbr_backend *b, const char *id, struct fbr_error *err)
{
    char *removed = mock_engine.removed;
    size_t n = strlen(removed);

    if (mock_engine.stuck && !strcmp(mock_engine.stuck, id))
        return fbr_fail(err, -EBUSY, "the mock engine keeps %s, as ordered", id);
    snprintf(removed + n, sizeof(mock_engine.removed) - n, "%s%s", n ? " " : "", id);
    return 0;
}

static int mock_sweep(struct fbr_backend *b, int64_t before_ms, int dry, fbr_backend_swept *swept,
                      void *user, struct fbr_error *err)
{
    mock_engine.before_ms = before_ms;
    mock_engine.dry = dry;
    for (size_t i = 0; i < mock_engine.nthings; i++)
        swept(user, &mock_engine.things[i]);
    return 0;
}

static int mock_logs(struct fbr_backend *b, const char *id, int follow,
                     const struct fbr_backend_reader *reader, struct fbr_error *err)
{
    for (size_t i = 0; i < mock_engine.npieces; i++) {
        const struct mock_piece *p = &mock_engine.pieces[i];

        if (strcmp(p->id, id) != 0)
            continue;
        if (!p->stream)
            return fbr_fail(err, -EIO, "%s", p->text);
        if (!p->follow || follow)
            reader->out(reader->user, p->stream, p->text, strlen(p->text));
    }
    reader->done(reader->user,
                 mock_engine.stuck && !strcmp(mock_engine.stuck, id) ? "the engine went away" : "");
    return 0;
}

static const struct fbr_backend_housekeeping housekeeping = {
    .list = mock_list, .remove = mock_remove, .sweep = mock_sweep, .logs = mock_logs};

const struct fbr_backend_ops fbr_backend_mock = {
    .name = "mock",
    .reach = FBR_REACH_HOST,
    .open = mock_open,
    .close = mock_close,
    .start = mock_start,
    .signal = mock_signal,
    .pause_output = mock_pause_output,
    .release = mock_release,
    .housekeeping = &housekeeping,
};
