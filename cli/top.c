/* top.c - `fiber top`: the ranks of a run, again and again.
 *
 * On a terminal it draws on the alternate screen, and puts everything back however it ends;
 * elsewhere it prints a table each time.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio_ext.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

#include "cli/engine_run.h"
#include "cli/option.h"
#include "cli/print.h"
#include "runtime/loop.h"

enum { TOP_INTERVAL, TOP_COUNT, TOP_JSON, TOP_OPTIONS };

#define FIRST_MS 100
#define KEYS_MS 100     /* so soon keys and ^C are heard */
#define COUNTED_MS 5000 /* with --count: a look waits so long */

struct seen {
    bool known;
    double cpu, tasks;
};

struct view {
    struct client_run run;
    struct seen *seen; /* by rank: at the last look */
    int nseen;
    /* client_now(): when the figures that are shown were asked for, those before them (0: there
     * were none), and those that the next look will have */
    int64_t at, before, asked;
    uint64_t sent;   /* fbr_now_ms(): what has no answer was asked */
    bool unanswered; /* the last look got none */
    bool screen;     /* a terminal to draw on */
    bool json;
    int width, height;
    int line; /* drawn next; the last one of the screen stays empty: behind it, it scrolls */
};

/* ---- The terminal ---- */

static struct termios cooked;              /* what it was */
static volatile sig_atomic_t is_raw;       /* it is not that now */
static volatile sig_atomic_t asked_to_end; /* the signal */

/* Async-signal-safe: also called by handlers. */
static void restore(void)
{
    static const char leave[] = "\033[?25h\033[?1049l";
    int saved = errno;

    if (is_raw) {
        is_raw = 0;
        tcsetattr(STDIN_FILENO, TCSANOW, &cooked);
        if (write(STDOUT_FILENO, leave, sizeof(leave) - 1) < 0)
            errno = saved;
    }
    errno = saved;
}

static void go_raw(void)
{
    static const char enter[] = "\033[?1049h\033[?25l";
    struct termios t = cooked;

    t.c_lflag &= (tcflag_t) ~(ICANON | ECHO);
    t.c_cc[VMIN] = 0;
    t.c_cc[VTIME] = 0;
    is_raw = 1;
    tcsetattr(STDIN_FILENO, TCSANOW, &t);
    if (write(STDOUT_FILENO, enter, sizeof(enter) - 1) < 0)
        asked_to_end = SIGHUP;
}

static void on_end(int sig)
{
    asked_to_end = sig;
}

static void on_stop(int sig)
{
    restore();
    raise(SIGSTOP); /* the parent's shell wants its terminal back; we go on behind this line */
    go_raw();
    (void)sig;
}

static void on_resize(int sig)
{
    (void)sig; /* ends the poll: the next drawing asks for the size */
}

static void on_crash(int sig)
{
    restore();
    signal(sig, SIG_DFL);
    raise(sig);
}

static void take_terminal(void)
{
    static const struct {
        int sig;
        void (*fn)(int);
    } list[] = {{SIGINT, on_end},    {SIGTERM, on_end}, {SIGHUP, on_end},      {SIGQUIT, on_end},
                {SIGTSTP, on_stop},  {SIGPIPE, on_end}, {SIGWINCH, on_resize}, {SIGSEGV, on_crash},
                {SIGABRT, on_crash}, {SIGBUS, on_crash}};

    tcgetattr(STDIN_FILENO, &cooked);
    atexit(restore);
    for (size_t i = 0; i < sizeof(list) / sizeof(list[0]); i++) {
        struct sigaction a;

        memset(&a, 0, sizeof(a));
        a.sa_handler = list[i].fn;
        /* A picture that is being written goes on, unless this is the end: who reads it may have stopped reading. */
        a.sa_flags = list[i].fn == on_stop || list[i].fn == on_resize ? SA_RESTART : 0;
        sigaction(list[i].sig, &a, NULL);
    }
    go_raw();
}

/* A signal may have cut a picture short: that is no error, and the rest of it belongs nowhere. */
static void drop_picture(void)
{
    if (!asked_to_end || asked_to_end == SIGPIPE)
        return;
    __fpurge(stdout);
    clearerr(stdout);
}

