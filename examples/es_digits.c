/* es_digits.c - evolution strategies train a network on handwritten digits, in a pool that grows
 * and loses a worker.
 *
 * A template for an evolution strategy of your own: put your network or simulator into
 * measure_fitness(), your data into load_digits(), and keep the rest. The method is that of
 * Salimans et al. (2017, arXiv 1703.03864): a generation tries theta + sigma e and theta - sigma e
 * for random directions e, and moves theta along the directions. The weight of a direction is the
 * difference of the fitness ranks of its two tries. Data that travels, and how often:
 *  - the noise, of which the directions are parts, and the images: never. The first process of a
 *    host builds them in memory that the other processes map;
 *  - theta and the minibatch, 10 KB: once per generation and worker, from a store;
 *  - a task: the offsets of its directions in the noise, 36 bytes; its result: the fitness of its
 *    tries, 64 bytes.
 * The same seed gives the same training for any number of workers and any deaths, because results
 * are taken by their index. A ledger counts the deliveries of each task; the program fails if a
 * result was lost or delivered twice.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <getopt.h>
#include <limits.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include <zlib.h>
#include "fiber.h"

#ifndef EXAMPLE_DATA
#define EXAMPLE_DATA "examples/data"
#endif
#define PIXELS 64
#define HIDDEN 32
#define DIGITS 10
#define LAYER_2 (PIXELS * HIDDEN + HIDDEN) /* its offset in theta; biases follow weights */
#define PARAMS (LAYER_2 + HIDDEN * DIGITS + DIGITS)
#define MAX_IMAGES 4096
#define NOISE (4u << 20) /* floats in the table, 16 MiB */

#define TASKS 32  /* in a generation */
#define TRIES 16  /* in a task, for a few milliseconds of work */
#define BATCH 512 /* images that measure a try */
#define SIGMA 0.1f
#define RATE 0.08f /* learning rate of Adam at the start; it falls to zero */
#define DECAY 0.02f

struct digits { /* training images from the front, held-out images from the back */
    int train, test;
    float pixel[MAX_IMAGES][PIXELS];
    unsigned char label[MAX_IMAGES];
};

struct generation { /* the data that all its tasks share */
    uint32_t number;
    uint16_t batch[BATCH]; /* training images */
    float theta[PARAMS];
};

struct task {
    uint32_t generation;
    uint32_t offset[TRIES / 2]; /* offset of each direction in the noise */
};

/* State of this process, master or worker, because a task function has no argument for it. */
static struct {
    struct setup { /* argument of a worker's initializer */
        uint64_t seed;
        struct fiber_address store;
        char data[PATH_MAX];
    } setup;
    const float *noise;
    const struct digits *digits;
    struct fiber_store *store;
    struct fiber_bytes fetched; /* a struct generation, in a worker */
} here;

/* ---- The host's shared memory ---- */

