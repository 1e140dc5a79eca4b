/* stack_command.c - `fiber stack`: shows the stacks of a ring's ranks or a pool's workers.
 *
 * Each job is queried once, through a tunnel of the launcher (runtime/proc/tunnel.h,
 * runtime/inspect/stack.h), several hosts at a time. Only the answer shows which ranks a job has.
 * So the next rank of a host is queried after the last answer has come, if that answer did not
 * contain it.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/orphans.h"
#include "cli/option.h"
#include "cli/screen.h"
#include "cli/stack_fold.h"
#include "runtime/base/printable.h"
#include "runtime/inspect/message.h"
#include "runtime/inspect/stack.h"

#define VISITORS 8
#define LISTED 32 /* most processes in the list; beyond that only stacks are shown */

enum { STACK_LIST, STACK_JSON, STACK_OPTIONS };

struct seen {
    struct fbr_stack_process process;
    int who;
    char host[64];
};

enum ask_state { ASK_WAITS, ASK_BUSY, ASK_DONE, ASK_FAILED };

struct ask {
    int who;
    enum ask_state state;
    const char *host; /* as the launcher knows it; "" for a worker */
    char why[FBR_ERROR_TEXT];
};

struct stack {
    struct run_client run;
    int one; /* -1: all */
    bool list;
    pthread_mutex_t lock; /* protects the members below */
    pthread_cond_t changed;
    struct ask *asks;
    size_t nasks;
    struct seen *seen;
    size_t nseen;
};

static const struct run_client_words *words(const struct stack *s)
{
    return run_client_words(&s->run.about);
}

static bool is_ring(const struct stack *s)
{
    return s->run.about.kind == FBR_RUN_RING;
}

/* ---- One query ---- */

static int keep(struct stack *s, const struct ask *a, const char *host,
                const struct fbr_stack_process *p)
{
    struct seen *seen = fbr_grow(&s->seen, s->nseen, sizeof(*seen));

    if (!seen)
        return -ENOMEM;
    s->nseen++;
    seen->process = *p;
    seen->who = is_ring(s) ? p->rank : a->who;
    fbr_printable_plain(seen->host, sizeof(seen->host), host);
    fbr_printable_plain(seen->process.program, sizeof(p->program), p->program);
    for (size_t i = 0; i < s->nasks; i++)
        if (s->asks[i].who == seen->who && s->asks[i].state != ASK_BUSY)
            s->asks[i].state = ASK_DONE;
    return 0;
}

/* Handles the answer of one job. In a ring's agent only descendants of the agent are ranks. */
static int take(struct stack *s, const struct ask *a, const char *host, const struct fbr_buf *b)
{
    struct fbr_cur c = fbr_cur(b->data, b->len);
    struct fbr_stack_process p;
    int rc;

    while ((rc = fbr_stack_get(&c, &p)) > 0) {
        bool wanted = !is_ring(s) || (p.rank >= 0 && (s->one < 0 || p.rank == s->one));

        if (wanted)
            rc = keep(s, a, host, &p);
        if (!wanted || rc < 0)
            fbr_stack_fini(&p);
        if (rc < 0)
            return rc;
    }
    return rc;
}

/* Reads all records, and the host's name. */
static int talk(int fd, struct fbr_msg *m, char host[FBR_MSG_TEXT], struct fbr_buf *data,
                struct fbr_error *err)
{
    int rc, code;

    fbr_msg_send(fd, FBR_MSG_STACK, NULL, 0);
    while ((rc = fbr_msg_recv(fd, m, err)) == FBR_MSG_DATA) {
        fbr_put(data, m->body.at, fbr_cur_left(&m->body));
        if (data->failed || data->len > FBR_STACK_MAX + FBR_STACK_RECORD)
            return fbr_fail(err, -EFBIG, "%s", fbr_strerror(-EFBIG));
    }
    if (rc == FBR_MSG_DONE && fbr_msg_get_done(&m->body, &code, host))
        return 0;
    return rc < 0 ? rc : fbr_msg_malformed(err);
}

