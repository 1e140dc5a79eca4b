/* rpc.c - the user's side of calls on objects: futures, and a connection to each object; see rpc.h.
 *
 * Locks: an rpc's lock guards its calls. It is not held while share's lock is taken, nor while a
 * record is sent.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "share/rpc.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "runtime/base/ready.h"
#include "share/shared_proxy.h"

#define WINDOW (64u << 20) /* bytes of unanswered calls of one process at one object */
#define CALL_BYTES 256     /* bytes that a call counts in addition to its own */

struct fbr_rpc {
    struct fbr_shared_proxy shared;
    bool here;            /* this is the process of the manager, whose main thread answers */
    atomic_int refs;      /* one for all handles, and one for each future */
    pthread_mutex_t lock; /* all below */
    pthread_cond_t room;
    struct fiber_future *calls; /* unanswered */
    size_t weight;
    uint64_t ended; /* calls that have ended, ever */
    bool gone;
};

struct fiber_future {
    struct fbr_rpc *rpc;
    uint64_t call;
    size_t weight;
    /* Under the rpc's lock; `lost` and `code` stay as they are once it is done. */
    bool done, closed, lost, taken;
    int code;
    struct fiber_bytes answer; /* a NUL follows the bytes */
    pthread_cond_t changed;
    struct fbr_ready ready;    /* done */
    struct fiber_future *next; /* in a list of futures that nobody wants */
    UT_hash_handle hh;         /* while it is not done */
};

static void unref(struct fbr_rpc *r)
{
    if (atomic_fetch_sub(&r->refs, 1) != 1)
        return;
    pthread_cond_destroy(&r->room);
    pthread_mutex_destroy(&r->lock);
    free(r);
}

static void destroy_future(struct fiber_future *f)
{
    struct fbr_rpc *r = f->rpc;

    fiber_bytes_free(&f->answer);
    fbr_ready_fini(&f->ready);
    pthread_cond_destroy(&f->changed);
    free(f);
    unref(r);
}

/* ---- Answers ---- */

/* Under the lock: the call has ended. True: nobody wants the answer; the caller calls
 * destroy_future(). */
static bool end_call(struct fiber_future *f, int code, struct fiber_bytes *answer, bool lost)
{
    struct fbr_rpc *r = f->rpc;

    HASH_DEL(r->calls, f);
    r->weight -= f->weight;
    r->ended++;
    f->code = code;
    f->lost = lost;
    f->done = true;
    if (answer) {
        f->answer = *answer;
        *answer = (struct fiber_bytes){NULL, 0};
    }
    pthread_cond_broadcast(&f->changed);
    fbr_ready_set(&f->ready, true);
    pthread_cond_broadcast(&r->room);
    return f->closed;
}

/* True: this was the last answer for which this process waited. */
static bool on_answer(struct fbr_rpc *r, uint64_t call, int code, const void *bytes, size_t len)
{
    struct fiber_bytes copy = {malloc(len + 1), len};
    struct fiber_future *f;
    bool unwanted = false, last;

    if (copy.data) {
        if (len)
            memcpy(copy.data, bytes, len);
        ((char *)copy.data)[len] = '\0';
    } else {
        copy.len = 0;
        code = -ENOMEM;
    }
    pthread_mutex_lock(&r->lock);
    HASH_FIND(hh, r->calls, &call, sizeof(call), f);
    if (f)
        unwanted = end_call(f, code, &copy, false);
    last = !r->calls;
    pthread_mutex_unlock(&r->lock);
    free(copy.data);
    if (unwanted)
        destroy_future(f);
    return last;
}

static void fail_all(struct fbr_rpc *r)
{
    struct fiber_future *f, *unwanted = NULL;

    pthread_mutex_lock(&r->lock);
    r->gone = true;
    while ((f = r->calls)) {
        if (end_call(f, -EPIPE, NULL, true)) {
            f->next = unwanted;
            unwanted = f;
        }
    }
    pthread_cond_broadcast(&r->room);
    pthread_mutex_unlock(&r->lock);
    while ((f = unwanted)) {
        unwanted = f->next;
        destroy_future(f);
    }
}

