/* mixed.c - a ring of MPI ranks trains, while an elastic pool of simulators draws images that are
 * hard for the ring.
 *
 * The ring is mpi/sgd_ring.c, an ordinary MPI program. The pool's tasks redraw training images as
 * other people might have written them. A task draws each image twice, and keeps the drawing that
 * is harder for the ring's network. Data that travels:
 *  - the network, 0.8 MB: from the ring's checkpoint into a store, after each epoch; each worker
 *    fetches it from there once;
 *  - a task: a number; its result: a sheet of 200 images, 157 KB, which goes into a folder that the
 *    ring reads;
 *  - between the ranks: gradients, by MPI_Allreduce. Neither the pool nor this program sees them.
 * Neither side waits for the other: the ring takes the sheets that exist, and the pool is only a
 * limited number of sheets ahead. During the run this program kills a worker and a rank: the
 * worker's tasks go to others, and the ring continues from its checkpoint. A ledger counts the
 * deliveries of each task. docs/mixing.md explains this design and what it gains.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <getopt.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/eventfd.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include "fiber.h"
#include "mpi/mnist.h"

#ifndef EXAMPLE_DATA
#define EXAMPLE_DATA "examples/data"
#endif
#define AHEAD 40 /* sheets, made or under way, that the ring has not taken: two epochs */
#define SLOTS 64 /* tasks under way, at most */
#define MAX_TASKS 65536
#define MAX_RANKS 128
#define TICK_MS 50

struct task {
    uint32_t number,
        /* epoch: of the network that the task must judge by, or later; 0: there is none yet */
        epoch;
};

/* State of this process, master or worker, because a task function has no argument for it. */
static struct {
    struct setup { /* argument of a worker's initializer */
        uint64_t seed;
        struct fiber_address store;
        char data[PATH_MAX];
    } setup;
    const struct mnist *mnist;
    struct fiber_store *store;
    struct fiber_bytes fetched; /* a struct network, in a worker */
    int wake;                   /* in the master, an eventfd: a task was delivered */
} here;

struct network {
    uint32_t epoch;
    struct model model;
};

/* ---- The worker ---- */

static int build_mnist(void *data, size_t len, void *user)
{
    (void)len, (void)user;
    return mnist_load(data, here.setup.data);
}

static int map_mnist(void) /* until the process ends */
{
    struct fiber_shared *mnist;
    int rc = fiber_shared_open(&mnist, "mnist", sizeof(struct mnist), build_mnist, NULL);

    if (rc == 0)
        here.mnist = fiber_shared_data(mnist);
    return rc;
}

static int init_worker(const void *arg, size_t len)
{
    memcpy(&here.setup, arg, len);
    return map_mnist() ? 1 : fiber_store_connect(&here.store, &here.setup.store);
}

static float doubt(const struct network *n, const struct image *image)
{
    float hidden[HIDDEN], out[DIGITS];

    model_run(&n->model, image, hidden, out);
    return 1 - out[image->label];
}

static int draw_sheet(const void *in, size_t len, struct fiber_reply *reply)
{
    const struct task *task = in;
    const struct network *n = here.fetched.data;
    struct sheet *sheet = fiber_reply_alloc(reply, sizeof(*sheet));
    struct image other;
    int rc = 0;

    (void)len;
    if (task->epoch && (!n || n->epoch < task->epoch)) {
        fiber_bytes_free(&here.fetched);
        rc = fiber_store_get(here.store, "network", &here.fetched, 0);
        n = here.fetched.data;
    }
    if (rc || !sheet)
        return fiber_reply_fail(reply, rc ? rc : -ENOMEM, "cannot fetch the network: %s",
                                fiber_last_error());
    for (int i = 0; i < SHEET; i++) {
        uint64_t number = (uint64_t)task->number * SHEET + (uint64_t)i,
                 seed = here.setup.seed + number * 2;
        /* all images in turn, in a scattered order */
        const struct image *image = &here.mnist->train[number * 1009 % TRAIN];

        redraw(image, &sheet->image[i], draw(&seed));
        redraw(image, &other, draw(&seed));
        if (n && doubt(n, &other) > doubt(n, &sheet->image[i]))
            sheet->image[i] = other;
    }
    return 0;
}

