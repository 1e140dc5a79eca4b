/* channel_fuzz.c - records of queues and pipes: hostile guests of a host, a hostile host.
 *
 * The input is u8 shape, then steps: u8 what, u8 length, so many bytes. Bit 0 of the shape chooses
 * who is under test, bit 1 a pipe, bit 2 a bounded queue, bit 3 a host whose first answer fits no
 * int. Most steps are a record for it; the rest are calls of its program, ticks, ends. Where the
 * program would sleep, the next records come; when there are none, the other side is gone.
 *
 * What carries records (object_server.c, object_client.c) and what sleeps (context.c) is replaced here, by the
 * linker. A guest that was stopped hands out nothing before the host has answered it.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/proc/context.h"
#include "share/client_priv.h"

#define PEERS 4

struct fbr_object {
    const struct fbr_object_ops *ops;
    void *user;
};

struct fbr_proxy {
    const struct fbr_proxy_ops *ops;
    void *user;
};

static struct {
    struct fbr_runtime rt;
    struct fbr_share share;
    struct fbr_object object;
    struct fbr_proxy proxy;
    struct fbr_cur input;
    struct fbr_owner *host;
    struct fbr_client *client;
    uint64_t peers[PEERS], next_peer;
    int lanes;
    bool gone, holds; /* holds: the object lives */
    bool odd, opened; /* the answer to the opening guest; it has come */
    bool stopped;     /* the guest was, and has got nothing since */
    uint64_t probe;   /* its last one by then */
    volatile size_t read;
} f;

static void require(int holds)
{
    if (!holds)
        abort();
}

static void read_all(const struct iovec *iov, int n)
{
    for (int i = 0; i < n; i++)
        for (size_t k = 0; k < iov[i].iov_len; k++)
            f.read += ((const uint8_t *)iov[i].iov_base)[k];
}

/* ---- What comes from the other side ---- */

/* Its record, in memory that ends where the record does. */
static void hear(uint8_t what, const void *bytes, size_t len)
{
    uint64_t *record = malloc(len ? len : 1);

    require(record != NULL);
    if (len)
        memcpy(record, bytes, len);
    if (f.client && !f.gone)
        f.proxy.ops->on_record(f.proxy.user, record, len);
    else if (f.host && f.holds)
        f.object.ops->on_record(f.object.user, f.peers[what % PEERS], record, len);
    free(record);
}

static void other_side_is_gone(void)
{
    if (f.client && !f.gone) {
        f.gone = true;
        f.proxy.ops->on_gone(f.proxy.user);
    }
    for (size_t i = 0; f.host && f.holds && i < PEERS; i++)
        f.object.ops->on_gone(f.object.user, f.peers[i]);
}

static bool more_input(void)
{
    return fbr_cur_ok(&f.input) && fbr_cur_left(&f.input);
}

/* The next step, without calls of the program. */
static void hear_next(void)
{
    uint8_t what = fbr_get_u8(&f.input);
    size_t len = fbr_get_u8(&f.input);

    len = len < fbr_cur_left(&f.input) ? len : fbr_cur_left(&f.input);
    hear(what, fbr_get(&f.input, len), len);
}

/* A guest that just opens its end is let in. */
static void hear_answer(void)
{
    struct fbr_buf b;

    require(!f.opened); /* it asks once */
    f.opened = true;
    fbr_buf_init(&b);
    fbr_put_u32(&b, FBR_CH_ATTACH);
    fbr_put_u32(&b, 0);
    fbr_put_u64(&b, 1); /* its first call */
    fbr_put_u64(&b, f.odd ? UINT64_C(1) << 63 : 0);
    f.proxy.ops->on_record(f.proxy.user, b.data, b.len);
    fbr_buf_fini(&b);
}

/* ---- In place of context.c, object_server.c and object_client.c ---- */

struct fbr_runtime *fbr_rt(void)
{
    return &f.rt;
}

struct fbr_share *fbr_share(void)
{
    return &f.share;
}

void fbr_cond_init(pthread_cond_t *cond)
{
    pthread_cond_init(cond, NULL);
}

