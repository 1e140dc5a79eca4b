/* job.c - starts, watches and ends the job of a process, on the loop thread.
 *
 * process_fsm.h has the table of its states.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <ctype.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <utlist.h>

#include "runtime/base/fds.h"
#include "runtime/base/log.h"
#include "runtime/proc/subjobs.h"
#include "runtime/proc/process_priv.h"
#include "runtime/base/printable.h"

/* after a child has closed its connection, the backend should soon report its end */
#define EXIT_AFTER_CONN_MS 2000
#define CONN_AFTER_EXIT_MS 200 /* bytes of a dead process may still be on their way */
/* its host process, still alive, may have data to pass on */
#define DRAIN_AFTER_EXIT_MS 5000
#define EXIT_AFTER_KILL_MS 3000
/* the process has announced its end; a slow engine reports the end and the output later */
#define EXIT_OF_FAR_MS 30000
/* the process has ended without a word; only its engine knows how, and a busy one says it late */
#define REASON_OF_FAR_MS 13000
#define CANNOT_START 125
/* exit codes of shells, and of engines */
#define NOT_EXECUTABLE 126
#define NOT_FOUND 127

static void step(struct fiber_process *p, enum process_event event, const char *why);

static void set_timer(struct fiber_process *p, uint64_t ms)
{
    fbr_timer_start(&p->timer, ms, 0); /* start() has initialised the timer */
}

static void set_state(struct fiber_process *p, enum process_state state)
{
    pthread_mutex_lock(&p->rt->lock);
    p->state = state;
    pthread_mutex_unlock(&p->rt->lock);
}

static void set_why(struct fiber_process *p, const char *why)
{
    pthread_mutex_lock(&p->rt->lock);
    if (!p->why[0])
        snprintf(p->why, sizeof(p->why), "%.*s", (int)sizeof(p->why) - 1, why);
    pthread_mutex_unlock(&p->rt->lock);
}

/* Notes a lack of descriptors. To the child, a connection that we could not accept looks like a
 * hang-up. Call it before any connection of the child is closed, which would hide the cause. */
static void note_shortage(struct fiber_process *p)
{
    if (p->fds > 0 && !p->shortage[0])
        fbr_fds_short(p->shortage, sizeof(p->shortage));
}

static uint64_t parent_patience_ms(const struct fiber_process *p)
{
    return (uint64_t)fbr_config_ms(p->rt->config, "heartbeat") *
           (uint64_t)fbr_config_int(p->rt->config, "heartbeat_misses") * FBR_PARENT_PATIENCE;
}

/* Notes that this process was stopped. A child on another host gives us up when we are stopped for
 * long; neither the child nor its task has failed then. We notice a stop a little later than it
 * began. Call it while the connection exists. */
static void note_stall(struct fiber_process *p, struct fbr_conn *conn)
{
    uint64_t stall = p->reach == FBR_REACH_TCP && !p->leaving ? fbr_conn_stall_ms(conn) : 0;

    if (stall < parent_patience_ms(p) / FBR_PARENT_PATIENCE * (FBR_PARENT_PATIENCE - 1))
        return;
    p->stalled_ms = stall;
    p->disrupted = true;
}

/* ---- The end ---- */

/* Whether a reason has a subject of its own ("its pod failed"). The process is the subject of any
 * other ("was killed"). */
static bool is_sentence(const char *why)
{
    static const char *const subjects[] = {"its ", "the ", "image "};

    for (size_t i = 0; i < sizeof(subjects) / sizeof(subjects[0]); i++)
        if (strncmp(why, subjects[i], strlen(subjects[i])) == 0)
            return true;
    return isupper((unsigned char)why[0]);
}

static void put_reason(struct fbr_buf *b, const struct fiber_process *p)
{
    if (p->why[0])
        fbr_putf(b, "%s%s", is_sentence(p->why) ? ": " : " ", p->why);
    else if (p->code == FBR_EXIT_UNKNOWN)
        fbr_putf(b, " ended, and its exit code is unknown");
    else if (p->code < 0)
        fbr_putf(b, " was killed by signal %d (%s)", -p->code, strsignal(-p->code));
    else
        fbr_putf(b, " exited with code %d", p->code);
}

