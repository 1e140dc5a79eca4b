/* spool_test.c - what is kept of a run's output: records byte by byte, the last bytes of each rank, runs that go, a
 * disk that takes nothing.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "runtime/inspect/spool.h"
#include "tests/support/nfs_locks.h"
#include "tests/support/sanitized.h"

static char root[64];

static atomic_bool short_of_memory; /* for other threads */
static atomic_uint refusals;
static __thread bool is_test;

static bool refuse(void)
{
    bool refused = short_of_memory && !is_test;

    refusals += refused;
    return refused;
}

#include "tests/support/wrapped_malloc.h"

static int set_up(void **state)
{
    snprintf(root, sizeof(root), "/tmp/fbrspool-XXXXXX");
    return mkdtemp(root) ? 0 : -1;
}

static int tear_down(void **state)
{
    char command[128];

    like_nfs = false;
    snprintf(command, sizeof(command), "rm -rf '%s'", root);
    return system(command);
}

/* ---- Records ---- */

static void test_a_record_is_read_as_it_was_written(void **state)
{
    const struct fbr_record in = {.time_us = 0x0102030405060708,
                                  .job = 9,
                                  .rank = 77,
                                  .kind = FBR_RECORD_ERR,
                                  .data = "a\0b\n",
                                  .len = 4};
    struct fbr_record out;
    struct fbr_buf b = {0};
    size_t used;

    fbr_record_put(&b, &in);
    assert_int_equal(b.len, FBR_RECORD_HEAD + 4);
    for (size_t n = 0; n < b.len; n++)
        assert_int_equal(fbr_record_get(b.data, n, &out, &used), 0);
    assert_int_equal(fbr_record_get(b.data, b.len, &out, &used), 1);
    assert_int_equal(used, b.len);
    assert_true(out.time_us == in.time_us && out.job == 9 && out.rank == 77 &&
                out.kind == FBR_RECORD_ERR);
    assert_memory_equal(out.data, "a\0b\n", out.len);
    b.data[20] = 9; /* of no kind */
    assert_int_equal(fbr_record_get(b.data, b.len, &out, &used), -EBADMSG);
    memset(b.data, 0xff, 4);
    assert_int_equal(fbr_record_get(b.data, b.len, &out, &used), -EBADMSG);
    memset(b.data, 0, 4);
    assert_int_equal(fbr_record_get(b.data, b.len, &out, &used), -EBADMSG);
    fbr_buf_fini(&b);
}

/* ---- Keeping ---- */

static struct fbr_config *configure(const char *keep)
{
    struct fbr_config *c = fbr_config_new();

    assert_int_equal(fbr_config_set(c, "log_dir", root, "test", NULL), 0);
    assert_int_equal(fbr_config_set(c, "log_keep", keep, "test", NULL), 0);
    return c;
}

static struct fbr_run_control_about about_of(const char *uid, const char *name)
{
    struct fbr_run_control_about a = {.size = 2, .started_ms = 1000};

    snprintf(a.uid, sizeof(a.uid), "%s", uid);
    snprintf(a.name, sizeof(a.name), "%s", name);
    snprintf(a.command, sizeof(a.command), "python3 -c \nprint('\033[31m')");
    return a;
}

static struct fbr_spool *begin(const char *keep, const char *uid, const char *name)
{
    struct fbr_config *c = configure(keep);
    struct fbr_run_control_about a = about_of(uid, name);
    struct fbr_spool *s = NULL;

    assert_int_equal(fbr_spool_open(&s, c, &a, 2, NULL), 0);
    fbr_config_free(c);
    return s;
}

static void end(struct fbr_spool *s, int code)
{
    const struct fbr_run_facts facts = {.size = 2};

    fbr_spool_end(s, &facts, code, "why");
    while (!fbr_spool_drain(s)) /* a busy disk */
        continue;
    fbr_spool_close(s);
}

/* Appends what the records of a file hold; returns how long it is. */
static size_t read_records(const char *uid, const char *name, struct fbr_buf *out)
{
    static uint8_t data[1 << 20];
    struct fbr_record r;
    char path[128];
    size_t n, used, at = 0;
    FILE *f;

    snprintf(path, sizeof(path), "%s/%.16s/%s", root, uid, name);
    f = fopen(path, "re");
    if (!f)
        return 0;
    n = fread(data, 1, sizeof(data), f);
    fclose(f);
    for (; fbr_record_get(data + at, n - at, &r, &used) == 1; at += used)
        fbr_put(out, r.data, r.len);
    assert_int_equal(at, n);
    return n;
}

