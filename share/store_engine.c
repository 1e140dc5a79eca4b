/* store_engine.c - carries out the requests of a shared store; see store_engine.h.
 *
 * A thing that is in its initial state is freed at the end of each event (fbr_thing_tidy), so state
 * and memory cannot differ. Memory for a grant to a waiter is allocated before it waits: only a
 * request itself can fail for lack of memory, never an unlock, a cancel or a death.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "share/store_engine.h"

#include <endian.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <utlist.h>

#include "share/store_things.h"

#define ANSWERED 1               /* a handler has answered already, or the request waits */
#define SCRATCH_KEEP (64 * 1024) /* bytes of scratch memory that are kept between requests */

struct fbr_store_engine {
    fbr_store_reply_fn *reply;
    void *user;
    struct fbr_things all;
    struct fbr_buf scratch;
};

struct request {
    uint64_t peer, call;
    struct fbr_store_ask ask;
    struct fbr_thing *thing; /* NULL if there is none and the op does not make one */
};

/* ---- answers ---- */

static int answer(struct fbr_store_engine *e, uint64_t peer, uint64_t call, int code,
                  const void *bytes, size_t len)
{
    e->reply(e->user, peer, call, code, bytes ? bytes : "", len);
    return ANSWERED;
}

static int answer_u64(struct fbr_store_engine *e, const struct request *r, uint64_t n)
{
    n = htole64(n);
    return answer(e, r->peer, r->call, 0, &n, sizeof(n));
}

static int answer_blob(struct fbr_store_engine *e, const struct request *r,
                       const struct fbr_blob *blob)
{
    return answer(e, r->peer, r->call, 0, blob->data, blob->len);
}

/* Answers with the content of the scratch buffer. */
static int answer_scratch(struct fbr_store_engine *e, const struct request *r, int code)
{
    struct fbr_buf *b = &e->scratch;

    if (b->failed)
        answer(e, r->peer, r->call, -ENOMEM, NULL, 0);
    else
        answer(e, r->peer, r->call, code, b->data, b->len);
    if (b->cap > SCRATCH_KEEP)
        fbr_buf_fini(b);
    fbr_buf_clear(b);
    return ANSWERED;
}

/* Lets the request wait at its thing. Returns ANSWERED, or the reason why it cannot wait. */
static int wait_for(struct fbr_store_engine *e, const struct request *r,
                    struct fbr_store_hold *hold)
{
    int code = fbr_waiter_add(&e->all, r->thing, r->peer, r->call, r->ask.op, hold);

    return code < 0 ? code : ANSWERED;
}

/* Answers a waiter and drops it. */
static void end_wait(struct fbr_store_engine *e, struct fbr_waiter *w, int code, const void *bytes,
                     size_t len)
{
    struct fbr_waiter_key key = w->key;
    bool gone = w->peer->gone;

    fbr_waiter_drop(&e->all, w);
    if (!gone)
        answer(e, key.peer, key.call, code, bytes, len);
}

static void end_waits(struct fbr_store_engine *e, struct fbr_thing *t, int code, const void *bytes,
                      size_t len)
{
    while (t->waiters)
        end_wait(e, t->waiters, code, bytes, len);
}

/* ---- dictionary ---- */

static int set_value(struct fbr_store_engine *e, struct request *r)
{
    struct fbr_thing *t = r->thing;
    struct fbr_blob blob;
    int code = fbr_blob_copy(&e->all, &blob, r->ask.value, r->ask.value_len);

    if (code < 0)
        return code;
    fbr_blob_drop(&e->all, &t->value.blob);
    t->value.blob = blob;
    t->value.set = true;
    end_waits(e, t, 0, blob.data, blob.len);
    return 0;
}

static int get_value(struct fbr_store_engine *e, struct request *r)
{
    struct fbr_thing *t = r->thing;

    if (t && t->value.set)
        return answer_blob(e, r, &t->value.blob);
    return r->ask.wait ? wait_for(e, r, NULL) : -ENOENT;
}

