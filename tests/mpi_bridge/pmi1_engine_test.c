/* pmi1_engine_test.c - the PMI-1 server as such: lines in, lines out.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/mpi_bridge/pmi_engine_util.h"

#define expect(link, text, answer)        \
    do {                                  \
        send_line(link, text);            \
        assert_string_equal(did, answer); \
    } while (0)

static void test_the_questions_of_init(void **state)
{
    expect(0, "cmd=init pmi_version=1 pmi_subversion=1\n",
           "0<cmd=response_to_init rc=0 pmi_version=1 pmi_subversion=1\nmet 4 PMI 1.1\n");
    expect(0, "cmd=get_maxes\n",
           "0<cmd=maxes rc=0 kvsname_max=256 keylen_max=64 vallen_max=1024\n");
    expect(0, "cmd=get_appnum\n", "0<cmd=appnum rc=0 appnum=0\n");
    expect(0, "cmd=get_universe_size\n", "0<cmd=universe_size rc=0 size=9\n");
    expect(0, "cmd=get_my_kvsname\n", "0<cmd=my_kvsname rc=0 kvsname=ring\n");
    expect(0, "cmd=finalize\n", "0<cmd=finalize_ack rc=0\nleft 4\n");
    expect(1, "cmd=init pmi_version=3 pmi_subversion=0\n", /* what we speak: */
           "1<cmd=response_to_init rc=0 pmi_version=1 pmi_subversion=1\nmet 5 PMI 1.1\n");
    expect(1, "cmd=get_appnum\n", "1<cmd=appnum rc=0 appnum=3\n"); /* as it was spawned */
    expect(1, "cmd=what_now\n", "1<cmd=what_now_result rc=-1 msg=unknown_command\n");
}

static void test_after_an_abort_nothing_is_heard(void **state)
{
    expect(0, "cmd=abort exitcode=7\n", "abort 4 7 []\n");
    expect(1, "cmd=abort exitcode=9 error_msg=it is over\nand out of memory\ncmd=get_maxes\n",
           "abort 5 9 [it is over]\n");
    expect(1, "cmd=get_maxes\n", "");
    expect(2, "cmd=initack pmiid=4\n", "2 hung up: its rank has another connection already\n");
}

static void test_an_abort_of_newer_clients(void **state)
{
    expect(0, "cmd=abort exitcode=7 message=Fatal error\nin many lines\n",
           "abort 4 7 [Fatal error]\n");
}

static void test_lines_may_come_in_pieces_and_words_in_any_order(void **state)
{
    expect(0, "cmd=pu", "");
    expect(0, "t  key=k\tkvsname=ring value=a b=c \r", "");
    expect(0, "\ncmd=get", "0<cmd=put_result rc=-1 msg=bad_value\n"); /* a CR is no text */
    expect(0, " key=k kvsname=ring\n", "0<cmd=get_result rc=-1 msg=no_such_key value=unknown\n");
    expect(0, "cmd=put key=k kvsname=ring value=a key=x\ncmd=get kvsname=ring key=k\n",
           "0<cmd=put_result rc=0 msg=success\n0<cmd=get_result rc=0 msg=success value=a key=x\n");
}

/* So the agent does not keep every value of a key that is put again and again. */
static void test_a_barrier_takes_the_last_value_of_a_key_along(void **state)
{
    send_line(0, "cmd=put kvsname=ring key=a value=1\n");
    send_line(1, "cmd=put kvsname=ring key=b value=1\n");
    send_line(0, "cmd=put kvsname=ring key=a value=2\n");
    send_line(0, "cmd=barrier_in\n");
    expect(1, "cmd=barrier_in\n", "fence a 2 b 1\n");
}

static void test_a_barrier_takes_what_is_new_along(void **state)
{
    struct fbr_buf all = {0}, puts = {0};

    send_line(0, "cmd=put kvsname=ring key=a value=1\n");
    expect(0, "cmd=barrier_in\n", "");
    expect(1, "cmd=barrier_in\n", "fence a 1\n");
    fbr_put_str(&puts, "far");
    fbr_put_str(&puts, "away");
    fbr_put_u32(&all, 7);
    fbr_put_bytes(&all, puts.data, puts.len);
    did[0] = 0;
    fbr_pmi1_fenced(engine, 0, all.data, all.len);
    assert_string_equal(did, "0<cmd=barrier_out rc=0\n1<cmd=barrier_out rc=0\n");
    expect(1, "cmd=get kvsname=ring key=far\n", "1<cmd=get_result rc=0 msg=success value=away\n");
    send_line(0, "cmd=barrier_in\n");
    expect(1, "cmd=barrier_in\n", "fence\n");
    did[0] = 0;
    fbr_pmi1_fenced(engine, 0, "\1\2\3", 3); /* nonsense */
    assert_string_equal(did, "0<cmd=barrier_out rc=-1 msg=some_ranks_are_gone\n"
                             "1<cmd=barrier_out rc=-1 msg=some_ranks_are_gone\n");
    refuse = -ECONNABORTED;
    send_line(0, "cmd=barrier_in\n");
    expect(1, "cmd=barrier_in\n",
           "fence\n0<cmd=barrier_out rc=-1 msg=some_ranks_are_gone\n"
           "1<cmd=barrier_out rc=-1 msg=some_ranks_are_gone\n");
    fbr_buf_fini(&all);
    fbr_buf_fini(&puts);
}

