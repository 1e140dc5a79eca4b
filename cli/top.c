/* top.c - `fiber top`: shows the ranks of a run, or the workers of a pool, at intervals.
 *
 * On a terminal it draws on the alternate screen; elsewhere it prints a table each time.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/orphans.h"
#include "cli/option.h"
#include "cli/screen.h"

enum { TOP_INTERVAL, TOP_COUNT, TOP_SORT, TOP_JSON, TOP_OPTIONS };

#define FIRST_MS 100
#define KEYS_MS 100     /* longest delay before a key or ^C has an effect */
#define COUNTED_MS 5000 /* with --count: time limit of a query */
#define TITLE_LINES 3

enum order { BY_RANK, BY_CPU, BY_MEMORY, BY_HOST };

static const char order_words[] = "rank cpu memory host"; /* in the order of enum order */
static const char *const order_names[] = {"number", "time", "memory", "host"};

/* The times at which the figures that are shown, and those before them, were taken (0: none
 * before): fbr_wall_ms(). */
struct moments {
    int64_t at, before;
};

struct view {
    struct run_client run;
    /* tasks: taken with each answer; use: processor time and memory, taken when the last answer was
     * requested */
    struct moments tasks, use;
    int64_t asked;
    uint64_t sent;   /* fbr_now_ms(): when the unanswered request was sent */
    bool unanswered; /* the last request got no answer */
    bool screen;     /* a terminal to draw on */
    bool json;
    enum order order;
    int width, height, first; /* first: the row at the top */
    /* the next line to draw; the last line of the screen stays empty, because output after it
     * scrolls */
    int line;
    int hosts, boots; /* widths of columns */
};

/* ---- Figures ---- */

static bool is_pool(const struct view *v)
{
    return v->run.about.kind == FBR_RUN_POOL;
}

static const struct run_client_words *words(const struct view *v)
{
    return run_client_words(&v->run.about);
}

/* Returns for how many seconds the launcher has not answered; 0: it answers. */
static int silent_s(const struct view *v)
{
    uint64_t ms = fbr_now_ms() - v->sent;

    return !v->unanswered || ms < CLIENT_PATIENCE_MS ? 0 : (int)(ms / 1000);
}

static int by_rank(const void *a, const void *b)
{
    const struct fbr_run_rank *x = a, *y = b;

    return (x->stats.rank > y->stats.rank) - (x->stats.rank < y->stats.rank);
}

/* Returns the last figures of a rank; NULL: nothing to compare with. */
static const struct fbr_run_rank *seen_of(const struct view *v, const struct fbr_run_rank *r)
{
    const struct run_client *c = &v->run;

    return c->nbefore ? bsearch(r, c->before, (size_t)c->nbefore, sizeof(*r), by_rank) : NULL;
}

/* Returns the percentage of the time since the last update, or since the start at the first one;
 * negative: unknown. */
static double share(const struct view *v, const struct fbr_run_rank *r, const struct moments *m,
                    double now, const double *last)
{
    int64_t start = r->started_ms ? r->started_ms : v->run.about.started_ms;

    if (silent_s(v) || r->stats.state != 1)
        return -1;
    if (last && m->before && m->at > m->before && now >= *last)
        return 100 * (now - *last) * 1000 / (double)(m->at - m->before);
    return m->at > start ? 100 * now * 1000 / (double)(m->at - start) : -1;
}

static double cpu_share(const struct view *v, const struct fbr_run_rank *r)
{
    const struct fbr_run_rank *seen = seen_of(v, r);

    return r->stats.memory ? share(v, r, &v->use, r->stats.cpu, seen ? &seen->stats.cpu : NULL)
                           : -1;
}

static double busy_share(const struct view *v, const struct fbr_run_rank *r)
{
    const struct fbr_run_rank *seen = seen_of(v, r);

    return share(v, r, &v->tasks, r->busy, seen ? &seen->busy : NULL);
}

/* Returns the tasks per second of all workers since the last update, or since the pool's start;
 * negative: unknown. */
