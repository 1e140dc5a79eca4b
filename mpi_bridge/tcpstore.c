/* tcpstore.c - the service that answers the clients of torch.distributed.TCPStore.
 *
 * A request is first measured, by the shape of its arguments, and runs only when all of it is
 * there. So nothing is half done, and the code that runs a request need not check lengths again.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "mpi_bridge/tcpstore.h"

#include <errno.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "mpi_bridge/service.h"
#include "mpi_bridge/tcpstore_priv.h"

enum request {
    VALIDATE,
    SET,
    COMPARE_SET,
    GET,
    ADD,
    CHECK,
    WAIT,
    GETNUMKEYS,
    DELETE_KEY,
    APPEND,
    MULTI_GET,
    MULTI_SET,
    CANCEL_WAIT,
    PING,
    QUEUE_PUSH,
    QUEUE_POP,
    QUEUE_LEN,
    LIST_KEYS,
    BARRIER,
    REQUESTS
};

/* The request for each byte of the first dialect. In the second dialect the byte is the enum's
 * value. Byte 7 is watchKey of C++, which torch itself never called, and dropped in 2.1. */
static const uint8_t first_dialect[] = {SET,       COMPARE_SET, GET,        ADD,        CHECK,
                                        WAIT,      GETNUMKEYS,  REQUESTS,   DELETE_KEY, APPEND,
                                        MULTI_GET, MULTI_SET,   CANCEL_WAIT};

/* Arguments: k a key, v a value, 4 and 8 numbers of 4 and 8 bytes, K a list of keys, P a list of
 * keys with values. */
static const char *const shapes[REQUESTS] = {
    [VALIDATE] = "4",   [SET] = "kv",     [COMPARE_SET] = "kvv", [GET] = "k",
    [ADD] = "k8",       [CHECK] = "K",    [WAIT] = "K",          [GETNUMKEYS] = "",
    [DELETE_KEY] = "k", [APPEND] = "kv",  [MULTI_GET] = "K",     [MULTI_SET] = "P",
    [CANCEL_WAIT] = "", [PING] = "4",     [QUEUE_PUSH] = "kv",   [QUEUE_POP] = "k",
    [QUEUE_LEN] = "k",  [LIST_KEYS] = "", [BARRIER] = "k8",
};

enum { READY = 0, NOT_READY = 1 };

/* ---- requests ---- */

/* Sets the value of the key, and takes it over. */
static void replace_value(struct fbr_service *s, struct fbr_tcp_entry *e, struct fbr_tcp_value *v)
{
    s->keys += !e->value;
    fbr_tcp_value_free(s, e->value);
    e->value = v;
}

/* The same. Wakes connections that wait. */
static void set_value(struct fbr_service *s, struct fbr_tcp_entry *e, struct fbr_tcp_value *v)
{
    replace_value(s, e, v);
    fbr_tcp_wake(s, e, true);
}

static bool set(struct fbr_service *s, struct fbr_tcp_text key, struct fbr_tcp_text data)
{
    struct fbr_tcp_entry *e = fbr_tcp_find_or_add(s, key);
    struct fbr_tcp_value *v = e ? fbr_tcp_value_new(s, data.data, data.len) : NULL;

    if (v)
        set_value(s, e, v);
    else if (e)
        fbr_tcp_drop_if_empty(s, e);
    return v != NULL;
}

static struct fbr_tcp_text get_text(struct fbr_cur *c)
{
    size_t len = (size_t)fbr_get_u64(c);

    return (struct fbr_tcp_text){fbr_get(c, len), len};
}

static bool on_set(struct fbr_service *s, struct fbr_service_conn *c, struct fbr_cur *args)
{
    struct fbr_tcp_text key = get_text(args);

    (void)c;
    return set(s, key, get_text(args));
}

/* If the key is not there: an empty expected value sets the key; otherwise the answer is the
 * expected value, as in torch. */
