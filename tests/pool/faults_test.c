/* faults_test.c - jobs that hold several workers, in every way in which they can go wrong.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <poll.h>
#include <sys/socket.h>

#include "tests/pool/tasks.h"

/* Workers started on behalf of this process, hosts included, that are process `pid`'s children: the
 * host's. */
static int parent_of(int64_t pid)
{
    char path[64], line[512];
    int ppid = -1;
    FILE *f;

    snprintf(path, sizeof(path), "/proc/%lld/stat", (long long)pid);
    f = fopen(path, "re");
    if (f && fgets(line, sizeof(line), f))
        sscanf(strrchr(line, ')') ? strrchr(line, ')') + 2 : "", "%*c %d", &ppid);
    if (f)
        fclose(f);
    return ppid;
}

/* Its new parent, the machine's init, may be one that never waits for it. */
static bool has_ended(pid_t pid)
{
    int fd = (int)syscall(SYS_pidfd_open, pid, 0);
    struct pollfd p = {.fd = fd, .events = POLLIN};
    bool ended = fd < 0 ? errno == ESRCH : poll(&p, 1, 0) == 1;

    if (fd >= 0)
        close(fd);
    return ended;
}

/* Never -1, to which kill() would do it to everybody. */
static int64_t worker_of(struct fiber_pool *pool, int worker)
{
    struct fiber_worker_stats w[16];
    int n = fiber_pool_worker_stats(pool, w, 16);

    assert_true(worker < n && n <= 16);
    assert_true(w[worker].pid > 1);
    return w[worker].pid;
}

static pid_t host_of(struct fiber_pool *pool, int worker)
{
    pid_t host = parent_of(worker_of(pool, worker));

    assert_true(host > 1 && host != getpid());
    return host;
}

static struct fiber_pool *open_hosted(int workers, int per_job)
{
    return open_pool_with(
        (struct fiber_pool_options){.min = workers, .max = workers, .workers_per_job = per_job});
}

/* ---- Hosts that die ---- */

/* A map of 60 tasks during which `harm` happens is whole afterwards, and the pool is as large as
 * before. */
static void survive(int workers, int per_job, void (*harm)(struct fiber_pool *pool))
{
    struct fiber_pool *pool = open_hosted(workers, per_job);
    int64_t in[60], out[60];
    struct fiber_result *r;

    for (int i = 0; i < 60; i++)
        in[i] = i;
    meet(pool, workers);
    atomic_store(&board->arrived, 0);
    assert_ok(fiber_pool_map_array(pool, wait_at_gate, in, 8, out, 8, 60, NULL, &r));
    assert_int_equal(wait_for(&board->arrived, (uint32_t)workers), 0);
    harm(pool);
    open_gate();
    assert_ok(fiber_result_wait(r, WAIT_MS));
    if (fiber_result_error(r, NULL))
        fail_msg("a task failed: %s", fiber_last_error());
    for (int i = 0; i < 60; i++)
        assert_int_equal(out[i], i * i);
    fiber_result_close(r);
    meet(pool, workers);
    fiber_pool_close(pool);
}

static void kill_host(struct fiber_pool *pool)
{
    assert_int_equal(kill(host_of(pool, 0), SIGKILL), 0);
}

static void kill_all_hosts(struct fiber_pool *pool)
{
    pid_t hosts[2] = {host_of(pool, 0), host_of(pool, 2)};

    for (int i = 0; i < 2; i++) /* the first one's workers may be gone from the list by then */
        assert_int_equal(kill(hosts[i], SIGKILL), 0);
}

static void freeze_workers_and_kill_host(struct fiber_pool *pool)
{
    pid_t host = host_of(pool, 0);

    for (int i = 0; i < 2; i++)
        assert_int_equal(kill((pid_t)worker_of(pool, i), SIGSTOP), 0);
    assert_int_equal(kill(host, SIGKILL), 0);
}

static void kill_worker_then_host(struct fiber_pool *pool)
{
    pid_t host = host_of(pool, 0);

    assert_int_equal(kill((pid_t)worker_of(pool, 1), SIGKILL), 0);
    assert_int_equal(kill(host, SIGKILL), 0);
}

static void kill_host_then_worker(struct fiber_pool *pool)
{
    pid_t host = host_of(pool, 0);
    int64_t worker = worker_of(pool, 0);

    kill(host, SIGKILL);
    kill((pid_t)worker, SIGKILL);
}

