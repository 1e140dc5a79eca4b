/* store_sync_test.c - locks, semaphores, events and barriers of the shared store, and what becomes
 * of them in deaths.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "tests/share/in_store.h"

/* ---- Locks and semaphores ---- */

static void *try_lock(void *unused)
{
    return (void *)(intptr_t)fiber_store_lock(store, "mine", 20);
}

static void test_another_thread_waits_for_the_lock_too(void **state)
{
    pthread_t t;
    void *rc;

    assert_int_equal(fiber_store_lock(store, "mine", -1), 0);
    assert_int_equal(pthread_create(&t, NULL, try_lock, NULL), 0);
    pthread_join(t, &rc);
    assert_int_equal((intptr_t)rc, -ETIMEDOUT);
    assert_int_equal(fiber_store_unlock(store, "mine"), 0);
}

/* Adds one to a value that is read and written in two steps, under a lock. */
static int add_under_lock(const void *arg, size_t len)
{
    open_order(arg);
    for (int i = 0; i < ROUNDS; i++) {
        struct fiber_bytes b = {NULL, 0};
        int64_t inside;
        int v = 0;

        if (fiber_store_lock(store, "guard", -1) < 0)
            return 1;
        if (fiber_store_add(store, "inside", 1, &inside) < 0 || inside != 1)
            return 2;
        if (fiber_store_get(store, "guarded", &b, 0) == 0)
            memcpy(&v, b.data, sizeof(v));
        fiber_bytes_free(&b);
        v++;
        if (fiber_store_set(store, "guarded", &v, sizeof(v)) < 0 ||
            fiber_store_add(store, "inside", -1, NULL) < 0)
            return 3;
        if (fiber_store_unlock(store, "guard") < 0)
            return 4;
    }
    return 0;
}

static void test_a_lock_excludes_four_processes(void **state)
{
    struct order o = order_with(NULL);
    struct fiber_process *p[4];
    struct fiber_bytes b;

    for (int i = 0; i < 4; i++)
        p[i] = begin(add_under_lock, &o, sizeof(o), NULL);
    for (int i = 0; i < 4; i++)
        assert_int_equal(finish(p[i]), 0);
    assert_int_equal(fiber_store_get(store, "guarded", &b, 0), 0);
    assert_int_equal(*(int *)b.data, 4 * ROUNDS);
    fiber_bytes_free(&b);
}

static int lock_and_notify(const void *arg, size_t len)
{
    const struct order *o = open_order(arg);

    if (fiber_store_lock(store, "doomed", -1) < 0 || notify_pid(o) < 0)
        return 1;
    return child_wait(arg, len);
}

static void test_the_lock_of_a_dead_process_is_free_and_the_next_is_told(void **state)
{
    struct fiber_process *p;
    struct order o;
    struct gate g;

    gate_open(&g);
    o = order_with(&g);
    p = begin(lock_and_notify, &o, sizeof(o), NULL);
    kill_teller(&g, p);
    assert_int_equal(fiber_store_lock(store, "doomed", -1), -EOWNERDEAD);
    assert_int_equal(fiber_store_unlock(store, "doomed"), 0); /* it was held all the same */
    assert_int_equal(fiber_store_lock(store, "doomed", -1), 0);
    assert_int_equal(fiber_store_unlock(store, "doomed"), 0);
    gate_close(&g);
}

static int lock_then_wait_told(const void *arg, size_t len)
{
    const struct order *o = open_order(arg);
    int rc;

    if (notify_pid(o) < 0)
        return 1;
    rc = fiber_store_lock(store, "queue", -1);
    return rc == -EOWNERDEAD ? 7 : rc == 0 ? 8 : 1;
}

static void test_one_who_waits_for_the_lock_is_told(void **state)
{
    struct fiber_process *p[2];
    struct order o;
    struct gate h;
    pid_t pids[2];
    int codes[2];

    gate_open(&h);
    assert_int_equal(fiber_store_lock(store, "queue", -1), 0);
    o = order_with(&h);
    for (int i = 0; i < 2; i++)
        p[i] = begin(lock_then_wait_told, &o, sizeof(o), NULL);
    assert_int_equal(gate_wait(&h, pids, sizeof(pids)), 0);
    assert_int_equal(fiber_store_unlock(store, "queue"), 0);
    for (int i = 0; i < 2; i++) /* the first gets it and ends with it; so the second is told */
        codes[i] = finish(p[i]);
    assert_int_equal(codes[0] + codes[1], 15);
    assert_int_equal(fiber_store_lock(store, "queue", -1), -EOWNERDEAD);
    gate_close(&h);
}