static void on_record(void *user, const void *record, size_t len)
{
    struct fbr_rpc *r = user;
    struct fbr_cur c = fbr_cur(record, len);
    uint64_t call = fbr_get_u64(&c);
    int code = (int32_t)fbr_get_u32(&c);

    fbr_get_u32(&c);
    if (fbr_cur_ok(&c) && on_answer(r, call, code, c.at, fbr_cur_left(&c)))
        fbr_proxy_delay_ack(r->shared.proxy);
}

static void on_gone(void *user)
{
    struct fbr_rpc *r = user;

    fail_all(r);
    fbr_shared_proxy_gone(&r->shared);
}

static const struct fbr_proxy_ops proxy_ops = {.on_record = on_record, .on_gone = on_gone};

/* ---- Connections ---- */

static struct fbr_shared_proxy *new_rpc(struct fbr_share *s, const struct fbr_address *a)
{
    struct fbr_rpc *r = calloc(1, sizeof(*r));

    if (!r)
        return NULL;
    r->here = a->kind == FBR_KIND_MANAGER && a->owner == s->rt->self;
    atomic_init(&r->refs, 1);
    pthread_mutex_init(&r->lock, NULL);
    fbr_cond_init(&r->room);
    return &r->shared;
}

int fbr_rpc_open(struct fbr_rpc **out, const struct fbr_address *a)
{
    struct fbr_shared_proxy *shared;
    int rc = fbr_shared_proxy_open(&shared, a, &proxy_ops, new_rpc);
    struct fbr_rpc *r = (struct fbr_rpc *)shared;

    if (rc < 0 && r)
        unref(r);
    if (rc < 0)
        return rc;
    *out = r;
    return 0;
}

void fbr_rpc_close(struct fbr_rpc *r)
{
    const struct fbr_rpc_head head = {FBR_RPC_LEAVE, 0, 0};
    const struct iovec iov = {(void *)(uintptr_t)&head, sizeof(head)};

    if (!r || !fbr_shared_proxy_leave(&r->shared))
        return;
    fbr_proxy_post(r->shared.proxy, &iov, 1, false);
    fbr_shared_proxy_close(&r->shared);
    fail_all(r);
    unref(r);
}

/* ---- Calls ---- */

static struct fiber_future *new_future(struct fbr_rpc *r, size_t len)
{
    struct fiber_future *f = calloc(1, sizeof(*f));

    if (!f)
        return NULL;
    f->rpc = r;
    f->weight = len + CALL_BYTES;
    fbr_cond_init(&f->changed);
    atomic_fetch_add(&r->refs, 1);
    pthread_mutex_lock(&r->shared.share->lock);
    f->call = ++r->shared.share->next_call;
    pthread_mutex_unlock(&r->shared.share->lock);
    return f;
}

/* Waits for room, and counts the call as unanswered. */
static int enter_call(struct fiber_future *f, uint64_t deadline)
{
    struct fbr_rpc *r = f->rpc;
    int rc = 0;

    pthread_mutex_lock(&r->lock);
    while (r->weight && r->weight + f->weight > WINDOW && !r->gone && rc == 0)
        rc = fbr_cond_wait(&r->room, &r->lock, deadline);
    if (r->gone)
        rc = -EPIPE;
    if (rc < 0)
        goto done;
    HASH_ADD(hh, r->calls, call, sizeof(f->call), f);
    if (f->hh.tbl)
        r->weight += f->weight;
    else
        rc = -ENOMEM;
done:
    pthread_mutex_unlock(&r->lock);
    return rc;
}

static int send_call(struct fiber_future *f, const struct iovec *iov, int n)
{
    const struct fbr_rpc_head head = {FBR_RPC_CALL, 0, f->call};
    struct iovec all[7] = {{(void *)(uintptr_t)&head, sizeof(head)}};

    memcpy(all + 1, iov, sizeof(*iov) * (size_t)n);
    return fbr_proxy_post(f->rpc->shared.proxy, all, n + 1, false);
}