static void test_alone_no_fence_is_asked_for(void **state)
{
    send_line(0, "cmd=barrier_in\n");
    expect(1, "cmd=barrier_in\n", "0<cmd=barrier_out rc=0\n1<cmd=barrier_out rc=0\n");
}

static void test_no_barrier_ends_once_a_rank_is_lost(void **state)
{
    send_line(0, "cmd=barrier_in\n");
    did[0] = 0;
    fbr_pmi1_lost(engine);
    assert_string_equal(did, "0<cmd=barrier_out rc=-1 msg=some_ranks_are_gone\n");
    expect(1, "cmd=barrier_in\n", "1<cmd=barrier_out rc=-1 msg=some_ranks_are_gone\n");
    did[0] = 0;
    fbr_pmi1_fenced(engine, 0, NULL, 0); /* of one that was on its way */
    assert_string_equal(did, "");
    expect(0, "cmd=get_appnum\n", "0<cmd=appnum rc=0 appnum=0\n");
}

static void test_a_connection_without_a_rank_says_who_it_is(void **state)
{
    expect(2, "cmd=initack pmiid=5\n",
           "2<cmd=initack rc=0\ncmd=set size=9\ncmd=set rank=5\ncmd=set debug=0\n");
    expect(1, "cmd=get_maxes\n", "1 hung up: its rank has another connection already\n");
    conns[1] = fbr_pmi1_attach(engine, &links[1], -1);
    expect(1, "cmd=initack pmiid=5\n", "1 hung up: its rank has another connection already\n");
    fbr_pmi1_detach(conns[2]);
    conns[2] = fbr_pmi1_attach(engine, &links[2], -1);
    expect(2, "cmd=initack pmiid=5\n",
           "2 hung up: its rank has another connection already\n"); /* not even then */
    conns[2] = fbr_pmi1_attach(engine, &links[2], -1);
    expect(2, "cmd=initack pmiid=3\n", "2 hung up: it names a rank that is not on this node\n");
    conns[2] = fbr_pmi1_attach(engine, &links[2], -1);
    expect(2, "cmd=get_maxes\n", "2 hung up: it has not sent its rank\n");
}

static void test_names(void **state)
{
    expect(0, "cmd=publish_name service=s port=p#1\n", "publish 4 s p#1\n");
    did[0] = 0;
    fbr_pmi1_answer(engine, 4, 0, NULL);
    assert_string_equal(did, "0<cmd=publish_result rc=0 info=ok\n");
    fbr_pmi1_answer(engine, 4, 0, NULL); /* nobody waits */
    assert_string_equal(did, "0<cmd=publish_result rc=0 info=ok\n");
    expect(0, "cmd=lookup_name service=s\n", "lookup 4 s\n");
    did[0] = 0;
    fbr_pmi1_answer(engine, 4, 0, "p#1");
    assert_string_equal(did, "0<cmd=lookup_result rc=0 info=ok port=p#1\n");
    expect(0, "cmd=lookup_name service=t\n", "lookup 4 t\n");
    did[0] = 0;
    fbr_pmi1_answer(engine, 4, -ENOENT, NULL);
    assert_string_equal(did, "0<cmd=lookup_result rc=-1 info=no_such_name msg=no_such_name\n");
    refuse = -EIO;
    expect(0, "cmd=unpublish_name service=s\n",
           "unpublish 4 s\n0<cmd=unpublish_result rc=-1 info=failed msg=failed\n");
    expect(0, "cmd=unpublish_name\n", "0<cmd=unpublish_result rc=-1 info=failed msg=failed\n");
}

