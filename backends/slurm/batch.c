/* batch.c - jobs of their own, by sbatch.
 *
 * One sbatch starts a submission: a job, or an array of jobs that differ only in their tickets.
 *
 *     COLLECTING  its timer runs; jobs with the same needs join it
 *     SUBMITTING  sbatch runs. If Slurm did not answer, the submission waits and tries again. If
 *                 the answer was lost, Slurm's jobs are searched for our comment; otherwise there
 *                 would be two submissions
 *     ACCEPTED    sbatch succeeded, but printed no id: the same search finds it, or none of its
 *                 jobs can be used
 *     SUBMITTED   it has an id. One squeue for all submissions reports the states, each poll;
 *                 sooner after a request to Slurm, and later when Slurm is slow
 *     REFUSED     none of its jobs can start; it is freed when they are
 *
 * A job's end is reported when Slurm reports it. A job that is missing in several lists is looked
 * up in the accounting; its end is then reported as unknown. A list that fails gives no information
 * about any job.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <utlist.h>

#include "backends/slurm/batch_priv.h"
#include "backends/slurm/query.h"
#include "runtime/base/environ.h"
#include "runtime/base/log.h"

#define SOON_MS 100
#define CANCEL_MS 10 /* in which other jobs may join the cancellation */
#define SLOW 10      /* after a query that took t, the next one follows after 10 t */
#define SLOW_MAX_MS 30000
#define TOOL_MS 60000
#define LOOK_MS 20000
#define CLOSE_MS 5000
#define FORGOTTEN 3 /* lists without the job */
#define FORGOTTEN_MS 10000
#define CANNOT_START 125
#define LEFT "squeue --noheader --me --format=\"%F %j\"" /* lines "ID NAME" of all jobs */
#define ASK "squeue --noheader --array --states=all --Format="

static void read_output(struct fbr_slurm_batch *b);
static void step(struct batch_job *j, enum fbr_batch_event event, const struct fbr_slurm_end *how);

/* ---- Small things ---- */

static void notify(struct batch_job *j, const struct fbr_job_event *e)
{
    if (j->user)
        j->of->b->env.event(j->user, e);
}

static void id_of(const struct batch_job *j, char id[FBR_SLURM_ID + 16])
{
    if (j->of->n > 1)
        snprintf(id, FBR_SLURM_ID + 16, "%s_%u", j->of->id, j->index);
    else
        snprintf(id, FBR_SLURM_ID + 16, "%s", j->of->id);
}

void fbr_slurm_path(const struct submission *s, unsigned index, const char *kind,
                    char path[PATH_MAX])
{
    snprintf(path, PATH_MAX, "%.4000s/%u.%u.%s", s->b->dir.path, s->seq, index, kind);
}

static void tick_in(struct fbr_slurm_batch *b, uint64_t ms)
{
    b->due_ms = fbr_now_ms() + ms;
    fbr_timer_start(&b->tick, ms, 0);
}

/* Schedules the next query of the states, unless one is due earlier. */
static void look_soon(struct fbr_slurm_batch *b)
{
    b->delay_ms = b->settings->poll_ms < SOON_MS ? b->settings->poll_ms : SOON_MS;
    if (!b->looking && (!fbr_timer_runs(&b->tick) || b->due_ms > fbr_now_ms() + b->delay_ms))
        tick_in(b, b->delay_ms);
}

static void free_if_empty(struct submission *s)
{
    if (s->stage < SUBMITTED)
        return;
    for (unsigned i = 0; i < s->n; i++)
        if (s->jobs[i])
            return;
    DL_DELETE(s->b->all, s);
    fbr_slurm_submission_free(s);
}

static void maybe_free(struct batch_job *j)
{
    struct submission *s = j->of;

    if (j->state != TOLD || j->user || j->reading)
        return;
    s->jobs[j->index] = NULL;
    DL_DELETE(s->b->jobs, j);
    free(j);
    free_if_empty(s);
}

static void remove_files(const struct batch_job *j)
{
    static const char *const kinds[] = {"ticket", "out", "err"};
    char path[PATH_MAX];

    for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
        fbr_slurm_path(j->of, j->index, kinds[i], path);
        unlink(path);
    }
}

