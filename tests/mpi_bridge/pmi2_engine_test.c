/* pmi2_engine_test.c - the PMI server, spoken to in PMI-2: messages in, messages out.
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

/* With its length before it, as Slurm's client writes it. */
static void ask(int link, const char *message)
{
    char text[32768];

    snprintf(text, sizeof(text), "%-6zu%s", strlen(message), message);
    send_line(link, text);
}

#define expect(link, message, answer)     \
    do {                                  \
        ask(link, message);               \
        assert_string_equal(did, answer); \
    } while (0)

static const char hello[] = "cmd=init pmi_version=2 pmi_subversion=0\n";

/* Ranks 4 and 5 have asked for PMI-2. */
static int open_two(void **state)
{
    int rc = attach_two(state);

    for (int i = 0; i < 3; i++)
        send_line(i, hello);
    for (int i = 0; i < 2; i++)
        ask(i, "cmd=fullinit;threaded=FALSE;");
    did[0] = 0;
    return rc;
}

static void test_a_client_asks_for_version_2_and_says_who_it_is(void **state)
{
    static const struct fbr_bridge_rank local[] = {{.app = 0}, {.app = 1}};
    struct fbr_pmi1_config config = {
        .nspace = "ring", .parent = "mother", .size = 2, .count = 2, .local = local, .alone = true};
    struct fbr_pmi1 *e = fbr_pmi1_open(&ops, NULL, &config);

    conns[0] = fbr_pmi1_attach(e, &links[0], 0);
    conns[1] = fbr_pmi1_attach(e, &links[1], -1);
    conns[2] = fbr_pmi1_attach(e, &links[2], -1);
    conns[3] = fbr_pmi1_attach(e, &links[3], -1);
    send_line(0, hello);
    assert_string_equal(did, "0<cmd=response_to_init rc=0 pmi_version=2 pmi_subversion=0\n");
    expect(0, "cmd=fullinit;pmijobid=1.2;pmirank=0;threaded=FALSE;",
           "0<cmd=fullinit-response;rc=0;pmi-version=2;pmi-subversion=0;rank=0;size=2;appnum=0;"
           "debugged=FALSE;pmiverbose=FALSE;spawner-jobid=mother;\nmet 0 PMI 2.0\n");
    send_line(1, hello);
    expect(1, "cmd=fullinit;srcid=1;threaded=TRUE;",
           "1<cmd=fullinit-response;rc=0;pmi-version=2;pmi-subversion=0;rank=1;size=2;appnum=1;"
           "debugged=FALSE;pmiverbose=FALSE;spawner-jobid=mother;\nmet 1 PMI 2.0\n");
    send_line(2, hello);
    expect(2, "cmd=fullinit;pmirank=1;", "2 hung up: its rank has another connection already\n");
    send_line(3, hello);
    expect(3, "cmd=job-getid;", "3 hung up: it has not sent its rank\n");
    conns[3] = fbr_pmi1_attach(e, &links[3], 1);
    send_line(3, hello);
    expect(3, "cmd=fullinit;pmirank=0;", "3 hung up: it names another rank than its own\n");
    conns[3] = fbr_pmi1_attach(e, &links[3], -1);
    send_line(3, hello);
    expect(3, "cmd=fullinit;threaded=FALSE;",
           "3 hung up: it names a rank that is not on this "
           "node\n");
    fbr_pmi1_close(e);
}

static void test_the_end(void **state)
{
    expect(0, "cmd=finalize;", "0<cmd=finalize-response;rc=0;\nleft 4\n");
    expect(0, "cmd=abort;isworld=FALSE;msg=only me;", ""); /* it has left already */
    expect(1, "cmd=abort;isworld=TRUE;msg=it;; is over;", "abort 5 1 [it; is over]\n");
    expect(1, "cmd=abort;exitcode=7;message=many\nlines;", "abort 5 7 [many\nlines]\n");
    expect(1, "cmd=abort;isworld=FALSE;msg=only me;", "left 5\n");
}