/* Appends " (pid 4711)", or the engine's name for the job: " (docker job 4e4a2eaafa1a)", " (pid 12
 * in slurm job 7_0)". Docker's ids are cut to 12 characters, as Docker prints them. */
static void put_place(struct fbr_buf *b, const struct fiber_process *p)
{
    const struct fiber_process *job = p;
    char pid[32] = "";

    while (job->host)
        job = job->host;
    if (p->pid)
        snprintf(pid, sizeof(pid), "pid %lld", (long long)p->pid);
    if (job->job_id[0] && job->slot->ops->reach != FBR_REACH_HOST)
        fbr_putf(b, " (%s%s%s job %.*s)", pid, pid[0] ? " in " : "", job->slot->ops->name,
                 strlen(job->job_id) == 64 ? 12 : 79, job->job_id);
    else if (pid[0])
        fbr_putf(b, " (%s)", pid);
}

static char *make_report(struct fiber_process *p)
{
    struct fbr_buf b = {0};

    fbr_putf(&b, "%s", p->name);
    put_place(&b, p);
    put_reason(&b, p);
    if (p->code != 0 && p->shortage[0] && !strstr(p->why, "ulimit"))
        fbr_putf(&b, "; %s", p->shortage);
    if (p->stalled_ms)
        fbr_putf(&b,
                 "; its parent was itself stopped for %.1f s, and a process that is reached over "
                 "TCP ends when it has not heard from its parent for %.1f s",
                 (double)p->stalled_ms / 1e3, (double)parent_patience_ms(p) / 1e3);
    if (p->code != 0 && fbr_process_has_printed(p)) {
        fbr_putf(&b, "; its last lines:");
        fbr_line_report(&p->out[0].stream, "\n    ", "", &b);
        fbr_line_report(&p->out[1].stream, "\n    ", "", &b);
    }
    return fbr_buf_text(&b);
}

static void end(struct fiber_process *p, const char *why)
{
    struct fbr_runtime *rt = p->rt;
    struct fbr_conn *conn = p->conn;

    note_shortage(p);
    fbr_timer_fini(&p->timer);
    fbr_process_fds_release(p, p->fds);
    p->conn = NULL;
    fbr_tunnels_close(&p->tunnels);
    if (p->handle)
        p->slot->ops->release(p->slot->backend, p->handle);
    p->handle = NULL;
    fbr_process_release_ends(p, NULL);
    for (int i = 0; i < 2; i++)
        if (p->out[i].output)
            fbr_lines_end(&p->out[i]);
    pthread_mutex_lock(&rt->lock);
    if (p->code == FBR_EXIT_UNKNOWN)
        p->code = p->told_code;
    p->report = make_report(p);
    p->state = P_ENDED; /* not before: a caller that sees it reads the code and the report */
    eventfd_write(p->sentinel, 1); /* before any call reports the end */
    pthread_cond_broadcast(&p->changed);
    pthread_mutex_unlock(&rt->lock);
    for (int i = 0; i < 2; i++)
        fbr_lines_fini(&p->out[i]);
    fbr_info("%s", p->report ? p->report : p->name);
    if (p->spec.ops && p->spec.ops->on_end)
        p->spec.ops->on_end(p->spec.user, p);
    fbr_subjobs_host_ended(p, p->report ? p->report : p->name);
    fbr_conn_close(conn); /* after the connections that it carried */
    fbr_link_close(p->link);
    p->link = NULL;
    if (p->spec.ops && p->spec.ops->on_gone)
        p->spec.ops->on_gone(p->spec.user, p);
    fbr_process_unref(p);
}

/* Ends a process that could not be started, or that nothing watches any more. */
void fbr_job_fail(struct fiber_process *p, int32_t code, const char *why)
{
    pthread_mutex_lock(&p->rt->lock);
    p->code = code;
    pthread_mutex_unlock(&p->rt->lock);
    set_why(p, why);
    step(p, P_ON_FAILED, why);
}

bool fbr_process_disrupted(const struct fiber_process *p)
{
    return p->disrupted || (p->host && p->host->disrupted);
}

bool fbr_process_cannot_run(const struct fiber_process *p)
{
    return p->cannot_run;
}

