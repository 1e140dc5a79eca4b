/* exec_server.c - serves an exec client of a process.
 *
 * Each client has a thread of its own, because disks may be slow and the loop carries the
 * heartbeats. The thread ends when the request is done or the client hangs up; no other thread
 * waits for it.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdint.h>
#include <unistd.h>

#include "runtime/inspect/exec.h"
#include "runtime/base/fds.h"
#include "runtime/base/sync.h"
#include "runtime/proc/child.h"
#include "runtime/inspect/stack.h"
#include "runtime/inspect/tree.h"

static int get(int sock, const struct fbr_msg_item *r, char text[FBR_MSG_TEXT],
               struct fbr_error *err)
{
    unsigned specials = 0;
    char name[FBR_MSG_NAME];
    uint32_t mode = 0;
    int fd = fbr_tree_open(r->path[0] ? r->path : ".", &mode, name, err), rc;

    if (fd < 0)
        return fd;
    rc = fbr_msg_send_item(sock, FBR_MSG_READY, mode, name, "");
    if (rc == 0)
        rc = fbr_tree_send(sock, fd, mode, &specials, err);
    else
        close(fd);
    fbr_tree_describe_left(text, FBR_MSG_TEXT, 0, specials);
    return rc;
}

static int put(int sock, const struct fbr_msg_item *r, char text[FBR_MSG_TEXT],
               struct fbr_error *err)
{
    struct fbr_tree t;
    int rc = r->mode & FBR_MSG_IS_TREE ? fbr_fds_need(FBR_TREE_DEPTH, "a directory", err) : 0;

    if (rc < 0 || (rc = fbr_tree_begin(&t, r->path, r->name, r->mode, err)) < 0)
        return rc;
    rc = fbr_msg_send_item(sock, FBR_MSG_READY, 0, "", "");
    if (rc < 0) {
        fbr_tree_drop(&t);
        return rc;
    }
    rc = fbr_tree_recv(&t, sock, err);
    fbr_tree_describe_left(text, FBR_MSG_TEXT, t.links, 0);
    return rc < 0 ? rc : fbr_tree_commit(&t, err);
}

static int stack(int sock, char text[FBR_MSG_TEXT], struct fbr_error *err)
{
    struct fbr_buf b = {0};
    int rc;

    rc = fbr_stack_serve(&b, err);
    gethostname(text, FBR_MSG_TEXT / 2);
    if (rc == 0)
        rc = fbr_msg_send_data(sock, b.data, b.len);
    fbr_buf_fini(&b);
    return rc;
}

static int exec(int sock, struct fbr_cur *body, struct fbr_error *err)
{
    struct fbr_exec_request r;
    int rc = fbr_exec_get(body, &r);

    if (rc < 0)
        fbr_fail(err, rc, "%s", fbr_strerror(rc));
    else
        rc = fbr_exec_serve(sock, &r, err);
    fbr_list_free(r.argv);
    return rc;
}

static int do_it(int sock, struct fbr_msg *m, char text[FBR_MSG_TEXT], struct fbr_error *err)
{
    struct fbr_msg_item i;

    if (m->kind == FBR_MSG_STACK)
        return stack(sock, text, err);
    if (m->kind == FBR_MSG_EXEC)
        return exec(sock, &m->body, err);
    if ((m->kind != FBR_MSG_GET && m->kind != FBR_MSG_PUT) || !fbr_msg_get_item(&m->body, &i))
        return fbr_fail(err, -EPROTO,
                        "that request is not understood here; is it another version of Fiber?");
    return m->kind == FBR_MSG_GET ? get(sock, &i, text, err) : put(sock, &i, text, err);
}

void fbr_exec_server_serve(int sock)
{
    struct fbr_error err = {0, ""};
    char text[FBR_MSG_TEXT] = "";
    struct fbr_msg m = {.kind = 0};
    int rc = fbr_msg_recv(sock, &m, &err);

    if (rc >= 0)
        rc = do_it(sock, &m, text, &err);
    if (rc != -ECONNRESET)
        fbr_msg_send_done(sock, rc, err.code ? err.text : text);
    fbr_buf_fini(&m.bytes);
    close(sock);
}

static void *run(void *arg)
{
    fbr_exec_server_serve((int)(intptr_t)arg);
    return NULL;
}

void fbr_exec_server_put_use(struct fbr_buf *use)
{
    uint64_t cpu_ns = 0, resident = 0;
    char host[64] = "";

    fbr_stack_usage(getpid(), &cpu_ns, &resident);
    gethostname(host, sizeof(host) - 1);
    fbr_put_u64(use, cpu_ns);
    fbr_put_u64(use, resident);
    fbr_put_str(use, host);
}

void fbr_exec_server_refuse(struct fbr_buf *answer, int code, const char *why)
{
    fbr_msg_put_done(answer, code, why);
}

int fbr_exec_server_start(int sock, struct fbr_error *err)
{
    int rc = fbr_thread_start(NULL, run, (void *)(intptr_t)sock);

    return rc < 0 ? fbr_fail(err, rc, "cannot start a thread for the request: %s", fbr_strerror(rc))
                  : 0;
}
