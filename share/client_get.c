/* client_get.c - gets from a channel that lives in another process; see channel.h.
 *
 * Some messages come ahead of their gets: as many as the program takes in about a millisecond. The
 * next record to the owner, or a tick a little later, reports how many messages the program took
 * and how many of its threads wait. With one consumer and one message at a time, a get needs no
 * record of its own.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "share/client_priv.h"

#define WANT_MAX 4096
#define WANT_BYTES (4u << 20)
#define FAST_NS 1000000 /* an ask sooner than this after the last one: prefetch more */

/* Reads only the coarse clock, which is cheap, until that shows a new tick. The kernel ticks while
 * it stops the processes of a machine that is about to sleep. */
void fbr_client_note_time(struct fbr_client *g)
{
    struct timespec tick;
    uint64_t now;

    clock_gettime(CLOCK_MONOTONIC_COARSE, &tick);
    if (tick.tv_nsec == g->tick.tv_nsec && tick.tv_sec == g->tick.tv_sec)
        return;
    g->tick = tick;
    now = fbr_boot_ms();
    if (now - g->seen_ms > g->sure_ms && !g->pipe)
        for (int i = 0; i < g->n_lanes; i++) {
            g->lanes[i].uncertain = true;
            g->lanes[i].assure = 0; /* a probe sent earlier may have been answered earlier */
        }
    g->seen_ms = now;
}

void fbr_client_begin_get(struct client_lane *l)
{
    fbr_client_drop(l, 0);
    l->last_seq = l->taken = l->handed = 0;
    memset(&l->told, 0, sizeof(l->told));
    l->want = 1;
    l->ahead = l->eof = l->uncertain = false;
    l->assure = 0;
    l->watching = l->there = false;
    fbr_client_show(l);
}

/* ---- Reports to the owner ---- */

/* Threads that wait and have no message here. A thread that has woken up for its message waits no
 * more, but has not taken the message while that is in doubt. */
static uint32_t still_hungry(const struct client_lane *l)
{
    return l->hungry > l->handed ? l->hungry - l->handed : 0;
}

/* Reports our state. `probe`: the owner answers it when it has sent us all that it can. */
static int ask(struct client_lane *l, uint64_t probe, bool more)
{
    uint64_t now = fbr_now_ns();
    uint32_t room = l->mean_len ? (uint32_t)(WANT_BYTES / (l->mean_len + 1)) : WANT_MAX;
    struct {
        uint64_t taken;
        uint32_t hungry, want;
        uint64_t probe;
    } a;

    if (now - l->asked_ns < FAST_NS)
        l->want = l->want * 2 < WANT_MAX ? l->want * 2 : WANT_MAX;
    else if (l->want > 1)
        l->want /= 2;
    if (l->want > room)
        l->want = room ? room : 1;
    l->asked_ns = now;
    a.taken = l->told.taken = l->taken;
    a.hungry = l->told.hungry = still_hungry(l);
    a.want = l->told.want = l->want > a.hungry ? l->want : a.hungry;
    a.probe = probe;
    return fbr_client_post(l, FBR_CH_ASK, &a, sizeof(a), more);
}

static bool is_news(const struct client_lane *l)
{
    return l->taken != l->told.taken || still_hungry(l) != l->told.hungry;
}

void fbr_client_notify_news(struct fbr_client *g, bool more)
{
    for (int i = 0; i < g->n_lanes; i++)
        if (is_news(&g->lanes[i]))
            ask(&g->lanes[i], 0, more);
}

/* Reports news that may wait for the next record, or even (`late`) for the next get: a program that
 * waits in slices waits again at once. */
static void notify_later(struct client_lane *l, bool late)
{
    struct fbr_client *g = l->client;

    if (!is_news(l))
        return;
    if (!g->later)
        g->later = fbr_proxy_later(g->shared.proxy, late);
    if (!g->later)
        ask(l, 0, false);
}

static void notify_soon(struct client_lane *l)
{
    notify_later(l, false);
}

/* ---- Records of the owner ---- */

/* False: no memory. */
static bool keep_message(struct client_lane *l, uint64_t seq, const void *bytes, size_t len)
{
    struct client_message *m = malloc(sizeof(*m));
    void *data = malloc(len ? len : 1);

    if (!m || !data) {
        free(m);
        free(data);
        return false;
    }
    if (len)
        memcpy(data, bytes, len);
    *m = (struct client_message){.seq = seq, .len = len, .data = data};
    *l->last = m;
    l->last = &m->next;
    l->n_in++;
    return true;
}

void fbr_client_on_deliver(struct client_lane *l, struct fbr_cur *c)
{
    uint64_t seq = fbr_get_u64(c);
    size_t len = fbr_cur_left(c);

    if (!fbr_cur_ok(c) || seq != l->last_seq + 1 || l->get_code)
        return;
    /* messages that we do not take go to others when we end */
    if (!keep_message(l, seq, c->at, len)) {
        l->get_code = -ENOMEM;
        pthread_cond_broadcast(&l->arrived);
        return;
    }
    l->last_seq = seq;
    l->mean_len += (len >> 3) - (l->mean_len >> 3);
    if (!l->hungry)
        return;
    if (l->n_in == 1)
        fbr_proxy_delay_ack(l->client->shared.proxy);
    /* not all threads that sleep are hungry */
    if (l->uncertain)
        pthread_cond_broadcast(&l->arrived);
    else
        pthread_cond_signal(&l->arrived);
}

