/* shared_test.c - host-shared memory: built once, by a process that lives, mapped read-only by all, gone
 * with the run. With TEST_SMALL_SHM the segments do not fit into /dev/shm.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <glob.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <cmocka.h>

#include "tests/support/children.h"
#include "tests/support/run.h"

#define LEN (1u << 20)

static bool small_shm;

/* What a child is told. */
struct order {
    char name[32];
    char gate[96];
    int depth;
};

static struct order order_of(const char *name, const struct gate *g)
{
    struct order o = {.depth = 0};

    snprintf(o.name, sizeof(o.name), "%s", name);
    if (g)
        snprintf(o.gate, sizeof(o.gate), "%s", g->path);
    return o;
}

static uint32_t word(size_t i)
{
    return (uint32_t)i * 2654435761u;
}

static int fill(void *data, size_t len, void *user)
{
    uint32_t *w = data;

    for (size_t i = 0; i < len / sizeof(*w); i++) {
        if (w[i])
            return -EBADMSG; /* it was not zeroed */
        w[i] = word(i);
    }
    return 0;
}

static int is_filled(struct fiber_shared *s)
{
    const uint32_t *w = fiber_shared_data(s);

    for (size_t i = 0; i < fiber_shared_len(s) / sizeof(*w); i++)
        if (w[i] != word(i))
            return 0;
    return 1;
}

/* ---- What children do ---- */

/* Tells the gate whether it built; its depth is how many generations start one more. */
static int open_and_notify(const void *arg, size_t len)
{
    struct order o = *(const struct order *)arg;
    struct fiber_shared *s;
    char built;

    if (o.depth-- > 0)
        return finish(begin(open_and_notify, &o, len, NULL));
    if (fiber_shared_open(&s, o.name, LEN, fill, NULL) < 0) {
        fprintf(stderr, "%s\n", fiber_last_error());
        return 2;
    }
    built = (char)fiber_shared_built(s);
    if (!is_filled(s) || gate_notify(o.gate, &built, 1) < 0)
        return 3;
    fiber_shared_close(s);
    return 0;
}

static int build_half_and_wait(void *data, size_t len, void *gate)
{
    pid_t me = getpid();

    memset(data, 0xff, len / 2);
    gate_notify(gate, &me, sizeof(me));
    return child_wait(NULL, 0);
}

static int hang_in_builder(const void *arg, size_t len)
{
    struct order o = *(const struct order *)arg;
    struct fiber_shared *s;

    fiber_shared_open(&s, o.name, LEN, build_half_and_wait, o.gate);
    return 1;
}

static void on_fault(int sig)
{
    _exit(7);
}

/* A program may cast the const away; the memory stays what it is. */
static int write_to_it(const void *arg, size_t len)
{
    struct fiber_shared *s;

    signal(SIGSEGV, on_fault);
    signal(SIGBUS, on_fault);
    if (fiber_shared_open(&s, ((const struct order *)arg)->name, LEN, fill, NULL) < 0)
        return 2;
    *(volatile char *)(uintptr_t)fiber_shared_data(s) = 1;
    return 0;
}

/* ---- Tests ---- */

static void test_the_first_builds_it(void **state)
{
    struct fiber_shared *first, *second;

    assert_int_equal(fiber_shared_open(&first, "first", LEN, fill, NULL), 0);
    assert_int_equal(fiber_shared_open(&second, "first", LEN, fill, NULL), 0);
    assert_int_equal(fiber_shared_built(first), 1);
    assert_int_equal(fiber_shared_built(second), 0);
    assert_int_equal(fiber_shared_len(second), LEN);
    assert_true(is_filled(first) && is_filled(second));
    fiber_shared_close(first);
    assert_true(is_filled(second));
    fiber_shared_close(second);
    assert_int_equal(fiber_shared_open(&first, "first", LEN, fill, NULL), 0);
    assert_int_equal(fiber_shared_built(first), 0); /* it lives as long as the run */
    fiber_shared_close(first);
    fiber_shared_close(NULL);
}

