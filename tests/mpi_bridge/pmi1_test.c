/* pmi1_test.c - the bridge of PMI-1: programs of MPICH, and clients that do not behave.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include "tests/mpi_bridge/pmi_program_util.h"

#define MPICC "/usr/bin/mpicc.mpich"

static int compile(void **state)
{
    return compile_program(MPICC, "mpi_rank", NULL, MPICC);
}

static void need_mpich(void)
{
    need_program("MPICH's compiler");
}

/* Loopback only: what other interfaces there are is not what is tested. */
static char *const mpich_env[] = {"UCX_TLS=tcp,self,sm", "UCX_NET_DEVICES=lo", NULL};
static char *const port_env[] = {"UCX_TLS=tcp,self,sm", "UCX_NET_DEVICES=lo", "FIBER_PMI=port",
                                 NULL};

static void run_sum_as(const char *const *argv, const uint32_t *per_agent, char *const *env)
{
    struct bridge_host *h = host_open(HOST_AGENTS);
    const struct fbr_bridge_job *job;
    uint32_t id;

    host_use(h, &fbr_bridge_pmi1);
    id = host_job(h, per_agent);
    job = host_job_of(h, 0, id);
    host_start_all(h, id, argv, env);
    if (host_wait(h, id) != 0)
        for (uint32_t i = 0; i < job->size; i++)
            fprintf(stderr, "%u: %s", i, host_output(h, id, i));
    for (uint32_t k = 0; k < job->nodes; k++)
        for (uint32_t i = job->first[k]; i < job->first[k + 1]; i++) {
            struct host_rank r = host_rank(h, id, i);
            char expected[128];

            snprintf(expected, sizeof(expected), "rank %u of %u, %u on its node, sum %u\n", i,
                     job->size, job->first[k + 1] - job->first[k], job->size * (job->size - 1) / 2);
            assert_string_equal(host_output(h, id, i), expected);
            assert_int_equal(r.code, 0);
            assert_int_equal(r.met, 1);
            assert_int_equal(r.left, 1);
            assert_string_equal(r.how, "PMI 1.1");
        }
    host_close(h);
}

static void run_sum(const uint32_t *per_agent, char *const *env)
{
    const char *const argv[] = {program, "sum", NULL};

    run_sum_as(argv, per_agent, env);
}

static void test_mpich_runs_on_one_node(void **state)
{
    need_mpich();
    run_sum((uint32_t[HOST_AGENTS]){4}, mpich_env);
}

static void test_mpich_runs_on_nodes_of_different_sizes(void **state)
{
    need_mpich();
    run_sum((uint32_t[HOST_AGENTS]){2, 0, 1, 1}, mpich_env);
}

static void test_mpich_runs_over_a_port(void **state)
{
    need_mpich();
    run_sum((uint32_t[HOST_AGENTS]){2, 1}, port_env);
}

/* So one of them is enough, and a port that is left over does no harm. */
static void test_mpich_takes_the_descriptor_when_there_is_a_port_too(void **state)
{
    const char *const argv[] = {"/bin/sh", "-c", "PMI_PORT=127.0.0.1:1 PMI_ID=0 exec \"$0\" sum",
                                program, NULL};

    need_mpich();
    run_sum_as(argv, (uint32_t[HOST_AGENTS]){2}, mpich_env);
}

static void test_an_abort_reaches_the_host(void **state)
{
    struct bridge_host *h = host_open(1);
    uint32_t id;

    need_mpich();
    id = start_program(h, (uint32_t[HOST_AGENTS]){3}, "abort", mpich_env);
    assert_int_not_equal(host_wait(h, id), 0);
    assert_true(host_rank(h, id, 1).aborted >= 1);
    assert_int_equal(host_rank(h, id, 1).abort_code, 7);
    assert_int_equal(host_rank(h, id, 0).left, 0);
    host_close(h);
}