static bool is_expected(const struct fbr_store_ask *ask, const struct fbr_blob *found)
{
    if (!ask->expect || !found)
        return !ask->expect && !found;
    return found->len == ask->expect_len &&
           (!found->len || !memcmp(found->data, ask->expect, found->len));
}

static int swap_value(struct fbr_store_engine *e, struct request *r)
{
    struct fbr_blob *found = r->thing && r->thing->value.set ? &r->thing->value.blob : NULL;
    int code = 0;

    if (!is_expected(&r->ask, found)) {
        fbr_put_u8(&e->scratch, found != NULL);
        if (found)
            fbr_put(&e->scratch, found->data, found->len);
        return answer_scratch(e, r, -ESTALE);
    }
    if (!r->thing)
        r->thing = fbr_thing_make(&e->all, VALUE, &r->ask, &code);
    return r->thing ? set_value(e, r) : code;
}

/* Deletes everything with the name, except locks, semaphores and barriers, which end by
 * themselves. */
static int delete_name(struct fbr_store_engine *e, struct request *r)
{
    static const enum fbr_thing_kind kinds[] = {VALUE, COUNTER, LIST, EVENT};
    int code = -ENOENT;

    for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
        struct fbr_thing *t = fbr_thing_find(&e->all, kinds[i], &r->ask);

        if (t && fbr_thing_reset(&e->all, t))
            code = 0;
        if (t != r->thing)
            fbr_thing_tidy(&e->all, t);
    }
    return code;
}

static int compare_names(const void *a, const void *b)
{
    const struct fbr_thing *x = *(const struct fbr_thing *const *)a,
                           *y = *(const struct fbr_thing *const *)b;
    size_t n = x->name_len < y->name_len ? x->name_len : y->name_len;
    int order = memcmp(x->name, y->name, n);

    return order ? order : (x->name_len > y->name_len) - (x->name_len < y->name_len);
}

static int list_keys(struct fbr_store_engine *e, struct request *r)
{
    size_t n = 0, prefix = r->ask.name_len;
    struct fbr_thing **found, *t, *tmp;

    found = malloc((HASH_COUNT(e->all.things[VALUE]) + 1) * sizeof(struct fbr_thing *));
    if (!found)
        return -ENOMEM;
    HASH_ITER(hh, e->all.things[VALUE], t, tmp) {
        if (t->value.set && t->name_len >= prefix && !memcmp(t->name, r->ask.name, prefix))
            found[n++] = t;
    }
    qsort(found, n, sizeof(*found), compare_names);
    for (size_t i = 0; i < n; i++) {
        fbr_put(&e->scratch, found[i]->name, found[i]->name_len);
        fbr_put_u8(&e->scratch, 0);
    }
    free(found);
    return answer_scratch(e, r, 0);
}

/* ---- counters and lists ---- */

static int add_counter(struct fbr_store_engine *e, struct request *r)
{
    int64_t sum;

    if (__builtin_add_overflow(r->thing->counter, r->ask.number, &sum))
        return -ERANGE;
    r->thing->counter = sum;
    return answer_u64(e, r, (uint64_t)sum);
}

static int list_grow(struct fbr_store_engine *e, struct fbr_thing_list *l)
{
    size_t cap = l->cap ? l->cap * 2 : 4;
    struct fbr_blob *items;
    int code = 0;

    if (l->len < l->cap)
        return 0;
    items = fbr_things_alloc(&e->all, cap * sizeof(*items), &code);
    if (!items)
        return code;
    for (size_t i = 0; i < l->len; i++)
        items[i] = l->items[(l->head + i) & (l->cap - 1)];
    fbr_things_free(&e->all, l->items, l->cap * sizeof(*l->items));
    l->items = items;
    l->cap = cap;
    l->head = 0;
    return 0;
}