/* ---- The end of a job ---- */

/* Reports the end, when all output has been read. */
static void finish(struct batch_job *j, const struct fbr_slurm_end *how)
{
    remove_files(j);
    notify(j, &(struct fbr_job_event){.type = FBR_JOB_EXITED,
                                      .code = j->end.code,
                                      .text = j->end.text,
                                      .disrupted = j->end.disrupted});
    step(j, ON_TOLD, NULL);
    maybe_free(j);
}

static void end(struct batch_job *j, const struct fbr_slurm_end *how)
{
    j->end = *how;
    j->paused = false;
    j->again = true;
}

static void abandon(struct batch_job *j, const struct fbr_slurm_end *how)
{
    end(j, how);
    j->end.code = CANNOT_START;
    snprintf(j->end.text, sizeof(j->end.text), "cannot start%.300s",
             strchr(how->text, ':')); /* after "Slurm job 39", which the report names */
    j->want = SIGKILL;
}

static void refuse(struct batch_job *j, const struct fbr_slurm_end *how)
{
    j->end = *how;
    finish(j, NULL);
}

static void refuse_killed(struct batch_job *j, const struct fbr_slurm_end *how)
{
    j->end = (struct fbr_slurm_end){.code = -j->want,
                                    .text = "was ended before it was submitted to Slurm"};
    finish(j, NULL);
}

void fbr_slurm_refuse_all(struct submission *s, const char *what, const char *why)
{
    struct fbr_slurm_end end = {.code = CANNOT_START};

    snprintf(end.text, sizeof(end.text), "%s%.300s", what, why);
    fbr_timer_stop(&s->timer); /* nothing is left to submit */
    s->stage = SUBMITTING;     /* no job joins it, and the last of its jobs does not free it */
    for (unsigned i = 0; i < s->n; i++)
        step(s->jobs[i], ON_REFUSED, &end);
    s->stage = REFUSED;
    free_if_empty(s);
}

/* ---- Output of jobs ---- */

static void notify_output(struct batch_job *j, int stream, const void *data, size_t len)
{
    notify(j, &(struct fbr_job_event){
                  .type = FBR_JOB_OUTPUT, .stream = stream, .text = "", .data = data, .len = len});
}

static void on_stderr(void *user, const void *data, size_t len)
{
    notify_output(user, 2, data, len);
}

static void on_reads(void *user, struct fbr_slurm_reads *r)
{
    struct fbr_slurm_batch *b = user;
    bool more = false, unread = false;

    b->reads = NULL;
    for (size_t i = 0; i < r->n; i++) {
        struct batch_job *j = r->at[i].user;
        int stream = r->at[i].stream;

        j->again |= r->at[i].len == FBR_SLURM_READ || r->at[i].unread;
        unread |= r->at[i].unread;
        j->read[stream - 1] += r->at[i].len;
        if (r->at[i].len && stream == 2)
            fbr_slurm_lines_add(&j->err, (const char *)r->at[i].data, r->at[i].len);
        else if (r->at[i].len)
            notify_output(j, 1, r->at[i].data, r->at[i].len);
    }
    for (size_t i = 1; i < r->n; i += 2) { /* two files for each job */
        struct batch_job *j = r->at[i].user;

        j->reading = false;
        more |= j->again;
        if (fbr_batch_takes(j->state, ON_READ) && !j->again) {
            fbr_slurm_lines_end(&j->err);
            step(j, ON_READ, NULL);
        } else {
            maybe_free(j);
        }
    }
    if (more && !unread) /* else the next tick reads */
        read_output(b);
}

static bool wants_read(const struct batch_job *j)
{
    return !j->paused && fbr_batch_may_have_written(j->state);
}

