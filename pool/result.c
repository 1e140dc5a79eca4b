/* result.c - maps and their results, as the program sees them, and callbacks.
 *
 * A result has one reference for the program's handle, one for the running map, and one for each
 * callback that waits. The map ends when its last task is done, or when it is cancelled; only then
 * may the program's input go away. A call that waits for a result, or closes it, also waits for its
 * callbacks, so that the program may free their data then; except when the call comes from a
 * callback.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <utlist.h>

#include "pool/pool.h"

#define QUICK_NS 50000

/* ---- Creation and destruction ---- */

struct fbr_item *fbr_item_new(const struct fiber_bytes *in)
{
    struct fbr_item *item = calloc(1, sizeof(*item));

    if (item)
        item->in = (struct fiber_bytes){malloc(in->len ? in->len : 1), in->len};
    if (!item || !item->in.data) {
        free(item);
        return NULL;
    }
    if (in->len)
        memcpy(item->in.data, in->data, in->len);
    return item;
}

void fbr_item_free(struct fbr_item *item)
{
    free(item->in.data);
    free(item->slot.data);
    free(item);
}

static void destroy(struct fiber_result *r)
{
    struct fbr_item *item, *next;

    for (uint64_t i = 0; r->slots && i < r->n; i++)
        free(r->slots[i].data);
    free(r->slots);
    HASH_ITER(hh, r->items, item, next) {
        HASH_DELETE(hh, r->items, item);
        fbr_item_free(item);
    }
    free(r->own.data);
    free(r->each);
    free(r->flags);
    free(r->why);
    fbr_ready_fini(&r->over);
    pthread_cond_destroy(&r->changed);
    fbr_pool_unref(r->pool);
    free(r);
}

static void unref(struct fiber_result *r)
{
    struct fiber_pool *p = r->pool;
    bool last;

    pthread_mutex_lock(&p->lock);
    last = --r->refs == 0;
    if (last)
        fbr_common_put(p, r->common); /* its map has never begun */
    pthread_mutex_unlock(&p->lock);
    if (last)
        destroy(r);
}

/* Writes the data that all tasks of a batch share: their common input, and their function unless
 * the worker knows it itself. */
static int put_ref(struct fiber_result *r, const struct fbr_fnref *fn)
{
    struct fbr_buf b = {.data = r->ref, .cap = sizeof(r->ref)}; /* 49 bytes at most: fnref.h */

    if (r->opts.common_len) {
        r->common = fbr_common_get(r->pool, r->opts.common, r->opts.common_len);
        if (!r->common)
            return -ENOMEM;
    }
    fbr_put_u64(&b, r->common ? r->common->id : 0);
    if (fn)
        fbr_fnref_put(&b, fn);
    r->ref_len = b.len;
    return 0;
}

static int check_options(const struct fiber_pool *p, fiber_task_fn fn,
                         const struct fiber_map_options *o)
{
    if (!fn && !p->serve)
        return fbr_keep(-EINVAL, "pool: a map needs a function");
    if (o->size != sizeof(*o))
        return fbr_keep(-EINVAL, "map options: size is %zu, not sizeof(struct fiber_map_options)",
                        o->size);
    if (o->timeout_ms < 0 || o->map_timeout_ms < 0 || o->retries < FIBER_RETRIES_NONE)
        return fbr_keep(
            -EINVAL,
            "map options: a timeout must be 0 or more, and retries FIBER_RETRIES_NONE or more");
    if (!o->common && o->common_len)
        return fbr_keep(-EINVAL, "map options: common_len is above 0, but common is NULL");
    return fbr_pool_check_length(p, o->common_len);
}

int fbr_result_new(struct fiber_pool *p, fiber_task_fn fn, const struct fiber_map_options *opts,
                   struct fiber_result **out)
{
    static const struct fiber_map_options none = {.size = sizeof(none)};
    struct fbr_error err = {0, ""};
    struct fiber_result *r;
    struct fbr_fnref ref;
    int rc;

