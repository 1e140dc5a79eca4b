/* calls.c - the calls of fiber.h that the other examples do not make; the man pages quote these
 * lines.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <err.h>
#include <errno.h>
#include <poll.h>
#include <semaphore.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include "fiber.h"

static void must(int rc) /* on failure: prints why, and ends this process */
{
    if (rc < 0)
        errx(1, "%s", fiber_last_error());
}

/* ---- Processes ---- */

static int wait_for_signal(const void *arg, size_t len)
{
    (void)arg, (void)len;
    if (!fiber_process_is_child() || strcmp(fiber_process_self(), "sleeper") != 0)
        return 1;
    return pause();
}

static void processes(void)
{
    struct fiber_process_options options = {.size = sizeof(options), .job.name = "sleeper"};
    struct fiber_process *sleeper, *children[8];
    struct pollfd ended;
    int code;

    must(fiber_process_start(&sleeper, wait_for_signal, NULL, 0, &options));
    printf("%d child, called %s\n", fiber_active_children(children, 8),
           fiber_process_name(sleeper));

    ended = (struct pollfd){.fd = fiber_process_sentinel(sleeper), .events = POLLIN};
    must(fiber_process_wait_joined(sleeper, -1));
    printf("its process id is %s\n", fiber_process_pid(sleeper) > 0 ? "known" : "unknown");

    must(fiber_process_signal(sleeper, SIGURG)); /* which processes ignore by default */
    if (fiber_process_is_alive(sleeper))
        must(fiber_process_terminate(sleeper));
    poll(&ended, 1, -1); /* with the other descriptors of an event loop */

    must(fiber_process_exitcode(sleeper, &code));
    if (code == -SIGTERM && strstr(fiber_process_report(sleeper), "Terminated"))
        printf("%s was terminated; its job was %s\n", fiber_process_name(sleeper),
               fiber_process_job(sleeper)[0] ? "known" : "unknown");
    fiber_process_close(sleeper);
}

/* This program again, as a worker program: main() calls this function when fiber_init() returns
 * 1. */
static int square(const void *in, size_t len, struct fiber_reply *reply)
{
    int x = *(const int *)in, y = x * x;

    (void)len;
    return fiber_reply_write(reply, &y, sizeof(y));
}

static int be_a_worker(void)
{
    const void *work;
    size_t len;

    if (fiber_process_work(&work, &len) == 0 && len == 5 && memcmp(work, "hello", 5) == 0)
        return 42; /* fiber_process_start_work() started it with these bytes */

    return fiber_serve(square) < 0; /* a pool did */
}

static void workers_of_their_own(void)
{
    const char *const command[] = {"/proc/self/exe", NULL};
    struct fiber_process_options options = {.size = sizeof(options), .job.command = command};
    struct fiber_pool_options workers = {.size = sizeof(workers), .min = 2, .max = 2, .serve = 1};
    int in[3] = {1, 2, 3}, out[3], code;
    struct fiber_process *worker;
    struct fiber_pool *pool;

    must(fiber_process_start_work(&worker, "hello", 5, &options));
    must(fiber_process_join(worker, -1));
    must(fiber_process_exitcode(worker, &code));
    fiber_process_close(worker);

    workers.job.command = command;
    must(fiber_pool_open(&pool, &workers));
    must(fiber_pool_map(pool, square, in, sizeof(in[0]), out, sizeof(out[0]), 3, NULL));
    fiber_pool_close(pool);
    printf("a program of its own ended with %d, others squared 3 to %d\n", code, out[2]);
}

/* ---- Queue and pipe ---- */

static void queue_and_pipe(void)
{
    struct fiber_queue *queue;
    struct fiber_pipe *ends[2];
    struct fiber_bytes message;
    struct pollfd readable;
    size_t waiting;

    must(fiber_queue_open(&queue, 0));
    must(fiber_queue_put(queue, "last", 4, -1));
    must(fiber_queue_flush(queue, -1)); /* the owner has it now */
    must(fiber_queue_size(queue, &waiting));

    must(fiber_queue_deal(queue)); /* in turn, to all receivers */
    must(fiber_queue_shut(queue)); /* no more puts */
    while (fiber_queue_get(queue, &message, -1) == 0) {
        fiber_bytes_free(&message);
        must(fiber_queue_done(queue)); /* after the work on it */
    }
    must(fiber_queue_join(queue, -1)); /* every message is finished */
    printf("%zu message was left in the queue\n", waiting);
    fiber_queue_close(queue);

    must(fiber_pipe_open(ends, 0));
    readable = (struct pollfd){.fd = fiber_pipe_fd(ends[1]), .events = POLLIN};
    must(fiber_pipe_send(ends[0], "ping", 4, -1));
    poll(&readable, 1, -1); /* in an event loop */
    if (fiber_pipe_poll(ends[1], 1000) == 1)
        must(fiber_pipe_recv(ends[1], &message, 0));
    fiber_bytes_free(&message);
    fiber_pipe_close(ends[0]);
    fiber_pipe_close(ends[1]);
}