/* Withdraws a future that was not sent. False: it was lost meanwhile, which the future reports. */
static bool take_back(struct fiber_future *f)
{
    bool done;

    pthread_mutex_lock(&f->rpc->lock);
    done = f->done;
    if (!done)
        end_call(f, -EIO, NULL, false);
    pthread_mutex_unlock(&f->rpc->lock);
    return !done;
}

int fbr_rpc_call(struct fbr_rpc *r, const struct iovec *iov, int n, uint64_t deadline,
                 struct fiber_future **out)
{
    struct fiber_future *f;
    size_t len = 0;
    int rc;

    for (int i = 0; i < n; i++)
        len += iov[i].iov_len;
    if (len + FBR_RPC_ROOM > fbr_config_size(r->shared.share->rt->config, "max_message"))
        return -EMSGSIZE;
    f = new_future(r, len);
    if (!f)
        return -ENOMEM;
    rc = enter_call(f, deadline);
    if (rc < 0) {
        destroy_future(f);
        return rc;
    }
    rc = send_call(f, iov, n);
    if (rc < 0 && take_back(f)) {
        destroy_future(f);
        return rc;
    }
    *out = f;
    return 0;
}

int fbr_rpc_drain(struct fbr_rpc *r, int patience_ms)
{
    uint64_t deadline = fbr_deadline(patience_ms), upto, ended;
    int rc = 0;

    pthread_mutex_lock(&r->shared.share->lock);
    upto = r->shared.share->next_call;
    pthread_mutex_unlock(&r->shared.share->lock);
    pthread_mutex_lock(&r->lock);
    while (r->calls && r->calls->call <= upto && rc == 0) { /* the first is the oldest */
        ended = r->ended;
        rc = fbr_cond_wait(&r->room, &r->lock, deadline);
        if (r->ended != ended) {
            deadline = fbr_deadline(patience_ms);
            rc = 0;
        }
    }
    pthread_mutex_unlock(&r->lock);
    return rc;
}

/* ---- Futures ---- */

int fbr_future_wait(struct fiber_future *f, uint64_t deadline)
{
    struct fbr_rpc *r = f->rpc;
    int rc = 0;

    pthread_mutex_lock(&r->lock);
    if (!f->done && r->here && gettid() == getpid())
        rc = -EDEADLK;
    while (!f->done && rc == 0)
        rc = fbr_cond_wait(&f->changed, &r->lock, deadline);
    if (f->done)
        rc = 0;
    pthread_mutex_unlock(&r->lock);
    return rc;
}

int fbr_future_fd(struct fiber_future *f)
{
    int fd;

    pthread_mutex_lock(&f->rpc->lock);
    fd = fbr_ready_fd(&f->ready);
    fbr_ready_set(&f->ready, f->done);
    pthread_mutex_unlock(&f->rpc->lock);
    return fd;
}

void fbr_future_cancel(struct fiber_future *f)
{
    const struct fbr_rpc_head head = {FBR_RPC_CANCEL, 0, f->call};
    const struct iovec iov = {(void *)(uintptr_t)&head, sizeof(head)};

    /* if the owner is gone, its calls are answered as lost */
    fbr_proxy_post(f->rpc->shared.proxy, &iov, 1, false);
}

int fbr_future_code(struct fiber_future *f, bool *lost)
{
    *lost = f->lost;
    return f->code;
}

int fbr_future_take(struct fiber_future *f, struct fiber_bytes *out)
{
    bool taken;

    pthread_mutex_lock(&f->rpc->lock);
    taken = f->taken;
    f->taken = true;
    if (!taken) {
        *out = f->answer;
        f->answer = (struct fiber_bytes){NULL, 0};
    }
    pthread_mutex_unlock(&f->rpc->lock);
    return taken ? -ENODATA : 0;
}

const char *fbr_future_text(struct fiber_future *f)
{
    return f->answer.data ? f->answer.data : "";
}

void fbr_future_close(struct fiber_future *f)
{
    bool done;

    if (!f)
        return;
    pthread_mutex_lock(&f->rpc->lock);
    f->closed = true;
    done = f->done;
    pthread_mutex_unlock(&f->rpc->lock);
    if (done)
        destroy_future(f);
}