    opts = opts ? opts : &none;
    if ((rc = fbr_rt_check()) < 0 || (rc = check_options(p, fn, opts)) < 0)
        return rc;
    if (!p->serve && fbr_fnref_make(&ref, (void (*)(void))fn, &err) < 0)
        return fbr_keep_error(&err);
    r = calloc(1, sizeof(*r));
    if (!r)
        return fbr_keep(-ENOMEM, "pool: out of memory");
    r->pool = p;
    r->refs = 2;
    r->opts = *opts;
    if (r->opts.retries == FIBER_RETRIES_DEFAULT)
        r->opts.retries = fbr_config_int(p->rt->config, "retries");
    else if (r->opts.retries == FIBER_RETRIES_NONE)
        r->opts.retries = 0;
    fbr_cond_init(&r->changed);
    if (put_ref(r, p->serve ? NULL : &ref) < 0) {
        pthread_cond_destroy(&r->changed);
        free(r);
        return fbr_keep(-ENOMEM, "pool: out of memory");
    }
    pthread_mutex_lock(&p->lock);
    p->refs++;
    pthread_mutex_unlock(&p->lock);
    *out = r;
    return 0;
}

static uint64_t size_of(void *user, uint64_t index)
{
    const void *data;
    size_t len = 0;

    fbr_result_input(user, index, &data, &len);
    return len;
}

static void wake_later(struct fiber_result *r)
{
    if (r->waking || !(r->waiting || r->waiting_task))
        return;
    r->waking = true;
    r->refs++;
    r->next_wake = r->pool->wakes;
    r->pool->wakes = r;
}

/* Under the lock, which is released meanwhile: a thread that woke while we hold the lock would only
 * block on it. */
static void wake_waiters(struct fiber_pool *p)
{
    struct fiber_result *r;

    if (p->wake_takers) {
        p->wake_takers = false;
        pthread_mutex_unlock(&p->lock);
        pthread_cond_broadcast(&p->taken);
        pthread_mutex_lock(&p->lock);
    }
    while ((r = p->wakes)) {
        p->wakes = r->next_wake;
        r->waking = false;
        pthread_mutex_unlock(&p->lock);
        pthread_cond_broadcast(&r->changed);
        unref(r);
        pthread_mutex_lock(&p->lock);
    }
}

static struct fbr_pace *find_pace(const struct fiber_result *r)
{
    struct fiber_pool *p = r->pool;

    for (int i = 0; i < 8; i++)
        if (p->paces[i].mean_ns && p->paces[i].ref_len == r->ref_len &&
            memcmp(p->paces[i].ref, r->ref, r->ref_len) == 0)
            return &p->paces[i];
    return NULL;
}

static void keep_pace(const struct fiber_result *r)
{
    struct fiber_pool *p = r->pool;
    uint64_t mean = fbr_dispatch_map_mean(p->dispatch, r->map);
    struct fbr_pace *pace = find_pace(r);

    if (!mean)
        return;
    if (!pace) {
        pace = &p->paces[p->next_pace++ % 8];
        memcpy(pace->ref, r->ref, r->ref_len);
        pace->ref_len = r->ref_len;
    }
    pace->mean_ns = mean;
}

/* The map is over: its input may go away. */
static void finish(struct fiber_result *r)
{
    struct fiber_pool *p = r->pool;

    if (!r->map)
        return;
    keep_pace(r);
    fbr_dispatch_map_close(p->dispatch, r->map);
    fbr_common_put(p, r->common);
    r->common = NULL;
    __atomic_store_n(&r->map, 0, __ATOMIC_RELEASE);
    r->open = false;
    DL_DELETE(p->results, r);
    r->refs--; /* the handle, or a callback, still has a reference */
    wake_later(r);
    fbr_ready_set(&r->over, !r->callbacks);
    if (!p->undone)
        pthread_cond_broadcast(&p->changed);
}

