/* common_test.c - input that all tasks of a map share: workers get it once, also those that join
 * later or in place of dead ones.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <fcntl.h>
#include <sys/stat.h>

#include "tests/pool/tasks.h"
#include "tests/support/sync.h"

#define LONG (1 << 20)
#define KILLS "TEST_COMMON_KILLS"

struct seen {
    int64_t pid;
    uint64_t id, at, sum, resident_kib;
};

static uint64_t sum_of(const uint8_t *bytes, size_t len)
{
    uint64_t sum = len;

    for (size_t i = 0; i < len; i += 64)
        sum = sum * 31 + bytes[i];
    return sum;
}

static uint64_t resident_kib(void)
{
    FILE *f = fopen("/proc/self/statm", "re");
    long all = 0, resident = 0;

    if (f && fscanf(f, "%ld %ld", &all, &resident) != 2)
        resident = 0;
    if (f)
        fclose(f);
    return (uint64_t)resident * (uint64_t)(sysconf(_SC_PAGESIZE) / 1024);
}

/* A byte for each worker that a task kills, in the file that KILLS names. */
static void note_kill(void)
{
    const char *path = getenv(KILLS);
    int fd = path ? open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600) : -1;

    if (fd < 0 || write(fd, "x", 1) != 1)
        abort();
    close(fd);
}

/* Tells what it sees. */
static int look(const void *in, size_t len, struct fiber_reply *reply)
{
    struct seen s = {.pid = getpid()};
    size_t n = 1;
    const void *data = fiber_task_common(&n, &s.id);

    s.at = (uintptr_t)data;
    s.sum = data ? sum_of(data, n) : n;
    s.resident_kib = resident_kib();
    if (number(in, len) < 0) {
        note_kill();
        raise(SIGKILL);
    }
    nap_us(1000);
    return fiber_reply_write(reply, &s, sizeof(s));
}

static struct fiber_map_options with(const void *common, size_t len)
{
    return (struct fiber_map_options){
        .size = sizeof(struct fiber_map_options), .common = common, .common_len = len};
}

static void look_n(struct fiber_pool *pool, const struct fiber_map_options *o, struct seen *out,
                   size_t n)
{
    int64_t *in = calloc(n, sizeof(*in));

    assert_ok(fiber_pool_map(pool, look, in, sizeof(*in), out, sizeof(*out), n, o));
    free(in);
}

/* Fills `bytes` and returns its sum. */
static uint64_t fill(uint8_t *bytes, size_t len, uint8_t with_byte)
{
    memset(bytes, with_byte, len);
    return sum_of(bytes, len);
}

static void test_all_workers_see_it_also_those_that_join_later(void **state)
{
    struct fiber_pool *pool = open_pool(1);
    uint8_t *bytes = malloc(LONG);
    uint64_t sum = fill(bytes, LONG, 'a');
    struct fiber_map_options o = with(bytes, LONG);
    struct seen s[200];

    look_n(pool, &o, s, 20);
    for (int i = 0; i < 20; i++)
        assert_int_equal(s[i].sum, sum);
    assert_ok(fiber_pool_resize(pool, 4));
    assert_ok(fiber_pool_wait_workers(pool, 4, WAIT_MS));
    look_n(pool, &o, s, 200);
    for (int i = 0; i < 200; i++)
        assert_int_equal(s[i].sum, sum);
    meet(pool, 4); /* and a map without one */
    look_n(pool, NULL, s, 10);
    for (int i = 0; i < 10; i++)
        assert_true(s[i].id == 0 && s[i].at == 0 && s[i].sum == 0);
    free(bytes);
    fiber_pool_close(pool);
}

static void test_it_lies_at_one_place_and_is_not_sent_again(void **state)
{
    struct fiber_pool *pool = open_pool(2);
    uint8_t *bytes = malloc(LONG), *copy = malloc(LONG);
    uint64_t sum = fill(bytes, LONG, 'b');
    struct fiber_map_options o = with(bytes, LONG), same = with(copy, LONG);
    struct seen s[50], first = {0};

    fill(copy, LONG, 'b');
    for (int map = 0; map < 20; map++) {
        look_n(pool, map % 2 ? &o : &same, s, 50);
        for (int i = 0; i < 50; i++) {
            assert_int_equal(s[i].sum, sum);
            if (!first.pid)
                first = s[i];
            assert_int_equal(s[i].id, first.id);
            if (s[i].pid == first.pid)
                assert_int_equal(s[i].at, first.at);
        }
    }
    free(bytes);
    free(copy);
    fiber_pool_close(pool);
}

static void test_maps_at_the_same_time_have_their_own(void **state)
{
    struct fiber_pool *pool = open_pool(3);
    enum { MAPS = 30, TASKS = 20 };
    struct fiber_result *r[MAPS];
    uint64_t sums[MAPS], ids[MAPS];
    struct seen out[MAPS][TASKS];
    static const int64_t in[TASKS];

    for (int m = 0; m < MAPS; m++) {
        uint8_t bytes[3000];
        struct fiber_map_options o = with(bytes, 100 * (size_t)m + 1);

        sums[m] = fill(bytes, 100 * (size_t)m + 1, (uint8_t)m);
        assert_ok(fiber_pool_map_array(pool, look, in, 8, out[m], sizeof(out[m][0]), TASKS, &o,
                                       &r[m])); /* `bytes` may change now */
    }
    for (int m = 0; m < MAPS; m++) {
        assert_ok(fiber_result_wait(r[m], WAIT_MS));
        ids[m] = out[m][0].id;
        for (int i = 0; i < TASKS; i++) {
            assert_int_equal(out[m][i].sum, sums[m]);
            assert_int_equal(out[m][i].id, ids[m]);
        }
        for (int k = 0; k < m; k++)
            assert_true(ids[k] != ids[m]);
        fiber_result_close(r[m]);
    }
    fiber_pool_close(pool);
}

