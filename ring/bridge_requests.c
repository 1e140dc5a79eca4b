/* bridge_requests.c - requests that agents send to the launcher for their bridges: fences, names,
 * spawns, messages to each other, and streams to services.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "ring/ring_priv.h"
#include "runtime/base/log.h"

#define KEY_MAX (64u << 10)

/* A service of a job. */
struct ring_service {
    struct ring_service *next;
    struct ring_job *job;
    const struct fbr_service_ops *ops;
    struct fbr_service *service;
};

/* A connection of a rank to a service. */
struct ring_stream {
    UT_hash_handle hh;
    struct {
        uint32_t agent, pad;
        uint64_t number; /* the agent's number for it */
    } key;
    struct ring_service *service;
    struct fbr_service_conn *conn;
};

/* ---- Time ---- */

static void set_tick(struct fiber_ring *r)
{
    uint64_t next = fbr_exchange_deadline(r->exchange), now = fbr_now_ms();

    if (next == UINT64_MAX)
        fbr_timer_stop(&r->tick);
    else
        fbr_timer_start(&r->tick, next > now ? next - now : 0, 0);
}

static void on_tick(void *arg)
{
    struct fiber_ring *r = arg;

    fbr_exchange_tick(r->exchange, fbr_now_ms());
    set_tick(r);
}

/* ---- Answers ---- */

static void answer(void *user, uint32_t agent, uint64_t request, int code, const void *data,
                   size_t len)
{
    struct fiber_ring *r = user;
    struct fbr_buf b = {0};

    fbr_trace("agent %u on %s: request %llu is answered: %zu bytes, code %d", agent,
              r->agents[agent].host, (unsigned long long)request, len, code);
    fbr_put_u64(&b, request);
    fbr_put_u32(&b, (uint32_t)code);
    fbr_put(&b, data, len);
    fbr_ring_answer(&r->agents[agent], FBR_RING_ANSWER, &b);
    fbr_buf_fini(&b);
}

static void on_fence(struct ring_agent *a, uint64_t request, struct fbr_cur *c)
{
    uint32_t parts = fbr_get_u32(c), *agents;
    size_t key_len, len;
    const void *key, *data;

    agents = parts <= a->ring->nagents ? calloc(parts, sizeof(*agents)) : NULL;
    c->bad |= !agents || parts == 0;
    for (uint32_t i = 0; agents && i < parts; i++) {
        agents[i] = fbr_get_u32(c);
        c->bad |= agents[i] >= a->ring->nagents || (i > 0 && agents[i] <= agents[i - 1]);
    }
    key = fbr_get_bytes(c, &key_len);
    data = fbr_get_bytes(c, &len);
    if (fbr_cur_ok(c)) {
        fbr_trace("agent %u on %s: request %llu: a fence of %u agents, %zu bytes", a->number,
                  a->host, (unsigned long long)request, parts, len);
        fbr_exchange_fence(a->ring->exchange, a->number, request, key, key_len, agents, parts, data,
                           len);
    }
    free(agents);
}

static void on_publish(struct ring_agent *a, uint64_t request, struct fbr_cur *c)
{
    uint32_t job = fbr_get_u32(c), rank = fbr_get_u32(c);
    char *key = fbr_get_strdup(c, KEY_MAX);
    size_t len;
    const void *value = fbr_get_bytes(c, &len);

    if (fbr_cur_ok(c))
        fbr_exchange_publish(a->ring->exchange, a->number, request, job, rank, key, value, len);
    free(key);
}

static void on_lookup(struct ring_agent *a, uint64_t request, struct fbr_cur *c)
{
    char *key = fbr_get_strdup(c, KEY_MAX);
    int wait = (int)fbr_get_u32(c);

    if (fbr_cur_ok(c))
        fbr_exchange_lookup(a->ring->exchange, a->number, request, key, wait, fbr_now_ms());
    free(key);
    set_tick(a->ring);
}

static void on_unpublish(struct ring_agent *a, uint64_t request, struct fbr_cur *c)
{
    uint32_t job = fbr_get_u32(c), rank = fbr_get_u32(c);
    bool all = fbr_get_u8(c);
    char *key = fbr_get_strdup(c, KEY_MAX);

    if (fbr_cur_ok(c))
        fbr_exchange_unpublish(a->ring->exchange, a->number, request, job, rank, all ? NULL : key);
    free(key);
}

