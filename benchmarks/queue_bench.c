/* queue_bench.c - messages per second through a queue: `queue_bench MESSAGES BYTES direct|relayed`.
 *
 *     direct   this process owns the queue and consumes; another process produces (as with multiprocessing)
 *     relayed  this process owns the queue; one process produces, another consumes
 *
 * The first message carries the time at which its producer began (the clock is the machine's), so
 * the figure goes from the first put until the consumer has the last message. Output: one JSON
 * object.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "fiber.h"
#include "bench.h"

struct order {
    struct fiber_address data, report;
    size_t messages, bytes;
};

/* In a child: 0, or an exit code after telling why. */
static int child_check(int code, const char *what)
{
    if (code < 0)
        fprintf(stderr, "%s: %s\n", what, fiber_last_error());
    return code < 0;
}

static int produce(const void *arg, size_t len)
{
    const struct order *order = arg;
    char *message = bench_alloc(1, order->bytes);
    struct fiber_queue *queue;
    double start;
    size_t i;

    if (len != sizeof(*order) || child_check(fiber_queue_connect(&queue, &order->data), "connect"))
        return 1;
    start = bench_now();
    memcpy(message, &start, sizeof(start));
    for (i = 0; i < order->messages; i++)
        if (child_check(fiber_queue_put(queue, message, order->bytes, -1), "put"))
            return 1;
    if (child_check(fiber_queue_flush(queue, -1), "flush"))
        return 1;
    fiber_queue_close(queue);
    free(message);
    return 0;
}

/* Takes all messages; the seconds since their producer began in *elapsed. */
static int take_all(struct fiber_queue *queue, size_t messages, size_t bytes, double *elapsed)
{
    struct fiber_bytes message = {NULL, 0};
    double start = 0;
    size_t i;
    int code;

    for (i = 0; i < messages; i++) {
        code = fiber_queue_get(queue, &message, 60000);
        if (code < 0)
            return code;
        if (message.len != bytes)
            return -EPROTO;
        if (i == 0)
            memcpy(&start, message.data, sizeof(start));
        fiber_bytes_free(&message);
    }
    *elapsed = bench_now() - start;
    return 0;
}

static int consume(const void *arg, size_t len)
{
    const struct order *order = arg;
    struct fiber_queue *queue, *report;
    double elapsed = 0;

    if (len != sizeof(*order) ||
        child_check(fiber_queue_connect(&queue, &order->data), "connect") ||
        child_check(fiber_queue_connect(&report, &order->report), "connect") ||
        child_check(take_all(queue, order->messages, order->bytes, &elapsed), "get") ||
        child_check(fiber_queue_put(report, &elapsed, sizeof(elapsed), -1), "put") ||
        child_check(fiber_queue_flush(report, -1), "flush"))
        return 1;
    fiber_queue_close(queue);
    fiber_queue_close(report);
    return 0;
}

static void start_child(struct fiber_process **process, fiber_process_fn fn,
                        const struct order *order)
{
    bench_check(fiber_process_start(process, fn, order, sizeof(*order), NULL),
                "fiber_process_start");
}

static void join_child(struct fiber_process *process)
{
    int code = -1;

    bench_check(fiber_process_join(process, 60000), "fiber_process_join");
    bench_check(fiber_process_exitcode(process, &code), "fiber_process_exitcode");
    if (code != 0) {
        fprintf(stderr, "%s\n", fiber_process_report(process));
        exit(1);
    }
    fiber_process_close(process);
}

int main(int argc, char **argv)
{
    struct fiber_process *producer, *consumer = NULL;
    struct fiber_queue *data, *report;
    struct fiber_bytes answer = {NULL, 0};
    struct order order;
    double elapsed = 0;
    int relayed;

    bench_exact_timers();
    bench_check(fiber_init(&argc, &argv), "fiber_init");
    memset(&order, 0, sizeof(order));
    order.messages = (size_t)bench_number(argc, argv, 1, 200000);
    order.bytes = (size_t)bench_number(argc, argv, 2, 64);
    relayed = argc > 3 && strcmp(argv[3], "relayed") == 0;
    if (order.bytes < sizeof(elapsed)) {
        fprintf(stderr, "a message has at least %zu bytes\n", sizeof(elapsed));
        return 2;
    }
    bench_check(fiber_queue_open(&data, 0), "fiber_queue_open");
    bench_check(fiber_queue_open(&report, 0), "fiber_queue_open");
    bench_check(fiber_queue_address(data, &order.data), "fiber_queue_address");
    bench_check(fiber_queue_address(report, &order.report), "fiber_queue_address");
    if (relayed)
        start_child(&consumer, consume, &order);
    start_child(&producer, produce, &order);
    if (relayed) {
        bench_check(fiber_queue_get(report, &answer, 120000), "fiber_queue_get");
        memcpy(&elapsed, answer.data, sizeof(elapsed));
        fiber_bytes_free(&answer);
        join_child(consumer);
    } else {
        bench_check(take_all(data, order.messages, order.bytes, &elapsed), "fiber_queue_get");
    }
    join_child(producer);
    printf("{\"bench\": \"queue\", \"way\": \"%s\", \"messages\": %zu, \"bytes\": %zu, "
           "\"seconds\": %.6f, "
           "\"messages_per_s\": %.0f}\n",
           relayed ? "relayed" : "direct", order.messages, order.bytes, elapsed,
           (double)order.messages / elapsed);
    fiber_queue_close(data);
    fiber_queue_close(report);
    return 0;
}