static double task_rate(const struct view *v)
{
    int64_t from = v->tasks.before ? v->tasks.before : v->run.about.started_ms;
    uint64_t n = 0;

    if (!is_pool(v) || silent_s(v) || v->tasks.at <= from)
        return -1;
    for (int i = 0; i < v->run.nranks; i++) {
        const struct fbr_run_rank *r = &v->run.ranks[i];
        const struct fbr_run_rank *seen = seen_of(v, r);

        n += r->tasks - (seen && v->tasks.before && seen->tasks <= r->tasks ? seen->tasks : 0);
    }
    return (double)n * 1000 / (double)(v->tasks.at - from);
}

/* ---- Order ---- */

static int down(double a, double b)
{
    return (a < b) - (a > b);
}

/* The largest first; equal ranks by their number. qsort_r's context is the view. */
static int compare(const void *a, const void *b, void *view)
{
    const struct fbr_run_rank *x = a, *y = b;
    const struct view *v = view;
    int d = 0;

    switch (v->order) {
    case BY_CPU:
        d = is_pool(v) ? down(busy_share(v, x), busy_share(v, y))
                       : down(cpu_share(v, x), cpu_share(v, y));
        break;
    case BY_MEMORY:
        d = down((double)x->stats.memory, (double)y->stats.memory);
        break;
    case BY_HOST:
        d = strcmp(x->stats.host, y->stats.host);
        break;
    case BY_RANK:
        break;
    }
    return d ? d : by_rank(a, b);
}

static void sort(struct view *v)
{
    if (v->run.nranks)
        qsort_r(v->run.ranks, (size_t)v->run.nranks, sizeof(*v->run.ranks), compare, v);
}

/* ---- Drawing ---- */

static void put_line(struct view *v, char *line)
{
    size_t len = strlen(line), shown = (size_t)cli_column(line, v->width);

    if (v->screen && v->line++ >= v->height - 1)
        return;
    while (len && line[len - 1] == ' ')
        line[--len] = '\0';
    if (v->screen && len > shown)
        line[shown] = '\0';
    printf("%s%s\n", line, v->screen ? "\033[K" : "");
}

static void put_percent(char out[16], double share)
{
    snprintf(out, 16, share < 0 ? "-" : "%.0f", share);
}

/* Prints the table's columns: first those of every row, then those of ranks or of workers. */
static void put_head(struct view *v)
{
    char line[512];

    if (is_pool(v))
        snprintf(line, sizeof(line), "%6s %-10s %6s %6s %9s %8s %8s %s", words(v)->head, "STATE",
                 "BUSY%", "CPU%", "MEMORY", "TASKS", "PID", "HOST");
    else if (v->run.about.kind == FBR_RUN_PROGRAM)
        snprintf(line, sizeof(line), "%6s %-10s %6s %9s %8s %-*s %s", words(v)->head, "STATE",
                 "CPU%", "MEMORY", "PID", v->boots, "NAME", "HOST");
    else
        snprintf(line, sizeof(line), "%6s %-10s %6s %9s %8s %8s %-*s %-*s %s", words(v)->head,
                 "STATE", "CPU%", "MEMORY", "RESTARTS", "PID", v->hosts, "HOST", v->boots, "BOOT",
                 "CPUS");
    put_line(v, line);
}

static void put_rank(struct view *v, const struct fbr_run_rank *r)
{
    const struct fiber_rank_stats *s = &r->stats;
    char line[512], state[48], memory[32] = "-", cpu[16], busy[16];

    if (s->memory)
        run_client_bytes(memory, s->memory);
    put_percent(cpu, cpu_share(v, r));
    put_percent(busy, busy_share(v, r));
    if (is_pool(v))
        snprintf(line, sizeof(line), "%6d %-10s %6s %6s %9s %8llu %8lld %s", s->rank,
                 run_client_rank_state(s, state), busy, cpu, memory, (unsigned long long)r->tasks,
                 (long long)s->pid, s->host);
    else if (v->run.about.kind == FBR_RUN_PROGRAM)
        snprintf(line, sizeof(line), "%6d %-10s %6s %9s %8lld %-*s %s", s->rank,
                 run_client_rank_state(s, state), cpu, memory, (long long)s->pid, v->boots, s->how,
                 s->host);
    else
        snprintf(line, sizeof(line), "%6d %-10s %6s %9s %8d %8lld %-*s %-*s %s", s->rank,
                 run_client_rank_state(s, state), cpu, memory, s->restarts, (long long)s->pid,
                 v->hosts, s->host, v->boots, s->how, s->cpus);
    put_line(v, line);
}

