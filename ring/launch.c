/* launch.c - agents and jobs in the launcher: their start, their frames, their end.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>

#include "runtime/base/fds.h"
#include "runtime/inspect/run_control.h"
#include "ring/apps.h"
#include "ring/collective.h"
#include "ring/ring_priv.h"
#include "runtime/base/log.h"
#include "runtime/base/random.h"

/* Bytes of output that an agent may send without new credit. The agent stops reading from its
 * ranks after FBR_RING_WINDOW bytes, and may have read one block of each rank by then. */
#define UNPAID_MAX (4ull * FBR_RING_WINDOW)
#define UNPAID_RANK (4ull * FBR_LOOP_SCRATCH)
#define START_WAIT_MS 1000 /* after agents that could not be started; doubled each time */

/* ---- Frames to agents ---- */

/* Ends an agent that did not get a frame: it, or a rank, may wait for that frame for ever. After
 * other errors its connection breaks. */
static void check_sent(struct ring_agent *a, uint8_t type, int rc)
{
    char why[100];

    if (rc != -ENOMEM && rc != -EMSGSIZE)
        return;
    snprintf(why, sizeof(why), "the launcher could not send it frame %u: %s", type,
             fbr_strerror(rc));
    fbr_process_abandon(a->process, why);
}

void fbr_ring_send(struct ring_agent *a, uint8_t type, const struct fbr_buf *body)
{
    check_sent(a, type, a->process ? fbr_process_send(a->process, type, body) : -EPIPE);
}

void fbr_ring_answer(struct ring_agent *a, uint8_t type, const struct fbr_buf *body)
{
    check_sent(a, type, a->process ? fbr_process_answer(a->process, type, body) : -EPIPE);
}

void fbr_ring_send_all(struct fiber_ring *r, uint8_t type, const struct fbr_buf *body)
{
    for (uint32_t i = 0; i < r->nagents; i++)
        fbr_ring_send(&r->agents[i], type, body);
}

/* ---- Jobs ---- */

const char *fbr_ring_host_of(const struct ring_job *j, uint32_t rank)
{
    return j->job.info.hosts[fbr_bridge_node_of(&j->job.info, rank)];
}

struct ring_agent *fbr_ring_agent_of(const struct ring_job *j, uint32_t rank)
{
    return &j->ring->agents[j->job.info.agents[fbr_bridge_node_of(&j->job.info, rank)]];
}

struct ring_ranks fbr_ring_ranks_of(const struct ring_job *j, const struct ring_agent *a)
{
    const struct fbr_bridge_job *i = &j->job.info;
    uint32_t k = 0;

    while (k < i->nodes && i->agents[k] != a->number)
        k++;
    return k < i->nodes ? (struct ring_ranks){i->first[k], i->first[k + 1]}
                        : (struct ring_ranks){0, 0};
}

struct ring_job *fbr_ring_job_find(struct fiber_ring *r, uint32_t id)
{
    struct ring_job *j;

    DL_FOREACH(r->jobs, j)
        if (j->job.info.id == id)
            break;
    return j;
}

struct ring_job *fbr_ring_newest(struct fiber_ring *r)
{
    struct ring_job *j, *found = NULL;

    DL_FOREACH(r->jobs, j)
        if (!j->job.info.spawned)
            found = j;
    return found;
}

void fbr_ring_free_job(struct ring_job *j)
{
    for (uint32_t i = 0; j->ranks && i < j->job.info.size; i++) {
        for (int k = 0; k < 2; k++) {
            fbr_line_fini(&j->ranks[i].out[k], fbr_output_screen(j->ring->rt->output, k + 1));
            fbr_fds_close(j->ranks[i].files[k]);
        }
    }
    free(j->ranks);
    if (!j->job.info.spawned) { /* they are the ring's */
        j->job.programs = NULL;
        j->job.work = NULL;
    }
    fbr_ring_job_fini(&j->job);
    free(j);
}