static void test_a_spawn_of_two_programs(void **state)
{
    expect(0,
           "mcmd=spawn\nnprocs=2\nexecname=./a b\ntotspawns=2\nspawnssofar=1\narg1=x "
           "y\narg2=z=1\nargcnt=2\n"
           "preput_num=1\npreput_key_0=PARENT\npreput_val_0=tag#0$\ninfo_num=2\ninfo_key_0="
           "host\ninfo_val_0=h\n"
           "info_key_1=wdir\ninfo_val_1=/tmp\nendcmd\n",
           "");
    expect(0,
           "mcmd=spawn\nnprocs=1\nexecname=./c\ntotspawns=2\nspawnssofar=2\n"
           "argcnt=0\npreput_num=0\ninfo_num=0\nendcmd\n",
           "spawn 4: 2 x ./a b x y z=1 in /tmp; 1 x ./c in -; [PARENT=tag#0$\n]\n");
    did[0] = 0;
    fbr_pmi1_answer(engine, 4, 0, NULL);
    assert_string_equal(did, "0<cmd=spawn_result rc=0\n");
    refuse = -ENOSYS;
    expect(0, "mcmd=spawn\nnprocs=1\nexecname=c\ntotspawns=1\nspawnssofar=1\nendcmd\n",
           "spawn 4: 1 x c in -; []\n0<cmd=spawn_result rc=-1 "
           "msg=the_processes_could_not_be_started\n");
}

static void test_what_was_left_for_a_spawned_job_is_found(void **state)
{
    assert_int_equal(fbr_pmi1_preput(engine, "k=v\nPARENT=a=b\n"), 0);
    expect(0, "cmd=get kvsname=ring key=PARENT\n", "0<cmd=get_result rc=0 msg=success value=a=b\n");
    assert_int_equal(fbr_pmi1_preput(engine, "nothing\n"), -EINVAL);
    assert_int_equal(fbr_pmi1_preput(engine, "=v\n"), -EINVAL);
}

static void test_limits(void **state)
{
    static const char put[] = "cmd=put kvsname=ring key=k value=";
    char line[FBR_PMI1_LINE_MAX + 2];
    size_t at = sizeof(put) - 1;

    memcpy(line, put, at);
    memset(line + at, 'x', sizeof(line) - at);
    strcpy(line + at + FBR_PMI1_VALUE_MAX - 1, "\n");
    expect(0, line, "0<cmd=put_result rc=0 msg=success\n");
    line[at + FBR_PMI1_VALUE_MAX - 1] = 'x';
    strcpy(line + at + FBR_PMI1_VALUE_MAX, "\n");
    expect(0, line, "0<cmd=put_result rc=-1 msg=bad_value\n");
    expect(0, "cmd=put kvsname=other key=k value=v\n",
           "0<cmd=put_result rc=-1 msg=no_such_kvsname\n");
    expect(0, "cmd=put kvsname=ring value=v key=k\n", "0<cmd=put_result rc=-1 msg=bad_key\n");
    memset(line, 'x', sizeof(line));
    line[sizeof(line) - 1] = 0;
    expect(0, line, "0 hung up: a line is too long\n");
    send_line(1, "cmd=barrier_in\n");
    expect(1, "cmd=get_maxes\n", "1 hung up: it sent a request before the last one was answered\n");
}

static void test_nodes_of_one_size_are_one_block(void **state)
{
    char out[FBR_PMI1_VALUE_MAX];
    uint32_t first[1025] = {0};

    fbr_pmi1_mapping(out, (uint32_t[]){0, 4}, 1);
    assert_string_equal(out, "(vector,(0,1,4))");
    fbr_pmi1_mapping(out, (uint32_t[]){0, 2, 4, 8, 12, 13}, 5);
    assert_string_equal(out, "(vector,(0,2,2),(2,2,4),(4,1,1))");
    for (uint32_t i = 1; i <= 1024; i++)
        first[i] = first[i - 1] + 64;
    fbr_pmi1_mapping(out, first, 1024);
    assert_string_equal(out, "(vector,(0,1024,64))");
    for (uint32_t i = 1; i <= 1024; i++)
        first[i] = first[i - 1] + 1 + i % 2;
    fbr_pmi1_mapping(out, first, 1024);
    assert_string_equal(out, ""); /* too long to say */
}

#define two(test) cmocka_unit_test_setup_teardown(test, attach_two, close_two)

int main(void)
{
    static int alone;
    const struct CMUnitTest tests[] = {
        two(test_the_questions_of_init),
        two(test_after_an_abort_nothing_is_heard),
        two(test_an_abort_of_newer_clients),
        two(test_lines_may_come_in_pieces_and_words_in_any_order),
        two(test_a_barrier_takes_what_is_new_along),
        two(test_a_barrier_takes_the_last_value_of_a_key_along),
        cmocka_unit_test_prestate_setup_teardown(test_alone_no_fence_is_asked_for, attach_two,
                                                 close_two, &alone),
        two(test_no_barrier_ends_once_a_rank_is_lost),
        two(test_a_connection_without_a_rank_says_who_it_is),
        two(test_names),
        two(test_a_spawn_of_two_programs),
        two(test_what_was_left_for_a_spawned_job_is_found),
        two(test_limits),
        cmocka_unit_test(test_nodes_of_one_size_are_one_block),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
