/* agent_host.c - the calls that an agent offers its bridges: requests to the launcher and their
 * answers. bridge.h is the contract.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ring/agent_priv.h"

static struct agent *agent_of(void *user)
{
    return ((struct agent_bridge *)user)->agent;
}

static int host_post(void *user, void (*fn)(void *), void *arg)
{
    return fbr_loop_post(agent_of(user)->rt->loop, fn, arg);
}

/* Begins a request: puts its number first into `b`. */
static struct agent *begin(void *user, struct fbr_buf *b)
{
    struct agent *a = agent_of(user);

    fbr_buf_init(b);
    fbr_put_u64(b, ++a->next_id);
    return a;
}

/* Sends a message, unless memory for it was short. */
static int send_whole(struct agent *a, uint8_t type, struct fbr_buf *b)
{
    if (b->failed) {
        fbr_buf_fini(b);
        return -ENOMEM;
    }
    fbr_agent_send(a, type, b);
    return 0;
}

/* Keeps the request that begin() has numbered last, and sends it. */
static int finish(struct agent *a, uint8_t type, struct fbr_buf *b, fbr_bridge_done *done,
                  void *arg)
{
    struct agent_request *r = calloc(1, sizeof(*r));

    if (r && !b->failed) {
        r->id = a->next_id;
        r->done = done;
        r->arg = arg;
        HASH_ADD(hh, a->requests, id, sizeof(r->id), r);
    }
    if (!r || !r->hh.tbl) {
        free(r);
        b->failed = true;
    }
    return send_whole(a, type, b);
}

static int host_fence(void *user, const void *key, size_t key_len, const uint32_t *agents,
                      uint32_t parts, const void *data, size_t len, fbr_bridge_done *done,
                      void *arg)
{
    struct fbr_buf b;
    struct agent *a = begin(user, &b);

    fbr_put_u32(&b, parts);
    for (uint32_t i = 0; i < parts; i++)
        fbr_put_u32(&b, agents[i]);
    fbr_put_bytes(&b, key, key_len);
    fbr_put_bytes(&b, data, len);
    return finish(a, FBR_RING_FENCE, &b, done, arg);
}

static int host_notify(void *user, uint32_t agent, const void *data, size_t len)
{
    struct agent_bridge *from = user;
    struct fbr_buf b = {0};

    fbr_put_str(&b, from->ops->name);
    fbr_put_u32(&b, agent);
    fbr_put(&b, data, len);
    return send_whole(from->agent, FBR_RING_NOTIFY, &b);
}

static int host_publish(void *user, uint32_t job, uint32_t rank, const char *key, const void *value,
                        size_t len, fbr_bridge_done *done, void *arg)
{
    struct fbr_buf b;
    struct agent *a = begin(user, &b);

    fbr_put_u32(&b, job);
    fbr_put_u32(&b, rank);
    fbr_put_str(&b, key);
    fbr_put_bytes(&b, value, len);
    return finish(a, FBR_RING_PUBLISH, &b, done, arg);
}

static int host_lookup(void *user, const char *key, int wait_ms, fbr_bridge_done *done, void *arg)
{
    struct fbr_buf b;
    struct agent *a = begin(user, &b);

    fbr_put_str(&b, key);
    fbr_put_u32(&b, (uint32_t)wait_ms);
    return finish(a, FBR_RING_LOOKUP, &b, done, arg);
}

static int host_unpublish(void *user, uint32_t job, uint32_t rank, const char *key,
                          fbr_bridge_done *done, void *arg)
{
    struct fbr_buf b;
    struct agent *a = begin(user, &b);

    fbr_put_u32(&b, job);
    fbr_put_u32(&b, rank);
    fbr_put_u8(&b, !key);
    fbr_put_str(&b, key);
    return finish(a, FBR_RING_UNPUBLISH, &b, done, arg);
}