static void test_eight_processes_build_it_once(void **state)
{
    struct fiber_process *p[8];
    struct gate g;
    struct order o;
    char built[8];
    int sum = 0;

    gate_open(&g);
    o = order_of("eight", &g);
    for (int i = 0; i < 8; i++) {
        o.depth = i % 3; /* children, their children, and theirs */
        p[i] = begin(open_and_notify, &o, sizeof(o), NULL);
    }
    assert_int_equal(gate_wait(&g, built, sizeof(built)), 0);
    for (int i = 0; i < 8; i++) {
        assert_int_equal(finish(p[i]), 0);
        sum += built[i];
    }
    assert_int_equal(sum, 1);
    gate_close(&g);
}

static void *open_in_thread(void *built)
{
    struct fiber_shared *s;

    if (fiber_shared_open(&s, "threads", LEN, fill, NULL) < 0 || !is_filled(s))
        return (void *)"failed";
    __atomic_add_fetch((int *)built, fiber_shared_built(s), __ATOMIC_RELAXED);
    fiber_shared_close(s);
    return NULL;
}

static void test_eight_threads_build_it_once(void **state)
{
    pthread_t t[8];
    int built = 0;
    void *rc;

    for (int i = 0; i < 8; i++)
        assert_int_equal(pthread_create(&t[i], NULL, open_in_thread, &built), 0);
    for (int i = 0; i < 8; i++) {
        pthread_join(t[i], &rc);
        assert_null(rc);
    }
    assert_int_equal(built, 1);
}

static void test_when_its_builder_dies_another_builds(void **state)
{
    struct fiber_process *dead, *p[3];
    struct order o;
    struct gate g, told;
    char built[3];
    pid_t pid;

    gate_open(&g);
    gate_open(&told);
    o = order_of("dying", &g);
    dead = begin(hang_in_builder, &o, sizeof(o), NULL);
    assert_int_equal(gate_wait(&g, &pid, sizeof(pid)), 0);
    o = order_of("dying", &told);
    for (int i = 0; i < 3; i++)
        p[i] = begin(open_and_notify, &o, sizeof(o), NULL);
    assert_int_equal(fiber_process_join(p[0], 100),
                     -ETIMEDOUT); /* it waits for the one that builds */
    kill(pid, SIGKILL);
    assert_int_equal(finish(dead), -SIGKILL);
    assert_int_equal(gate_wait(&told, built, sizeof(built)), 0);
    for (int i = 0; i < 3; i++)
        assert_int_equal(finish(p[i]), 0);
    assert_int_equal(built[0] + built[1] + built[2], 1);
    gate_close(&g);
    gate_close(&told);
}

static void test_it_cannot_be_written(void **state)
{
    struct order o = order_of("readonly", NULL);

    assert_int_equal(finish(begin(write_to_it, &o, sizeof(o), NULL)), 7); /* who builds */
    assert_int_equal(finish(begin(write_to_it, &o, sizeof(o), NULL)), 7); /* who maps */
}

static void test_another_length_is_an_error(void **state)
{
    struct fiber_shared *s, *other = (void *)1;

    assert_int_equal(fiber_shared_open(&s, "length", 1000, fill, NULL), 0);
    assert_int_equal(fiber_shared_open(&other, "length", 1001, fill, NULL), -EEXIST);
    assert_null(other);
    assert_true(has(fiber_last_error(), "length", "1000", "1001", NULL));
    fiber_shared_close(s);
}

static int count_and_fail(void *data, size_t len, void *count)
{
    memset(data, 1, len);
    ++*(int *)count;
    return -EILSEQ;
}

static void test_a_builder_that_fails_leaves_nothing(void **state)
{
    struct fiber_shared *s;
    int count = 0;

    assert_int_equal(fiber_shared_open(&s, "failing", LEN, count_and_fail, &count), -EILSEQ);
    assert_true(has(fiber_last_error(), "failing", NULL));
    assert_int_equal(fiber_shared_open(&s, "failing", LEN, count_and_fail, &count), -EILSEQ);
    assert_int_equal(count, 2);
    assert_int_equal(fiber_shared_open(&s, "failing", LEN, fill, NULL), 0);
    assert_int_equal(fiber_shared_built(s), 1);
    assert_true(is_filled(s));
    fiber_shared_close(s);
}

/* How many files of this run's directories have names like that; *links: how many of them are
 * symbolic links. */