static void address_as_text(void)
{
    char text[FIBER_ADDRESS_TEXT];
    struct fiber_address address, same;
    struct fiber_queue *queue, *other;

    must(fiber_queue_open(&queue, 0));
    must(fiber_queue_address(queue, &address));
    must(fiber_address_format(&address, text, sizeof(text))); /* for a file of mode 0600 */
    must(fiber_address_parse(&same, text));
    must(fiber_queue_connect(&other, &same));
    fiber_queue_close(other);
    fiber_queue_close(queue);
}

/* ---- Manager ---- */

static int call_counter(void *state, const char *method, const void *in, size_t len,
                        struct fiber_reply *reply)
{
    static int64_t counter;
    int64_t *answer = fiber_reply_alloc(reply, sizeof(*answer));

    (void)state, (void)method, (void)in, (void)len;
    if (!answer)
        return -ENOMEM;
    *answer = ++counter;
    return 0;
}

static void manager(void)
{
    const struct fiber_class class = {.size = sizeof(class), .call = call_counter};
    struct fiber_manager *owner, *user;
    struct fiber_address address;
    struct fiber_future *first, *second;
    struct fiber_bytes answer;
    struct pollfd readable;

    must(fiber_manager_start(&owner, &class, NULL, 0, NULL));
    must(fiber_manager_address(owner, &address)); /* travels inside arguments and messages */
    must(fiber_manager_connect(&user, &address)); /* here, or in any process of the run */

    must(fiber_manager_call_async(user, "add", NULL, 0, &first));
    must(fiber_manager_call_async(user, "add", NULL, 0, &second)); /* both are under way */
    readable = (struct pollfd){.fd = fiber_future_fd(second), .events = POLLIN};
    poll(&readable, 1, -1); /* in an event loop */
    must(fiber_future_wait(second, -1));
    must(fiber_future_get(second, &answer, 0));
    printf("the counter is at %d\n", (int)*(int64_t *)answer.data);
    fiber_bytes_free(&answer);
    fiber_future_close(first);
    fiber_future_close(second);

    fiber_manager_close(user);
    fiber_manager_close(owner); /* ends its process */
}

/* ---- Store ---- */

static void dictionary(struct fiber_store *store)
{
    struct fiber_bytes keys, found;

    must(fiber_store_set(store, "leader", "none", 4));
    if (fiber_store_swap(store, "leader", "none", 4, "me", 2, NULL) == 0)
        printf("this process leads\n");
    if (fiber_store_swap(store, "leader", "none", 4, "you", 3, &found) == -ESTALE)
        fiber_bytes_free(&found); /* "me" */

    must(fiber_store_keys(store, "lead", &keys));
    for (const char *key = keys.data; key < (const char *)keys.data + keys.len;
         key += strlen(key) + 1)
        printf("key %s\n", key);
    fiber_bytes_free(&keys);
    must(fiber_store_delete(store, "leader"));
}

static void lists(struct fiber_store *store)
{
    struct fiber_bytes value;
    size_t length;

    must(fiber_store_push(store, "jobs", "a", 1));
    must(fiber_store_push(store, "jobs", "b", 1));
    must(fiber_store_length(store, "jobs", &length));
    must(fiber_store_at(store, "jobs", 1, &value)); /* b, which stays */
    fiber_bytes_free(&value);
    must(fiber_store_pop(store, "jobs", &value, -1)); /* a */
    printf("the first of %zu jobs was %.*s\n", length, (int)value.len, (char *)value.data);
    fiber_bytes_free(&value);
}

static void synchronize(struct fiber_store *store)
{
    int rc = fiber_store_lock(store, "file", 5000);

    if (rc == -EOWNERDEAD)
        warnx("the last holder died: the file may be half written");
    else
        must(rc);
    must(fiber_store_unlock(store, "file"));

    must(fiber_store_acquire(store, "licences", 2, -1)); /* at most two at a time */
    must(fiber_store_release(store, "licences"));

    must(fiber_store_event_set(store, "go"));
    must(fiber_store_event_wait(store, "go", -1));
    must(fiber_store_event_clear(store, "go"));

    must(fiber_store_barrier(store, "step", 1, NULL, -1)); /* one party: this process */
}

/* ---- Host-shared memory ---- */

static int fill(void *data, size_t len, void *user)
{
    memset(data, *(int *)user, len);
    return 0;
}