static void format_doing(const struct view *v, char *line, size_t size)
{
    const struct fbr_run_facts *f = &v->run.facts;
    double rate = task_rate(v);

    if (silent_s(v))
        snprintf(line, size,
                 "no answer for %d s: its launcher, process %lld, is stopped, or the machine is "
                 "very busy",
                 silent_s(v), (long long)v->run.about.pid);
    else if (f->waiting[0])
        snprintf(line, size, "waiting: %s", f->waiting);
    else if (rate >= 0)
        snprintf(line, size, "%s, %.*f a second", f->doing, rate < 10, rate);
    else
        snprintf(line, size, "%s", f->doing);
}

static void put_title(struct view *v)
{
    const struct run_client *r = &v->run;
    int size = run_client_size(r);
    char line[512], age[32], restarts[32] = "";

    run_client_age(age, fbr_wall_ms() - r->about.started_ms);
    if (r->about.kind != FBR_RUN_PROGRAM)
        snprintf(restarts, sizeof(restarts), "  %d restart%s", r->facts.restarts,
                 r->facts.restarts == 1 ? "" : "s");
    snprintf(line, sizeof(line), "%s %.8s  %s  %s  %d of %d %s run%s%s  %s",
             r->about.kind == FBR_RUN_RING ? "run" : words(v)->kind, r->about.uid, r->about.name,
             r->about.backend, r->facts.running, size, size == 1 ? words(v)->one : words(v)->many,
             size == 1 ? "s" : "", restarts, age);
    put_line(v, line);
    format_doing(v, line, sizeof(line));
    if (v->screen || line[0])
        put_line(v, line);
    put_head(v);
}

static int longest(int least, const struct run_client *r, size_t field)
{
    for (int i = 0; i < r->nranks; i++) {
        int len = (int)strlen((const char *)&r->ranks[i] + field);

        least = len > least ? len : least;
    }
    return least;
}

static void put_foot(struct view *v, int rows)
{
    int last = v->first + rows < v->run.nranks ? v->first + rows : v->run.nranks;
    char line[512];

    snprintf(line, sizeof(line),
             "%d to %d of %d by %s; q quits; arrows scroll; sort: c %s, m memory, h host, r %s",
             v->first + 1, last, v->run.nranks, order_names[v->order], is_pool(v) ? "busy" : "cpu",
             words(v)->one);
    put_line(v, line);
}

static void draw_text(struct view *v)
{
    const struct run_client *r = &v->run;
    /* For ranks: all lines except the title and the empty line, and the foot if the rows do not
     * fit. */
    int rows = v->screen ? v->height - TITLE_LINES - 1 : r->nranks;
    bool foot = v->screen && r->nranks > rows;

    rows -= foot;
    rows = rows < 0 ? 0 : rows;
    v->hosts = longest(4, r, offsetof(struct fbr_run_rank, stats.host));
    v->boots = longest(4, r, offsetof(struct fbr_run_rank, stats.how));
    v->first = v->first > r->nranks - rows ? r->nranks - rows : v->first;
    v->first = v->first < 0 ? 0 : v->first;
    v->line = 0;
    if (v->screen)
        fputs("\033[H", stdout);
    put_title(v);
    for (int i = v->first; i < r->nranks && i < v->first + rows; i++)
        put_rank(v, &r->ranks[i]);
    if (foot)
        put_foot(v, rows);
    if (!v->screen)
        cli_flush();
    else if (fputs("\033[J", stdout) >= 0)
        fflush(stdout); /* watch() restores the terminal if this fails */
}

static void put_share(struct fbr_json *j, const char *key, double share)
{
    if (share >= 0)
        fbr_json_double(j, key, share);
    else
        fbr_json_str(j, key, NULL);
}