static void test_names_are_published(void **state)
{
    struct bridge_host *h = host_open(2);
    uint32_t id;

    need_mpich();
    id = start_program(h, (uint32_t[HOST_AGENTS]){1, 1}, "name", mpich_env);
    assert_int_equal(host_wait(h, id), 0);
    assert_string_equal(host_output(h, id, 0),
                        "publish 0\nlookup 0 tag#0$port#1234$\nno name not found\nunpublish 0\n");
    assert_string_equal(host_output(h, id, 1),
                        "publish 0\nlookup 0 tag#0$port#1234$\nno name not found\n");
    host_close(h);
}

static void test_sessions_need_no_more(void **state)
{
    struct bridge_host *h = host_open(2);
    uint32_t id;

    need_mpich();
    id = start_program(h, (uint32_t[HOST_AGENTS]){2, 1}, "session", mpich_env);
    assert_int_equal(host_wait(h, id), 0);
    for (uint32_t i = 0; i < 3; i++) {
        char expected[64];

        snprintf(expected, sizeof(expected), "rank %u of 3, sum 3\n", i);
        assert_string_equal(host_output(h, id, i), expected);
        assert_int_equal(host_rank(h, id, i).left, 1);
    }
    host_close(h);
}

/* ---- clients of our own ---- */

static void send_line(int fd, const char *text)
{
    assert_int_equal(send(fd, text, strlen(text), MSG_NOSIGNAL), strlen(text));
}

/* Reads as many lines as expected has. */
static void hear(int fd, const char *expected)
{
    char text[4096] = "";
    size_t len = 0;

    while (len < strlen(expected)) {
        ssize_t n = recv(fd, text + len, strlen(expected) - len, 0);

        assert_true(n > 0);
        len += (size_t)n;
    }
    assert_string_equal(text, expected);
}

static int given_fd(struct bridge_host *h, uint32_t job, uint32_t rank)
{
    struct fbr_error err = {0};
    struct fbr_env env;
    int fd;

    assert_int_equal(host_env(h, job, rank, NULL, &env, &fd, &err), 0);
    assert_true(fd >= 0);
    fbr_env_fini(&env);
    return fd;
}

static int dial(struct bridge_host *h, uint32_t job, uint32_t rank)
{
    static char *const ask[] = {"FIBER_PMI=port", NULL};
    struct sockaddr_in in = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    struct fbr_error err = {0};
    struct fbr_env env;
    int fd = -1, port = 0;

    assert_int_equal(host_env(h, job, rank, ask, &env, &fd, &err), 0);
    assert_int_equal(fd, -1);
    assert_null(fbr_env_get(&env, "PMI_FD"));
    assert_int_equal(sscanf(fbr_env_get(&env, "PMI_PORT"), "127.0.0.1:%d", &port), 1);
    in.sin_port = htons((uint16_t)port);
    fbr_env_fini(&env);
    fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(connect(fd, (struct sockaddr *)&in, sizeof(in)), 0);
    return fd;
}

static void test_the_variables(void **state)
{
    struct bridge_host *h = host_open(2);
    struct fbr_error err = {0};
    struct fbr_env env;
    uint32_t id;

    host_use(h, &fbr_bridge_pmi1);
    id = host_job(h, (uint32_t[HOST_AGENTS]){1, 2});
    assert_int_equal(host_env(h, id, 2, NULL, &env, NULL, &err), 0);
    assert_string_equal(fbr_env_get(&env, "PMI_FD"), "3");
    assert_string_equal(fbr_env_get(&env, "PMI_RANK"), "2");
    assert_string_equal(fbr_env_get(&env, "PMI_SIZE"), "3");
    assert_string_equal(fbr_env_get(&env, "MPIR_CVAR_PMI_VERSION"), "1");
    assert_null(fbr_env_get(&env, "PMI_PORT"));
    assert_null(fbr_env_get(&env, "PMI_SPAWNED"));
    fbr_env_fini(&env);
    assert_int_equal(
        host_env(h, id, 1, (char *[]){"MPIR_CVAR_PMI_VERSION=2", NULL}, &env, NULL, &err), 0);
    assert_string_equal(fbr_env_get(&env, "MPIR_CVAR_PMI_VERSION"), "2");
    fbr_env_fini(&env);
    assert_int_equal(host_env(h, id, 2, (char *[]){"FIBER_PMI=both", NULL}, &env, NULL, &err),
                     -EINVAL);
    assert_non_null(strstr(err.text, "FIBER_PMI is \"both\""));
    fbr_env_fini(&env);
    host_close(h);
}