static void shared_memory(void)
{
    struct fiber_shared *table;

    must(fiber_shared_open(&table, "table", 1 << 20, fill, &(int){7}));
    printf("%s %zu bytes of %d\n", fiber_shared_built(table) ? "built" : "found",
           fiber_shared_len(table), *(const char *)fiber_shared_data(table));
    fiber_shared_close(table);
}

static void writable_memory(void)
{
    struct fiber_shared *counter;
    atomic_int *value;

    must(fiber_shared_open_writable(&counter, "counter", sizeof(*value), FIBER_SHARED_CREATE));
    value = fiber_shared_memory(counter); /* zeroed when it was made */
    atomic_fetch_add(value, 1);
    must(fiber_shared_delete("counter")); /* processes that have the segment open keep it */
    fiber_shared_close(counter);
}

/* ---- Waiting for several things ---- */

static void whichever_comes_first(struct fiber_pool *pool)
{
    struct fiber_wait things[2] = {{0}, {0}};
    struct fiber_result *result;
    struct fiber_queue *queue;
    struct pollfd loop[2];

    must(fiber_queue_open(&queue, 0));
    must(fiber_pool_apply_async(pool, square, &(int){4}, sizeof(int), NULL, &result));
    things[0].queue = queue;
    things[1].result = result;
    must(fiber_wait_any(things, 2, -1));
    printf("the %s was ready first\n", things[0].ready ? "queue" : "result");

    loop[0] = (struct pollfd){.fd = fiber_queue_fd(queue), .events = POLLIN};
    loop[1] = (struct pollfd){.fd = fiber_result_fd(result), .events = POLLIN};
    poll(loop, 2, -1); /* the same, in an event loop */

    fiber_result_close(result);
    fiber_queue_close(queue);
}

/* ---- Pool ---- */

static int square_slowly(const void *in, size_t len, struct fiber_reply *reply)
{
    /* the result is not wanted */
    for (int i = 0; i < 1000; i++)
        if (fiber_reply_cancelled(reply))
            return -ECANCELED;
        else
            usleep(1000);
    return square(in, len, reply);
}

static void post(void *semaphore)
{
    sem_post(semaphore);
}

static int wait_for_others(const void *in, size_t len, struct fiber_reply *reply)
{
    static sem_t others;

    (void)in, (void)len;
    sem_init(&others, 0, 0);
    must(fiber_task_on_cancel(post, &others)); /* ends the wait below */
    if (!fiber_reply_cancelled(reply))
        sem_wait(&others);
    return fiber_task_on_cancel(NULL, NULL);
}

static int next_number(void *user, struct fiber_bytes *in)
{
    int *x = user;

    *in = (struct fiber_bytes){x, sizeof(*x)};
    return ++*x <= 3; /* 1, 2, 3 and the end */
}

static void one_task(struct fiber_pool *pool)
{
    struct fiber_bytes nine;

    must(fiber_pool_apply(pool, square, &(int){3}, sizeof(int), &nine));
    printf("3 squared is %d\n", *(int *)nine.data);
    fiber_bytes_free(&nine);
}

static void results_later(struct fiber_pool *pool)
{
    int x[2] = {5, 6};
    struct fiber_bytes in[2] = {{&x[0], sizeof(int)}, {&x[1], sizeof(int)}};
    struct fiber_result *later, *unwanted;

    must(fiber_pool_map_async(pool, square, in, 2, NULL, &later));
    must(fiber_result_wait(later, -1));
    printf("%zu of %zu are done\n", fiber_result_done(later), fiber_result_count(later));
    fiber_result_close(later);

    must(fiber_pool_map_async(pool, square_slowly, in, 2, NULL, &unwanted));
    must(fiber_result_cancel_task(unwanted, 1));
    must(fiber_result_cancel(unwanted)); /* the others */
    must(fiber_result_wait(unwanted, -1));
    fiber_result_close(unwanted);

    must(fiber_pool_apply_async(pool, wait_for_others, NULL, 0, NULL, &unwanted));
    fiber_result_close(unwanted); /* cancels it too */
}

static void lazy_source(struct fiber_pool *pool)
{
    struct fiber_imap *squares;
    struct fiber_bytes out;
    int x = 0, sum = 0;

    must(fiber_pool_imap(pool, square, next_number, &x, 0, 0, NULL, &squares));
    while (fiber_imap_next(squares, NULL, &out, -1) == 1) {
        sum += *(int *)out.data;
        fiber_bytes_free(&out);
    }
    fiber_imap_close(squares);
    printf("the squares of 1 to 3 add up to %d\n", sum);
}

