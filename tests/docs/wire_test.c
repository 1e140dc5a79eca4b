/* wire_test.c - the numbers in docs/wire.md are those of the headers.
 *
 * A row of a table there that begins with a number and a name, or a constant and its value, is
 * looked for by both.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "pool/dispatch.h"
#include "pool/pool_wire.h"
#include "runtime/net/relay.h"
#include "ring/plan.h"
#include "ring/ring_wire.h"
#include "runtime/net/conn_priv.h"
#include "runtime/inspect/run_control_wire.h"
#include "runtime/proc/fnref.h"
#include "runtime/proc/subjobs.h"
#include "runtime/net/sock.h"
#include "runtime/inspect/stack.h"
#include "runtime/proc/ticket.h"
#include "runtime/inspect/exec.h"
#include "runtime/inspect/tree.h"
#include "runtime/proc/tunnel.h"
#include "share/channel.h"
#include "share/service_process.h"
#include "share/manager.h"
#include "share/rpc.h"
#include "share/store_wire.h"

struct row {
    long long number;
    const char *name;
};

static char *page;

static int open_page(void **state)
{
    const char *source = getenv("TEST_SOURCE_DIR");
    char path[4096];
    FILE *f;
    size_t n;

    snprintf(path, sizeof(path), "%s/docs/wire.md", source ? source : ".");
    f = fopen(path, "r");
    page = calloc(1, 1u << 20);
    if (!f || !page)
        return -1;
    n = fread(page, 1, (1u << 20) - 1, f);
    fclose(f);
    return n ? 0 : -1;
}

static int close_page(void **state)
{
    free(page);
    return 0;
}

static void expect(const char *row)
{
    if (!strstr(page, row))
        fail_msg("docs/wire.md has no row that begins \"%s\"", row + 1);
}

static void expect_numbers(const struct row *rows, size_t n)
{
    char text[128];

    for (size_t i = 0; i < n; i++) {
        snprintf(text, sizeof(text), "\n| %lld | %s", rows[i].number, rows[i].name);
        expect(text);
    }
}

static void expect_constants(const struct row *rows, size_t n)
{
    char text[128];

    for (size_t i = 0; i < n; i++) {
        snprintf(text, sizeof(text), "\n| %s | %lld |", rows[i].name, rows[i].number);
        expect(text);
    }
}

#define COUNT(rows) (sizeof(rows) / sizeof(rows[0]))

static void test_frames_have_the_numbers_of_the_page(void **state)
{
    static const struct row rows[] = {
        {FBR_FRAME_START, "START |"},
        {FBR_FRAME_EXIT, "EXIT |"},
        {FBR_FRAME_READY, "READY |"},
        {FBR_FRAME_LOOK, "LOOK |"},
        {FBR_FRAME_USE, "USE |"},
        {FBR_POOL_RECALL, "RECALL |"},
        {FBR_POOL_CANCEL, "CANCEL |"},
        {FBR_POOL_STOP, "STOP |"},
        {FBR_POOL_RETURNED, "RETURNED"},
        {FBR_POOL_TAKEN, "TAKEN |"},
        {FBR_SUBJOB_START, "SUBJOB_START"},
        {FBR_SUBJOB_SIGNAL, "SUBJOB_SIGNAL"},
        {FBR_SUBJOB_PAUSE, "SUBJOB_PAUSE"},
        {FBR_SUBJOB_EVENT, "SUBJOB_EVENT"},
        {FBR_FRAME_PEER, "PEER |"},
        {FBR_FRAME_CLOSE, "CLOSE |"},
        {FBR_CALLER_JOB, "JOB |"},
        {FBR_CALLER_PEER, "PEER |"},
        {FBR_TUNNEL_OPEN, "TUNNEL_OPEN"},
        {FBR_TUNNEL_DATA, "TUNNEL_DATA"},
        {FBR_TUNNEL_CREDIT, "TUNNEL_CREDIT"},
        {FBR_TUNNEL_END, "TUNNEL_END"},
    };

    expect_numbers(rows, COUNT(rows));
    assert_int_equal(FBR_JOB_PENDING, 0);
    assert_int_equal(FBR_JOB_STARTED, 1);
    assert_int_equal(FBR_JOB_OUTPUT, 2);
    assert_int_equal(FBR_JOB_EXITED, 3);
}

static void test_rings_have_the_numbers_of_the_page(void **state)
{
    static const struct row rows[] = {
        {FBR_RING_JOB, "JOB |"},         {FBR_RING_SIGNAL, "SIGNAL |"},
        {FBR_RING_ANSWER, "ANSWER |"},   {FBR_RING_NOTIFY, "NOTIFY |"},
        {FBR_RING_STREAM, "STREAM |"},   {FBR_RING_STDIN, "STDIN |"},
        {FBR_RING_CREDIT, "CREDIT |"},   {FBR_RING_LOST, "LOST |"},
        {FBR_RING_AGAIN, "AGAIN |"},     {FBR_RING_JOB_END, "JOB_END |"},
        {FBR_RING_LOOK, "LOOK |"},       {FBR_RING_END, "END |"},
        {FBR_RING_HELLO, "HELLO |"},     {FBR_RING_NOTE, "NOTE |"},
        {FBR_RING_STARTED, "STARTED |"}, {FBR_RING_FAILED, "FAILED |"},
        {FBR_RING_EXITED, "EXITED |"},   {FBR_RING_OUTPUT, "OUTPUT |"},
        {FBR_RING_MET, "MET |"},         {FBR_RING_ABORT, "ABORT |"},
        {FBR_RING_FENCE, "FENCE |"},     {FBR_RING_PUBLISH, "PUBLISH |"},
        {FBR_RING_LOOKUP, "LOOKUP |"},   {FBR_RING_UNPUBLISH, "UNPUBLISH |"},
        {FBR_RING_SPAWN, "SPAWN |"},     {FBR_RING_STREAM_OPEN, "STREAM_OPEN |"},
        {FBR_RING_ROOM, "ROOM |"},       {FBR_RING_USE, "USE |"},
        {FBR_RING_MISSED, "MISSED |"},   {FBR_RING_WAITS, "WAITS |"},
        {FBR_RING_RESIZE, "RESIZE |"},
    };

    expect_numbers(rows, COUNT(rows));
}

static void test_records_have_the_numbers_of_the_page(void **state)
{
    static const struct row rows[] = {
        {FBR_TASKS, "TASKS |"},
        {FBR_TASKS_ALONE, "TASKS_ALONE |"},
        {FBR_RESULTS, "RESULTS |"},
        {FBR_LAST, "LAST |"},
        {FBR_COMMON, "COMMON |"},
        {FBR_FORGET, "FORGET |"},
        {FBR_RELAY_KEEP, "KEEP |"},
        {FBR_RELAY_GIVE, "GIVE |"},
        {FBR_RELAY_DROP, "DROP |"},
        {FBR_KIND_QUEUE, "QUEUE |"},
        {FBR_KIND_PIPE, "PIPE |"},
        {FBR_KIND_MANAGER, "MANAGER |"},
        {FBR_KIND_STORE, "STORE |"},
        {FBR_CH_PUTS, "PUTS |"},
        {FBR_CH_CANCEL, "CANCEL | u64 batch |"},
        {FBR_CH_ASK, "ASK |"},
        {FBR_CH_RETURNED, "RETURNED |"},
        {FBR_CH_SHUT, "SHUT |"},
        {FBR_CH_LEAVE, "LEAVE |"},
        {FBR_CH_ATTACH, "ATTACH |"},
        {FBR_CH_SIZE, "SIZE |"},
        {FBR_CH_ACK, "ACK |"},
        {FBR_CH_DELIVER, "DELIVER |"},
        {FBR_CH_RECALL, "RECALL |"},
        {FBR_CH_EMPTY, "EMPTY |"},
        {FBR_CH_EOF, "EOF |"},
        {FBR_CH_AHEAD, "AHEAD |"},
        {FBR_CH_DONE, "DONE |"},
        {FBR_CH_JOIN, "JOIN |"},
        {FBR_CH_DEAL, "DEAL |"},
        {FBR_RPC_CALL, "CALL |"},
        {FBR_RPC_CANCEL, "CANCEL: "},
        {FBR_RPC_LEAVE, "LEAVE: "},
        {FBR_AEAD_AES_256_GCM, "AES"},
        {FBR_AEAD_CHACHA20_POLY1305, "ChaCha20-Poly1305"},
    };

    expect_numbers(rows, COUNT(rows));
}

static void test_run_control_has_the_numbers_of_the_page(void **state)
{
    static const struct row rows[] = {
        {FBR_RUN_CONTROL_STATUS, "STATUS |"},  {FBR_RUN_CONTROL_SIGNAL, "SIGNAL |"},
        {FBR_RUN_CONTROL_STOP, "STOP | ends"}, {FBR_RUN_CONTROL_SCALE, "SCALE |"},
        {FBR_RUN_CONTROL_TUNNEL, "TUNNEL |"},  {FBR_RUN_CONTROL_RUN, "RUN |"},
        {FBR_RUN_CONTROL_RANK, "RANK |"},      {FBR_RUN_CONTROL_DONE, "DONE |"},
    };

    expect_numbers(rows, COUNT(rows));
    assert_int_equal(FBR_RUN_RING, 0);
    assert_int_equal(FBR_RUN_POOL, 1);
    assert_int_equal(FBR_RUN_PROGRAM, 2);
}

static void test_messages_of_a_tunnel_have_the_numbers_of_the_page(void **state)
{
    static const struct row rows[] = {
        {FBR_MSG_GET, "GET |"},     {FBR_MSG_PUT, "PUT |"},     {FBR_MSG_STACK, "STACK |"},
        {FBR_MSG_DATA, "DATA |"},   {FBR_MSG_READY, "READY |"}, {FBR_MSG_DONE, "DONE |"},
        {FBR_MSG_DIR, "DIR |"},     {FBR_MSG_FILE, "FILE |"},   {FBR_MSG_LINK, "LINK |"},
        {FBR_MSG_UP, "UP |"},       {FBR_MSG_EXEC, "EXEC |"},   {FBR_MSG_ERRORS, "ERRORS |"},
        {FBR_MSG_TAKEN, "TAKEN |"},
    };

    expect_numbers(rows, COUNT(rows));
}

static void test_requests_of_a_store_have_the_numbers_of_the_page(void **state)
{
    static const char *const names[] = {
        "SET",     "GET",     "SWAP",      "DELETE",      "KEYS",       "ADD",
        "PUSH",    "POP",     "AT",        "LENGTH",      "LOCK",       "UNLOCK",
        "ACQUIRE", "RELEASE", "EVENT_SET", "EVENT_CLEAR", "EVENT_WAIT", "BARRIER"};

    assert_int_equal(COUNT(names), FBR_STORE_OPS - 1);
    for (size_t i = 0; i < COUNT(names); i++) {
        char text[64];

        snprintf(text, sizeof(text), "\n| %zu | %s |", i + FBR_STORE_SET, names[i]);
        expect(text);
    }
}

static void test_limits_have_the_values_of_the_page(void **state)
{
#define LIMIT(name)              \
    {                            \
        (long long)(name), #name \
    }
    static const struct row rows[] = {LIMIT(FBR_LISTENER_HALF_OPEN),
                                      LIMIT(FBR_FRAME_MAX),
                                      LIMIT(FBR_URL_MAX),
                                      LIMIT(FBR_KEY_SIZE),
                                      LIMIT(FBR_HELLO_SIZE),
                                      LIMIT(FBR_TLS_IDENTITY_MAX),
                                      LIMIT(FBR_TLS_HANDSHAKE_MAX),
                                      LIMIT(FBR_TICKET_MAX),
                                      LIMIT(FBR_NAME_MAX),
                                      LIMIT(FBR_DIR_MAX),
                                      LIMIT(FBR_FNREF_ID_MAX),
                                      LIMIT(FBR_MUX_VERSION),
                                      LIMIT(FBR_MUX_MAX),
                                      LIMIT(FBR_SOCK_MAX),
                                      LIMIT(FBR_AEAD_TAG),
                                      LIMIT(FBR_DISPATCH_BATCH_MAX),
                                      LIMIT(FBR_CH_BATCH_MAX),
                                      LIMIT(FBR_STORE_NAME_MAX),
                                      LIMIT(FBR_PLAN_RANKS),
                                      LIMIT(FBR_RING_WINDOW),
                                      LIMIT(FBR_RING_STDIN_WINDOW),
                                      LIMIT(FBR_TUNNEL_WINDOW),
                                      LIMIT(FBR_TUNNELS_MAX),
                                      LIMIT(FBR_STACK_FRAMES),
                                      LIMIT(FBR_STACK_THREADS),
                                      LIMIT(FBR_MSG_MAX),
                                      LIMIT(FBR_EXEC_WINDOW),
                                      LIMIT(FBR_TREE_DEPTH),
                                      LIMIT(FBR_RUN_CONTROL_VERSION),
                                      LIMIT(FBR_RUN_CONTROL_REQUEST_MAX),
                                      LIMIT(FBR_RUN_CONTROL_ANSWER_MAX)};

    expect_constants(rows, COUNT(rows));
    assert_int_equal(sizeof(struct fiber_address), 192);
}

static void test_magic_numbers_are_those_of_the_page(void **state)
{
    static const uint32_t magics[] = {FBR_HELLO_MAGIC, FBR_WORKER_MAGIC, FBR_HOST_MAGIC,
                                      FBR_MANAGER_MAGIC};

    for (size_t i = 0; i < COUNT(magics); i++) {
        char text[16];

        snprintf(text, sizeof(text), "0x%08x", magics[i]);
        assert_non_null(strstr(page, text));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_frames_have_the_numbers_of_the_page),
        cmocka_unit_test(test_rings_have_the_numbers_of_the_page),
        cmocka_unit_test(test_records_have_the_numbers_of_the_page),
        cmocka_unit_test(test_run_control_has_the_numbers_of_the_page),
        cmocka_unit_test(test_messages_of_a_tunnel_have_the_numbers_of_the_page),
        cmocka_unit_test(test_requests_of_a_store_have_the_numbers_of_the_page),
        cmocka_unit_test(test_limits_have_the_values_of_the_page),
        cmocka_unit_test(test_magic_numbers_are_those_of_the_page),
    };

    return cmocka_run_group_tests(tests, open_page, close_page);
}