static int push_list(struct fbr_store_engine *e, struct request *r)
{
    struct fbr_thing *t = r->thing;
    struct fbr_thing_list *l = &t->list;
    struct fbr_blob blob;
    int code;

    if (t->waiters) {
        end_wait(e, t->waiters, 0, r->ask.value, r->ask.value_len);
        return 0;
    }
    code = list_grow(e, l);
    if (!code)
        code = fbr_blob_copy(&e->all, &blob, r->ask.value, r->ask.value_len);
    if (code < 0)
        return code;
    l->items[(l->head + l->len++) & (l->cap - 1)] = blob;
    return 0;
}

static int pop_list(struct fbr_store_engine *e, struct request *r)
{
    struct fbr_thing_list *l = r->thing ? &r->thing->list : NULL;
    struct fbr_blob blob;

    if (!l || !l->len)
        return r->ask.wait ? wait_for(e, r, NULL) : -ETIMEDOUT;
    blob = l->items[l->head];
    l->head = (l->head + 1) & (l->cap - 1);
    l->len--;
    answer_blob(e, r, &blob);
    fbr_blob_drop(&e->all, &blob);
    return ANSWERED;
}

static int list_at(struct fbr_store_engine *e, struct request *r)
{
    struct fbr_thing_list *l = r->thing ? &r->thing->list : NULL;

    if (!l || (uint64_t)r->ask.number >= l->len)
        return -ENOENT;
    return answer_blob(e, r, &l->items[(l->head + (size_t)r->ask.number) & (l->cap - 1)]);
}

static int list_length(struct fbr_store_engine *e, struct request *r)
{
    return answer_u64(e, r, r->thing ? r->thing->list.len : 0);
}

/* ---- locks and semaphores ---- */

/* Gives a free lock to p. Returns the code of p's answer. */
static int hold_lock(struct fbr_thing *t, struct fbr_holder *p)
{
    int code = t->lock.owner_died ? -EOWNERDEAD : 0;

    t->lock.owner_died = false;
    t->lock.holder = p;
    DL_APPEND2(p->locks, t, lock.prev, lock.next);
    return code;
}

static void free_lock(struct fbr_store_engine *e, struct fbr_thing *t)
{
    struct fbr_waiter *w = t->waiters;

    DL_DELETE2(t->lock.holder->locks, t, lock.prev, lock.next);
    t->lock.holder = NULL;
    if (w)
        end_wait(e, w, hold_lock(t, w->peer), NULL, 0);
}

static void name_holder(struct fbr_holder *p, const struct fbr_store_ask *ask)
{
    size_t n = ask->value_len < sizeof(p->who) - 1 ? ask->value_len : sizeof(p->who) - 1;

    if (n)
        memcpy(p->who, ask->value, n);
    p->who[n] = '\0';
}

/* A waiter is a holder, too. */
static int take_lock(struct fbr_store_engine *e, struct request *r)
{
    struct fbr_holder *p, *holder = r->thing->lock.holder;
    int code = 0;

    if (holder && !r->ask.wait)
        return answer(e, r->peer, r->call, -ETIMEDOUT, holder->who, strlen(holder->who));
    if (holder)
        code = wait_for(e, r, NULL);
    p = code < 0 ? NULL : fbr_holder_need(&e->all, r->peer, &code);
    if (!p)
        return code;
    name_holder(p, &r->ask);
    return holder ? ANSWERED : hold_lock(r->thing, p);
}

static int unlock(struct fbr_store_engine *e, struct request *r)
{
    struct fbr_thing *t = r->thing;

    if (!t || !t->lock.holder || t->lock.holder->id != r->peer)
        return -EPERM;
    free_lock(e, t);
    return 0;
}

static void hold_unit(struct fbr_store_hold *h)
{
    h->units++;
    h->key.thing->semaphore.held++;
    h->key.thing->semaphore.free--;
}

/* Releases n units of h; they go to the peers that wait first. */
static void free_units(struct fbr_store_engine *e, struct fbr_store_hold *h, uint64_t n)
{
    struct fbr_thing *t = h->key.thing;

    h->units -= n;
    fbr_hold_tidy(&e->all, h);
    t->semaphore.held -= n;
    t->semaphore.free += (int64_t)n;
    while (t->waiters && t->semaphore.free) {
        hold_unit(t->waiters->hold);
        end_wait(e, t->waiters, 0, NULL, 0);
    }
}