/* Multiplies a number by the common input; an odd number is an error with bytes for the caller. */
static int scale(const void *in, size_t len, struct fiber_reply *reply)
{
    const int *factor = fiber_task_common(NULL, NULL);
    int x = *(const int *)in;

    if (x % 2)
        return fiber_reply_fail_bytes(reply, -EDOM, in, len);
    x *= *factor;
    return fiber_reply_write(reply, &x, sizeof(x));
}

static void tasks_as_they_come(struct fiber_pool *pool)
{
    const int factor = 10;
    struct fiber_map_options opts = {
        .size = sizeof(opts), .common = &factor, .common_len = sizeof(factor)};
    struct pollfd ready = {.events = POLLIN};
    struct fiber_stream *numbers;
    struct fiber_done done[2];
    uint64_t index;
    int n, errors = 0, sum = 0;

    must(fiber_pool_wait_workers(pool, 1, -1));
    must(fiber_stream_open(&numbers, pool, scale, &opts, NULL));
    for (int x = 1; x <= 4; x++) /* each may depend on earlier results */
        must(fiber_stream_put(numbers, &(struct fiber_bytes){&x, sizeof(x)}, 1, &index));
    fiber_stream_cancel(numbers, index); /* -EALREADY if it is done */
    ready.fd = fiber_pool_take_fd(pool);
    for (int taken = 0; taken < 4; taken += n) {
        poll(&ready, 1, -1); /* with the other descriptors of an event loop */
        must(n = fiber_pool_take(pool, done, 2, -1));
        for (int i = 0; i < n; i++) {
            errors += done[i].code != 0;
            sum += done[i].code ? 0 : *(int *)done[i].bytes.data;
            fiber_bytes_free(&done[i].bytes);
        }
    }
    fiber_stream_close(numbers);
    printf("%s two tasks failed, the others add up to %s\n", errors >= 2 ? "at least" : "not",
           sum % 20 == 0 ? "a multiple of 20" : "something else");
}

/* ---- Ring ---- */

static int count_up(int rank, int size, const void *arg, size_t len)
{
    (void)arg, (void)len;
    return rank < size ? 0 : 1;
}

static int wait_in_rank(int rank, int size, const void *arg, size_t len)
{
    (void)rank, (void)size, (void)arg, (void)len;
    return pause();
}

static void rings(void)
{
    struct fiber_ring_options quiet = {.size = sizeof(quiet),
                                       .flags = FIBER_RING_QUIET | FIBER_RING_OVERSUBSCRIBE};
    struct fiber_ring *ring;
    int code;

    if (fiber_ring_run(2, count_up, NULL, 0, &quiet) == 0)
        printf("both ranks ended well\n");

    must(fiber_ring_start(&ring, 2, wait_in_rank, NULL, 0, &quiet));
    fiber_ring_signal(ring, SIGURG); /* to each live rank */
    must(fiber_ring_stop(ring));
    must(fiber_ring_wait(ring, -1));
    must(fiber_ring_exitcode(ring, &code));
    printf("a ring that was stopped has %s\n",
           code && fiber_ring_report(ring)[0] ? "a report" : "none");
    fiber_ring_close(ring);
}

int main(int argc, char **argv)
{
    char beat[16];
    struct fiber_store *store;
    struct fiber_pool *pool;
    /* for example an interpreter and a script */
    const char *const again[] = {"/proc/self/exe", NULL};
    const char *const copied[] = {"/proc/self/exe", "--template", NULL};
    int rc;

    if (argc > 1 && strcmp(argv[1], "--template") == 0)
        must(fiber_template_serve()); /* goes on in each copy of this process */
    must(fiber_program(again));
    must(fiber_template(copied));
    rc = fiber_init(&argc, &argv);
    must(rc);
    if (rc == 1)
        return be_a_worker();
    must(fiber_config_set("heartbeat", "2s"));
    must(fiber_config_get("heartbeat", beat, sizeof(beat)));
    printf("a heartbeat every %s\n", beat);
    printf("version %s, %s\n", fiber_version()[0] ? "known" : "unknown", fiber_strerror(-ENOENT));

    processes();
    workers_of_their_own();
    queue_and_pipe();
    address_as_text();
    manager();

    must(fiber_store_start(&store, NULL));
    dictionary(store);
    lists(store);
    synchronize(store);
    fiber_store_close(store);

    shared_memory();
    writable_memory();
    must(fiber_pool_open(&pool, NULL));
    one_task(pool);
    results_later(pool);
    lazy_source(pool);
    tasks_as_they_come(pool);
    whichever_comes_first(pool);
    must(fiber_pool_autoscale(pool, 1, 2)); /* by its backlog from now on */
    fiber_pool_close(pool);
    rings();

    fiber_fini(); /* exit() would call it */
    return 0;
}