/* Makes a name that cannot be guessed: the name is the only secret that a PMIx server asks of a
 * caller on the loopback. */
static char *new_nspace(void)
{
    char id[33], *name;

    return fbr_random_id(id) == 0 && asprintf(&name, "fiber-%s", id) >= 0 ? name : NULL;
}

/* An agent that has not said hello yet gets the job when it does. */
static void send_job(struct fiber_ring *r, const struct ring_job *j)
{
    struct fbr_buf b = {0};

    fbr_ring_job_put(&j->job, &b);
    for (uint32_t i = 0; i < r->nagents; i++)
        if (r->agents[i].state == AGENT_READY)
            fbr_ring_send(&r->agents[i], FBR_RING_JOB, &b);
    fbr_buf_fini(&b);
}

int fbr_ring_job_start(struct fiber_ring *r, uint32_t size, struct fbr_app *programs, uint32_t n,
                       const struct ring_job *parent, uint32_t parent_rank, struct ring_job **out,
                       struct fbr_error *err)
{
    struct ring_job *j = calloc(1, sizeof(*j));
    struct fbr_bridge_job *i;
    int rc;

    if (!j)
        return fbr_fail(err, -ENOMEM, "out of memory");
    i = &j->job.info;
    j->ring = r;
    i->id = r->next_job++;
    i->size = size;
    i->epoch = r->epoch;
    i->max_restarts = r->max_restarts;
    i->run = strdup(r->about.uid);
    i->nspace = new_nspace();
    if (parent) {
        i->spawned = true;
        i->parent = parent->job.info.id;
        i->parent_rank = parent_rank;
    }
    j->ranks = calloc(size, sizeof(*j->ranks));
    rc = j->ranks && i->run && i->nspace ? fbr_ring_assign(r, j, parent != NULL, err)
                                         : fbr_fail(err, -ENOMEM, "out of memory");
    for (uint32_t k = 0; j->ranks && k < size; k++)
        fbr_rank_output_begin(&j->ranks[k]);
    if (rc < 0) {
        fbr_ring_free_job(j);
        return rc;
    }
    j->job.programs = programs;
    j->job.nprograms = n;
    j->job.has_stdin = !parent && (r->options.flags & FIBER_RING_STDIN);
    if (!parent) {
        snprintf(j->job.last_failure, sizeof(j->job.last_failure), "%s", r->last_failure);
        j->job.work = r->work;
        j->job.work_len = r->work_len;
    }
    fbr_ring_terminal_job(j);
    fbr_rank_output_job(j);
    DL_APPEND(r->jobs, j);
    *out = j;
    for (uint32_t k = 0; k < i->nodes; k++)
        fbr_ring_requests_idle(&r->agents[i->agents[k]], false);
    send_job(r, j);
    return 0;
}

static void start_first_job(struct fiber_ring *r)
{
    uint32_t n = (uint32_t)fbr_ring_apps_count(&r->options);
    struct fbr_error err = {0, ""};
    struct ring_job *j;

    fbr_timer_stop(&r->gang);
    r->failed_starts = 0;
    if ((r->options.flags & (FIBER_RING_STDIN | FIBER_RING_PTY)) && !r->input &&
        fbr_ring_stdin_open(r, &err) < 0) {
        fbr_ring_print(r, "%s; no rank gets input", err.text);
        r->options.flags &= ~(FIBER_RING_STDIN | FIBER_RING_PTY); /* their input is at its end */
    }
    if (fbr_ring_job_start(r, r->size, r->programs, n, NULL, 0, &j, &err) < 0) {
        fbr_ring_fail(r, NULL, 0, 125, "", "%s", err.text);
        fbr_ring_check(r);
        return;
    }
    for (uint32_t i = 0; r->epoch && i < r->size; i++)
        fbr_rank_output_again(j, i, r->epoch);
}

/* ---- Events ---- */