/* ---- Drawing ---- */

static int by_rank(const void *a, const void *b)
{
    return ((const struct fiber_rank_stats *)a)->rank - ((const struct fiber_rank_stats *)b)->rank;
}

/* For so many seconds its launcher has said nothing; 0: it answers. */
static int silent_s(const struct view *v)
{
    uint64_t ms = fbr_now_ms() - v->sent;

    return !v->unanswered || ms < CLIENT_PATIENCE_MS ? 0 : (int)(ms / 1000);
}

static bool is_pool(const struct view *v)
{
    return v->run.about.kind == FBR_RUN_POOL;
}

/* What was seen of it at the last look; NULL: there is nothing to compare with. */
static const struct seen *seen_of(const struct view *v, const struct fiber_rank_stats *s)
{
    bool any = !silent_s(v) && v->before && v->at > v->before && s->state == 1;

    return any && s->rank >= 0 && s->rank < v->nseen && v->seen[s->rank].known ? &v->seen[s->rank]
                                                                               : NULL;
}

/* Of a processor, in percent, since the last look; negative: unknown. */
static double cpu_share(const struct view *v, const struct fiber_rank_stats *s)
{
    const struct seen *seen = seen_of(v, s);

    return !seen || s->cpu < seen->cpu
               ? -1
               : 100 * (s->cpu - seen->cpu) * 1000 / (double)(v->at - v->before);
}

/* Tasks in a second, of all workers since the last look; negative: unknown. */
static double task_rate(const struct view *v)
{
    double n = -1;

    for (int i = 0; is_pool(v) && i < v->run.nranks; i++) {
        const struct seen *seen = seen_of(v, &v->run.ranks[i]);
        double tasks = atof(v->run.ranks[i].how);

        if (seen && tasks >= seen->tasks)
            n = (n < 0 ? 0 : n) + (tasks - seen->tasks) * 1000 / (double)(v->at - v->before);
    }
    return n;
}

static void remember(struct view *v)
{
    for (int i = 0; i < v->run.nranks; i++) {
        const struct fiber_rank_stats *s = &v->run.ranks[i];
        struct seen *more;

        if (s->rank < 0 || s->rank > 1 << 20)
            continue;
        if (s->rank >= v->nseen) {
            more = realloc(v->seen, ((size_t)s->rank + 1) * sizeof(*more));
            if (!more)
                return;
            for (int k = v->nseen; k <= s->rank; k++)
                more[k] = (struct seen){0};
            v->seen = more;
            v->nseen = s->rank + 1;
        }
        v->seen[s->rank] = (struct seen){true, s->cpu, atof(s->how)};
    }
}

static void put_line(struct view *v, char *line)
{
    if (v->screen && v->line++ >= v->height - 1)
        return;
    if (v->screen && strlen(line) > (size_t)v->width)
        line[v->width] = '\0';
    printf("%s%s\n", line, v->screen ? "\033[K" : "");
}

static void put_rank(struct view *v, const struct fiber_rank_stats *s)
{
    char line[512], state[48], memory[32], cpu[16] = "-";
    double share = cpu_share(v, s);

    client_bytes(memory, s->memory);
    if (share >= 0)
        snprintf(cpu, sizeof(cpu), "%.0f", share);
    snprintf(line, sizeof(line), "%6d %-10s %6s %9s %8d %8lld %-16.16s %-8.8s %s", s->rank,
             client_rank_state(s, state), cpu, s->memory ? memory : "-", s->restarts,
             (long long)s->pid, s->host, s->how, s->cpus);
    put_line(v, line);
}

static void say_doing(const struct view *v, char *line, size_t size)
{
    const struct fbr_run_facts *f = &v->run.facts;

    if (silent_s(v))
        snprintf(line, size,
                 "silent for %d s: its launcher, process %lld, is stopped, or the machine is very "
                 "busy",
                 silent_s(v), (long long)v->run.about.pid);
    else if (f->waiting[0])
        snprintf(line, size, "waiting: %s", f->waiting);
    else if (task_rate(v) >= 0)
        snprintf(line, size, "%s, %.*f a second", f->doing, task_rate(v) < 10, task_rate(v));
    else
        snprintf(line, size, "%s", f->doing);
}

