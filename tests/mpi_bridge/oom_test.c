/* oom_test.c - memory that is short while ranks call: they are served when there is some again.
 *
 * The linker replaces malloc and its like.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include "mpi_bridge/loopback.h"
#include "tests/support/sync.h"

static atomic_bool short_of_memory; /* all requests of all threads are */
static atomic_uint refused;

static bool refuse(void)
{
    bool no = atomic_load(&short_of_memory);

    refused += no;
    return no;
}

#include "tests/support/wrapped_malloc.h"

/* ---- a port on the loopback ---- */

static struct fbr_loop *loop;
static struct fbr_lo_listener *listener;

static void on_link(void *user, struct fbr_lo_link *link)
{
    fbr_lo_link_close(link);
}

static int open_port(void *arg)
{
    return fbr_lo_listener_open(&listener, loop, on_link, NULL, NULL);
}

static int close_port(void *arg)
{
    fbr_lo_listener_close(listener);
    return 0;
}

/* A caller comes when there is no memory for its connection. It and the next one are served when
 * there is some again. */
static void test_callers_of_a_port(void **state)
{
    struct sockaddr_in in = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    struct pollfd p[2];
    unsigned before;

    assert_int_equal(fbr_loop_open(&loop, NULL), 0);
    assert_int_equal(fbr_loop_call(loop, open_port, NULL), 0);
    in.sin_port = htons(fbr_lo_listener_port(listener));
    before = atomic_load(&refused);
    atomic_store(&short_of_memory, true);
    for (int i = 0; i < 2; i++) {
        p[i] = (struct pollfd){.fd = socket(AF_INET, SOCK_STREAM, 0), .events = POLLIN};
        assert_int_equal(connect(p[i].fd, (struct sockaddr *)&in, sizeof(in)), 0);
    }
    while (atomic_load(&refused) == before)
        sched_yield();
    atomic_store(&short_of_memory, false);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(poll(&p[i], 1, TEST_LONG_MS), 1); /* the end, by on_link() */
        close(p[i].fd);
    }
    fbr_loop_call(loop, close_port, NULL);
    fbr_loop_close(loop);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_callers_of_a_port),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
