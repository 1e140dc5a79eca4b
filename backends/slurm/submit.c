/* submit.c - submissions: the jobs that one sbatch starts; batch.c has their states.
 *
 * The jobs get their program and arguments by the script, which is sbatch's standard input and has
 * no secret in it, and their variables by the environment, which sbatch passes on. So no list of
 * processes shows a part of the job.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <utlist.h>

#include "backends/slurm/batch_priv.h"
#include "backends/slurm/query.h"
#include "backends/tool/kept_job.h"
#include "runtime/base/environ.h"
#include "runtime/base/log.h"

#define COLLECT_MS 20
#define RETRY_MS 1000
#define RETRY_MAX_MS 15000
#define ASK_MS 60000
#define SBATCH_MS 120000
#define CANNOT_SUBMIT "could not be submitted to Slurm: "
#define NO_ID "sbatch printed no job id"

static void submit(void *arg);

void fbr_slurm_submission_free(struct submission *s)
{
    fbr_timer_fini(&s->timer);
    fbr_kept_job_free(s->job);
    free(s->jobs);
    free(s);
}

bool fbr_slurm_submission_takes(const struct submission *s, const struct fbr_job *job)
{
    const struct fbr_job *its = s->job;

    return s->stage == COLLECTING && s->n < FBR_SLURM_MAX_ARRAY && its->cpus == job->cpus &&
           its->gpus == job->gpus && its->memory == job->memory && !its->apart == !job->apart &&
           !its->ticket == !job->ticket && strcmp(its->file, job->file) == 0 &&
           !its->workdir == !job->workdir &&
           (!its->workdir || strcmp(its->workdir, job->workdir) == 0) &&
           fbr_strings_same(its->argv, job->argv) && fbr_strings_same(its->env, job->env);
}

/* Slurm did not answer, or its answer was lost. */
static void try_later(struct submission *s, const char *why)
{
    uint64_t ms = RETRY_MS << (s->tries < 4 ? s->tries : 4);
    char text[FBR_SLURM_TEXT];

    s->tries++;
    snprintf(text, sizeof(text), "sbatch is tried again, because Slurm did not accept it: %.200s",
             why);
    for (unsigned i = 0; i < s->n; i++)
        fbr_slurm_notify_pending(s->jobs[i], text);
    fbr_timer_start(&s->timer, ms < RETRY_MAX_MS ? ms : RETRY_MAX_MS, 0);
}

double fbr_slurm_wish(const struct fbr_job *job)
{
    return job->cpus <= 0 && job->width > 1 ? job->width : job->cpus;
}

struct submission *fbr_slurm_submission_new(struct fbr_slurm_batch *b, const struct fbr_job *job)
{
    struct submission *s = calloc(1, sizeof(*s));
    struct fbr_job needs = *job;
    char name[80];

    if (!s)
        return NULL;
    /* only whether there are any: each job has its own */
    needs.ticket = job->ticket ? "" : NULL;
    needs.ticket_len = job->ticket != NULL;
    needs.apart = job->apart ? "" : NULL;
    s->b = b;
    s->seq = b->seq++;
    fbr_slurm_name(job->name, name, sizeof(name));
    snprintf(s->name, sizeof(s->name), "fiber-%.32s-%.60s.%s.%u", job->run_uid, name, b->dir.tag,
             s->seq);
    s->job = fbr_kept_job(&needs);
    s->jobs = calloc(FBR_SLURM_MAX_ARRAY, sizeof(*s->jobs));
    if (!s->job || !s->jobs || fbr_timer_init(&s->timer, b->env.loop, submit, s) < 0) {
        fbr_slurm_submission_free(s);
        return NULL;
    }
    DL_APPEND(b->all, s);
    fbr_timer_start(&s->timer, COLLECT_MS, 0);
    return s;
}

/* Splits an array that is longer than Slurm accepts. Returns its second half, another submission;
 * NULL: it has one job, or memory is short. */
static struct submission *split(struct submission *s)
{
    unsigned half = s->n / 2;
    struct fbr_job job = *s->job;
    struct submission *t;