/* Lets the process send itself the signal, because its backend cannot. */
static void order_signal(struct fiber_process *p, int sig)
{
    struct fbr_buf body = {0};

    fbr_put_u32(&body, (uint32_t)sig);
    fbr_conn_send_buf(p->conn, FBR_FRAME_SIGNAL, &body);
    fbr_buf_fini(&body);
}

void fbr_job_signal(struct fiber_process *p, int sig)
{
    if (p->state == P_ENDED || !p->handle)
        return;
    p->signalled |= sig == SIGKILL || sig == SIGTERM;
    if (sig == SIGKILL)
        step(p, P_ON_KILL, "");
    else if (p->slot->ops->signal(p->slot->backend, p->handle, sig) == -ENOTSUP && p->conn)
        order_signal(p, sig);
}

static void pass_kill(struct fiber_process *p, const char *why)
{
    p->slot->ops->signal(p->slot->backend, p->handle, SIGKILL);
}

static bool is_far(const struct fiber_process *p)
{
    return p->slot->ops->reach == FBR_REACH_TCP;
}

/* How long a killed process may take to end. Pools, rings and managers act on an end, whatever its
 * reason: they do not wait for it. The agents of a ring have sent all output themselves. */
static uint64_t kill_ms(const struct fiber_process *p)
{
    if (is_far(p) && p->leaving && !p->spec.index)
        return EXIT_OF_FAR_MS;
    return is_far(p) && p->presumed && !p->spec.ops ? REASON_OF_FAR_MS : EXIT_AFTER_KILL_MS;
}

static void kill_it(struct fiber_process *p, const char *why)
{
    fbr_process_ref(p); /* a backend may report the end within this call */
    set_why(p, why);
    fbr_job_signal(p, SIGKILL);
    if (p->state == P_KILLED)
        set_timer(p, kill_ms(p));
    fbr_process_unref(p);
}

/* A process that has sent its EXIT frame only lingers. Any other may have ended for a reason that
 * its backend, which is slow, reports later. */
static void abandon(struct fiber_process *p, const char *why)
{
    if (p->leaving) {
        kill_it(p, why);
        return;
    }
    pthread_mutex_lock(&p->rt->lock);
    p->presumed = !p->why[0];
    pthread_mutex_unlock(&p->rt->lock);
    kill_it(p, "closed its connection, but its backend reports that it runs; killed");
}

static void refuse(struct fiber_process *p, const char *why)
{
    pthread_mutex_lock(&p->rt->lock);
    p->told_code = CANNOT_START;
    pthread_mutex_unlock(&p->rt->lock);
    kill_it(p, why);
}

void fbr_job_refuse(struct fiber_process *p, const char *why)
{
    step(p, P_ON_REFUSED, why);
}

static uint64_t start_timeout_ms(const struct fiber_process *p)
{
    return (uint64_t)(p->start_timeout_ms ? p->start_timeout_ms
                                          : fbr_config_ms(p->rt->config, "start_timeout"));
}

/* Whether it may wait for a place without a limit. */
static bool waits_in_line(const struct fiber_process *p)
{
    return !p->start_timeout_ms && fbr_process_is_starting(p->state);
}

static void refuse_late(struct fiber_process *p, const char *why)
{
    char text[512];

    note_shortage(p);
    snprintf(text, sizeof(text),
             "did not join within %.1f s%s%s; killed (start_timeout sets the limit)",
             (double)start_timeout_ms(p) / 1e3, p->pending[0] ? ": " : "", p->pending);
    refuse(p, text);
}

/* Whether its host is about to end, and a timer of the host sees to that. The process then ends by
 * the end of its host, for which none of its tasks is to blame. */
static bool ends_with_host(const struct fiber_process *p)
{
    const struct fiber_process *h = p->host;

    return (p->state == P_HUNG_UP || p->state == P_KILLED) && h &&
           !fbr_process_is_starting(h->state) && !fbr_process_is_joined(h->state);
}

static void on_time(void *arg)
{
    if (!ends_with_host(arg))
        step(arg, P_ON_TIME, "");
}

/* Whether the host process has passed on all data of the process. */
static bool is_drained(const struct fiber_process *p)
{
    return !p->link || !p->host || p->drained || p->host->state == P_ENDED;
}