static void put_json_rank(const struct view *v, struct fbr_json *j, const struct fbr_run_rank *r)
{
    const struct fiber_rank_stats *s = &r->stats;
    char state[48];

    fbr_json_object(j);
    fbr_json_int(j, words(v)->one, s->rank);
    fbr_json_str(j, "state", run_client_rank_state(s, state));
    fbr_json_str(j, "host", s->host);
    fbr_json_int(j, "pid", s->pid);
    fbr_json_double(j, "cpu_s", s->cpu);
    put_share(j, "cpu_percent", cpu_share(v, r));
    fbr_json_int(j, "memory", (int64_t)s->memory);
    if (is_pool(v)) {
        fbr_json_int(j, "tasks", (int64_t)r->tasks);
        fbr_json_double(j, "busy_s", r->busy);
        put_share(j, "busy_percent", busy_share(v, r));
    } else if (v->run.about.kind == FBR_RUN_PROGRAM) {
        fbr_json_str(j, "name", s->how);
    } else {
        fbr_json_int(j, "restarts", s->restarts);
        fbr_json_str(j, "boot", s->how);
        fbr_json_str(j, "cpus", s->cpus);
    }
    fbr_json_end_object(j);
}

static void draw_json(const struct view *v)
{
    struct fbr_json j = {0};

    fbr_json_object(&j);
    fbr_json_str(&j, "uid", v->run.about.uid);
    fbr_json_str(&j, "name", v->run.about.name);
    fbr_json_str(&j, "kind", words(v)->kind);
    fbr_json_int(&j, "running", v->run.facts.running);
    fbr_json_int(&j, "restarts", v->run.facts.restarts);
    fbr_json_str(&j, "waiting", v->run.facts.waiting);
    fbr_json_str(&j, "doing", v->run.facts.doing);
    if (is_pool(v))
        put_share(&j, "tasks_per_s", task_rate(v));
    fbr_json_int(&j, "silent_s", silent_s(v));
    fbr_json_array(&j, words(v)->many);
    for (int i = 0; i < v->run.nranks; i++)
        put_json_rank(v, &j, &v->run.ranks[i]);
    fbr_json_end_array(&j);
    fbr_json_end_object(&j);
    cli_print_json(stdout, &j);
    cli_flush();
}

static void draw(struct view *v)
{
    if (v->screen)
        screen_size(&v->width, &v->height);
    sort(v);
    if (v->json)
        draw_json(v);
    else
        draw_text(v);
}

/* ---- The subcommand ---- */

static bool sort_by(struct view *v, enum order order)
{
    v->order = order;
    v->first = 0;
    return true;
}

/* False: the key has no meaning. */
static bool obey(struct view *v, int key)
{
    int page = v->height - TITLE_LINES - 2;

    switch (key) {
    case CLI_KEY_UP:
    case 'k':
        v->first--;
        return true;
    case CLI_KEY_DOWN:
    case 'j':
        v->first++;
        return true;
    case CLI_KEY_PAGE_UP:
        v->first -= page;
        return true;
    case CLI_KEY_PAGE_DOWN:
    case ' ':
        v->first += page;
        return true;
    case CLI_KEY_HOME:
        v->first = 0;
        return true;
    case CLI_KEY_END:
        v->first = v->run.nranks;
        return true;
    case 'c':
    case 'b':
        return sort_by(v, BY_CPU);
    case 'm':
        return sort_by(v, BY_MEMORY);
    case 'h':
        return sort_by(v, BY_HOST);
    case 'r':
    case 'n':
    case 'w':
        return sort_by(v, BY_RANK);
    default:
        return false;
    }
}

/* Waits for the next update; keys scroll and sort meanwhile. True: a key has asked to end. */
static bool rest(struct view *v, int ms)
{
    uint64_t until = fbr_now_ms() + (uint64_t)ms, now;

    if (!v->screen) {
        poll(NULL, 0, ms);
        return false;
    }
    while ((now = fbr_now_ms()) < until) {
        int key = screen_key((int)(until - now));

        if (key == 'q' || key == 'Q' || key == 3)
            return true;
        if (obey(v, key))
            draw(v);
        else if (key == CLI_KEY_NONE)
            break;
    }
    return false;
}

/* 1: new figures; 0: none yet; negative: the run has ended. */
static int look(struct view *v, unsigned patience_ms, struct fbr_error *err)
{
    int rc;

    if (!v->unanswered)
        v->sent = fbr_now_ms();
    rc = run_client_ranks(&v->run, patience_ms, err);
    v->unanswered = rc == -ETIMEDOUT;
    if (rc < 0)
        return v->unanswered ? 0 : rc;
    if (v->run.nbefore)
        qsort(v->run.before, (size_t)v->run.nbefore, sizeof(*v->run.before), by_rank);
    v->tasks.before = v->tasks.at;
    v->use.before = v->use.at;
    v->use.at = v->asked;
    v->asked = v->tasks.at = fbr_wall_ms();
    return 1;
}

