/* oom_random_test.c - memory that is short in Fiber's own threads, at random, while maps run and
 * workers come and go: every map ends, what it delivers is right, and the pool works when there is
 * memory again.
 *
 * The linker replaces malloc and its like, as in oom_test.c. OOM_SEED repeats a run's choices (not
 * its timing), OOM_ROUNDS says how many.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "tests/pool/tasks.h"

#define TASKS 200

static _Atomic uint32_t one_in, refused; /* 0: none is refused */
static _Atomic uint64_t random_state;
static __thread bool spared;

static uint32_t draw(uint32_t n) /* splitmix64 (Steele, Lea, Flood 2014) */
{
    uint64_t z = atomic_fetch_add(&random_state, 0x9e3779b97f4a7c15u) + 0x9e3779b97f4a7c15u;

    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return (uint32_t)((z ^ z >> 31) % n);
}

static bool refuse(void)
{
    uint32_t n = atomic_load_explicit(&one_in, memory_order_relaxed);

    if (!n || spared || draw(n))
        return false;
    atomic_fetch_add(&refused, 1);
    return true;
}

#include "tests/support/wrapped_malloc.h"

static void check_works(struct fiber_pool *pool)
{
    int64_t in[TASKS], out[TASKS];

    for (int i = 0; i < TASKS; i++)
        in[i] = i;
    assert_ok(fiber_pool_map(pool, square, in, 8, out, 8, TASKS, NULL));
    for (int i = 0; i < TASKS; i++)
        assert_int_equal(out[i], i * i);
}

/* A callback is called for each task, whatever memory there is. */
struct calls {
    uint32_t of[TASKS];
    size_t last_done;
    bool wrong;
};

static void on_done(void *user, size_t index, int code, const void *data, size_t len)
{
    struct calls *c = user;

    c->wrong |= index >= TASKS || (code == 0 && number(data, len) != (int64_t)(index * index));
    c->of[index % TASKS]++;
}

static void on_progress(void *user, size_t done, size_t total)
{
    struct calls *c = user;

    c->wrong |= done < c->last_done || total != TASKS;
    c->last_done = done;
}

/* Errors are for want of memory, of workers that could not be started for want of it, or of three
 * workers that died of it in that task (whose reports may be lost for want of it). */
static void check_map(struct fiber_pool *pool, fiber_task_fn fn)
{
    struct calls calls = {.last_done = 0};
    struct fiber_map_options o = {.size = sizeof(o),
                                  .retries = 1000,
                                  .on_done = on_done,
                                  .on_progress = on_progress,
                                  .user = &calls};
    int64_t in[TASKS], out[TASKS];
    struct fiber_result *r;
    int rc;

    for (int i = 0; i < TASKS; i++)
        in[i] = i;
    rc = fiber_pool_map_array(pool, fn, in, 8, out, 8, TASKS, &o, &r);
    if (rc == -ECHILD)
        return;
    assert_ok(rc);
    assert_ok(fiber_result_wait(r, WAIT_MS));
    assert_false(calls.wrong);
    for (size_t i = 0; i < TASKS; i++) {
        const void *data;
        size_t len;

        assert_int_equal(calls.of[i], 1);
        rc = fiber_result_get(r, i, &data, &len);
        if (rc == 0)
            assert_int_equal(number(data, len), i * i);
        else if (rc != -ECHILD && rc != -ENOMEM && rc != -EIO && rc != -EOWNERDEAD)
            fail_msg("task %zu failed with %d: %.*s", i, rc, (int)len, (const char *)data);
    }
    fiber_result_close(r);
}

static void one_round(int workers_per_job, uint32_t rarely)
{
    struct fiber_pool *pool = open_pool_with(
        (struct fiber_pool_options){.min = 2, .max = 2, .workers_per_job = workers_per_job});
    struct fiber_worker_stats w[2];

    meet(pool, 2);
    atomic_store(&one_in, rarely);
    check_map(pool, square);
    check_map(pool, nap_1ms);
    if (draw(2) && fiber_pool_worker_stats(pool, w, 2) > 0 && w[0].pid > 0)
        kill((pid_t)w[0].pid, SIGKILL);
    check_map(pool, square);
    if (draw(2))
        fiber_pool_resize(pool, 1 + (int)draw(3));
    check_map(pool, square);
    if (draw(4))
        atomic_store(&one_in, 0);
    fiber_pool_close(pool);
    atomic_store(&one_in, 0);
}

static void test_memory_is_refused_to_our_threads(void **state)
{
    const char *text = getenv("OOM_SEED"), *number_text = getenv("OOM_ROUNDS");
    uint64_t seed =
        text ? strtoull(text, NULL, 10) : (uint64_t)time(NULL) * 1000003u + (uint64_t)getpid();
    int rounds = number_text ? atoi(number_text) : 6;
    struct fiber_pool *pool;

    print_message("OOM_SEED=%llu OOM_ROUNDS=%d\n", (unsigned long long)seed, rounds);
    atomic_store(&random_state, seed);
    spared = true; /* this thread: oom_test.c is about it */
    for (int i = 0; i < rounds; i++)
        one_round(1 + 2 * (i % 2), 20u << draw(5));
    pool = open_pool(2);
    check_works(pool);
    fiber_pool_close(pool);
    assert_true(atomic_load(&refused) > 0);
}

/* In a worker: from now on, in all its threads. */
static int be_short(const void *arg, size_t len)
{
    int rc = board_init(arg, len);

    atomic_store(&random_state, (uint64_t)getpid());
    atomic_store(&one_in, 300);
    return rc;
}

static void test_memory_is_refused_to_workers(void **state)
{
    for (int i = 0; i < 2; i++) {
        struct fiber_pool *pool =
            open_pool_with((struct fiber_pool_options){.min = 3,
                                                       .max = 3,
                                                       .workers_per_job = 1 + i,
                                                       .init = be_short,
                                                       .init_arg = board_path,
                                                       .init_len = strlen(board_path) + 1});

        for (int k = 0; k < 5; k++)
            check_map(pool, k % 2 ? nap_1ms : square);
        fiber_pool_close(pool);
    }
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        pool_test(test_memory_is_refused_to_our_threads),
        pool_test(test_memory_is_refused_to_workers),
    };

    setenv("FIBER_HEARTBEAT", "500ms", 0);
    assert_ok(fiber_init(&argc, &argv));
    assert_ok(fiber_config_set("grace", "300ms"));
    assert_ok(fiber_config_set("start_timeout", "20s"));
    assert_ok(fiber_config_set("start_patience",
                               "0ms")); /* rounds of shortage, which do not pass by waiting */
    return run_pool_tests(tests, "short of memory, at random");
}
