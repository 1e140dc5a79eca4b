/* loop.c - the event loop thread.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "runtime/net/loop.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "runtime/base/fds.h"
#include "runtime/base/sync.h"

#define LATE_MS 10 /* a timer that is so late lets the loop read first */

struct fbr_loop {
    uv_loop_t uv;
    uv_async_t wake;
    pthread_t thread;
    pthread_mutex_t lock;
    struct fbr_post *first, **last; /* under lock */
    /* Under lock: the loop accepts no more posts, because nothing holds it. */
    bool closing;
    void *scratch;
    struct fbr_post stop;
    int held; /* loop thread only, like `stopping` */
    bool stopping;
    bool gone; /* atomic: the thread is ending, and its pthread_t may be reused */
};

static void run_posts(struct fbr_loop *l)
{
    struct fbr_post *p;

    pthread_mutex_lock(&l->lock);
    p = l->first;
    l->first = NULL;
    l->last = &l->first;
    pthread_mutex_unlock(&l->lock);
    while (p) {
        struct fbr_post *next = p->next, *ours = p->own ? NULL : p;

        if (p->own) {
            pthread_mutex_lock(&l->lock);
            p->queued = false; /* from here on it may be posted again */
            pthread_mutex_unlock(&l->lock);
        }
        p->fn(p->arg);
        free(ours);
        p = next;
    }
}

static void on_wake(uv_async_t *wake)
{
    run_posts(wake->data);
}

static void close_any(uv_handle_t *handle, void *arg)
{
    if (!uv_is_closing(handle))
        uv_close(handle, NULL);
}

static void *loop_main(void *arg)
{
    struct fbr_loop *l = arg;

    pthread_setname_np(pthread_self(), "fbr-loop");
    uv_run(&l->uv, UV_RUN_DEFAULT);
    run_posts(l);
    uv_walk(&l->uv, close_any, NULL);
    uv_run(&l->uv, UV_RUN_DEFAULT);
    __atomic_store_n(&l->gone, true, __ATOMIC_SEQ_CST);
    return NULL;
}

/* Opens /dev/null as each of descriptors 0 to 2 that is closed. libuv aborts when it closes one of
 * these descriptors, and the program's output would go into a socket that got such a number. Child
 * processes do not inherit these descriptors. */
static void take_first_three(void)
{
    int fd;

    do
        fd = open("/dev/null", O_RDWR | O_CLOEXEC);
    while (fd >= 0 && fd <= STDERR_FILENO);
    fbr_fds_close(fd);
}

int fbr_loop_open(struct fbr_loop **out, struct fbr_error *err)
{
    struct fbr_loop *l = calloc(1, sizeof(*l));
    int rc;

    take_first_three();
    if (!l)
        return fbr_fail(err, -ENOMEM, "event loop: out of memory");
    l->scratch = malloc(FBR_LOOP_SCRATCH);
    rc = -ENOMEM;
    if (!l->scratch)
        goto fail;
    pthread_mutex_init(&l->lock, NULL);
    l->last = &l->first;
    rc = uv_loop_init(&l->uv);
    if (rc < 0)
        goto fail;
    l->uv.data = l;
    rc = uv_async_init(&l->uv, &l->wake, on_wake);
    if (rc < 0)
        goto fail_loop;
    l->wake.data = l;
    rc = fbr_thread_start(&l->thread, loop_main, l);
    if (rc < 0)
        goto fail_wake;
    *out = l;
    return 0;
fail_wake:
    uv_close((uv_handle_t *)&l->wake, NULL);
    uv_run(&l->uv, UV_RUN_DEFAULT);
fail_loop:
    uv_loop_close(&l->uv);
fail:
    free(l->scratch);
    free(l);
    return fbr_fail(err, rc, "event loop: %s", fbr_strerror(rc));
}

static void stop(void *arg)
{
    struct fbr_loop *l = arg;

    l->stopping = true;
    if (l->held) /* a holder may need to post before it releases the loop */
        return;
    pthread_mutex_lock(&l->lock);
    l->closing = true;
    pthread_mutex_unlock(&l->lock);
    uv_stop(&l->uv);
}

void fbr_loop_hold(struct fbr_loop *l)
{
    l->held++;
}

void fbr_loop_release(struct fbr_loop *l)
{
    l->held--;
    if (l->stopping)
        stop(l);
}

void fbr_loop_stop(struct fbr_loop *l)
{
    l->stop = (struct fbr_post){.fn = stop, .arg = l, .own = true};
    fbr_loop_post_own(l, &l->stop);
    pthread_join(l->thread, NULL);
    uv_loop_close(&l->uv);
}

void fbr_loop_close(struct fbr_loop *l)
{
    if (!l)
        return;
    fbr_loop_stop(l);
    pthread_mutex_destroy(&l->lock);
    free(l->scratch);
    free(l);
}

void *fbr_loop_scratch(struct fbr_loop *l)
{
    return l->scratch;
}

void fbr_loop_alloc(uv_handle_t *handle, size_t suggested, uv_buf_t *buf)
{
    const struct fbr_loop *l = handle->loop->data;

    *buf = uv_buf_init(l->scratch, FBR_LOOP_SCRATCH);
}

uv_loop_t *fbr_loop_uv(struct fbr_loop *l)
{
    return &l->uv;
}

bool fbr_loop_here(const struct fbr_loop *l)
{
    return !__atomic_load_n(&l->gone, __ATOMIC_SEQ_CST) && pthread_equal(l->thread, pthread_self());
}