static void test_keys_and_values(void **state)
{
    expect(0, "cmd=job-getid;", "0<cmd=job-getid-response;rc=0;jobid=ring;\n");
    expect(0, "cmd=kvs-put;key=a b;value=;;x;;=y\n;", "0<cmd=kvs-put-response;rc=0;\n");
    expect(0, "cmd=kvs-get;jobid=ring;srcid=3;key=a b;",
           "0<cmd=kvs-get-response;rc=0;found=TRUE;value=;;x;;=y\n;\n");
    expect(1, "cmd=kvs-get;jobid=;key=a b;",
           "1<cmd=kvs-get-response;rc=0;found=TRUE;value=;;x;;=y\n;\n");
    expect(0, "cmd=kvs-get;jobid=ring;key=none;", "0<cmd=kvs-get-response;rc=0;found=FALSE;\n");
    expect(0, "cmd=kvs-get;jobid=other;key=a b;",
           "0<cmd=kvs-get-response;rc=14;errmsg=this is not the name of its own job, see "
           "job-getid;\n");
    expect(0, "cmd=kvs-put;value=x;",
           "0<cmd=kvs-put-response;rc=4;errmsg=the key is missing, too long, or contains control "
           "characters;\n");
    expect(0, "cmd=kvs-put;key=k;",
           "0<cmd=kvs-put-response;rc=6;errmsg=the value is missing or too long;\n");
    expect(0, "cmd=kvs-put;thrid=0x12;key=k;value=v;", "0<cmd=kvs-put-response;thrid=0x12;rc=0;\n");
    expect(0, "cmd=what-now;", "0<cmd=what-now-response;rc=14;errmsg=unknown command;\n");
}

static void test_the_longest_value(void **state)
{
    char text[1200], value[1026];

    memset(value, 'v', sizeof(value));
    value[1025] = 0;
    snprintf(text, sizeof(text), "cmd=kvs-put;key=k;value=%s;", value);
    expect(0, text, "0<cmd=kvs-put-response;rc=6;errmsg=the value is missing or too long;\n");
    snprintf(text, sizeof(text), "cmd=kvs-put;key=k;value=%s;", value + 1);
    expect(0, text, "0<cmd=kvs-put-response;rc=0;\n");
    ask(0, "cmd=kvs-fence;");
    ask(1, "cmd=kvs-fence;"); /* travels to the others, and is read there by the same code */
    assert_non_null(strstr(did, "fence k vvvv"));
}

static void test_a_fence_takes_what_is_new_along(void **state)
{
    struct fbr_buf all = {0}, puts = {0};

    ask(0, "cmd=kvs-put;key=a;value=1;");
    expect(0, "cmd=kvs-fence;", "");
    expect(1, "cmd=kvs-fence;", "fence a 1\n");
    fbr_put_str(&puts, "far");
    fbr_put_str(&puts, "away;");
    fbr_put_u32(&all, 7);
    fbr_put_bytes(&all, puts.data, puts.len);
    did[0] = 0;
    fbr_pmi1_fenced(engine, 0, all.data, all.len);
    assert_string_equal(did, "0<cmd=kvs-fence-response;rc=0;\n1<cmd=kvs-fence-response;rc=0;\n");
    expect(1, "cmd=kvs-get;jobid=ring;key=far;",
           "1<cmd=kvs-get-response;rc=0;found=TRUE;value=away;;;\n");
    ask(0, "cmd=kvs-fence;");
    ask(1, "cmd=kvs-fence;");
    did[0] = 0;
    fbr_pmi1_fenced(engine, -ECONNABORTED, NULL, 0);
    assert_string_equal(did, "0<cmd=kvs-fence-response;rc=14;errmsg=some ranks are gone;\n"
                             "1<cmd=kvs-fence-response;rc=14;errmsg=some ranks are gone;\n");
    fbr_buf_fini(&all);
    fbr_buf_fini(&puts);
}

/* A client with threads. */
static void test_what_is_asked_while_it_waits_is_answered_later(void **state)
{
    ask(0, "cmd=kvs-fence;thrid=0x1;");
    expect(0, "cmd=kvs-put;thrid=0x2;key=k;value=v;", "");
    expect(0, "cmd=kvs-fence;thrid=0x3;", "");
    expect(1, "cmd=kvs-fence;",
           "0<cmd=kvs-fence-response;thrid=0x1;rc=0;\n1<cmd=kvs-fence-response;rc=0;\n"
           "0<cmd=kvs-put-response;thrid=0x2;rc=0;\n");
    expect(1, "cmd=kvs-get;key=k;", "1<cmd=kvs-get-response;rc=0;found=TRUE;value=v;\n");
    expect(1, "cmd=kvs-fence;",
           "0<cmd=kvs-fence-response;thrid=0x3;rc=0;\n1<cmd=kvs-fence-response;rc=0;\n");
}

