/* hosts_prog.c - a program for the tests on several hosts: a pool, objects and rings, by the configured backend.
 *
 *   hosts_prog pool WORKERS TASKS [HOW]   maps a tenth, says so, then maps all and says how many tasks each host did.
 *                                       HOW: slowly         tasks take 20 ms each
 *                                            until FILE     so, and a tenth again and again until there is that file
 *                                            everywhere N   so, until N hosts have done some
 *   hosts_prog objects WORKERS          queues, a store and a segment between hosts
 *   hosts_prog links                    waits for a method, a barrier and, on another host, for a message, which never
 *                                       come; ends when each of them has failed
 *   hosts_prog nested                   a job that starts jobs
 *   hosts_prog ring [-t] [-f POLICY] RANKS NODES PROGRAM...   a ring with RANKS / NODES ranks on each
 *   hosts_prog wait                     a rank: says where it is, then waits for ever
 *   hosts_prog who                      a rank: says its number and host
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "fiber.h"

#define HOSTS 16
#define NAME 32

static int fail(const char *what)
{
    fprintf(stderr, "hosts_prog: %s: %s\n", what, fiber_last_error());
    return 1;
}

static int get_name(char name[NAME])
{
    memset(name, 0, NAME);
    return gethostname(name, NAME - 1);
}

/* ---- Pool ---- */

static int where(const void *in, size_t len, struct fiber_reply *reply)
{
    const int *ms = in;
    const struct timespec nap = {.tv_nsec = *ms * 1000000L};
    char *name = fiber_reply_alloc(reply, NAME);

    if (*ms)
        nanosleep(&nap, NULL); /* the work of the task */
    return name ? get_name(name) : -1;
}

struct census {
    char name[HOSTS][NAME];
    int count[HOSTS], hosts;
};

static void count(struct census *c, char (*out)[NAME], int n)
{
    memset(c->count, 0, sizeof(c->count));
    for (int i = 0; i < n; i++) {
        int k = 0;

        while (k < c->hosts && strcmp(c->name[k], out[i]) != 0)
            k++;
        if (k == c->hosts && k < HOSTS)
            memcpy(c->name[c->hosts++], out[i], NAME);
        if (k < HOSTS)
            c->count[k]++;
    }
}

/* Whether that is not so yet: see above. */
static int goes_on(const struct census *c, const char *how, const char *what)
{
    return (strcmp(how, "until") == 0 && access(what, F_OK) < 0) ||
           (strcmp(how, "everywhere") == 0 && c->hosts < atoi(what));
}

static int play_pool(int workers, int n, const char *how, const char *what)
{
    struct fiber_pool_options o = {.size = sizeof(o), .min = workers, .max = workers};
    char(*out)[NAME] = calloc((size_t)n, NAME);
    int *in = calloc((size_t)n, sizeof(*in)), rc, tenth = n / 10;
    struct census seen = {.hosts = 0};
    struct fiber_pool *pool;

    for (int i = 0; i < n; i++)
        in[i] = how[0] ? 20 : 0;
    if (fiber_pool_open(&pool, &o) < 0)
        return fail("pool");
    rc = fiber_pool_map(pool, where, in, sizeof(*in), out, NAME, (size_t)tenth, NULL);
    printf("a tenth is done\n");
    fflush(stdout);
    for (count(&seen, out, tenth); rc == 0 && goes_on(&seen, how, what); count(&seen, out, tenth))
        rc = fiber_pool_map(pool, where, in, sizeof(*in), out, NAME, (size_t)tenth, NULL);
    if (rc == 0)
        rc = fiber_pool_map(pool, where, in, sizeof(*in), out, NAME, (size_t)n, NULL);
    if (rc < 0)
        return fail("map");
    count(&seen, out, n);
    for (int k = 0; k < seen.hosts; k++)
        if (seen.count[k])
            printf("%s %d\n", seen.name[k], seen.count[k]);
    fiber_pool_close(pool);
    free(in);
    free(out);
    return 0;
}

/* ---- Objects ---- */

struct objects {
    struct fiber_address queue, answers, store;
    int n;
};

static int build(void *data, size_t len, void *user)
{
    memset(data, 7, len);
    return 0;
}