/* Makes room for the results of its tasks, except for a stream, whose tasks come one by one. */
static int make_room(struct fiber_result *r)
{
    size_t n = r->n ? r->n : 1;
    bool calls = r->opts.on_done && r->n;

    if (r->kind == FBR_RESULT_STREAM)
        return 0;
    if (r->kind == FBR_RESULT_ARRAY)
        r->flags = calloc(n, 1);
    else
        r->slots = calloc(n, sizeof(*r->slots));
    if (!r->flags && !r->slots)
        return fbr_keep(-ENOMEM, "pool: out of memory for %zu task%s", (size_t)r->n,
                        r->n == 1 ? "" : "s");
    r->each = calls ? calloc(n, sizeof(*r->each)) : NULL;
    return r->each || !calls ? 0
                             : fbr_keep(-ENOMEM, "pool: out of memory for %zu callback%s",
                                        (size_t)r->n, r->n == 1 ? "" : "s");
}

/* Under the lock: adds the result to the pool's. */
static void enlist(struct fiber_result *r)
{
    struct fiber_pool *p = r->pool;

    DL_APPEND(p->results, r);
    r->end_by_ms = UINT64_MAX;
    if (r->opts.map_timeout_ms)
        r->end_by_ms = fbr_now_ms() + (uint64_t)r->opts.map_timeout_ms;
    if (r->end_by_ms < p->end_by_ms)
        p->end_by_ms = r->end_by_ms;
}

/* Under the lock: gives its tasks to the engine, and workers get them. */
static int submit(struct fiber_result *r, struct fbr_dispatch_map *map)
{
    struct fiber_pool *p = r->pool;
    const struct fbr_pace *pace = find_pace(r);

    map->expect_ns = pace ? pace->mean_ns : 0;
    r->quick = pace && p->cpus > 1 && p->size.target &&
               pace->mean_ns * (r->n / (uint64_t)p->size.target + 1) < QUICK_NS;
    if (p->closing)
        return fbr_keep(-ESHUTDOWN, "%s", p->end_why);
    if (fbr_dispatch_map_add(p->dispatch, map, &r->map) < 0)
        return fbr_keep(-ENOMEM, "pool: out of memory");
    fbr_workers_retry(p);
    r->open = map->open;
    enlist(r);
    p->stats.submitted += r->n;
    p->undone += r->n;
    if (r->n == 0 && !r->open)
        finish(r);
    if (p->size.min < p->size.max)
        fbr_workers_adjust(p);
    return 0;
}

int fbr_result_begin(struct fiber_result *r, bool open)
{
    struct fiber_pool *p = r->pool;
    struct fbr_dispatch_map map = {
        .user = r,
        .tasks = r->n,
        .open = open,
        .priority = r->opts.priority,
        .retries = r->opts.retries,
        .timeout_ns = (uint64_t)r->opts.timeout_ms * 1000000u,
        .chunk = (uint32_t)(r->opts.chunk > UINT32_MAX ? UINT32_MAX : r->opts.chunk),
        .size_of = size_of};
    int rc = make_room(r);

    if (rc < 0)
        goto fail;
    if (r->kind == FBR_RESULT_ARRAY)
        map.task_bytes = r->in_size ? r->in_size : 1;
    pthread_mutex_lock(&p->lock);
    rc = submit(r, &map);
    fbr_pool_leave(p);
    if (rc < 0)
        goto fail;
    return 0;
fail:
    r->refs = 1;
    unref(r);
    return rc;
}

/* ---- Tasks ---- */

void fbr_result_input(const struct fiber_result *r, uint64_t index, const void **data, size_t *len)
{
    struct fbr_item *item;

    switch (r->kind) {
    case FBR_RESULT_ARRAY:
        *data = r->in + index * r->in_size;
        *len = r->in_size;
        return;
    case FBR_RESULT_BYTES:
        *data = r->bytes[index].data;
        *len = r->bytes[index].len;
        return;
    case FBR_RESULT_STREAM:
        HASH_FIND(hh, r->items, &index, sizeof(index), item);
        *data = item ? item->in.data : NULL;
        *len = item ? item->in.len : 0;
        return;
    }
}

