/* failure.c - what a failure means for the other ranks, and how it is reported.
 *
 * The first cause counts. Failures of ranks that were told to end are not reported.
 *
 *     ABORT     all ranks get SIGTERM, and SIGKILL after the grace period
 *     RESTART   the same, then all ranks start again, up to max_restarts times
 *     SHRINK    bridges notify the survivors, which go on; the ring fails if none is left
 *     REPLACE   as SHRINK, and the rank starts again, up to max_restarts times each. As ABORT if
 *               the bridge that the rank has met admits no rank twice (PMI). The others are not
 *               notified of a rank that had not met a server: they do not miss it
 *
 * Losses that the cluster causes are counted separately (restart.h).
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "ring/ring_priv.h"
#include "runtime/base/printable.h"

/* ---- Signals, and ending ranks ---- */

/* Sends all agents a frame of a job, a rank and a number. */
static void send_about(const struct ring_job *j, uint8_t type, uint32_t rank, uint32_t n)
{
    struct fbr_buf b = {0};

    fbr_put_u32(&b, j->job.info.id);
    fbr_put_u32(&b, rank);
    fbr_put_u32(&b, n);
    fbr_ring_send_all(j->ring, type, &b);
    fbr_buf_fini(&b);
}

void fbr_ring_signal(struct fiber_ring *r, struct ring_job *only, uint32_t rank, int sig)
{
    struct ring_job *j;

    DL_FOREACH(r->jobs, j)
        if ((!only || only == j) && !j->over)
            send_about(j, FBR_RING_SIGNAL, rank, (uint32_t)sig);
}

int fbr_ring_signal_one(struct fiber_ring *r, int rank, int sig)
{
    struct ring_job *last = fbr_ring_newest(r);

    if (r->state == R_ENDED)
        return -ESRCH;
    if (rank < 0)
        fbr_ring_signal(r, NULL, FBR_RING_ALL, sig);
    else if (last && (uint32_t)rank < last->job.info.size)
        fbr_ring_signal(r, last, (uint32_t)rank, sig);
    else
        return -ESRCH;
    return 0;
}

void fbr_ring_kill_unready(struct fiber_ring *r)
{
    for (uint32_t i = 0; i < r->nagents; i++) {
        struct ring_agent *a = &r->agents[i];

        if (a->state == AGENT_GONE || a->state == AGENT_READY)
            continue;
        a->state = AGENT_DOOMED;
        fiber_process_kill(a->process);
    }
}

bool fbr_ring_any_killed(const struct fiber_ring *r)
{
    for (uint32_t i = 0; i < r->nagents; i++)
        if (r->agents[i].state == AGENT_DOOMED)
            return true;
    return false;
}

void fbr_ring_kill(struct fiber_ring *r)
{
    fbr_ring_signal(r, NULL, FBR_RING_ALL, SIGKILL);
    fbr_ring_kill_unready(r);
}

void fbr_ring_end_ranks(struct fiber_ring *r)
{
    fbr_timer_stop(&r->gang);
    fbr_ring_signal(r, NULL, FBR_RING_ALL, SIGTERM);
    fbr_ring_signal(r, NULL, FBR_RING_ALL, SIGCONT); /* a stopped rank would not act on SIGTERM */
    if (r->grace_ms == 0)
        fbr_ring_kill(r);
    else
        fbr_timer_start(&r->grace, (uint64_t)r->grace_ms, 0);
    fbr_ring_kill_unready(r);
}

/* ---- The first cause ---- */

/* code: an exit code, or -signal. A rank that ended with 0 has failed, too. */
static void record(struct fiber_ring *r, struct ring_job *j, uint32_t rank, int code,
                   const char *hint, const char *text)
{
    struct ring_failure *f = &r->failure;

    if (f->code)
        return;
    *f = (struct ring_failure){.code = code < 0 ? 128 - code
                                       : code   ? code
                                                : 1,
                               .job = j,
                               .rank = rank};
    snprintf(f->text, sizeof(f->text), "%s", text);
    snprintf(f->hint, sizeof(f->hint), "%s", hint);
}

void fbr_ring_stop(struct fiber_ring *r)
{
    if (fbr_ring_step(r->state, R_ON_STOP).action != R_DO_NOTHING)
        record(r, NULL, 0, -SIGTERM, "", "the ring was stopped");
    fbr_ring_on(r, R_ON_STOP);
    fbr_ring_check(r);
}

void fbr_ring_fail(struct fiber_ring *r, struct ring_job *j, uint32_t rank, int code,
                   const char *hint, const char *fmt, ...)
{
    char text[1024];
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    record(r, j, rank, code, hint, text);
    fbr_ring_on(r, R_ON_FAILED);
    if (r->state == R_STOPPING && !r->jobs)
        fbr_ring_check(r);
}