static void read_output(struct fbr_slurm_batch *b)
{
    static const char *const kinds[] = {"out", "err"};
    struct fbr_slurm_reads *r;
    struct batch_job *j;
    size_t n = 0;

    if (b->reads)
        return;
    DL_FOREACH(b->jobs, j)
        n += wants_read(j);
    r = n ? fbr_slurm_reads_new(2 * n) : NULL;
    if (!r)
        return;
    n = 0;
    DL_FOREACH(b->jobs, j) {
        if (!wants_read(j))
            continue;
        j->reading = true;
        j->again = false;
        for (int k = 0; k < 2; k++, n++) {
            r->at[n].user = j;
            r->at[n].stream = k + 1;
            r->at[n].offset = j->read[k];
            fbr_slurm_path(j->of, j->index, kinds[k], r->at[n].path);
        }
    }
    r->done = on_reads;
    r->user = b;
    b->reads = r;
    fbr_slurm_reads_start(r, b->env.loop);
}

/* ---- Cancelling ---- */

static void on_cancelled(void *user, const struct fbr_tool_result *r)
{
    struct fbr_slurm_batch *b = user;

    b->cancels--;
    if (r->code)
        fbr_info("slurm: scancel ended with code %d: %.200s", r->code, r->err);
}

static const char *const ways[] = {"--quiet", "--batch --signal=TERM", "--full --signal=KILL"};

static void cancel_soon(struct batch_job *j, const struct fbr_slurm_end *how)
{
    fbr_timer_start(&j->of->b->cancel, CANCEL_MS, 0);
}

static bool goes(const struct batch_job *j, enum fbr_batch_way way)
{
    return j->want && fbr_batch_way(j->state, j->want) == way;
}

/* One scancel for all jobs that are signalled in this way. If it cannot be started, it is tried
 * again. */
static void cancel_those(struct fbr_slurm_batch *b, enum fbr_batch_way way)
{
    struct fbr_args w = {0};
    struct batch_job *j;
    size_t options;
    char text[64], id[FBR_SLURM_ID + 16];

    snprintf(text, sizeof(text), "scancel %s", ways[way]);
    fbr_args_split(&w, text, NULL);
    options = w.n;
    DL_FOREACH(b->jobs, j)
        if (goes(j, way)) {
            id_of(j, id);
            fbr_args_addf(&w, "%s", id);
        }
    if (w.failed || (w.n > options && fbr_slurm_run(b->tools, &w, TOOL_MS, on_cancelled, b) < 0)) {
        fbr_timer_start(&b->cancel, b->settings->poll_ms, 0);
    } else if (w.n > options) {
        b->cancels++;
        look_soon(b);
        DL_FOREACH(b->jobs, j)
            if (goes(j, way)) {
                j->asked = j->want;
                j->want = 0;
            }
    }
    fbr_args_fini(&w);
}

static void on_cancel_time(void *arg)
{
    struct fbr_slurm_batch *b = arg;

    for (enum fbr_batch_way way = CANCEL; way < NO_WAY; way++)
        cancel_those(b, way);
}

/* ---- States ---- */

static void notify_started(struct batch_job *j, const struct fbr_slurm_end *how)
{
    char text[FBR_SLURM_ID + 16];

    id_of(j, text);
    notify(j, &(struct fbr_job_event){.type = FBR_JOB_STARTED, .text = text});
}

static void notify_started_cancel(struct batch_job *j, const struct fbr_slurm_end *how)
{
    notify_started(j, how);
    fbr_timer_start(&j->of->b->cancel, 0, 0);
}

void fbr_slurm_submitted(struct submission *s, const char *id)
{
    s->stage = SUBMITTED;
    snprintf(s->id, sizeof(s->id), "%.40s", id);
    fbr_info("slurm: job %s has %u of ours", s->id, s->n);
    for (unsigned i = 0; i < s->n; i++)
        step(s->jobs[i], ON_SUBMITTED, NULL);
    look_soon(s->b);
}

static void notify_waiting(struct batch_job *j, const struct fbr_slurm_end *how)
{
    if (strcmp(j->pending, how->text) == 0)
        return;
    snprintf(j->pending, sizeof(j->pending), "%s", how->text);
    notify(j, &(struct fbr_job_event){.type = FBR_JOB_PENDING, .text = j->pending});
}

static void notify_running(struct batch_job *j, const struct fbr_slurm_end *how)
{
    notify(j, &(struct fbr_job_event){.type = FBR_JOB_PENDING, .text = how->text, .runs = 1});
}

