/* imap.c - maps over a lazy source: results one by one, and never more than a window of tasks under
 * way.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <utlist.h>

#include "pool/pool.h"

struct fiber_imap {
    struct fiber_result *r;
    fiber_source_fn source;
    void *user;
    size_t window;
    bool unordered, ended;  /* ended: the source has no more inputs */
    struct fbr_error error; /* why the source was not read to its end */
    uint64_t next;          /* ordered: the next index to hand out */
};

int fiber_pool_imap(struct fiber_pool *p, fiber_task_fn fn, fiber_source_fn source, void *user,
                    size_t window, unsigned flags, const struct fiber_map_options *opts,
                    struct fiber_imap **out)
{
    struct fiber_imap *it;
    int rc;

    if (!p || !source || !out || flags > FIBER_IMAP_UNORDERED)
        return fbr_keep(
            -EINVAL,
            "pool: imap needs a pool, a source, valid flags, and a pointer for the iterator");
    if (fbr_rt_check() < 0)
        return -EPERM;
    it = calloc(1, sizeof(*it));
    if (!it)
        return fbr_keep(-ENOMEM, "pool: out of memory");
    it->source = source;
    it->user = user;
    it->unordered = flags & FIBER_IMAP_UNORDERED;
    pthread_mutex_lock(&p->lock);
    it->window = window ? window : 4 * (size_t)p->size.max;
    pthread_mutex_unlock(&p->lock);
    rc = fbr_result_new(p, fn, opts, &it->r);
    if (rc < 0)
        goto fail;
    it->r->kind = FBR_RESULT_STREAM;
    rc = fbr_result_begin(it->r, true);
    if (rc < 0)
        goto fail;
    *out = it;
    return 0;
fail:
    free(it);
    return rc;
}

/* Takes one input from the source, without the lock: 1 and a list of one item, 0 at its end, or the
 * code of it->error. */
static int pull(struct fiber_imap *it, struct fbr_item **list)
{
    struct fiber_bytes in = {NULL, 0};
    struct fbr_item *item;
    int rc = it->source(it->user, &in);

    if (rc < 0)
        return fbr_fail(&it->error, rc, "the source of the map failed: %s", fbr_strerror(rc));
    if (rc > 1)
        return fbr_fail(&it->error, -EIO, "the source of the map returned %d", rc);
    if (!rc)
        return 0;
    rc = fbr_pool_check_inputs(it->r->pool, &in, 1);
    if (rc < 0)
        return fbr_fail(&it->error, rc, "the source of the map: %s", fiber_last_error());
    item = fbr_item_new(&in);
    if (!item)
        return fbr_fail(&it->error, -ENOMEM, "pool: out of memory for an input");
    DL_APPEND(*list, item);
    return 1;
}

/* Fills the window. Under the lock, which is released while the source runs. */
static void refill(struct fiber_imap *it)
{
    struct fiber_result *r = it->r;
    struct fiber_pool *p = r->pool;
    uint64_t added = 0;

    while (!it->ended && r->map && HASH_COUNT(r->items) < it->window) {
        struct fbr_item *item = NULL;
        int rc;

        pthread_mutex_unlock(&p->lock);
        rc = pull(it, &item);
        pthread_mutex_lock(&p->lock);
        if (rc > 0 && !r->map) { /* the pool was closed meanwhile */
            fbr_item_free(item);
            break;
        }
        if (rc > 0 && fbr_stream_add(r, &item, 1) < 0) {
            fbr_item_free(item);
            rc = fbr_fail(&it->error, -ENOMEM, "%s", fiber_last_error());
        }
        if (rc <= 0) {
            it->ended = true;
            break;
        }
        /* the first tasks start while the source goes on */
        if (added++ % 64 == 0)
            fbr_pool_pump(p);
    }
    if (added && p->size.min < p->size.max)
        fbr_workers_adjust(p);
    if (added)
        fbr_pool_pump(p);
}

static struct fbr_item *next_ready(struct fiber_imap *it)
{
    struct fbr_item *item;

    if (it->unordered)
        return it->r->ready;
    HASH_FIND(hh, it->r->items, &it->next, sizeof(it->next), item);
    return item && item->slot.done ? item : NULL;
}

/* The callback that shows the same bytes has not returned: the program gets a copy. */
static int copy_for_callback(const struct fbr_item *item, struct fiber_bytes *out)
{
    if (item->slot.code)
        return 0;
    *out = (struct fiber_bytes){malloc(item->slot.len + 1), item->slot.len};
    if (!out->data) {
        out->len = 0;
        return fbr_keep(-ENOMEM, "pool: out of memory for a result of %u bytes; call again",
                        item->slot.len);
    }
    memcpy(out->data, item->slot.data, item->slot.len + 1);
    return 0;
}

static int hand_out(struct fiber_imap *it, struct fbr_item *item, size_t *index,
                    struct fiber_bytes *out)
{
    int rc = 1;

    item->handed_out = item->callback.waits;
    if (item->handed_out && copy_for_callback(item, out) < 0) {
        item->handed_out = false;
        return -ENOMEM;
    }
    HASH_DELETE(hh, it->r->items, item);
    DL_DELETE(it->r->ready, item);
    it->next = item->index + 1;
    if (index)
        *index = item->index;
    if (item->slot.code) {
        rc = item->slot.code;
        fbr_keep(rc, "%s", item->slot.data ? (char *)item->slot.data : "failed");
    } else if (!item->handed_out) {
        *out = (struct fiber_bytes){item->slot.data, item->slot.len};
        item->slot.data = NULL;
    }
    if (!item->handed_out)
        fbr_item_free(item);
    return rc;
}

/* Under the lock, when there are no more results: 0 at the end of the source, or the kept error if
 * the source was not read to its end. */
static int end_of(const struct fiber_imap *it)
{
    const struct fiber_result *r = it->r;

    if (it->error.code)
        return fbr_keep_error(&it->error);
    if (it->ended)
        return 0;
    return fbr_keep(r->end_code ? r->end_code : -ESHUTDOWN, "%s",
                    r->why ? r->why : "the map has ended");
}

int fiber_imap_next(struct fiber_imap *it, size_t *index, struct fiber_bytes *out, int timeout_ms)
{
    struct fiber_result *r = it->r;
    struct fiber_pool *p = r->pool;
    uint64_t deadline = fbr_deadline(timeout_ms);
    int rc = fbr_rt_check();

    *out = (struct fiber_bytes){NULL, 0};
    if (rc < 0)
        return rc;
    pthread_mutex_lock(&p->lock);
    for (;;) {
        struct fbr_item *item;

        refill(it); /* if tasks fail at once, their callbacks run at the end */
        item = next_ready(it);
        if (item) {
            rc = hand_out(it, item, index, out);
            break;
        }
        if (HASH_COUNT(r->items) == 0) {
            rc = end_of(it);
            break;
        }
        r->waiting_task++;
        rc = fbr_rt_wait(p->rt, &r->changed, &p->lock, deadline);
        r->waiting_task--;
        if (rc < 0 && !next_ready(it)) {
            if (rc == -ETIMEDOUT)
                fbr_keep(rc, "no result within %d ms", timeout_ms);
            break;
        }
    }
    fbr_pool_leave(p);
    return rc;
}

void fiber_imap_close(struct fiber_imap *it)
{
    if (!it)
        return;
    fiber_result_close(it->r);
    free(it);
}
