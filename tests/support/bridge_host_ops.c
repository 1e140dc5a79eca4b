/* bridge_host_ops.c - what bridges ask of their host: fences, names, messages, services; see
 * bridge_host.h.
 *
 * All of it runs on the loop thread.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <utlist.h>

#include "tests/support/bridge_host_priv.h"

void host_must(bool ok, const char *what)
{
    if (ok)
        return;
    fprintf(stderr, "bridge_host: %s (%s)\n", what, strerror(errno));
    abort();
}

void *host_make(size_t size)
{
    void *p = calloc(1, size);

    host_must(p != NULL, "memory");
    return p;
}

/* ---- answers, given from a later turn of the loop ---- */

struct answer {
    fbr_bridge_done *done;
    void (*on_data)(void *arg, const void *data, size_t len);
    struct bridge_host *h;
    uint64_t stream;
    void *arg;
    int code;
    struct fbr_buf data;
};

static void give(void *arg)
{
    struct answer *a = arg;
    struct stream *s;

    if (a->done) {
        a->done(a->arg, a->code, a->data.data, a->data.len);
    } else {
        DL_FOREACH(a->h->streams, s)
            if (s->id == a->stream)
                break;
        if (s) {
            void (*on_data)(void *, const void *, size_t) = s->on_data;
            void *user = s->arg;

            if (!a->data.len) {
                DL_DELETE(a->h->streams, s);
                free(s);
            }
            on_data(user, a->data.data, a->data.len);
        }
    }
    fbr_buf_fini(&a->data);
    free(a);
}

void host_answer(struct bridge_host *h, fbr_bridge_done *done, void *arg, int code,
                 const void *data, size_t len)
{
    struct answer *a = host_make(sizeof(*a));

    *a = (struct answer){.done = done, .arg = arg, .code = code};
    fbr_put(&a->data, data, len);
    fbr_loop_post(h->loop, give, a);
}

static struct agent *self(void *user)
{
    return user;
}

static int host_post(void *user, void (*fn)(void *arg), void *arg)
{
    return fbr_loop_post(self(user)->h->loop, fn, arg);
}

/* ---- fences ---- */

static void fence_end(struct bridge_host *h, struct fence *f, int code)
{
    struct fbr_buf all = {0};

    for (uint32_t k = 0; k < HOST_AGENTS; k++)
        if (f->part[k].there) {
            fbr_put_u32(&all, k);
            fbr_put_bytes(&all, f->part[k].data.data, f->part[k].data.len);
        }
    for (uint32_t k = 0; k < HOST_AGENTS; k++) {
        if (f->part[k].there)
            host_answer(h, f->part[k].done, f->part[k].arg, code, code ? NULL : all.data,
                        code ? 0 : all.len);
        fbr_buf_fini(&f->part[k].data);
    }
    fbr_buf_fini(&all);
    fbr_buf_fini(&f->key);
    DL_DELETE(h->fences, f);
    free(f);
}

static int host_fence(void *user, const void *key, size_t key_len, const uint32_t *agents,
                      uint32_t parts, const void *data, size_t len, fbr_bridge_done *done,
                      void *arg)
{
    struct agent *a = user;
    struct bridge_host *h = a->h;
    struct fence *f;

    for (uint32_t i = 1; i < parts; i++)
        host_must(agents[i - 1] < agents[i], "agents of a fence are out of order");
    h->fence_count++;
    h->fence_bytes += len;
    if (h->broken)
        return -ECONNABORTED;
    DL_FOREACH(h->fences, f)
        if (f->key.len == key_len && !memcmp(f->key.data, key, key_len) &&
            !f->part[a->number].there)
            break;
    if (!f) {
        f = host_make(sizeof(*f));
        fbr_put(&f->key, key, key_len);
        f->parts = parts;
        DL_APPEND(h->fences, f);
    }
    host_must(f->parts == parts, "parts of a fence differ");
    f->part[a->number] = (struct part){.there = true, .agent = a->number, .done = done, .arg = arg};
    fbr_put(&f->part[a->number].data, data, len);
    if (++f->come == f->parts)
        fence_end(h, f, 0);
    return 0;
}

static int break_now(void *arg)
{
    struct bridge_host *h = arg;

    h->broken = true;
    while (h->fences)
        fence_end(h, h->fences, -ECONNABORTED);
    return 0;
}

void host_break(struct bridge_host *h)
{
    host_call(h, break_now, h);
}

struct counts {
    struct bridge_host *h;
    unsigned fences;
    size_t bytes;
};

