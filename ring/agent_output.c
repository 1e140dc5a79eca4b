/* agent_output.c - sends the output of an agent's ranks to the launcher, within a window, and
 * decides which unfinished lines are shown.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "ring/agent_priv.h"

#define STDIO_BLOCK 1024 /* the buffers of all C libraries, and of Python, are multiples of it */
#define SHOW_LOOK_MS 50

static void pause_ranks(struct agent *a, bool paused)
{
    struct agent_job *j;

    DL_FOREACH(a->jobs, j)
        for (uint32_t i = 0; i < j->nlocal; i++)
            if (j->ranks[i].handle)
                a->local->pause_output(a->backend, j->ranks[i].handle, paused);
    a->full = paused;
}

static void put_output(struct agent_rank *r, int stream, bool show, const void *data, size_t len)
{
    struct fbr_buf b;

    fbr_agent_about(&b, r->job->job.info.id, r->rank);
    fbr_put_u8(&b, (uint8_t)((unsigned)stream | (show ? FBR_RING_SHOW : 0)));
    fbr_put(&b, data, len);
    fbr_agent_send(r->job->agent, FBR_RING_OUTPUT, &b);
}

static uint32_t show_ms(const struct agent_rank *r, int stream)
{
    const struct fbr_ring_job *j = &r->job->job;
    uint32_t ms = j->show_ms[stream - 1];

    return r->rank == j->reader && j->has_stdin && j->reader_ms < ms ? j->reader_ms : ms;
}

/* How long the unfinished line at the end of these bytes waits for its rest, in ms; -1: without
 * limit. A length that is a multiple of STDIO_BLOCK is a full buffer of the C library, which may
 * end anywhere: the program did not choose that end. */
static int64_t patience(const struct agent_rank *r, const struct fbr_job_event *e)
{
    if (e->len == 0 || ((const char *)e->data)[e->len - 1] == '\n' || e->len % STDIO_BLOCK == 0)
        return -1;
    return show_ms(r, e->stream);
}

/* Returns true if one more look is needed. A line does not age while we do not read from ranks. */
static bool show_pieces(struct agent_job *j, uint64_t now)
{
    bool more = false;

    for (uint32_t i = 0; i < j->nlocal; i++)
        for (int k = 0; k < 2; k++) {
            uint64_t *since = &j->ranks[i].piece_ms[k];

            if (*since && j->agent->full)
                *since = now;
            if (*since && now - *since >= show_ms(&j->ranks[i], k + 1)) {
                *since = 0;
                put_output(&j->ranks[i], k + 1, true, "", 0);
            }
            more |= *since != 0;
        }
    return more;
}

static void on_show(void *arg)
{
    struct agent *a = arg;
    uint64_t now = fbr_now_ms();
    struct agent_job *j;
    bool more = false;

    DL_FOREACH(a->jobs, j)
        more |= show_pieces(j, now);
    if (!more)
        fbr_timer_stop(&a->show);
}

static void show_later(struct agent *a)
{
    if (fbr_timer_runs(&a->show) || fbr_timer_init(&a->show, a->rt->loop, on_show, a) < 0)
        return;
    fbr_timer_start(&a->show, SHOW_LOOK_MS, SHOW_LOOK_MS);
}

void fbr_agent_send_output(struct agent_rank *r, const struct fbr_job_event *e)
{
    struct agent *a = r->job->agent;
    int64_t wait = patience(r, e);
    uint64_t *since = &r->piece_ms[e->stream == 2];

    put_output(r, e->stream, wait == 0, e->data, e->len);
    *since = wait > 0 ? fbr_now_ms() : 0;
    if (wait > 0)
        show_later(a);
    a->unwritten += e->len;
    if (!a->full && a->unwritten > FBR_RING_WINDOW)
        pause_ranks(a, true);
}

void fbr_agent_on_credit(struct agent *a, struct fbr_cur *body)
{
    uint64_t bytes = fbr_get_u64(body);

    a->unwritten = bytes < a->unwritten ? a->unwritten - bytes : 0;
    if (a->full && a->unwritten < FBR_RING_WINDOW / 2)
        pause_ranks(a, false);
}