static void end_job(struct fiber_ring *r, struct ring_job *j)
{
    struct fbr_buf b = {0};

    if (j->over)
        return;
    j->over = true;
    fbr_ring_files_over(j);
    fbr_ring_requests_job_end(j);
    fbr_put_u32(&b, j->job.info.id);
    fbr_ring_send_all(r, FBR_RING_JOB_END, &b);
    fbr_buf_fini(&b);
}

static void end_agents(struct fiber_ring *r)
{
    const struct fbr_buf none = {0};

    fbr_timer_stop(&r->grace);
    fbr_ring_send_all(r, FBR_RING_END, &none);
    fbr_ring_kill_unready(r);
}

static void finish(struct fiber_ring *r)
{
    char *report, *shown;

    fbr_ring_terminal_restore(r);
    fbr_timer_fini(&r->grace);
    fbr_timer_fini(&r->limit);
    fbr_timer_fini(&r->gang);
    fbr_timer_fini(&r->ask);
    fbr_timer_fini(&r->later);
    fbr_timer_fini(&r->traceback.silence);
    fbr_ring_notes_flush(r);
    fbr_timer_fini(&r->moment);
    fbr_ring_requests_close(r);
    fbr_ring_stdin_close(r->input);
    r->input = NULL;
    report = fbr_ring_report(r, true);
    if (r->failure.code && !(r->options.flags & FIBER_RING_QUIET)) {
        shown = fbr_ring_report(r, false);
        fbr_ring_print_report(r, shown);
        free(shown);
    }
    fbr_ring_keep_end(r, report ? report : "");
    fbr_run_control_close(r->control, r->failure.code, report ? report : "");
    r->control = NULL;
    pthread_mutex_lock(&r->lock);
    r->report = report;
    r->code = r->failure.code;
    r->ended = true;
    if (eventfd_write(r->sentinel, 1) < 0)
        fbr_debug("ring: cannot signal the sentinel: %m");
    pthread_cond_broadcast(&r->changed);
    pthread_mutex_unlock(&r->lock);
}

/* Steps the ring by whether all agents are ready, or only some. */
static void wait_for_agents(struct fiber_ring *r)
{
    uint32_t i = 0;

    while (i < r->nagents && r->agents[i].state == AGENT_READY)
        i++;
    fbr_ring_on(r, i < r->nagents ? R_ON_HELLO : R_ON_READY);
}

static void start_again(void *arg)
{
    struct fiber_ring *r = arg;

    for (uint32_t i = 0; i < r->nagents && r->state == R_WAITING; i++)
        if (r->agents[i].state == AGENT_GONE && fbr_ring_start_agent(&r->agents[i]) < 0)
            fbr_ring_fail(r, NULL, 0, 125, "", "%s", fiber_last_error());
    wait_for_agents(r);
    fbr_ring_check(r); /* if the try has failed: no rank is left whose end would check it */
}

/* Waits first if agents could not be started, as while an engine or a host is started again: else
 * all tries would be over in a moment. */
static void try_again(struct fiber_ring *r)
{
    unsigned n = r->failed_starts;

    fbr_timer_stop(&r->grace);
    r->epoch++;
    r->failure = (struct ring_failure){0};
    if (n > 0)
        fbr_timer_start(&r->later, (uint64_t)START_WAIT_MS << (n < 5 ? n - 1 : 4), 0);
    else
        start_again(r);
}

void fbr_ring_on(struct fiber_ring *r, enum ring_event event)
{
    const struct ring_step s = fbr_ring_step(r->state, event);

    r->state = s.next;
    switch ((enum ring_action)s.action) {
    case R_DO_WAIT_GANG:
        fbr_ring_gang_wait(r);
        break;
    case R_DO_START:
        start_first_job(r);
        break;
    case R_DO_END_RANKS:
        fbr_ring_end_ranks(r);
        break;
    case R_DO_TRY_AGAIN:
        try_again(r);
        break;
    case R_DO_END_AGENTS:
        end_agents(r);
        break;
    case R_DO_END:
        finish(r);
        break;
    case R_DO_NOTHING:
    case R_DO_WAIT:
    case R_ACTIONS:
        break;
    }
}

