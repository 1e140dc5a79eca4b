/* map.c - submits maps and single tasks to a pool, and reads their results.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "pool/pool.h"

#define WATCH_NS 150000
#define SHORT 65536 /* bytes; max_message always allows this many, so no look at it is needed */
#define LONGEST (UINT32_MAX - 64)

int fbr_pool_check_length(const struct fiber_pool *p, size_t len)
{
    if (len <= SHORT || (len <= LONGEST && len <= fbr_config_size(p->rt->config, "max_message")))
        return 0;
    return fbr_keep(-EMSGSIZE, "an input of %zu bytes is longer than max_message (%s), or 4 GiB",
                    len, fbr_config_str(p->rt->config, "max_message"));
}

int fbr_pool_check_inputs(const struct fiber_pool *p, const struct fiber_bytes *in, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (fbr_pool_check_length(p, in[i].len) < 0)
            return -EMSGSIZE;
        if (!in[i].data && in[i].len)
            return fbr_keep(-EINVAL, "pool: input %zu has a length, but its data is NULL", i);
    }
    return 0;
}

int fiber_pool_map_array(struct fiber_pool *p, fiber_task_fn fn, const void *in, size_t in_size,
                         void *out, size_t out_size, size_t n, const struct fiber_map_options *opts,
                         struct fiber_result **result)
{
    struct fiber_result *r;
    int rc;

    if (!p || !result || (n && ((!in && in_size) || (!out && out_size))))
        return fbr_keep(
            -EINVAL,
            "pool: a map needs a pool, arrays for its sizes, and a pointer for the result");
    if (fbr_pool_check_length(p, in_size) < 0)
        return -EMSGSIZE;
    rc = fbr_result_new(p, fn, opts, &r);
    if (rc < 0)
        return rc;
    r->kind = FBR_RESULT_ARRAY;
    r->n = n;
    r->in = in;
    r->in_size = in_size;
    r->out = out;
    r->out_size = out_size;
    rc = fbr_result_begin(r, false);
    if (rc < 0)
        return rc;
    *result = r;
    return 0;
}

int fiber_pool_map(struct fiber_pool *p, fiber_task_fn fn, const void *in, size_t in_size,
                   void *out, size_t out_size, size_t n, const struct fiber_map_options *opts)
{
    struct fiber_result *r;
    const void *text;
    size_t len, index;
    int rc = fiber_pool_map_array(p, fn, in, in_size, out, out_size, n, opts, &r);

    if (rc < 0)
        return rc;
    rc = fiber_result_wait(r, -1);
    if (rc == 0 && fiber_result_error(r, &index) < 0)
        rc = fiber_result_get(r, index, &text, &len);
    fiber_result_close(r);
    return rc;
}

static int begin_bytes(struct fiber_result *r, const struct fiber_bytes *in, size_t n)
{
    r->kind = FBR_RESULT_BYTES;
    r->n = n;
    r->bytes = in;
    return fbr_result_begin(r, false);
}

int fiber_pool_map_async(struct fiber_pool *p, fiber_task_fn fn, const struct fiber_bytes *in,
                         size_t n, const struct fiber_map_options *opts,
                         struct fiber_result **result)
{
    struct fiber_result *r;
    int rc;

    if (!p || !result || (!in && n))
        return fbr_keep(-EINVAL,
                        "pool: a map needs a pool, an array, and a pointer for the result");
    if ((rc = fbr_pool_check_inputs(p, in, n)) < 0 || (rc = fbr_result_new(p, fn, opts, &r)) < 0 ||
        (rc = begin_bytes(r, in, n)) < 0)
        return rc;
    *result = r;
    return 0;
}

int fiber_pool_apply(struct fiber_pool *p, fiber_task_fn fn, const void *in, size_t len,
                     struct fiber_bytes *out)
{
    const struct fiber_bytes one = {(void *)(uintptr_t)in, len};
    struct fiber_result *r;
    const void *data;
    size_t n;
    int rc;

    if (out)
        *out = (struct fiber_bytes){NULL, 0};
    rc = fiber_pool_map_async(p, fn, &one, 1, NULL, &r);
    if (rc < 0)
        return rc;
    rc = fiber_result_wait(r, -1);
    if (rc < 0)
        goto done;
    rc = fiber_result_get(r, 0, &data, &n);
    if (rc == 0 && out) { /* the caller now owns the slot's memory */
        *out = (struct fiber_bytes){r->slots[0].data, n};
        r->slots[0].data = NULL;
    }
done:
    fiber_result_close(r);
    return rc;
}