static bool on_compare_set(struct fbr_service *s, struct fbr_service_conn *c, struct fbr_cur *args)
{
    struct fbr_tcp_text key = get_text(args), expected = get_text(args), desired = get_text(args);
    struct fbr_tcp_entry *e = fbr_tcp_find(s, key);
    const struct fbr_tcp_value *v = e ? e->value : NULL;

    if (v ? v->len == expected.len && !memcmp(v->data, expected.data, v->len) : !expected.len) {
        if (!set(s, key, desired))
            return false;
        fbr_tcp_out_text(s, desired.data, desired.len);
    } else if (v) {
        fbr_tcp_out_value(s, v);
    } else {
        fbr_tcp_out_text(s, expected.data, expected.len);
    }
    fbr_tcp_reply_out(s, c);
    return true;
}

static bool on_get(struct fbr_service *s, struct fbr_service_conn *c, struct fbr_cur *args)
{
    struct fbr_tcp_entry *e = fbr_tcp_find(s, get_text(args));

    fbr_tcp_out_value(s, e ? e->value : NULL);
    fbr_tcp_reply_out(s, c);
    return true;
}

/* Reads the value as a number in text. False: it is none. */
static bool value_number(const struct fbr_tcp_value *v, int64_t *n)
{
    char text[24], *end;

    if (!v->len || v->len >= sizeof(text))
        return false;
    memcpy(text, v->data, v->len);
    text[v->len] = 0;
    errno = 0;
    *n = strtoll(text, &end, 10);
    return !errno && !*end && end != text;
}

/* Adds to the number at the key, from 0. Wakes connections that wait, unless `quiet`. */
static bool add(struct fbr_service *s, struct fbr_tcp_text key, int64_t by, int64_t *sum,
                bool quiet)
{
    struct fbr_tcp_entry *e = fbr_tcp_find_or_add(s, key);
    struct fbr_tcp_value *v;
    char text[24];
    int64_t n = 0;

    if (!e)
        return false;
    if ((e->value && !value_number(e->value, &n)) || __builtin_add_overflow(n, by, sum)) {
        fbr_tcp_drop_if_empty(s, e);
        return false;
    }
    v = fbr_tcp_value_new(s, text, (size_t)snprintf(text, sizeof(text), "%" PRId64, *sum));
    if (!v) {
        fbr_tcp_drop_if_empty(s, e);
        return false;
    }
    if (quiet)
        replace_value(s, e, v);
    else
        set_value(s, e, v);
    return true;
}

static bool on_add(struct fbr_service *s, struct fbr_service_conn *c, struct fbr_cur *args)
{
    struct fbr_tcp_text key = get_text(args);
    int64_t sum;

    if (!add(s, key, (int64_t)fbr_get_u64(args), &sum, false))
        return false;
    fbr_tcp_reply_i64(s, c, sum);
    return true;
}

static bool is_ready(struct fbr_service *s, struct fbr_tcp_text key)
{
    struct fbr_tcp_entry *e = fbr_tcp_find(s, key);

    return e && (e->value || e->queue);
}

static bool on_check(struct fbr_service *s, struct fbr_service_conn *c, struct fbr_cur *args)
{
    uint64_t n = fbr_get_u64(args);
    bool all = true;

    while (n--)
        all = is_ready(s, get_text(args)) && all;
    fbr_tcp_reply_u8(s, c, all ? READY : NOT_READY);
    return true;
}

static bool on_wait(struct fbr_service *s, struct fbr_service_conn *c, struct fbr_cur *args)
{
    uint64_t n = fbr_get_u64(args);

    fbr_tcp_stop_waiting(s, c);
    while (n--) {
        struct fbr_tcp_text key = get_text(args);
        struct fbr_tcp_entry *e;

        if (is_ready(s, key))
            continue;
        e = fbr_tcp_find_or_add(s, key);
        if (!e || !fbr_tcp_wait_add(s, c, e)) {
            if (e)
                fbr_tcp_drop_if_empty(s, e);
            return false;
        }
        c->awaited++;
    }
    if (!c->awaited)
        fbr_tcp_reply_u8(s, c, FBR_TCP_STOP_WAITING);
    return true;
}

static bool on_getnumkeys(struct fbr_service *s, struct fbr_service_conn *c, struct fbr_cur *args)
{
    (void)args;
    fbr_tcp_reply_i64(s, c, s->keys);
    return true;
}