void fbr_ring_check(struct fiber_ring *r)
{
    struct ring_job *j;
    bool all = true;

    DL_FOREACH(r->jobs, j) {
        if (j->ended == j->job.info.size)
            end_job(r, j);
        else
            all = false;
    }
    if (all)
        fbr_ring_on(r, R_ON_OVER);
    if (all && !fbr_ring_any_killed(r))
        fbr_ring_on(r, R_ON_CLEAR);
    if (r->living == 0)
        fbr_ring_on(r, R_ON_GONE);
}

/* Reads a job and a rank. Returns NULL if there is no such rank; *job may be NULL then. */
static struct ring_rank *get_rank(struct fiber_ring *r, struct fbr_cur *body, struct ring_job **job,
                                  uint32_t *rank)
{
    struct ring_job *j = fbr_ring_job_find(r, fbr_get_u32(body));

    *rank = fbr_get_u32(body);
    *job = j;
    return j && fbr_cur_ok(body) && *rank < j->job.info.size ? &j->ranks[*rank] : NULL;
}

/* Sends the jobs to an agent that was started in place of a lost one. */
static void send_jobs(struct ring_agent *a)
{
    struct fiber_ring *r = a->ring;
    struct ring_job *j;
    struct fbr_buf b = {0};

    fbr_ring_requests_idle(a, false);
    DL_FOREACH(r->jobs, j) {
        fbr_buf_clear(&b);
        fbr_ring_job_put(&j->job, &b);
        if (!j->over && !j->refused)
            fbr_ring_send(a, FBR_RING_JOB, &b);
    }
    fbr_buf_fini(&b);
}

static void on_hello(struct ring_agent *a, struct fbr_cur *body)
{
    struct fiber_ring *r = a->ring;

    fbr_get_str(body, a->host, sizeof(a->host));
    fbr_get_str(body, a->address, sizeof(a->address));
    a->cpus = fbr_get_u32(body);
    a->machine = fbr_get_u64(body);
    if (fbr_cur_ok(body) && a->state == AGENT_STARTING)
        a->state = AGENT_READY;
    fbr_ring_note_host(a);
    if (r->state == R_RUNNING)
        send_jobs(a);
    wait_for_agents(r);
}

/* Decides whether the end of a rank is a failure. While the spawn of the rank may still fail,
 * the decision waits: a failed spawn is for its caller to handle. */
static void judge(struct ring_job *j, uint32_t rank, const char *text)
{
    const struct ring_rank *k = &j->ranks[rank];

    if (j->spawn || j->refused)
        return;
    if (fbr_ring_is_failure(k))
        fbr_ring_rank_failed(j, rank, text);
}

static void on_started(struct ring_job *j, uint32_t n, struct fbr_cur *body)
{
    struct fiber_ring *r = j->ring;
    struct ring_rank *k = &j->ranks[n];
    char cpus[FBR_PIN_LIST], where[96], seen[512];

    k->pid = (int64_t)fbr_get_u64(body);
    fbr_get_str(body, cpus, sizeof(cpus));
    fbr_get_str(body, where, sizeof(where));
    fbr_get_str(body, seen, sizeof(seen));
    if (k->state != RANK_STARTING) { /* it was given up, with others that could not be started */
        fbr_ring_signal(r, j, n, SIGKILL);
        return;
    }
    j->started++;
    k->state = RANK_RUNNING;
    if (j->job.pty && n == j->job.reader)
        fbr_ring_terminal_set_raw(r);
    fbr_ring_stdin_started(j, n);
    fbr_debug("rank %u on %s has started: pid %lld", n, fbr_ring_host_of(j, n), (long long)k->pid);
    snprintf(k->cpus, sizeof(k->cpus), "%.*s", (int)sizeof(k->cpus) - 1, cpus);
    if (r->options.flags & FIBER_RING_REPORT)
        fbr_ring_print(r, "rank %u on %s, pid %lld: %s%s%s", n, fbr_ring_host_of(j, n),
                       (long long)k->pid, where, where[0] ? "; " : "", seen);
    if (j->started < j->job.info.size || !j->spawn)
        return;
    fbr_ring_requests_spawned(j, 0);
    for (uint32_t i = 0; i < j->job.info.size; i++)
        if (j->ranks[i].state == RANK_ENDED)
            judge(j, i, "");
    fbr_ring_check(r);
}