/* Call without the lock. */
static int fetch(const struct stack *s, int who, char host[FBR_MSG_TEXT], struct fbr_buf *data,
                 struct fbr_error *err)
{
    struct fbr_msg m = {.kind = 0};
    struct run_client c;
    int rc = run_client_again(&s->run, &c, err);

    if (rc < 0)
        return rc;
    rc = run_client_tunnel(&c, who, err);
    if (rc == 0)
        rc = talk(c.fd, &m, host, data, err);
    fbr_buf_fini(&m.bytes);
    run_client_free(&c);
    return rc;
}

static void visit(struct stack *s, struct ask *a)
{
    struct fbr_error err = {0, ""};
    char host[FBR_MSG_TEXT];
    struct fbr_buf data = {0};
    int rc;

    rc = fetch(s, a->who, host, &data, &err);
    pthread_mutex_lock(&s->lock);
    if (rc >= 0 && (rc = take(s, a, host, &data)) < 0)
        fbr_fail(&err, rc, "its answer is invalid: %s", fbr_strerror(rc));
    a->state = rc < 0 ? ASK_FAILED : ASK_DONE;
    fbr_printable_plain(a->why, sizeof(a->why), err.text);
    pthread_cond_broadcast(&s->changed);
    pthread_mutex_unlock(&s->lock);
    fbr_buf_fini(&data);
}

/* ---- All queries ---- */

static bool is_busy(const struct stack *s, const char *host)
{
    for (size_t i = 0; i < s->nasks && host[0]; i++)
        if (s->asks[i].state == ASK_BUSY && !strcmp(s->asks[i].host, host))
            return true;
    return false;
}

/* Call with the lock, which is released while no query can begin. Returns NULL when every query is
 * done or under way. */
static struct ask *next_ask(struct stack *s)
{
    for (;;) {
        bool waits = false;

        for (size_t i = 0; i < s->nasks; i++) {
            if (s->asks[i].state != ASK_WAITS)
                continue;
            waits = true;
            if (!is_busy(s, s->asks[i].host))
                return &s->asks[i];
        }
        if (!waits)
            return NULL;
        pthread_cond_wait(&s->changed, &s->lock);
    }
}

static void *visit_some(void *arg)
{
    struct stack *s = arg;
    struct ask *a;

    pthread_mutex_lock(&s->lock);
    while ((a = next_ask(s))) {
        a->state = ASK_BUSY;
        pthread_mutex_unlock(&s->lock);
        visit(s, a);
        pthread_mutex_lock(&s->lock);
    }
    pthread_mutex_unlock(&s->lock);
    return NULL;
}

static void visit_all(struct stack *s)
{
    pthread_t threads[VISITORS];
    int n = 0;

    while (n < VISITORS && (size_t)n + 1 < s->nasks &&
           pthread_create(&threads[n], NULL, visit_some, s) == 0)
        n++;
    visit_some(s); /* this thread works too */
    while (n)
        pthread_join(threads[--n], NULL);
}

/* ---- For users ---- */

static int by_who(const void *a, const void *b)
{
    const struct seen *x = a, *y = b;

    if (x->who != y->who)
        return x->who < y->who ? -1 : 1;
    return x->process.pid < y->process.pid ? -1 : x->process.pid > y->process.pid;
}

static const char *or_dash(const char *text)
{
    return text[0] ? text : "-";
}

static void print_list(const struct stack *s)
{
    printf("%6s %-24s %8s %s %-20s %-16s %9s  %s\n", words(s)->head, "HOST", "PID", "S", "WCHAN",
           "SYSCALL", "CPU", "PROGRAM");
    for (size_t i = 0; i < s->nseen; i++) {
        const struct seen *e = &s->seen[i];
        const struct fbr_stack_thread *t = e->process.threads;

        printf("%6d %-24.24s %8u %c %-20.20s %-16.16s %8.2fs  %s\n", e->who, e->host,
               e->process.pid, e->process.state, or_dash(t ? t->wchan : ""),
               or_dash(t ? t->call : ""), (double)e->process.cpu_ms / 1000, e->process.program);
    }
}