static void fill_slot(struct fbr_slot *s, int code, const void *data, size_t len)
{
    s->data = malloc(len + 1);
    s->done = true;
    s->code = s->data ? code : -ENOMEM;
    s->len = s->data ? (uint32_t)len : 0;
    if (!s->data)
        return;
    if (len)
        memcpy(s->data, data, len);
    ((char *)s->data)[len] = '\0';
}

/* Stores the result of a task of an array, and fills `c` for its callback. Without memory an error
 * has no text. */
static int deliver_array(struct fiber_result *r, uint64_t index, int code, const void *data,
                         size_t len, struct fbr_callback *c)
{
    char text[96];

    if (code == 0 && len != r->out_size) {
        snprintf(text, sizeof(text), "the result has %zu bytes, but an item of the array has %zu",
                 len, r->out_size);
        code = -EMSGSIZE;
        data = text;
        len = strlen(text);
    }
    r->flags[index] = code == 0 ? FBR_ARRAY_DONE : FBR_ARRAY_FAILED;
    if (!code && len)
        memcpy(r->out + index * len, data, len);
    if (code && !r->slots)
        r->slots = calloc(r->n, sizeof(*r->slots));
    if (code && r->slots)
        fill_slot(&r->slots[index], code, data, len);
    fbr_result_read(r, index, &c->data, &c->len);
    return code;
}

static void call_later(struct fiber_result *r, struct fbr_callback *c)
{
    struct fiber_pool *p = r->pool;

    if (c->waits)
        return;
    c->waits = true;
    c->next = NULL;
    c->r = r;
    r->refs++;
    r->callbacks++;
    *p->callbacks_last = c;
    p->callbacks_last = &c->next;
}

static void count_done(struct fiber_result *r, uint64_t index, int code)
{
    struct fiber_pool *p = r->pool;

    r->done++;
    p->undone--;
    p->stats.done++;
    if (!code)
        return;
    p->stats.failed++;
    if (!r->first_code || index < r->first_error) {
        r->first_error = index;
        r->first_code = code;
    }
}

void fbr_result_deliver(struct fiber_result *r, uint64_t index, int32_t code, const void *data,
                        size_t len)
{
    struct fbr_callback *c, unwanted = {.next = NULL};
    struct fbr_slot *slot = NULL;
    struct fbr_item *item = NULL;

    c = r->each ? &r->each[index] : &unwanted;
    if (r->kind == FBR_RESULT_ARRAY) {
        code = deliver_array(r, index, code, data, len, c);
    } else if (r->kind == FBR_RESULT_BYTES) {
        slot = &r->slots[index];
        fill_slot(slot, code, data, len);
    } else {
        HASH_FIND(hh, r->items, &index, sizeof(index), item);
        if (!item)
            return;
        slot = &item->slot;
        c = &item->callback;
        c->item = item;
        fill_slot(slot, code, data, len);
        fiber_bytes_free(&item->in);
        if (!r->put)
            DL_APPEND(r->ready, item);
    }
    if (slot) {
        code = slot->code;
        c->data = slot->data;
        c->len = slot->len;
    }
    count_done(r, index, code);
    c->index = index;
    c->code = code;
    if (r->put)
        fbr_stream_deliver(r, item);
    else if (r->opts.on_done)
        call_later(r, c);
}

void fbr_result_messages_end(struct fiber_result *r)
{
    if (r->opts.on_progress) { /* a waiting call reports the newest state */
        r->progress.progress = true;
        r->progress.index = r->done;
        r->progress.len = r->n;
        call_later(r, &r->progress);
    }
    if (r->done == r->n && !r->open)
        finish(r);
    else if (!r->pool->undone)
        pthread_cond_broadcast(&r->pool->changed);
    if (r->waiting_task)
        wake_later(r);
}