static uint64_t draw(uint64_t *state) /* splitmix64 (Steele, Lea, Flood 2014) */
{
    uint64_t z = *state += 0x9e3779b97f4a7c15u;

    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

static int build_noise(void *data, size_t len, void *user)
{
    uint64_t state = here.setup.seed;
    float *noise = data;

    (void)user;
    for (size_t i = 0; i < len / sizeof(float);
         i++) { /* approximately normal: the sum of four uniform deviates */
        uint64_t bits = draw(&state);

        for (int part = 0; part < 64; part += 16)
            noise[i] += ((float)(bits >> part & 0xffff) / 65535 - 0.5f) * 1.7320508f;
    }
    return 0;
}

static int add_image(struct digits *d, const char *line,
                     int seen[DIGITS]) /* every fifth of a digit is held out */
{
    long value[PIXELS + 1];
    char *end;
    int at;

    for (int i = 0; i <= PIXELS; i++, line = end + 1) {
        value[i] = strtol(line, &end, 10);
        if (*end != (i < PIXELS ? ',' : '\n'))
            return -EBADMSG;
    }
    if (value[PIXELS] < 0 || value[PIXELS] >= DIGITS || d->train + d->test == MAX_IMAGES)
        return -EBADMSG;
    at = ++seen[value[PIXELS]] % 5 == 0 ? MAX_IMAGES - ++d->test : d->train++;
    d->label[at] = (unsigned char)value[PIXELS];
    for (int i = 0; i < PIXELS; i++)
        d->pixel[at][i] = (float)value[i] / 16;
    return 0;
}

static int load_digits(void *data, size_t len, void *user)
{
    int seen[DIGITS] = {0}, rc = 0;
    struct digits *d = data;
    char line[512];
    gzFile file = gzopen(here.setup.data, "r");

    (void)len, (void)user;
    if (!file)
        return -errno;
    while (rc == 0 && gzgets(file, line, sizeof(line)))
        rc = add_image(d, line, seen);
    gzclose(file);
    return rc || (d->train && d->test) ? rc : -EBADMSG;
}

static int map_host_memory(void) /* until the process ends */
{
    struct fiber_shared *noise, *digits;
    int rc = fiber_shared_open(&digits, "digits", sizeof(struct digits), load_digits, NULL);

    if (rc == 0)
        rc = fiber_shared_open(&noise, "noise", NOISE * sizeof(float), build_noise, NULL);
    if (rc)
        return rc;
    here.digits = fiber_shared_data(digits);
    here.noise = fiber_shared_data(noise);
    return 0;
}

/* ---- The network: 64 - 32 tanh - 10 softmax ---- */

static void add_layer(const float *restrict weight, const float *in, int n_in, float *restrict out,
                      int n_out)
{
    memcpy(out, weight + n_in * n_out, (size_t)n_out * sizeof(float)); /* the biases */
    for (int i = 0; i < n_in; i++) {
        /* skips black pixels, about half of them */
        if (in[i] == 0)
            continue;
        for (int o = 0; o < n_out; o++)
            out[o] += in[i] * weight[i * n_out + o];
    }
}

/* Returns the log-likelihood of an image's digit; increments *right if the network recognizes
 * it. */
static float classify(const float *theta, int image, int *right)
{
    float hidden[HIDDEN], out[DIGITS], sum = 0;
    int best = 0, label = here.digits->label[image];

    add_layer(theta, here.digits->pixel[image], PIXELS, hidden, HIDDEN);
    for (int h = 0; h < HIDDEN; h++) { /* tanh as a rational function, which compilers vectorize */
        float x = hidden[h] > 3 ? 3 : hidden[h] < -3 ? -3 : hidden[h];

        hidden[h] = x * (27 + x * x) / (27 + 9 * x * x);
    }
    add_layer(theta + LAYER_2, hidden, HIDDEN, out, DIGITS);
    for (int k = 1; k < DIGITS; k++)
        best = out[k] > out[best] ? k : best;
    for (int k = 0; k < DIGITS; k++)
        sum += expf(out[k] - out[best]);
    *right += best == label;
    return out[label] - out[best] - logf(sum);
}

static float measure_fitness(const struct generation *g, const float *direction, float sigma,
                             int *right)
{
    float theta[PARAMS], sum = 0;

    for (int i = 0; i < PARAMS; i++)
        theta[i] = g->theta[i] + sigma * direction[i];
    for (int i = 0; i < BATCH; i++)
        sum += classify(theta, g->batch[i], right);
    return sum / BATCH;
}

/* ---- The worker ---- */

static int init_worker(const void *arg, size_t len)
{
    memcpy(&here.setup, arg, len);
    return map_host_memory() ? 1 : fiber_store_connect(&here.store, &here.setup.store);
}

static int run_task(const void *in, size_t len, struct fiber_reply *reply)
{
    const struct task *task = in;
    const struct generation *g = here.fetched.data;
    float fitness[TRIES]; /* along a direction and against it, alternating */
    int right = 0, rc = 0;

    (void)len;
    if (!g || g->number != task->generation) {
        fiber_bytes_free(&here.fetched);
        rc = fiber_store_get(here.store, "generation", &here.fetched, 0);
        g = here.fetched.data;
    }
    if (rc ||
        g->number != task->generation) /* another number: a late copy of a task that is done */
        return fiber_reply_fail(reply, -ESTALE, "cannot fetch the generation: %s",
                                fiber_last_error());
    for (int i = 0; i < TRIES; i++)
        fitness[i] =
            measure_fitness(g, here.noise + task->offset[i / 2], i % 2 ? -SIGMA : SIGMA, &right);
    return fiber_reply_write(reply, fitness, sizeof(fitness));
}

/* ---- The strategy ---- */

struct run {
    long workers, grow, generations, seed;
    int quiet, quick, live, colour, killed; /* live: show a status line */
    struct fiber_pool *pool;
    struct fiber_pool_stats stats;
    struct generation now;
    float mean[PARAMS], square[PARAMS]; /* of Adam */
    uint64_t random;
    struct task task[TASKS];
    float fitness[TASKS][TRIES];
    unsigned char *ledger; /* number of deliveries of each task of each generation */
    float batch_accuracy, held_out;
    double speed; /* tasks per second, recently */
};

/* Draws a minibatch and the directions, and publishes the data that the tasks share. */
static int prepare_generation(struct run *run, long step)
{
    run->now.number = (uint32_t)step;
    for (int i = 0; i < BATCH; i++)
        run->now.batch[i] = (uint16_t)(draw(&run->random) % (uint64_t)here.digits->train);
    for (int t = 0; t < TASKS; t++) {
        run->task[t].generation = (uint32_t)step;
        for (int i = 0; i < TRIES / 2; i++)
            run->task[t].offset[i] = (uint32_t)(draw(&run->random) % (NOISE - PARAMS));
    }
    return fiber_store_set(here.store, "generation", &run->now, sizeof(run->now));
}

/* Ranks the tries of a generation, from -0.5 for the worst to 0.5 for the best. */
static float rank_fitness(const struct run *run, float fitness)
{
    int below = 0;

    for (int i = 0; i < TASKS * TRIES; i++)
        below += run->fitness[i / TRIES][i % TRIES] < fitness;
    return (float)below / (TASKS * TRIES - 1) - 0.5f;
}

/* Does one step of Adam (Kingma, Ba 2014, arXiv 1412.6980) along the gradient that the tries
 * estimate. */
static void climb(struct run *run, long step)
{
    float gradient[PARAMS] = {0}, rate = RATE * (1 - (float)step / (float)run->generations);
    float mean_part = 1 - powf(0.9f, (float)step + 1),
          square_part = 1 - powf(0.99f, (float)step + 1);

    for (int i = 0; i < TASKS * TRIES; i++) {
        const float *direction = here.noise + run->task[i / TRIES].offset[i % TRIES / 2];
        float rank = rank_fitness(run, run->fitness[i / TRIES][i % TRIES]);

        for (int j = 0; j < PARAMS; j++)
            gradient[j] += (i % 2 ? -rank : rank) / (TASKS * TRIES * SIGMA) * direction[j];
    }
    for (int j = 0; j < PARAMS; j++) {
        run->mean[j] += 0.1f * (gradient[j] - run->mean[j]);
        run->square[j] += 0.01f * (gradient[j] * gradient[j] - run->square[j]);
        run->now.theta[j] *= 1 - rate * DECAY;
        run->now.theta[j] +=
            rate * run->mean[j] / mean_part / (sqrtf(run->square[j] / square_part) + 1e-8f);
    }
}

static void measure_accuracy(struct run *run)
{
    int right = 0, held_out = 0, test = here.digits->test;

    measure_fitness(&run->now, here.noise, 0, &right);
    for (int i = 0; i < test; i++)
        classify(run->now.theta, MAX_IMAGES - 1 - i, &held_out);
    run->batch_accuracy = 100.0f * (float)right / BATCH;
    run->held_out = 100.0f * (float)held_out / (float)test;
}

/* ---- The run ---- */

static double read_clock(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static void show_generation(struct run *run, long step)
{
    const char *mark = run->colour ? "\033[32m" : "", *plain = run->colour ? "\033[0m" : "";

    if (run->quiet || (!run->live && step % 10 && step != run->generations))
        return;
    measure_accuracy(run);
    if (run->live) /* replaces the last line; a narrow terminal cuts it off */
        printf("\r\033[?7l[%-16.*s] ", (int)(16 * step / run->generations), "################");
    printf(
        "generation %3ld/%ld  batch %5.1f %%  held out %s%5.1f %%%s  %3.0f tasks/s  %d workers%s",
        step, run->generations, run->batch_accuracy, mark, run->held_out, plain, run->speed,
        run->stats.workers, run->live ? "\033[K\033[?7h" : "\n");
    fflush(stdout);
}

static void note_delivery(void *user, size_t index, int code, const void *data, size_t len)
{
    (void)data, (void)len;
    ((unsigned char *)user)[index] += code == 0;
}

/* Kills, in the middle of a generation, a worker that has work, on any host. */
static void kill_worker(struct run *run, struct fiber_result *result)
{
    struct fiber_worker_stats worker[64];
    int n = fiber_result_wait_task(result, TASKS / 2, -1)
                ? 0
                : fiber_pool_worker_stats(run->pool, worker, 64);
    uint64_t requeued = run->stats.requeued;

    for (int i = 0; i < n && i < 64; i++) {
        if (worker[i].state != 2 || fiber_pool_worker_kill(run->pool, worker[i].name) < 0)
            continue;
        run->killed = 1;
        fiber_result_wait(result, -1);
        fiber_pool_stats(run->pool, &run->stats);
        if (!run->quiet)
            printf("%skilled %s at work; %llu of its tasks went to others\n",
                   run->live ? "\r\033[K" : "", worker[i].name,
                   (unsigned long long)(run->stats.requeued - requeued));
        return;
    }
}

static int run_generation(struct run *run, long step)
{
    struct fiber_map_options opts = {.size = sizeof(struct fiber_map_options)};
    struct fiber_result *result;
    double speed, begun = read_clock();
    const char *text = "";
    size_t number = 0, len = 0;
    int rc = prepare_generation(run, step);

    opts.on_done = note_delivery;
    opts.user = run->ledger + step * TASKS;
    if (rc == 0)
        rc = fiber_pool_map_array(run->pool, run_task, run->task, sizeof(run->task[0]),
                                  run->fitness, sizeof(run->fitness[0]), TASKS, &opts, &result);
    if (rc) {
        fprintf(stderr, "es_digits: cannot start generation %ld: %s\n", step, fiber_last_error());
        return rc;
    }
    if (step == run->generations / 2 && fiber_pool_resize(run->pool, (int)run->grow) == 0 &&
        !run->quiet)
        printf("%sresized the pool: %ld -> %ld\n", run->live ? "\r\033[K" : "", run->workers,
               run->grow);
    if (step >= run->generations * 2 / 3 && !run->killed)
        kill_worker(run, result);
    rc = fiber_result_wait(result, -1);
    if (rc == 0)
        rc = fiber_result_error(result, &number);
    if (rc && fiber_result_get(result, number, (const void **)&text, &len) < 0)
        fprintf(stderr, "es_digits: task %zu of generation %ld failed: %.*s\n", number, step,
                (int)len, text);
    fiber_result_close(result);
    if (rc)
        return rc;
    climb(run, step);
    fiber_pool_stats(run->pool, &run->stats);
    speed = TASKS / (read_clock() - begun);
    run->speed += (step ? 0.1 : 1) * (speed - run->speed);
    return 0;
}

static int open_run(struct run *run)
{
    struct fiber_pool_options opts = {
        .size = sizeof(opts), .init = init_worker, .init_arg = &here.setup};
    int rc;

    opts.min = opts.max = (int)run->workers;
    opts.init_len = sizeof(here.setup);
    run->stats.size = sizeof(run->stats);
    here.setup.seed = (uint64_t)run->seed;
    run->random = ~here.setup.seed;
    rc = map_host_memory();
    if (rc) {
        fprintf(stderr, "es_digits: cannot use %s: %s.\n", here.setup.data,
                rc == -EBADMSG ? "it is not lines of 64 counts and a digit, with commas"
                               : fiber_strerror(rc));
        return rc;
    }
    for (int i = 0; i < PARAMS; i++)
        run->now.theta[i] = here.noise[i] / 8;
    run->ledger = calloc((size_t)run->generations, TASKS);
    rc = run->ledger ? fiber_store_start(&here.store, NULL) : -ENOMEM;
    if (rc == 0)
        rc = fiber_store_address(here.store, &here.setup.store);
    if (rc == 0)
        rc = fiber_pool_open(&run->pool, &opts);
    if (rc)
        fprintf(stderr, "es_digits: cannot start: %s\n",
                run->ledger ? fiber_last_error() : fiber_strerror(rc));
    return rc;
}

/* Checks the ledger: once the pool is closed, no delivery can come. Returns the exit code. */
static int end_run(struct run *run, double wall)
{
    long tasks = run->generations * TASKS, lost = 0, twice = 0;

    fiber_pool_close(run->pool);
    fiber_store_close(here.store);
    measure_accuracy(run);
    for (long i = 0; i < tasks; i++) {
        lost += run->ledger[i] == 0;
        twice += run->ledger[i] > 1;
    }
    printf("%sheld-out accuracy %.1f %% (%d images that training never sees)\n",
           run->live && !run->quiet ? "\n" : "", run->held_out, here.digits->test);
    printf("%ld generations, %ld tasks in %.1f s: %.0f tasks/s\n", run->generations, tasks, wall,
           (double)tasks / wall);
    printf("deaths %llu, restarts %llu, tasks requeued %llu, lost %ld, delivered twice %ld\n",
           (unsigned long long)run->stats.deaths, (unsigned long long)run->stats.restarts,
           (unsigned long long)run->stats.requeued, lost, twice);
    if (run->quick && run->held_out < 85)
        fprintf(stderr, "es_digits: it should have reached 85 %%.\n");
    return lost || twice || (run->quick && run->held_out < 85);
}

static const char help[] =
    "Usage: es_digits [options]\n"
    "Trains a network on handwritten digits by evolution strategies, on a pool that "
    "grows and loses a worker.\n"
    "  --workers N, --grow N  at the start and from half-way on (2, 4)\n"
    "  --generations N, --seed N  (160, 1)\n"
    "  --data FILE  lines of 64 counts and a digit, gzip or plain\n"
    "  --quick      30 generations; less than 85 % is a failure\n"
    "  --quiet      only the summary\n";

/* Returns 0, or the exit code. */
static int parse_options(struct run *run, int argc, char **argv)
{
    static const struct option options[] = {
        {"workers", 1, NULL, 0}, {"grow", 1, NULL, 1},   {"generations", 1, NULL, 2},
        {"seed", 1, NULL, 3},    {"data", 1, NULL, 'd'}, {"quick", 0, NULL, 'k'},
        {"quiet", 0, NULL, 'q'}, {"help", 0, NULL, 'h'}, {NULL, 0, NULL, 0}};
    long *number[] = {&run->workers, &run->grow, &run->generations, &run->seed};
    char *end = NULL;
    int c;

    opterr = 0;
    while ((c = getopt_long(argc, argv, "", options, NULL)) >= 0 && c != '?') {
        if (c == 'h') {
            fputs(help, stdout);
            exit(0);
        }
        run->quick |= c == 'k';
        run->quiet |= c == 'q';
        if (c == 'd')
            snprintf(here.setup.data, sizeof(here.setup.data), "%s", optarg);
        if (c > 3)
            continue;
        *number[c] = strtol(optarg, &end, 10);
        if (*end || *number[c] < 1 || *number[c] > 1000000) {
            fprintf(stderr, "es_digits: --%s wants a number from 1 to 1000000, not \"%s\".\n",
                    options[c].name, optarg);
            return 2;
        }
    }
    if (c != '?' && optind == argc)
        return 0;
    fprintf(stderr,
            "es_digits: \"%s\" is not an option, or lacks its value; --help lists the options.\n",
            argv[c == '?' ? optind - 1 : optind]);
    return 2;
}

int main(int argc, char **argv)
{
    static struct run run = {.workers = 2, .grow = 4, .seed = 1};
    const char *term = getenv("TERM"), *no_color = getenv("NO_COLOR");
    double begun = read_clock();
    int rc = fiber_init(&argc, &argv);

    if (rc < 0) {
        fprintf(stderr, "es_digits: %s\n", fiber_last_error());
        return 1;
    }
    snprintf(here.setup.data, sizeof(here.setup.data), "%s/digits.csv.gz", EXAMPLE_DATA);
    rc = parse_options(&run, argc, argv);
    if (rc)
        return rc;
    run.generations = run.generations ? run.generations : run.quick ? 30 : 160;
    run.live = isatty(STDOUT_FILENO) && term && strcmp(term, "dumb") != 0;
    run.colour = run.live && !(no_color && *no_color);
    rc = open_run(&run);
    for (long step = 0; rc == 0 && step < run.generations; step++) {
        rc = run_generation(&run, step);
        if (rc == 0)
            show_generation(&run, step + 1);
    }
    return rc ? 1 : end_run(&run, read_clock() - begun);
}