static bool on_delete(struct fbr_service *s, struct fbr_service_conn *c, struct fbr_cur *args)
{
    struct fbr_tcp_entry *e = fbr_tcp_find(s, get_text(args));
    struct fbr_tcp_value *old = e ? e->value : NULL;

    if (old) {
        e->value = NULL;
        s->keys--;
        fbr_tcp_value_free(s, old);
        fbr_tcp_drop_if_empty(s, e);
    }
    fbr_tcp_reply_i64(s, c, old ? 1 : 0);
    return true;
}

static bool on_append(struct fbr_service *s, struct fbr_service_conn *c, struct fbr_cur *args)
{
    struct fbr_tcp_text key = get_text(args), data = get_text(args);
    struct fbr_tcp_entry *e = fbr_tcp_find(s, key);
    struct fbr_tcp_value *v;

    (void)c;
    if (!e || !e->value)
        return set(s, key, data);
    v = fbr_tcp_value_new(s, e->value->data, e->value->len);
    if (v && fbr_tcp_charge(s, data.len)) {
        struct fbr_tcp_value *more = realloc(v, sizeof(*v) + v->len + data.len);

        if (more) {
            v = more;
            memcpy(v->data + v->len, data.data, data.len);
            v->len += data.len;
            set_value(s, e, v);
            return true;
        }
        s->memory -= data.len;
    }
    fbr_tcp_value_free(s, v);
    return false;
}

static bool on_multi_get(struct fbr_service *s, struct fbr_service_conn *c, struct fbr_cur *args)
{
    uint64_t n = fbr_get_u64(args);

    while (n--) {
        struct fbr_tcp_entry *e = fbr_tcp_find(s, get_text(args));

        fbr_tcp_out_value(s, e ? e->value : NULL);
        if (s->out.len > FBR_TCPSTORE_MEMORY_MAX)
            s->out.failed = true;
        if (s->out.failed)
            break;
    }
    fbr_tcp_reply_out(s, c);
    return true;
}

static bool on_multi_set(struct fbr_service *s, struct fbr_service_conn *c, struct fbr_cur *args)
{
    uint64_t n = fbr_get_u64(args);

    (void)c;
    while (n--) {
        struct fbr_tcp_text key = get_text(args);

        if (!set(s, key, get_text(args)))
            return false;
    }
    return true;
}

static bool on_cancel_wait(struct fbr_service *s, struct fbr_service_conn *c, struct fbr_cur *args)
{
    (void)args;
    fbr_tcp_stop_waiting(s, c);
    fbr_tcp_reply_u8(s, c, FBR_TCP_WAIT_CANCELED);
    return true;
}

static bool on_validate(struct fbr_service *s, struct fbr_service_conn *c, struct fbr_cur *args)
{
    (void)s;
    (void)c;
    return fbr_get_u32(args) == FBR_TCPSTORE_MAGIC;
}

static bool on_ping(struct fbr_service *s, struct fbr_service_conn *c, struct fbr_cur *args)
{
    uint32_t nonce = fbr_get_u32(args);

    s->host->send(c->peer, &nonce, sizeof(nonce));
    return true;
}

static bool on_queue_push(struct fbr_service *s, struct fbr_service_conn *c, struct fbr_cur *args)
{
    struct fbr_tcp_entry *e = fbr_tcp_find_or_add(s, get_text(args));
    struct fbr_tcp_text data = get_text(args);
    struct fbr_tcp_value *v = e ? fbr_tcp_value_new(s, data.data, data.len) : NULL;

    (void)c;
    if (!v) {
        if (e)
            fbr_tcp_drop_if_empty(s, e);
        return false;
    }
    DL_APPEND(e->queue, v);
    e->queued++;
    fbr_tcp_wake(s, e, false);
    return true;
}

static bool on_queue_pop(struct fbr_service *s, struct fbr_service_conn *c, struct fbr_cur *args)
{
    struct fbr_tcp_entry *e = fbr_tcp_find(s, get_text(args));
    struct fbr_tcp_value *v = e ? e->queue : NULL;

    fbr_put_u64(&s->out, e ? (uint64_t)e->queued : 0);
    if (v) {
        fbr_tcp_out_value(s, v);
        DL_DELETE(e->queue, v);
        e->queued--;
        fbr_tcp_value_free(s, v);
        fbr_tcp_drop_if_empty(s, e);
    }
    fbr_tcp_reply_out(s, c);
    return true;
}