static void print_frames(const struct stack_group *g)
{
    const struct fbr_stack_thread *t = g->thread;
    char name[sizeof(t->frames[0].function)], module[64], source[96];

    for (uint32_t i = 0; i < t->nframes; i++) {
        const struct fbr_stack_frame *f = &t->frames[i];

        fbr_printable_plain(name, sizeof(name), f->function[0] ? f->function : "?");
        fbr_printable_plain(module, sizeof(module), f->module);
        fbr_printable_plain(source, sizeof(source), g->exact ? f->source : "");
        printf("    %-40s %s%s%s\n", name, module, source[0] ? "  " : "", source);
    }
    if (t->cut)
        printf("    ... and more\n");
    if (!t->nframes) {
        char why[sizeof(g->process->why)];

        fbr_printable_plain(why, sizeof(why), t->why[0] ? t->why : g->process->why);
        printf("    (%s)\n", why[0] ? why : "no frames");
    }
}

static void print_group(const struct stack *s, const struct stack_group *g)
{
    char ranges[512], call[32], name[32];
    const char *noun = g->nwho == 1 ? words(s)->one : words(s)->many;

    stack_ranges(ranges, sizeof(ranges), g->who, g->nwho);
    fbr_printable_plain(call, sizeof(call), g->call ? g->thread->call : "");
    fbr_printable_plain(name, sizeof(name), g->thread->name);
    printf("\n%s %s: ", noun, ranges);
    if (g->main)
        printf("main thread%s of %s", g->threads == 1 ? "" : "s", g->process->program);
    else
        printf("%zu thread%s of %s%s%s%s", g->threads, g->threads == 1 ? "" : "s",
               g->process->program, g->threads == 1 ? " (" : "", g->threads == 1 ? name : "",
               g->threads == 1 ? ")" : "");
    if (call[0])
        printf(", in %s", call);
    printf("\n");
    print_frames(g);
}

static void print_all(const struct stack *s, const struct stack_fold *f)
{
    const struct stack_group *g;

    if (s->list || s->nseen <= LISTED)
        print_list(s);
    else
        printf("%zu processes; --list shows each\n", s->nseen);
    for (g = f->groups; g; g = g->next)
        print_group(s, g);
}

/* ---- For programs ---- */

static void put_frames(struct fbr_json *j, const struct fbr_stack_thread *t)
{
    fbr_json_array(j, "frames");
    for (uint32_t i = 0; i < t->nframes; i++) {
        fbr_json_object(j);
        fbr_json_str(j, "function", t->frames[i].function[0] ? t->frames[i].function : NULL);
        fbr_json_str(j, "module", t->frames[i].module);
        fbr_json_int(j, "offset", (int64_t)t->frames[i].offset);
        fbr_json_str(j, "source", t->frames[i].source[0] ? t->frames[i].source : NULL);
        fbr_json_end_object(j);
    }
    fbr_json_end_array(j);
}

static void put_thread(struct fbr_json *j, const struct fbr_stack_thread *t)
{
    const char state[2] = {t->state, '\0'};

    fbr_json_object(j);
    fbr_json_int(j, "tid", t->tid);
    fbr_json_str(j, "name", t->name);
    fbr_json_str(j, "state", state);
    fbr_json_str(j, "wchan", t->wchan);
    fbr_json_str(j, "syscall", t->call);
    fbr_json_double(j, "cpu", (double)t->cpu_ms / 1000);
    fbr_json_str(j, "why", t->why);
    fbr_json_bool(j, "cut", t->cut);
    put_frames(j, t);
    fbr_json_end_object(j);
}