static int unlock_foreign(const void *arg, size_t len)
{
    open_order(arg);
    return fiber_store_unlock(store, "foreign") == -EPERM &&
                   fiber_store_lock(store, "foreign", 0) == -ETIMEDOUT
               ? 0
               : 1;
}

static void test_only_the_holder_unlocks(void **state)
{
    struct order o = order_with(NULL);

    assert_int_equal(fiber_store_lock(store, "foreign", 0), 0);
    assert_int_equal(finish(begin(unlock_foreign, &o, sizeof(o), NULL)), 0);
    assert_int_equal(fiber_store_unlock(store, "foreign"), 0);
}

static int lock_and_close(const void *arg, size_t len)
{
    const struct order *o = open_order(arg);
    int rc;

    if (fiber_store_lock(store, "left", 0) < 0)
        return 1;
    fiber_store_close(store);
    open_order(o);
    rc = fiber_store_lock(store, "left", -1);
    return rc == -EOWNERDEAD && fiber_store_unlock(store, "left") == 0 ? 0 : 3;
}

static void test_to_close_the_last_handle_lets_go_of_everything(void **state)
{
    struct order o = order_with(NULL);

    assert_int_equal(finish(begin(lock_and_close, &o, sizeof(o), NULL)), 0);
}

static int acquire_and_notify(const void *arg, size_t len)
{
    const struct order *o = open_order(arg);

    if (fiber_store_acquire(store, "sem", 2, -1) < 0 || notify_pid(o) < 0)
        return 1;
    return child_wait(arg, len);
}

static void test_a_dead_process_gives_its_units_back(void **state)
{
    struct fiber_process *p[2];
    pid_t pids[2];
    struct order o;
    struct gate g;

    gate_open(&g);
    o = order_with(&g);
    for (int i = 0; i < 2; i++)
        p[i] = begin(acquire_and_notify, &o, sizeof(o), NULL);
    assert_int_equal(gate_wait(&g, pids, sizeof(pids)), 0);
    assert_int_equal(fiber_store_acquire(store, "sem", 2, 0), -ETIMEDOUT);
    assert_int_equal(fiber_store_release(store, "sem"), -EPERM);
    kill(pids[0], SIGKILL);
    assert_int_equal(fiber_store_acquire(store, "sem", 2, -1), 0);
    assert_int_equal(fiber_store_acquire(store, "sem", 2, 20), -ETIMEDOUT);
    assert_int_equal(fiber_store_release(store, "sem"), 0);
    kill(pids[1], SIGKILL);
    for (int i = 0; i < 2; i++)
        assert_int_equal(finish(p[i]), -SIGKILL);
    gate_close(&g);
}

static int wait_event(const void *arg, size_t len)
{
    const struct order *o = open_order(arg);

    return notify_pid(o) < 0 || fiber_store_event_wait(store, "event", -1) < 0;
}

static void test_an_event_wakes_all(void **state)
{
    struct fiber_process *p[3];
    pid_t pids[3];
    struct order o;
    struct gate g;

    gate_open(&g);
    o = order_with(&g);
    assert_int_equal(fiber_store_event_wait(store, "event", 0), -ETIMEDOUT);
    assert_int_equal(fiber_store_event_wait(store, "event", 20), -ETIMEDOUT);
    for (int i = 0; i < 3; i++)
        p[i] = begin(wait_event, &o, sizeof(o), NULL);
    assert_int_equal(gate_wait(&g, pids, sizeof(pids)), 0);
    assert_int_equal(fiber_store_event_set(store, "event"), 0);
    for (int i = 0; i < 3; i++)
        assert_int_equal(finish(p[i]), 0);
    assert_int_equal(fiber_store_event_wait(store, "event", -1), 0);
    assert_int_equal(fiber_store_event_clear(store, "event"), 0);
    assert_int_equal(fiber_store_event_wait(store, "event", 0), -ETIMEDOUT);
    gate_close(&g);
}