/* Writes the environment of a spawned job, without the variables that the parent job got from
 * its agent. Each agent gives its own ranks the right variables. Otherwise ranks of two agents
 * that share a host would write into the same files. */
static void put_env(struct fbr_buf *b, const struct agent_job *parent, const char *const *env)
{
    size_t count = parent ? parent->given.count : 0, n = 0;
    struct fbr_env kept = {0};

    for (; env && *env; env++) {
        for (n = 0; n < count && strcmp(parent->given.list[n], *env) != 0;)
            n++;
        if (n == count)
            fbr_env_put(&kept, *env);
    }
    b->failed |= kept.failed;
    fbr_put_list(b, kept.list);
    fbr_env_fini(&kept);
}

static int host_spawn(void *user, const struct fbr_bridge_spawn *s, fbr_bridge_done *done,
                      void *arg)
{
    struct fbr_buf b;
    struct agent *a = begin(user, &b);
    uint32_t size = 0, first = 0;

    for (size_t i = 0; i < s->napps; i++)
        size += s->apps[i].count;
    fbr_put_u32(&b, s->parent);
    fbr_put_u32(&b, s->parent_rank);
    fbr_put_u32(&b, size);
    fbr_put_u32(&b, (uint32_t)s->napps);
    for (size_t i = 0; i < s->napps; first += s->apps[i++].count) {
        fbr_put_u32(&b, first);
        fbr_put_list(&b, (char *const *)(uintptr_t)s->apps[i].argv);
        put_env(&b, fbr_agent_job_find(a, s->parent), s->apps[i].env);
        fbr_put_str(&b, s->apps[i].workdir);
    }
    return finish(a, FBR_RING_SPAWN, &b, done, arg);
}

void fbr_agent_on_answer(struct agent *a, struct fbr_cur *body)
{
    uint64_t id = fbr_get_u64(body);
    int code = (int)fbr_get_u32(body);
    struct agent_request *r;

    HASH_FIND(hh, a->requests, &id, sizeof(id), r);
    if (!r || !fbr_cur_ok(body))
        return;
    HASH_DEL(a->requests, r);
    r->done(r->arg, code, body->at, fbr_cur_left(body));
    free(r);
}

/* ---- Streams ---- */

static int host_stream_open(void *user, uint32_t job, const char *service,
                            void (*on_data)(void *, const void *, size_t), void *arg,
                            uint64_t *stream)
{
    struct agent *a = agent_of(user);
    struct agent_job *j = fbr_agent_job_find(a, job);
    struct agent_stream *s = calloc(1, sizeof(*s));
    struct fbr_buf b = {0};

    if (!s)
        return -ENOMEM;
    s->id = ++a->next_id;
    s->on_data = on_data;
    s->arg = arg;
    fbr_put_u64(&b, s->id);
    fbr_put_u32(&b, job);
    fbr_put_str(&b, service);
    if (!b.failed)
        HASH_ADD(hh, a->streams, id, sizeof(s->id), s);
    if (!s->hh.tbl) {
        fbr_buf_fini(&b);
        free(s);
        return -ENOMEM;
    }
    *stream = s->id;
    if (j)
        j->served = true;
    fbr_agent_send(a, FBR_RING_STREAM_OPEN, &b);
    return 0;
}

static struct agent_stream *find_stream(struct agent *a, uint64_t id)
{
    struct agent_stream *s;

    HASH_FIND(hh, a->streams, &id, sizeof(id), s);
    return s;
}

static int host_stream_send(void *user, uint64_t stream, const void *data, size_t len)
{
    struct agent *a = agent_of(user);
    struct fbr_buf b = {0};

    if (!find_stream(a, stream))
        return -EPIPE;
    if (len == 0)
        return 0;
    fbr_put_u64(&b, stream);
    fbr_put(&b, data, len);
    return send_whole(a, FBR_RING_STREAM, &b);
}