static void drained(struct fiber_process *p, const char *why)
{
    if (is_drained(p))
        step(p, P_ON_DRAINED, why);
    else
        set_timer(p, DRAIN_AFTER_EXIT_MS);
}

void fbr_job_drained(void *process)
{
    struct fiber_process *p = process;

    p->drained = true;
    step(p, P_ON_DRAINED, "");
    fbr_process_unref(p);
}

/* ---- The control connection ---- */

static void on_exit_frame(struct fiber_process *p, struct fbr_cur *body)
{
    int32_t code = (int32_t)fbr_get_u32(body);
    char text[FBR_ERROR_TEXT];

    fbr_get_str(body, text, sizeof(text));
    if (!fbr_cur_ok(body))
        return;
    p->leaving = true;
    note_shortage(p);
    pthread_mutex_lock(&p->rt->lock);
    p->told_code = code;
    pthread_mutex_unlock(&p->rt->lock);
    if (text[0])
        set_why(p, text);
}

static void on_pong(void *user, struct fbr_conn *conn)
{
    struct fiber_process *p = user;

    pthread_mutex_lock(&p->rt->lock);
    p->rtt = (double)fbr_conn_rtt_ns(conn) / 1e9;
    pthread_mutex_unlock(&p->rt->lock);
}

/* The process runs. A pid that the backend has reported stays: it is the same. */
static void on_join_frame(struct fiber_process *p, struct fbr_cur *body)
{
    uint64_t pid = fbr_get_u64(body);

    if (!fbr_cur_ok(body) || pid == 0 || pid > INT32_MAX)
        return;
    pthread_mutex_lock(&p->rt->lock);
    if (!p->pid)
        p->pid = (int64_t)pid;
    p->joined = true;
    pthread_cond_broadcast(&p->changed);
    pthread_mutex_unlock(&p->rt->lock);
}

static void on_use_frame(struct fiber_process *p, struct fbr_cur *body)
{
    struct fbr_process_use use;

    use.cpu_ns = fbr_get_u64(body);
    use.resident = fbr_get_u64(body);
    fbr_get_str(body, use.host, sizeof(use.host));
    if (!fbr_cur_ok(body))
        return;
    pthread_mutex_lock(&p->rt->lock);
    p->use = use;
    pthread_mutex_unlock(&p->rt->lock);
}

static void on_frame(void *user, struct fbr_conn *conn, uint8_t type, struct fbr_cur *body)
{
    struct fiber_process *p = user;

    if (type == FBR_FRAME_EXIT)
        on_exit_frame(p, body);
    else if (type == FBR_FRAME_JOIN)
        on_join_frame(p, body);
    else if (type == FBR_FRAME_USE)
        on_use_frame(p, body);
    else if (type == FBR_FRAME_HOLDS)
        fbr_process_release_ends(p, body);
    else if (type == FBR_SUBJOB_EVENT)
        fbr_subjobs_on_event(p, body);
    else if (type == FBR_SUBJOB_CARRIED)
        fbr_subjobs_on_carried(p, body);
    else if (fbr_tunnel_takes(type))
        fbr_tunnels_on_frame(&p->tunnels, type, body);
    else if (p->spec.ops && p->spec.ops->on_frame)
        p->spec.ops->on_frame(p->spec.user, p, type, body);
    if (type == FBR_FRAME_READY)
        fbr_process_fds_release(p, FDS_OF_LINK);
}

static void on_conn_close(void *user, struct fbr_conn *conn, int why, const char *text)
{
    struct fiber_process *p = user;
    char reason[256];

    note_shortage(p);
    note_stall(p, conn);
    p->conn = NULL;
    fbr_tunnels_close(&p->tunnels);
    fbr_subjobs_host_lost(p, why, text);
    /* On a timeout, the process is frozen or cut off: nothing that it holds may count any more. */
    snprintf(reason, sizeof(reason), "sent %s (frozen, or cut off); killed", text);
    step(p, why == -ETIMEDOUT ? P_ON_SILENT : P_ON_HUNG_UP, reason);
}