void fbr_slurm_notify_pending(struct batch_job *j, const char *text)
{
    struct fbr_slurm_end why = {0};

    snprintf(why.text, sizeof(why.text), "%s", text);
    step(j, ON_WAITS, &why);
}

/* Finds the submission with this id, "12" or "12_3". */
static struct submission *find_submission(struct fbr_slurm_batch *b, const char *id)
{
    size_t n = strcspn(id, "_");
    struct submission *s;

    DL_FOREACH(b->all, s)
        if (s->stage == SUBMITTED && strlen(s->id) == n && strncmp(s->id, id, n) == 0)
            break;
    return s;
}

/* A job that has not joined yet has no time to do so while it is suspended. */
static void tell_suspended(struct batch_job *j, bool suspended, const char *text)
{
    if (j->suspended == suspended)
        return;
    j->suspended = suspended;
    fbr_info("slurm: %s", text);
    notify(j, &(struct fbr_job_event){.type = FBR_JOB_SUSPENDED, .code = suspended, .text = ""});
    notify(j, &(struct fbr_job_event){.type = FBR_JOB_PENDING, .text = text, .runs = !suspended});
}

static void on_state(struct batch_job *j, const struct fbr_slurm_job *said)
{
    bool suspended = fbr_slurm_suspended(said->state);
    struct fbr_slurm_end how = {0};
    enum fbr_batch_event event;

    j->awaited = false;
    j->missing = 0;
    switch (fbr_slurm_phase(said->state)) {
    case FBR_SLURM_WAITS:
        event = fbr_slurm_waits(said, how.text, sizeof(how.text)) ? ON_NEVER : ON_WAITS;
        step(j, event, &how);
        break;
    case FBR_SLURM_RUNS:
        snprintf(how.text, sizeof(how.text),
                 suspended ? "Slurm job %s is suspended on %s"
                           : "Slurm job %s runs on %s: if that cannot reach this host, set bind",
                 said->id, said->node);
        step(j, ON_RUNS, &how);
        tell_suspended(j, suspended, how.text);
        break;
    case FBR_SLURM_ENDED:
        fbr_slurm_end(said, j->asked, j->of->job->memory, &how);
        step(j, ON_ENDED, &how);
        break;
    case FBR_SLURM_LEAVES:
        break;
    case FBR_SLURM_ODD:
        fbr_debug("slurm: job %s has the state %s, which is unknown", said->id, said->state);
        break;
    }
}

/* A line "12" is about the jobs of array 12 that have no line "12_3": those that were cancelled
 * before they had begun. */
static void read_rest(struct fbr_slurm_batch *b)
{
    struct submission *s;
    struct batch_job *j;

    DL_FOREACH(b->jobs, j)
        if (j->awaited && j->of->rest.id[0])
            on_state(j, &j->of->rest);
    DL_FOREACH(b->all, s)
        s->rest.id[0] = '\0';
}

/* Returns how many lines were about jobs. */
static size_t read_lines(struct fbr_slurm_batch *b, char *text,
                         bool (*parse)(char *line, struct fbr_slurm_job *job))
{
    char *rest = NULL;
    size_t n = 0;

    for (char *line = strtok_r(text, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest)) {
        struct fbr_slurm_job said;
        const char *element;
        struct submission *s;
        unsigned long index;

        if (!parse(line, &said))
            continue;
        n++;
        element = strchr(said.id, '_');
        index = element ? strtoul(element + 1, NULL, 10) : 0;
        s = find_submission(b, said.id);
        if (s && s->n > 1 && !element)
            s->rest = said;
        else if (s && index < s->n && s->jobs[index])
            on_state(s->jobs[index], &said);
    }
    read_rest(b);
    return n;
}

static bool forgotten(const struct batch_job *j)
{
    return fbr_batch_takes(j->state, ON_FORGOTTEN) && j->missing >= FORGOTTEN &&
           fbr_now_ms() - j->missed_ms >= FORGOTTEN_MS;
}