static size_t count_like(const char *base, const char *names, size_t *links)
{
    char pattern[64];
    struct stat st;
    glob_t found;
    size_t n;

    snprintf(pattern, sizeof(pattern), "%s/fiber-%d-*/%s", base, (int)getpid(), names);
    n = glob(pattern, 0, NULL, &found) == 0 ? found.gl_pathc : 0;
    for (size_t i = *links = 0; i < n; i++)
        *links += lstat(found.gl_pathv[i], &st) == 0 && S_ISLNK(st.st_mode);
    globfree(&found);
    return n;
}

/* How many files this run's segments have. */
static size_t count_files(void)
{
    size_t links, none, n = count_like("/dev/shm", "*.*", &links);

    assert_int_equal(count_like("/tmp", "shm.*", &none), links);
    assert_int_equal(links > 0, n > 0 && small_shm);
    return n;
}

static void test_a_name_leaves_no_file(void **state)
{
    struct fiber_shared *s;
    size_t before;
    int count = 0;

    assert_int_equal(fiber_shared_open(&s, "first", LEN, fill, NULL), 0);
    fiber_shared_close(s);
    before = count_files();
    assert_int_equal(fiber_shared_open(&s, "short", LEN, fill, NULL), 0);
    fiber_shared_close(s);
    assert_int_equal(count_files(), before + 1);
    assert_int_equal(fiber_shared_delete("short"), 0);
    assert_int_equal(fiber_shared_open(&s, "short", LEN, count_and_fail, &count), -EILSEQ);
    assert_int_equal(count_files(), before);
    assert_int_equal(fiber_shared_open_writable(&s, "short", LEN, FIBER_SHARED_CREATE), 0);
    fiber_shared_close(s);
    assert_int_equal(count_files(), before + 1);
    assert_int_equal(fiber_shared_delete("short"), 0);
    assert_int_equal(count_files(), before);
}

static int find_nothing(void *data, size_t len, void *user)
{
    return -ENOENT;
}

static void test_a_builder_that_finds_no_file_is_to_blame_itself(void **state)
{
    struct fiber_shared *s;

    assert_int_equal(fiber_shared_open(&s, "lost", LEN, find_nothing, NULL), -ENOENT);
    assert_true(has(fiber_last_error(), "'lost'", "its builder returned -2", NULL));
    assert_int_equal(fiber_shared_open(&s, "lost", LEN, NULL, NULL), -ENOENT);
    assert_true(has(fiber_last_error(), "there is no shared memory 'lost'", NULL));
}

static int ask_again(void *data, size_t len, void *user)
{
    struct fiber_shared *s, *inner;
    int rc = fiber_shared_open(&s, "inner", LEN, fill, NULL);

    if (rc == 0) {
        fiber_shared_close(s);
        rc = fiber_shared_open(&inner, user, len, fill, NULL);
    }
    return rc;
}

static void test_a_builder_may_ask_for_others_but_not_for_its_own(void **state)
{
    struct fiber_shared *s;
    char name[] = "outer";

    assert_int_equal(fiber_shared_open(&s, name, LEN, ask_again, name), -EDEADLK);
}

static void test_names_and_lengths_are_checked(void **state)
{
    static const char *const bad[] = {NULL, "", "a/b", "../x", "a b", "\n", "\xc3\xa4"};
    struct fiber_shared *s;
    char name[202];

    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        assert_int_equal(fiber_shared_open(&s, bad[i], LEN, fill, NULL), -EINVAL);
    memset(name, 'n', sizeof(name));
    name[201] = '\0';
    assert_int_equal(fiber_shared_open(&s, name, 1, fill, NULL), -EINVAL);
    name[200] = '\0';
    assert_int_equal(fiber_shared_open(&s, name, 1, fill, NULL), 0);
    fiber_shared_close(s);
    assert_int_equal(fiber_shared_open(&s, "..", LEN, fill, NULL),
                     0); /* harmless: a prefix stands before it */
    fiber_shared_close(s);
    assert_int_equal(fiber_shared_open(&s, "zero", 0, fill, NULL), -EINVAL);
    assert_int_equal(fiber_shared_open(&s, "huge", SIZE_MAX, fill, NULL), -EINVAL);
    assert_int_equal(fiber_shared_open_writable(&s, "zero", 0, FIBER_SHARED_CREATE), -EINVAL);
    assert_int_equal(fiber_shared_open_writable(&s, "flags", LEN, 4), -EINVAL);
    assert_int_equal(fiber_shared_open_writable(&s, "a/b", LEN, FIBER_SHARED_CREATE), -EINVAL);
    assert_int_equal(fiber_shared_delete("../x"), -EINVAL);
}

