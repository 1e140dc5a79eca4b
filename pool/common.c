/* common.c - input that all tasks of a map share: which worker has it, and when it is dropped.
 *
 * A worker gets the common input on its data link before the first batch that needs it. Workers of
 * a host get it from their host, which keeps it (runtime/net/relay.h), so it is sent to a host
 * once.
 *
 * Equal bytes are one common input, so repeated maps of one function send nothing again. Unused
 * common inputs stay while they are few and small.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <utlist.h>

#include "pool/pool.h"
#include "runtime/net/relay.h"

#define UNUSED_MAX 8                    /* unused common inputs that are kept for a next map */
#define UNUSED_BYTES ((size_t)64 << 20) /* their total bytes, at most */

/* ---- Sets of ids ---- */

static bool has(const struct fbr_buf *ids, uint64_t id)
{
    const uint64_t *all = (const void *)ids->data;

    for (size_t i = ids->len / sizeof(id); i > 0; i--) /* the newest one is looked up most */
        if (all[i - 1] == id)
            return true;
    return false;
}

static int add(struct fbr_buf *ids, uint64_t id)
{
    fbr_put_u64(ids, id);
    if (!ids->failed)
        return 0;
    ids->failed = false;
    return -ENOMEM;
}

/* Removes the id; returns whether it was in the set. */
static bool take_out(struct fbr_buf *ids, uint64_t id)
{
    uint64_t *all = (void *)ids->data;

    for (size_t i = 0; i < ids->len / sizeof(id); i++) {
        if (all[i] != id)
            continue;
        ids->len -= sizeof(id);
        memmove(all + i, all + i + 1, ids->len - i * sizeof(id));
        return true;
    }
    return false;
}

/* ---- The pool's common inputs ---- */

/* Drops c and notifies the workers and hosts that have it. One that cannot be notified keeps it,
 * which does no harm. */
static void drop(struct fiber_pool *p, struct fbr_common *c)
{
    const uint64_t forget[2] = {FBR_FORGET, c->id}, order[2] = {FBR_RELAY_DROP, c->id};
    const struct iovec to_worker = {(void *)(uintptr_t)forget, sizeof(forget)};
    const struct iovec to_host = {(void *)(uintptr_t)order, sizeof(order)};
    struct fbr_pool_worker *w;
    struct fbr_pool_supervisor *h;

    DL_FOREACH(p->workers, w)
        if (take_out(&w->commons, c->id))
            fbr_link_send(fbr_process_link(w->process), &to_worker, 1);
    DL_FOREACH(p->hosts, h)
        if (take_out(&h->commons, c->id) && !h->ended)
            fbr_link_send(fbr_process_link(h->process), &to_host, 1);
    DL_DELETE(p->commons, c);
    free(c);
}

/* Drops unused common inputs, the least recently used first. */
static void trim(struct fiber_pool *p)
{
    struct fbr_common *c, *next;
    size_t bytes = 0;
    int n = 0;

    DL_FOREACH(p->commons, c) {
        bytes += c->maps ? 0 : c->len;
        n += !c->maps;
    }
    DL_FOREACH_SAFE(p->commons, c, next) {
        if (n <= UNUSED_MAX && bytes <= UNUSED_BYTES)
            return;
        if (c->maps)
            continue;
        n--;
        bytes -= c->len;
        drop(p, c);
    }
}

static struct fbr_common *find(struct fiber_pool *p, const void *data, size_t len)
{
    struct fbr_common *c;

    DL_FOREACH(p->commons, c)
        if (c->len == len && memcmp(c->data, data, len) == 0)
            return c;
    return NULL;
}

struct fbr_common *fbr_common_get(struct fiber_pool *p, const void *data, size_t len)
{
    struct fbr_common *c, *fresh = NULL;

    pthread_mutex_lock(&p->lock);
    c = find(p, data, len);
    if (!c) {
        pthread_mutex_unlock(&p->lock); /* the copy may take long */
        fresh = malloc(sizeof(*fresh) + len);
        if (!fresh)
            return NULL;
        memcpy(fresh->data, data, len);
        pthread_mutex_lock(&p->lock);
        c = fresh;
        c->id = ++p->common_count;
        c->maps = 0;
        c->len = len;
    } else {
        DL_DELETE(p->commons, c);
    }
    DL_APPEND(p->commons, c);
    c->maps++;
    pthread_mutex_unlock(&p->lock);
    return c;
}

void fbr_common_put(struct fiber_pool *p, struct fbr_common *c)
{
    if (c && --c->maps == 0 && !p->closing)
        trim(p);
}

void fbr_common_free_all(struct fiber_pool *p)
{
    struct fbr_common *c, *next;

    DL_FOREACH_SAFE(p->commons, c, next)
        free(c);
    p->commons = NULL;
}

/* ---- Sending ---- */

/* Sends c to the host, if the host does not keep it yet, and from there to the worker. */
static int send_by_host(struct fbr_pool_worker *w, const struct fbr_common *c)
{
    struct fbr_link *link = fbr_process_link(w->host->process);
    const uint64_t keep[4] = {FBR_RELAY_KEEP, c->id, FBR_COMMON, c->id};
    const uint64_t give[3] = {FBR_RELAY_GIVE, c->id, fbr_link_id(fbr_process_link(w->process))};
    const struct iovec kept[2] = {{(void *)(uintptr_t)keep, sizeof(keep)},
                                  {(void *)(uintptr_t)c->data, c->len}};
    const struct iovec given = {(void *)(uintptr_t)give, sizeof(give)};
    int rc;

    /* The host ignores a record that it keeps already. */
    if (!has(&w->host->commons, c->id) &&
        ((rc = fbr_link_send(link, kept, 2)) < 0 || (rc = add(&w->host->commons, c->id)) < 0))
        return rc;
    return fbr_link_send(link, &given, 1);
}

int fbr_common_send(struct fbr_pool_worker *w, const struct fbr_common *c)
{
    const uint64_t head[2] = {FBR_COMMON, c ? c->id : 0};
    const struct iovec iov[2] = {{(void *)(uintptr_t)head, sizeof(head)},
                                 {(void *)(uintptr_t)(c ? c->data : NULL), c ? c->len : 0}};
    int rc;

    if (!c || has(&w->commons, c->id))
        return 0;
    if (w->host && w->host->ended)
        return -EPIPE;
    rc = w->host ? send_by_host(w, c) : fbr_link_send(fbr_process_link(w->process), iov, 2);
    return rc < 0 ? rc : add(&w->commons, c->id);
}