void fbr_client_drop(struct client_lane *l, size_t n)
{
    struct client_message **at = &l->first, *m;

    l->n_in = n < l->n_in ? n : l->n_in;
    for (; n && *at; n--)
        at = &(*at)->next;
    while ((m = *at)) {
        *at = m->next;
        free(m->data);
        free(m);
    }
    l->last = at;
}

/* Another process waits, or the owner counts. Messages here belong to our own waiting threads: the
 * owner gave the messages to them before, and another process may have got a newer message
 * meanwhile. */
void fbr_client_on_recall(struct client_lane *l)
{
    size_t ours = l->hungry - l->looking < l->n_in ? l->hungry - l->looking : l->n_in;
    uint64_t from = l->last_seq + 1;
    struct client_message *m = l->first;

    if (ours < l->handed) /* those of an earlier recall, whose threads have not taken them yet */
        ours = l->handed;
    for (size_t i = 0; i < ours; i++)
        m = m->next;
    if (m)
        from = m->seq;
    if (l->taken < from - 1)
        l->taken = from - 1;
    l->handed = (uint32_t)ours;
    fbr_client_drop(l, ours); /* the numbers of the dropped messages are not used again */
    l->want = 1;
    l->ahead = false;
    fbr_client_post(l, FBR_CH_RETURNED, &from, sizeof(from), true);
    ask(l, 0, false);
}

void fbr_client_on_empty(struct client_lane *l, struct fbr_cur *c)
{
    uint64_t probe = fbr_get_u64(c);

    if (!fbr_cur_ok(c) || probe > l->probe)
        return;
    if (probe > l->answered)
        l->answered = probe;
    if (l->assure && l->answered >= l->assure) {
        l->uncertain = false;
        l->assure = 0;
    }
    pthread_cond_broadcast(&l->arrived);
}

void fbr_client_on_ready(struct client_lane *l, struct fbr_cur *c)
{
    uint32_t there = fbr_get_u32(c);

    if (fbr_cur_ok(c))
        l->there = there;
}

/* ---- The program's side ---- */

/* The error of a get if no more messages will come, or 0. */
static int get_fault(const struct client_lane *l)
{
    if (l->get_code)
        return l->get_code;
    return l->eof || l->client->gone ? -EPIPE : 0;
}

static bool has_spilled(const struct client_lane *l)
{
    return l->client->spilled && (int)l->number != l->client->near;
}

void fbr_client_show(struct client_lane *l)
{
    fbr_ready_set(&l->ready, l->first || has_spilled(l) || l->there || get_fault(l));
}

/* Takes a message that is here, and reports that to the owner in time. Under the lock. */
static void take(struct client_lane *l, struct fiber_bytes *out)
{
    struct client_message *m = l->first;

    l->first = m->next;
    if (!l->first)
        l->last = &l->first;
    l->n_in--;
    if (l->handed)
        l->handed--;
    else
        l->taken = m->seq;
    *out = (struct fiber_bytes){m->data, m->len};
    free(m);
    if (l->client->unanswered)
        l->client->answers = false;
    l->client->unanswered = true;
    if (l->n_in && l->n_in <= l->want / 2 && l->taken - l->told.taken >= (l->want + 1) / 2)
        ask(l, 0, false); /* the owner should send more before we have none */
    else
        notify_soon(l);
    fbr_client_show(l);
}

/* There is no message here, and a thread wants one. If the owner sends ahead and, as far as it
 * knows, may send more, it sends the next message without a report. */
static int notify_hungry(struct client_lane *l, uint64_t probe)
{
    if (!probe && !is_news(l)) /* it waited a moment ago, too */
        return 0;
    if (!probe && l->ahead && l->last_seq - l->told.taken < l->told.want &&
        !fbr_proxy_ack_due(l->client->shared.proxy)) {
        notify_soon(l);
        return 0;
    }
    return ask(l, probe, false);
}

/* The probe that this thread sends with its ask; 0: none. `empty`: the caller wants to know whether
 * the queue is empty. A doubt needs a probe, too. */
static uint64_t next_probe(struct client_lane *l, bool empty)
{
    bool assure = l->uncertain && !l->assure;

    if (!empty && !assure)
        return 0;
    l->probe++;
    if (assure)
        l->assure = l->probe;
    return l->probe;
}

static int sleep_until(struct client_lane *l, uint64_t deadline)
{
    int rc = fbr_cond_wait(&l->arrived, &l->client->lock, deadline);

    fbr_client_note_time(l->client);
    return rc;
}

/* There are messages here: waits until they are known to be ours, or are not here any more. Under
 * the lock. */