static void test_what_is_there_is_opened_without_a_builder(void **state)
{
    struct fiber_shared *s, *same;

    assert_int_equal(fiber_shared_open(&s, "there", 0, NULL, NULL), -ENOENT);
    assert_non_null(strstr(fiber_last_error(), "'there'"));
    assert_int_equal(fiber_shared_open(&s, "there", LEN, fill, NULL), 0);
    assert_int_equal(fiber_shared_open(&same, "there", 0, NULL, NULL), 0);
    assert_int_equal(fiber_shared_len(same), LEN);
    assert_true(is_filled(same));
    fiber_shared_close(same);
    assert_int_equal(fiber_shared_open(&same, "there", LEN, NULL, NULL), 0);
    assert_int_equal(fiber_shared_built(same), 0);
    fiber_shared_close(same);
    assert_int_equal(fiber_shared_open(&same, "there", LEN + 1, NULL, NULL), -EEXIST);
    assert_int_equal(fiber_shared_delete("there"), 0);
    assert_int_equal(fiber_shared_delete("there"), -ENOENT);
    assert_true(is_filled(s)); /* who has it keeps it */
    fiber_shared_close(s);
    assert_int_equal(fiber_shared_open(&s, "there", 0, NULL, NULL), -ENOENT);
    assert_int_equal(fiber_shared_open(&s, "there", 8, fill, NULL), 0);
    assert_int_equal(fiber_shared_built(s), 1);
    fiber_shared_close(s);
}

/* ---- Writable ---- */

#define ADDERS 4
#define ADDS 20000

/* Adds to a counter, then dies with what it wrote. */
static int add_and_die(const void *arg, size_t len)
{
    struct fiber_shared *s;
    _Atomic uint64_t *sum;

    if (fiber_shared_open_writable(&s, ((const struct order *)arg)->name, 64, FIBER_SHARED_CREATE) <
        0)
        return 2;
    sum = fiber_shared_memory(s);
    atomic_fetch_add(sum + 1, (uint64_t)fiber_shared_built(s));
    for (int i = 0; i < ADDS; i++)
        atomic_fetch_add(sum, 1);
    raise(SIGKILL);
    return 3;
}

static void test_what_others_write_is_seen_also_when_they_die(void **state)
{
    struct order o = order_of("sum", NULL);
    struct fiber_process *p[ADDERS];
    struct fiber_shared *s;
    uint64_t *sum;

    for (int i = 0; i < ADDERS; i++)
        p[i] = begin(add_and_die, &o, sizeof(o), NULL);
    for (int i = 0; i < ADDERS; i++)
        assert_int_equal(finish(p[i]), -SIGKILL);
    assert_int_equal(fiber_shared_open_writable(&s, "sum", 0, 0), 0);
    assert_int_equal(fiber_shared_len(s), 64);
    assert_int_equal(fiber_shared_built(s), 0);
    sum = fiber_shared_memory(s);
    assert_ptr_equal(sum, fiber_shared_data(s));
    assert_int_equal(sum[0], ADDERS * ADDS);
    assert_int_equal(sum[1], 1); /* one of them made it */
    fiber_shared_close(s);
}

static void test_writable_segments_are_made_found_and_deleted(void **state)
{
    struct fiber_shared *s, *other;
    char *at;

    assert_int_equal(fiber_shared_open_writable(&s, "w", 0, 0), -ENOENT);
    assert_int_equal(fiber_shared_open_writable(&s, "w", 8, FIBER_SHARED_EXCLUSIVE), 0);
    assert_int_equal(fiber_shared_built(s), 1);
    at = fiber_shared_memory(s);
    assert_int_equal(at[0] | at[7], 0);
    at[0] = 'a';
    assert_int_equal(fiber_shared_open_writable(&other, "w", 8, FIBER_SHARED_EXCLUSIVE), -EEXIST);
    assert_int_equal(
        fiber_shared_open_writable(&other, "w", 8, FIBER_SHARED_CREATE | FIBER_SHARED_EXCLUSIVE),
        -EEXIST); /* as open(2) has it */
    assert_int_equal(fiber_shared_open_writable(&other, "w", 9, FIBER_SHARED_CREATE), -EEXIST);
    assert_int_equal(fiber_shared_open_writable(&other, "w", 9, 0), -EEXIST);
    assert_int_equal(fiber_shared_open(&other, "w", 0, NULL, NULL), -ENOENT); /* names of its own */
    assert_int_equal(fiber_shared_open_writable(&other, "w", 8, FIBER_SHARED_CREATE), 0);
    assert_int_equal(*(char *)fiber_shared_memory(other), 'a');
    assert_int_equal(fiber_shared_delete("w"), 0);
    at[0] = 'b';
    assert_int_equal(*(char *)fiber_shared_memory(other), 'b');
    fiber_shared_close(other);
    assert_int_equal(fiber_shared_open_writable(&other, "w", 16, FIBER_SHARED_CREATE), 0);
    assert_int_equal(*(char *)fiber_shared_memory(other), 0);
    fiber_shared_close(other);
    fiber_shared_close(s);
    assert_int_equal(fiber_shared_open(&s, "read-only", LEN, fill, NULL), 0);
    assert_null(fiber_shared_memory(s));
    fiber_shared_close(s);
}

