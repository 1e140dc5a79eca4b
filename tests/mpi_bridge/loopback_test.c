/* loopback_test.c - links between ranks and their agent: what a read at a rank's end takes.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include "mpi_bridge/loopback.h"

#define FLOOD (16u << 20)

static const char last[] = "the last words of a rank";
static struct fbr_loop *loop;
static struct fbr_lo_link *agents;
static int ours;
static size_t got;

/* A process that the rank has left behind writes as fast as the agent reads. */
static void on_bytes(void *user, const void *data, size_t len)
{
    got += len;
    if (got < FLOOD)
        assert_int_equal(send(ours, data, len, MSG_DONTWAIT), len);
}

static void on_gone(void *user)
{
}

static int read_once(void *arg)
{
    static const struct fbr_lo_link_ops ops = {on_bytes, on_gone};
    int pair[2], rc = socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair);

    if (rc < 0 || (rc = fbr_lo_link_open(&agents, loop, pair[0])) < 0)
        return rc;
    ours = pair[1];
    fbr_lo_link_start(agents, &ops, NULL);
    assert_int_equal(send(ours, last, sizeof(last), 0), sizeof(last));
    fbr_lo_link_read(agents);
    fbr_lo_link_close(agents);
    return 0;
}

static void test_a_read_takes_what_has_come_and_ends(void **state)
{
    assert_int_equal(fbr_loop_open(&loop, NULL), 0);
    assert_int_equal(fbr_loop_call(loop, read_once, NULL), 0);
    assert_int_equal(got, sizeof(last));
    fbr_loop_close(loop);
    close(ours);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_read_takes_what_has_come_and_ends),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
