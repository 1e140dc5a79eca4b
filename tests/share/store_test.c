/* store_test.c - the shared store across processes: dictionary, lists, counters; timeouts, its end
 * and its death.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "tests/share/in_store.h"

#include <sys/wait.h>

#include "tests/support/run.h"

/* ---- What a single process sees ---- */

static void test_dictionary(void **state)
{
    struct fiber_bytes b;

    assert_int_equal(fiber_store_get(store, "k", &b, 0), -ENOENT);
    assert_true(has(fiber_last_error(), "store", "'k'", NULL));
    assert_int_equal(fiber_store_set(store, "k", "one", 3), 0);
    assert_int_equal(fiber_store_get(store, "k", &b, 0), 0);
    assert_true(is(&b, "one"));
    assert_int_equal(fiber_store_set(store, "empty", NULL, 0), 0);
    assert_int_equal(fiber_store_get(store, "empty", &b, 0), 0);
    assert_true(is(&b, ""));
    assert_int_equal(fiber_store_set(store, "kk", "two", 3), 0);
    assert_int_equal(fiber_store_keys(store, "k", &b), 0);
    assert_int_equal(b.len, 5);
    assert_memory_equal(b.data, "k\0kk", 5);
    fiber_bytes_free(&b);
    assert_int_equal(fiber_store_keys(store, NULL, &b), 0);
    assert_int_equal(b.len, 11);
    fiber_bytes_free(&b);
    assert_int_equal(fiber_store_delete(store, "k"), 0);
    assert_int_equal(fiber_store_delete(store, "k"), -ENOENT);
    assert_int_equal(fiber_store_get(store, "k", &b, 20), -ENOENT);
    assert_null(b.data);
}

static void test_swap(void **state)
{
    struct fiber_bytes b;

    assert_int_equal(fiber_store_swap(store, "s", "x", 1, "y", 1, &b), -ESTALE);
    assert_null(b.data);
    assert_int_equal(fiber_store_swap(store, "s", NULL, 0, "y", 1, &b), 0);
    assert_null(b.data);
    assert_int_equal(fiber_store_swap(store, "s", "x", 1, "z", 1, &b), -ESTALE);
    assert_true(is(&b, "y"));
    assert_int_equal(fiber_store_swap(store, "s", NULL, 0, "z", 1, NULL), -ESTALE);
    assert_int_equal(fiber_store_swap(store, "s", "y", 1, NULL, 0, NULL), 0);
    assert_int_equal(fiber_store_swap(store, "s", "", 0, "w", 1, NULL), 0);
}

static void test_counters(void **state)
{
    int64_t v;

    assert_int_equal(fiber_store_add(store, "c", 5, &v), 0);
    assert_int_equal(v, 5);
    assert_int_equal(fiber_store_add(store, "c", -7, &v), 0);
    assert_int_equal(v, -2);
    assert_int_equal(fiber_store_add(store, "c", INT64_MIN, NULL), -ERANGE);
    assert_int_equal(fiber_store_add(store, "c", 0, &v), 0);
    assert_int_equal(v, -2);
}

static void test_lists(void **state)
{
    struct fiber_bytes b;
    size_t n;

    assert_int_equal(fiber_store_pop(store, "l", &b, 0), -ETIMEDOUT);
    assert_int_equal(fiber_store_pop(store, "l", &b, 20), -ETIMEDOUT);
    assert_int_equal(fiber_store_push(store, "l", "a", 1), 0);
    assert_int_equal(fiber_store_push(store, "l", NULL, 0), 0);
    assert_int_equal(fiber_store_length(store, "l", &n), 0);
    assert_int_equal(n, 2);
    assert_int_equal(fiber_store_at(store, "l", 0, &b), 0);
    assert_true(is(&b, "a"));
    assert_int_equal(fiber_store_at(store, "l", 2, &b), -ENOENT);
    assert_int_equal(fiber_store_pop(store, "l", &b, -1), 0);
    assert_true(is(&b, "a"));
    assert_int_equal(fiber_store_pop(store, "l", &b, -1), 0);
    assert_true(is(&b, ""));
}

static void test_large_values(void **state)
{
    size_t len = 20 << 20;
    unsigned char *big = malloc(len);
    struct fiber_bytes b;

    for (size_t i = 0; i < len; i++)
        big[i] = (unsigned char)(i * 7 + (i >> 12));
    assert_int_equal(fiber_store_set(store, "big", big, len), 0);
    assert_int_equal(fiber_store_get(store, "big", &b, 0), 0);
    assert_int_equal(b.len, len);
    assert_memory_equal(b.data, big, len);
    fiber_bytes_free(&b);
    free(big);
}