/* Names a rank, and also its program if the job has several. */
void fbr_ring_name_rank(const struct ring_job *j, uint32_t rank, char *out, size_t size)
{
    const char *program = j->job.nprograms > 1 ? fbr_ring_job_program(&j->job, rank)->argv[0] : "";
    const struct ring_rank *k = &j->ranks[rank];
    int n = j->job.info.spawned
                ? snprintf(out, size, "rank %u of spawned job %u", rank, j->job.info.id)
                : snprintf(out, size, "rank %u", rank);

    snprintf(out + n, size - (size_t)n, " (%.60s%spid %lld on %s)", program, *program ? ", " : "",
             (long long)k->pid, fbr_ring_host_of(j, rank));
}

static bool has_said(const struct ring_rank *k, const char *text)
{
    const struct fbr_buf *b = &k->out[1].tail;

    return b->len && memmem(b->data, b->len, text, strlen(text));
}

static const char *explain_code(const struct ring_job *j, uint32_t rank, int code)
{
    static const struct {
        const char *said, *advice;
    } known[] = {
        {"error while loading shared libraries:",
         "Use -x LD_LIBRARY_PATH=DIR to tell the loader where the library is. In a container "
         "DIR is a directory of the image."},
        {"client socket has timed out",
         "If the program chooses the address of torch's store itself (MASTER_PORT, tcp://), "
         "use -x TORCHELASTIC_USE_AGENT_STORE=False: its own rank 0 serves the store then, "
         "between hosts at -x MASTER_ADDR=HOST -x MASTER_PORT=PORT."},
        {"Number of processes must be defined", /* of JAX */
         "For jax.distributed.initialize() without arguments use --mca orte_hnp_uri 0, or pass "
         "num_processes and process_id to it."},
        {"write_line failure : Bad file descriptor", /* of MPICH */
         "The process that started the MPI program has closed its descriptors, as Python's "
         "subprocess does: use -x FIBER_PMI=port."},
    };
    const struct fbr_backend_about *about = fbr_backend_about(fbr_ring_backend(j->ring));

    for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++)
        if (has_said(&j->ranks[rank], known[i].said))
            return known[i].advice;
    if (code != 127)
        return "";
    if (about && about->missing)
        return about->missing;
    return "A shell exits with code 127 when it does not find a program.";
}

/* Describes how the rank ended, and what the user can try. */
static void decode(const struct ring_job *j, uint32_t rank, const char *kernel, char *text,
                   size_t size, const char **hint)
{
    const struct ring_rank *k = &j->ranks[rank];
    int code = k->code;
    char who[300];

    fbr_ring_name_rank(j, rank, who, sizeof(who));
    *hint = "";
    if (code == 0 && (k->flags & FBR_RANK_MET)) {
        snprintf(text, size,
                 "%s ended with code 0 without MPI_Finalize, and other ranks may wait for it", who);
        *hint = "Call MPI_Finalize in every rank before it ends, or MPI_Abort if it gives up.";
    } else if (code == 0) {
        snprintf(text, size,
                 "%s is linked with an MPI library, but ended without a connection to Fiber's "
                 "server for MPI: it ran alone, as an MPI_COMM_WORLD of one rank",
                 who);
        *hint = "Use `fiber doctor` to see whether Fiber supports the MPI that the program is "
                "linked with. If the program does not need MPI_Init, link it without MPI.";
    } else if (code < 0) {
        snprintf(text, size, "%s was killed by signal %d (%s)%s%s", who, -code, strsignal(-code),
                 kernel[0] ? ": " : "", kernel);
        if (code == -SIGKILL && kernel[0])
            *hint = "Give it more memory (--mem), or start fewer ranks on a host (--per-node).";
        else if (code == -SIGKILL)
            *hint = "If nobody killed it, the kernel may have run out of memory and killed it: see "
                    "dmesg, and try --mem.";
        else if (code == -SIGSEGV || code == -SIGBUS)
            *hint =
                code == -SIGBUS ? "SIGBUS often means that /dev/shm is full: `df /dev/shm`." : "";
    } else {
        snprintf(text, size, "%s exited with code %d%s%s", who, code, kernel[0] ? ": " : "",
                 kernel);
        *hint = explain_code(j, rank, code);
    }
}

/* ---- By policy ---- */

uint32_t fbr_ring_living(const struct fiber_ring *r)
{
    const struct ring_job *j;
    uint32_t n = 0;

    DL_FOREACH(r->jobs, j)
        n += j->job.info.size - j->ended;
    return n;
}