static void test_no_room_is_an_error(void **state)
{
    struct fiber_shared *s;
    struct statvfs shm, run;
    size_t large;

    if (statvfs("/dev/shm", &shm) < 0 || !shm.f_blocks) {
        print_message("/dev/shm has no bound here\n");
        skip();
    }
    assert_int_equal(statvfs("/tmp", &run), 0);
    large = (size_t)shm.f_blocks * shm.f_frsize + (size_t)run.f_blocks * run.f_frsize + 1;
    assert_int_equal(fiber_shared_open(&s, "large", large, fill, NULL), -ENOSPC);
    assert_true(has(fiber_last_error(), "large", "no room", "/dev/shm", "none in /tmp", NULL));
    assert_int_equal(fiber_shared_open(&s, "large", LEN, fill, NULL), 0);
    fiber_shared_close(s);
}

/* Without care SIGXFSZ would end the program. */
static void test_the_limit_of_files_is_an_error_and_no_signal(void **state)
{
    struct fiber_shared *s;
    struct rlimit before, low;
    sigset_t pending;

    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    low = before;
    low.rlim_cur = LEN - 1;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &low), 0);
    assert_int_equal(fiber_shared_open_writable(&s, "limited", LEN, FIBER_SHARED_CREATE), -EFBIG);
    assert_true(has(fiber_last_error(), "limited", "no room", "ulimit -f", NULL));
    assert_int_equal(fiber_shared_open(&s, "limited", LEN, fill, NULL), -EFBIG);
    assert_int_equal(sigpending(&pending), 0);
    assert_false(sigismember(&pending, SIGXFSZ));
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    assert_int_equal(fiber_shared_open(&s, "limited", LEN, fill, NULL), 0);
    fiber_shared_close(s);
}

static int build_in_rank(int rank, int size, const void *arg, size_t len)
{
    struct fiber_shared *s, *w;
    int64_t built;

    if (fiber_shared_open(&s, "ranks", LEN, fill, NULL) < 0 || !is_filled(s))
        return 2;
    built = fiber_shared_built(s);
    if (fiber_ring_allreduce(&built, 1, FIBER_RING_INT64, FIBER_RING_SUM, TEST_LONG_MS) < 0)
        return 3;
    if (fiber_shared_open_writable(&w, arg, sizeof(int) * (size_t)size, 0) < 0)
        return 4;
    ((int *)fiber_shared_memory(w))[rank] = (int)built;
    fiber_shared_close(w);
    fiber_shared_close(s);
    return 0;
}

static void test_ranks_share_it_with_their_launcher(void **state)
{
    static const char name[] = "counts";
    const struct fiber_ring_options o = {.size = sizeof(o),
                                         .flags = FIBER_RING_QUIET | FIBER_RING_OVERSUBSCRIBE};
    struct fiber_shared *s;
    const int *counts;

    assert_int_equal(fiber_shared_open_writable(&s, name, 3 * sizeof(int), FIBER_SHARED_CREATE), 0);
    assert_int_equal(fiber_ring_run(3, build_in_rank, name, sizeof(name), &o), 0);
    counts = fiber_shared_memory(s);
    for (int i = 0; i < 3; i++)
        assert_int_equal(counts[i], 1); /* one rank has built it */
    fiber_shared_close(s);
    assert_int_equal(fiber_shared_open(&s, "ranks", LEN, NULL, NULL), 0);
    fiber_shared_close(s);
}