/* Answers "HOST got WORD, knows VALUE, segment 7 (built)". */
static int use_objects(const void *arg, size_t len)
{
    const struct objects *a = arg;
    struct fiber_queue *queue, *answers;
    struct fiber_store *store;
    struct fiber_shared *shared;
    struct fiber_bytes word, value;
    char name[NAME], text[256];

    if (fiber_queue_connect(&queue, &a->queue) < 0 ||
        fiber_queue_connect(&answers, &a->answers) < 0 ||
        fiber_store_connect(&store, &a->store) < 0 ||
        fiber_shared_open(&shared, "noise", 4096, build, NULL) < 0)
        return fail("connect");
    if (fiber_queue_get(queue, &word, 20000) < 0 || fiber_store_get(store, "key", &value, 0) < 0 ||
        fiber_store_barrier(store, "all are here", a->n, NULL, 20000) < 0)
        return fail("get");
    get_name(name);
    snprintf(text, sizeof(text), "%s got %.*s, knows %.*s, segment %d%s", name, (int)word.len,
             (char *)word.data, (int)value.len, (char *)value.data,
             *(const char *)fiber_shared_data(shared), fiber_shared_built(shared) ? ", built" : "");
    if (fiber_queue_put(answers, text, strlen(text) + 1, 20000) < 0 ||
        fiber_queue_flush(answers, 20000) < 0)
        return fail("put");
    fiber_bytes_free(&word);
    fiber_bytes_free(&value);
    fiber_shared_close(shared);
    fiber_queue_close(queue);
    fiber_queue_close(answers);
    fiber_store_close(store);
    return 0;
}

static int play_objects(int n)
{
    struct fiber_process *p[HOSTS];
    struct fiber_queue *queue, *answers;
    struct fiber_store *store;
    struct fiber_bytes answer;
    struct objects a = {.n = n};
    int code = 0;

    if (n > HOSTS || fiber_queue_open(&queue, 0) < 0 || fiber_queue_open(&answers, 0) < 0 ||
        fiber_store_start(&store, NULL) < 0 || fiber_queue_address(queue, &a.queue) < 0 ||
        fiber_queue_address(answers, &a.answers) < 0 || fiber_store_address(store, &a.store) < 0 ||
        fiber_store_set(store, "key", "value", 5) < 0)
        return fail("objects");
    for (int i = 0; i < n; i++)
        if (fiber_process_start(&p[i], use_objects, &a, sizeof(a), NULL) < 0 ||
            fiber_queue_put(queue, "word", 4, 20000) < 0)
            return fail("start");
    for (int i = 0; i < n; i++) {
        if (fiber_queue_get(answers, &answer, 20000) < 0)
            return fail("answer");
        printf("%s\n", (char *)answer.data);
        fiber_bytes_free(&answer);
    }
    for (int i = 0; i < n; i++) {
        fiber_process_join(p[i], -1);
        if (fiber_process_exitcode(p[i], &code) < 0 || code)
            return fail(fiber_process_report(p[i]));
        fiber_process_close(p[i]);
    }
    fiber_queue_close(queue);
    fiber_queue_close(answers);
    fiber_store_close(store);
    return 0;
}

/* ---- Links ---- */

static int open_nothing(void **state, const void *arg, size_t len)
{
    return 0;
}

/* The first call comes back, the others do not. */
static int serve(void *state, const char *method, const void *in, size_t len,
                 struct fiber_reply *reply)
{
    while (strcmp(method, "wait") == 0)
        pause();
    return 0;
}

static const struct fiber_class server = {
    .size = sizeof(server), .open = open_nothing, .call = serve};

static void *call_manager(void *manager)
{
    struct fiber_bytes b;

    return fiber_manager_call(manager, "wait", NULL, 0, &b, -1) < 0 ? "failed" : NULL;
}

static void *wait_in_store(void *store)
{
    return fiber_store_barrier(store, "nobody else", 2, NULL, -1) < 0 ? "failed" : NULL;
}

static int get_in_vain(const void *address, size_t len)
{
    struct fiber_queue *q;
    struct fiber_bytes b;

    if (fiber_queue_connect(&q, address) < 0 || fiber_queue_get(q, &b, 20000) < 0)
        return fail("the first get");
    fiber_bytes_free(&b);
    printf("all is done but the rest\n");
    fflush(stdout);
    return fiber_queue_get(q, &b, -1) < 0 ? 0 : 1;
}

