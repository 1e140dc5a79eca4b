/* visitor.c - serves a visitor; see visitor.h.
 *
 * On a thread of its own, as disks may be slow and the loop carries the heartbeats. It ends when the visitor does, for
 * whatever reason; nobody waits for it.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "runtime/inspect/visitor.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "runtime/inspect/copy.h"
#include "runtime/base/fds.h"
#include "runtime/proc/child.h"
#include "runtime/inspect/stack.h"
#include "runtime/inspect/tree.h"

static int answer(int sock, int code, uint32_t mode, const char *text)
{
    struct fbr_copy_answer a = {.code = code, .mode = mode};
    struct fbr_buf b;
    int rc;

    snprintf(a.text, sizeof(a.text), "%s", text);
    fbr_buf_init(&b);
    fbr_copy_put_answer(&b, &a);
    rc = fbr_copy_send(sock, &b);
    fbr_buf_fini(&b);
    return rc;
}

static void serve_get(int sock, const struct fbr_copy_request *r)
{
    struct fbr_error err = {0, ""};
    uint32_t mode = 0;
    int fd = fbr_copy_open(r->path, &mode, &err), rc;

    if (fd < 0) {
        answer(sock, fd, 0, err.text);
        return;
    }
    rc = answer(sock, 0, mode, "");
    if (rc == 0)
        rc = fbr_copy_send_file(sock, fd, &err);
    if (rc == 0)
        answer(sock, 0, mode, "");
    else if (rc == -EIO)
        answer(sock, rc, 0, err.text);
    close(fd);
}

/* 0 when it is a directory, and was served. */
static int serve_get_tree(int sock, const struct fbr_copy_request *r)
{
    char name[FBR_COPY_NAME], left[200];
    struct fbr_error err = {0, ""};
    unsigned specials;
    uint32_t mode = 0;
    int fd = fbr_tree_open(r->path, &mode, name, &err), rc;

    if (fd < 0)
        return fd;
    rc = answer(sock, 0, mode | FBR_COPY_IS_TREE, name);
    if (rc == 0)
        rc = fbr_tree_send(sock, fd, &specials, &err);
    else
        close(fd);
    if (rc == -EIO) {
        answer(sock, rc, 0, err.text);
    } else if (rc == 0) {
        fbr_tree_say_left(left, sizeof(left), 0, specials);
        answer(sock, 0, 0, left);
    }
    return 0;
}

static void serve_put_tree(int sock, const struct fbr_copy_request *r)
{
    struct fbr_error err = {0, ""};
    struct fbr_tree t;
    char left[200] = "";
    int rc = fbr_fds_need(FBR_TREE_DEPTH, "a directory", &err);

    if (rc == 0)
        rc = fbr_tree_begin(&t, r->path, r->name, &err);
    if (rc < 0) {
        answer(sock, rc, 0, err.text);
        return;
    }
    if (answer(sock, 0, 0, "") < 0) {
        fbr_tree_drop(&t);
        return;
    }
    rc = fbr_tree_recv(&t, sock, &err);
    fbr_tree_say_left(left, sizeof(left), t.links, 0);
    if (rc == 0)
        rc = fbr_tree_commit(&t, r->mode, &err);
    if (rc != -EPIPE)
        answer(sock, rc, 0, rc < 0 ? err.text : left);
}

static void serve_put(int sock, const struct fbr_copy_request *r)
{
    struct fbr_error err = {0, ""};
    struct fbr_copy_file f;
    int rc = fbr_copy_begin(&f, r->path, r->name, &err);

    if (rc < 0) {
        answer(sock, rc, 0, err.text);
        return;
    }
    if (answer(sock, 0, 0, "") < 0) {
        fbr_copy_drop(&f);
        return;
    }
    rc = fbr_copy_recv_file(&f, sock, &err);
    if (rc == 0)
        rc = fbr_copy_commit(&f, r->mode, &err);
    if (rc != -EPIPE)
        answer(sock, rc, 0, err.text);
}

static void serve_stack(int sock)
{
    char host[FBR_COPY_TEXT / 2] = "";
    struct fbr_error err = {0, ""};
    struct fbr_buf b;
    int rc;

    fbr_buf_init(&b);
    rc = fbr_stack_serve(&b, &err);
    gethostname(host, sizeof(host) - 1);
    answer(sock, rc, 0, rc < 0 ? err.text : host);
    if (rc == 0 && fbr_copy_send_data(sock, b.data, b.len) == 0)
        answer(sock, 0, 0, "");
    fbr_buf_fini(&b);
}

void fbr_visitor_serve(int sock)
{
    struct fbr_copy_request r;
    int rc = fbr_copy_recv_request(sock, &r);

    if (rc == -EBADMSG)
        answer(sock, -EPROTO, 0,
               "that request is not understood here; is it another version of Fiber?");
    else if (rc == 0 && r.op == FBR_COPY_GET) {
        if (!(r.mode & FBR_COPY_IS_TREE) || serve_get_tree(sock, &r) < 0)
            serve_get(sock, &r);
    } else if (rc == 0 && r.op == FBR_COPY_PUT_TREE)
        serve_put_tree(sock, &r);
    else if (rc == 0 && r.op == FBR_COPY_STACK)
        serve_stack(sock);
    else if (rc == 0)
        serve_put(sock, &r);
    close(sock);
}

static void *run(void *arg)
{
    fbr_visitor_serve((int)(intptr_t)arg);
    return NULL;
}

int fbr_visitor_start(int sock, struct fbr_error *err)
{
    pthread_attr_t attr;
    pthread_t thread;
    sigset_t all, before;
    int rc;

    sigfillset(&all); /* signals are the program's */
    pthread_sigmask(SIG_SETMASK, &all, &before);
    pthread_attr_init(&attr);
    pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
    rc = pthread_create(&thread, &attr, run, (void *)(intptr_t)sock);
    pthread_attr_destroy(&attr);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return rc ? fbr_fail(err, -rc, "no thread for it: %s", strerror(rc)) : 0;
}