static int watch(struct view *v, int interval, int64_t times, struct fbr_error *err)
{
    unsigned patience_ms = times ? COUNTED_MS : KEYS_MS;
    int64_t drawn = 0;
    int rc;

    /* The next answer brings the figures that are requested here, so the first update that is shown
     * counts from the start of the run. */
    rc = look(v, patience_ms, err);
    if (rc < 0 || rest(v, FIRST_MS))
        return rc < 0 ? rc : 0;
    v->tasks.at = 0;
    while (!screen_asked_to_end()) {
        bool fresh;

        rc = look(v, patience_ms, err);
        if (rc < 0)
            return rc;
        fresh = rc > 0;
        if (!fresh && !times && !silent_s(v)) { /* the answer takes a moment */
            if (rest(v, KEYS_MS))
                break;
            continue;
        }
        draw(v);
        if (ferror(stdout) || ++drawn == times || rest(v, interval))
            break;
    }
    return 0;
}

static int run_top(const struct cli_args *args)
{
    int interval = args->values[TOP_INTERVAL].text ? (int)args->values[TOP_INTERVAL].number : 1000,
        rc;
    int64_t times = args->values[TOP_COUNT].number;
    struct fbr_error err = {0, ""};
    struct view v;

    memset(&v, 0, sizeof(v));
    v.json = args->values[TOP_JSON].number > 0;
    v.order = args->values[TOP_SORT].text ? (enum order)args->values[TOP_SORT].number : BY_RANK;
    if (orphan_run_here(args->operands[0], "top", &v.run, NULL, &err) < 0)
        return cli_failed(1, "%s", err.text);
    v.screen = !v.json && isatty(STDIN_FILENO) && cli_is_screen(STDOUT_FILENO) && !times;
    if (v.screen)
        screen_take();
    rc = watch(&v, interval, times, &err);
    screen_drop_picture();
    screen_restore();
    run_client_free(&v.run);
    if (rc == -ECONNRESET) { /* the end of the run is not an error */
        fprintf(stderr, "fiber: run %.16s has ended\n", v.run.about.uid);
        return 0;
    }
    return rc < 0 ? cli_failed(1, "%s", err.text) : 0;
}

static const struct cli_option options[TOP_OPTIONS] = {
    [TOP_INTERVAL] = {"interval", 'd', CLI_MS, "T", .min = 100, .max = 3600000, .also = "delay",
                      .help = "time between two updates; default 1s"},
    [TOP_COUNT] = {"count", 'c', CLI_INT, "N", .min = 1, .max = 1 << 30,
                   .help = "prints N tables and ends"},
    [TOP_SORT] =
        {"sort", 's', CLI_WORD, "KEY", .words = order_words,
         .help = "shows first: the lowest rank (default), the most processor time (for a pool: the "
                 "busiest), the most memory, or hosts by name"},
    [TOP_JSON] = {"json", 0, CLI_FLAG, .help = "one JSON object a line"},
};

const struct cli_command cli_top = {
    .name = "top",
    .operands = "[RUN]",
    .kind = CLI_RUN,
    .about = "Shows what the ranks of a run use, live",
    .text = "Shows the processor time, memory and restarts of each rank, and the bootstrap that it "
            "used. For a pool: how busy each worker is, what it uses, the number of its finished "
            "tasks, and the tasks per second of the pool. For a program: what its processes use, "
            "with their names and the numbers that other commands take. The first table has "
            "averages since the start, later tables have averages since the last table. Without "
            "RUN it shows the run that goes on, if there is only one.\n\n"
            "The arrow keys, Page Up, Page Down, Home and End scroll. c sorts by processor time (a "
            "pool: by how busy), m by memory, h by host, r by rank. q quits.\n\n"
            "While a launcher does not answer (it is stopped, for example, or the machine is very "
            "busy) the last figures stay, and the second line shows for how long. With --count an "
            "update waits up to five seconds for an answer.",
    .examples = "fiber top\tlive, the only run there is\nfiber top train --sort memory\tthe "
                "largest ranks first\n"
                "fiber top train -c 1 --json\tonce, for programs",
    .options = options,
    .count = TOP_OPTIONS,
    .most = 1,
    .run = run_top,
};