static bool on_queue_len(struct fbr_service *s, struct fbr_service_conn *c, struct fbr_cur *args)
{
    struct fbr_tcp_entry *e = fbr_tcp_find(s, get_text(args));

    fbr_tcp_reply_i64(s, c, e ? e->queued : 0);
    return true;
}

static bool on_list_keys(struct fbr_service *s, struct fbr_service_conn *c, struct fbr_cur *args)
{
    struct fbr_tcp_entry *e, *next;

    (void)args;
    fbr_put_u64(&s->out, (uint64_t)s->keys);
    HASH_ITER(hh, s->entries, e, next) {
        if (e->value)
            fbr_tcp_out_text(s, e->key, e->key_len);
    }
    fbr_tcp_reply_out(s, c);
    return true;
}

/* The key counts the ranks that have come; the last one releases all. */
static bool on_barrier(struct fbr_service *s, struct fbr_service_conn *c, struct fbr_cur *args)
{
    struct fbr_tcp_text key = get_text(args);
    int64_t size = (int64_t)fbr_get_u64(args), come;

    fbr_tcp_stop_waiting(s, c);
    if (!add(s, key, 1, &come, true))
        return false;
    if (come < size) {
        c->awaited = 1;
        return fbr_tcp_wait_add(s, c, fbr_tcp_find(s, key));
    }
    fbr_tcp_wake(s, fbr_tcp_find(s, key), true);
    fbr_tcp_reply_u8(s, c, FBR_TCP_STOP_WAITING);
    return true;
}

/* A handler returns false if the connection must be closed. */
static bool (*const handlers[REQUESTS])(struct fbr_service *s, struct fbr_service_conn *c,
                                        struct fbr_cur *args) = {
    [VALIDATE] = on_validate,
    [SET] = on_set,
    [COMPARE_SET] = on_compare_set,
    [GET] = on_get,
    [ADD] = on_add,
    [CHECK] = on_check,
    [WAIT] = on_wait,
    [GETNUMKEYS] = on_getnumkeys,
    [DELETE_KEY] = on_delete,
    [APPEND] = on_append,
    [MULTI_GET] = on_multi_get,
    [MULTI_SET] = on_multi_set,
    [CANCEL_WAIT] = on_cancel_wait,
    [PING] = on_ping,
    [QUEUE_PUSH] = on_queue_push,
    [QUEUE_POP] = on_queue_pop,
    [QUEUE_LEN] = on_queue_len,
    [LIST_KEYS] = on_list_keys,
    [BARRIER] = on_barrier,
};

/* ---- bytes ---- */

enum measured { WHOLE, NOT_YET, MALFORMED };

/* Skips a text, or a number of 4 or 8 bytes. */
static enum measured skip(struct fbr_cur *c, char shape)
{
    uint64_t len = shape == '4' ? 4 : 8;

    if (fbr_cur_left(c) < len)
        return NOT_YET;
    if (shape == '4' || shape == '8') {
        fbr_get(c, (size_t)len);
        return WHOLE;
    }
    len = fbr_get_u64(c);
    if (len > (shape == 'k' ? FBR_TCPSTORE_KEY_MAX : FBR_TCPSTORE_MEMORY_MAX))
        return MALFORMED;
    if (fbr_cur_left(c) < len)
        return NOT_YET;
    fbr_get(c, (size_t)len);
    return WHOLE;
}

/* Checks whether all arguments of that shape are there; then moves the cursor to their end. */
static enum measured measure(const char *shape, struct fbr_cur *c)
{
    enum measured m = WHOLE;

    for (; m == WHOLE && *shape; shape++) {
        uint64_t n;

        if (*shape != 'K' && *shape != 'P') {
            m = skip(c, *shape);
            continue;
        }
        if (fbr_cur_left(c) < 8)
            return NOT_YET;
        n = fbr_get_u64(c);
        if (n > FBR_TCPSTORE_COUNT_MAX)
            return MALFORMED;
        for (; m == WHOLE && n; n--) {
            m = skip(c, 'k');
            if (m == WHOLE && *shape == 'P')
                m = skip(c, 'v');
        }
    }
    return m;
}