static void on_accounts(void *user, const struct fbr_tool_result *r)
{
    struct fbr_slurm_end end = {.code = FBR_EXIT_UNKNOWN,
                                .text = "Slurm no longer knows it, and its exit code is unknown"};
    /* Slurm keeps no record of an array's job that is cancelled while others of the array wait. */
    struct fbr_slurm_end waited = {.code = FBR_EXIT_UNKNOWN,
                                   .text = "was probably cancelled while it waited: Slurm no "
                                           "longer knows it"};
    struct fbr_slurm_batch *b = user;
    struct batch_job *j;

    b->accounting = false;
    if (r->code == 0)
        read_lines(b, r->out, fbr_slurm_sacct_line);
    DL_FOREACH(b->jobs, j)
        if (forgotten(j))
            step(j, ON_FORGOTTEN, j->state == PENDING ? &waited : &end);
    read_output(b);
}

/* Adds the ids of submissions that have such jobs, separated by commas. */
static int add_ids(struct fbr_slurm_batch *b, struct fbr_args *w, const char *option,
                   bool (*has)(const struct submission *s))
{
    struct submission *s;
    struct fbr_buf ids = {0};
    int rc = 0;

    fbr_putf(&ids, "%s", option);
    DL_FOREACH(b->all, s) {
        if (s->stage != SUBMITTED || !has(s))
            continue;
        fbr_putf(&ids, "%s%s", rc > 0 ? "," : "", s->id);
        rc++;
    }
    if (ids.failed || fbr_args_add(w, (const char *)ids.data, ids.len) < 0)
        rc = -ENOMEM;
    fbr_buf_fini(&ids);
    return rc;
}

static bool has_forgotten(const struct submission *s)
{
    for (unsigned i = 0; i < s->n; i++)
        if (s->jobs[i] && forgotten(s->jobs[i]))
            return true;
    return false;
}

static bool has_living(const struct submission *s)
{
    for (unsigned i = 0; i < s->n; i++)
        if (s->jobs[i] && s->jobs[i]->state != TOLD)
            return true;
    return false;
}

static void count_missing(struct fbr_slurm_batch *b)
{
    const char *cluster = fbr_getenv("SLURM_CLUSTERS"); /* sacct alone does not read it */
    struct fbr_args w = {0};
    struct batch_job *j;
    bool any = false;

    DL_FOREACH(b->jobs, j) {
        if (!j->awaited)
            continue;
        if (j->missing++ == 0)
            j->missed_ms = fbr_now_ms();
        any |= forgotten(j);
    }
    if (!any || b->accounting)
        return;
    b->accounting = true;
    if (fbr_args_split(&w, "sacct --noheader --allocations --parsable2 --format=" FBR_SLURM_SACCT,
                       NULL) < 0 ||
        (cluster && cluster[0] && fbr_args_addf(&w, "--clusters=%s", cluster) < 0) ||
        add_ids(b, &w, "--jobs=", has_forgotten) <= 0 ||
        fbr_slurm_run(b->tools, &w, TOOL_MS, on_accounts, b) < 0)
        on_accounts(b, &(struct fbr_tool_result){.code = FBR_EXIT_UNKNOWN, .out = (char[]){""}});
    fbr_args_fini(&w);
}

static void on_states(void *user, const struct fbr_tool_result *r)
{
    struct fbr_slurm_batch *b = user;
    uint64_t slow = SLOW * (fbr_now_ms() - b->looked_ms);
    char line[256], text[FBR_SLURM_TEXT];
    struct batch_job *j;

    b->looking = false;
    fbr_slurm_refusal(r->err, line, sizeof(line));
    if (r->code == 0 || strstr(line, "Invalid job id")) { /* Slurm has none of them */
        char *list = fbr_slurm_list(r->out);
        bool blank = list[0] == '\0';

        /* otherwise the output is not a list */
        if (read_lines(b, list, fbr_slurm_squeue_line) || blank)
            count_missing(b);
        on_cancel_time(b); /* those that would wait for ever, before their ends are reported */
    } else {
        snprintf(text, sizeof(text), "Slurm does not report the states: %.200s",
                 r->code == -SIGKILL ? "squeue gave no answer in time" : line);
        fbr_info("slurm: squeue ended with code %d: %s", r->code, line);
        DL_FOREACH(b->jobs, j)
            if (j->awaited)
                fbr_slurm_notify_pending(j, text);
    }
    read_output(b);
    b->delay_ms = 2 * b->delay_ms < b->settings->poll_ms ? 2 * b->delay_ms : b->settings->poll_ms;
    slow = slow < SLOW_MAX_MS ? slow : SLOW_MAX_MS;
    tick_in(b, b->delay_ms > slow ? b->delay_ms : slow);
}