/* An agent is idle when no rank of it lives or is about to, and one of them was lost; not if others
 * wait in MPI_Init for a rank that ended well (missing.c). */
static void look_for_idle(struct ring_agent *a)
{
    struct ring_job *j;
    bool lost = false;

    DL_FOREACH(a->ring->jobs, j) {
        struct ring_ranks its = fbr_ring_ranks_of(j, a);

        for (uint32_t m = its.first; m < its.end && !j->over; m++) {
            bool loss = fbr_ring_is_loss(j->ranks[m].code, j->ranks[m].flags);

            if (j->ranks[m].state != RANK_ENDED || (!loss && !(j->ranks[m].flags & FBR_RANK_MET)))
                return;
            lost |= loss;
        }
    }
    if (lost)
        fbr_ring_requests_idle(a, true);
}

static void rank_ended(struct ring_job *j, uint32_t rank, int code)
{
    struct ring_rank *k = &j->ranks[rank];

    if (k->state == RANK_ENDED)
        return;
    k->state = RANK_ENDED;
    k->code = code;
    j->ended++;
    if (j->job.pty && rank == j->job.reader)
        fbr_ring_terminal_restore(j->ring);
    fbr_ring_stdin_rank_ended(j, rank);
    if (j->ring->collect && !j->job.info.spawned)
        fbr_collective_ended(j->ring->collect, j->job.info.epoch, rank);
    fbr_rank_output_end(j, rank);
}

/* The caller of MPI_Comm_spawn gets the error, and decides. */
static void refuse_spawn(struct ring_job *j, int code)
{
    j->refused = true;
    for (uint32_t i = 0; i < j->job.info.size; i++)
        if (j->ranks[i].state == RANK_STARTING)
            rank_ended(j, i, 125);
    for (uint32_t k = 0; k < j->job.info.nodes; k++)
        look_for_idle(&j->ring->agents[j->job.info.agents[k]]);
    fbr_ring_signal(j->ring, j, FBR_RING_ALL, SIGKILL);
    fbr_ring_requests_spawned(j, code);
}

static void on_failed(struct ring_agent *a, struct fbr_cur *body)
{
    struct fiber_ring *r = a->ring;
    struct ring_job *j;
    uint32_t n;
    struct ring_rank *k = get_rank(r, body, &j, &n);
    struct ring_ranks its = {0, 0};
    char why[FBR_ERROR_TEXT];

    fbr_get_str(body, why, sizeof(why));
    if (!fbr_cur_ok(body))
        return;
    if (j && j->refused)
        return;
    if (j && j->spawn) {
        fbr_ring_print(r, "a spawn has failed: rank %u on %s could not be started: %s", n, a->host,
                       why);
        refuse_spawn(j, -ENOENT);
        fbr_ring_check(r);
        return;
    }
    if (j)
        its = fbr_ring_ranks_of(j, a);
    /* The agent starts no rank after the one that failed. */
    for (uint32_t m = k && n > its.first ? n : its.first; m < its.end; m++)
        if (j->ranks[m].state == RANK_STARTING)
            rank_ended(j, m, 125);
    if (k)
        fbr_ring_fail(r, j, n, 125, "", "rank %u on %s could not be started: %s", n, a->host, why);
    else
        fbr_ring_fail(r, NULL, 0, 125, "", "the agent on %s cannot serve: %s", a->host, why);
    if (!j && a->process) /* it does not know the job whose ranks it should have started */
        fiber_process_kill(a->process);
    look_for_idle(a);
    fbr_ring_check(r);
}