/* It cannot tell of its worker's end, nor start the next. */
static void freeze_host_and_kill_worker(struct fiber_pool *pool)
{
    pid_t host = host_of(pool, 0);

    assert_int_equal(kill(host, SIGSTOP), 0);
    kill((pid_t)worker_of(pool, 1), SIGKILL);
}

static void test_a_host_is_killed(void **state)
{
    survive(2, 2, kill_host);
}

/* Ends its whole job, as a task does for which the memory of the job is too small. */
static int kill_job(const void *in, size_t len, struct fiber_reply *reply)
{
    if (number(in, len) != 3)
        return square(in, len, reply);
    add(&board->runs[3]);
    kill(getppid(), SIGKILL);
    for (;;)
        pause();
}

static void test_a_task_that_takes_its_job_along_is_blamed(void **state)
{
    struct fiber_pool *pool = open_hosted(4, 2);
    int64_t in[20], out[20];
    struct fiber_map_options o = {
        .size = sizeof(o), .retries = FIBER_RETRIES_UNLIMITED, .map_timeout_ms = WAIT_MS / 3};
    struct fiber_result *r;

    for (int i = 0; i < 20; i++)
        in[i] = i;
    assert_ok(fiber_pool_map_array(pool, kill_job, in, 8, out, 8, 20, &o, &r));
    assert_ok(fiber_result_wait(r, WAIT_MS));
    for (size_t i = 0; i < 20; i++) {
        if (i == 3)
            assert_int_equal(error_of(r, 3, "was running when 3 workers died"), -EOWNERDEAD);
        else
            assert_int_equal(number_of(r, i), (int64_t)(i * i));
    }
    fiber_result_close(r);
    fiber_pool_close(pool);
}

/* The same, while the other workers of the job run tasks that take longer. */
static int kill_busy_job(const void *in, size_t len, struct fiber_reply *reply)
{
    uint32_t run;

    if (number(in, len) != 3)
        return wait_at_gate(in, len, reply);
    run = atomic_fetch_add(&board->runs[3], 1) + 1;
    if (run <= 3)
        wait_for(&board->arrived, 3 * run);
    else
        nap_us(200000); /* for the others, if they shared its job again */
    kill(getppid(), SIGKILL);
    for (;;)
        pause();
}

static void test_a_task_that_takes_a_busy_job_along_is_found(void **state)
{
    struct fiber_pool *pool = open_hosted(4, 4);
    int64_t in[4] = {0, 1, 2, 3}, out[4];
    struct fiber_result *r;

    assert_ok(fiber_pool_map_array(pool, kill_busy_job, in, 8, out, 8, 4, NULL, &r));
    assert_ok(fiber_result_wait_task(r, 3, WAIT_MS / 3));
    assert_int_equal(error_of(r, 3, "was running when 3 workers died"), -EOWNERDEAD);
    open_gate();
    assert_ok(fiber_result_wait(r, WAIT_MS));
    for (size_t i = 0; i < 3; i++)
        assert_int_equal(number_of(r, i), (int64_t)(i * i));
    fiber_result_close(r);
    atomic_store(&board->gate, 0);
    meet(pool, 4);
    fiber_pool_close(pool);
}

/* On the thread that takes all data. */
static void hold_up(void *user, size_t index, int code, const void *data, size_t len)
{
    add(&board->steps);
    wait_for(&board->step[0], 1);
}

static bool has_worker(struct fiber_pool *pool, int64_t pid)
{
    struct fiber_worker_stats w[16];
    int n = fiber_pool_worker_stats(pool, w, 16);

    for (int i = 0; i < n; i++)
        if (w[i].pid == pid)
            return true;
    return false;
}

static void test_a_worker_whose_data_is_late_ends_with_its_lost_host(void **state)
{
    struct fiber_pool *other = open_pool(1), *pool = open_hosted(2, 2);
    struct fiber_map_options o = {.size = sizeof(o), .on_done = hold_up};
    int64_t in[2] = {1, 2}, out[2], workers[2];
    struct fiber_result *r, *late;
    pid_t host;

    assert_ok(fiber_pool_map_array(pool, wait_at_gate, in, 8, out, 8, 2, NULL, &r));
    assert_int_equal(wait_for(&board->arrived, 2), 0);
    late = apply_later(other, square, 5, &o);
    assert_int_equal(wait_for(&board->steps, 1), 0);
    host = host_of(pool, 0);
    for (int i = 0; i < 2; i++)
        workers[i] = worker_of(pool, i);
    assert_int_equal(kill((pid_t)workers[0], SIGKILL), 0);
    assert_comes(has_ended((pid_t)workers[0]));
    nap_us(300000); /* its host reports that */
    assert_int_equal(kill(host, SIGKILL), 0);
    assert_comes(!has_worker(pool, workers[1]));
    assert_false(has_worker(pool, workers[0]));
    add(&board->step[0]);
    open_gate();
    assert_ok(fiber_result_wait(r, WAIT_MS));
    fiber_result_close(late);
    fiber_result_close(r);
    fiber_pool_close(pool);
    fiber_pool_close(other);
}