/* However many fences wait in a row, none is within the other. */
static void test_many_fences_at_once(void **state)
{
    enum { MANY = 20000 };
    char *text = malloc(MANY * 20 + 1);
    size_t count = 0;

    text[0] = 0;
    for (size_t i = 0; i < MANY; i++)
        memcpy(text + i * 20, "14    cmd=kvs-fence;", 21);
    fbr_pmi1_bytes(conns[0], text, MANY * 20);
    did[0] = 0;
    fbr_pmi1_bytes(conns[1], text, MANY * 20);
    for (const char *at = did; (at = strchr(at, '\n')); at++)
        count++;
    assert_true(count > 1000); /* as many as `did` has room for */
    send_line(0, "");
    expect(0, "cmd=job-getid;", "0<cmd=job-getid-response;rc=0;jobid=ring;\n");
    free(text);
}

static void test_a_client_that_asks_for_ever_without_being_answered(void **state)
{
    static char more[65536];

    ask(0, "cmd=kvs-fence;");
    memset(more, 'x', sizeof(more));
    did[0] = 0;
    for (int i = 0; i < 100 && !did[0]; i++)
        fbr_pmi1_bytes(conns[0], more, sizeof(more));
    assert_string_equal(did, "0 hung up: it sent too many requests before one was answered\n");
}

static void test_attributes_of_the_job(void **state)
{
    fbr_pmi1_set(engine, "PMI_process_mapping", "(vector,(0,1,9))");
    fbr_pmi1_preput(engine, "PARENT=tag#0$\n");
    expect(0, "cmd=info-getjobattr;key=universeSize;",
           "0<cmd=info-getjobattr-response;rc=0;found=TRUE;value=9;\n");
    expect(0, "cmd=info-getjobattr;key=hasNameServ;",
           "0<cmd=info-getjobattr-response;rc=0;found=TRUE;value=TRUE;\n");
    expect(0, "cmd=info-getjobattr;key=physTopology;",
           "0<cmd=info-getjobattr-response;rc=0;found=TRUE;value=hierarchical;\n");
    expect(0, "cmd=info-getjobattr;key=physTopologyLevels;",
           "0<cmd=info-getjobattr-response;rc=0;found=TRUE;value=complete,complete;\n");
    expect(0, "cmd=info-getjobattr;key=PMI_process_mapping;",
           "0<cmd=info-getjobattr-response;rc=0;found=TRUE;value=(vector,(0,1,9));\n");
    expect(0, "cmd=info-getjobattr;key=PARENT;",
           "0<cmd=info-getjobattr-response;rc=0;found=TRUE;value=tag#0$;\n");
    expect(0, "cmd=info-getjobattr;key=other;",
           "0<cmd=info-getjobattr-response;rc=0;found=FALSE;\n");
}

static void test_attributes_of_the_node(void **state)
{
    expect(0, "cmd=info-getnodeattr;key=k;wait=FALSE;",
           "0<cmd=info-getnodeattr-response;rc=0;found=FALSE;\n");
    expect(0, "cmd=info-getnodeattr;key=k;wait=TRUE;", "");
    expect(1, "cmd=info-putnodeattr;key=other;value=1;", "1<cmd=info-putnodeattr-response;rc=0;\n");
    expect(1, "cmd=info-putnodeattr;key=k;value=v;",
           "1<cmd=info-putnodeattr-response;rc=0;\n"
           "0<cmd=info-getnodeattr-response;rc=0;found=TRUE;value=v;\n");
    expect(0, "cmd=info-getnodeattr;key=k;wait=TRUE;",
           "0<cmd=info-getnodeattr-response;rc=0;found=TRUE;value=v;\n");
    expect(0, "cmd=kvs-get;key=k;", "0<cmd=kvs-get-response;rc=0;found=FALSE;\n");
    ask(0, "cmd=info-getnodeattr;key=never;wait=TRUE;"); /* is freed with the engine */
}

static void test_no_attribute_is_waited_for_once_a_rank_is_lost(void **state)
{
    expect(0, "cmd=info-getnodeattr;key=k;wait=TRUE;", "");
    did[0] = 0;
    fbr_pmi1_lost(engine);
    assert_string_equal(did, "0<cmd=info-getnodeattr-response;rc=14;errmsg=some ranks are gone;\n");
    expect(0, "cmd=info-getnodeattr;key=k;wait=TRUE;",
           "0<cmd=info-getnodeattr-response;rc=14;errmsg=some ranks are gone;\n");
    expect(1, "cmd=info-putnodeattr;key=k;value=v;", "1<cmd=info-putnodeattr-response;rc=0;\n");
    expect(0, "cmd=info-getnodeattr;key=k;wait=TRUE;",
           "0<cmd=info-getnodeattr-response;rc=0;found=TRUE;value=v;\n");
}