static void on_notify(struct ring_agent *a, struct fbr_cur *c)
{
    struct fiber_ring *r = a->ring;
    struct fbr_buf b = {0};
    char bridge[32];
    uint32_t to;
    bool there;

    fbr_get_str(c, bridge, sizeof(bridge));
    to = fbr_get_u32(c);
    if (!fbr_cur_ok(c) || to >= r->nagents)
        return;
    there = r->agents[to].state == AGENT_READY;
    fbr_put_str(&b, bridge);
    fbr_put_u32(&b, there ? a->number : FBR_BRIDGE_NOBODY);
    fbr_put(&b, c->at, fbr_cur_left(c));
    fbr_ring_answer(there ? &r->agents[to] : a, FBR_RING_NOTIFY, &b);
    fbr_buf_fini(&b);
}

/* ---- Spawn ---- */

static void on_spawn(struct ring_agent *a, uint64_t request, struct fbr_cur *c)
{
    struct fiber_ring *r = a->ring;
    struct ring_job *parent = fbr_ring_job_find(r, fbr_get_u32(c)), *j;
    uint32_t rank = fbr_get_u32(c), size = fbr_get_u32(c), n;
    struct fbr_app *programs = fbr_apps_get(c, size, &n);
    struct fbr_error err = {0, ""};

    for (uint32_t i = 0; programs && i < n; i++)
        c->bad |= !programs[i].argv[0];
    c->bad |= parent && rank >= parent->job.info.size;
    if (!fbr_cur_ok(c) || !parent || r->state != R_RUNNING) {
        fbr_apps_free(programs, n);
        if (fbr_cur_ok(c))
            answer(r, a->number, request, -ESHUTDOWN, NULL, 0);
        return;
    }
    if (fbr_ring_job_start(r, size, programs, n, parent, rank, &j, &err) < 0) {
        fbr_ring_print(r, "rank %u cannot spawn %u ranks: %s", rank, size, err.text);
        fbr_apps_free(programs, n);
        answer(r, a->number, request, err.code, NULL, 0);
        return;
    }
    j->spawn = request;
    j->spawn_agent = a->number;
}

void fbr_ring_requests_spawned(struct ring_job *j, int code)
{
    uint32_t id = j->job.info.id;
    uint64_t request = j->spawn;

    j->spawn = 0;
    answer(j->ring, j->spawn_agent, request, code, &id, code ? 0 : sizeof(id));
}

/* ---- Services ---- */

static struct ring_stream *find_stream(struct fiber_ring *r, uint32_t agent, uint64_t number)
{
    struct ring_stream *s, k = {.key = {.agent = agent, .number = number}};

    HASH_FIND(hh, r->streams, &k.key, sizeof(k.key), s);
    return s;
}

static void send_stream(struct ring_agent *a, uint64_t number, const void *data, size_t len)
{
    struct fbr_buf b = {0};

    fbr_put_u64(&b, number);
    fbr_put(&b, data, len);
    fbr_ring_answer(a, FBR_RING_STREAM, &b);
    fbr_buf_fini(&b);
}

static void to_stream(void *peer, const void *data, size_t len)
{
    struct ring_stream *s = peer;

    send_stream(&s->service->job->ring->agents[s->key.agent], s->key.number, data, len);
}

static void drop_stream(struct ring_stream *s)
{
    HASH_DEL(s->service->job->ring->streams, s);
    free(s);
}

static void hang_up(void *peer)
{
    to_stream(peer, NULL, 0);
    drop_stream(peer);
}

static void close_stream(struct ring_stream *s)
{
    s->service->ops->closed(s->conn);
    drop_stream(s);
}

const char *fbr_ring_requests_replaced(const struct ring_job *j)
{
    return j->services ? j->services->ops->replaced : NULL;
}

static struct ring_service *get_service(struct ring_job *j, const char *name)
{
    static const struct fbr_service_host host = {to_stream, hang_up};
    struct ring_service *s;

    for (s = j->services; s; s = s->next)
        if (strcmp(s->ops->name, name) == 0)
            return s;
    s = calloc(1, sizeof(*s));
    if (!s)
        return NULL;
    s->job = j;
    for (int i = 0; fbr_services[i]; i++)
        if (strcmp(fbr_services[i]->name, name) == 0)
            s->ops = fbr_services[i];
    s->service = s->ops ? s->ops->open(&host) : NULL;
    if (!s->service) {
        free(s);
        return NULL;
    }
    s->next = j->services;
    j->services = s;
    return s;
}

static struct ring_stream *add_stream(struct fiber_ring *r, uint32_t agent, uint64_t number,
                                      struct ring_service *service)
{
    struct ring_stream *s = calloc(1, sizeof(*s));