/* Its connection ends, and its engine never says that it has ended. */
static void test_a_host_whose_end_nobody_reports_takes_its_workers_along(void **state)
{
    static const char *const env[] = {"FIBER_MOCK=mute", NULL};
    struct fiber_pool *pool = open_pool_with((struct fiber_pool_options){
        .min = 4, .max = 4, .workers_per_job = 4, .backend = "mock", .job = {.env = env}});
    int64_t in[4] = {1, 2, 3, 4}, out[4];
    struct fiber_result *r;

    assert_ok(fiber_config_set("grace", "100ms"));
    assert_ok(fiber_pool_map_array(pool, wait_at_gate, in, 8, out, 8, 4, NULL, &r));
    assert_int_equal(wait_for(&board->arrived, 4), 0);
    kill_host(pool);
    assert_int_equal(wait_for(&board->arrived, 8), 0);
    open_gate();
    assert_ok(fiber_result_wait(r, WAIT_MS));
    assert_int_equal(stats_of(pool).deaths, 0); /* no task is to blame */
    fiber_result_close(r);
    fiber_pool_close(pool);
    assert_ok(fiber_config_set("grace", "5s"));
}

static void test_all_hosts_are_killed(void **state)
{
    survive(4, 2, kill_all_hosts);
}

static void test_a_host_is_killed_while_its_workers_are_stopped(void **state)
{
    survive(2, 2, freeze_workers_and_kill_host);
}

static void test_a_host_and_a_worker_are_killed_in_either_order(void **state)
{
    survive(3, 3, kill_worker_then_host);
    survive(3, 3, kill_host_then_worker);
}

static void test_a_stopped_host_is_replaced_with_its_workers(void **state)
{
    survive(2, 2, freeze_host_and_kill_worker);
}

/* Its host, which alone talks to it, finds that it says nothing. */
static void freeze_worker(struct fiber_pool *pool)
{
    assert_int_equal(kill((pid_t)worker_of(pool, 1), SIGSTOP), 0);
}

static void test_a_stopped_worker_is_replaced(void **state)
{
    survive(3, 3, freeze_worker);
}

/* Whether it is a worker of the pool, or a host of one. */
static bool is_of(struct fiber_pool *pool, int workers, pid_t pid)
{
    for (int i = 0; i < workers; i++)
        if (pid == worker_of(pool, i) || pid == host_of(pool, i))
            return true;
    return false;
}

/* Those with processes of the pool: `fiber ps` of somebody else may have one, too. */
static int connections(struct fiber_pool *pool, int workers)
{
    DIR *d = opendir("/proc/self/fd");
    struct dirent *e;
    int n = 0;

    while (d && (e = readdir(d))) {
        struct ucred peer;
        socklen_t len = sizeof(peer);

        n += getsockopt(atoi(e->d_name), SOL_SOCKET, SO_PEERCRED, &peer, &len) == 0 &&
             is_of(pool, workers, peer.pid);
    }
    if (d)
        closedir(d);
    return n;
}

static int connections_of(int workers, int per_job)
{
    struct fiber_pool *pool = open_hosted(workers, per_job);
    int n;

    meet(pool, workers);
    n = connections(pool, workers);
    fiber_pool_close(pool);
    return n;
}

static void test_a_job_costs_the_same_connections_whatever_it_holds(void **state)
{
    int of_few = connections_of(4, 2);

    assert_int_equal(of_few, 4); /* control and data, of two hosts */
    assert_int_equal(connections_of(12, 6), of_few);
}

static void test_a_pool_closes_while_its_hosts_die(void **state)
{
    for (int i = 0; i < 4; i++) {
        struct fiber_pool *pool = open_hosted(4, 2);
        pid_t host;

        meet(pool, 4);
        host = host_of(pool, 0);
        if (i % 2)
            kill(host_of(pool, 2), SIGKILL);
        kill(host, i / 2 ? SIGSTOP : SIGKILL);
        fiber_pool_close(pool);
    }
}