static void on_exited(struct ring_job *j, uint32_t n, struct fbr_cur *body)
{
    struct ring_agent *a = fbr_ring_agent_of(j, n);
    struct ring_rank *k = &j->ranks[n];
    int code = (int)fbr_get_u32(body);
    char text[256];
    bool notified;

    k->flags |= fbr_get_u8(body);
    fbr_get_str(body, text, sizeof(text));
    if (!fbr_cur_ok(body))
        return;
    notified = (k->flags & FBR_RANK_MET) && fbr_ring_is_loss(code, k->flags);
    fbr_debug("rank %u has ended: code %d", n, code);
    rank_ended(j, n, code);
    if (notified) /* the others are notified of the loss, and do not wait for it */
        look_for_idle(a);
    judge(j, n, text);
    /* they do not wait later either for a rank that was lost before, unless it is started again */
    if (!notified)
        look_for_idle(a);
    fbr_ring_missing_ended(j, n);
    fbr_ring_check(j->ring);
}

static void on_abort(struct ring_job *j, uint32_t n, struct fbr_cur *body)
{
    int code = (int)fbr_get_u32(body);
    char text[FBR_RING_REASON];

    fbr_get_str(body, text, sizeof(text));
    if (fbr_cur_ok(body))
        fbr_ring_rank_aborted(j, n, code, text);
}

static void on_output(struct ring_agent *a, struct fbr_cur *body)
{
    struct fiber_ring *r = a->ring;
    struct ring_job *j;
    uint32_t n;
    struct ring_rank *k = get_rank(r, body, &j, &n);
    unsigned kind = fbr_get_u8(body), stream = kind & ~(unsigned)FBR_RING_SHOW;
    size_t len = fbr_cur_left(body);

    if (fbr_cur_ok(body) && k && (stream == 1 || stream == 2)) {
        fbr_rank_output_print(j, n, (int)stream, body->at, len, kind & FBR_RING_SHOW);
        fbr_ring_traceback_output(j, n, (int)stream, body->at, len);
    }
    a->credit += len;
    if (a->credit > UNPAID_MAX + (uint64_t)r->size * UNPAID_RANK && a->process) {
        fbr_process_abandon(a->process, "it sent more output than flow control allows");
        return;
    }
    if (!r->output_full)
        fbr_ring_send_credit(r);
}

static void on_met(struct ring_job *j, uint32_t n, struct fbr_cur *body)
{
    struct ring_rank *k = &j->ranks[n];

    k->flags |= FBR_RANK_MET;
    fbr_get_str(body, k->how, sizeof(k->how));
    fbr_debug("rank %u has met its server: %s", n, k->how);
    fbr_ring_missing_met(j, n);
}

static void on_missed(struct ring_job *j, uint32_t n, struct fbr_cur *body)
{
    fbr_ring_rank_missed(j, n);
}

static void on_waits(struct ring_job *j, uint32_t n, struct fbr_cur *body)
{
    fbr_ring_missing_waits(j, n);
}

static void on_use(struct ring_agent *a, struct fbr_cur *body)
{
    while (fbr_cur_left(body) >= 24) {
        struct ring_job *j;
        uint32_t n;
        struct ring_rank *k = get_rank(a->ring, body, &j, &n);
        uint64_t cpu = fbr_get_u64(body), resident = fbr_get_u64(body);

        if (k) {
            k->cpu_ns = cpu;
            k->resident = resident;
        }
    }
}

static void on_note(struct ring_agent *a, struct fbr_cur *body)
{
    char text[600];

    fbr_get_str(body, text, sizeof(text));
    if (fbr_cur_ok(body))
        fbr_ring_note(a, text);
}