bool fbr_ring_is_loss(int code, uint8_t flags)
{
    return code != 0 || (flags & (FBR_RANK_MET | FBR_RANK_LEFT)) == FBR_RANK_MET;
}

bool fbr_ring_is_failure(const struct ring_rank *k)
{
    return fbr_ring_is_loss(k->code, k->flags) || (k->flags & FBR_RANK_MPI);
}

static bool any_ended_well(const struct fiber_ring *r)
{
    const struct ring_job *j;

    DL_FOREACH(r->jobs, j)
        for (uint32_t i = 0; i < j->job.info.size; i++)
            if (j->ranks[i].state == RANK_ENDED && !fbr_ring_is_failure(&j->ranks[i]))
                return true;
    return false;
}

/* True if the cluster is taking away the job of the rank's node. */
static bool is_taken(const struct ring_job *j, uint32_t rank)
{
    const struct ring_agent *a = fbr_ring_agent_of(j, rank);

    return a->process && fbr_process_disrupted(a->process);
}

/* The others may wait for this rank in its place, and a new process may be unable to take that
 * place. Returns why it is unable, or NULL. */
static const char *no_rejoin(const struct ring_job *j, uint32_t rank)
{
    const struct ring_rank *k = &j->ranks[rank];
    const struct fbr_bridge_ops *bridge = k->flags & FBR_RANK_MET ? fbr_bridge_met(k->how) : NULL;

    return bridge ? bridge->no_rejoin : NULL;
}

/* Open MPI's server admits the new process, but the MPI_Init of the others is over; a service has
 * the values of the old process. Printed once. */
static void warn_of_init(struct ring_job *j, uint32_t rank)
{
    struct fiber_ring *r = j->ring;
    const char *text = fbr_ring_requests_replaced(j);

    if (j->ranks[rank].flags & FBR_RANK_MET)
        text = "if it calls MPI_Init it waits forever, unless all others call it, too: MPI admits "
               "no rank later. Use --on-failure restart to start all ranks again";
    if (!text || r->warned)
        return;
    r->warned = true;
    fbr_ring_print(r, "%s", text);
}

/* The rank is starting until its agent sends STARTED or FAILED. */
static void expect(struct ring_job *j, uint32_t rank)
{
    struct ring_rank *k = &j->ranks[rank];

    k->state = RANK_STARTING;
    k->flags = 0;
    j->ended--;
    if (k->pid)
        j->started--;
    k->pid = 0;
    fbr_rank_output_again(j, rank, fbr_ring_job_restarts(&j->job, rank));
}

/* Prints the failure and what is started again, and how often it was. */
static void print_again(struct fiber_ring *r, const char *failure, const char *what,
                        const struct fbr_restarts *n, bool taken)
{
    char count[60];

    fbr_restart_describe(n, r->max_restarts, taken, count, sizeof(count));
    fbr_ring_print(r, "%s; %s (%s)", failure, what, count);
}

/* Goes on without the rank. Returns true if the rank is started again. */
static bool go_on(struct ring_job *j, uint32_t rank, int code, const char *text)
{
    struct fiber_ring *r = j->ring;
    struct fbr_restarts *n = &j->ranks[rank].again;
    bool taken = is_taken(j, rank);
    bool again = r->options.on_failure == FIBER_RING_REPLACE &&
                 fbr_restart_again(n, r->max_restarts, taken) &&
                 fbr_ring_job_restarted(&j->job, rank) == 0;

    if (!again || (j->ranks[rank].flags & FBR_RANK_MET))
        send_about(j, FBR_RING_LOST, rank, (uint32_t)code);
    if (!again) {
        uint32_t living = j->job.info.size - j->ended;

        if (living > 0)
            fbr_ring_print(r, "%s; the others go on (%u of %u)", text, living, j->job.info.size);
        else if (fbr_ring_living(r) > 0)
            fbr_ring_print(r, "%s; ranks of other jobs go on", text);
        else if (any_ended_well(r))
            fbr_ring_print(r, "%s; the others had already ended with code 0", text);
        return false;
    }
    print_again(r, text, "it is replaced", n, taken);
    warn_of_init(j, rank);
    send_about(j, FBR_RING_AGAIN, rank, fbr_ring_job_restarts(&j->job, rank));
    fbr_ring_requests_idle(fbr_ring_agent_of(j, rank), false);
    expect(j, rank);
    return true;
}

/* Decides whether all ranks start again. If not, adds to the report how often they did. */
static enum ring_event plan_restart(struct fiber_ring *r, const char *text, bool taken)
{
    struct ring_failure *f = &r->failure;
    size_t n = strlen(f->hint);