/* The program may have something to do at its exit. */
static void wait_exit(struct fiber_process *p, const char *why)
{
    uint64_t grace = p->leaving ? (uint64_t)fbr_config_ms(p->rt->config, "grace") : 0;

    set_timer(p, p->signalled && is_far(p) ? EXIT_OF_FAR_MS : EXIT_AFTER_CONN_MS + grace);
}

const struct fbr_conn_ops fbr_job_conn_ops = {
    .on_frame = on_frame, .on_pong = on_pong, .on_close = on_conn_close};

/* ---- The backend ---- */

static void on_output(struct fiber_process *p, const struct fbr_job_event *e)
{
    struct fbr_lines *l = &p->out[e->stream == 2];

    if (e->len && p->spec.ops && p->spec.ops->on_output)
        p->spec.ops->on_output(p->spec.user, p, e->stream, e->data, e->len);
    if (e->len && !p->spec.in_run)
        fbr_program_output(p->rt, p, e->stream, e->data, e->len);
    if (e->len == 0) {
        fbr_lines_end(l);
    } else if (fbr_lines_add(l, e->data, e->len) && !p->paused) {
        p->paused = true;
        p->slot->ops->pause_output(p->slot->backend, p->handle, 1);
    }
}

void fbr_process_resume_output(void *context)
{
    struct fbr_runtime *rt = context;
    struct fiber_process *p;

    pthread_mutex_lock(&rt->lock); /* pause_output takes no lock of ours */
    DL_FOREACH(rt->processes, p) {
        if (p->paused && p->handle)
            p->slot->ops->pause_output(p->slot->backend, p->handle, 0);
        p->paused = false;
    }
    pthread_mutex_unlock(&rt->lock);
    if (rt->output_room)
        rt->output_room(rt);
}

/* The function has not run, whatever the exit code is. CANNOT_START: fiber_init() has failed, and
 * has printed why. */
static void explain_early_exit(struct fiber_process *p, int32_t code)
{
    const char *hint = "; does its main() call fiber_init() first?";
    char why[256];

    if (code == CANNOT_START || code == NOT_EXECUTABLE)
        hint = "";
    else if (code == NOT_FOUND)
        hint = "; is its program, with its libraries, there at the path that it has here?";
    if (code == FBR_EXIT_UNKNOWN)
        snprintf(why, sizeof(why), "ended before it joined, and its exit code is unknown");
    else if (code < 0)
        snprintf(why, sizeof(why), "was killed by signal %d (%s) before it joined", -code,
                 strsignal(-code));
    else
        snprintf(why, sizeof(why), "exited with code %d before it joined%s", code, hint);
    set_why(p, why);
}

static void on_exited(struct fiber_process *p, const struct fbr_job_event *e)
{
    bool starting = fbr_process_is_starting(p->state);

    p->disrupted |= e->disrupted;
    p->cannot_run = starting && (e->code == NOT_EXECUTABLE || e->code == NOT_FOUND);
    if (p->conn)
        note_stall(p, p->conn);
    if (e->text[0]) {
        pthread_mutex_lock(&p->rt->lock);
        if (p->presumed)
            p->why[0] = '\0';
        pthread_mutex_unlock(&p->rt->lock);
        set_why(p, e->text);
    }
    if (starting)
        explain_early_exit(p, e->code);
    pthread_mutex_lock(&p->rt->lock);
    if (p->told_code == CANNOT_START || (starting && (e->code >= 0 || e->code == FBR_EXIT_UNKNOWN)))
        p->code = CANNOT_START;
    else if (p->leaving && fbr_process_is_killed(p->state) && p->told_code != FBR_EXIT_UNKNOWN)
        p->code = p->told_code; /* its work was done */
    else
        p->code = e->code;
    pthread_mutex_unlock(&p->rt->lock);
    step(p, P_ON_EXITED, "");
}

static void wait_conn(struct fiber_process *p, const char *why)
{
    set_timer(p, CONN_AFTER_EXIT_MS);
}

static void collect_pending(void *user, struct fbr_pending *out)
{
    struct fbr_runtime *rt = user;
    struct fiber_process *p;

    pthread_mutex_lock(&rt->lock);
    DL_FOREACH(rt->processes, p)
        if (p->state != P_ENDED && !p->host)
            fbr_pending_add(out, fbr_process_pending(p), p->pending_ms);
    pthread_mutex_unlock(&rt->lock);
}

