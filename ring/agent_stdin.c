/* agent_stdin.c - passes the launcher's standard input to one rank. libuv writes it, so a rank that
 * does not read holds up only its own input.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#include "ring/agent_priv.h"
#include "runtime/base/fds.h"

#define END_OF_FILE "\004" /* Ctrl-D */
#define END_AGAIN_MS 500

/* Our end of the pipe. Freed after it is closed. */
struct agent_feed {
    uv_pipe_t pipe;
    struct fbr_loop *loop;
    struct agent_rank *rank; /* NULL: the rank has ended */
    size_t writing;          /* bytes that are not written yet */
    bool last;               /* end of file has come: close when all is written */
    /* On a terminal the end of file is typed, and repeated: a program that changes the
     * terminal's mode at its start loses what was typed before. */
    struct fbr_timer typing;
};

static void send_credit(struct agent *a, size_t len)
{
    struct fbr_buf b = {0};

    fbr_put_u64(&b, len);
    fbr_agent_send(a, FBR_RING_ROOM, &b);
}

static void on_closed(uv_handle_t *h)
{
    struct agent_feed *f = h->data;

    fbr_loop_release(f->loop);
    free(f);
}

/* Bytes that are not written count as taken. */
static void close_feed(struct agent_feed *f)
{
    if (f->rank && f->writing)
        send_credit(f->rank->job->agent, f->writing);
    if (f->rank)
        f->rank->feed = NULL;
    f->rank = NULL;
    fbr_timer_fini(&f->typing);
    if (!uv_is_closing((uv_handle_t *)&f->pipe))
        uv_close((uv_handle_t *)&f->pipe, on_closed);
}

void fbr_agent_stdin_close(struct agent_rank *r)
{
    if (r->feed)
        close_feed(r->feed);
    fbr_agent_pty_close(r);
}

static int open_feed(struct agent_rank *r, int fd)
{
    struct agent *a = r->job->agent;
    struct agent_feed *f = fd < 0 ? NULL : calloc(1, sizeof(*f));

    if (!f) {
        fbr_fds_close(fd);
        return -ENOMEM;
    }
    f->loop = a->rt->loop;
    f->rank = r;
    f->pipe.data = f;
    uv_pipe_init(fbr_loop_uv(a->rt->loop), &f->pipe, 0);
    uv_pipe_open(&f->pipe, fd);
    fbr_loop_hold(a->rt->loop);
    r->feed = f;
    return 0;
}

int fbr_agent_stdin_open(struct agent_rank *r, int *theirs, struct fbr_error *err)
{
    const struct fbr_ring_job *j = &r->job->job;
    int fds[2] = {-1, -1}, rc = 0;

    *theirs = -1;
    if (!j->has_stdin || r->rank != j->reader || (r->restarts > 0 && !j->pty))
        return 0;
    if (j->pty) {
        rc = fbr_agent_pty_open(r, theirs, err);
        if (rc < 0)
            return rc;
        fds[1] = fcntl(r->pty, F_DUPFD_CLOEXEC, 0);
    } else if (pipe2(fds, O_CLOEXEC) < 0) {
        return fbr_fail(err, -errno, "cannot create a pipe for its standard input: %s",
                        fbr_strerror(errno));
    } else {
        *theirs = fds[0];
    }
    rc = open_feed(r, fds[1]);
    return rc < 0 ? fbr_fail(err, rc, "out of memory for its standard input") : 0;
}

static void on_written(void *arg, int status, size_t len)
{
    struct agent_feed *f = arg;

    f->writing -= len;
    if (f->rank) /* without a rank, the agent may be gone too */
        send_credit(f->rank->job->agent, len);
    if (status < 0 || (f->last && f->writing == 0))
        close_feed(f);
}

static struct agent_feed *find_feed(struct agent *a)
{
    struct agent_job *j;

    DL_FOREACH(a->jobs, j) {
        struct agent_rank *r = fbr_agent_rank_find(j, j->job.reader);

        if (r && r->feed)
            return r->feed;
    }
    return NULL;
}

static void send_bytes(struct agent_feed *f, const void *data, size_t len)
{
    if (fbr_stream_write((uv_stream_t *)&f->pipe, data, len, on_written, f) > 0)
        f->writing += len;
    else
        send_credit(f->rank->job->agent, len);
}

static void type_end(void *arg)
{
    struct agent_feed *f = arg;

    if (f->writing == 0)
        send_bytes(f, END_OF_FILE, 1);
}

static void end_input(struct agent_feed *f)
{
    if (f->rank->pty) {
        send_bytes(f, END_OF_FILE, 1);
        if (fbr_timer_init(&f->typing, f->loop, type_end, f) == 0)
            fbr_timer_start(&f->typing, END_AGAIN_MS, END_AGAIN_MS);
    } else if (f->writing == 0) {
        close_feed(f);
    } else {
        f->last = true;
    }
}

void fbr_agent_on_stdin(struct agent *a, struct fbr_cur *body)
{
    struct agent_feed *f = find_feed(a);
    size_t len = fbr_cur_left(body);

    /* no rank reads it any more */
    if (!f)
        send_credit(a, len);
    else if (len == 0)
        end_input(f);
    else
        send_bytes(f, body->at, len);
}
