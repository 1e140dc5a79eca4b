/* agent_stdin.c - what the launcher reads goes to rank 0: written by libuv, so that a rank that
 * does not read holds up nothing but its own input.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "ring/agent_priv.h"

/* Our end of the pipe. Freed once it is closed. */
struct agent_feed {
    uv_pipe_t pipe;
    struct fbr_loop *loop;
    struct agent_rank *rank; /* NULL: it has ended */
    unsigned writing;
    bool last; /* end of file has come: close when all is written */
};

struct feed_write {
    uv_write_t req;
    struct agent_feed *feed;
    size_t len;
    char data[];
};

static void give_room(struct agent *a, size_t len)
{
    struct fbr_buf b;

    fbr_buf_init(&b);
    fbr_put_u64(&b, len);
    fbr_agent_send(a, FBR_RING_ROOM, &b);
}

static void on_closed(uv_handle_t *h)
{
    struct agent_feed *f = h->data;

    fbr_loop_release(f->loop);
    free(f);
}

static void close_feed(struct agent_feed *f)
{
    if (f->rank)
        f->rank->feed = NULL;
    f->rank = NULL;
    if (!uv_is_closing((uv_handle_t *)&f->pipe))
        uv_close((uv_handle_t *)&f->pipe, on_closed);
}

void fbr_agent_stdin_close(struct agent_rank *r)
{
    if (r->feed)
        close_feed(r->feed);
}

int fbr_agent_stdin_open(struct agent_rank *r, int *theirs, struct fbr_error *err)
{
    struct agent *a = r->job->agent;
    struct agent_feed *f;
    int fds[2];

    *theirs = -1;
    if (r->rank != 0 || !r->job->job.has_stdin || r->restarts > 0)
        return 0;
    f = calloc(1, sizeof(*f));
    if (!f || pipe2(fds, O_CLOEXEC) < 0) {
        free(f);
        return fbr_fail(err, f ? -errno : -ENOMEM, "no pipe for its input: %s",
                        fbr_strerror(errno));
    }
    f->loop = a->rt->loop;
    f->rank = r;
    f->pipe.data = f;
    uv_pipe_init(fbr_loop_uv(a->rt->loop), &f->pipe, 0);
    uv_pipe_open(&f->pipe, fds[1]);
    fbr_loop_hold(a->rt->loop);
    r->feed = f;
    *theirs = fds[0];
    return 0;
}

static void on_written(uv_write_t *req, int status)
{
    struct feed_write *w = (struct feed_write *)req;
    struct agent_feed *f = w->feed;

    f->writing--;
    if (f->rank) /* else the agent may be gone */
        give_room(f->rank->job->agent, w->len);
    free(w);
    if (status < 0 || (f->last && f->writing == 0))
        close_feed(f);
}

static struct agent_feed *find_feed(struct agent *a)
{
    struct agent_job *j;

    DL_FOREACH(a->jobs, j)
        if (j->nlocal && j->ranks[0].feed)
            return j->ranks[0].feed;
    return NULL;
}

void fbr_agent_on_stdin(struct agent *a, const void *data, size_t len)
{
    struct agent_feed *f = find_feed(a);
    struct feed_write *w;
    uv_buf_t buf;

    if (len == 0) {
        if (f && f->writing == 0)
            close_feed(f);
        else if (f)
            f->last = true;
        return;
    }
    w = f ? malloc(sizeof(*w) + len) : NULL;
    if (!w) { /* nobody reads it any more */
        give_room(a, len);
        return;
    }
    w->feed = f;
    w->len = len;
    memcpy(w->data, data, len);
    buf = uv_buf_init(w->data, (unsigned)len);
    f->writing++;
    if (uv_write(&w->req, (uv_stream_t *)&f->pipe, &buf, 1, on_written) < 0) {
        f->writing--;
        free(w);
        give_room(a, len);
    }
}
