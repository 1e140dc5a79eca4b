/* uplink.c - the calling side of a data link; see uplink.h.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "runtime/uplink.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>

#include "runtime/sock.h"

struct fbr_uplink {
    struct fbr_sock *sock;
    pthread_mutex_t lock; /* out, held, broken */
    struct fbr_lane_out out;
    uint32_t held; /* messages down that we hold */
    bool broken;
    struct fbr_lane_in in; /* receiving thread only */
};

#define GREET_MS 10000

/* Sends everything in the lane, and a message without records if there is nothing. Under the lock. */
static int push(struct fbr_uplink *u, int timeout_ms)
{
    int rc;

    do {
        size_t len;
        void *msg;

        rc = fbr_lane_take(&u->out, u->held, &msg, &len);
        if (rc < 0)
            break;
        rc = fbr_sock_send(u->sock, NULL, msg, timeout_ms);
        if (rc < 0)
            fbr_sock_free(msg);
    } while (rc == 0 && !fbr_lane_empty(&u->out));
    if (rc < 0)
        u->broken = true; /* a numbered message did not leave */
    return rc;
}

int fbr_uplink_open(struct fbr_uplink **out, const char *url, uint64_t link, const struct fbr_keys *keys, size_t limit,
                    struct fbr_error *err)
{
    struct fbr_uplink *u = calloc(1, sizeof(*u));
    int rc;

    if (!u)
        return fbr_fail(err, -ENOMEM, "data link: out of memory");
    pthread_mutex_init(&u->lock, NULL);
    rc = fbr_lane_out_init(&u->out, link, keys ? keys->up : NULL, keys ? keys->alg : 0);
    if (rc == 0)
        rc = fbr_lane_in_init(&u->in, link, keys ? keys->down : NULL, keys ? keys->alg : 0, limit);
    if (rc == 0)
        rc = fbr_sock_connect(&u->sock, url, err);
    if (rc == 0) {
        pthread_mutex_lock(&u->lock);
        rc = push(u, GREET_MS);
        pthread_mutex_unlock(&u->lock);
        if (rc < 0)
            fbr_fail(err, rc, "data link: cannot reach %s: %s", url, fbr_strerror(rc));
    }
    if (rc < 0) {
        fbr_uplink_close(u);
        return rc;
    }
    *out = u;
    return 0;
}

void fbr_uplink_close(struct fbr_uplink *u)
{
    if (!u)
        return;
    fbr_sock_close(u->sock);
    fbr_lane_out_fini(&u->out);
    fbr_lane_in_fini(&u->in);
    pthread_mutex_destroy(&u->lock);
    free(u);
}

int fbr_uplink_send(struct fbr_uplink *u, const struct iovec *iov, int n, int timeout_ms)
{
    int rc;

    pthread_mutex_lock(&u->lock);
    rc = u->broken ? -EPIPE : fbr_lane_add(&u->out, iov, n);
    if (rc == 0)
        rc = push(u, timeout_ms);
    pthread_mutex_unlock(&u->lock);
    return rc;
}

struct taking {
    struct fbr_uplink *u;
    fbr_record_fn on_record;
    void *user;
};

static void on_taken(void *user, uint32_t ack, bool records)
{
    struct fbr_uplink *u = ((struct taking *)user)->u;

    (void)ack;
    (void)records;
    pthread_mutex_lock(&u->lock);
    u->held++;
    if (!u->broken)
        push(u, -1);
    pthread_mutex_unlock(&u->lock);
}

static void on_record(void *user, const void *record, size_t len)
{
    struct taking *t = user;

    t->on_record(t->user, record, len);
}

int fbr_uplink_recv(struct fbr_uplink *u, fbr_record_fn fn, void *user)
{
    struct taking t = {u, fn, user};
    size_t len;
    void *msg;
    int rc = fbr_sock_recv(u->sock, NULL, &msg, &len);

    if (rc == -EAGAIN)
        return 0;
    if (rc < 0)
        return rc;
    rc = fbr_lane_open(&u->in, msg, len, on_taken, on_record, &t);
    fbr_sock_free(msg);
    return rc < 0 ? rc : 1;
}

int fbr_uplink_fd(const struct fbr_uplink *u)
{
    return fbr_sock_fd(u->sock);
}
