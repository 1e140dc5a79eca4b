/* faults_tcp_prog.c - what uses connections of Fiber, while a proxy in their middle (tests/beds/faults/tcp.py) does to
 * them what networks do: it goes on, or fails with a sentence, within the promised time.
 *
 * faults_tcp_prog KIND: control or data, the connections that are disturbed. The proxy is ordered through the
 * descriptors 3 (orders) and 4 (answers).
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "fiber.h"

#define DETECTION_MS 1500              /* FIBER_HEARTBEAT=500ms, three of them */
#define LIMIT_MS (DETECTION_MS + 5000) /* R6 of the promises */
#define TASKS 120
#define TASK_MS 10
#define LONG_MS 60000

static const char *kind, *now_doing = "";
static char fifo[64];
static int told = -1, bad;
static bool harmless; /* nothing is to be detected: on a busy machine it may take its time */

static int64_t now_ms(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

static void nap(int ms)
{
    nanosleep(&(struct timespec){ms / 1000, ms % 1000 * 1000000L}, NULL);
}

static bool check(bool holds, const char *what)
{
    if (!holds) {
        printf("FAILED: %s: %s (%s)\n", now_doing, what, fiber_last_error());
        bad = 1;
    }
    return holds;
}

/* ---- The proxy ---- */

/* How many connections it was done to. */
static int order(const char *which, const char *fault)
{
    char line[64], answer[16] = "";
    int n = which ? snprintf(line, sizeof(line), "%s %s %s\n", kind, which, fault)
                  : snprintf(line, sizeof(line), "forget\n");
    bool works = write(3, line, (size_t)n) == n;

    for (n = 0; works && n < 15 && !strchr(answer, '\n'); n++)
        works = read(4, answer + n, 1) == 1;
    check(works, "the proxy does not answer");
    return atoi(answer);
}

/* ---- Children ---- */

struct user {
    struct fiber_address address;
    char fifo[64];
    bool pipe;
};

static void notify(const char *path, int rc)
{
    char line[256];
    int n = snprintf(line, sizeof(line), "%d %.200s\n", rc, rc < 0 ? fiber_last_error() : "");
    int fd = open(path, O_WRONLY | O_CLOEXEC);

    if (fd < 0 || write(fd, line, (size_t)n) != n)
        _exit(97);
    close(fd);
}

/* Gets two messages: one before the fault, one after. */
static int use(const void *arg, size_t len)
{
    const struct user *u = arg;
    struct fiber_bytes got = {NULL, 0};
    struct fiber_queue *q = NULL;
    struct fiber_pipe *end = NULL;
    int rc = u->pipe ? fiber_pipe_connect(&end, &u->address) : fiber_queue_connect(&q, &u->address);

    for (int i = 0; i < 2 && rc == 0; i++) {
        rc = u->pipe ? fiber_pipe_recv(end, &got, -1) : fiber_queue_get(q, &got, -1);
        fiber_bytes_free(&got);
        notify(u->fifo, rc);
    }
    return 0;
}

static int wait_for_ever(const void *arg, size_t len)
{
    notify(arg, 0);
    while (pause() < 0 && errno == EINTR)
        continue;
    return 0;
}

static int task(const void *in, size_t len, struct fiber_reply *reply)
{
    nap(TASK_MS);
    return fiber_reply_write(reply, in, len);
}

static int method(void *state, const char *name, const void *in, size_t len,
                  struct fiber_reply *reply)
{
    if (strcmp(name, "sleep") == 0)
        nap(LONG_MS);
    return fiber_reply_write(reply, in, len);
}

static const struct fiber_class echo = {.size = sizeof(echo), .call = method};

static int rank(int rank, int size, const void *arg, size_t len)
{
    return wait_for_ever(arg, len);
}

/* What a child tells: its code, and its text in `text`. */
static int hear(char *text, size_t size)
{
    char line[300] = "";
    size_t n = 0;

    while (n + 1 < sizeof(line) && !strchr(line, '\n')) {
        struct pollfd p = {.fd = told, .events = POLLIN};

        if (poll(&p, 1, LONG_MS) != 1 || read(told, line + n, 1) != 1)
            return -ETIME;
        line[++n] = '\0';
    }
    line[strcspn(line, "\n")] = '\0';
    if (text)
        snprintf(text, size, "%s", strchr(line, ' ') ? strchr(line, ' ') + 1 : "");
    return atoi(line);
}

/* ---- The cases: each is disturbed in the middle of its work ----
 *
 * `fault` is what to do to it then, NULL if it is disturbed from the beginning, and has to work. */

static void on_time(int64_t since, int more_ms)
{
    int64_t took = now_ms() - since;
    char text[64];

    snprintf(text, sizeof(text), "took %lld ms", (long long)took);
    check(harmless || took <= LIMIT_MS + more_ms, text);
    if (getenv("SHOW"))
        printf("%s: %lld ms\n", now_doing, (long long)took);
}

static void disturb(const char *which, const char *fault)
{
    if (fault)
        check(order(which, fault) > 0, "there is no such connection");
}

static void play_process(const char *fault)
{
    const struct fiber_process_options o = {.size = sizeof(o)};
    struct fiber_process *p;
    int64_t since;

    check(fiber_process_start(&p, wait_for_ever, fifo, strlen(fifo) + 1, &o) == 0, "start");
    check(hear(NULL, 0) == 0, "it runs");
    since = now_ms();
    disturb("1", fault);
    if (!fault)
        fiber_process_kill(p);
    check(fiber_process_join(p, LONG_MS) == 0, "join");
    on_time(since, 0);
    check(fiber_process_report(p)[0] != '\0', "a report");
    fiber_process_close(p);
}

static void play_pool(const char *fault)
{
    const struct fiber_pool_options o = {.size = sizeof(o), .min = 2, .max = 2};
    int64_t in[TASKS], out[TASKS] = {0}, since;
    struct fiber_pool *pool;
    struct fiber_result *r;
    bool right = true;

    for (int i = 0; i < TASKS; i++)
        in[i] = i;
    check(fiber_pool_open(&pool, &o) == 0, "open");
    check(fiber_pool_map_array(pool, task, in, 8, out, 8, TASKS, NULL, &r) == 0, "map");
    check(fiber_result_wait_task(r, 0, LONG_MS) == 0, "the first result");
    since = now_ms();
    disturb("all", fault);
    check(fiber_result_wait(r, LONG_MS) == 0, "all results");
    on_time(since, TASKS * TASK_MS);
    for (int i = 0; i < TASKS; i++)
        right &= out[i] == i;
    check(right, "the results are right");
    fiber_result_close(r);
    fiber_pool_close(pool);
}

/* Its own job's connections are the first, those to the object the second. */
static void play_user(const char *fault, bool pipe)
{
    struct user u = {.pipe = pipe};
    struct fiber_pipe *ends[2] = {NULL, NULL};
    struct fiber_queue *q = NULL;
    struct fiber_process *p;
    char text[256] = "";
    int64_t since;
    int rc;

    snprintf(u.fifo, sizeof(u.fifo), "%s", fifo);
    if (pipe)
        check(fiber_pipe_open(ends, 0) == 0 && fiber_pipe_address(ends[1], &u.address) == 0,
              "open");
    else
        check(fiber_queue_open(&q, 0) == 0 && fiber_queue_address(q, &u.address) == 0, "open");
    check(fiber_process_start(&p, use, &u, sizeof(u), NULL) == 0, "start");
    rc = pipe ? fiber_pipe_send(ends[0], "x", 1, LONG_MS) : fiber_queue_put(q, "x", 1, LONG_MS);
    check(rc == 0 && hear(NULL, 0) == 0, "the first message");
    since = now_ms();
    disturb(strcmp(kind, "data") == 0 ? "1" : "2", fault);
    if (!fault)
        rc = pipe ? fiber_pipe_send(ends[0], "y", 1, LONG_MS) : fiber_queue_put(q, "y", 1, LONG_MS);
    rc = hear(text, sizeof(text));
    on_time(since, 0);
    check(fault ? rc < 0 && rc != -ETIME && text[0] : rc == 0, fault ? text : "the next message");
    check(fiber_process_join(p, LONG_MS) == 0, "join");
    fiber_process_close(p);
    fiber_pipe_close(ends[0]);
    fiber_pipe_close(ends[1]);
    fiber_queue_close(q);
}

static void play_queue(const char *fault)
{
    play_user(fault, false);
}

static void play_pipe(const char *fault)
{
    play_user(fault, true);
}

static void play_manager(const char *fault)
{
    struct fiber_manager *m;
    struct fiber_future *f;
    int64_t since;
    int rc;

    if (!check(fiber_manager_start(&m, &echo, NULL, 0, NULL) == 0, "start"))
        return;
    check(fiber_manager_call(m, "echo", "x", 1, NULL, LONG_MS) == 0, "a call");
    check(fiber_manager_call_async(m, fault ? "sleep" : "echo", "x", 1, &f) == 0, "call");
    since = now_ms();
    disturb("all", fault);
    rc = fiber_future_get(f, NULL, LONG_MS);
    on_time(since, 0);
    check(fault ? rc < 0 && rc != -ETIMEDOUT : rc == 0, "the answer");
    fiber_future_close(f);
    since = now_ms();
    fiber_manager_close(m);
    on_time(since, 0);
}

static void play_store(const char *fault)
{
    struct fiber_bytes got = {NULL, 0};
    struct fiber_store *s;
    int64_t since, value = 0;
    int rc = 0;

    if (!check(fiber_store_start(&s, NULL) == 0, "start"))
        return;
    check(fiber_store_set(s, "key", "x", 1) == 0, "set");
    since = now_ms();
    disturb("all", fault);
    while (fault && rc >= 0 &&
           now_ms() - since < LONG_MS) /* some may be answered before it is noticed */
        rc = fiber_store_add(s, "n", 1, &value);
    if (!fault)
        rc = fiber_store_get(s, "key", &got, LONG_MS);
    on_time(since, 0);
    check(fault ? rc < 0 : rc == 0 && got.len == 1, "the answer");
    fiber_bytes_free(&got);
    fiber_store_close(s);
}

static void play_ring(const char *fault)
{
    const struct fiber_ring_options o = {.size = sizeof(o),
                                         .per_node = 1,
                                         .nodes = 2,
                                         .grace_ms = 100,
                                         .flags = FIBER_RING_OVERSUBSCRIBE | FIBER_RING_QUIET};
    struct fiber_ring *ring;
    int64_t since;
    int code = 0;

    check(fiber_ring_start(&ring, 2, rank, fifo, strlen(fifo) + 1, &o) == 0, "start");
    check(hear(NULL, 0) == 0 && hear(NULL, 0) == 0, "the ranks run");
    since = now_ms();
    disturb("1", fault);
    if (!fault)
        fiber_ring_stop(ring);
    check(fiber_ring_wait(ring, LONG_MS) == 0, "wait");
    on_time(since, 0);
    check(fiber_ring_exitcode(ring, &code) == 0 && code != 0, "a code");
    check(!fault || fiber_ring_report(ring)[0], "a report");
    fiber_ring_close(ring);
}

static const struct {
    const char *name;
    void (*fn)(const char *fault);
    bool has_data;
} cases[] = {{"process", play_process, false}, {"pool", play_pool, true},
             {"queue", play_queue, true},      {"pipe", play_pipe, true},
             {"manager", play_manager, true},  {"store", play_store, true},
             {"ring", play_ring, false}};
static const char *const faults[] = {"pass", "delay",   "split", "trickle",  "cut",       "reset",
                                     "half", "corrupt", "stall", "stall-up", "stall-down"};
#define HARMLESS 4 /* the first of them */

static bool applies(size_t c)
{
    return strcmp(kind, "data") != 0 || cases[c].has_data;
}

static void play(size_t c, size_t f)
{
    char title[64];

    snprintf(title, sizeof(title), "%s, %s %s", cases[c].name, kind, faults[f]);
    now_doing = title;
    harmless = f < HARMLESS;
    if (harmless)
        order("all", faults[f]);
    cases[c].fn(harmless ? NULL : faults[f]);
    order(NULL, NULL);
    now_doing = "";
}

int main(int argc, char **argv)
{
    if (fiber_init(&argc, &argv) < 0) {
        fprintf(stderr, "%s\n", fiber_last_error());
        return 1;
    }
    kind = argc > 1 ? argv[1] : "control";
    setvbuf(stdout, NULL, _IOLBF, 0);
    snprintf(fifo, sizeof(fifo), "%s/told-%d", getenv("TMPDIR") ? getenv("TMPDIR") : "/tmp",
             (int)getpid());
    if (mkfifo(fifo, 0600) < 0 || (told = open(fifo, O_RDWR | O_CLOEXEC)) < 0)
        return 99;
    for (size_t c = 0; c < sizeof(cases) / sizeof(cases[0]); c++)
        for (size_t f = 0; f < sizeof(faults) / sizeof(faults[0]); f++)
            if (applies(c) && (argc < 3 || strcmp(argv[2], cases[c].name) == 0) &&
                (argc < 4 || strcmp(argv[3], faults[f]) == 0))
                play(c, f);
    unlink(fifo);
    return bad;
}