#define UID_A "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
#define UID_B "bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb"

static void test_what_is_kept_is_found_by_name_and_id(void **state)
{
    struct fbr_spool *s = begin("1Mi", UID_A, "train");
    struct fbr_spool_run run;
    struct fbr_buf got = {0};
    struct stat st;
    char path[128];

    assert_int_equal(fbr_spool_add(s, 0, 0, FBR_RECORD_OUT, "one ", 4), 0);
    assert_int_equal(fbr_spool_add(s, 0, 1, FBR_RECORD_OUT, "other", 5), 0);
    assert_int_equal(fbr_spool_add(s, 0, 0, FBR_RECORD_ERR, "two", 3), 0);
    end(s, 3);
    read_records(UID_A, "0.0", &got);
    assert_int_equal(got.len, 7);
    assert_memory_equal(got.data, "one two", 7);
    assert_int_equal(fbr_spool_find(&run, root, "train", NULL), 0);
    assert_int_equal(fbr_spool_find(&run, root, "aaaa", NULL), 0);
    assert_true(run.ended && !run.writes && run.code == 3 && !strcmp(run.report, "why"));
    assert_true(run.facts.ended_ms > 0);
    assert_string_equal(run.about.command, "python3 -c ?print('?[31m')");
    assert_int_equal(fbr_spool_find(&run, root, "other", NULL), -ENOENT);
    snprintf(path, sizeof(path), "%s/%.16s/0.0", root, UID_A);
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0600);
    fbr_buf_fini(&got);
}

static void test_a_process_that_was_forked_meanwhile_does_not_hold_it(void **state)
{
    struct fbr_spool *s = begin("1Mi", UID_A, "train");
    struct fbr_spool_run run;
    pid_t child;

    assert_int_equal(fbr_spool_add(s, 0, 0, FBR_RECORD_OUT, "one ", 4), 0);
    while (!fbr_spool_look(&run, root, UID_A) || !run.writes)
        sched_yield();
    child = fork();
    if (child == 0) {
        pause();
        _exit(0);
    }
    assert_true(child > 0);
    end(s, 0);
    assert_true(fbr_spool_look(&run, root, UID_A) && run.ended);
    assert_int_equal(kill(child, SIGKILL), 0);
    assert_int_equal(waitpid(child, NULL, 0), child);
    assert_false(run.writes);
}

static void test_the_last_bytes_of_each_rank_stay(void **state)
{
    struct fbr_spool *s = begin("128Ki", UID_A, "");
    struct fbr_buf got = {0};
    char line[64];
    size_t bytes;

    fbr_spool_add(s, 0, 1, FBR_RECORD_OUT, "quiet", 5);
    for (int i = 0; i < 20000; i++) {
        int n = snprintf(line, sizeof(line), "line %d of a rank that says much\n", i);

        fbr_spool_add(s, 0, 0, FBR_RECORD_OUT, line, (size_t)n);
    }
    end(s, 0);
    bytes = read_records(UID_A, "0.0.old", &got);
    bytes += read_records(UID_A, "0.0", &got);
    assert_true(bytes <= 128 << 10);
    assert_true(got.len > 16 << 10);
    fbr_put_u8(&got, 0);
    assert_non_null(strstr((char *)got.data, "line 19999 of a rank that says much\n"));
    fbr_buf_clear(&got);
    assert_int_equal(read_records(UID_A, "0.1", &got), FBR_RECORD_HEAD + 5);
    fbr_buf_fini(&got);
}

/* A piece that is longer than a buffer is one for which the disk is too slow. */
static void test_bytes_that_are_lost_at_the_end_are_counted(void **state)
{
    struct fbr_spool *s = begin("1Mi", UID_A, "");
    struct fbr_buf got = {0};
    size_t len = 9 << 20;
    char *piece = calloc(1, len);

    assert_int_equal(fbr_spool_add(s, 0, 1, FBR_RECORD_OUT, piece, len), 0);
    end(s, 0);
    free(piece);
    read_records(UID_A, "0.1", &got);
    fbr_put_u8(&got, 0);
    assert_non_null(strstr((char *)got.data, "9437184 bytes of all ranks were not kept"));
    fbr_buf_fini(&got);
}

