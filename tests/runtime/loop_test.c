/* loop_test.c - the event loop: posts and calls from many threads, timers, holds, the end.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "runtime/net/loop.h"

#define THREADS 4
#define POSTS 2000

static struct fbr_loop *loop;

static int set_up(void **state)
{
    return fbr_loop_open(&loop, NULL);
}

static int tear_down(void **state)
{
    fbr_loop_close(loop);
    return 0;
}

/* ---- Posts and calls ---- */

struct counter {
    int next[THREADS]; /* of each thread; loop thread */
    int wrong, total;
};

struct numbered {
    struct counter *counter;
    int thread, number;
};

static void count(void *arg)
{
    struct numbered *n = arg;

    n->counter->wrong += n->counter->next[n->thread]++ != n->number || !fbr_loop_here(loop);
    n->counter->total++;
    free(n);
}

static void *post_many(void *arg)
{
    struct numbered *first = arg;

    for (int i = 0; i < POSTS; i++) {
        struct numbered *n = malloc(sizeof(*n));

        *n = (struct numbered){first->counter, first->thread, i};
        if (fbr_loop_post(loop, count, n) < 0)
            abort();
    }
    return NULL;
}

static int get_total(void *arg)
{
    return ((struct counter *)arg)->total;
}

static void test_posts_of_each_thread_run_in_order(void **state)
{
    struct counter c = {0};
    struct numbered first[THREADS];
    pthread_t threads[THREADS];

    for (int i = 0; i < THREADS; i++) {
        first[i] = (struct numbered){&c, i, 0};
        assert_int_equal(pthread_create(&threads[i], NULL, post_many, &first[i]), 0);
    }
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    assert_int_equal(fbr_loop_call(loop, get_total, &c),
                     THREADS * POSTS); /* a call comes after what was posted before */
    assert_int_equal(c.wrong, 0);
}

static int answer(void *arg)
{
    return fbr_loop_here(loop) ? *(int *)arg : -EPERM;
}

static int call_again(void *arg)
{
    return fbr_loop_call(loop, answer, arg);
}

static void *call_many(void *arg)
{
    for (int i = 0; i < 500; i++)
        if (fbr_loop_call(loop, answer, &i) != i)
            return arg;
    return NULL;
}

static void test_calls_bring_back_the_answer(void **state)
{
    pthread_t threads[THREADS];
    int x = -17;
    void *wrong;

    assert_false(fbr_loop_here(loop));
    assert_int_equal(fbr_loop_call(loop, answer, &x), -17);
    assert_int_equal(fbr_loop_call(loop, call_again, &x), -17); /* from the loop itself: at once */
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, call_many, &x), 0);
    for (int i = 0; i < THREADS; i++) {
        pthread_join(threads[i], &wrong);
        assert_null(wrong);
    }
}

/* ---- Timers ---- */

struct alarm {
    struct fbr_timer timer;
    pthread_mutex_t lock;
    pthread_cond_t rung;
    int times, wanted;
    uint64_t started, first;
};

static void ring(void *arg)
{
    struct alarm *a = arg;

    if (!a->times)
        a->first = fbr_now_ms();
    pthread_mutex_lock(&a->lock);
    if (++a->times == a->wanted)
        fbr_timer_fini(&a->timer); /* from within its own callback */
    pthread_cond_broadcast(&a->rung);
    pthread_mutex_unlock(&a->lock);
}

static int start_alarm(void *arg)
{
    struct alarm *a = arg;
    int rc = fbr_timer_init(&a->timer, loop, ring, a);

    a->started = fbr_now_ms();
    fbr_timer_start(&a->timer, 20, 1);
    return rc;
}

static void test_a_timer_rings_in_time_until_it_is_ended(void **state)
{
    struct alarm a = {.wanted = 5};

    pthread_mutex_init(&a.lock, NULL);
    pthread_cond_init(&a.rung, NULL);
    assert_int_equal(fbr_loop_call(loop, start_alarm, &a), 0);
    pthread_mutex_lock(&a.lock);
    while (a.times < a.wanted)
        pthread_cond_wait(&a.rung, &a.lock);
    pthread_mutex_unlock(&a.lock);
    assert_true(a.first - a.started >= 20);
    fbr_loop_close(loop); /* with it, nothing is left that could ring */
    assert_int_equal(a.times, 5);
    assert_int_equal(fbr_loop_open(&loop, NULL), 0);
}

struct answer {
    struct fbr_timer timer;
    uv_poll_t poll;
    int pipe[2], came, missed;
};

static void miss(void *arg)
{
    ((struct answer *)arg)->missed++;
}

static void take_answer(uv_poll_t *poll, int status, int events)
{
    struct answer *a = poll->data;

    a->came++;
    fbr_timer_fini(&a->timer);
    uv_close((uv_handle_t *)poll, NULL);
}

/* The answer comes while the loop does not run, and so the time for it is over when it runs again. */
static int wait_and_stand_still(void *arg)
{
    struct answer *a = arg;
    int rc = fbr_timer_init(&a->timer, loop, miss, a);

    uv_poll_init(fbr_loop_uv(loop), &a->poll, a->pipe[0]);
    a->poll.data = a;
    uv_poll_start(&a->poll, UV_READABLE, take_answer);
    fbr_timer_start(&a->timer, 20, 0);
    rc |= write(a->pipe[1], "x", 1) != 1;
    for (uint64_t until = fbr_now_ms() + 100; fbr_now_ms() < until;)
        ;
    return rc;
}

static int has_come(void *arg)
{
    return ((struct answer *)arg)->came;
}