static int play_links(void)
{
    struct fiber_manager *manager;
    struct fiber_store *store;
    struct fiber_queue *queue;
    struct fiber_process *p;
    struct fiber_address a;
    struct fiber_bytes b;
    pthread_t threads[2];
    void *failed;
    int code;

    if (fiber_manager_start(&manager, &server, NULL, 0, NULL) < 0 ||
        fiber_manager_call(manager, "go", NULL, 0, &b, -1) < 0 ||
        fiber_store_start(&store, NULL) < 0 || fiber_store_set(store, "key", "value", 5) < 0 ||
        fiber_queue_open(&queue, 0) < 0 || fiber_queue_address(queue, &a) < 0)
        return fail("objects");
    pthread_create(&threads[0], NULL, call_manager, manager);
    pthread_create(&threads[1], NULL, wait_in_store, store);
    if (fiber_process_start(&p, get_in_vain, &a, sizeof(a), NULL) < 0 ||
        fiber_queue_put(queue, "word", 4, 20000) < 0)
        return fail("start");
    for (int i = 0; i < 2; i++) {
        pthread_join(threads[i], &failed);
        printf("%s: %s\n", i ? "store" : "manager", failed ? "failed" : "came back");
    }
    fiber_process_join(p, -1);
    if (fiber_process_exitcode(p, &code) < 0)
        code = -1;
    printf("queue: %s\n", code == 0 ? "failed" : fiber_process_report(p));
    return 0;
}

/* ---- Nested ---- */

static int leaf(const void *arg, size_t len)
{
    char name[NAME];

    get_name(name);
    printf("leaf on %s\n", name);
    return 3;
}

static int branch(const void *arg, size_t len)
{
    struct fiber_process *p[2];
    int sum = 0, code;

    for (int i = 0; i < 2; i++)
        if (fiber_process_start(&p[i], leaf, NULL, 0, NULL) < 0)
            return fail("leaf");
    for (int i = 0; i < 2; i++) {
        fiber_process_join(p[i], -1);
        if (fiber_process_exitcode(p[i], &code) < 0)
            return fail("leaf");
        sum += code;
        fiber_process_close(p[i]);
    }
    return sum;
}

static int play_nested(void)
{
    struct fiber_process *p;
    int code;

    if (fiber_process_start(&p, branch, NULL, 0, NULL) < 0)
        return fail("branch");
    fiber_process_join(p, -1);
    if (fiber_process_exitcode(p, &code) < 0 || code != 6)
        return fail(fiber_process_report(p));
    fiber_process_close(p);
    return 0;
}

/* ---- Rings ---- */

static int play_rank(const char *what)
{
    char name[NAME];

    get_name(name);
    printf("rank %s of %s on %s\n", getenv("FIBER_RANK"), getenv("FIBER_SIZE"), name);
    fflush(stdout);
    while (strcmp(what, "wait") == 0)
        pause();
    return 0;
}

static int play_ring(char **argv)
{
    struct fiber_ring_options o = {.size = sizeof(o)};
    int size, code;

    for (; argv[0] && argv[0][0] == '-'; argv++) {
        if (strcmp(argv[0], "-t") == 0)
            o.flags |= FIBER_RING_TAG;
        else if (strcmp(argv[0], "-f") == 0 && argv[1])
            o.on_failure = atoi(*++argv);
    }
    if (!argv[0] || !argv[1] || !argv[2])
        return 2;
    size = atoi(argv[0]);
    o.nodes = atoi(argv[1]);
    o.per_node = o.nodes > 0 ? (size + o.nodes - 1) / o.nodes : 0;
    o.job.command = (const char *const *)argv + 2;
    code = fiber_ring_run(size, NULL, NULL, 0, &o);
    return code < 0 ? fail("ring") : code;
}

int main(int argc, char **argv)
{
    const char *what = argc > 1 ? argv[1] : "";

    if (argc == 2 && (strcmp(what, "wait") == 0 || strcmp(what, "who") == 0))
        return play_rank(what);
    if (fiber_init(&argc, &argv) < 0)
        return fail("init");
    if (strcmp(what, "pool") == 0 && argc >= 4)
        return play_pool(atoi(argv[2]), atoi(argv[3]), argc > 4 ? argv[4] : "",
                         argc > 5 ? argv[5] : "");
    if (strcmp(what, "objects") == 0 && argc == 3)
        return play_objects(atoi(argv[2]));
    if (strcmp(what, "links") == 0)
        return play_links();
    if (strcmp(what, "nested") == 0)
        return play_nested();
    if (strcmp(what, "ring") == 0)
        return play_ring(argv + 2);
    fprintf(stderr, "hosts_prog: its first lines tell what it takes\n");
    return 2;
}