void fbr_result_failed(struct fiber_result *r, uint64_t index, int32_t code, const char *fmt, ...)
{
    char text[4096];
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    fbr_result_deliver(r, index, code, text, strlen(text));
    fbr_result_messages_end(r);
}

void fbr_result_task_failure(struct fiber_pool *p, const struct fbr_dispatch_failure *f)
{
    char reports[3500] = "";
    size_t at = 0;

    for (uint32_t i = 0; i < f->reports && at < sizeof(reports) - 1; i++) {
        bool kept = p->next_report - f->report[i] < FBR_DEATH_REPORTS;
        const char *text = kept ? p->reports[f->report[i] % FBR_DEATH_REPORTS] : NULL;

        at += (size_t)snprintf(reports + at, sizeof(reports) - at, "%s%.1000s", i ? "\n" : "",
                               text ? text : "a worker died");
    }
    if (!f->map_user)
        return;
    if (f->why == FBR_DISPATCH_BLAMED)
        fbr_result_failed(
            f->map_user, f->index, -EOWNERDEAD,
            "task %llu was running when %u worker%s died, so it is not tried again:\n%s",
            (unsigned long long)f->index, f->deaths, f->deaths == 1 ? "" : "s", reports);
    else
        fbr_result_failed(f->map_user, f->index, -EOWNERDEAD,
                          "task %llu was lost with its worker, and has no retries left:\n%s",
                          (unsigned long long)f->index, reports);
}

/* ---- Ending early ---- */

bool fbr_result_is_done(const struct fiber_result *r, uint64_t i)
{
    return r->kind == FBR_RESULT_ARRAY ? r->flags[i] != 0 : r->slots[i].done;
}

int fbr_result_read(const struct fiber_result *r, uint64_t i, const void **data, size_t *len)
{
    const struct fbr_slot *s = r->slots ? &r->slots[i] : NULL;

    if (r->kind == FBR_RESULT_ARRAY && r->flags[i] == FBR_ARRAY_DONE) {
        *data = r->out + i * r->out_size;
        *len = r->out_size;
        return 0;
    }
    if (s && s->data) {
        *data = s->data;
        *len = s->len;
        return s->code;
    }
    *data = r->why ? r->why : "failed";
    *len = strlen(*data);
    return s && s->code ? s->code : r->end_code ? r->end_code : -EIO;
}

static void end_map(struct fiber_result *r, int code, const char *why)
{
    struct fbr_item *item, *next;

    if (!r->map)
        return;
    r->end_code = code;
    r->why = strdup(why);
    HASH_ITER(hh, r->items, item, next)
        if (!item->slot.done)
            fbr_result_deliver(r, item->index, code, why, strlen(why));
    for (uint64_t i = 0; r->kind != FBR_RESULT_STREAM && i < r->n; i++) {
        if (fbr_result_is_done(r, i))
            continue;
        if (r->opts.on_done) {
            fbr_result_deliver(r, i, code, why, strlen(why));
            continue;
        }
        if (r->kind == FBR_RESULT_ARRAY)
            r->flags[i] = FBR_ARRAY_FAILED;
        else
            r->slots[i] = (struct fbr_slot){.done = true, .code = code};
        count_done(r, i, code);
    }
    finish(r);
}

void fbr_result_end_all(struct fiber_pool *p, int32_t code, const char *why)
{
    struct fiber_result *r, *next;

    DL_FOREACH_SAFE(p->results, r, next)
        end_map(r, code, why);
}

void fbr_result_end_late(struct fiber_pool *p)
{
    uint64_t now = fbr_now_ms(), next = UINT64_MAX;
    struct fiber_result *r, *after;
    char why[128];

    if (now < p->end_by_ms)
        return;
    DL_FOREACH_SAFE(p->results, r, after) {
        if (r->end_by_ms <= now) {
            snprintf(why, sizeof(why),
                     "%llu of %llu task%s done when the map's timeout of %d ms expired",
                     (unsigned long long)r->done, (unsigned long long)r->n, r->n == 1 ? "" : "s",
                     r->opts.map_timeout_ms);
            end_map(r, -ETIMEDOUT, why);
        } else if (r->end_by_ms < next) {
            next = r->end_by_ms;
        }
    }
    p->end_by_ms = next;
}