static int count_fences(void *arg)
{
    struct counts *c = arg;

    c->fences = c->h->fence_count;
    c->bytes = c->h->fence_bytes;
    return 0;
}

void host_fences(struct bridge_host *h, unsigned *count, size_t *bytes)
{
    struct counts c = {.h = h};

    host_call(h, count_fences, &c);
    *count = c.fences;
    *bytes = c.bytes;
}

/* ---- messages between agents ---- */

struct told {
    struct agent *from, *to;
    struct fbr_buf data;
};

static void notify_now(void *arg)
{
    struct told *t = arg;

    for (uint32_t i = 0; i < t->to->h->nbridges; i++)
        if (t->to->bridges[i] && t->to->h->ops[i]->message) {
            struct fbr_cur c = fbr_cur(t->data.data, t->data.len);

            t->to->h->ops[i]->message(t->to->bridges[i], t->from->number, &c);
        }
    fbr_buf_fini(&t->data);
    free(t);
}

/* One bridge with messages at a time. */
static int host_notify(void *user, uint32_t agent, const void *data, size_t len)
{
    struct agent *a = user;
    struct told *t = host_make(sizeof(*t));

    host_must(agent < a->h->nagents, "tell: no such agent");
    t->from = a;
    t->to = &a->h->agents[agent];
    fbr_put(&t->data, data, len);
    return fbr_loop_post(a->h->loop, notify_now, t);
}

/* ---- names ---- */

static struct name *name_find(struct bridge_host *h, const char *key)
{
    struct name *n;

    DL_FOREACH(h->names, n)
        if (!strcmp(n->key, key))
            return n;
    return NULL;
}

static void name_free(struct bridge_host *h, struct name *n)
{
    DL_DELETE(h->names, n);
    fbr_buf_fini(&n->value);
    free(n);
}

static int host_publish(void *user, uint32_t job, uint32_t rank, const char *key, const void *value,
                        size_t len, fbr_bridge_done *done, void *arg)
{
    struct bridge_host *h = self(user)->h;
    struct name *n = name_find(h, key);
    int code = n ? -EEXIST : 0;

    if (!n) {
        n = host_make(sizeof(*n));
        snprintf(n->key, sizeof(n->key), "%s", key);
        n->job = job;
        n->rank = rank;
        fbr_put(&n->value, value, len);
        DL_APPEND(h->names, n);
    }
    host_answer(h, done, arg, code, NULL, 0);
    return 0;
}

static int host_lookup(void *user, const char *key, int wait_ms, fbr_bridge_done *done, void *arg)
{
    struct bridge_host *h = self(user)->h;
    struct name *n = name_find(h, key);
    struct fbr_buf value = {0};

    if (n) {
        fbr_put_u32(&value, n->job);
        fbr_put_u32(&value, n->rank);
        fbr_put(&value, n->value.data, n->value.len);
    }
    host_answer(h, done, arg, n ? 0 : -ENOENT, value.data, value.len);
    fbr_buf_fini(&value);
    return 0;
}

static int host_unpublish(void *user, uint32_t job, uint32_t rank, const char *key,
                          fbr_bridge_done *done, void *arg)
{
    struct bridge_host *h = self(user)->h;
    struct name *n, *next;
    int code = -ENOENT;

    DL_FOREACH_SAFE(h->names, n, next)
        if (n->job == job && n->rank == rank && (!key || !strcmp(n->key, key))) {
            name_free(h, n);
            code = 0;
        }
    host_answer(h, done, arg, code, NULL, 0);
    return 0;
}

/* ---- services ---- */

static void push(struct stream *s, const void *data, size_t len)
{
    struct bridge_host *h = s->service->h;
    struct answer *a = host_make(sizeof(*a));

    *a = (struct answer){.h = h, .stream = s->id};
    fbr_put(&a->data, data, len);
    fbr_loop_post(h->loop, give, a);
}

static void service_send(void *peer, const void *data, size_t len)
{
    if (len)
        push(peer, data, len);
}

static void service_hang_up(void *peer)
{
    struct stream *s = peer;

    push(s, NULL, 0);
    s->conn = NULL;
}

static struct service *service_find(struct bridge_host *h, uint32_t job, const char *name)
{
    static const struct fbr_service_host host = {service_send, service_hang_up};
    struct service *s;