    if (r->options.on_failure != FIBER_RING_RESTART)
        return R_ON_FAILED;
    if (!fbr_restart_again(&r->again, r->max_restarts, taken)) {
        if (n > 0)
            snprintf(f->hint + n, sizeof(f->hint) - n, "\n");
        n = strlen(f->hint);
        fbr_restart_spent(&r->again, taken, f->hint + n, sizeof(f->hint) - n);
        return R_ON_FAILED;
    }
    print_again(r, text, "starting all ranks again", &r->again, taken);
    snprintf(r->last_failure, sizeof(r->last_failure), "%.*s", (int)sizeof(r->last_failure) - 1,
             text);
    return R_ON_AGAIN;
}

void fbr_ring_rank_failed(struct ring_job *j, uint32_t rank, const char *kernel)
{
    struct fiber_ring *r = j->ring;
    int code = j->ranks[rank].code;
    const char *hint;
    char text[1024];
    bool alone;

    if (r->state != R_RUNNING)
        return;
    decode(j, rank, kernel, text, sizeof(text), &hint);
    alone = code == 0 && !(j->ranks[rank].flags & FBR_RANK_MET); /* it would run alone again */
    if (r->options.on_failure == FIBER_RING_REPLACE && no_rejoin(j, rank)) {
        hint = code ? no_rejoin(j, rank) : hint;
    } else if (r->options.on_failure >= FIBER_RING_SHRINK && !alone) {
        if (go_on(j, rank, code, text) || fbr_ring_living(r) > 0 || any_ended_well(r))
            return;
        snprintf(text + strlen(text), sizeof(text) - strlen(text), "; it was the last one");
    }
    record(r, j, rank, code, hint, text);
    fbr_ring_on(r, alone ? R_ON_FAILED : plan_restart(r, text, is_taken(j, rank)));
}

void fbr_ring_rank_missed(struct ring_job *j, uint32_t rank)
{
    char who[300];

    if (j->ring->state != R_RUNNING || j->told_missed)
        return;
    j->told_missed = true;
    fbr_ring_name_rank(j, rank, who, sizeof(who));
    fbr_ring_print(
        j->ring,
        "%s loaded an MPI library some seconds ago, but has no connection to Fiber's server for "
        "MPI; if it has called MPI_Init already, it runs alone, as an MPI_COMM_WORLD of one rank: "
        "see `fiber doctor`",
        who);
}

/* MPI's own text has the reason, unless it is empty ("N/A" in Open MPI). An abort concerns all
 * ranks: no ring goes on without the rank, but all may start again. */
void fbr_ring_rank_aborted(struct ring_job *j, uint32_t rank, int code, const char *why)
{
    struct fiber_ring *r = j->ring;
    const struct ring_rank *k = &j->ranks[rank];
    const struct fbr_bridge_ops *bridge = fbr_bridge_met(k->how);
    bool known = bridge && bridge->abort_said && has_said(k, bridge->abort_said);
    bool silent = !why[0] || !strcmp(why, "N/A");
    const char *hint = known ? bridge->abort_advice : "";
    char who[300], text[1024];

    fbr_ring_name_rank(j, rank, who, sizeof(who));
    snprintf(text, sizeof(text), "%s called abort with code %d%s%s", who, code, silent ? "" : ": ",
             silent ? "" : why);
    code = code & 255 ? code & 255 : 1;
    if (r->state != R_RUNNING) {
        fbr_ring_fail(r, j, rank, code, hint, "%s", text);
        return;
    }
    record(r, j, rank, code, hint, text);
    fbr_ring_on(r, plan_restart(r, text, false));
}

/* Steps through the ranks that the agent had in jobs that go on: *j NULL begins, and false ends. */
static bool next_rank(const struct ring_agent *a, struct ring_job **j, uint32_t *rank)
{
    if (*j && ++*rank < fbr_ring_ranks_of(*j, a).end)
        return true;
    for (*j = *j ? (*j)->next : a->ring->jobs; *j; *j = (*j)->next) {
        struct ring_ranks had = fbr_ring_ranks_of(*j, a);

        *rank = had.first;
        if (!(*j)->over && !(*j)->refused && had.first < had.end)
            return true;
    }
    return false;
}

/* Starts a new agent, which starts the ranks of the old one again; not if one of these ranks had
 * ended well. */