/* ---- The run ---- */

struct mixed {
    int ranks, min, max, epochs, seed;
    int quick, no_kill, alone, live, colour;
    const char *backend;
    /* the ring's program; the shared folder; the images */
    char program[PATH_MAX], folder[PATH_MAX], data[PATH_MAX];
    struct fiber_pool *pool;
    struct fiber_ring *ring;
    struct fiber_pool_stats stats;
    int most, fewest; /* numbers of workers since the first one joined */
    struct slot {
        struct fiber_result *result;
        uint32_t task;
    } slot[SLOTS];
    uint32_t tasks, sheets;   /* submitted to the pool; written for the ring */
    unsigned char *ledger;    /* number of deliveries of each task */
    int epoch, taken, begins; /* of the ring: epochs done, sheets taken, starts */
    double begun, killed_at;  /* killed_at: when a rank was killed, until the ring is back */
    long log_at;              /* number of bytes read from the log */
    struct fiber_rank_stats rank[MAX_RANKS];
    int worker_killed, rank_killed;
    char status[256]; /* the status line; "": none */
};

static volatile sig_atomic_t stopped;

static void on_signal(int number)
{
    stopped = number;
}

static double read_clock(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static const char *path_in(const struct mixed *m, const char *name)
{
    static char path[PATH_MAX + 32];

    snprintf(path, sizeof(path), "%s/%s", m->folder, name);
    return path;
}

/* ---- The screen: lines that stay, and on a terminal a status line below them ---- */

static void clear_status(struct mixed *m)
{
    if (m->status[0])
        fputs("\r\033[K", stdout);
    m->status[0] = '\0';
    fflush(stdout);
}

__attribute__((format(printf, 2, 3))) static void say(struct mixed *m, const char *fmt, ...)
{
    va_list ap;

    clear_status(m);
    va_start(ap, fmt);
    vprintf(fmt, ap);
    va_end(ap);
    putchar('\n');
    fflush(stdout);
}

__attribute__((format(printf, 2, 3))) static void complain(struct mixed *m, const char *fmt, ...)
{
    va_list ap;

    clear_status(m);
    va_start(ap, fmt);
    fputs("mixed: ", stderr);
    vfprintf(stderr, fmt, ap);
    va_end(ap);
    fputc('\n', stderr);
}

static void show_status(struct mixed *m)
{
    int done = m->epochs ? 20 * m->epoch / m->epochs : 0, n;
    char line[sizeof(m->status)];

    if (!m->live || m->killed_at > 0) /* while the ring starts again, the library prints */
        return;
    n = snprintf(line, sizeof(line), "[%-20.*s] ring: %d ranks", done, "####################",
                 m->ranks);
    if (m->pool)
        snprintf(line + n, sizeof(line) - (size_t)n,
                 " | pool: %d workers, %d busy, %d sheets ahead", m->stats.workers, m->stats.busy,
                 (int)m->sheets - m->taken);
    if (strcmp(line, m->status) == 0)
        return;
    memcpy(m->status, line, sizeof(line));
    printf("\r\033[?7l%s\033[K\033[?7h", line); /* a narrow terminal cuts it off */
    fflush(stdout);
}

/* ---- The pool's side ---- */

/* Counts a delivery in the ledger, and wakes the master. Runs on an internal thread. */
static void note_delivery(void *user, size_t index, int code, const void *data, size_t len)
{
    unsigned char *deliveries = user;
    uint64_t one = 1;

    (void)index, (void)data, (void)len;
    *deliveries += code == 0;
    /* on failure the eventfd is readable already */
    if (write(here.wake, &one, sizeof(one)) < 0)
        return;
}

/* Writes a sheet under a temporary name and renames it, so that the ring takes only whole sheets.
 * Sheets are numbered in the order of their arrival, so that the ring waits for none. */
static int write_sheet(struct mixed *m, const void *data, size_t len)
{
    char path[PATH_MAX + 32];
    FILE *file = fopen(path_in(m, "sheet.new"), "wb");
    int ok = file && fwrite(data, len, 1, file) == 1;

    ok = file && fclose(file) == 0 && ok;
    snprintf(path, sizeof(path), "%s/sheet.%u", m->folder, m->sheets);
    if (!ok || rename(path_in(m, "sheet.new"), path)) {
        complain(m, "cannot write %s: %s", path, strerror(errno));
        return -EIO;
    }
    m->sheets++;
    return 0;
}

static int collect_sheets(struct mixed *m)
{
    const void *data;
    size_t len;
    int rc = 0;

    for (int i = 0; i < SLOTS && rc == 0; i++) {
        struct slot *s = &m->slot[i];

        if (!s->result || fiber_result_wait(s->result, 0))
            continue;
        rc = fiber_result_get(s->result, 0, &data, &len);
        if (rc)
            complain(m, "task %u failed: %.*s", s->task, rc == -EAGAIN ? 0 : (int)len,
                     (const char *)data);
        else
            rc = write_sheet(m, data, len);
        fiber_result_close(s->result);
        s->result = NULL;
    }
    return rc;
}

/* Submits tasks until the pool is AHEAD sheets ahead of the ring; a pool without tasks shrinks. */
static int give_tasks(struct mixed *m)
{
    struct fiber_map_options opts = {.size = sizeof(struct fiber_map_options)};
    int rc = 0, under_way = 0;

    opts.on_done = note_delivery;
    for (int i = 0; i < SLOTS; i++)
        under_way += m->slot[i].result != NULL;
    for (int i = 0; i < SLOTS && rc == 0; i++) {
        struct task task = {m->tasks, (uint32_t)m->epoch};

        if (m->slot[i].result)
            continue;
        if (under_way + (int)m->sheets - m->taken >= AHEAD || m->tasks == MAX_TASKS ||
            m->epoch + 1 >= m->epochs)
            return 0;
        opts.user = &m->ledger[m->tasks];
        rc = fiber_pool_apply_async(m->pool, draw_sheet, &task, sizeof(task), &opts,
                                    &m->slot[i].result);
        if (rc)
            complain(m, "cannot give the pool a task: %s", fiber_last_error());
        else
            m->slot[i].task = m->tasks++;
        under_way++;
    }
    return rc;
}

/* Kills a worker that has work, on any host. */
static void kill_worker(struct mixed *m)
{
    struct fiber_worker_stats worker[64];
    int n = fiber_pool_worker_stats(m->pool, worker, 64);

    for (int i = 0; i < n && i < 64; i++) {
        if (worker[i].state != 2 || fiber_pool_worker_kill(m->pool, worker[i].name) < 0)
            continue;
        m->worker_killed = 1;
        say(m, "killed %s of the pool at work", worker[i].name);
        return;
    }
}

/* ---- The ring's side ---- */

static int read_checkpoint(struct mixed *m, struct checkpoint *c)
{
    FILE *file = fopen(path_in(m, "checkpoint"), "rb");
    int ok =
        file && fread(c, sizeof(*c), 1, file) == 1 && memcmp(c->magic, CHECKPOINT_MAGIC, 8) == 0;

    if (file)
        fclose(file);
    return ok ? 0 : -ENODATA;
}

/* Publishes the ring's present network, by which the pool rates its drawings. */
static int publish_network(struct mixed *m)
{
    struct checkpoint *c = malloc(sizeof(*c));
    struct network *n = malloc(sizeof(*n));
    int rc = c && n ? read_checkpoint(m, c) : -ENOMEM;

    if (rc == 0) {
        n->epoch = c->epochs;
        n->model = c->model;
        rc = fiber_store_set(here.store, "network", n, sizeof(*n));
    }
    if (rc)
        complain(m, "cannot hand the network to the pool: %s",
                 rc == -ENODATA ? "the ring left no checkpoint" : fiber_last_error());
    free(c);
    free(n);
    return rc;
}

/* Kills the last rank, on any host. */
static void kill_rank(struct mixed *m)
{
    struct fiber_rank_stats *rank = &m->rank[m->ranks - 1];

    if (fiber_ring_stats(m->ring, m->rank, m->ranks) < m->ranks || rank->state != 1 ||
        fiber_ring_signal_rank(m->ring, rank->rank, SIGKILL) < 0)
        return;
    m->rank_killed = 1;
    m->killed_at = read_clock();
    say(m, "killed rank %d of the ring (pid %d on %s) in epoch %d", rank->rank, (int)rank->pid,
        rank->host, m->epoch + 1);
}

static int on_epoch(struct mixed *m, const char *line)
{
    const char *mark = m->colour ? "\033[32m" : "", *plain = m->colour ? "\033[0m" : "";
    float loss, right, seconds;
    int epoch, rc = 0;

    if (sscanf(line, "resumed after epoch %d", &epoch) == 1) {
        if (m->killed_at > 0)
            say(m, "the ring is back, %.1f s later: it goes on after epoch %d",
                read_clock() - m->killed_at, epoch);
        else /* another fault made it start again */
            say(m, "the ring is back: it goes on after epoch %d", epoch);
        m->killed_at = 0;
        m->begins++;
    }
    if (sscanf(line, "epoch %d/%*d loss %f held out %f %% %f s drawn %*d %% new %*d sheets %d",
               &epoch, &loss, &right, &seconds, &m->taken) < 4)
        return 0;
    m->epoch = epoch;
    clear_status(m);
    printf("ring: epoch %2d/%d  loss %.3f  held out %s%.1f %%%s  %.2f s", epoch, m->epochs, loss,
           mark, right, plain, seconds);
    if (m->pool)
        printf(" | pool: %d workers, %3u sheets", m->stats.workers, m->sheets);
    putchar('\n');
    fflush(stdout);
    fiber_ring_stats(m->ring, m->rank, m->ranks);
    if (m->alone)
        return 0;
    if (epoch < m->epochs)
        rc = publish_network(m);
    if (!m->no_kill && !m->rank_killed && epoch >= m->epochs / 2)
        kill_rank(m);
    return rc;
}

/* Continues to read the log, line by line; a line that is not complete yet is left for the next
 * call. */
static int read_log(struct mixed *m)
{
    FILE *file = fopen(path_in(m, "log"), "r");
    char line[512];
    int rc = 0;

    if (!file || fseek(file, m->log_at, SEEK_SET))
        line[0] = '\0';
    else
        while (rc == 0 && fgets(line, sizeof(line), file) && strchr(line, '\n')) {
            m->log_at = ftell(file);
            rc = on_epoch(m, line);
        }
    if (file)
        fclose(file);
    return rc;
}

/* ---- Begin, middle and end ---- */

static int open_pool(struct mixed *m)
{
    struct fiber_pool_options opts = {
        .size = sizeof(opts), .init = init_worker, .init_arg = &here.setup};
    int rc = fiber_store_start(&here.store, NULL);

    opts.min = m->min;
    opts.max = m->max;
    opts.backend = m->backend;
    opts.init_len = sizeof(here.setup);
    opts.job.name = "simulator";
    if (rc == 0)
        rc = fiber_store_address(here.store, &here.setup.store);
    return rc ? rc : fiber_pool_open(&m->pool, &opts);
}

static int start_ring(struct mixed *m)
{
    char epochs[16], seed[16], checkpoint[PATH_MAX + 32], log[PATH_MAX + 32];
    const char *argv[] = {
        m->program,      "--epochs", epochs, "--seed",       seed,       "--data",
        here.setup.data, "--log",    log,    "--checkpoint", checkpoint, m->alone ? NULL : "--feed",
        m->folder,       NULL};
    struct fiber_ring_options opts = {.size = sizeof(opts), .on_failure = FIBER_RING_RESTART};

    snprintf(epochs, sizeof(epochs), "%d", m->epochs);
    snprintf(seed, sizeof(seed), "%d", m->seed);
    snprintf(log, sizeof(log), "%s/log", m->folder);
    snprintf(checkpoint, sizeof(checkpoint), "%s/checkpoint", m->folder);
    opts.job.command = argv;
    opts.backend = m->backend;
    opts.flags = FIBER_RING_OVERSUBSCRIBE;
    return fiber_ring_start(&m->ring, m->ranks, NULL, NULL, 0, &opts);
}

static int open_run(struct mixed *m)
{
    int rc;

    if (access(m->program, X_OK)) {
        fprintf(stderr,
                "mixed: cannot run %s: %s. It is built from examples/mpi/sgd_ring.c when mpicc is "
                "there.\n",
                m->program, strerror(errno));
        return -ENOENT;
    }
    rc = map_mnist();
    if (rc) {
        fprintf(stderr, "mixed: cannot use %s: %s.\n", here.setup.data,
                rc == -EBADMSG ? "it is not 5,000 lines of 784 grey values and a digit, with commas"
                               : fiber_strerror(rc));
        return rc;
    }
    if (!mkdtemp(m->folder)) {
        fprintf(stderr, "mixed: cannot make the folder %s: %s. TMPDIR chooses another place.\n",
                m->folder, strerror(errno));
        return -ENOENT;
    }
    m->ledger = calloc(MAX_TASKS, 1);
    here.wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    rc = !m->ledger || here.wake < 0 ? -ENOMEM : m->alone ? 0 : open_pool(m);
    if (rc == 0)
        rc = start_ring(m);
    if (rc)
        fprintf(stderr, "mixed: cannot start: %s\n", fiber_last_error());
    return rc;
}

static int run(struct mixed *m)
{
    struct pollfd fds[] = {{fiber_ring_sentinel(m->ring), POLLIN, 0}, {here.wake, POLLIN, 0}};
    uint64_t count;
    int rc = 0;

    while (rc == 0 && !stopped && !(fds[0].revents & POLLIN)) {
        if (poll(fds, 2, TICK_MS) < 0)
            continue;
        if (fds[1].revents && read(here.wake, &count, sizeof(count)) < 0)
            continue;
        rc = read_log(m);
        if (rc == 0 && m->pool)
            rc = collect_sheets(m);
        if (rc == 0 && m->pool)
            rc = give_tasks(m);
        if (m->pool)
            fiber_pool_stats(m->pool, &m->stats);
        m->most = m->stats.workers > m->most ? m->stats.workers : m->most;
        if (m->pool && !m->no_kill && !m->worker_killed && m->epoch >= m->epochs / 4)
            kill_worker(m);
        show_status(m);
    }
    return rc ? rc : read_log(m);
}

static void remove_folder(struct mixed *m)
{
    char name[32];

    for (uint32_t i = 0; i < m->sheets; i++) {
        snprintf(name, sizeof(name), "sheet.%u", i);
        unlink(path_in(m, name));
    }
    unlink(path_in(m, "sheet.new"));
    unlink(path_in(m, "checkpoint"));
    unlink(path_in(m, "checkpoint.new"));
    unlink(path_in(m, "log"));
    rmdir(m->folder);
}

/* Returns the held-out accuracy in percent, measured here and not by the ring. */
static float measure(struct mixed *m)
{
    struct checkpoint *c = malloc(sizeof(*c));
    float right = c && read_checkpoint(m, c) == 0
                      ? 100.0f * (float)model_count(&c->model, here.mnist->test, TEST) / TEST
                      : 0;

    free(c);
    return right;
}

static void print_bindings(const struct mixed *m)
{
    printf("bindings:\n");
    for (int i = 0; i < m->ranks; i++) {
        const struct fiber_rank_stats *r = &m->rank[i];

        printf("  rank %-3d pid %lld on %s, %s%s, found the others by %s\n", r->rank,
               (long long)r->pid, r->host, r->cpus[0] ? "cpus " : "not bound", r->cpus,
               r->how[0] ? r->how : "nothing");
    }
    if (!m->rank[0].cpus[0])
        printf("  (ranks that share processors are not bound; --ranks 1 to %ld would be)\n",
               sysconf(_SC_NPROCESSORS_ONLN));
}

/* Returns the exit code: 0 only if the run did all that it must. */
static int end_run(struct mixed *m)
{
    float bar = m->quick ? 90 : 92, right = measure(m);
    int code = 1, lost = 0, twice = 0, bad = 0;

    clear_status(m);
    fiber_ring_exitcode(m->ring, &code);
    if (m->pool) {
        fiber_pool_drain(m->pool, 30000);
        collect_sheets(m);
        fiber_pool_stats(m->pool, &m->stats);
        fiber_pool_close(m->pool); /* no delivery can come after this */
    }
    for (uint32_t i = 0; i < m->tasks; i++) {
        lost += m->ledger[i] == 0;
        twice += m->ledger[i] > 1;
    }
    printf("held-out accuracy %.1f %%: of %d images that neither the ring nor the pool has seen\n",
           right, TEST);
    printf("ring: %d ranks, %d epochs in %.1f s, restarts %d\n", m->ranks, m->epoch,
           read_clock() - m->begun, m->begins);
    if (m->pool)
        printf("pool: up to %d workers, %u tasks, %u images; deaths %llu, tasks requeued %llu, "
               "lost %d, "
               "delivered twice %d\n",
               m->most, m->tasks, m->sheets * SHEET, (unsigned long long)m->stats.deaths,
               (unsigned long long)m->stats.requeued, lost, twice);
    m->pool = NULL;
    print_bindings(m);
    if (code)
        bad = fprintf(stderr, "mixed: the ring ended with code %d.\n", code);
    if (right < bar)
        bad = fprintf(stderr, "mixed: it should have reached %.0f %%.\n", bar);
    if (lost || twice)
        bad = fprintf(stderr, "mixed: tasks were lost or delivered twice.\n");
    if (m->rank_killed && !m->begins)
        bad = fprintf(stderr, "mixed: the ring did not come back from its checkpoint.\n");
    if (!m->no_kill && !m->alone && (!m->rank_killed || !m->worker_killed))
        printf("nothing was killed of the %s: none was found at work on this host\n",
               m->rank_killed ? "pool" : "ring");
    return bad != 0;
}

/* ---- Options ---- */

static const char help[] =
    "Usage: mixed [options]\n"
    "A ring of MPI ranks trains on MNIST while an elastic pool draws more images for it.\n"
    "  --ranks N          of the ring (4)\n"
    "  --workers MIN,MAX  of the pool (1,3)\n"
    "  --epochs N         (40; with --quick 16)\n"
    "  --seed N           (1)\n"
    "  --quick            fewer epochs; less than 90 % is a failure, else less than 92 %\n"
    "  --no-kill          kills no worker and no rank on the way\n"
    "  --alone            the ring without the pool, to compare with\n"
    "  --backend B        where both run (as configured)\n"
    "  --data FILE        lines of 784 grey values and a digit, gzip or plain\n"
    "  --ring PROGRAM     what the ranks run (mpi/sgd_ring beside this program)\n"
    "With another backend than local, TMPDIR names a folder that rank 0's host has as well.\n";

static int parse_number(const char *name, const char *text, int low, int high, int *value)
{
    char *end;
    long n = strtol(text, &end, 10);

    if (*text && !*end && n >= low && n <= high) {
        *value = (int)n;
        return 0;
    }
    fprintf(stderr, "mixed: --%s wants a number from %d to %d, not \"%s\".\n", name, low, high,
            text);
    return 2;
}

static int parse_workers(struct mixed *m, const char *text)
{
    char extra;
    int n = sscanf(text, "%d,%d%c", &m->min, &m->max, &extra);

    if (n == 1)
        m->max = m->min;
    if (n >= 1 && n <= 2 && m->min >= 1 && m->max >= m->min && m->max <= 64)
        return 0;
    fprintf(stderr, "mixed: --workers wants MIN,MAX with 1 <= MIN <= MAX <= 64, not \"%s\".\n",
            text);
    return 2;
}

/* Returns 0, or the exit code. */
static int parse_options(struct mixed *m, int argc, char **argv)
{
    static const struct option options[] = {
        {"ranks", 1, NULL, 'n'}, {"workers", 1, NULL, 'w'}, {"epochs", 1, NULL, 'e'},
        {"seed", 1, NULL, 's'},  {"quick", 0, NULL, 'q'},   {"no-kill", 0, NULL, 'k'},
        {"alone", 0, NULL, 'a'}, {"backend", 1, NULL, 'b'}, {"data", 1, NULL, 'd'},
        {"ring", 1, NULL, 'r'},  {"help", 0, NULL, 'h'},    {NULL, 0, NULL, 0}};
    int c, rc = 0;

    opterr = 0;
    while (rc == 0 && (c = getopt_long(argc, argv, "", options, NULL)) >= 0 && c != '?') {
        switch (c) {
        case 'n':
            rc = parse_number("ranks", optarg, 1, MAX_RANKS, &m->ranks);
            break;
        case 'w':
            rc = parse_workers(m, optarg);
            break;
        case 'e':
            rc = parse_number("epochs", optarg, 1, 100000, &m->epochs);
            break;
        case 's':
            rc = parse_number("seed", optarg, 1, 1000000, &m->seed);
            break;
        case 'q':
            m->quick = 1;
            break;
        case 'k':
            m->no_kill = 1;
            break;
        case 'a':
            m->alone = m->no_kill = 1;
            break;
        case 'b':
            m->backend = optarg;
            break;
        case 'd':
            snprintf(here.setup.data, sizeof(here.setup.data), "%s", optarg);
            break;
        case 'r':
            snprintf(m->program, sizeof(m->program), "%s", optarg);
            break;
        default:
            fputs(help, stdout);
            exit(0);
        }
    }
    if (rc || (c != '?' && optind == argc))
        return rc;
    fprintf(stderr,
            "mixed: \"%s\" is not an option, or lacks its value; --help lists the options.\n",
            argv[c == '?' ? optind - 1 : optind]);
    return 2;
}

static void set_defaults(struct mixed *m)
{
    const char *term = getenv("TERM"), *no_color = getenv("NO_COLOR"), *tmp = getenv("TMPDIR");
    ssize_t n = readlink("/proc/self/exe", m->program, sizeof(m->program) - 32);

    m->program[n > 0 ? n : 0] = '\0';
    snprintf(strrchr(m->program, '/') ? strrchr(m->program, '/') : m->program, 32, "/mpi/sgd_ring");
    snprintf(m->folder, sizeof(m->folder), "%s/mixed-XXXXXX", tmp && *tmp ? tmp : "/tmp");
    snprintf(here.setup.data, sizeof(here.setup.data), "%s/mnist_5k.csv.gz", EXAMPLE_DATA);
    m->live = isatty(STDOUT_FILENO) && term && strcmp(term, "dumb") != 0;
    m->colour = m->live && !(no_color && *no_color);
}

int main(int argc, char **argv)
{
    static struct mixed m = {
        .ranks = 4, .min = 1, .max = 3, .seed = 1, .stats = {.size = sizeof(m.stats)}};
    struct sigaction action = {.sa_handler = on_signal};
    int rc = fiber_init(&argc, &argv), made;

    if (rc < 0) {
        fprintf(stderr, "mixed: %s\n", fiber_last_error());
        return 1;
    }
    set_defaults(&m);
    rc = parse_options(&m, argc, argv);
    if (rc)
        return rc;
    m.epochs = m.epochs ? m.epochs : m.quick ? 16 : 40;
    m.begun = read_clock();
    here.setup.seed = (uint64_t)m.seed << 40;
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
    rc = open_run(&m);
    made = !strstr(m.folder, "XXXXXX");
    rc = rc || run(&m) ? 1 : stopped ? 128 + stopped : end_run(&m);
    clear_status(&m);
    fiber_ring_close(m.ring);
    fiber_pool_close(m.pool);
    fiber_store_close(here.store);
    for (int i = 0; i < SLOTS; i++)
        fiber_result_close(m.slot[i].result);
    if (made)
        remove_folder(&m);
    free(m.ledger);
    return rc;
}
