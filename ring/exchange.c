/* exchange.c - fences and published names of agents.
 *
 * Fences with the same key form rounds, without numbers: the calls of each agent wait in its own
 * queue. A round is complete when every agent that takes part has a call in its queue, or has no
 * rank any more. An agent may be two fences ahead of another.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "ring/exchange.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define HASH_NONFATAL_OOM 1 /* an entry that could not be added has hh.tbl NULL */
#include <uthash.h>
#include <utlist.h>

#include "runtime/base/buf.h"

struct part { /* one agent's call of a fence */
    struct part *next, *prev;
    uint64_t request;
    size_t len;
    uint8_t data[];
};

struct seat { /* an agent that takes part in a fence */
    uint32_t agent;
    struct part *parts;
};

struct fence {
    UT_hash_handle hh;
    struct seat *seats;    /* [all], by rising number of the agent */
    uint32_t all, waiting; /* agents that take part; of these, agents with a call */
    uint8_t key[];
};

struct name {
    UT_hash_handle hh;
    uint32_t job, rank;
    size_t len;
    const char *value; /* behind the key */
    char key[];
};

struct waiter { /* a lookup of a name that is not there yet */
    struct waiter *next, *prev;
    uint32_t agent;
    uint64_t request, deadline;
    char key[];
};

struct fbr_exchange {
    fbr_exchange_answer *answer;
    void *user;
    struct fence *fences;
    struct name *names;
    struct waiter *waiters;
    struct fbr_held *held;
    bool idle[]; /* by number of the agent: it has no ranks */
};

struct fbr_exchange *fbr_exchange_open(uint32_t agents, fbr_exchange_answer *answer, void *user,
                                       struct fbr_held *held)
{
    struct fbr_exchange *x = calloc(1, sizeof(*x) + agents * sizeof(x->idle[0]));

    if (x) {
        x->answer = answer;
        x->user = user;
        x->held = held;
    }
    return x;
}

/* ---- Memory that is counted on `held` ---- */

/* Returns zeroed memory, or NULL with errno. */
static void *take(struct fbr_exchange *x, size_t size)
{
    void *p;

    if (fbr_held_reserve(x->held, size) < 0) {
        errno = ENOBUFS;
        return NULL;
    }
    p = calloc(1, size);
    if (!p)
        fbr_held_release(x->held, size);
    return p;
}

static void give_back(struct fbr_exchange *x, void *p, size_t size)
{
    fbr_held_release(x->held, size);
    free(p);
}

/* ---- Fences ---- */

static void free_part(struct fbr_exchange *x, struct part *p)
{
    give_back(x, p, sizeof(*p) + p->len);
}

static void drop_calls(struct fbr_exchange *x, struct fence *f, struct seat *s)
{
    struct part *p, *next;

    f->waiting -= s->parts != NULL;
    DL_FOREACH_SAFE(s->parts, p, next)
        free_part(x, p);
    s->parts = NULL;
}

static void drop_fence(struct fbr_exchange *x, struct fence *f)
{
    for (uint32_t i = 0; i < f->all; i++)
        drop_calls(x, f, &f->seats[i]);
    HASH_DEL(x->fences, f);
    free(f->seats);
    free(f);
}

static struct fence *add_fence(struct fbr_exchange *x, const void *key, size_t key_len,
                               const uint32_t *agents, uint32_t parts)
{
    struct fence *f = calloc(1, sizeof(*f) + key_len);

    if (f)
        f->seats = calloc(parts, sizeof(*f->seats));
    if (f && f->seats) {
        for (uint32_t i = 0; i < parts; i++)
            f->seats[i].agent = agents[i];
        f->all = parts;
        memcpy(f->key, key, key_len);
        HASH_ADD(hh, x->fences, key, key_len, f);
    }
    if (f && f->hh.tbl)
        return f;
    if (f)
        free(f->seats);
    free(f);
    return NULL;
}

/* Returns the seat of the agent; NULL: it is none of these agents, or another agent has named
 * others for the same key. */
static struct seat *find_seat(struct fence *f, uint32_t agent, const uint32_t *agents,
                              uint32_t parts)
{
    struct seat *found = NULL;

    for (uint32_t i = 0; i < parts && parts == f->all; i++) {
        if (agents[i] != f->seats[i].agent)
            return NULL;
        if (agents[i] == agent)
            found = &f->seats[i];
    }
    return found;
}

