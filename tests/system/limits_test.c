/* limits_test.c - a machine that has no more to give: descriptors, room on disk, a place that can
 * be written.
 *
 * The program is this one in another role: it starts a process, opens a queue, and maps over a pool
 * under limits of its own. It ends well, or says in a sentence what was lacking; it never crashes,
 * hangs or keeps silent. LIMITS_STEP=n tries each nth limit.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <sched.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include "tests/pool/tasks.h"
#include "tests/support/run.h"
#include "tests/support/sync.h"

#define GOOD 0
#define SAID_WHY 3 /* its sentence is on standard output */

/* ---- The program ---- */

static int abandon(const char *at, const char *text)
{
    printf("%s: %s\n", at, text);
    fflush(stdout);
    return SAID_WHY;
}

static int child(const void *arg, size_t len)
{
    return len == 5 ? 5 : 1;
}

static int try_process(void)
{
    struct fiber_process *p;
    int code = -1, rc;

    if (fiber_process_start(&p, child, "hello", 5, NULL) < 0)
        return abandon("start", fiber_last_error());
    rc = fiber_process_join(p, TEST_LONG_MS) < 0 ? abandon("join", fiber_last_error()) : 0;
    if (rc == 0 && (fiber_process_exitcode(p, &code) < 0 || code != 5))
        rc = abandon("process", fiber_process_report(p));
    fiber_process_close(p);
    return rc;
}

static int put_one(const void *arg, size_t len)
{
    struct fiber_queue *q = NULL;
    int rc = len == sizeof(struct fiber_address) ? fiber_queue_connect(&q, arg) : -EINVAL;

    if (rc == 0)
        rc = fiber_queue_put(q, "x", 1, TEST_LONG_MS);
    if (rc == 0)
        rc = fiber_queue_flush(q, TEST_LONG_MS);
    if (rc < 0)
        fprintf(stderr, "%s\n", fiber_last_error());
    fiber_queue_close(q);
    return rc < 0;
}

static int use_queue(struct fiber_queue *q)
{
    struct fiber_address a;
    struct fiber_process *p;
    struct fiber_bytes out = {NULL, 0};
    int rc = 0, code = -1;

    if (fiber_queue_address(q, &a) < 0)
        return abandon("address", fiber_last_error());
    if (fiber_process_start(&p, put_one, &a, sizeof(a), NULL) < 0)
        return abandon("start of a sender", fiber_last_error());
    if (fiber_process_join(p, TEST_LONG_MS) < 0)
        rc = abandon("join of a sender", fiber_last_error());
    else if (fiber_process_exitcode(p, &code) < 0 || code != 0)
        rc = abandon("sender", fiber_process_report(p));
    if (rc == 0 && fiber_queue_get(q, &out, TEST_LONG_MS) < 0)
        rc = abandon("get", fiber_last_error());
    fiber_bytes_free(&out);
    fiber_process_close(p);
    return rc;
}

static int try_queue(void)
{
    struct fiber_queue *q;
    int rc;

    if (fiber_queue_open(&q, 0) < 0)
        return abandon("queue", fiber_last_error());
    rc = use_queue(q);
    fiber_queue_close(q);
    return rc;
}

static int try_pool(int workers_per_job)
{
    struct fiber_pool_options o = {
        .size = sizeof(o), .min = 2, .max = 2, .workers_per_job = workers_per_job};
    struct fiber_pool *pool;
    int64_t in[50] = {0}, out[50];
    int rc = 0;

    if (fiber_pool_open(&pool, &o) < 0)
        return abandon("pool", fiber_last_error());
    if (fiber_pool_map(pool, square, in, 8, out, 8, 50, NULL))
        rc = abandon("map", fiber_last_error());
    fiber_pool_close(pool);
    return rc;
}

static int ones(void *data, size_t len, void *user)
{
    memset(data, 1, len);
    return 0;
}

static int try_shared(const char *name, size_t len)
{
    struct fiber_shared *s;

    if (fiber_shared_open(&s, name, len, ones, NULL) < 0)
        return abandon("shared", fiber_last_error());
    fiber_shared_close(s);
    return 0;
}

static int try_all(void)
{
    int rc = try_process();

    if (rc == 0)
        rc = try_queue();
    if (rc == 0)
        rc = try_pool(1);
    if (rc == 0)
        rc = try_pool(2);
    return rc == 0 ? try_shared("table", 4096) : rc;
}