void fbr_job_beats(struct fiber_process *p, bool suspended)
{
    const struct fbr_config *config = p->rt->config;

    fbr_conn_heartbeat(p->conn, (unsigned)fbr_config_ms(config, "heartbeat"),
                       suspended ? 0 : (unsigned)fbr_config_int(config, "heartbeat_misses"));
}

void fbr_job_event(void *user, const struct fbr_job_event *e)
{
    struct fiber_process *p = user;

    switch (e->type) {
    case FBR_JOB_PENDING:
        if (e->disrupted) {
            p->disrupted = true;
            set_why(p, e->text);
            break;
        }
        if (!p->pending[0])
            p->pending_ms = fbr_now_ms();
        fbr_printable_cut(p->pending, sizeof(p->pending), e->text);
        p->placed = e->placed || e->runs;
        if (waits_in_line(p) && e->runs)
            set_timer(p, start_timeout_ms(p));
        else if (waits_in_line(p))
            fbr_timer_stop(&p->timer);
        fbr_pending_begin(&p->rt->pending, p->rt->loop, collect_pending, p->rt);
        break;
    case FBR_JOB_SUSPENDED: /* its silence says nothing */
        if (p->conn)
            fbr_job_beats(p, e->code != 0);
        break;
    case FBR_JOB_STARTED:
        pthread_mutex_lock(&p->rt->lock);
        snprintf(p->job_id, sizeof(p->job_id), "%s", e->text);
        if (e->pid) /* else the process itself sends it, maybe before this event */
            p->pid = e->pid;
        pthread_mutex_unlock(&p->rt->lock);
        if (waits_in_line(p))
            set_timer(p, start_timeout_ms(p));
        p->pending[0] = '\0';
        break;
    case FBR_JOB_OUTPUT:
        on_output(p, e);
        break;
    case FBR_JOB_EXITED:
        on_exited(p, e);
        break;
    }
}

/* ---- The table's actions ---- */

static void step(struct fiber_process *p, enum process_event event, const char *why)
{
    static void (*const actions[P_ACTIONS])(struct fiber_process *, const char *) = {
        [P_DO_SIGNAL] = pass_kill,    [P_DO_REFUSE] = refuse,   [P_DO_TOO_LATE] = refuse_late,
        [P_DO_KILL] = kill_it,        [P_DO_GIVE_UP] = abandon, [P_DO_WAIT_EXIT] = wait_exit,
        [P_DO_WAIT_CONN] = wait_conn, [P_DO_DRY] = drained,     [P_DO_END] = end,
    };
    const struct process_step s = fbr_process_step(p->state, event);

    if (s.next != P_ENDED) /* end() sets that state itself */
        set_state(p, s.next);
    if (actions[s.action])
        actions[s.action](p, why);
}

/* ---- Starting ---- */

static int put_ticket(struct fiber_process *p, enum fbr_reach reach, struct fbr_buf *ticket,
                      struct fbr_error *err)
{
    struct fbr_runtime *rt = p->rt;
    struct fbr_join j = {.me = {FBR_CALLER_JOB, p->id}};
    struct fbr_listener *l;
    int rc = fbr_rt_listener(rt, reach, &l, err);

    if (rc < 0)
        return rc;
    snprintf(j.url, sizeof(j.url), "%s", fbr_listener_url(l));
    snprintf(j.run_uid, sizeof(j.run_uid), "%s", rt->run_uid);
    snprintf(j.name, sizeof(j.name), "%s", p->name);
    if ((p->host ? p->host : p)->slot->ops->reach == FBR_REACH_HOST)
        snprintf(j.root, sizeof(j.root), "%s", rt->dir.root);
    j.by_host = p->host != NULL;
    if (!j.by_host) /* otherwise nothing asks for the secret */
        memcpy(j.secret, p->secret, sizeof(j.secret));
    fbr_join_put(&j, rt->config, ticket);
    fbr_wipe(&j, sizeof(j));
    if (ticket->len > FBR_TICKET_MAX)
        return fbr_fail(err, -E2BIG,
                        "its ticket has %zu bytes, but may have at most %d; shorten the settings "
                        "(command_hosts?)",
                        ticket->len, FBR_TICKET_MAX);
    return ticket->failed ? fbr_fail(err, -ENOMEM, "out of memory") : 0;
}