static void on_tick(void *arg)
{
    struct fbr_slurm_batch *b = arg;
    struct fbr_args w = {0};
    struct batch_job *j;
    int n;

    if (b->looking) { /* squeue may take long; the output of jobs does not wait for it */
        read_output(b);
        tick_in(b, b->settings->poll_ms);
        return;
    }
    fbr_args_split(&w, ASK FBR_SLURM_SQUEUE, NULL);
    n = add_ids(b, &w, "--jobs=", has_living);
    if (n > 0 && !w.failed) {
        DL_FOREACH(b->jobs, j)
            j->awaited = j->of->stage == SUBMITTED;
        b->looked_ms = fbr_now_ms();
        b->looking = fbr_slurm_run(b->tools, &w, LOOK_MS, on_states, b) == 0;
    }
    if (n != 0) /* without memory: later */
        tick_in(b, b->settings->poll_ms);
    fbr_args_fini(&w);
}

/* ---- The table's actions ---- */

static void step(struct batch_job *j, enum fbr_batch_event event, const struct fbr_slurm_end *how)
{
    static void (*const actions[FBR_BATCH_ACTIONS])(struct batch_job *,
                                                    const struct fbr_slurm_end *) = {
        [DO_TELL_STARTED] = notify_started,
        [DO_TELL_STARTED_CANCEL] = notify_started_cancel,
        [DO_TELL_WAITING] = notify_waiting,
        [DO_TELL_RUNNING] = notify_running,
        [DO_CANCEL_SOON] = cancel_soon,
        [DO_GIVE_UP] = abandon,
        [DO_END] = end,
        [DO_REFUSE] = refuse,
        [DO_REFUSE_KILLED] = refuse_killed,
        [DO_FINISH] = finish,
    };
    const struct fbr_batch_step s = fbr_batch_step(j->state, event);

    j->state = s.next;
    if (actions[s.action])
        actions[s.action](j, how);
}

/* ---- Jobs of dead masters ---- */

static void on_dead(void *user, const char *path, const char *tag)
{
    struct fbr_slurm_batch *b = user;
    struct fbr_error err = {0, ""};

    fbr_args_addf(&b->dead, ".%s.", tag);
    fbr_slurm_dir_remove(path, &err);
    fbr_info("slurm: %s was left behind: %s", path, err.code ? err.text : "removed");
}

/* Makes a scancel of the jobs, among those that LEFT prints, whose names have one of the tags;
 * false: there are none. */
static bool cancel_tagged(const struct fbr_args *tags, char *lines, struct fbr_args *w)
{
    char *rest = NULL;

    if (fbr_args_split(w, "scancel --quiet", NULL) < 0)
        return false;
    for (char *at = strtok_r(lines, "\n", &rest); at; at = strtok_r(NULL, "\n", &rest)) {
        const char *name = strstr(at, " fiber-");

        for (size_t i = 0; i < tags->n && name; i++)
            if (strstr(name, tags->at[i])) {
                fbr_args_add(w, at, (size_t)(name - at));
                break;
            }
    }
    return w->n > 2;
}

static void on_left(void *user, const struct fbr_tool_result *r)
{
    struct fbr_slurm_batch *b = user;
    struct fbr_args w = {0};

    if (r->code == 0 && cancel_tagged(&b->dead, r->out, &w) &&
        fbr_slurm_run(b->tools, &w, TOOL_MS, on_cancelled, b) == 0)
        b->cancels++;
    fbr_args_fini(&w);
    fbr_args_fini(&b->dead);
}

