/* client_direct.c - the end of a pipe in another process than its owner: its own stream; see
 * direct.h.
 *
 * A client that has used its end a few times listens and asks its owner to connect. If the owner
 * agrees, it sends by the stream from then on; the client does so after a GO. The owner does not
 * agree while a message is on its way to the client, so no message of the stream overtakes another
 * message. So the client asks at a time when no message should be on its way: before it sends the
 * answer to the message that it got, or, if it only gets, while it waits.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdlib.h>

#include "runtime/base/fds.h"
#include "share/client_priv.h"

#define FIRST_ASK 8 /* messages: with fewer, a stream does not pay */
#define STEP_MAX 65536
#define FDS_FREE 128 /* descriptors that stay free for other uses */

void fbr_client_ask_stream(struct client_lane *l)
{
    struct fbr_client *g = l->client;
    int end = !l->number;
    char path[FBR_DIRECT_PATH];
    uint8_t token[FBR_DIRECT_TOKEN];
    struct fbr_error err;
    struct fbr_buf b = {0};

    if (!g->beside[0] || g->direct || g->no_direct || g->gone || g->used < FIRST_ASK ||
        g->used < g->next || !g->lanes[end].putters || g->lanes[!end].putters ||
        fbr_fds_need(FDS_FREE, "a pipe", &err) < 0)
        return;
    g->step = g->step ? g->step < STEP_MAX ? 4 * g->step : g->step : FIRST_ASK;
    g->next = g->used + g->step;
    if (fbr_direct_listen(&g->direct, g->beside, g->longest, path, token) < 0)
        return;
    g->near = end;
    g->asked = true;
    fbr_put(&b, token, sizeof(token));
    fbr_put_str(&b, path);
    if (b.failed || fbr_client_notify(&g->lanes[end], FBR_CH_DIRECT, b.data, b.len) < 0) {
        fbr_direct_unref(g->direct);
        g->direct = NULL;
        g->asked = false;
    }
    if (b.data)
        fbr_wipe(b.data, b.len);
    fbr_buf_fini(&b);
    fbr_wipe(token, sizeof(token));
}

/* Moves the messages of the stream to `spilled`. -ENOMEM: the rest is still in the stream. Under rx
 * and the lock. */
static int spill(struct fbr_client *g)
{
    struct client_message **at = &g->spilled, *m;
    struct fiber_bytes b;
    int rc;

    while (*at)
        at = &(*at)->next;
    fbr_direct_shut(g->direct);
    for (;;) {
        m = calloc(1, sizeof(*m));
        rc = m ? fbr_direct_take(g->direct, &b) : -ENOMEM;
        if (rc < 0)
            break;
        *m = (struct client_message){.data = b.data, .len = b.len};
        *at = m;
        at = &m->next;
    }
    free(m);
    g->streams_in = rc == -ENOMEM;
    return g->streams_in ? rc : 0;
}

struct client_message *fbr_client_unspill(struct fbr_client *g)
{
    struct client_message *m = g->spilled;

    if (m)
        g->spilled = m->next;
    return m;
}

void fbr_client_drop_stream(struct fbr_client *g)
{
    fbr_direct_unref(g->direct);
    g->direct = NULL;
    g->streams_in = g->streams_out = false;
}

void fbr_client_on_direct(struct client_lane *l, struct fbr_cur *c)
{
    uint32_t agreed = fbr_get_u32(c);
    struct fbr_client *g = l->client;
    struct fbr_direct *d = g->direct;

    if (!fbr_cur_ok(c) || !g->asked || (int)l->number != g->near)
        return;
    g->asked = false;
    pthread_cond_broadcast(&l->room);
    if (!agreed) {
        fbr_client_drop_stream(g);
        return;
    }
    g->streams_in = true;
    fbr_direct_lock(d, UINT64_MAX); /* no other thread holds this lock */
    if (g->no_direct)
        spill(g);
    else
        g->streams_out = fbr_direct_open(d) == 0;
    fbr_direct_unlock(d);
    if (g->streams_out && !fbr_client_put_fault(l))
        g->streams_out = fbr_client_flush_out(l, false) == 0;
    if (g->streams_out)
        g->streams_out = fbr_client_notify(l, FBR_CH_GO, NULL, 0) == 0;
    pthread_cond_broadcast(&g->lanes[!l->number].arrived);
    fbr_client_show(&g->lanes[!l->number]);
}