static void put_process(struct fbr_json *j, const struct stack *s, const struct seen *e)
{
    const char state[2] = {e->process.state, '\0'};

    fbr_json_object(j);
    fbr_json_int(j, words(s)->one, e->who);
    fbr_json_str(j, "host", e->host);
    fbr_json_int(j, "pid", e->process.pid);
    fbr_json_int(j, "parent", e->process.parent);
    fbr_json_str(j, "state", state);
    fbr_json_double(j, "cpu", (double)e->process.cpu_ms / 1000);
    fbr_json_str(j, "program", e->process.program);
    fbr_json_str(j, "why", e->process.why);
    fbr_json_array(j, "threads");
    for (uint32_t i = 0; i < e->process.nthreads; i++)
        put_thread(j, &e->process.threads[i]);
    fbr_json_end_array(j);
    fbr_json_end_object(j);
}

static void put_group(struct fbr_json *j, const struct stack *s, const struct stack_group *g)
{
    fbr_json_object(j);
    fbr_json_array(j, words(s)->many);
    for (size_t i = 0; i < g->nwho; i++)
        fbr_json_int(j, NULL, g->who[i]);
    fbr_json_end_array(j);
    fbr_json_int(j, "threads", (int64_t)g->threads);
    fbr_json_bool(j, "main", g->main);
    fbr_json_str(j, "program", g->process->program);
    put_frames(j, g->thread);
    fbr_json_end_object(j);
}

static int put_all(const struct stack *s, const struct stack_fold *f)
{
    const struct stack_group *g;
    struct fbr_json j = {0};

    fbr_json_object(&j);
    fbr_json_str(&j, "run", s->run.about.uid);
    fbr_json_str(&j, "name", s->run.about.name);
    fbr_json_array(&j, "groups");
    for (g = f->groups; g; g = g->next)
        put_group(&j, s, g);
    fbr_json_end_array(&j);
    fbr_json_array(&j, "processes");
    for (size_t i = 0; i < s->nseen; i++)
        put_process(&j, s, &s->seen[i]);
    fbr_json_end_array(&j);
    fbr_json_end_object(&j);
    return cli_print_json(stdout, &j);
}

/* ---- The command ---- */

/* Ranks with the same reason are reported together: an agent that is gone takes all its ranks with
 * it. */
static int print_missing(struct stack *s)
{
    int *who = calloc(s->nasks ? s->nasks : 1, sizeof(*who)), code = 0;
    char ranges[256];

    for (size_t i = 0; i < s->nasks && who; i++) {
        size_t n = 0;

        if (s->asks[i].state != ASK_FAILED)
            continue;
        for (size_t k = i; k < s->nasks; k++)
            if (s->asks[k].state == ASK_FAILED && !strcmp(s->asks[k].why, s->asks[i].why)) {
                who[n++] = s->asks[k].who;
                if (k > i)
                    s->asks[k].state = ASK_DONE;
            }
        stack_ranges(ranges, sizeof(ranges), who, n);
        code = cli_failed(1, "%s %s: %s", n == 1 ? words(s)->one : words(s)->many, ranges,
                          s->asks[i].why);
    }
    free(who);
    return code;
}

static int show(struct stack *s, bool json)
{
    struct stack_fold f = {.groups = NULL};
    int code, missing;

    if (s->nseen)
        qsort(s->seen, s->nseen, sizeof(*s->seen), by_who);
    for (size_t i = 0; i < s->nseen; i++)
        stack_fold_add(&f, s->seen[i].who, &s->seen[i].process);
    stack_fold_sort(&f);
    code = f.failed ? cli_failed(1, "out of memory") : 0;
    if (json)
        code = code ? code : put_all(s, &f);
    else if (s->nseen && !code)
        print_all(s, &f);
    cli_flush();
    stack_fold_fini(&f);
    missing = print_missing(s);
    if (!code && !missing && !s->nseen)
        code = cli_failed(1, "run %.16s has no running %s", s->run.about.uid, words(s)->one);
    return code ? code : missing;
}