static void on_room(struct ring_agent *a, struct fbr_cur *body)
{
    fbr_ring_stdin_room(a->ring, fbr_get_u64(body));
}

static void (*const handlers[])(struct ring_agent *a, struct fbr_cur *body) = {
    [FBR_RING_HELLO] = on_hello,   [FBR_RING_NOTE] = on_note, [FBR_RING_FAILED] = on_failed,
    [FBR_RING_OUTPUT] = on_output, [FBR_RING_ROOM] = on_room, [FBR_RING_USE] = on_use,
};

/* Frames about a rank that there is. */
static void (*const rank_handlers[])(struct ring_job *j, uint32_t rank, struct fbr_cur *body) = {
    [FBR_RING_STARTED] = on_started, [FBR_RING_EXITED] = on_exited, [FBR_RING_MET] = on_met,
    [FBR_RING_MISSED] = on_missed,   [FBR_RING_WAITS] = on_waits,   [FBR_RING_ABORT] = on_abort,
};

static void on_frame(void *user, struct fiber_process *p, uint8_t type, struct fbr_cur *body)
{
    struct ring_agent *a = user;
    struct ring_job *j;
    uint32_t rank;

    if (type < sizeof(handlers) / sizeof(handlers[0]) && handlers[type])
        handlers[type](a, body);
    else if (type >= sizeof(rank_handlers) / sizeof(rank_handlers[0]) || !rank_handlers[type])
        fbr_ring_requests_frame(a, type, body);
    else if (get_rank(a->ring, body, &j, &rank))
        rank_handlers[type](j, rank, body);
}

static void on_end(void *user, struct fiber_process *p)
{
    struct ring_agent *a = user;
    struct fiber_ring *r = a->ring;
    char report[600];
    bool met = false;

    snprintf(report, sizeof(report), "%s", fiber_process_report(p));
    a->process = NULL;
    a->state = AGENT_GONE;
    r->living--;
    fbr_ring_requests_agent_gone(a);
    if (r->state < R_ENDING) {
        struct ring_job *j;

        DL_FOREACH(r->jobs, j) {
            struct ring_ranks its = fbr_ring_ranks_of(j, a);

            for (uint32_t m = its.first; m < its.end; m++) {
                met |= j->ranks[m].state != RANK_ENDED && (j->ranks[m].flags & FBR_RANK_MET);
                rank_ended(j, m, -SIGKILL);
            }
            if (j->spawn && its.first < its.end)
                refuse_spawn(j, -ECONNABORTED);
        }
        /* as in on_exited() */
        if (met)
            fbr_ring_requests_idle(a, true);
        fbr_ring_agent_lost(a, report, fbr_process_disrupted(p));
    }
    if (a->state == AGENT_GONE)
        fbr_ring_requests_idle(a, true);
    fiber_process_close(p);
    fbr_ring_check(r);
}

static const struct fbr_process_ops agent_ops = {.on_frame = on_frame, .on_end = on_end};

/* ---- The beginning and the end ---- */

static bool is_elsewhere(const struct fiber_ring *r)
{
    const struct fbr_backend_ops *ops = fbr_backend_find(fbr_ring_backend(r), NULL);

    return ops && ops->reach == FBR_REACH_TCP;
}