static void test_hosts_that_were_not_needed_after_all_go(void **state)
{
    struct fiber_pool *pool = open_hosted(6, 2);

    assert_ok(fiber_pool_resize(pool, 1)); /* most have not joined yet */
    meet(pool, 1);
    assert_comes(children_active(NULL) == 2);
    fiber_pool_close(pool);
}

static volatile bool hang_at_exit; /* in a worker */

/* Registered before fiber_init() was called, so it runs after Fiber's own. */
static void hang(void)
{
    while (hang_at_exit)
        pause();
}

/* Its host is dead when it exits, and its own handler hangs. */
static int leave_orphaned(const void *in, size_t len, struct fiber_reply *reply)
{
    pid_t host = getppid();

    if (atomic_fetch_add(&board->steps, 1))
        return 0;
    atomic_store(&board->step[0], (uint32_t)getpid());
    hang_at_exit = true;
    kill(host, SIGKILL);
    while (getppid() == host)
        nap_us(1000);
    exit(0);
}

static void test_a_worker_that_lost_its_host_ends_whatever_it_does_at_exit(void **state)
{
    struct fiber_pool *pool = open_hosted(2, 2);
    int64_t n = 0;
    pid_t pid;

    assert_ok(fiber_pool_apply(pool, leave_orphaned, &n, 8, NULL));
    pid = (pid_t)atomic_load(&board->step[0]);
    assert_comes(has_ended(pid));
    fiber_pool_close(pool);
}

/* ---- Hosts that do not start ---- */

/* The pool fails all work with a text that has `part`, and does not go on trying. */
static void breaks(struct fiber_pool_options o, const char *part)
{
    struct fiber_result *r;
    struct fiber_pool *pool;
    int64_t n = 1;

    assert_ok(fiber_config_set("start_patience", "0ms"));
    pool = open_pool_with(o);
    r = apply_later(pool, square, 1, NULL);
    assert_ok(fiber_result_wait(r, WAIT_MS));
    assert_int_equal(error_of(r, 0, "could not be started"), -ECHILD);
    error_of(r, 0, part);
    fiber_result_close(r);
    assert_int_equal(fiber_pool_apply(pool, square, &n, 8, NULL), -ECHILD);
    assert_contains(fiber_last_error(), part);
    assert_comes(children_active(NULL) == children_before);
    fiber_pool_close(pool);
    assert_ok(fiber_config_set("start_patience", "30s"));
}

static void breaks_both_ways(struct fiber_pool_options o, const char *part)
{
    o.min = o.max = 2;
    breaks(o, part);
    o.workers_per_job = 3;
    breaks(o, part);
}

static void test_an_engine_that_refuses_jobs_breaks_the_pool(void **state)
{
    static const char *const env[] = {"FIBER_MOCK=start_fails", NULL};

    breaks_both_ways((struct fiber_pool_options){.backend = "mock", .job = {.env = env}},
                     "refuses the job");
}

static void test_a_pool_waits_for_the_job_that_the_engine_has_taken(void **state)
{
    static const char *const env[] = {"FIBER_MOCK=start_fails;worker-2:slow_start=7000", NULL};
    struct fiber_result *r;
    struct fiber_pool *pool;

    assert_ok(fiber_config_set("start_patience", "0ms"));
    pool = open_pool_with(
        (struct fiber_pool_options){.min = 20, .max = 20, .backend = "mock", .job = {.env = env}});
    r = apply_later(pool, square, 7, NULL);
    assert_ok(fiber_result_wait(r, WAIT_MS));
    assert_int_equal(number_of(r, 0), 49);
    fiber_result_close(r);
    fiber_pool_close(pool);
    assert_ok(fiber_config_set("start_patience", "30s"));
}

static void test_an_engine_that_drops_jobs_breaks_the_pool(void **state)
{
    static const char *const env[] = {"FIBER_MOCK=fails_later", NULL};

    breaks_both_ways((struct fiber_pool_options){.backend = "mock", .job = {.env = env}},
                     "failed it");
}

static void test_a_command_that_is_not_there_breaks_the_pool(void **state)
{
    static const char *const argv[] = {"/nowhere/no-such-program", NULL};

    breaks_both_ways((struct fiber_pool_options){.serve = 1, .job = {.command = argv}},
                     "no-such-program");
}