static bool replace_agent(struct ring_agent *a, const char *text, bool taken)
{
    struct fiber_ring *r = a->ring;
    struct ring_job *j = NULL;
    uint32_t m;

    while (next_rank(a, &j, &m))
        if (j->ranks[m].code == 0)
            return false;
    if (r->options.on_failure != FIBER_RING_REPLACE ||
        !fbr_restart_again(&a->again, r->max_restarts, taken) || fbr_ring_start_agent(a) < 0)
        return false;
    print_again(r, text, "its ranks are replaced", &a->again, taken);
    while (next_rank(a, &j, &m)) {
        struct ring_rank *k = &j->ranks[m];

        if (k->flags & FBR_RANK_MET)
            send_about(j, FBR_RING_LOST, m, (uint32_t)-SIGKILL);
        warn_of_init(j, m);
        /* counted for the new agent; not counted without memory */
        fbr_ring_job_restarted(&j->job, m);
        ++*(taken ? &k->again.taken : &k->again.failed);
        expect(j, m);
    }
    return true;
}

/* Asks for another agent: the cluster took this one away before it had anything to do. */
static bool ask_again(struct ring_agent *a, const char *text)
{
    struct fiber_ring *r = a->ring;

    if (r->state != R_WAITING || !r->max_restarts ||
        !fbr_restart_again(&a->again, r->max_restarts, true) || fbr_ring_start_agent(a) < 0)
        return false;
    print_again(r, text, "another agent is requested", &a->again, true);
    return true;
}

/* Replaces the agent's number in "agent-1 could not be started by the Docker engine: ...", which
 * tells a user nothing. */
static void format_not_started(char *text, size_t size, const char *report)
{
    const char *blank = strchr(report, ' ');

    if (blank && !strncmp(blank, " could not be ", strlen(" could not be ")))
        snprintf(text, size, "an agent%s", blank);
    else
        snprintf(text, size, "an agent could not be started: %s", report);
}

void fbr_ring_agent_lost(struct ring_agent *a, const char *report, bool taken)
{
    struct fiber_ring *r = a->ring;
    const char *hint = NULL; /* why a new process cannot take the place of one of its ranks */
    struct ring_job *j = NULL;
    uint32_t m;
    char text[1024];

    if (!r->next_job || !a->host[0])
        format_not_started(text, sizeof(text), report);
    else
        snprintf(text, sizeof(text), "the agent on %s is gone, and its ranks with it: %s", a->host,
                 report);
    if (fbr_ring_step(r->state, R_ON_FAILED).action == R_DO_NOTHING)
        return;
    if (taken && ask_again(a, text))
        return;
    while (r->options.on_failure == FIBER_RING_REPLACE && !hint && next_rank(a, &j, &m))
        hint = no_rejoin(j, m);
    if (!hint && r->state == R_RUNNING && replace_agent(a, text, taken))
        return;
    if (!hint && r->options.on_failure >= FIBER_RING_SHRINK && r->next_job &&
        fbr_ring_living(r) > 0) {
        fbr_ring_print(r, "%s; the others go on", text);
        while (next_rank(a, &j, &m))
            send_about(j, FBR_RING_LOST, m, (uint32_t)-SIGKILL);
        return;
    }
    r->failed_starts += !a->host[0];
    record(r, NULL, 0, r->next_job ? -SIGKILL : 125, hint ? hint : "", text);
    fbr_ring_on(r, r->next_job ? plan_restart(r, text, taken) : R_ON_FAILED);
}

/* ---- The report ---- */

char *fbr_ring_report(struct fiber_ring *r, bool kept)
{
    const struct ring_failure *f = &r->failure;
    const struct ring_rank *k = f->job ? &f->job->ranks[f->rank] : NULL;
    char text[sizeof(f->text) + 1];
    struct fbr_buf b = {0};

    if (f->code) {
        snprintf(text, sizeof(text), "%s", f->text);
        fbr_printable_end(text, sizeof(text));
        fbr_putf(&b, "%s\n", text);
    }
    for (int i = 0, any = 0; k && i < 2; i++) {
        if (!k->out[i].tail.len || (!kept && fbr_ring_shown_last(f->job, f->rank, i + 1)))
            continue;
        fbr_put(&b, "its last lines:\n", any++ ? 0 : 16);
        fbr_line_report(&k->out[i], "    ", "\n", &b);
    }
    if (f->hint[0])
        fbr_putf(&b, "%s\n", f->hint);
    return fbr_buf_text(&b);
}

void fbr_ring_print_report(struct fiber_ring *r, const char *report)
{
    for (const char *at = report ? report : ""; *at;) {
        size_t n = strcspn(at, "\n"), shown = n;

        while (shown > 0 && strchr(" \t\r", at[shown - 1]))
            shown--;
        fbr_ring_print(r, "%.*s", (int)shown, at);
        at += n + (at[n] == '\n');
    }
}
