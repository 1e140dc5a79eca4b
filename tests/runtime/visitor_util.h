/* visitor_util.h - for tests of what a visitor is asked: one on a thread of its own, and our end of it.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include "runtime/inspect/message.h"
#include "runtime/inspect/exec.h"

static pthread_t visitor;
static int ours = -1;

static void *serve(void *arg)
{
    fbr_exec_server_serve((int)(intptr_t)arg);
    return NULL;
}

static void tunnel(void)
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

static inline void ask(enum fbr_msg_kind kind, const char *path, const char *name, uint32_t mode)
{
    assert_int_equal(fbr_msg_send_item(ours, kind, mode, name, path), 0);
}

/* The next message is READY; answers its item. */
static inline struct fbr_msg_item ready(void)
{
    struct fbr_msg m = {.kind = 0};
    struct fbr_error err = {0, ""};
    struct fbr_msg_item i;

    if (fbr_msg_expect(ours, &m, FBR_MSG_READY, &err) < 0)
        fail_msg("%s", err.text);
    assert_true(fbr_msg_get_item(&m.body, &i));
    fbr_buf_fini(&m.bytes);
    return i;
}

/* The next message is DONE with that code; part is in its text. */
static inline void expect_done(int code, const char *part)
{
    struct fbr_msg m = {.kind = 0};
    struct fbr_error err = {0, ""};
    char text[FBR_MSG_TEXT] = "";
    int rc = fbr_msg_recv(ours, &m, &err), got = rc;

    if (rc == FBR_MSG_DONE)
        assert_true(fbr_msg_get_done(&m.body, &got, text));
    assert_int_equal(got, code);
    if (!strstr(rc < 0 ? err.text : text, part))
        fail_msg("\"%s\" is not in \"%s\"", part, rc < 0 ? err.text : text);
    fbr_buf_fini(&m.bytes);
}