int fbr_loop_post_own(struct fbr_loop *l, struct fbr_post *p)
{
    int rc = 0;

    pthread_mutex_lock(&l->lock);
    if (l->closing) {
        rc = -ESHUTDOWN;
    } else if (!p->queued) {
        p->queued = true;
        p->next = NULL;
        *l->last = p;
        l->last = &p->next;
        uv_async_send(&l->wake);
        rc = 1;
    }
    pthread_mutex_unlock(&l->lock);
    return rc;
}

int fbr_loop_post(struct fbr_loop *l, void (*fn)(void *), void *arg)
{
    struct fbr_post *p = malloc(sizeof(*p));
    int rc;

    if (!p)
        return -ENOMEM;
    *p = (struct fbr_post){.fn = fn, .arg = arg};
    rc = fbr_loop_post_own(l, p);
    if (rc < 0)
        free(p);
    return rc < 0 ? rc : 0;
}

/* A call that needs no allocation, because objects are closed by such calls. */
struct call {
    struct fbr_post post;
    int (*fn)(void *arg);
    void *arg;
    int rc;
    bool done;
    pthread_mutex_t lock;
    pthread_cond_t cond;
};

static void run_call(void *arg)
{
    struct call *c = arg;
    int rc = c->fn(c->arg);

    pthread_mutex_lock(&c->lock);
    c->rc = rc;
    c->done = true;
    pthread_cond_signal(&c->cond);
    pthread_mutex_unlock(&c->lock);
}

int fbr_loop_call(struct fbr_loop *l, int (*fn)(void *), void *arg)
{
    struct call c = {.post = {.fn = run_call, .arg = &c, .own = true}, .fn = fn, .arg = arg};
    int rc;

    if (fbr_loop_here(l))
        return fn(arg);
    pthread_mutex_init(&c.lock, NULL);
    pthread_cond_init(&c.cond, NULL);
    rc = fbr_loop_post_own(l, &c.post);
    if (rc > 0) {
        pthread_mutex_lock(&c.lock);
        while (!c.done)
            pthread_cond_wait(&c.cond, &c.lock);
        pthread_mutex_unlock(&c.lock);
        rc = c.rc;
    }
    pthread_cond_destroy(&c.cond);
    pthread_mutex_destroy(&c.lock);
    return rc;
}

struct write {
    uv_write_t uv;
    void (*done)(void *arg, int status, size_t len);
    void *arg;
    size_t len;
    uint8_t data[];
};

static void on_written(uv_write_t *uv, int status)
{
    struct write *w = uv->data;

    if (w->done)
        w->done(w->arg, status, w->len);
    free(w);
}

int fbr_stream_write(uv_stream_t *stream, const void *data, size_t len,
                     void (*done)(void *arg, int status, size_t len), void *arg)
{
    uv_buf_t buf = uv_buf_init((char *)(uintptr_t)data, (unsigned)len);
    int n = uv_try_write(stream, &buf, 1), rc; /* UV_EAGAIN while earlier bytes wait */
    size_t written = n > 0 ? (size_t)n : 0;
    struct write *w;

    if (written == len)
        return 0;
    w = malloc(sizeof(*w) + len - written);
    if (!w)
        return -ENOMEM;
    w->uv.data = w;
    w->done = done;
    w->arg = arg;
    w->len = len;
    memcpy(w->data, (const uint8_t *)data + written, len - written);
    buf = uv_buf_init((char *)w->data, (unsigned)(len - written));
    rc = uv_write(&w->uv, stream, &buf, 1, on_written);
    if (rc < 0)
        free(w);
    return rc < 0 ? rc : 1;
}

/* libuv runs all timers that are due before it looks at descriptors. */
static void on_timer(uv_timer_t *uv)
{
    uint64_t repeat_ms = uv_timer_get_repeat(uv), now = uv_now(uv->loop);
    struct fbr_timer *t = uv->data;

    if (now >= t->late) {
        t->late = UINT64_MAX;
        uv_timer_start(uv, on_timer, 1, repeat_ms);
        return;
    }
    t->late = now + repeat_ms + LATE_MS;
    t->fn(t->arg);
}

int fbr_timer_init(struct fbr_timer *t, struct fbr_loop *l, void (*fn)(void *), void *arg)
{
    if (t->uv)
        return 0;
    t->uv = malloc(sizeof(*t->uv));
    if (!t->uv)
        return -ENOMEM;
    t->fn = fn;
    t->arg = arg;
    uv_timer_init(&l->uv, t->uv);
    t->uv->data = t;
    return 0;
}

void fbr_timer_start(struct fbr_timer *t, uint64_t after_ms, uint64_t repeat_ms)
{
    if (!t->uv)
        return;
    uv_update_time(t->uv->loop); /* the loop's clock does not advance while a callback runs */
    t->late = uv_now(t->uv->loop) + after_ms + LATE_MS;
    uv_timer_start(t->uv, on_timer, after_ms, repeat_ms);
}

void fbr_timer_stop(struct fbr_timer *t)
{
    if (t->uv)
        uv_timer_stop(t->uv);
}

bool fbr_timer_runs(const struct fbr_timer *t)
{
    return t->uv && uv_is_active((const uv_handle_t *)t->uv);
}

void fbr_free_handle(uv_handle_t *handle)
{
    free(handle);
}

void fbr_free_data(uv_handle_t *handle)
{
    free(handle->data);
}

void fbr_timer_fini(struct fbr_timer *t)
{
    if (!t->uv)
        return;
    uv_timer_stop(t->uv);
    uv_close((uv_handle_t *)t->uv, fbr_free_handle);
    t->uv = NULL;
}