static void test_what_has_come_is_read_before_a_late_timer_rings(void **state)
{
    struct answer a = {0};

    assert_int_equal(pipe(a.pipe), 0);
    assert_int_equal(fbr_loop_call(loop, wait_and_stand_still, &a), 0);
    while (!fbr_loop_call(loop, has_come, &a))
        ;
    fbr_loop_close(loop); /* nothing of the answer is used any more */
    assert_int_equal(fbr_loop_open(&loop, NULL), 0);
    assert_int_equal(a.missed, 0);
    close(a.pipe[0]);
    close(a.pipe[1]);
}

static int stop_twice(void *arg)
{
    struct alarm *a = arg;

    start_alarm(a);
    fbr_timer_stop(&a->timer);
    fbr_timer_fini(&a->timer);
    fbr_timer_fini(&a->timer);
    fbr_timer_stop(&a->timer);
    fbr_timer_start(&a->timer, 1, 0);
    return 0;
}

static void test_an_ended_timer_does_nothing(void **state)
{
    struct alarm a = {0};

    assert_int_equal(fbr_loop_call(loop, stop_twice, &a), 0);
    fbr_loop_close(loop);
    assert_int_equal(a.times, 0);
    assert_int_equal(fbr_loop_open(&loop, NULL), 0);
}

/* ---- The end ---- */

static void release(void *arg)
{
    struct alarm *a = arg;

    a->times++;
    fbr_timer_fini(&a->timer);
    fbr_loop_release(loop);
}

static int hold(void *arg)
{
    struct alarm *a = arg;
    int rc = fbr_timer_init(&a->timer, loop, release, a);

    fbr_loop_hold(loop);
    fbr_timer_start(&a->timer, 50, 0);
    return rc;
}

static void test_close_waits_for_those_who_hold_it(void **state)
{
    struct alarm a[2] = {{.times = 0}, {.times = 0}};

    assert_int_equal(fbr_loop_call(loop, hold, &a[0]), 0);
    assert_int_equal(fbr_loop_call(loop, hold, &a[1]), 0);
    fbr_loop_close(loop);
    assert_int_equal(a[0].times + a[1].times, 2);
    assert_int_equal(fbr_loop_open(&loop, NULL), 0);
}

/* Lets go by a post from another thread, as one that has waited for something. */
struct helper {
    struct alarm alarm;
    struct fbr_post post;
    pthread_t thread;
    int posted;
};

static void let_go(void *arg)
{
    struct helper *h = arg;

    pthread_join(h->thread, NULL);
    h->alarm.times++;
    fbr_loop_release(loop);
}

static void *post_let_go(void *arg)
{
    struct helper *h = arg;

    h->posted = fbr_loop_post_own(loop, &h->post);
    return NULL;
}

static void begin_thread(void *arg)
{
    struct helper *h = arg;

    fbr_timer_fini(&h->alarm.timer);
    assert_int_equal(pthread_create(&h->thread, NULL, post_let_go, h), 0);
}

static int hold_by_thread(void *arg)
{
    struct helper *h = arg;
    int rc = fbr_timer_init(&h->alarm.timer, loop, begin_thread, h);

    fbr_loop_hold(loop);
    fbr_timer_start(&h->alarm.timer, 50, 0);
    return rc;
}

static void test_who_holds_it_may_post_until_it_lets_go(void **state)
{
    struct helper h = {.post = {.fn = let_go, .arg = &h, .own = true}};

    assert_int_equal(fbr_loop_call(loop, hold_by_thread, &h), 0);
    fbr_loop_close(loop);
    assert_int_equal(h.posted, 1);
    assert_int_equal(h.alarm.times, 1);
    assert_int_equal(fbr_loop_open(&loop, NULL), 0);
}

static void test_what_was_posted_before_the_close_has_run(void **state)
{
    struct counter c = {0};

    for (int round = 0; round < 50; round++) {
        c.next[0] = c.total = 0;
        for (int i = 0; i < 100; i++) {
            struct numbered *n = malloc(sizeof(*n));

            *n = (struct numbered){&c, 0, i};
            assert_int_equal(fbr_loop_post(loop, count, n), 0);
        }
        fbr_loop_close(loop);
        assert_int_equal(c.total, 100);
        assert_int_equal(c.wrong, 0);
        assert_int_equal(fbr_loop_open(&loop, NULL), 0);
    }
    fbr_loop_close(NULL);
}

/* As a daemon that has closed what it was given. */
static void test_the_first_three_descriptors_are_never_the_loops(void **state)
{
    int status = 0;
    pid_t pid = fork();

    if (pid == 0) {
        struct fbr_loop *l;

        for (int fd = 0; fd <= 2; fd++)
            close(fd);
        if (fbr_loop_open(&l, NULL) < 0)
            _exit(1);
        fbr_loop_close(l);
        for (int fd = 0; fd <= 2; fd++)
            if (fcntl(fd, F_GETFD) != FD_CLOEXEC)
                _exit(2);
        _exit(0);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_posts_of_each_thread_run_in_order, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_calls_bring_back_the_answer, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_a_timer_rings_in_time_until_it_is_ended, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(test_what_has_come_is_read_before_a_late_timer_rings,
                                        set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_an_ended_timer_does_nothing, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_close_waits_for_those_who_hold_it, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_who_holds_it_may_post_until_it_lets_go, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(test_what_was_posted_before_the_close_has_run, set_up,
                                        tear_down),
        cmocka_unit_test(test_the_first_three_descriptors_are_never_the_loops),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