/* With so many descriptors, or with so many more than are open when Fiber has begun. */
static int few_descriptors(int *argc, char ***argv, bool late)
{
    rlim_t n = (rlim_t)atoi((*argv)[2]);
    struct rlimit r = {n, n};
    int rc;

    if (late && (fiber_init(argc, argv) != 0 || try_process() != 0))
        return 1;
    if (setrlimit(RLIMIT_NOFILE, &r) < 0)
        return 1;
    if (!late && fiber_init(argc, argv) < 0)
        return abandon("init", fiber_last_error());
    rc = try_all();
    fiber_fini();
    return rc;
}

static int have_own_mounts(void)
{
    return unshare(CLONE_NEWNS) < 0 ? -1 : mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL);
}

/* In a mount namespace of our own, with a small file system at `where`. */
static int small_disk(const char *where, const char *options, unsigned long flags)
{
    if (have_own_mounts() < 0 || mount("tmpfs", where, "tmpfs", 0, options) < 0)
        return -errno;
    return flags && mount(NULL, where, NULL, MS_REMOUNT | flags, NULL) < 0 ? -errno : 0;
}

static int read_only_tmp(void)
{
    unsetenv("XDG_RUNTIME_DIR");
    return have_own_mounts() < 0 || mount("/tmp", "/tmp", NULL, MS_BIND, NULL) < 0 ||
                   mount(NULL, "/tmp", NULL, MS_BIND | MS_REMOUNT | MS_RDONLY, NULL) < 0
               ? -errno
               : 0;
}

static int poor_disk(int *argc, char ***argv)
{
    const char *kind = (*argv)[2], *dir = getenv("TEST_DIR");
    int rc = 1;

    if (strcmp(kind, "read-only") == 0)
        rc = small_disk(dir, "size=64k", MS_RDONLY);
    if (strncmp(kind, "nr_inodes=", 10) == 0)
        rc = small_disk(dir, kind, 0);
    if (strcmp(kind, "no-shm") == 0 && (rc = small_disk(dir, "size=256k", 0)) == 0)
        rc = small_disk("/dev/shm", "size=64k", 0);
    if (strcmp(kind, "read-only-shm") == 0)
        rc = small_disk("/dev/shm", "size=64k", MS_RDONLY);
    if (strcmp(kind, "read-only-tmp") == 0)
        rc = read_only_tmp();
    else
        setenv("FIBER_RUN_DIR", dir, 1);
    if (rc < 0) {
        printf("%s\n", strerror(-rc));
        return 77;
    }
    if (rc || fiber_init(argc, argv) < 0)
        return abandon("init", fiber_last_error());
    rc = try_all();
    if (rc == 0)
        rc = try_shared("large-table", 1 << 20);
    fiber_fini();
    return rc;
}

/* Something takes all descriptors while workers are on their way; their calls find none. */
static int greedy(void)
{
    struct fiber_pool_options o = {.size = sizeof(o), .min = 2, .max = 2};
    struct rlimit r = {100, 100};
    struct fiber_pool *pool;
    struct fiber_result *result;
    int64_t n = 3;
    int fd = 0, rc;

    if (setrlimit(RLIMIT_NOFILE, &r) < 0 || try_all() != 0 || fiber_pool_open(&pool, &o) < 0 ||
        fiber_pool_apply_async(pool, square, &n, 8, NULL, &result) < 0)
        return 1;
    while (fd >= 0)
        fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
    rc = fiber_result_wait(result, -1);
    if (rc == 0 && fiber_result_error(result, NULL) != 0) {
        const void *text;
        size_t len;

        fiber_result_get(result, 0, &text, &len);
        rc = abandon("task", text);
    }
    fiber_result_close(result);
    fiber_pool_close(pool);
    fiber_fini();
    return rc;
}

/* ---- Descriptors ---- */

#define FIRST 4
#define LAST 90

/* Returns whether it was enough. */
static bool try_limit(const char *role, int n, const char *const *env)
{
    char number[12];
    struct ran ran;
    bool good;

    snprintf(number, sizeof(number), "%d", n);
    ran = run_self(role, number, env);
    good = ran.code == GOOD;
    if (ran.code != GOOD && ran.code != SAID_WHY)
        fail_msg("%s with %d descriptors ended with %d:\n%s%s", role, n, ran.code, ran.out,
                 ran.err);
    if (!good && !strstr(ran.out, "ulimit -n"))
        fail_msg("%s with %d descriptors does not say what to do:\n%s%s", role, n, ran.out,
                 ran.err);
    if (getenv("TEST_VERBOSE"))
        fprintf(stderr, "%s %d: %d %s%s", role, n, ran.code, ran.out, good ? "\n" : "");
    ran_free(&ran);
    return good;
}