static void test_names(void **state)
{
    expect(0, "cmd=name-publish;name=s;port=p#1;;;infokeycount=0;", "publish 4 s p#1;\n");
    did[0] = 0;
    fbr_pmi1_answer(engine, 4, 0, NULL);
    assert_string_equal(did, "0<cmd=name-publish-response;rc=0;\n");
    expect(0, "cmd=name-lookup;name=s;", "lookup 4 s\n");
    did[0] = 0;
    fbr_pmi1_answer(engine, 4, 0, "p#1;");
    assert_string_equal(did,
                        "0<cmd=name-lookup-response;rc=0;found=TRUE;value=p#1;;;port=p#1;;;\n");
    ask(0, "cmd=name-lookup;name=t;");
    did[0] = 0;
    fbr_pmi1_answer(engine, 4, -ENOENT, NULL);
    assert_string_equal(did, "0<cmd=name-lookup-response;rc=14;errmsg=no such name;\n");
    refuse = -EIO;
    expect(0, "cmd=name-unpublish;name=s;",
           "unpublish 4 s\n0<cmd=name-unpublish-response;rc=14;errmsg=it failed;\n");
    expect(0, "cmd=name-publish;name=s;",
           "0<cmd=name-publish-response;rc=6;errmsg=the name or the port is missing, too long, or "
           "contains blanks;\n");
    expect(0, "cmd=job-connect;jobid=x;",
           "0<cmd=job-connect-response;rc=14;errmsg=PMI cannot connect jobs here: publish a port, "
           "and look it up;\n");
}

static void test_a_ring(void **state)
{
    struct fbr_pmi1_config config = {.nspace = "ring", .size = 2, .count = 2, .alone = true};
    struct fbr_pmi1 *e = fbr_pmi1_open(&ops, NULL, &config);

    for (int i = 0; i < 2; i++) {
        conns[i] = fbr_pmi1_attach(e, &links[i], i);
        send_line(i, hello);
        ask(i, "cmd=fullinit;");
    }
    expect(0, "cmd=ring;ring-count=1;ring-left=zero;ring-right=null;", "");
    expect(1, "cmd=ring;ring-count=1;ring-left=one;ring-right=eins;",
           "0<cmd=ring-response;rc=0;ring-count=0;ring-left=eins;ring-right=one;\n"
           "1<cmd=ring-response;rc=0;ring-count=1;ring-left=null;ring-right=zero;\n");
    expect(0, "cmd=ring;ring-count=1;",
           "0<cmd=ring-response;rc=6;errmsg=the value is missing or too long;\n");
    fbr_pmi1_close(e);
}

static void test_a_spawn_of_two_programs(void **state)
{
    expect(0,
           "cmd=spawn;ncmds=2;preputcount=1;ppkey0=PARENT;ppval0=tag;;0$;subcmd=./a b;maxprocs=2;"
           "argc=2;argv0=x y;argv1=z=1;infokeycount=2;infokey0=host;infoval0=h;infokey1=wdir;"
           "infoval1=/tmp;subcmd=./c;maxprocs=1;argc=0;infokeycount=0;",
           "spawn 4: 2 x ./a b x y z=1 in /tmp; 1 x ./c in -; [PARENT=tag;0$\n]\n");
    did[0] = 0;
    fbr_pmi1_answer(engine, 4, 0, "child");
    assert_string_equal(did, "0<cmd=spawn-response;rc=0;jobid=child;nerrs=0;\n");
    refuse = -ENOSYS;
    expect(0, "cmd=spawn;ncmds=1;preputcount=0;subcmd=c;maxprocs=1;argc=0;",
           "spawn 4: 1 x c in -; []\n"
           "0<cmd=spawn-response;rc=14;errmsg=the processes could not be started;\n");
}

/* What kvs-put takes, a spawn leaves for its job, too. */
static void test_the_longest_pair_for_a_spawned_job(void **state)
{
    char key[65], value[1025], text[1300], lines[1300];

    memset(key, 'k', sizeof(key) - 1);
    memset(value, 'v', sizeof(value) - 1);
    key[64] = value[1024] = 0;
    memcpy(key, "a b", 3);
    memcpy(value, "\t\xc3\xa9=", 4);
    snprintf(text, sizeof(text),
             "cmd=spawn;ncmds=1;ppkey0=%s;ppval0=%s;subcmd=c;maxprocs=1;argc=0;", key, value);
    snprintf(lines, sizeof(lines), "%s=%s\n", key, value);
    ask(0, text);
    assert_non_null(strstr(did, lines));
    assert_int_equal(fbr_pmi1_preput(engine, lines), 0);
    snprintf(text, sizeof(text), "cmd=info-getjobattr;key=%s;", key);
    ask(1, text);
    assert_non_null(strstr(did, value));
    snprintf(lines, sizeof(lines), "%sk=v\n", key);
    assert_int_equal(fbr_pmi1_preput(engine, lines), -EINVAL);
    snprintf(lines, sizeof(lines), "k=%sv\n", value);
    assert_int_equal(fbr_pmi1_preput(engine, lines), -EINVAL);
}