static void draw_text(struct view *v)
{
    const struct client_run *r = &v->run;
    int room = v->screen ? v->height - 4 : r->nranks; /* for ranks: what is not title or empty */
    bool pool = is_pool(v);
    char line[512], age[32];

    client_age(age, client_now() - r->about.started_ms);
    room -= room < r->nranks; /* how many there are besides */
    v->line = 0;
    if (v->screen)
        fputs("\033[H", stdout);
    snprintf(line, sizeof(line), "%s %.8s  %s  %s  %d of %d %s run  %d restarts  %s",
             pool ? "pool" : "run", r->about.uid, r->about.name, r->about.backend, r->facts.running,
             client_size(r), pool ? "workers" : "ranks", r->facts.restarts, age);
    put_line(v, line);
    say_doing(v, line, sizeof(line));
    if (v->screen || line[0])
        put_line(v, line);
    snprintf(line, sizeof(line), "%6s %-10s %6s %9s %8s %8s %-16s %-8s %s",
             pool ? "WORKER" : "RANK", "STATE", pool ? "BUSY%" : "CPU%", "MEMORY", "RESTARTS",
             "PID", "HOST", pool ? "TASKS" : "BOOT", "CPUS");
    put_line(v, line);
    for (int i = 0; i < r->nranks && i < room; i++)
        put_rank(v, &r->ranks[i]);
    if (v->screen && r->nranks > room) {
        snprintf(line, sizeof(line), "and %d more; q quits", r->nranks - (room > 0 ? room : 0));
        put_line(v, line);
    }
    if (v->screen)
        fputs("\033[J", stdout);
    fflush(stdout);
}

static void draw_json(const struct view *v)
{
    struct fbr_json j;
    char state[48];

    fbr_json_init(&j);
    fbr_json_object(&j, NULL);
    fbr_json_str(&j, "uid", v->run.about.uid);
    fbr_json_str(&j, "name", v->run.about.name);
    fbr_json_int(&j, "running", v->run.facts.running);
    fbr_json_int(&j, "restarts", v->run.facts.restarts);
    fbr_json_str(&j, "waiting", v->run.facts.waiting);
    fbr_json_str(&j, "doing", v->run.facts.doing);
    if (task_rate(v) >= 0)
        fbr_json_double(&j, "tasks_per_s", task_rate(v));
    else
        fbr_json_null(&j, "tasks_per_s");
    fbr_json_int(&j, "silent_s", silent_s(v));
    fbr_json_array(&j, "ranks");
    for (int i = 0; i < v->run.nranks; i++) {
        const struct fiber_rank_stats *s = &v->run.ranks[i];

        fbr_json_object(&j, NULL);
        fbr_json_int(&j, "rank", s->rank);
        fbr_json_str(&j, "state", client_rank_state(s, state));
        fbr_json_str(&j, "host", s->host);
        fbr_json_int(&j, "pid", s->pid);
        fbr_json_double(&j, "cpu_s", s->cpu);
        if (cpu_share(v, s) >= 0)
            fbr_json_double(&j, "cpu_percent", cpu_share(v, s));
        else
            fbr_json_null(&j, "cpu_percent");
        fbr_json_int(&j, "memory", (int64_t)s->memory);
        fbr_json_int(&j, "restarts", s->restarts);
        fbr_json_str(&j, "boot", s->how);
        fbr_json_str(&j, "cpus", s->cpus);
        fbr_json_end_object(&j);
    }
    fbr_json_end_array(&j);
    fbr_json_end_object(&j);
    cli_print_json(stdout, &j);
    fflush(stdout);
}

/* ---- The subcommand ---- */

/* Until the next drawing; true: a key said that it is enough. */
static bool rest(const struct view *v, int ms)
{
    struct pollfd p = {.fd = v->screen ? STDIN_FILENO : -1, .events = POLLIN};
    char key;

    if (poll(&p, 1, ms) > 0 && read(STDIN_FILENO, &key, 1) == 1)
        return key == 'q' || key == 'Q' || key == 3;
    return false;
}