static void try_limits(const char *role, const char *const *env)
{
    const char *text = getenv("LIMITS_STEP");
    int step = text ? atoi(text) : SANITIZED ? 7 : 1;
    bool good = false;

    assert_true(step > 0);
    for (int n = FIRST; n <= LAST; n += step)
        good = try_limit(role, n, env);
    assert_true(good); /* at the end it was enough */
}

static void test_too_few_descriptors_from_the_start(void **state)
{
    try_limits("few", NULL);
}

static void test_too_few_descriptors_over_tcp(void **state)
{
    const char *const env[] = {"FIBER_TRANSPORT=tcp", NULL};

    try_limits("few", env);
}

static void test_descriptors_run_out_later(void **state)
{
    try_limits("late", NULL);
}

static void test_descriptors_are_taken_while_workers_join(void **state)
{
    const char *const env[] = {"FIBER_START_TIMEOUT=10s", NULL};

    for (int i = 0; i < 2; i++)
        try_limit("greedy", 100, env);
}

/* ---- Disk ---- */

/* `part` NULL: all goes well. */
static void try_disk(const char *kind, const char *part)
{
    char dir[64], set[80];
    const char *const env[] = {set, NULL};
    struct ran ran;

    temp_dir_make(dir);
    snprintf(set, sizeof(set), "TEST_DIR=%s", dir);
    ran = run_self("disk", kind, env);
    temp_dir_remove(dir);
    if (ran.code == 77) {
        print_message("skipped: no mount namespace of our own: %s", ran.out);
        ran_free(&ran);
        skip();
    }
    if (ran.code != (part ? SAID_WHY : GOOD) || (part && !strstr(ran.out, part)))
        fail_msg("%s ended with %d and not with \"%s\":\n%s%s", kind, ran.code,
                 part ? part : "success", ran.out, ran.err);
    if (getenv("TEST_VERBOSE"))
        fprintf(stderr, "%s: %s", kind, ran.out);
    ran_free(&ran);
}

static void test_a_read_only_run_directory_is_reported(void **state)
{
    try_disk("read-only", "set run_dir");
}

static void test_a_read_only_tmp_is_no_matter(void **state)
{
    try_disk("read-only-tmp", NULL);
}

static void test_a_full_disk_is_reported(void **state)
{
    char kind[24];

    try_disk("nr_inodes=1", "set run_dir");
    for (int n = 3; n <= 4; n++) { /* its directory and lock fit; its sockets do not */
        snprintf(kind, sizeof(kind), "nr_inodes=%d", n);
        try_disk(kind, "No space left on device");
    }
}

static void test_too_little_shared_memory_is_reported(void **state)
{
    try_disk("no-shm", "/dev/shm");
    try_disk("read-only-shm", "/dev/shm");
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_too_few_descriptors_from_the_start),
        cmocka_unit_test(test_too_few_descriptors_over_tcp),
        cmocka_unit_test(test_descriptors_run_out_later),
        cmocka_unit_test(test_descriptors_are_taken_while_workers_join),
        cmocka_unit_test(test_a_read_only_run_directory_is_reported),
        cmocka_unit_test(test_a_read_only_tmp_is_no_matter),
        cmocka_unit_test(test_a_full_disk_is_reported),
        cmocka_unit_test(test_too_little_shared_memory_is_reported),
    };

    setenv("FIBER_START_PATIENCE", "0ms", 0); /* what is short here stays so */
    if (argc == 3 && strcmp(argv[1], "disk") == 0)
        return poor_disk(&argc, &argv);
    if (argc == 3 && strcmp(argv[1], "greedy") == 0)
        return fiber_init(&argc, &argv) < 0 ? 1 : greedy();
    if (argc == 3)
        return few_descriptors(&argc, &argv, strcmp(argv[1], "late") == 0);
    if (fiber_init(&argc, &argv) != 0)
        return 1;
    return cmocka_run_group_tests_name("limits", tests, NULL, NULL);
}