bool fbr_client_reads_stream(const struct client_lane *l)
{
    const struct fbr_client *g = l->client;

    return g->streams_in && !g->spilled && (int)l->number != g->near;
}

bool fbr_client_writes_stream(const struct client_lane *l)
{
    const struct fbr_client *g = l->client;

    return g->streams_out && (int)l->number == g->near && !fbr_direct_stopped(g->direct);
}

/* The stream has ended: later messages come another way, and our own go that way too. */
static void end_of_stream(struct fbr_client *g, struct fbr_direct *d)
{
    if (g->direct != d)
        return;
    g->streams_in = false;
    fbr_direct_stop(d);
    if (fbr_direct_stopped(d))
        fbr_client_drop_stream(g);
}

static bool is_left(struct fbr_client *g, struct fbr_direct *d)
{
    bool left;

    pthread_mutex_lock(&g->lock);
    left = g->leaving || g->direct != d || !g->streams_in;
    pthread_mutex_unlock(&g->lock);
    return left;
}

int fbr_client_get_direct(struct client_lane *l, struct fbr_direct *d, struct fiber_bytes *out,
                          uint64_t deadline)
{
    struct fbr_client *g = l->client;
    bool late = false;
    int rc = fbr_direct_lock(d, deadline);

    if (rc < 0)
        return rc;
    while ((rc = fbr_direct_take(d, out)) == -EAGAIN && !late && !is_left(g, d)) {
        fbr_direct_sleep(d, deadline);
        late = fbr_now_ms() >= deadline;
    }
    fbr_direct_unlock(d);
    if (rc == -EAGAIN)
        return late ? -ETIMEDOUT : -ESTALE;
    if (rc != -EPIPE)
        return rc;
    pthread_mutex_lock(&g->lock);
    end_of_stream(g, d);
    pthread_mutex_unlock(&g->lock);
    return -ESTALE;
}

int fbr_client_end_stream(struct fbr_client *g)
{
    struct fbr_direct *d = NULL;
    int rc = 0;

    pthread_mutex_lock(&g->lock);
    if (g->streams_in) { /* the caller waits if another thread does the same */
        d = fbr_direct_ref(g->direct);
        g->leaving = true;
    }
    pthread_mutex_unlock(&g->lock);
    if (!d)
        return 0;
    fbr_direct_wake(d);
    fbr_direct_lock(d, UINT64_MAX);
    pthread_mutex_lock(&g->lock);
    if (g->direct == d && g->streams_in)
        rc = spill(g);
    g->leaving = false;
    for (int i = 0; i < g->n_lanes; i++) {
        pthread_cond_broadcast(&g->lanes[i].arrived);
        fbr_client_show(&g->lanes[i]);
    }
    pthread_mutex_unlock(&g->lock);
    fbr_direct_unlock(d);
    fbr_direct_unref(d);
    return rc;
}

void fbr_client_return_stream(struct fbr_client *g)
{
    struct client_message *m;

    fbr_client_end_stream(g);
    pthread_mutex_lock(&g->lock);
    for (; (m = fbr_client_unspill(g)); free(m)) {
        fbr_client_post(&g->lanes[!g->near], FBR_CH_UNREAD, m->data, m->len, true);
        free(m->data);
    }
    if (g->direct && !g->asked)
        fbr_direct_stop(g->direct);
    if (g->direct && !g->asked && fbr_direct_stopped(g->direct))
        fbr_client_drop_stream(g);
    fbr_client_show(&g->lanes[!g->near]);
    fbr_client_post(&g->lanes[g->near], FBR_CH_DIRECT_ENDED, NULL, 0, false);
    pthread_mutex_unlock(&g->lock);
}