static void test_wrong_arguments_are_errors(void **state)
{
    struct fiber_bytes b;
    char name[257];

    memset(name, 'n', sizeof(name));
    name[256] = '\0';
    assert_int_equal(fiber_store_set(store, name, "x", 1), -EINVAL);
    name[255] = '\0';
    assert_int_equal(fiber_store_set(store, name, "x", 1), 0);
    assert_int_equal(fiber_store_set(store, NULL, "x", 1), -EINVAL);
    assert_int_equal(fiber_store_set(store, "x", NULL, 1), -EINVAL);
    assert_int_equal(fiber_store_set(store, "x", "x", (size_t)UINT32_MAX + 1), -EMSGSIZE);
    assert_non_null(strstr(fiber_last_error(), "max_message"));
    assert_int_equal(fiber_store_get(store, NULL, &b, 0), -EINVAL);
    assert_int_equal(fiber_store_acquire(store, "s", 0, 0), -EINVAL);
    assert_int_equal(fiber_store_barrier(store, "b", 0, NULL, 0), -EINVAL);
    assert_int_equal(fiber_store_unlock(store, "never locked"), -EPERM);
    assert_int_equal(fiber_store_release(store, "never acquired"), -EPERM);
}

static void test_handles_of_one_process_are_alike(void **state)
{
    struct fiber_store *more[3];
    struct fiber_address a;
    struct fiber_bytes b;

    assert_int_equal(fiber_store_address(store, &a), 0);
    for (int i = 0; i < 3; i++)
        assert_int_equal(fiber_store_connect(&more[i], &a), 0);
    assert_int_equal(fiber_store_lock(more[0], "held", 0), 0);
    fiber_store_close(more[0]); /* not the last: the process still holds it */
    assert_int_equal(fiber_store_lock(more[1], "held", 0), -ETIMEDOUT);
    assert_int_equal(fiber_store_unlock(more[1], "held"), 0);
    assert_int_equal(fiber_store_set(more[1], "k", "v", 1), 0);
    fiber_store_close(more[1]);
    assert_int_equal(fiber_store_get(more[2], "k", &b, 0), 0);
    assert_true(is(&b, "v"));
    assert_int_equal(fiber_store_address(more[2], &a), 0); /* it may be passed on */
    fiber_store_close(more[2]);
    assert_int_equal(fiber_store_connect(&more[0], &a), 0);
    fiber_store_close(more[0]);
}

/* ---- Threads ---- */

static void *add_often(void *unused)
{
    for (int i = 0; i < ROUNDS; i++)
        if (fiber_store_add(store, "threads", 1, NULL) < 0)
            return (void *)"failed";
    return NULL;
}

static void test_eight_threads_add(void **state)
{
    pthread_t t[8];
    int64_t v;
    void *rc;

    for (int i = 0; i < 8; i++)
        assert_int_equal(pthread_create(&t[i], NULL, add_often, NULL), 0);
    for (int i = 0; i < 8; i++) {
        pthread_join(t[i], &rc);
        assert_null(rc);
    }
    assert_int_equal(fiber_store_add(store, "threads", 0, &v), 0);
    assert_int_equal(v, 8 * ROUNDS);
}

/* Pops with the shortest timeouts until it takes an empty item; counts. */
static void *pop_hastily(void *count)
{
    struct fiber_bytes b;
    int rc;

    for (;;) {
        rc = fiber_store_pop(store, "hasty", &b, 1);
        if (rc == -ETIMEDOUT)
            continue;
        if (rc < 0)
            return (void *)"failed";
        if (b.len == 0)
            break;
        ++*(int *)count;
        fiber_bytes_free(&b);
    }
    fiber_bytes_free(&b);
    return NULL;
}

static void test_a_timeout_loses_nothing(void **state)
{
    int counts[4] = {0}, sum = 0;
    pthread_t t[4];
    void *rc;

    for (int i = 0; i < 4; i++)
        assert_int_equal(pthread_create(&t[i], NULL, pop_hastily, &counts[i]), 0);
    for (int i = 0; i < 300; i++) {
        assert_int_equal(fiber_store_push(store, "hasty", "x", 1), 0);
        if (i % 10 == 0)
            let_time_pass(1); /* so that pops time out just then */
    }
    for (int i = 0; i < 4; i++)
        assert_int_equal(fiber_store_push(store, "hasty", NULL, 0), 0);
    for (int i = 0; i < 4; i++) {
        pthread_join(t[i], &rc);
        assert_null(rc);
        sum += counts[i];
    }
    assert_int_equal(sum, 300);
}

/* ---- Processes ---- */