int fiber_result_cancel(struct fiber_result *r)
{
    struct fiber_pool *p = r->pool;

    if (fbr_rt_check() < 0)
        return -EPERM;
    pthread_mutex_lock(&p->lock);
    end_map(r, -ECANCELED, "cancelled");
    fbr_pool_leave(p);
    return 0;
}

int fiber_result_cancel_task(struct fiber_result *r, size_t index)
{
    struct fiber_pool *p = r->pool;
    struct fbr_dispatch_order order;
    int rc;

    if (fbr_rt_check() < 0)
        return -EPERM;
    pthread_mutex_lock(&p->lock);
    rc = index < r->n ? -EALREADY : -ENOENT;
    if (index < r->n && r->map)
        rc = fbr_dispatch_task_cancel(p->dispatch, r->map, index, &order);
    if (rc == 1)
        fbr_pool_carry_out(&order);
    if (rc >= 0)
        fbr_result_failed(r, index, -ECANCELED, "cancelled");
    fbr_pool_leave(p);
    if (rc == -EALREADY)
        return fbr_keep(rc, "task %zu is done already", index);
    if (rc == -ENOMEM)
        return fbr_keep(rc, "pool: out of memory");
    return rc < 0 ? fbr_keep(rc, "there is no task %zu", index) : 0;
}

void fiber_result_close(struct fiber_result *r)
{
    if (!r || fiber_result_cancel(r) < 0) /* a fork() child has only a copy of the result */
        return;
    pthread_mutex_lock(&r->pool->lock);
    while (r->callbacks && !fbr_pool_in_callback(r->pool))
        fbr_cond_wait(&r->changed, &r->pool->lock, UINT64_MAX);
    pthread_mutex_unlock(&r->pool->lock);
    unref(r);
}

/* ---- Callbacks ---- */

bool fbr_pool_in_callback(const struct fiber_pool *p)
{
    return p->calling && pthread_equal(p->caller, pthread_self());
}

/* Under the lock, which is released while the program's function runs. */
static void call_back(struct fiber_pool *p, struct fbr_callback *c)
{
    const struct fbr_callback it = *c;
    struct fiber_result *r = c->r;

    if (it.progress)
        c->waits = false;
    pthread_mutex_unlock(&p->lock);
    fbr_rt_callback(true);
    if (it.progress)
        r->opts.on_progress(r->opts.user, it.index, it.len);
    else
        r->opts.on_done(r->opts.user, it.index, it.code, it.data, it.len);
    fbr_rt_callback(false);
    pthread_mutex_lock(&p->lock);
    if (!it.progress)
        c->waits = false;
    if (it.item && it.item->handed_out)
        fbr_item_free(it.item);
    if (--r->callbacks == 0) {
        pthread_cond_broadcast(&r->changed);
        fbr_ready_set(&r->over, !r->map);
    }
    pthread_mutex_unlock(&p->lock);
    unref(r);
    pthread_mutex_lock(&p->lock);
}

void fbr_pool_leave(struct fiber_pool *p)
{
    struct fbr_callback *c;

    fbr_pool_pump(p);
    wake_waiters(p);
    if (p->calling) { /* that thread, or a call further up this stack, runs our callbacks as well */
        pthread_mutex_unlock(&p->lock);
        return;
    }
    p->calling = true;
    p->caller = pthread_self();
    p->refs++; /* the last result may be freed */
    while ((c = p->callbacks)) {
        p->callbacks = c->next;
        if (!p->callbacks)
            p->callbacks_last = &p->callbacks;
        call_back(p, c);
    }
    p->refs--; /* the caller has a reference, too */
    p->calling = false;
    pthread_cond_broadcast(&p->changed);
    pthread_mutex_unlock(&p->lock);
}