static int add_part(struct fbr_exchange *x, struct fence *f, struct seat *s, uint64_t request,
                    const void *data, size_t len)
{
    struct part *p = take(x, sizeof(*p) + len);

    if (!p)
        return -errno;
    *p = (struct part){.request = request, .len = len};
    if (len)
        memcpy(p->data, data, len);
    f->waiting += s->parts == NULL;
    DL_APPEND(s->parts, p);
    return 0;
}

/* Takes the first call of each agent and answers it with the data of all. */
static void complete(struct fbr_exchange *x, struct fence *f)
{
    struct fbr_buf all = {0};
    int code;

    for (uint32_t i = 0; i < f->all; i++)
        if (f->seats[i].parts) {
            fbr_put_u32(&all, f->seats[i].agent);
            fbr_put_bytes(&all, f->seats[i].parts->data, f->seats[i].parts->len);
        }
    code = all.failed ? -ENOMEM : 0;
    for (uint32_t i = 0; i < f->all; i++) {
        struct seat *s = &f->seats[i];
        struct part *p = s->parts;

        if (!p)
            continue;
        DL_DELETE(s->parts, p);
        f->waiting -= s->parts == NULL;
        x->answer(x->user, s->agent, p->request, code, all.data, code ? 0 : all.len);
        free_part(x, p);
    }
    fbr_buf_fini(&all);
}

/* True if every agent of the fence has called, or is idle. */
static bool is_complete(const struct fbr_exchange *x, const struct fence *f)
{
    for (uint32_t i = 0; i < f->all; i++)
        if (!f->seats[i].parts && !x->idle[f->seats[i].agent])
            return false;
    return f->waiting;
}

static void complete_if_whole(struct fbr_exchange *x, struct fence *f)
{
    while (is_complete(x, f))
        complete(x, f);
    if (!f->waiting)
        drop_fence(x, f);
}

void fbr_exchange_fence(struct fbr_exchange *x, uint32_t agent, uint64_t request, const void *key,
                        size_t key_len, const uint32_t *agents, uint32_t parts, const void *data,
                        size_t len)
{
    struct seat *s = NULL;
    struct fence *f;
    int rc = -ENOMEM;

    HASH_FIND(hh, x->fences, key, key_len, f);
    if (!f)
        f = add_fence(x, key, key_len, agents, parts);
    if (f) {
        s = find_seat(f, agent, agents, parts);
        rc = s ? add_part(x, f, s, request, data, len) : -EINVAL;
    }
    if (rc < 0)
        x->answer(x->user, agent, request, rc, NULL, 0);
    if (f)
        complete_if_whole(x, f);
}

void fbr_exchange_idle(struct fbr_exchange *x, uint32_t agent, bool idle)
{
    struct fence *f, *next;

    x->idle[agent] = idle;
    HASH_ITER(hh, x->fences, f, next)
        complete_if_whole(x, f);
}

/* ---- Names ---- */

static void answer_lookup(struct fbr_exchange *x, uint32_t agent, uint64_t request,
                          const struct name *n)
{
    struct fbr_buf b = {0};

    fbr_put_u32(&b, n->job);
    fbr_put_u32(&b, n->rank);
    fbr_put(&b, n->value, n->len);
    x->answer(x->user, agent, request, b.failed ? -ENOMEM : 0, b.data, b.failed ? 0 : b.len);
    fbr_buf_fini(&b);
}

static void drop_name(struct fbr_exchange *x, struct name *n)
{
    HASH_DEL(x->names, n);
    give_back(x, n, sizeof(*n) + strlen(n->key) + 1 + n->len);
}

static void drop_waiter(struct fbr_exchange *x, struct waiter *w)
{
    DL_DELETE(x->waiters, w);
    give_back(x, w, sizeof(*w) + strlen(w->key) + 1);
}

static int add_name(struct fbr_exchange *x, uint32_t job, uint32_t rank, const char *key,
                    const void *value, size_t len)
{
    struct name *n;
    size_t k = strlen(key);

    HASH_FIND(hh, x->names, key, k, n);
    if (n)
        return -EEXIST;
    n = take(x, sizeof(*n) + k + 1 + len);
    if (!n)
        return -errno;
    *n = (struct name){.job = job, .rank = rank, .len = len, .value = n->key + k + 1};
    memcpy(n->key, key, k + 1);
    if (len)
        memcpy(n->key + k + 1, value, len);
    HASH_ADD(hh, x->names, key, k, n);
    if (n->hh.tbl)
        return 0;
    give_back(x, n, sizeof(*n) + k + 1 + len);
    return -ENOMEM;
}