static void host_stream_close(void *user, uint64_t stream)
{
    struct agent *a = agent_of(user);
    struct agent_stream *s = find_stream(a, stream);
    struct fbr_buf b = {0};

    if (!s)
        return;
    HASH_DEL(a->streams, s);
    free(s);
    fbr_put_u64(&b, stream);
    fbr_agent_send(a, FBR_RING_STREAM, &b);
}

void fbr_agent_on_stream(struct agent *a, struct fbr_cur *body)
{
    struct agent_stream *s = find_stream(a, fbr_get_u64(body));

    if (!s || !fbr_cur_ok(body))
        return;
    if (fbr_cur_left(body)) {
        s->on_data(s->arg, body->at, fbr_cur_left(body));
        return;
    }
    HASH_DEL(a->streams, s);
    s->on_data(s->arg, NULL, 0);
    free(s);
}

/* ---- Events of ranks ---- */

static struct agent_rank *rank_of(struct agent *a, uint32_t job, uint32_t rank)
{
    struct agent_job *j = fbr_agent_job_find(a, job);

    return j ? fbr_agent_rank_find(j, rank) : NULL;
}

static void host_met(void *user, uint32_t job, uint32_t rank, const char *how)
{
    struct agent *a = agent_of(user);
    struct agent_rank *r = rank_of(a, job, rank);
    struct fbr_buf b;

    if (!r || r->met)
        return;
    r->met = true;
    fbr_agent_about(&b, job, rank);
    fbr_put_str(&b, how);
    fbr_agent_send(a, FBR_RING_MET, &b);
}

static void host_left(void *user, uint32_t job, uint32_t rank)
{
    struct agent_rank *r = rank_of(agent_of(user), job, rank);

    if (r)
        r->left = true;
}

static void host_abort(void *user, uint32_t job, uint32_t rank, int code, const char *text)
{
    char reason[FBR_RING_REASON]; /* the launcher takes no longer one */
    struct fbr_buf b;

    snprintf(reason, sizeof(reason), "%s", text);
    fbr_agent_about(&b, job, rank);
    fbr_put_u32(&b, (uint32_t)code);
    fbr_put_str(&b, reason);
    fbr_agent_send(agent_of(user), FBR_RING_ABORT, &b);
}

static void host_print(void *user, uint32_t job, uint32_t rank, int stream, const char *text,
                       size_t len)
{
    struct agent *a = agent_of(user);
    struct fbr_buf b;

    if (len == 0)
        return;
    fbr_agent_about(&b, job, rank);
    fbr_put_u8(&b, (uint8_t)stream);
    fbr_put(&b, text, len);
    a->unwritten += len;
    fbr_agent_send(a, FBR_RING_OUTPUT, &b);
}

void fbr_agent_host_init(struct agent_bridge *b)
{
    struct agent *a = b->agent;

    b->host = (struct fbr_bridge_host){
        .loop = a->rt->loop,
        .agent = a->order.number,
        .ranks = a->order.ranks,
        .hostname = a->hostname,
        .dir = a->dir,
        .topology = a->topology,
        .log_level = fbr_config_int(a->rt->config, "log_level"),
        .user = b,
        .post = host_post,
        .fence = host_fence,
        .notify = host_notify,
        .publish = host_publish,
        .lookup = host_lookup,
        .unpublish = host_unpublish,
        .spawn = host_spawn,
        .stream_open = host_stream_open,
        .stream_send = host_stream_send,
        .stream_close = host_stream_close,
        .met = host_met,
        .left = host_left,
        .abort = host_abort,
        .print = host_print,
    };
}

void fbr_agent_host_fini(struct agent *a)
{
    struct agent_request *r, *next_request;
    struct agent_stream *s, *next_stream;

    HASH_ITER(hh, a->requests, r, next_request) {
        HASH_DEL(a->requests, r);
        free(r);
    }
    HASH_ITER(hh, a->streams, s, next_stream) {
        HASH_DEL(a->streams, s);
        free(s);
    }
}