/* A piece that found no memory is not left out without a word: nothing is kept after it. */
static void test_memory_that_is_short_makes_no_gap(void **state)
{
    struct fbr_spool *s = begin("1Mi", UID_A, "");
    struct fbr_buf got = {0};
    char path[128];

    is_test = true;
    fbr_spool_add(s, 0, 0, FBR_RECORD_OUT, "one", 3);
    snprintf(path, sizeof(path), "%s/%.16s/0.0", root, UID_A);
    while (access(path, F_OK) < 0)
        sched_yield();
    short_of_memory = true;
    fbr_spool_add(s, 0, 0, FBR_RECORD_OUT, "two", 3);
    while (!refusals)
        sched_yield();
    short_of_memory = false;
    fbr_spool_add(s, 0, 0, FBR_RECORD_OUT, "three", 5);
    end(s, 0);
    read_records(UID_A, "0.0", &got);
    assert_int_equal(got.len, 3);
    fbr_buf_fini(&got);
}

static long peak_kib(void)
{
    char line[256];
    long kib = 0;
    FILE *f = fopen("/proc/self/status", "re");

    assert_non_null(f);
    while (kib == 0 && fgets(line, sizeof(line), f))
        sscanf(line, "VmHWM: %ld", &kib);
    fclose(f);
    return kib;
}

/* However fast ranks print: what the disk is too slow for is left out, and two buffers of 8 MiB hold the rest. */
static void test_a_flood_takes_the_memory_of_two_buffers(void **state)
{
    static const char piece[65536];
    struct fbr_spool *s = begin("256Mi", UID_A, "");
    struct stat st = {0};
    char path[128];
    long before;

    snprintf(path, sizeof(path), "%s/%.16s/0.0", root, UID_A);
    if (SANITIZED) {
        end(s, 0);
        skip();
    }
    before = peak_kib();
    while (stat(path, &st) < 0 || st.st_size < 64 << 20)
        fbr_spool_add(s, 0, 0, FBR_RECORD_OUT, piece, sizeof(piece));
    assert_true(peak_kib() - before < 24 << 10);
    end(s, 0);
}

static void test_nothing_is_kept_unasked(void **state)
{
    struct fbr_spool *s = begin("0", UID_A, "");
    struct fbr_spool_run run;

    assert_null(s);
    assert_int_equal(fbr_spool_add(s, 0, 0, FBR_RECORD_OUT, "x", 1), 0);
    end(s, 0);
    assert_false(fbr_spool_look(&run, root, UID_A));
}

/* A directory of somebody's choice, or one that others may enter, is not written to. */
static void test_a_directory_of_others_is_not_used(void **state)
{
    struct fbr_spool_run run;
    struct fbr_spool *s;

    assert_int_equal(chmod(root, 0755), 0);
    s = begin("1Mi", UID_A, "");
    for (int i = 0; i < 100; i++)
        assert_int_equal(fbr_spool_add(s, 0, 0, FBR_RECORD_OUT, "x", 1), 0);
    end(s, 0);
    assert_false(fbr_spool_look(&run, root, UID_A));
}

static void test_a_full_disk_is_told_once(void **state)
{
    struct fbr_spool *s;
    char path[128];
    int told = 0;

    snprintf(path, sizeof(path), "%s/%.16s", root, UID_A);
    assert_int_equal(mkdir(path, 0700), 0);
    snprintf(path, sizeof(path), "%s/%.16s/0.0", root, UID_A);
    assert_int_equal(mkfifo(path, 0600), 0); /* nobody reads it: opening fails as a device does */
    s = begin("1Mi", UID_A, "");
    assert_int_equal(unlink(path), 0);
    assert_int_equal(symlink("/dev/full", path), 0); /* and a link is not followed */
    for (int i = 0; i < 1000; i++)
        told += fbr_spool_add(s, 0, 0, FBR_RECORD_OUT, "x", 1) < 0;
    assert_true(told <= 1);
    end(s, 0);
}

static void age(const char *uid, time_t seconds)
{
    struct timeval t[2];
    char path[128];

    gettimeofday(&t[0], NULL);
    t[0].tv_sec -= seconds;
    t[1] = t[0];
    snprintf(path, sizeof(path), "%s/%.16s", root, uid);
    assert_int_equal(utimes(path, t), 0);
}