static int acquire_unit(struct fbr_store_engine *e, struct request *r)
{
    struct fbr_thing *t = r->thing;
    struct fbr_holder *p;
    struct fbr_store_hold *h;
    int code = 0;

    if (r->ask.number < 1)
        return -EINVAL;
    if (!t->semaphore.held)
        t->semaphore.free = r->ask.number;
    if (!t->semaphore.free && !r->ask.wait)
        return -ETIMEDOUT;
    p = fbr_holder_need(&e->all, r->peer, &code);
    h = p ? fbr_hold_need(&e->all, p, t, &code) : NULL;
    if (!h)
        return code;
    if (t->semaphore.free) {
        hold_unit(h);
        return 0;
    }
    code = wait_for(e, r, h);
    fbr_hold_tidy(&e->all, h);
    return code;
}

static int release_unit(struct fbr_store_engine *e, struct request *r)
{
    struct fbr_holder *p = r->thing ? fbr_holder_find(&e->all, r->peer) : NULL;
    struct fbr_store_hold *h = p ? fbr_hold_find(&e->all, p, r->thing) : NULL;

    if (!h || !h->units)
        return -EPERM;
    free_units(e, h, 1);
    return 0;
}

/* ---- events and barriers ---- */

static int set_event(struct fbr_store_engine *e, struct request *r)
{
    r->thing->event = true;
    end_waits(e, r->thing, 0, NULL, 0);
    return 0;
}

static int clear_event(struct fbr_store_engine *e, struct request *r)
{
    if (r->thing)
        r->thing->event = false;
    return 0;
}

static int wait_event(struct fbr_store_engine *e, struct request *r)
{
    if (r->thing && r->thing->event)
        return 0;
    return r->ask.wait ? wait_for(e, r, NULL) : -ETIMEDOUT;
}

static void break_barrier(struct fbr_store_engine *e, struct fbr_thing *t)
{
    end_waits(e, t, -ECONNABORTED, NULL, 0);
}

static int join_barrier(struct fbr_store_engine *e, struct request *r)
{
    struct fbr_thing *t = r->thing;
    uint32_t index;

    if (r->ask.number < 1 || r->ask.number > INT32_MAX ||
        (t->waiters && t->parties != r->ask.number))
        return -EINVAL;
    t->parties = r->ask.number;
    if ((int64_t)t->waiting + 1 < t->parties) {
        if (r->ask.wait)
            return wait_for(e, r, NULL);
        break_barrier(e, t);
        return -ETIMEDOUT;
    }
    while (t->waiters) {
        index = htole32((uint32_t)t->waiting);
        end_wait(e, t->waiters, 0, &index, sizeof(index));
    }
    index = 0;
    return answer(e, r->peer, r->call, 0, &index, sizeof(index));
}

/* ---- events of the engine ---- */

enum make { NEVER, TO_WAIT, ALWAYS };

struct op {
    enum fbr_thing_kind kind;
    enum make make; /* whether to make the thing, if none has that name */
    /* The code to answer, or ANSWERED. */
    int (*run)(struct fbr_store_engine *e, struct request *r);
};

static const struct op ops[FBR_STORE_OPS] = {
    [FBR_STORE_SET] = {VALUE, ALWAYS, set_value},
    [FBR_STORE_GET] = {VALUE, TO_WAIT, get_value},
    [FBR_STORE_SWAP] = {VALUE, NEVER, swap_value},
    [FBR_STORE_DELETE] = {VALUE, NEVER, delete_name},
    [FBR_STORE_KEYS] = {VALUE, NEVER, list_keys},
    [FBR_STORE_ADD] = {COUNTER, ALWAYS, add_counter},
    [FBR_STORE_PUSH] = {LIST, ALWAYS, push_list},
    [FBR_STORE_POP] = {LIST, TO_WAIT, pop_list},
    [FBR_STORE_AT] = {LIST, NEVER, list_at},
    [FBR_STORE_LENGTH] = {LIST, NEVER, list_length},
    [FBR_STORE_LOCK] = {LOCK, ALWAYS, take_lock},
    [FBR_STORE_UNLOCK] = {LOCK, NEVER, unlock},
    [FBR_STORE_ACQUIRE] = {SEMAPHORE, ALWAYS, acquire_unit},
    [FBR_STORE_RELEASE] = {SEMAPHORE, NEVER, release_unit},
    [FBR_STORE_EVENT_SET] = {EVENT, ALWAYS, set_event},
    [FBR_STORE_EVENT_CLEAR] = {EVENT, NEVER, clear_event},
    [FBR_STORE_EVENT_WAIT] = {EVENT, TO_WAIT, wait_event},
    [FBR_STORE_BARRIER] = {BARRIER, ALWAYS, join_barrier},
};