static void cancel_left(struct fbr_slurm_batch *b)
{
    struct fbr_args w = {0};

    if (b->dead.n && fbr_args_split(&w, LEFT, NULL) == 0)
        fbr_slurm_run(b->tools, &w, TOOL_MS, on_left, b);
    fbr_args_fini(&w);
}

/* The first job needs the folder: a backend that is opened to look around makes and removes
 * nothing. */
static int open_dir(struct fbr_slurm_batch *b, struct fbr_error *err)
{
    int rc = fbr_slurm_dir_open(&b->dir, b->base, on_dead, b, err);

    cancel_left(b);
    return rc;
}

/* ---- fiber gc ---- */

struct sweeping {
    int dry;
    fbr_backend_swept *swept;
    void *user;
};

static void on_left_dir(void *user, const char *path, const char *tag)
{
    const struct sweeping *s = user;
    struct fbr_error err = {0, "its master is gone"};
    int rc = s->dry ? 0 : fbr_slurm_dir_remove(path, &err);

    s->swept(s->user, &(struct fbr_swept){.kind = "directory",
                                          .id = path,
                                          .why = err.text,
                                          .action = s->dry   ? FBR_SWEPT_WOULD
                                                    : rc < 0 ? FBR_SWEPT_FAILED
                                                             : FBR_SWEPT_REMOVED});
}

/* ---- What the backend calls ---- */

static int find_base(const struct fbr_backend_env *env, char base[PATH_MAX], struct fbr_error *err)
{
    const char *dir = fbr_config_str(env->config, "slurm_dir"), *home = fbr_getenv("HOME"),
               *ours = fbr_getenv("FIBER_SLURM");
    size_t n = strlen(FBR_SLURM_OWN);

    if (ours && strncmp(ours, FBR_SLURM_OWN, n) == 0 && access(ours + n, W_OK | X_OK) == 0)
        snprintf(base, PATH_MAX, "%s", ours + n);
    else if (dir[0] == '/')
        snprintf(base, PATH_MAX, "%s", dir);
    else if (dir[0])
        return fbr_fail(err, -EINVAL, "slurm_dir must be an absolute path, not '%.200s'", dir);
    else if (!home || home[0] != '/')
        return fbr_fail(err, -EINVAL,
                        "HOME is not set: set slurm_dir to a folder that the nodes share");
    else
        snprintf(base, PATH_MAX, "%.2000s/.fiber", home);
    if (strpbrk(base, "%\\")) /* these have a meaning in the name of an output file */
        return fbr_fail(err, -EINVAL, "slurm_dir must have no %% and no \\ in it: %.200s", base);
    return 0;
}

int fbr_slurm_batch_open(struct fbr_slurm_batch **out, const struct fbr_backend_env *env,
                         const struct fbr_slurm_settings *settings, struct fbr_error *err)
{
    struct fbr_slurm_batch *b = calloc(1, sizeof(*b));
    int rc;

    if (!b)
        return fbr_fail(err, -ENOMEM, "out of memory");
    b->env = *env;
    b->settings = settings;
    fbr_master_id_self(b->master);
    if ((rc = find_base(env, b->base, err)) < 0 || (rc = fbr_tools_open(&b->tools, env, err)) < 0)
        goto fail;
    if (fbr_timer_init(&b->tick, env->loop, on_tick, b) < 0 ||
        fbr_timer_init(&b->cancel, env->loop, on_cancel_time, b) < 0) {
        rc = fbr_fail(err, -ENOMEM, "out of memory");
        goto fail;
    }
    *out = b;
    return 0;
fail:
    fbr_slurm_batch_close(b);
    return rc;
}

int fbr_slurm_batch_check(const struct fbr_slurm_batch *b, struct fbr_error *err)
{
    return fbr_slurm_dir_check(b->base, err);
}

void fbr_slurm_batch_sweep(const struct fbr_slurm_batch *b, int dry, fbr_backend_swept *swept,
                           void *user)
{
    struct sweeping s = {.dry = dry, .swept = swept, .user = user};

    fbr_slurm_dir_sweep(b->base, on_left_dir, &s);
}