static void test_old_runs_go_and_living_ones_stay(void **state)
{
    struct fbr_spool *s = begin("1Mi", UID_A, "old"), *lives = begin("1Mi", UID_B, "lives");
    struct fbr_spool_run run;
    char path[128];

    fbr_spool_add(s, 0, 0, FBR_RECORD_OUT, "x", 1);
    end(s, 0);
    fbr_spool_add(lives, 0, 0, FBR_RECORD_OUT, "x", 1);
    snprintf(path, sizeof(path), "%s/%.16s/0.0", root, UID_B);
    while (access(path, F_OK) < 0)
        sched_yield(); /* its thread, which has removed old runs before it writes */
    age(UID_A, 15 * 24 * 3600);
    age(UID_B, 16 * 24 * 3600);
    fbr_spool_prune(root, 0, NULL, NULL);
    assert_false(fbr_spool_look(&run, root, UID_A));
    assert_true(fbr_spool_look(&run, root, UID_B) && run.writes);
    end(lives, 0);
    assert_true(fbr_spool_look(&run, root, UID_B) && !run.writes);
    fbr_spool_prune(root, 1, NULL, NULL); /* more than a byte */
    assert_false(fbr_spool_look(&run, root, UID_B));
}

static void test_old_runs_go_on_nfs(void **state)
{
    like_nfs = true;
    test_old_runs_go_and_living_ones_stay(state);
}

/* The directory of the thread that writes: "" without one. */
static void find_thread(char path[64])
{
    DIR *d = opendir("/proc/self/task");
    struct dirent *e;
    char name[32];

    assert_non_null(d);
    for (path[0] = '\0'; !path[0] && (e = readdir(d));) {
        int fd;

        snprintf(path, 64, "/proc/self/task/%.16s/comm", e->d_name);
        fd = open(path, O_RDONLY | O_CLOEXEC);
        if (fd < 0 || read(fd, name, sizeof(name)) < 10 || memcmp(name, "fbr-spool\n", 10) != 0)
            path[0] = '\0';
        if (fd >= 0)
            close(fd);
    }
    closedir(d);
}

/* The disk is a FIFO that nobody reads: opening it for writing hangs. LeakSanitizer finds a spool that nobody frees. */
static void test_a_disk_that_hangs_delays_nobody_and_leaks_nothing(void **state)
{
    char path[128], thread[64];
    struct fbr_spool *s;
    int fd;

    snprintf(path, sizeof(path), "%s/%.16s", root, UID_A);
    assert_int_equal(mkdir(path, 0700), 0);
    snprintf(path, sizeof(path), "%s/%.16s/0.1", root, UID_A);
    assert_int_equal(mkfifo(path, 0600), 0);
    s = begin("1Mi", UID_A, "hangs");
    assert_int_equal(fbr_spool_add(s, 0, 1, FBR_RECORD_OUT, "x", 1), 0);
    fbr_spool_close(s);
    find_thread(thread);
    assert_string_not_equal(thread, "");
    fd = open(path, O_RDONLY | O_CLOEXEC);
    assert_true(fd >= 0);
    while (access(thread, F_OK) == 0)
        sched_yield();
    close(fd);
}

/* Then nobody knows whether the run lives. */
static void test_a_run_whose_facts_cannot_be_opened_stays(void **state)
{
    struct fbr_spool *s = begin("1Mi", UID_A, "old");
    char path[128];
    struct stat st;

    end(s, 0);
    snprintf(path, sizeof(path), "%s/%.16s/about", root, UID_A);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(symlink("elsewhere", path), 0);
    age(UID_A, 15 * 24 * 3600);
    fbr_spool_prune(root, 0, NULL, NULL);
    assert_int_equal(lstat(path, &st), 0);
    assert_int_equal(unlink(path), 0);
    age(UID_A, 15 * 24 * 3600);
    fbr_spool_prune(root, 0, NULL, NULL);
    snprintf(path, sizeof(path), "%s/%.16s", root, UID_A);
    assert_int_equal(lstat(path, &st), -1);
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        T(test_a_record_is_read_as_it_was_written),
        T(test_what_is_kept_is_found_by_name_and_id),
        T(test_a_process_that_was_forked_meanwhile_does_not_hold_it),
        T(test_the_last_bytes_of_each_rank_stay),
        T(test_bytes_that_are_lost_at_the_end_are_counted),
        T(test_memory_that_is_short_makes_no_gap),
        T(test_a_flood_takes_the_memory_of_two_buffers),
        T(test_nothing_is_kept_unasked),
        T(test_a_directory_of_others_is_not_used),
        T(test_a_full_disk_is_told_once),
        T(test_old_runs_go_and_living_ones_stay),
        T(test_old_runs_go_on_nfs),
        T(test_a_disk_that_hangs_delays_nobody_and_leaks_nothing),
        T(test_a_run_whose_facts_cannot_be_opened_stays),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