static int run(struct fbr_store_engine *e, struct request *r)
{
    const struct op *op = &ops[r->ask.op];
    int code = 0;

    r->thing = fbr_thing_find(&e->all, op->kind, &r->ask);
    if (!r->thing && (op->make == ALWAYS || (op->make == TO_WAIT && r->ask.wait))) {
        r->thing = fbr_thing_make(&e->all, op->kind, &r->ask, &code);
        if (!r->thing)
            return code;
    }
    return op->run(e, r);
}

void fbr_store_request(struct fbr_store_engine *e, uint64_t peer, uint64_t call, struct fbr_cur *c)
{
    struct request r = {.peer = peer, .call = call};
    int code = fbr_store_ask_get(c, &r.ask);

    if (!code && fbr_waiter_find(&e->all, peer, call))
        code = -EBADMSG;
    if (!code)
        code = run(e, &r);
    fbr_thing_tidy(&e->all, r.thing);
    if (code != ANSWERED)
        answer(e, peer, call, code, NULL, 0);
}

void fbr_store_cancel(struct fbr_store_engine *e, uint64_t peer, uint64_t call)
{
    struct fbr_waiter *w = fbr_waiter_find(&e->all, peer, call);
    const char *holder = "";
    struct fbr_thing *t;

    if (!w)
        return;
    t = w->thing;
    if (t->kind == LOCK && t->lock.holder)
        holder = t->lock.holder->who;
    end_wait(e, w, w->op == FBR_STORE_GET ? -ENOENT : -ETIMEDOUT, holder, strlen(holder));
    if (t->kind == BARRIER)
        break_barrier(e, t);
    fbr_thing_tidy(&e->all, t);
}

/* The order matters: nothing that p releases may go to p. */
void fbr_store_peer_gone(struct fbr_store_engine *e, uint64_t peer)
{
    struct fbr_holder *p = fbr_holder_find(&e->all, peer);

    if (!p)
        return;
    p->gone = true;
    while (p->waiters) {
        struct fbr_thing *t = p->waiters->thing;

        fbr_waiter_drop(&e->all, p->waiters);
        if (t->kind == BARRIER)
            break_barrier(e, t);
        fbr_thing_tidy(&e->all, t);
    }
    while (p->locks) {
        p->locks->lock.owner_died = true;
        free_lock(e, p->locks);
    }
    while (p->holds) {
        struct fbr_thing *t = p->holds->key.thing;

        free_units(e, p->holds, p->holds->units);
        fbr_thing_tidy(&e->all, t);
    }
    fbr_holder_drop(&e->all, p);
}

size_t fbr_store_engine_memory(const struct fbr_store_engine *e)
{
    return e->all.memory;
}

struct fbr_store_engine *fbr_store_engine_open(fbr_store_reply_fn *reply, void *user,
                                               size_t memory_max)
{
    struct fbr_store_engine *e = calloc(1, sizeof(*e));

    if (!e)
        return NULL;
    e->reply = reply;
    e->user = user;
    e->all.memory_max = memory_max;
    return e;
}

void fbr_store_engine_close(struct fbr_store_engine *e)
{
    if (!e)
        return;
    fbr_things_fini(&e->all);
    fbr_buf_fini(&e->scratch);
    free(e);
}