static void test_a_rank_is_taken_once(void **state)
{
    struct bridge_host *h = host_open(1);
    uint32_t id;
    int one, two;
    char c;

    host_use(h, &fbr_bridge_pmi1);
    id = host_job(h, (uint32_t[HOST_AGENTS]){2});
    one = dial(h, id, 1);
    send_line(one, "cmd=initack pmiid=1\n");
    hear(one, "cmd=initack rc=0\ncmd=set size=2\ncmd=set rank=1\ncmd=set debug=0\n");
    two = dial(h, id, 1);
    send_line(two, "cmd=initack pmiid=1\n");
    assert_int_equal(recv(two, &c, 1, 0), 0);
    close(two);
    two = dial(h, id, 1);
    send_line(two, "cmd=init pmi_version=1 pmi_subversion=1\n"); /* without a name */
    assert_int_equal(recv(two, &c, 1, 0), 0);
    close(two);
    send_line(one, "cmd=init pmi_version=1 pmi_subversion=1\n");
    hear(one, "cmd=response_to_init rc=0 pmi_version=1 pmi_subversion=1\n");
    assert_int_equal(host_rank(h, id, 1).met, 1);
    assert_int_equal(host_rank(h, id, 0).met, 0);
    close(one);
    host_close(h);
}

/* "cmd=put" of a value that is there, then a barrier. */
static void put_and_enter(struct bridge_host *h, uint32_t id, int fd, uint32_t rank,
                          const char *value)
{
    char line[512];

    snprintf(line, sizeof(line), "cmd=put kvsname=%s key=k%u value=%s\n",
             host_job_of(h, 0, id)->nspace, rank, value);
    send_line(fd, line);
    hear(fd, "cmd=put_result rc=0 msg=success\n");
    send_line(fd, "cmd=barrier_in\n");
}

static void read_key(struct bridge_host *h, uint32_t id, int fd, const char *key,
                     const char *answer)
{
    char line[512];

    snprintf(line, sizeof(line), "cmd=get kvsname=%s key=%s\n", host_job_of(h, 0, id)->nspace, key);
    send_line(fd, line);
    hear(fd, answer);
}

static void test_a_barrier_carries_what_is_new(void **state)
{
    struct bridge_host *h = host_open(2);
    size_t bytes, before;
    unsigned count;
    uint32_t id;
    int fd[3];

    host_use(h, &fbr_bridge_pmi1);
    id = host_job(h, (uint32_t[HOST_AGENTS]){2, 1});
    for (uint32_t i = 0; i < 3; i++) {
        fd[i] = given_fd(h, id, i);
        put_and_enter(h, id, fd[i], i, "first");
    }
    for (uint32_t i = 0; i < 3; i++)
        hear(fd[i], "cmd=barrier_out rc=0\n");
    host_fences(h, &count, &before);
    assert_int_equal(count, 2); /* agents, not ranks */
    read_key(h, id, fd[0], "k2", "cmd=get_result rc=0 msg=success value=first\n");
    read_key(h, id, fd[2], "k0", "cmd=get_result rc=0 msg=success value=first\n");
    read_key(h, id, fd[2], "k9", "cmd=get_result rc=-1 msg=no_such_key value=unknown\n");
    read_key(h, id, fd[2], "PMI_process_mapping",
             "cmd=get_result rc=0 msg=success value=(vector,(0,1,2),(1,1,1))\n");
    for (int i = 0; i < 3; i++)
        send_line(fd[i], "cmd=barrier_in\n");
    for (int i = 0; i < 3; i++)
        hear(fd[i], "cmd=barrier_out rc=0\n");
    host_fences(h, &count, &bytes);
    assert_int_equal(count, 4);
    assert_int_equal(bytes, before);
    for (int i = 0; i < 3; i++)
        close(fd[i]);
    host_close(h);
}