int fbr_cond_wait(pthread_cond_t *cond, pthread_mutex_t *lock, uint64_t deadline)
{
    bool opens = !f.client && !f.host, more = opens || more_input();

    pthread_mutex_unlock(lock);
    if (opens)
        hear_answer();
    else if (more)
        hear_next();
    else
        other_side_is_gone();
    pthread_mutex_lock(lock);
    return more ? 0 : -ETIMEDOUT;
}

int fbr_object_open(struct fbr_object **o, const struct fbr_object_ops *ops, void *user)
{
    f.object = (struct fbr_object){ops, user};
    f.holds = true;
    *o = &f.object;
    return 0;
}

uint64_t fbr_object_id(const struct fbr_object *o)
{
    return 1;
}

int fbr_address_here(uint64_t object, enum fbr_kind kind, uint8_t flags,
                     struct fiber_address *address)
{
    memset(address, 0, sizeof(*address));
    return 0;
}

int fbr_object_send(struct fbr_object *o, uint64_t peer, const struct iovec *iov, int n)
{
    require(o == &f.object && f.holds && peer && n <= 7);
    read_all(iov, n);
    return 0;
}

void fbr_object_remind(struct fbr_object *o)
{
    require(o == &f.object && f.holds);
}

void fbr_object_close(struct fbr_object *o)
{
    f.holds = false;
}

void fbr_object_retire(struct fbr_object *o, void (*done)(void *user))
{
    require(o == &f.object && f.holds);
    f.holds = false;
    done(o->user);
}

void *fbr_object_hold(const struct fbr_address *a, const struct fbr_object_ops *ops,
                      void (*hold)(void *user))
{
    return NULL;
}

int fbr_proxy_open(struct fbr_proxy **p, const struct fbr_address *a,
                   const struct fbr_proxy_ops *ops, void *user)
{
    f.proxy = (struct fbr_proxy){ops, user};
    *p = &f.proxy;
    return 0;
}

int fbr_proxy_post(struct fbr_proxy *p, const struct iovec *iov, int n, bool more)
{
    require(p == &f.proxy && n <= 7);
    read_all(iov, n);
    return f.gone ? -EPIPE : 0;
}

bool fbr_proxy_later(struct fbr_proxy *p, bool wakes)
{
    return p == &f.proxy && f.read % 2;
}

void fbr_proxy_delay_ack(struct fbr_proxy *p)
{
}

bool fbr_proxy_ack_due(struct fbr_proxy *p)
{
    return false;
}

bool fbr_proxy_fails(const struct fbr_proxy *p)
{
    return false;
}

size_t fbr_proxy_queued(struct fbr_proxy *p)
{
    return 0;
}

void fbr_proxy_close(struct fbr_proxy *p)
{
}

/* ---- The program ---- */

static void read_and_free(int rc, void *data, size_t len)
{
    const struct iovec iov = {data, len};

    if (rc == 0) {
        read_all(&iov, 1);
        free(data);
    }
}

static void host_calls(uint8_t what, int lane, const void *bytes, size_t len)
{
    struct fiber_bytes out = {NULL, 0};
    size_t n;
    int rc;

    switch (what / 16 % 8) {
    case 0:
        fbr_owner_put(f.host, lane, bytes, len, 0);
        break;
    case 1:
        rc = fbr_owner_get(f.host, lane, &out, 0);
        read_and_free(rc, out.data, out.len);
        break;
    case 2:
        fbr_owner_get(f.host, lane, NULL, 0);
        break;
    case 3:
        fbr_owner_size(f.host, lane, &n);
        break;
    case 4:
        if (f.holds)
            f.object.ops->on_time(f.object.user);
        break;
    case 6:
        fbr_owner_call(f.host, lane, FBR_CH_DONE);
        break;
    case 7:
        fbr_owner_join(f.host, lane, 0);
        break;
    default:
        if (f.holds)
            f.object.ops->on_gone(f.object.user, f.peers[what % PEERS]);
        f.peers[what % PEERS] = f.next_peer++;
    }
}

static void client_gets(int lane, int timeout_ms)
{
    struct fiber_bytes out = {NULL, 0};
    int rc = fbr_client_get(f.client, lane, &out, timeout_ms);

    read_and_free(rc, out.data, out.len);
    if (rc == 0 && f.stopped) /* not before it knows that the message is its own */
        require(f.client->lanes[lane].answered > f.probe);
    f.stopped = f.stopped && rc < 0;
}