/* These commands are waited for, because there is no loop any more. A submission may have no id
 * here, although Slurm has a job with its name; so squeue finds all of them. */
static void cancel_all(const struct fbr_slurm_batch *b)
{
    struct fbr_error err = {0, ""};
    struct fbr_args w = {0}, tag = {0};
    struct fbr_buf lines = {0};
    bool remain = fbr_slurm_ask_about(LEFT, "", NULL, CLOSE_MS, &lines, &err) < 0;

    fbr_args_addf(&tag, ".%s.", b->dir.tag);
    if (!remain && cancel_tagged(&tag, (char *)lines.data, &w)) /* it fails for ended jobs, too */
        remain = fbr_slurm_ask(&w, CLOSE_MS, NULL, &err) < 0 && err.code != -EIO;
    if (remain)
        fbr_warn("slurm: jobs may remain: %s", err.text);
    fbr_buf_fini(&lines);
    fbr_args_fini(&tag);
    fbr_args_fini(&w);
}

void fbr_slurm_batch_close(struct fbr_slurm_batch *b)
{
    struct submission *s, *next;
    struct batch_job *j, *next_job;

    if (!b)
        return;
    fbr_tools_close(b->tools); /* no sbatch runs after this */
    if (b->dir.tag[0] && (b->all || b->cancels))
        cancel_all(b);
    if (b->reads)
        b->reads->done = NULL;
    DL_FOREACH_SAFE(b->jobs, j, next_job)
        free(j);
    DL_FOREACH_SAFE(b->all, s, next)
        fbr_slurm_submission_free(s);
    fbr_timer_fini(&b->tick);
    fbr_timer_fini(&b->cancel);
    fbr_args_fini(&b->dead);
    fbr_slurm_dir_close(&b->dir);
    free(b);
}

int fbr_slurm_batch_start(struct fbr_slurm_batch *b, const struct fbr_job *asked, void *user,
                          void **handle, struct fbr_error *err)
{
    struct batch_job *j = calloc(1, sizeof(*j));
    struct submission *s = NULL, *at;
    struct fbr_job wide = *asked;
    const struct fbr_job *job = &wide;
    char path[PATH_MAX];
    int rc;

    if (!b->dir.path[0] && (rc = open_dir(b, err)) < 0)
        goto fail;
    wide.cpus = fbr_slurm_wish(asked);
    DL_FOREACH(b->all, at)
        if (!s && fbr_slurm_submission_takes(at, job))
            s = at;
    if (!s && j)
        s = fbr_slurm_submission_new(b, job);
    if (!j || !s) {
        rc = fbr_fail(err, -ENOMEM, "out of memory");
        goto fail;
    }
    fbr_slurm_path(s, s->n, "ticket", path);
    /* a submission without jobs frees itself when its timer fires */
    if (job->ticket && (rc = fbr_slurm_dir_write(path, job->ticket, job->ticket_len, err)) < 0)
        goto fail;
    j->user = user;
    j->of = s;
    j->err = (struct fbr_slurm_lines){.bytes = on_stderr, .user = j};
    j->index = s->n;
    s->jobs[s->n++] = j;
    DL_APPEND(b->jobs, j);
    *handle = j;
    return 0;
fail:
    free(j);
    return rc;
}

int fbr_slurm_batch_signal(void *handle, int sig)
{
    struct batch_job *j = handle;

    if (sig != SIGTERM && sig != SIGKILL)
        return -ENOTSUP;
    if (fbr_batch_takes(j->state, ON_KILL) && j->want != SIGKILL)
        j->want = sig;
    step(j, ON_KILL, NULL);
    return 0;
}

void fbr_slurm_batch_pause(struct fbr_slurm_batch *b, void *handle, int paused)
{
    struct batch_job *j = handle;

    j->paused = paused && j->state < UNWANTED;
    if (!paused)
        read_output(b);
}

void fbr_slurm_batch_release(void *handle)
{
    struct batch_job *j = handle;

    /* given up; its end is not reported */
    if (j->state != TOLD)
        fbr_slurm_batch_signal(j, SIGKILL);
    j->user = NULL;
    maybe_free(j);
}