static int set_go(const void *arg, size_t len)
{
    const struct order *o = open_order(arg);
    struct fiber_bytes b;

    if (fiber_store_get(store, "ask", &b, -1) < 0 || !is(&b, "please"))
        return 1;
    return fiber_store_set(store, "answer", &o->n, sizeof(o->n)) < 0;
}

static void test_get_waits_for_another_process(void **state)
{
    struct order o = order_with(NULL);
    struct fiber_process *p;
    struct fiber_bytes b;

    o.n = 42;
    p = begin(set_go, &o, sizeof(o), NULL);
    assert_int_equal(fiber_store_set(store, "ask", "please", 6), 0);
    assert_int_equal(fiber_store_get(store, "answer", &b, -1), 0);
    assert_int_equal(*(int *)b.data, 42);
    fiber_bytes_free(&b);
    assert_int_equal(finish(p), 0);
}

static int push_numbers(const void *arg, size_t len)
{
    const struct order *o = open_order(arg);

    for (int i = 0; i < ROUNDS; i++) {
        int item[2] = {o->n, i};

        if (fiber_store_push(store, "items", item, sizeof(item)) < 0)
            return 1;
    }
    return 0;
}

static void test_pop_takes_what_others_push_in_their_order(void **state)
{
    struct order o = order_with(NULL);
    struct fiber_process *p[3];
    int next[3] = {0};

    for (o.n = 0; o.n < 3; o.n++)
        p[o.n] = begin(push_numbers, &o, sizeof(o), NULL);
    for (int i = 0; i < 3 * ROUNDS; i++) {
        struct fiber_bytes b;
        const int *item;

        assert_int_equal(fiber_store_pop(store, "items", &b, -1), 0);
        item = b.data;
        assert_int_equal(item[1], next[item[0]]++);
        fiber_bytes_free(&b);
    }
    for (int i = 0; i < 3; i++)
        assert_int_equal(finish(p[i]), 0);
}

/* ---- The store's own end ---- */

static void *wait_for_ever(void *unused)
{
    struct fiber_bytes b;

    return (void *)(intptr_t)fiber_store_get(store, "never", &b, -1);
}

static void test_when_its_process_dies_calls_fail_and_say_so(void **state)
{
    struct fiber_store *other;
    struct fiber_process *p;
    struct fiber_address a;
    pthread_t t;
    void *rc;

    assert_int_equal(fiber_store_address(store, &a), 0);
    assert_int_equal(fiber_store_connect(&other, &a), 0);
    assert_int_equal(pthread_create(&t, NULL, wait_for_ever, NULL), 0);
    assert_int_equal(children_active(&p), 1);
    kill((pid_t)fiber_process_pid(p), SIGKILL);
    pthread_join(t, &rc);
    assert_int_equal((intptr_t)rc, -EPIPE);
    assert_int_equal(fiber_store_set(store, "k", "v", 1), -EPIPE);
    assert_true(has(fiber_last_error(), "store", "gone", "killed by signal 9", NULL));
    assert_int_equal(fiber_store_set(other, "k", "v", 1), -EPIPE);
    fiber_store_close(other);
    assert_int_equal(fiber_store_connect(&other, &a), -EPIPE);
}

static int use_after_close(const void *arg, size_t len)
{
    const struct order *o = open_order(arg);
    struct fiber_bytes b;

    return notify_pid(o) < 0 || fiber_store_get(store, "never", &b, -1) != -EPIPE;
}

static void test_to_close_it_ends_it_for_all(void **state)
{
    struct fiber_store *mine;
    struct fiber_process *p;
    struct order o;
    struct gate g;
    pid_t pid;

    gate_open(&g);
    assert_int_equal(fiber_store_start(&mine, NULL), 0);
    o = order_with(&g);
    assert_int_equal(fiber_store_address(mine, &o.address), 0);
    p = begin(use_after_close, &o, sizeof(o), NULL);
    assert_int_equal(gate_wait(&g, &pid, sizeof(pid)), 0);
    fiber_store_close(mine);
    assert_int_equal(finish(p), 0);
    fiber_store_close(NULL);
    gate_close(&g);
}

static void test_a_start_that_fails_says_why(void **state)
{
    const char *const nothing[] = {"/nonexistent/program", NULL};
    struct fiber_store *s;

    assert_int_equal(fiber_store_start(&s, OPTIONS(.job = {.command = nothing})), -ECHILD);
    assert_true(has(fiber_last_error(), "store", "/nonexistent/program", NULL));
    assert_int_equal(fiber_store_start(&s, OPTIONS(.backend = "nowhere")), -ECHILD);
    assert_true(has(fiber_last_error(), "nowhere", NULL));
}