static void test_a_spawn_that_makes_no_sense_is_refused(void **state)
{
    static const char *const bad[] = {
        "cmd=spawn;ncmds=1;",
        "cmd=spawn;ncmds=2;subcmd=a;maxprocs=1;argc=0;",
        "cmd=spawn;ncmds=1;subcmd=a;maxprocs=1;subcmd=b;maxprocs=1;",
        "cmd=spawn;ncmds=1;subcmd=a;maxprocs=0;",
        "cmd=spawn;ncmds=1;subcmd=;maxprocs=1;",
        "cmd=spawn;ncmds=1;subcmd=a;maxprocs=1;argv7=x;",
        "cmd=spawn;ncmds=1;ppkey0=k;ppval0=two\nlines;subcmd=a;maxprocs=1;",
        "cmd=spawn;ncmds=1;ppkey0=two\nlines;ppval0=v;subcmd=a;maxprocs=1;",
        "cmd=spawn;ncmds=1;ppkey0=\tring-0-left;ppval0=v;subcmd=a;maxprocs=1;",
    };

    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        expect(0, bad[i], "0<cmd=spawn-response;rc=14;errmsg=it is malformed or too long;\n");
}

static void test_messages_may_come_in_pieces(void **state)
{
    static const char text[] = "    14cmd=job-getid;14    cmd=job-getid;";

    for (size_t i = 0; i < sizeof(text) - 1; i++) {
        did[0] = 0;
        fbr_pmi1_bytes(conns[0], text + i, 1);
        assert_string_equal(did, i == 19 || i == 39 ? "0<cmd=job-getid-response;rc=0;jobid=ring;\n"
                                                    : "");
    }
}

static void test_nonsense_is_hung_up_on(void **state)
{
    static const struct {
        const char *text, *why;
    } bad[] = {
        {"cmd=job-getid\n", "a message does not begin with its length"},
        {"     0", "a message does not begin with its length"},
        {"    -1", "a message does not begin with its length"},
        {"1 4   cmd=job-getid;", "a message does not begin with its length"},
        {"13    cmd=job-getid", "a message does not consist of \"key=value;\""},
        {"4     cmd;", "a message does not consist of \"key=value;\""},
        {"4     a=b;", "a message has no command"},
        {"5     cmd=;", "a message has no command"},
    };

    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        struct fbr_pmi1_config config = {.nspace = "ring", .size = 1, .count = 1};
        struct fbr_pmi1 *e = fbr_pmi1_open(&ops, NULL, &config);
        char expected[128];

        conns[3] = fbr_pmi1_attach(e, &links[3], 0);
        send_line(3, hello);
        send_line(3, bad[i].text);
        snprintf(expected, sizeof(expected), "3 hung up: %s\n", bad[i].why);
        assert_string_equal(did, expected);
        fbr_pmi1_close(e);
    }
}

#define two(test) cmocka_unit_test_setup_teardown(test, open_two, close_two)
#define two_alone(test) cmocka_unit_test_prestate_setup_teardown(test, open_two, close_two, &alone)

int main(void)
{
    static int alone;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_client_asks_for_version_2_and_says_who_it_is),
        two(test_the_end),
        two(test_keys_and_values),
        two(test_the_longest_value),
        two(test_a_fence_takes_what_is_new_along),
        two_alone(test_what_is_asked_while_it_waits_is_answered_later),
        two_alone(test_many_fences_at_once),
        two(test_a_client_that_asks_for_ever_without_being_answered),
        two(test_attributes_of_the_job),
        two(test_attributes_of_the_node),
        two(test_no_attribute_is_waited_for_once_a_rank_is_lost),
        two(test_names),
        cmocka_unit_test(test_a_ring),
        two(test_a_spawn_of_two_programs),
        two(test_the_longest_pair_for_a_spawned_job),
        two(test_a_spawn_that_makes_no_sense_is_refused),
        two(test_messages_may_come_in_pieces),
        cmocka_unit_test(test_nonsense_is_hung_up_on),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