int fiber_pool_apply_async(struct fiber_pool *p, fiber_task_fn fn, const void *in, size_t len,
                           const struct fiber_map_options *opts, struct fiber_result **result)
{
    struct fiber_result *r;
    void *own;
    int rc;

    if (!p || !result || (!in && len))
        return fbr_keep(-EINVAL, "pool: a task needs a pool, data if its length is above 0, and a "
                                 "pointer for the result");
    if (fbr_pool_check_length(p, len) < 0)
        return -EMSGSIZE;
    own = malloc(len ? len : 1);
    if (!own)
        return fbr_keep(-ENOMEM, "pool: out of memory for %zu bytes", len);
    if (len)
        memcpy(own, in, len);
    rc = fbr_result_new(p, fn, opts, &r);
    if (rc < 0) {
        free(own);
        return rc;
    }
    r->own = (struct fiber_bytes){own, len};
    rc = begin_bytes(r, &r->own, 1);
    if (rc < 0)
        return rc;
    *result = r;
    return 0;
}

/* ---- Reading ---- */

/* All tasks are done, and all callbacks have returned. */
static bool is_over(const struct fiber_result *r)
{
    return !r->map && (!r->callbacks || fbr_pool_in_callback(r->pool));
}

/* Spins for a while: a thread that sleeps wakes late, on an idle processor by tens of microseconds,
 * and a quick map may be done before that. */
static void watch(const struct fiber_result *r)
{
    uint64_t end = fbr_now_ns() + WATCH_NS;

    while (__atomic_load_n(&r->map, __ATOMIC_ACQUIRE) && fbr_spin_yield(&r->pool->awake, end))
        ;
}

int fiber_result_wait(struct fiber_result *r, int timeout_ms)
{
    struct fiber_pool *p = r->pool;
    uint64_t deadline = fbr_deadline(timeout_ms);
    int rc = fbr_rt_check();

    if (rc < 0)
        return rc;
    if (r->quick && timeout_ms != 0)
        watch(r);
    pthread_mutex_lock(&p->lock);
    r->waiting++;
    while (!is_over(r) && rc == 0)
        rc = fbr_rt_wait(p->rt, &r->changed, &p->lock, deadline);
    if (is_over(r))
        rc = 0;
    r->waiting--;
    if (rc == -ETIMEDOUT)
        fbr_keep(rc, "%zu of %zu task%s done after %d ms", (size_t)r->done, (size_t)r->n,
                 r->n == 1 ? "" : "s", timeout_ms);
    pthread_mutex_unlock(&p->lock);
    return rc;
}

int fiber_result_fd(struct fiber_result *r)
{
    int fd = fbr_rt_check();

    if (fd < 0)
        return fd;
    pthread_mutex_lock(&r->pool->lock);
    fd = fbr_ready_fd(&r->over);
    fbr_ready_set(&r->over, !r->map && !r->callbacks);
    pthread_mutex_unlock(&r->pool->lock);
    return fd;
}

int fiber_result_wait_task(struct fiber_result *r, size_t index, int timeout_ms)
{
    struct fiber_pool *p = r->pool;
    uint64_t deadline = fbr_deadline(timeout_ms);
    int rc = fbr_rt_check();

    if (rc < 0)
        return rc;
    if (index >= r->n)
        return fbr_keep(-ENOENT, "there is no task %zu", index);
    pthread_mutex_lock(&p->lock);
    r->waiting_task++;
    while (!fbr_result_is_done(r, index) && rc == 0)
        rc = fbr_rt_wait(p->rt, &r->changed, &p->lock, deadline);
    if (fbr_result_is_done(r, index))
        rc = 0;
    r->waiting_task--;
    pthread_mutex_unlock(&p->lock);
    return rc == -ETIMEDOUT ? fbr_keep(rc, "task %zu is not done after %d ms", index, timeout_ms)
                            : rc;
}

int fiber_result_get(struct fiber_result *r, size_t i, const void **data, size_t *len)
{
    struct fiber_pool *p = r->pool;
    int rc = fbr_rt_check();

    *data = NULL;
    *len = 0;
    if (rc < 0)
        return rc;
    if (i >= r->n)
        return fbr_keep(-ENOENT, "there is no task %zu", i);
    pthread_mutex_lock(&p->lock);
    if (!fbr_result_is_done(r, i))
        rc = fbr_keep(-EAGAIN, "task %zu is not done", i);
    else if ((rc = fbr_result_read(r, i, data, len)) < 0)
        fbr_keep(rc, "%.*s", (int)*len, (const char *)*data);
    pthread_mutex_unlock(&p->lock);
    return rc;
}

size_t fiber_result_count(struct fiber_result *r)
{
    return r->n;
}

size_t fiber_result_done(struct fiber_result *r)
{
    size_t n;

    /* the value at the fork: the thread that holds the lock may not exist here */
    if (fbr_rt_check() < 0)
        return r->done;
    pthread_mutex_lock(&r->pool->lock);
    n = r->done;
    pthread_mutex_unlock(&r->pool->lock);
    return n;
}

int fiber_result_error(struct fiber_result *r, size_t *index)
{
    int code = fbr_rt_check();

    if (code < 0)
        return code;
    pthread_mutex_lock(&r->pool->lock);
    code = r->first_code;
    if (index)
        *index = r->first_error;
    pthread_mutex_unlock(&r->pool->lock);
    if (code)
        fbr_keep(code, "task %llu failed; fiber_result_get() returns its message",
                 (unsigned long long)r->first_error);
    return code;
}