static int find_backend(struct fiber_process *p, struct fbr_error *err)
{
    if (!p->host)
        return fbr_rt_backend(p->rt, p->backend_name[0] ? p->backend_name : NULL, &p->slot, err);
    if (!p->host->slot)
        return fbr_fail(err, -ECHILD, "its host %s could not be started", p->host->name);
    p->host->as_host = (struct fbr_backend_slot){.ops = &fbr_backend_subjobs,
                                                 .backend = (struct fbr_backend *)p->host};
    p->slot = &p->host->as_host;
    return 0;
}

static int start(struct fiber_process *p, struct fbr_error *err)
{
    static const char *const self[] = {"fiber-worker", NULL};
    const char *const *program = fbr_process_program();
    const char *const *argv = p->job.command ? p->job.command : program ? program : self;
    struct fbr_buf ticket = {0};
    struct fbr_job job = {.name = p->name,
                          .run_uid = p->rt->run_uid,
                          .image = p->job.image,
                          .workdir = p->job.workdir,
                          .cpus = p->job.cpus,
                          .gpus = p->job.gpus,
                          .memory = p->job.memory,
                          .keep_stdin = p->keep_stdin,
                          .width = p->spec.width,
                          .reserve = p->spec.reserve,
                          .alike = p->spec.alike,
                          .is_host = p->spec.is_host,
                          .relayed = p->host && p->spec.link,
                          .process = p->id,
                          .index = p->spec.index,
                          .numbered = p->spec.numbered,
                          .apart = p->spec.apart};
    int rc = find_backend(p, err);

    if (rc < 0)
        goto done;
    p->reach = p->host ? p->host->reach : fbr_rt_reach(p->rt, p->slot->ops);
    rc = put_ticket(p, p->reach, &ticket, err);
    if (rc < 0)
        goto done;
    job.file = argv == self ? "/proc/self/exe" : argv[0];
    job.argv = (char *const *)(uintptr_t)argv;
    job.env = p->env;
    job.added_env = (char *const *)(uintptr_t)p->job.env;
    job.own_program = argv == self;
    if (!p->job.command && fbr_config_bool(p->rt->config, "template"))
        job.template = fbr_process_template();
    job.ticket = ticket.data;
    job.ticket_len = ticket.len;
    for (int i = 0; i < 2; i++)
        fbr_lines_init(&p->out[i], p->rt->output, i + 1,
                       fbr_config_bool(p->rt->config, "tag_output") ? p->name : NULL);
    rc = fbr_timer_init(&p->timer, p->rt->loop, on_time, p);
    if (rc < 0) {
        fbr_fail(err, rc, "out of memory");
        goto done;
    }
    set_timer(p, start_timeout_ms(p));
    if (!p->host)
        fbr_process_fds_release(p, FDS_OF_JOB);
    rc = p->slot->ops->start(p->slot->backend, &job, p, &p->handle, err);
done:
    if (ticket.data)
        fbr_wipe(ticket.data, ticket.len);
    fbr_buf_fini(&ticket);
    fbr_buf_fini(&p->strings);
    free(p->env);
    p->env = NULL;
    return rc;
}

void fbr_job_start(void *arg)
{
    struct fiber_process *p = arg;
    struct fbr_error err = {0, ""};
    char why[512];

    fbr_process_ref(p); /* a backend may report the end within this call */
    p->since_ms = fbr_now_ms();
    if (!p->spec.in_run)
        fbr_program_started(p->rt);
    if (start(p, &err) == 0)
        goto done;
    if (p->slot && p->slot->ops->reach == FBR_REACH_HOST) /* it should have run on this host */
        p->cannot_run = err.code == -ENOENT || err.code == -EACCES || err.code == -ENOEXEC ||
                        err.code == -ENODEV;
    snprintf(why, sizeof(why), "could not be started: %.480s", err.text);
    fbr_job_fail(p, CANNOT_START, why);
done:
    fbr_process_unref(p);
}