    job.name = "rest";
    job.run_uid = s->name + strlen("fiber-");
    t = half ? fbr_slurm_submission_new(s->b, &job) : NULL;
    if (!t)
        return NULL;
    for (unsigned i = half; i < s->n; i++) {
        char from[PATH_MAX], to[PATH_MAX];

        fbr_slurm_path(s, i, "ticket", from);
        fbr_slurm_path(t, i - half, "ticket", to);
        if (rename(from, to) < 0)
            fbr_debug("slurm: %s: %m", from);
        t->jobs[i - half] = s->jobs[i];
        t->jobs[i - half]->of = t;
        t->jobs[i - half]->index = i - half;
    }
    t->n = s->n - half;
    s->n = half;
    t->stage = SUBMITTING; /* no further job joins it */
    fbr_timer_start(&s->timer, 0, 0);
    return t;
}

/* Reads lines "ID COMMENT", of which one may be ours. */
static void on_found(void *user, const struct fbr_tool_result *r)
{
    struct submission *s = user;
    char comment[200], *rest = NULL;

    snprintf(comment, sizeof(comment), " fiber.job=%s ", s->name);
    if (r->code) {
        try_later(s, "no answer");
        return;
    }
    for (char *at = strtok_r(r->out, "\n", &rest); at; at = strtok_r(NULL, "\n", &rest)) {
        char id[FBR_SLURM_ID];

        if (!strstr(at, comment))
            continue;
        at[strcspn(at, " ")] = '\0'; /* other words may precede ours in the comment */
        if (fbr_slurm_id(at, id)) {
            fbr_slurm_submitted(s, id);
            return;
        }
    }
    /* a further sbatch would print no id either, and queue one more job */
    if (s->stage == ACCEPTED)
        fbr_slurm_refuse_all(s, CANNOT_SUBMIT, NO_ID);
    else
        submit(s);
}

/* Checks whether Slurm has accepted the submission, after the answer was lost or had no id. */
static void find_it(void *arg)
{
    struct submission *s = arg;
    struct fbr_args w = {0};
    int rc =
        fbr_args_split(&w, "squeue --noheader --me --states=all --array --format=\"%F %k\"", NULL);

    if (rc < 0 || fbr_slurm_run(s->b->tools, &w, ASK_MS, on_found, s) < 0)
        try_later(s, "no answer");
    fbr_args_fini(&w);
}

static void on_submitted(void *user, const struct fbr_tool_result *r)
{
    struct submission *s = user, *rest = NULL;
    enum fbr_slurm_refusal refusal;
    char line[256], id[FBR_SLURM_ID];

    if (r->code == 0 && fbr_slurm_id(r->out, id)) {
        fbr_slurm_submitted(s, id);
        return;
    }
    if (r->code == 0) {
        fbr_info("slurm: " NO_ID ": %.200s", r->out);
        s->stage = ACCEPTED;
        s->timer.fn = find_it;
        find_it(s);
        return;
    }
    refusal = fbr_slurm_refusal(r->err, line, sizeof(line));
    if (r->code < 0) /* it took too long */
        refusal = FBR_SLURM_UNSURE;
    fbr_info("slurm: sbatch ended with code %d: %s", r->code, line);
    if (refusal == FBR_SLURM_SPLIT || refusal == FBR_SLURM_FEWER)
        rest = split(s);
    if (rest && refusal == FBR_SLURM_FEWER) /* the first half may be within the limit */
        fbr_slurm_refuse_all(rest, CANNOT_SUBMIT, line);
    if (rest)
        return;
    s->timer.fn = refusal == FBR_SLURM_UNSURE ? find_it : submit;
    if (refusal == FBR_SLURM_LATER || refusal == FBR_SLURM_UNSURE)
        try_later(s, line);
    else
        fbr_slurm_refuse_all(s, CANNOT_SUBMIT, line[0] ? line : NO_ID);
}