static int by_number(const void *a, const void *b)
{
    const struct ask *x = a, *y = b;

    return x->who < y->who ? -1 : x->who > y->who;
}

/* Only running ranks: an ended one has no stack. */
static int find_ranks(struct stack *s, const char *typed, struct fbr_error *err)
{
    int rc = run_client_ranks(&s->run, CLIENT_PATIENCE_MS, err);

    s->one = -1;
    if (rc < 0)
        return rc;
    if (typed[0] && (s->one = run_client_job(typed, &s->run, err)) < 0)
        return err->code;
    s->asks = calloc((size_t)s->run.nranks + 1, sizeof(*s->asks));
    if (!s->asks)
        return fbr_fail(err, -ENOMEM, "out of memory");
    for (int i = 0; i < s->run.nranks; i++) {
        const struct fiber_rank_stats *r = &s->run.ranks[i].stats;

        if (r->state == 1 && (s->one < 0 || r->rank == s->one)) {
            s->asks[s->nasks].who = r->rank;
            s->asks[s->nasks++].host = r->host;
        }
    }
    if (s->nasks)
        qsort(s->asks, s->nasks, sizeof(*s->asks), by_number);
    if (s->one >= 0 && !s->nasks)
        return fbr_fail(err, -ESRCH, "%s %d is not running; see `fiber top`", words(s)->one,
                        s->one);
    return 0;
}

static int run_stack(const struct cli_args *args)
{
    struct stack s = {.lock = PTHREAD_MUTEX_INITIALIZER,
                      .changed = PTHREAD_COND_INITIALIZER,
                      .list = args->values[STACK_LIST].number > 0};
    struct fbr_error err = {0, ""};
    const char *job;
    int code;

    if (orphan_run_here(args->operands[0], "stack", &s.run, &job, &err) < 0)
        return cli_failed(1, "%s", err.text);
    if (find_ranks(&s, job, &err) < 0)
        code = cli_failed(1, "%s", err.text);
    else {
        visit_all(&s);
        code = show(&s, args->values[STACK_JSON].number > 0);
    }
    for (size_t i = 0; i < s.nseen; i++)
        fbr_stack_fini(&s.seen[i].process);
    free(s.seen);
    free(s.asks);
    run_client_free(&s.run);
    return code;
}

static const struct cli_option options[STACK_OPTIONS] = {
    [STACK_LIST] = {"list", 'l', CLI_FLAG,
                    .help = "lists each process, even if there are more than 32"},
    [STACK_JSON] = {"json", 0, CLI_FLAG, .help = "as a JSON object: groups, and all processes"},
};

const struct cli_command cli_stack = {
    .name = "stack",
    .operands = "RUN[/RANK]",
    .kind = CLI_RUN,
    .about = "Shows what the ranks of a run are doing: the stack of each of their threads",
    .text =
        "RUN is as in ps, RANK the number of a rank, a worker or a process, as top shows it. Each "
        "process of a rank is listed with its state (R runs, S sleeps, D waits in the kernel, T is "
        "stopped, Z has ended), what it waits for in the kernel, its system call and its processor "
        "time. The stacks follow, innermost call first. Equal stacks are shown once, with their "
        "ranks, so that a rank with another stack is easy to see. For a program in Python they "
        "show the interpreter; `fiber help exec` has a command that shows functions of Python.\n\n"
        "It works on every backend and needs no debugger: the request goes through the run's "
        "launcher, and each job examines its own processes. A thread is stopped only while its "
        "stack is read, for a few milliseconds, and always continues. If the kernel forbids this, "
        "or libdw is missing there, the other data are shown, with the reason.",
    .examples = "fiber stack train\tall ranks\n"
                "fiber stack train/3\tonly rank 3\n"
                "fiber stack 3fa9 --json\tfor programs",
    .options = options,
    .count = STACK_OPTIONS,
    .least = 1,
    .most = 1,
    .run = run_stack,
};