static int open_and_leave(void)
{
    static struct fiber_shared *s; /* open to the end */
    char prefix[32];

    snprintf(prefix, sizeof(prefix), "fiber-%d-", (int)getpid());
    if (fiber_shared_open(&s, "leave", LEN, fill, NULL) < 0 || dir_count("/dev/shm", prefix) != 1)
        return 1;
    printf("%s", prefix);
    return 0;
}

static void test_it_is_gone_with_the_run(void **state)
{
    struct ran r = run_self("leave", NULL, NULL);

    assert_int_equal(r.code, 0);
    assert_true(r.out_len > 6);
    assert_int_equal(dir_count("/dev/shm", r.out), 0);
    ran_free(&r);
}

static void *open_at_the_end(void *arg)
{
    struct fiber_shared *s;

    if (fiber_shared_open(&s, "dying", LEN, fill, NULL) == 0)
        fiber_shared_close(s);
    return NULL;
}

/* A thread waits for a builder, which the end of this process kills: it may build or fail. */
static int end_while_another_builds(void)
{
    struct gate g;
    struct order o;
    pthread_t t;
    pid_t pid;

    gate_open(&g);
    o = order_of("dying", &g);
    begin(hang_in_builder, &o, sizeof(o), NULL);
    if (gate_wait(&g, &pid, sizeof(pid)) < 0 || pthread_create(&t, NULL, open_at_the_end, NULL))
        return 1;
    let_time_pass(200); /* if the thread comes later, it fails at once */
    fiber_fini();
    pthread_join(t, NULL);
    gate_close(&g);
    return 0;
}

static void test_the_end_of_the_program_ends_a_wait_for_a_builder(void **state)
{
    struct ran r = run_self("end", NULL, NULL);

    assert_int_equal(r.code, 0);
    ran_free(&r);
}

/* In a mount namespace of our own, which children inherit: a /dev/shm without room for LEN. */
static int make_shm_small(void)
{
    const char *small = getenv("TEST_SMALL_SHM");

    small_shm = small != NULL;
    if (!small || strcmp(small, "made") == 0)
        return 0;
    if (unshare(CLONE_NEWNS) < 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0 ||
        mount("tmpfs", "/dev/shm", "tmpfs", 0, "size=64k") < 0)
        return -errno;
    return setenv("TEST_SMALL_SHM", "made", 1);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_first_builds_it),
        cmocka_unit_test(test_eight_processes_build_it_once),
        cmocka_unit_test(test_eight_threads_build_it_once),
        cmocka_unit_test(test_when_its_builder_dies_another_builds),
        cmocka_unit_test(test_it_cannot_be_written),
        cmocka_unit_test(test_another_length_is_an_error),
        cmocka_unit_test(test_a_builder_that_fails_leaves_nothing),
        cmocka_unit_test(test_a_name_leaves_no_file),
        cmocka_unit_test(test_a_builder_that_finds_no_file_is_to_blame_itself),
        cmocka_unit_test(test_a_builder_may_ask_for_others_but_not_for_its_own),
        cmocka_unit_test(test_names_and_lengths_are_checked),
        cmocka_unit_test(test_what_is_there_is_opened_without_a_builder),
        cmocka_unit_test(test_what_others_write_is_seen_also_when_they_die),
        cmocka_unit_test(test_writable_segments_are_made_found_and_deleted),
        cmocka_unit_test(test_no_room_is_an_error),
        cmocka_unit_test(test_the_limit_of_files_is_an_error_and_no_signal),
        cmocka_unit_test(test_ranks_share_it_with_their_launcher),
        cmocka_unit_test(test_it_is_gone_with_the_run),
        cmocka_unit_test(test_the_end_of_the_program_ends_a_wait_for_a_builder),
    };

    setenv("FIBER_RUN_DIR", "/tmp", 1);
    if (make_shm_small() < 0) {
        printf("no mount namespace of our own: %s\n", strerror(errno));
        return 77;
    }
    init_fiber(&argc, &argv);
    if (argc > 1 && strcmp(argv[1], "leave") == 0)
        return open_and_leave();
    if (argc > 1 && strcmp(argv[1], "end") == 0)
        return end_while_another_builds();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