static int resolve_uncertain(struct client_lane *l, uint64_t deadline)
{
    struct fbr_client *g = l->client;
    int rc = 0;

    while (rc == 0 && l->first && l->uncertain && !g->gone) {
        uint64_t probe = next_probe(l, false);

        if (probe && (rc = ask(l, probe, false)) < 0)
            break;
        rc = sleep_until(l, deadline);
    }
    if (l->first && l->uncertain && g->gone)
        fbr_client_drop(l, 0);
    return l->first && !l->uncertain ? 0 : rc;
}

/* Whether the next message comes by the stream, or came by it into `spilled`. Messages in the list
 * here were sent after it. */
static bool elsewhere(const struct client_lane *l)
{
    return fbr_client_reads_stream(l) || has_spilled(l);
}

/* There is no message here: waits for a message, the end of the queue, or the deadline. -ESTALE:
 * the message is elsewhere. Under the lock. */
static int wait_hungry(struct client_lane *l, bool empty, bool looks, uint64_t deadline)
{
    uint64_t probe = next_probe(l, empty);
    int rc;

    l->hungry++;
    l->looking += looks;
    rc = notify_hungry(l, probe);
    while (rc == 0 && !l->first && !elsewhere(l) && !get_fault(l) &&
           !(empty && l->answered >= probe))
        rc = sleep_until(l, deadline);
    l->hungry--;
    l->looking -= looks;
    if (elsewhere(l)) {
        ask(l, 0, false); /* no longer hungry: a message that comes another way may be for others */
        return -ESTALE;
    }
    if (l->first)
        return 0;
    if (get_fault(l))
        return get_fault(l);
    notify_later(l, true); /* no longer hungry */
    return rc < 0 ? rc : -ETIMEDOUT;
}

/* Waits until a message is here that may be handed out. Under the lock. */
static int wait_in(struct client_lane *l, int timeout_ms, bool looks)
{
    bool empty = timeout_ms == 0;
    uint64_t deadline = empty ? UINT64_MAX : fbr_deadline(timeout_ms);
    int rc = 0;

    fbr_client_note_time(l->client);
    if (!l->first && !has_spilled(l) && !empty && !l->client->answers)
        fbr_client_ask_stream(l);
    while (rc == 0 && (elsewhere(l) || !l->first || l->uncertain)) {
        if (elsewhere(l))
            rc = -ESTALE;
        else if (l->first)
            rc = resolve_uncertain(l, deadline);
        else
            rc = get_fault(l) ? get_fault(l) : wait_hungry(l, empty, looks, deadline);
    }
    return rc;
}

/* Waits for a message of the owner, and takes it (`out` NULL: leaves it). Under the lock. */
static int get_here(struct client_lane *l, struct fiber_bytes *out, int timeout_ms)
{
    bool spilled = has_spilled(l);
    struct client_message *m;
    int rc;

    if (spilled && out) {
        m = fbr_client_unspill(l->client);
        *out = (struct fiber_bytes){m->data, m->len};
        free(m);
        fbr_client_show(l);
    }
    if (spilled)
        return 0;
    rc = wait_in(l, timeout_ms, !out);
    if (rc < 0)
        return rc;
    if (out) {
        take(l, out);
    } else {
        notify_soon(l);
        pthread_cond_signal(&l->arrived); /* the signal may have been for a thread that gets */
    }
    return 0;
}

int fbr_client_get(struct fbr_client *g, int lane, struct fiber_bytes *out, int timeout_ms)
{
    uint64_t deadline = fbr_deadline(timeout_ms);
    struct client_lane *l = &g->lanes[lane];
    int rc;

    do {
        struct fbr_direct *d = NULL;

        pthread_mutex_lock(&g->lock);
        g->used += g->pipe && out;
        /* a thread leaves the stream for a short time only */
        while (g->leaving)
            pthread_cond_wait(&l->arrived, &g->lock);
        if (fbr_client_reads_stream(l))
            d = fbr_direct_ref(g->direct);
        else
            rc = get_here(l, out, fbr_ms_until(deadline));
        pthread_mutex_unlock(&g->lock);
        if (d)
            rc = fbr_client_get_direct(l, d, out, deadline);
        fbr_direct_unref(d);
    } while (rc == -ESTALE);
    return rc;
}

int fbr_client_fd(struct fbr_client *g, int lane)
{
    struct client_lane *l = &g->lanes[lane];
    int fd, rc = 0;

    pthread_mutex_lock(&g->lock);
    g->no_direct = true;
    pthread_mutex_unlock(&g->lock);
    if ((rc = fbr_client_end_stream(g)) < 0)
        return fbr_keep(rc, "channel: out of memory");
    pthread_mutex_lock(&g->lock);
    fd = fbr_ready_fd(&l->ready);
    if (fd >= 0 && !l->watching && !g->gone)
        rc = fbr_client_notify(l, FBR_CH_WATCH, NULL, 0);
    l->watching = fd >= 0 && rc == 0;
    fbr_client_show(l);
    pthread_mutex_unlock(&g->lock);
    if (fd >= 0 && rc < 0 && rc != -EPIPE) /* -EPIPE: on_gone will set the descriptor */
        return fbr_keep(rc, "channel: its owner cannot be notified: %s", fbr_strerror(rc));
    return fd;
}