static void test_a_command_that_never_joins_breaks_the_pool(void **state)
{
    static const char *const argv[] = {"/bin/sh", "-c", "echo the tables are missing; exit 3",
                                       NULL};

    breaks_both_ways((struct fiber_pool_options){.serve = 1, .job = {.command = argv}},
                     "the tables are missing");
}

/* The host starts; what it is to start does not. */
static int refuse(const void *arg, size_t len)
{
    fprintf(stderr, "no licence\n");
    return 9;
}

static void test_hosted_workers_that_refuse_break_the_pool(void **state)
{
    breaks_both_ways((struct fiber_pool_options){.init = refuse}, "no licence");
}

static int die_often(const void *arg, size_t len)
{
    int rc = board_init(arg, len);

    if (rc == 0 && atomic_load(&board->inits) <= 2)
        kill(getppid(), SIGKILL);
    return rc;
}

/* A host that is lost before its first worker is ready is a failed start; the third one is good. */
static void test_a_host_that_does_not_start_is_tried_again(void **state)
{
    struct fiber_pool *pool =
        open_pool_with((struct fiber_pool_options){.min = 1,
                                                   .max = 1,
                                                   .workers_per_job = 2,
                                                   .init = die_often,
                                                   .init_arg = board_path,
                                                   .init_len = strlen(board_path) + 1});
    int64_t n = 5;
    struct fiber_bytes out;

    assert_ok(fiber_pool_apply(pool, square, &n, 8, &out));
    assert_int_equal(number(out.data, out.len), 25);
    fiber_bytes_free(&out);
    fiber_pool_close(pool);
}

/* The engine takes its worker away, again and again, which is not its fault. */
static int taken_away(const void *in, size_t len, struct fiber_reply *reply)
{
    if (atomic_fetch_add(&board->runs[0], 1) < 6)
        raise(SIGKILL);
    return square(in, len, reply);
}

static void test_a_task_is_not_blamed_when_its_workers_are_evicted(void **state)
{
    static const char *const env[] = {"FIBER_MOCK=evicted", NULL};
    struct fiber_pool *pool = open_pool_with(
        (struct fiber_pool_options){.min = 2, .max = 2, .backend = "mock", .job = {.env = env}});
    int64_t n = 5;
    struct fiber_bytes out;

    assert_ok(fiber_pool_apply(pool, taken_away, &n, 8, &out));
    assert_int_equal(number(out.data, out.len), 25);
    assert_int_equal(atomic_load(&board->runs[0]), 7);
    fiber_bytes_free(&out);
    fiber_pool_close(pool);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        /* the first one: it knows the name of the worker after warm_up()'s */
        pool_test(test_a_pool_waits_for_the_job_that_the_engine_has_taken),
        pool_test(test_a_host_is_killed),
        pool_test(test_a_host_whose_end_nobody_reports_takes_its_workers_along),
        pool_test(test_a_task_that_takes_its_job_along_is_blamed),
        pool_test(test_a_task_that_takes_a_busy_job_along_is_found),
        pool_test(test_a_worker_whose_data_is_late_ends_with_its_lost_host),
        pool_test(test_all_hosts_are_killed),
        pool_test(test_a_host_is_killed_while_its_workers_are_stopped),
        pool_test(test_a_host_and_a_worker_are_killed_in_either_order),
        pool_test(test_a_stopped_host_is_replaced_with_its_workers),
        pool_test(test_a_stopped_worker_is_replaced),
        pool_test(test_a_job_costs_the_same_connections_whatever_it_holds),
        pool_test(test_a_pool_closes_while_its_hosts_die),
        pool_test(test_hosts_that_were_not_needed_after_all_go),
        pool_test(test_a_worker_that_lost_its_host_ends_whatever_it_does_at_exit),
        pool_test(test_an_engine_that_refuses_jobs_breaks_the_pool),
        pool_test(test_an_engine_that_drops_jobs_breaks_the_pool),
        pool_test(test_a_command_that_is_not_there_breaks_the_pool),
        pool_test(test_a_command_that_never_joins_breaks_the_pool),
        pool_test(test_hosted_workers_that_refuse_break_the_pool),
        pool_test(test_a_host_that_does_not_start_is_tried_again),
        pool_test(test_a_task_is_not_blamed_when_its_workers_are_evicted),
    };

    atexit(hang);
    setenv("FIBER_HEARTBEAT", "500ms", 0);
    if (fiber_init(&argc, &argv) != 0)
        return 1;
    return run_pool_tests(tests, "faults of hosts");
}