int fbr_ring_start_agent(struct ring_agent *a)
{
    struct fiber_ring *r = a->ring;
    struct fiber_process_options options = {
        .size = sizeof(options), .job = r->options.job, .backend = r->options.backend};
    const struct fbr_backend_about *about = fbr_backend_about(fbr_ring_backend(r));
    struct fbr_agent_order order = {.number = a->number,
                                    .wish = r->wish,
                                    .verbose = fbr_log_on(FBR_LOG_INFO),
                                    .report = r->options.flags & FIBER_RING_REPORT,
                                    .oversubscribe = r->options.flags & FIBER_RING_OVERSUBSCRIBE,
                                    .survive = r->options.on_failure >= FIBER_RING_SHRINK,
                                    .image = about && about->in_images,
                                    .ranks = r->size};
    uint32_t ranks = r->ranks ? r->ranks[a->number] : r->most;
    struct fbr_process_spec spec = {.fn = fbr_agent_main,
                                    .prefix = "agent",
                                    .options = &options,
                                    .ops = &agent_ops,
                                    .user = a,
                                    .in_run = true,
                                    .is_host = true};
    struct fbr_buf b = {0};
    int rc;

    spec.index = (int)a->number + 1;
    spec.numbered = r->ranks;
    spec.apart = r->options.nodes > 1 && !r->ranks ? r->about.uid : NULL;
    if (!(r->options.flags & FIBER_RING_OVERSUBSCRIBE))
        spec.width = (int)ranks * (r->options.cpus_per_rank ? r->options.cpus_per_rank : 1);
    spec.reserve = r->options.cpus_per_rank ? spec.width : 0;
    /* If jobs are given GPUs, the agent gets those of all its ranks. */
    if (options.job.gpus == 0 && is_elsewhere(r))
        options.job.gpus = (int)(r->wish.gpus_per_rank * ranks);
    options.job.name = NULL;
    options.job.command = NULL;
    options.job.workdir = NULL;
    options.job.env = NULL;
    spec.env = r->env;
    fbr_agent_order_put(&order, &b);
    spec.arg = b.data;
    spec.len = b.len;
    rc = b.failed ? fbr_keep(-ENOMEM, "out of memory") : fbr_process_start(&a->process, &spec);
    fbr_buf_fini(&b);
    if (rc < 0)
        return rc;
    a->state = AGENT_STARTING;
    a->host[0] = '\0'; /* that, and the output, is of the agent before it */
    a->credit = 0;
    r->living++;
    return 0;
}

static void on_limit(void *arg)
{
    struct fiber_ring *r = arg;

    /* no time is left for another try, and the failure before it is forgiven */
    if (r->state == R_RESTARTING) {
        r->failure.code = 0;
        fbr_ring_on(r, R_ON_STOP);
    }
    if (r->state >= R_ENDING) /* its ranks have ended in time */
        return;
    fbr_ring_fail(r, NULL, 0, 124, "Try a longer --timeout.", "the time limit of %g s is over",
                  r->options.timeout_ms / 1e3);
    fbr_ring_check(r); /* between two tries there is no rank and perhaps no agent */
}

static void on_grace(void *arg)
{
    fbr_ring_kill(arg);
}

int fbr_ring_begin(struct fiber_ring *r, struct fbr_error *err)
{
    struct fbr_error spool = {0, ""};
    int rc;

    if ((rc = fbr_ring_requests_open(r)) < 0 ||
        (rc = fbr_timer_init(&r->grace, r->rt->loop, on_grace, r)) < 0 ||
        (rc = fbr_timer_init(&r->limit, r->rt->loop, on_limit, r)) < 0 ||
        (rc = fbr_timer_init(&r->later, r->rt->loop, start_again, r)) < 0)
        return fbr_fail(err, rc, "%s", fbr_strerror(rc));
    for (uint32_t i = 0; i < r->nagents; i++)
        if ((rc = fbr_ring_start_agent(&r->agents[i])) < 0)
            return fbr_fail(err, rc, "%s", fiber_last_error());
    if (fbr_spool_open(&r->spool, r->rt->config, &r->about, r->size, &spool) < 0)
        fbr_info("the output of ranks is not kept for `fiber logs`: %s", spool.text);
    if (r->options.timeout_ms > 0)
        fbr_timer_start(&r->limit, (uint64_t)r->options.timeout_ms, 0);
    /* Opens the control socket when the agents are on their way. */
    rc = fbr_loop_post(r->rt->loop, fbr_ring_control_open, r);
    return rc < 0 ? fbr_fail(err, rc, "%s", fbr_strerror(rc)) : 0;
}