/* Finds the dialect by the first bytes. False: more bytes are needed. */
static bool detect_dialect(struct fbr_service_conn *c)
{
    struct fbr_cur at = fbr_cur(c->in.data, c->in.len);

    if (c->in.len && c->in.data[0] != 0) {
        c->dialect = FBR_TCP_FIRST;
        return true;
    }
    if (c->in.len < 5)
        return false;
    fbr_get_u8(&at);
    c->dialect = fbr_get_u32(&at) == FBR_TCPSTORE_MAGIC ? FBR_TCP_SECOND : FBR_TCP_FIRST;
    return true;
}

static enum request request_of(const struct fbr_service_conn *c, uint8_t byte)
{
    if (c->dialect == FBR_TCP_FIRST)
        return byte < sizeof(first_dialect) ? (enum request)first_dialect[byte] : REQUESTS;
    return byte < REQUESTS ? (enum request)byte : REQUESTS;
}

static void run_requests(struct fbr_service *s, struct fbr_service_conn *c)
{
    struct fbr_cur at = fbr_cur(c->in.data, c->in.len);

    while (!c->bad && fbr_cur_left(&at)) {
        struct fbr_cur next = at, args;
        enum request r = request_of(c, fbr_get_u8(&next));
        enum measured m;

        args = next;
        m = r == REQUESTS ? MALFORMED : measure(shapes[r], &next);
        if (m == NOT_YET)
            break;
        if (m == MALFORMED || !handlers[r](s, c, &args))
            c->bad = true;
        at = next;
    }
    fbr_buf_consume(&c->in, (size_t)(at.at - c->in.data));
    /* The bytes of a request that is not complete count as well. */
    if (c->in.len > FBR_TCPSTORE_MEMORY_MAX - s->memory)
        c->bad = true;
    if (!c->in.len && c->in.cap > (1u << 20)) {
        fbr_buf_fini(&c->in);
        fbr_buf_init(&c->in);
    }
}

static void tcpstore_closed(struct fbr_service_conn *c)
{
    fbr_tcp_stop_waiting(c->service, c);
    fbr_buf_fini(&c->in);
    free(c);
}

/* ---- the table ---- */

static struct fbr_service *tcpstore_open(const struct fbr_service_host *host)
{
    struct fbr_service *s = calloc(1, sizeof(*s));

    if (s)
        s->host = host;
    return s;
}

static struct fbr_service_conn *tcpstore_opened(struct fbr_service *s, void *peer)
{
    struct fbr_service_conn *c = calloc(1, sizeof(*c));

    if (c)
        *c = (struct fbr_service_conn){.service = s, .peer = peer};
    return c;
}

static void tcpstore_bytes(struct fbr_service_conn *c, const void *data, size_t len)
{
    struct fbr_service *s = c->service;

    fbr_put(&c->in, data, len);
    if (c->in.failed)
        c->bad = true;
    else if (c->dialect != FBR_TCP_UNKNOWN || detect_dialect(c))
        run_requests(s, c);
    if (c->bad) {
        s->host->hang_up(c->peer);
        tcpstore_closed(c);
    }
}

static void tcpstore_close(struct fbr_service *s)
{
    struct fbr_tcp_entry *e, *next;
    struct fbr_tcp_value *v, *v2;

    if (!s)
        return;
    HASH_ITER(hh, s->entries, e, next) {
        HASH_DEL(s->entries, e);
        DL_FOREACH_SAFE(e->queue, v, v2)
            free(v);
        free(e->value);
        free(e);
    }
    fbr_buf_fini(&s->out);
    free(s);
}

const struct fbr_service_ops fbr_service_tcpstore = {
    .name = "tcpstore",
    .replaced = "if the ranks have called init_process_group() already, the new one waits or fails "
                "there: torch's store has the addresses of the old processes. Use --on-failure "
                "restart to start all ranks again",
    .open = tcpstore_open,
    .opened = tcpstore_opened,
    .bytes = tcpstore_bytes,
    .closed = tcpstore_closed,
    .close = tcpstore_close,
};