static int pass_barriers(const void *arg, size_t len)
{
    const struct order *o = open_order(arg);

    for (int round = 0; round < 20; round++) {
        char sum[32], before[32];
        int64_t v;
        int index;

        snprintf(before, sizeof(before), "before %d", round);
        snprintf(sum, sizeof(sum), "sum %d", round);
        if (fiber_store_add(store, before, 1, NULL) < 0 ||
            fiber_store_barrier(store, "b", o->n, &index, -1) < 0)
            return 1;
        if (fiber_store_add(store, before, 0, &v) < 0 || v != o->n) /* all were there */
            return 2;
        if (index < 0 || index >= o->n ||
            fiber_store_add(store, sum, INT64_C(1) << (8 * index), NULL) < 0)
            return 3;
    }
    return 0;
}

static void test_a_barrier_holds_until_all_are_there(void **state)
{
    struct order o = order_with(NULL);
    struct fiber_process *p[4];

    o.n = 4;
    for (int i = 0; i < 4; i++)
        p[i] = begin(pass_barriers, &o, sizeof(o), NULL);
    for (int i = 0; i < 4; i++)
        assert_int_equal(finish(p[i]), 0);
    for (int round = 0; round < 20; round++) {
        char sum[32];
        int64_t v;

        snprintf(sum, sizeof(sum), "sum %d", round);
        assert_int_equal(fiber_store_add(store, sum, 0, &v), 0);
        assert_int_equal(v, 0x01010101); /* each index once */
    }
}

static int wait_at_barrier(const void *arg, size_t len)
{
    const struct order *o = open_order(arg);

    return notify_pid(o) < 0 || fiber_store_barrier(store, "broken", 3, NULL, -1) != -ECONNABORTED;
}

static void *kill_and_join(void *teller)
{
    struct fiber_process *p = teller;

    fiber_process_kill(p);
    fiber_process_join(p, -1);
    return NULL;
}

static void test_a_death_breaks_the_barrier(void **state)
{
    struct fiber_process *p;
    struct order o;
    struct gate g;
    pthread_t t;
    pid_t pid;
    int rc;

    gate_open(&g);
    o = order_with(&g);
    p = begin(wait_at_barrier, &o, sizeof(o), NULL);
    assert_int_equal(gate_wait(&g, &pid, sizeof(pid)), 0);
    assert_int_equal(pthread_create(&t, NULL, kill_and_join, p), 0);
    do /* its death may come before it waits, or before we do */
        rc = fiber_store_barrier(store, "broken", 3, NULL, 1000);
    while (rc == -ETIMEDOUT && fiber_process_is_alive(p));
    assert_true(rc == -ECONNABORTED || rc == -ETIMEDOUT);
    pthread_join(t, NULL);
    fiber_process_close(p);
    gate_close(&g);
}

static void test_a_timeout_breaks_the_barrier(void **state)
{
    struct fiber_process *p;
    struct order o;
    struct gate g;
    pid_t pid;
    int rc;

    gate_open(&g);
    o = order_with(&g);
    p = begin(wait_at_barrier, &o, sizeof(o), NULL);
    assert_int_equal(gate_wait(&g, &pid, sizeof(pid)), 0);
    do /* until it waits there */
        rc = fiber_store_barrier(store, "broken", 2, NULL, 0);
    while (rc == -ETIMEDOUT);
    assert_int_equal(rc, -EINVAL);
    assert_non_null(strstr(fiber_last_error(), "waits there for another number of parties"));
    while (fiber_process_is_alive(p)) {
        rc = fiber_store_barrier(store, "broken", 3, NULL, 20);
        assert_true(rc == -ETIMEDOUT || rc == -ECONNABORTED);
    }
    assert_int_equal(finish(p), 0);
    assert_int_equal(fiber_store_barrier(store, "broken", 1, NULL, 0), 0); /* it is whole again */
    gate_close(&g);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        WITH_STORE(test_another_thread_waits_for_the_lock_too),
        WITH_STORE(test_a_lock_excludes_four_processes),
        WITH_STORE(test_the_lock_of_a_dead_process_is_free_and_the_next_is_told),
        WITH_STORE(test_one_who_waits_for_the_lock_is_told),
        WITH_STORE(test_only_the_holder_unlocks),
        WITH_STORE(test_to_close_the_last_handle_lets_go_of_everything),
        WITH_STORE(test_a_dead_process_gives_its_units_back),
        WITH_STORE(test_an_event_wakes_all),
        WITH_STORE(test_a_barrier_holds_until_all_are_there),
        WITH_STORE(test_a_death_breaks_the_barrier),
        WITH_STORE(test_a_timeout_breaks_the_barrier),
    };

    init_fiber(&argc, &argv);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