    for (uint32_t i = 0; i < h->nservices; i++)
        if (h->services[i].job == job && !strcmp(h->services[i].ops->name, name))
            return &h->services[i];
    for (const struct fbr_service_ops *const *ops = fbr_services; *ops; ops++)
        if (!strcmp((*ops)->name, name) && h->nservices < SERVICES) {
            s = &h->services[h->nservices++];
            *s = (struct service){.h = h, .job = job, .ops = *ops};
            s->engine = s->ops->open(&host);
            host_must(s->engine != NULL, "service");
            return s;
        }
    return NULL;
}

static int host_stream_open(void *user, uint32_t job, const char *name,
                            void (*on_data)(void *arg, const void *data, size_t len), void *arg,
                            uint64_t *stream)
{
    struct bridge_host *h = self(user)->h;
    struct service *service = service_find(h, job, name);
    struct stream *s;

    if (!service)
        return -ENOENT;
    s = host_make(sizeof(*s));
    *s =
        (struct stream){.id = ++h->last_stream, .service = service, .on_data = on_data, .arg = arg};
    DL_APPEND(h->streams, s);
    *stream = s->id;
    s->conn = service->ops->opened(service->engine, s);
    host_must(s->conn != NULL, "connection");
    return 0;
}

static struct stream *stream_find(struct bridge_host *h, uint64_t id)
{
    struct stream *s;

    DL_FOREACH(h->streams, s)
        if (s->id == id)
            return s;
    return NULL;
}

static int host_stream_send(void *user, uint64_t stream, const void *data, size_t len)
{
    struct bridge_host *h = self(user)->h;
    struct stream *s = stream_find(h, stream);

    if (!s || !s->conn)
        return -EPIPE;
    s->service->ops->bytes(s->conn, data, len);
    return 0;
}

static void stream_free(struct bridge_host *h, struct stream *s)
{
    if (s->conn)
        s->service->ops->closed(s->conn);
    DL_DELETE(h->streams, s);
    free(s);
}

static void host_stream_close(void *user, uint64_t stream)
{
    struct bridge_host *h = self(user)->h;
    struct stream *s = stream_find(h, stream);

    if (s)
        stream_free(h, s);
}

/* ---- what ranks do ---- */

static struct host_rank *rank_of(void *user, uint32_t job, uint32_t rank)
{
    struct bridge_host *h = self(user)->h;

    host_must(job < h->njobs && rank < h->jobs[job]->of[0].size, "no such rank");
    return &h->jobs[job]->ranks[rank];
}

static void host_met(void *user, uint32_t job, uint32_t rank, const char *how)
{
    struct host_rank *r = rank_of(user, job, rank);

    r->met++;
    snprintf(r->how, sizeof(r->how), "%s", how);
}

static void host_left(void *user, uint32_t job, uint32_t rank)
{
    rank_of(user, job, rank)->left++;
}

static void host_abort(void *user, uint32_t job, uint32_t rank, int code, const char *text)
{
    struct host_rank *r = rank_of(user, job, rank);

    self(user)->h->jobs[job]->aborted = true;
    r->aborted++;
    r->abort_code = code;
    snprintf(r->abort_text, sizeof(r->abort_text), "%s", text ? text : "");
    for (uint32_t i = 0; i < self(user)->h->jobs[job]->of[0].size; i++) /* as a ring does */
        if (self(user)->h->jobs[job]->ranks[i].pid > 0)
            kill(self(user)->h->jobs[job]->ranks[i].pid, SIGKILL);
}

static void host_print(void *user, uint32_t job, uint32_t rank, int stream, const char *text,
                       size_t len)
{
    (void)rank_of(user, job, rank);
}

void host_ops_fill(struct fbr_bridge_host *host)
{
    host->post = host_post;
    host->fence = host_fence;
    host->notify = host_notify;
    host->publish = host_publish;
    host->lookup = host_lookup;
    host->unpublish = host_unpublish;
    host->stream_open = host_stream_open;
    host->stream_send = host_stream_send;
    host->stream_close = host_stream_close;
    host->met = host_met;
    host->left = host_left;
    host->abort = host_abort;
    host->print = host_print;
}

void host_ops_free(struct bridge_host *h)
{
    while (h->fences) {
        struct fence *f = h->fences;

        for (uint32_t k = 0; k < HOST_AGENTS; k++)
            fbr_buf_fini(&f->part[k].data);
        fbr_buf_fini(&f->key);
        DL_DELETE(h->fences, f);
        free(f);
    }
    while (h->names)
        name_free(h, h->names);
    while (h->streams)
        stream_free(h, h->streams);
    for (uint32_t i = 0; i < h->nservices; i++)
        h->services[i].ops->close(h->services[i].engine);
}