static void client_calls(uint8_t what, int lane, const void *bytes, size_t len)
{
    size_t n;

    switch (what / 16 % 8) {
    case 0:
        fbr_client_put(f.client, lane, bytes, len, 0);
        break;
    case 1:
        client_gets(lane, what & 8 ? 0 : -1);
        break;
    case 2:
        fbr_client_get(f.client, lane, NULL, 0);
        break;
    case 3:
        fbr_client_size(f.client, lane, &n);
        break;
    case 4:
        fbr_client_flush(f.client, lane, 0);
        f.proxy.ops->tick(f.proxy.user);
        break;
    case 6:
        fbr_client_call(f.client, lane, FBR_CH_DONE);
        break;
    case 7:
        fbr_client_join(f.client, lane, what & 8 ? 0 : -1);
        break;
    default:
        f.client->seen_ms = 0; /* as if it had been stopped */
        f.client->tick = (struct timespec){.tv_sec = 0};
        f.stopped = !f.client->pipe;
        f.probe = f.client->lanes[0].probe;
    }
}

/* One step in four is a call of the program. */
static void step(void)
{
    uint8_t what = *f.input.at;
    size_t len;
    const void *bytes;

    if (what % 4) {
        hear_next();
        return;
    }
    fbr_get_u8(&f.input);
    len = fbr_get_u8(&f.input);
    len = len < fbr_cur_left(&f.input) ? len : fbr_cur_left(&f.input);
    bytes = fbr_get(&f.input, len);
    if (f.host)
        host_calls(what, what / 4 % f.lanes, bytes, len);
    else
        client_calls(what, what / 4 % f.lanes, bytes, len);
}

static void open_host(bool pipe, bool bounded)
{
    const struct fbr_queue_engine_config config = {.max_messages = bounded ? 3 : 0,
                                                   .max_bytes = pipe ? 64 : 0};

    require(fbr_owner_open(&f.host, pipe ? FBR_KIND_PIPE : FBR_KIND_QUEUE, &config) == 0);
    if (pipe) {
        fbr_owner_call(f.host, 1, FBR_CH_EXPORT);
        fbr_owner_leave(f.host, 1);
    }
}

static void close_host(bool pipe)
{
    if (pipe) {
        other_side_is_gone();
        fbr_owner_leave(f.host, 0);
        fbr_owner_release(f.host);
        if (f.holds) { /* nobody came for the end that was given away */
            fbr_owner_attach(f.host, 1);
            fbr_owner_leave(f.host, 1);
        }
    } else {
        fbr_owner_close(f.host);
    }
    fbr_owner_release(f.host);
}

static void open_client(bool pipe, bool bounded)
{
    const struct fbr_address a = {.kind = pipe ? FBR_KIND_PIPE : FBR_KIND_QUEUE,
                                  .flags = bounded ? FBR_CH_BOUNDED : 0,
                                  .owner = 1,
                                  .object = 1};

    require(fbr_client_open(&f.client, &a, 0) == 0 && f.client);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct fbr_config *config;
    uint8_t shape;

    if (!config)
        config = fbr_config_new();
    memset(&f, 0, sizeof(f));
    f.rt.config = config;
    f.share.rt = &f.rt;
    pthread_mutex_init(&f.share.lock, NULL);
    pthread_cond_init(&f.share.idle, NULL);
    f.next_peer = 2; /* 0 and 1 are the owner's own */
    for (int i = 0; i < PEERS; i++)
        f.peers[i] = f.next_peer++;
    f.input = fbr_cur(data, size);
    shape = fbr_get_u8(&f.input);
    f.lanes = shape & 2 ? 2 : 1;
    f.odd = shape & 8;
    if (shape & 1)
        open_client(shape & 2, (shape & 6) == 4);
    else
        open_host(shape & 2, (shape & 6) == 4);
    while (more_input())
        step();
    if (f.host)
        close_host(shape & 2);
    if (f.client)
        fbr_client_close(f.client, 0);
    pthread_cond_destroy(&f.share.idle);
    pthread_mutex_destroy(&f.share.lock);
    return 0;
}