void fbr_exchange_publish(struct fbr_exchange *x, uint32_t agent, uint64_t request, uint32_t job,
                          uint32_t rank, const char *key, const void *value, size_t len)
{
    struct waiter *w, *next;
    struct name *n;
    int rc = add_name(x, job, rank, key, value, len);

    x->answer(x->user, agent, request, rc, NULL, 0);
    HASH_FIND(hh, x->names, key, strlen(key), n);
    if (rc < 0 || !n)
        return;
    DL_FOREACH_SAFE(x->waiters, w, next) {
        if (strcmp(w->key, key) != 0)
            continue;
        answer_lookup(x, w->agent, w->request, n);
        drop_waiter(x, w);
    }
}

void fbr_exchange_lookup(struct fbr_exchange *x, uint32_t agent, uint64_t request, const char *key,
                         int wait_ms, uint64_t now_ms)
{
    size_t k = strlen(key);
    struct waiter *w;
    struct name *n;

    HASH_FIND(hh, x->names, key, k, n);
    if (n) {
        answer_lookup(x, agent, request, n);
        return;
    }
    w = wait_ms ? take(x, sizeof(*w) + k + 1) : NULL;
    if (!w) {
        x->answer(x->user, agent, request, wait_ms ? -errno : -ENOENT, NULL, 0);
        return;
    }
    *w = (struct waiter){.agent = agent, .request = request};
    w->deadline = wait_ms < 0 ? UINT64_MAX : now_ms + (uint64_t)wait_ms;
    memcpy(w->key, key, k + 1);
    DL_APPEND(x->waiters, w);
}

void fbr_exchange_unpublish(struct fbr_exchange *x, uint32_t agent, uint64_t request, uint32_t job,
                            uint32_t rank, const char *key)
{
    struct name *n, *next;
    int found = 0;

    HASH_ITER(hh, x->names, n, next) {
        if (n->job != job || n->rank != rank || (key && strcmp(key, n->key) != 0))
            continue;
        drop_name(x, n);
        found = 1;
    }
    x->answer(x->user, agent, request, found || !key ? 0 : -ENOENT, NULL, 0);
}

/* ---- Ends ---- */

void fbr_exchange_agent_gone(struct fbr_exchange *x, uint32_t agent)
{
    struct fence *f, *next;
    struct waiter *w, *next_waiter;

    HASH_ITER(hh, x->fences, f, next) {
        for (uint32_t i = 0; i < f->all; i++)
            if (f->seats[i].agent == agent)
                drop_calls(x, f, &f->seats[i]);
        if (!f->waiting)
            drop_fence(x, f);
    }
    DL_FOREACH_SAFE(x->waiters, w, next_waiter)
        if (w->agent == agent)
            drop_waiter(x, w);
}

void fbr_exchange_job_end(struct fbr_exchange *x, uint32_t job)
{
    struct name *n, *next;

    HASH_ITER(hh, x->names, n, next)
        if (n->job == job)
            drop_name(x, n);
}

uint64_t fbr_exchange_deadline(const struct fbr_exchange *x)
{
    uint64_t first = UINT64_MAX;
    struct waiter *w;

    DL_FOREACH(x->waiters, w)
        first = w->deadline < first ? w->deadline : first;
    return first;
}

void fbr_exchange_tick(struct fbr_exchange *x, uint64_t now_ms)
{
    struct waiter *w, *next;

    DL_FOREACH_SAFE(x->waiters, w, next) {
        if (w->deadline > now_ms)
            continue;
        x->answer(x->user, w->agent, w->request, -ETIMEDOUT, NULL, 0);
        drop_waiter(x, w);
    }
}

void fbr_exchange_close(struct fbr_exchange *x)
{
    struct fence *f, *next_fence;
    struct name *n, *next_name;

    if (!x)
        return;
    HASH_ITER(hh, x->fences, f, next_fence)
        drop_fence(x, f);
    HASH_ITER(hh, x->names, n, next_name)
        drop_name(x, n);
    while (x->waiters)
        drop_waiter(x, x->waiters);
    free(x);
}