static void test_a_forked_child_gets_an_error(void **state)
{
    struct fiber_bytes b;
    int status;
    pid_t pid;

    pid = fork();
    assert_true(pid >= 0);
    if (pid == 0)
        _exit(fiber_store_get(store, "k", &b, 0) == -EPERM ? 0 : 1);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
}

/* In a process of its own: what may be done with a handle after fiber_fini(). */
static int close_after_the_end(void)
{
    struct fiber_bytes b;

    if (fiber_store_start(&store, NULL) < 0 || fiber_store_set(store, "k", "v", 1) < 0)
        return 1;
    fiber_fini();
    if (fiber_store_get(store, "k", &b, 0) != -EPIPE)
        return 2;
    fiber_store_close(store);
    return 0;
}

static int run_role(const char *role, const char *const *env)
{
    struct ran r = run_self(role, NULL, env);
    int code = r.code;

    if (code)
        fprintf(stderr, "%s", r.err);
    ran_free(&r);
    return code;
}

static void test_a_handle_may_be_closed_after_the_end(void **state)
{
    assert_int_equal(run_role("fini", NULL), 0);
}

static const char *const quick_beat[] = {"FIBER_HEARTBEAT=1s", "FIBER_HEARTBEAT_MISSES=3", NULL};

/* A store that is frozen is a store that is gone, after a few heartbeats. */
static int freeze_the_store(void)
{
    struct fiber_process *p;
    int rc;

    if (fiber_store_start(&store, NULL) < 0 || children_active(&p) != 1)
        return 1;
    kill((pid_t)fiber_process_pid(p), SIGSTOP);
    do /* the signal may take a moment to stop it */
        rc = fiber_store_set(store, "k", "v", 1);
    while (rc == 0);
    fiber_store_close(store);
    return rc == -EPIPE ? 0 : 2;
}

static void test_a_frozen_store_is_given_up(void **state)
{
    assert_int_equal(run_role("freeze store", quick_beat), 0);
}

static int lock_and_notify(const void *arg, size_t len)
{
    const struct order *o = open_order(arg);

    if (fiber_store_lock(store, "cold", -1) < 0 || notify_pid(o) < 0)
        return 1;
    return child_wait(arg, len);
}

static int freeze_a_holder(void)
{
    struct fiber_process *p;
    struct order o;
    struct gate g;
    pid_t pid;
    int rc;

    gate_open(&g);
    if (fiber_store_start(&store, NULL) < 0)
        return 1;
    o = order_with(&g);
    p = begin(lock_and_notify, &o, sizeof(o), NULL);
    if (gate_wait(&g, &pid, sizeof(pid)) < 0)
        return 2;
    gate_close(&g);
    kill(pid, SIGSTOP);
    rc = fiber_store_lock(store, "cold", -1);
    finish(p);
    fiber_store_close(store);
    return rc == -EOWNERDEAD ? 0 : 3;
}

static void test_the_lock_of_a_frozen_process_goes_to_the_next(void **state)
{
    assert_int_equal(run_role("freeze holder", quick_beat), 0);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        WITH_STORE(test_dictionary),
        WITH_STORE(test_swap),
        WITH_STORE(test_counters),
        WITH_STORE(test_lists),
        WITH_STORE(test_large_values),
        WITH_STORE(test_wrong_arguments_are_errors),
        WITH_STORE(test_handles_of_one_process_are_alike),
        WITH_STORE(test_eight_threads_add),
        WITH_STORE(test_a_timeout_loses_nothing),
        WITH_STORE(test_get_waits_for_another_process),
        WITH_STORE(test_pop_takes_what_others_push_in_their_order),
        WITH_STORE(test_when_its_process_dies_calls_fail_and_say_so),
        WITH_STORE(test_to_close_it_ends_it_for_all),
        WITH_STORE(test_a_forked_child_gets_an_error),
        cmocka_unit_test(test_a_start_that_fails_says_why),
        cmocka_unit_test(test_a_handle_may_be_closed_after_the_end),
        cmocka_unit_test(test_a_frozen_store_is_given_up),
        cmocka_unit_test(test_the_lock_of_a_frozen_process_goes_to_the_next),
    };

    static const struct {
        const char *name;
        int (*play)(void);
    } roles[] = {{"fini", close_after_the_end},
                 {"freeze store", freeze_the_store},
                 {"freeze holder", freeze_a_holder}};

    init_fiber(&argc, &argv);
    for (size_t i = 0; argc > 1 && i < sizeof(roles) / sizeof(roles[0]); i++)
        if (strcmp(argv[1], roles[i].name) == 0)
            return roles[i].play();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