static void test_a_barrier_that_can_not_end_is_answered(void **state)
{
    struct bridge_host *h = host_open(2);
    uint32_t id;
    int fd[2];

    host_use(h, &fbr_bridge_pmi1);
    id = host_job(h, (uint32_t[HOST_AGENTS]){1, 1});
    for (uint32_t i = 0; i < 2; i++)
        fd[i] = given_fd(h, id, i);
    put_and_enter(h, id, fd[0], 0, "x");
    host_break(h);
    hear(fd[0], "cmd=barrier_out rc=-1 msg=some_ranks_are_gone\n");
    put_and_enter(h, id, fd[1], 1, "x");
    hear(fd[1], "cmd=barrier_out rc=-1 msg=some_ranks_are_gone\n");
    close(fd[0]);
    close(fd[1]);
    host_close(h);
}

static void test_a_spawned_job_finds_what_was_left_for_it(void **state)
{
    struct bridge_host *h = host_open(1);
    uint32_t id;
    int fd;

    host_use(h, &fbr_bridge_pmi1);
    id = host_job(h, (uint32_t[HOST_AGENTS]){1});
    fd = given_fd(h, id, 0);
    send_line(
        fd, "mcmd=spawn\nnprocs=2\nexecname=/bin/sh\ntotspawns=1\nspawnssofar=1\narg1=-c\n"
            "arg2=echo \"$PMI_SPAWNED $PMI_SIZE [$FIBER_PMI_PREPUT]\"; printf "
            "'cmd=get_my_kvsname\\n' >&3; "
            "read -r a <&3; "
            "echo \"cmd=get kvsname=${a##*=} key=PARENT_ROOT_PORT_NAME\" >&3; read -r a <&3; echo "
            "\"$a\"\n"
            "argcnt=2\npreput_num=1\npreput_key_0=PARENT_ROOT_PORT_NAME\npreput_val_0=tag#0$x$"
            "\ninfo_num="
            "0\nendcmd\n");
    hear(fd, "cmd=spawn_result rc=0\n");
    assert_int_equal(host_jobs(h), 2);
    assert_int_equal(host_wait(h, 1), 0);
    assert_string_equal(host_output(h, 1, 0),
                        "1 2 []\ncmd=get_result rc=0 msg=success value=tag#0$x$\n");
    close(fd);
    host_close(h);
}

static void test_nonsense_is_hung_up_on(void **state)
{
    static const char *const nonsense[] = {"hello\n", "cmd=\n", "\0\0\n", "cmd=initack pmiid=9\n",
                                           "mcmd=spawn\nx\n"};
    struct bridge_host *h = host_open(1);
    uint32_t id;

    host_use(h, &fbr_bridge_pmi1);
    id = host_job(h, (uint32_t[HOST_AGENTS]){1});
    for (size_t i = 0; i < sizeof(nonsense) / sizeof(nonsense[0]); i++) {
        int fd = given_fd(h, id, 0);
        char c;

        assert_true(send(fd, nonsense[i], i == 2 ? 3 : strlen(nonsense[i]), MSG_NOSIGNAL) > 0);
        assert_int_equal(recv(fd, &c, 1, 0), 0);
        close(fd);
    }
    host_close(h);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_variables),
        cmocka_unit_test(test_a_rank_is_taken_once),
        cmocka_unit_test(test_a_barrier_carries_what_is_new),
        cmocka_unit_test(test_a_barrier_that_can_not_end_is_answered),
        cmocka_unit_test(test_a_spawned_job_finds_what_was_left_for_it),
        cmocka_unit_test(test_nonsense_is_hung_up_on),
        cmocka_unit_test(test_mpich_runs_on_one_node),
        cmocka_unit_test(test_mpich_runs_on_nodes_of_different_sizes),
        cmocka_unit_test(test_mpich_runs_over_a_port),
        cmocka_unit_test(test_mpich_takes_the_descriptor_when_there_is_a_port_too),
        cmocka_unit_test(test_an_abort_reaches_the_host),
        cmocka_unit_test(test_names_are_published),
        cmocka_unit_test(test_sessions_need_no_more),
    };

    return cmocka_run_group_tests(tests, compile, forget_program);
}