static void test_unused_ones_are_forgotten(void **state)
{
    struct fiber_pool *pool = open_pool(2);
    size_t len = 8 * LONG;
    uint8_t *bytes = malloc(len);
    struct seen s[4];
    int maps = SANITIZED ? 4 : 40; /* a sanitizer keeps freed memory for itself: only sums count */
    uint64_t most = 0;

    for (int map = 0; map < maps; map++) {
        uint64_t sum = fill(bytes, len, (uint8_t)map);
        struct fiber_map_options o = with(bytes, len);

        look_n(pool, &o, s, 4);
        for (int i = 0; i < 4; i++) {
            assert_int_equal(s[i].sum, sum);
            most = s[i].resident_kib > most ? s[i].resident_kib : most;
        }
    }
    if (!SANITIZED && most > 160 * 1024)
        fail_msg("a worker kept %llu KiB of 40 x 8 MiB", (unsigned long long)most);
    free(bytes);
    fiber_pool_close(pool);
}

static void test_workers_in_place_of_dead_ones_get_it(void **state)
{
    char dir[64], path[80];
    struct fiber_pool *pool;
    uint8_t *bytes = malloc(LONG);
    uint64_t sum = fill(bytes, LONG, 'c');
    struct fiber_map_options o = with(bytes, LONG);
    struct fiber_result *r;
    int64_t in[40] = {0};
    struct seen out[40];
    struct stat kills;

    temp_dir_make(dir);
    snprintf(path, sizeof(path), "%s/kills", dir);
    setenv(KILLS, path, 1);
    pool = open_pool(2);
    in[7] = in[23] = -1; /* each of them kills three workers */
    assert_ok(fiber_pool_map_array(pool, look, in, 8, out, sizeof(out[0]), 40, &o, &r));
    assert_ok(fiber_result_wait(r, WAIT_MS));
    for (int i = 0; i < 40; i++) {
        if (in[i] < 0)
            assert_int_equal(error_of(r, (size_t)i, "workers died"), -EOWNERDEAD);
        else
            assert_int_equal(out[i].sum, sum);
    }
    /* A worker that dies before it could say which task it has begun is blamed on nobody. Nobody but these two
     * tasks kills one. */
    assert_int_equal(stat(path, &kills), 0);
    assert_true(kills.st_size >= 6);
    assert_int_equal(stats_of(pool).deaths, kills.st_size);
    fiber_result_close(r);
    free(bytes);
    fiber_pool_close(pool);
    unsetenv(KILLS);
    temp_dir_remove(dir);
}

static void test_a_cancelled_map_leaves_the_next_one_alone(void **state)
{
    struct fiber_pool *pool = open_pool(2);
    uint8_t *bytes = malloc(LONG);
    static const int64_t in[100];
    struct seen out[100];

    for (int map = 0; map < 60; map++) {
        uint64_t sum = fill(bytes, LONG, (uint8_t)map);
        struct fiber_map_options o = with(bytes, LONG);
        struct fiber_result *r;

        assert_ok(fiber_pool_map_array(pool, look, in, 8, out, sizeof(out[0]), 100, &o, &r));
        if (map % 3)
            assert_ok(fiber_result_wait_task(r, 0, WAIT_MS));
        if (map % 3 == 2) {
            assert_ok(fiber_result_wait(r, WAIT_MS));
            for (int i = 0; i < 100; i++)
                assert_int_equal(out[i].sum, sum);
        }
        fiber_result_close(r);
    }
    free(bytes);
    fiber_pool_close(pool);
}

static void test_wrong_calls(void **state)
{
    struct fiber_pool *pool = open_pool(1);
    struct fiber_map_options o = with(NULL, 8);
    int64_t in = 0, out;
    size_t len = 1;
    uint64_t id = 1;

    assert_int_equal(fiber_pool_map(pool, square, &in, 8, &out, 8, 1, &o), -EINVAL);
    assert_null(fiber_task_common(&len, &id)); /* this is not a task */
    assert_int_equal(len, 0);
    assert_int_equal(id, 0);
    assert_null(fiber_task_common(NULL, NULL));
    fiber_pool_close(pool);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        pool_test(test_all_workers_see_it_also_those_that_join_later),
        pool_test(test_it_lies_at_one_place_and_is_not_sent_again),
        pool_test(test_maps_at_the_same_time_have_their_own),
        pool_test(test_unused_ones_are_forgotten),
        pool_test(test_workers_in_place_of_dead_ones_get_it),
        pool_test(test_a_cancelled_map_leaves_the_next_one_alone),
        pool_test(test_wrong_calls),
    };

    assert_ok(fiber_init(&argc, &argv));
    return run_pool_tests(tests, "common");
}