    if (!s)
        return NULL;
    s->key.agent = agent;
    s->key.number = number;
    s->service = service;
    HASH_ADD(hh, r->streams, key, sizeof(s->key), s);
    if (!s->hh.tbl) {
        free(s);
        return NULL;
    }
    s->conn = service->ops->opened(service->service, s);
    if (s->conn)
        return s;
    drop_stream(s);
    return NULL;
}

static void on_stream_open(struct ring_agent *a, uint64_t number, struct fbr_cur *c)
{
    struct fiber_ring *r = a->ring;
    struct ring_job *j = fbr_ring_job_find(r, fbr_get_u32(c));
    struct ring_service *service;
    char name[32];

    fbr_get_str(c, name, sizeof(name));
    if (!fbr_cur_ok(c) || find_stream(r, a->number, number))
        return;
    service = j && !j->over ? get_service(j, name) : NULL;
    if (!service || !add_stream(r, a->number, number, service))
        send_stream(a, number, NULL, 0); /* reports a hang-up */
}

static void on_stream(struct ring_agent *a, uint64_t number, struct fbr_cur *c)
{
    struct ring_stream *s = find_stream(a->ring, a->number, number);

    if (!s || !fbr_cur_ok(c))
        return;
    if (fbr_cur_left(c))
        s->service->ops->bytes(s->conn, c->at, fbr_cur_left(c));
    else
        close_stream(s);
}

static void close_services(struct ring_job *j)
{
    struct fiber_ring *r = j->ring;
    struct ring_stream *s, *next;

    HASH_ITER(hh, r->streams, s, next)
        if (s->service->job == j) {
            to_stream(s, NULL, 0);
            close_stream(s);
        }
    while (j->services) {
        struct ring_service *service = j->services;

        j->services = service->next;
        service->ops->close(service->service);
        free(service);
    }
}

/* ---- Open, frames, ends ---- */

int fbr_ring_requests_open(struct fiber_ring *r)
{
    r->exchange = fbr_exchange_open(r->nagents, answer, r, &r->rt->held);
    return r->exchange ? fbr_timer_init(&r->tick, r->rt->loop, on_tick, r) : -ENOMEM;
}

void fbr_ring_requests_close(struct fiber_ring *r)
{
    struct ring_job *j;

    DL_FOREACH(r->jobs, j)
        close_services(j);
    fbr_timer_fini(&r->tick);
    fbr_exchange_close(r->exchange);
    r->exchange = NULL;
}

void fbr_ring_requests_idle(struct ring_agent *a, bool idle)
{
    if (a->ring->exchange && a->idle != idle)
        fbr_exchange_idle(a->ring->exchange, a->number, idle);
    a->idle = idle;
}

void fbr_ring_requests_job_end(struct ring_job *j)
{
    if (j->ring->exchange)
        fbr_exchange_job_end(j->ring->exchange, j->job.info.id);
    close_services(j);
}

void fbr_ring_requests_agent_gone(struct ring_agent *a)
{
    struct fiber_ring *r = a->ring;
    struct ring_stream *s, *next;

    if (!r->exchange)
        return;
    fbr_exchange_agent_gone(r->exchange, a->number);
    HASH_ITER(hh, r->streams, s, next)
        if (s->key.agent == a->number)
            close_stream(s);
}

/* Frames that begin with the agent's number of a request or of a stream. */
static void (*const handlers[])(struct ring_agent *a, uint64_t number, struct fbr_cur *body) = {
    [FBR_RING_FENCE] = on_fence,   [FBR_RING_PUBLISH] = on_publish,
    [FBR_RING_LOOKUP] = on_lookup, [FBR_RING_UNPUBLISH] = on_unpublish,
    [FBR_RING_SPAWN] = on_spawn,   [FBR_RING_STREAM_OPEN] = on_stream_open,
    [FBR_RING_STREAM] = on_stream,
};

void fbr_ring_requests_frame(struct ring_agent *a, uint8_t type, struct fbr_cur *body)
{
    uint64_t number;

    if (a->ring->exchange && type == FBR_RING_NOTIFY)
        on_notify(a, body);
    if (!a->ring->exchange || type >= sizeof(handlers) / sizeof(handlers[0]) || !handlers[type])
        return;
    number = fbr_get_u64(body);
    handlers[type](a, number, body);
    /* If memory was short, or a text is too long, a rank waits for the answer. */
    if (!fbr_cur_ok(body))
        answer(a->ring, a->number, number, -EINVAL, NULL, 0);
}