static void sbatch_words(const struct submission *s, struct fbr_args *w)
{
    const struct fbr_slurm_batch *b = s->b;
    static const char *const always = "sbatch --parsable --no-requeue --nodes=1 --ntasks=1 "
                                      "--export=ALL --mail-type=NONE --input=/dev/null";
    const char *theirs = fbr_slurm_option(b->settings, "comment", '=');
    /* %a is an index only in an array. */
    const char *index = s->n > 1 ? "%a" : "0";

    fbr_args_split(w, always, NULL);
    fbr_args_addf(w, "--job-name=%s", s->name);
    fbr_args_addf(w, "--output=%s/%u.%s.out", b->dir.path, s->seq, index);
    fbr_args_addf(w, "--error=%s/%u.%s.err", b->dir.path, s->seq, index);
    if (s->n > 1)
        fbr_args_addf(w, "--array=0-%u", s->n - 1);
    fbr_slurm_add_needs(w, s->job);
    /* Slurm has no other way to keep jobs apart: each gets a node of its own. */
    if (s->job->apart)
        fbr_args_addf(w, "--exclusive");
    fbr_slurm_add_settings(w, b->settings);
    /* after the options, because the last comment counts */
    fbr_args_addf(w, "--comment=%.300s%sfiber.job=%s fiber.master=%s", theirs ? theirs : "",
                  theirs ? " " : "", s->name, b->master);
}

static void put_script(const struct submission *s, struct fbr_buf *b)
{
    char ticket[PATH_MAX];

    snprintf(ticket, sizeof(ticket), "%.4000s/%u.", s->b->dir.path, s->seq);
    fbr_slurm_script(b, s->job->file, s->job->argv, s->job->workdir,
                     s->job->ticket ? ticket : NULL);
}

/* Whether all jobs of the submission have been killed before it was sent. */
static bool nobody_left(const struct submission *s)
{
    for (unsigned i = 0; i < s->n; i++)
        if (s->jobs[i]->state != NEW_KILLED)
            return false;
    return true;
}

static void submit(void *arg)
{
    struct submission *s = arg;
    struct fbr_error err = {0, ""};
    struct fbr_args w = {0};
    char **env, own[PATH_MAX + 32];
    const char *const more[] = {own, NULL};
    struct fbr_buf script = {0};
    int rc;

    if (nobody_left(s)) {
        fbr_slurm_refuse_all(s, "", "");
        return;
    }
    s->stage = SUBMITTING;
    s->timer.fn = submit;
    snprintf(own, sizeof(own), "FIBER_SLURM=" FBR_SLURM_OWN "%s", s->b->dir.path);
    env = fbr_slurm_env(s->job->env, FBR_SLURM_FOR_SBATCH, more);
    put_script(s, &script);
    sbatch_words(s, &w);
    if (!env || w.failed || script.failed)
        rc = fbr_fail(&err, -ENOMEM, "out of memory");
    else
        rc = fbr_tool_run(s->b->tools,
                          &(struct fbr_tool){.words = &w,
                                             .env = env,
                                             .input = script.data,
                                             .input_len = script.len,
                                             .limit_ms = SBATCH_MS,
                                             .done = on_submitted,
                                             .user = s},
                          &err);
    fbr_args_fini(&w);
    fbr_buf_fini(&script);
    free(env);
    if (rc < 0)
        fbr_slurm_refuse_all(s, CANNOT_SUBMIT, err.text);
}

/* ---- For fiber run --dry-run ---- */

int fbr_slurm_batch_show(const struct fbr_slurm_settings *settings, const char *dir,
                         const struct fbr_job *job, struct fbr_buf *out)
{
    struct fbr_slurm_batch b = {.settings = settings};
    struct fbr_job needs = *job;
    struct submission s = {.b = &b, .seq = 1, .n = 1, .job = &needs};
    struct fbr_args w = {0};
    int rc;

    needs.cpus = fbr_slurm_wish(job);
    snprintf(b.dir.path, sizeof(b.dir.path), "%.1000s", dir);
    fbr_master_id_self(b.master);
    snprintf(s.name, sizeof(s.name), "fiber-%.40s-%.80s", job->run_uid, job->name);
    sbatch_words(&s, &w);
    rc = w.failed ? -ENOMEM : 0;
    fbr_args_line(&w, out);
    fbr_put(out, " <<'END'\n", 9);
    put_script(&s, out);
    fbr_put(out, "END\n", 4);
    fbr_args_fini(&w);
    return rc;
}
