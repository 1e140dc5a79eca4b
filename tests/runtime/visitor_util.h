/* visitor_util.h - for tests of what a visitor is asked: one on a thread of its own, and our end of it.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef TEST_VISITOR_UTIL_H
#define TEST_VISITOR_UTIL_H

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include "runtime/inspect/copy.h"
#include "runtime/inspect/visitor.h"

static pthread_t visitor;
static int ours = -1;

static void *serve(void *arg)
{
    fbr_visitor_serve((int)(intptr_t)arg);
    return NULL;
}

static void visit(void)
{
    int ends[2];

    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
    ours = ends[0];
    assert_int_equal(pthread_create(&visitor, NULL, serve, (void *)(intptr_t)ends[1]), 0);
}

/* Also when there is none. */
static void leave(void)
{
    if (ours < 0)
        return;
    close(ours);
    ours = -1;
    pthread_join(visitor, NULL);
}

static void ask(enum fbr_copy_op op, const char *path, const char *name, uint32_t mode)
{
    struct fbr_copy_request r = {.op = (uint8_t)op, .mode = mode};
    struct fbr_buf b;

    snprintf(r.path, sizeof(r.path), "%s", path);
    snprintf(r.name, sizeof(r.name), "%s", name);
    fbr_buf_init(&b);
    fbr_copy_put_request(&b, &r);
    assert_int_equal(fbr_copy_send(ours, &b), 0);
    fbr_buf_fini(&b);
}

static struct fbr_copy_answer answered(void)
{
    struct fbr_copy_answer a;

    assert_int_equal(fbr_copy_recv_answer(ours, &a), 0);
    return a;
}

#endif