static void measure(struct view *v)
{
    struct winsize w;

    v->width = cli_width(STDOUT_FILENO);
    v->height = 24;
    if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &w) == 0) {
        v->height = w.ws_row > 0 ? w.ws_row : v->height;
        v->width = w.ws_col > 0 ? w.ws_col : v->width;
    }
}

static void draw(struct view *v)
{
    if (v->screen)
        measure(v);
    if (v->json)
        draw_json(v);
    else
        draw_text(v);
}

/* 1: new figures; 0: none yet; negative: it has ended. */
static int look(struct view *v, unsigned patience_ms, struct fbr_error *err)
{
    int rc;

    if (!v->unanswered)
        v->sent = fbr_now_ms();
    rc = client_ranks(&v->run, patience_ms, err);
    v->unanswered = rc == -ETIMEDOUT;
    if (rc < 0)
        return v->unanswered ? 0 : rc;
    /* A ring's figures are on their way from its hosts until the next look; a pool has its workers' here. */
    v->at = is_pool(v) ? client_now() : v->asked;
    v->asked = client_now();
    if (v->run.nranks)
        qsort(v->run.ranks, (size_t)v->run.nranks, sizeof(*v->run.ranks), by_rank);
    return 1;
}

static int watch(struct view *v, int interval, int64_t times, struct fbr_error *err)
{
    unsigned patience_ms = times ? COUNTED_MS : KEYS_MS;
    int64_t drawn = 0;
    int rc;

    rc = look(v, patience_ms, err); /* what is asked for here is there at the first look */
    if (rc < 0 || rest(v, FIRST_MS))
        return rc < 0 ? rc : 0;
    while (!asked_to_end) {
        bool fresh;

        rc = look(v, patience_ms, err);
        if (rc < 0)
            return rc;
        fresh = rc > 0;
        if (!fresh && !times && !silent_s(v)) { /* it takes a moment */
            if (rest(v, KEYS_MS))
                break;
            continue;
        }
        draw(v);
        if (fresh) {
            remember(v);
            v->before = v->at;
        }
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
    if (engine_run_here(args->operands[0], "top", &v.run, &err) < 0)
        return cli_failed(1, "%s", err.text);
    if (v.run.state >= CLIENT_ENDED) {
        client_free(&v.run);
        return cli_failed(1, "run %.16s has ended; see `fiber ps -a`", v.run.about.uid);
    }
    v.screen = !v.json && isatty(STDIN_FILENO) && cli_is_screen(STDOUT_FILENO) && !times;
    if (v.screen)
        take_terminal();
    rc = watch(&v, interval, times, &err);
    drop_picture();
    restore();
    client_free(&v.run);
    free(v.seen);
    if (rc == -ECONNRESET) { /* what one watches may end */
        fprintf(stderr, "fiber: run %.16s has ended\n", v.run.about.uid);
        return 0;
    }
    return rc < 0 ? cli_failed(1, "%s", err.text) : 0;
}

static const struct cli_option options[TOP_OPTIONS] = {
    [TOP_INTERVAL] = {"interval", 'd', CLI_MS, "T", .min = 100, .max = 3600000, .also = "delay",
                      .help = "time between two looks; default 1s"},
    [TOP_COUNT] = {"count", 'c', CLI_INT, "N", .min = 1, .max = 1 << 30,
                   .help = "prints so many tables and ends"},
    [TOP_JSON] = {"json", 0, CLI_FLAG, .help = "one JSON object a line"},
};

const struct cli_command cli_top = {
    .name = "top",
    .operands = "RUN",
    .kind = CLI_RUN,
    .about = "Shows what the ranks of a run use, live",
    .text = "Processor time, memory and restarts of each rank, and the bootstrap that it met; of a "
            "pool's workers, how busy they were and how many tasks they have done, and of the "
            "pool, how "
            "many it does in a second. q quits.\n\n"
            "While a launcher does not answer (it is stopped, say, or the machine is very busy) "
            "the last "
            "figures stay, and the second line tells for how long. With --count a look waits ten "
            "seconds "
            "for its answer.",
    .examples = "fiber top train\tlive\nfiber top train -c 1 --json\tonce, for programs",
    .options = options,
    .count = TOP_OPTIONS,
    .least = 1,
    .most = 1,
    .run = run_top,
};
