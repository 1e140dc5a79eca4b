/* tcpstore.c - the service that answers the clients of torch.distributed.TCPStore.
 *
 * A request is first measured, by the shape of its arguments, and runs only when all of it is
 * there. So nothing is half done, and the code that runs a request need not check lengths again.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "mpi_bridge/tcpstore.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define HASH_NONFATAL_OOM 1 /* an entry that could not be added has hh.tbl NULL */
#include <uthash.h>
#include <utlist.h>

#include "mpi_bridge/service.h"
#include "runtime/base/buf.h"
#include "runtime/base/config_value.h"

#define ENTRY_COST 256 /* bytes of a key or a value without its text, roughly */
#define WAIT_COST 64

struct text {
    const void *data;
    size_t len;
};

struct value {
    size_t len;
    struct value *prev, *next; /* in a queue */
    char data[];
};

/* A connection waits for a key. */
struct waiter {
    struct fbr_service_conn *conn;
    struct entry *entry;
    struct waiter *prev, *next;           /* list of the entry */
    struct waiter *conn_prev, *conn_next; /* list of the connection */
};

/* A key: it has a value, a queue, or a connection that waits for it. */
struct entry {
    UT_hash_handle hh;
    struct value *value; /* NULL: not set */
    struct value *queue;
    int64_t queued;
    struct waiter *waits;
    size_t key_len;
    char key[];
};

enum dialect { UNKNOWN, FIRST, SECOND };

struct fbr_service_conn {
    struct fbr_service *service;
    void *peer;
    enum dialect dialect;
    bool bad; /* the service hangs up on it */
    struct fbr_buf in;
    struct waiter *waits;
    size_t awaited; /* keys of WAIT that have not come yet */
};

struct fbr_service {
    const struct fbr_service_host *host;
    struct entry *entries;
    int64_t keys; /* keys that have a value */
    uint64_t memory;
    struct fbr_buf out;
};

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

enum { READY = 0, NOT_READY = 1 };            /* answers to CHECK */
enum { STOP_WAITING = 0, WAIT_CANCELED = 1 }; /* to WAIT, CANCEL_WAIT and BARRIER */

/* ---- memory ---- */

/* Adds to the memory in use, and returns true, unless that is too much. */
static bool charge(struct fbr_service *s, uint64_t bytes)
{
    if (bytes > FBR_TCPSTORE_MEMORY_MAX - s->memory)
        return false;
    s->memory += bytes;
    return true;
}

/* NULL: without memory, or the value is too much. */
static struct value *value_new(struct fbr_service *s, const void *data, size_t len)
{
    struct value *v;

    if (!charge(s, ENTRY_COST + (uint64_t)len))
        return NULL;
    v = malloc(sizeof(*v) + len);
    if (!v) {
        s->memory -= ENTRY_COST + (uint64_t)len;
        return NULL;
    }
    v->len = len;
    if (len)
        memcpy(v->data, data, len);
    return v;
}

static void value_free(struct fbr_service *s, struct value *v)
{
    if (v)
        s->memory -= ENTRY_COST + (uint64_t)v->len;
    free(v);
}

/* ---- keys ---- */

static struct entry *find(struct fbr_service *s, struct text key)
{
    struct entry *e;

    HASH_FIND(hh, s->entries, key.data, key.len, e);
    return e;
}

static struct entry *find_or_add(struct fbr_service *s, struct text key)
{
    struct entry *e = find(s, key);

    if (e || !charge(s, ENTRY_COST + (uint64_t)key.len))
        return e;
    e = calloc(1, sizeof(*e) + key.len + 1);
    if (e) {
        e->key_len = key.len;
        memcpy(e->key, key.data, key.len);
        HASH_ADD_KEYPTR(hh, s->entries, e->key, e->key_len, e);
    }
    if (!e || !e->hh.tbl) {
        s->memory -= ENTRY_COST + (uint64_t)key.len;
        free(e);
        return NULL;
    }
    return e;
}

/* Removes a key that has nothing any more. */
static void drop_if_empty(struct fbr_service *s, struct entry *e)
{
    if (e->value || e->queue || e->waits)
        return;
    HASH_DEL(s->entries, e);
    s->memory -= ENTRY_COST + (uint64_t)e->key_len;
    free(e);
}

/* ---- answers ---- */

static void reply_u8(struct fbr_service *s, struct fbr_service_conn *c, uint8_t v)
{
    s->host->send(c->peer, &v, 1);
}

static void reply_i64(struct fbr_service *s, struct fbr_service_conn *c, int64_t v)
{
    s->host->send(c->peer, &v, sizeof(v));
}

static void out_text(struct fbr_service *s, const void *data, size_t len)
{
    fbr_put_u64(&s->out, len);
    fbr_put(&s->out, data, len);
}

/* NULL: an empty value */
static void out_value(struct fbr_service *s, const struct value *v)
{
    out_text(s, v ? v->data : "", v ? v->len : 0);
}

/* Sends the bytes that were put into s->out before. */
static void reply_out(struct fbr_service *s, struct fbr_service_conn *c)
{
    if (s->out.failed)
        c->bad = true;
    else if (s->out.len)
        s->host->send(c->peer, s->out.data, s->out.len);
    /* a rare large answer does not keep its memory */
    if (s->out.failed || s->out.cap > (1u << 20))
        fbr_buf_fini(&s->out);
    fbr_buf_clear(&s->out);
}

/* ---- waiting ---- */

/* Makes c wait for e. */
static bool wait_add(struct fbr_service *s, struct fbr_service_conn *c, struct entry *e)
{
    struct waiter *w;

    if (!charge(s, WAIT_COST))
        return false;
    w = calloc(1, sizeof(*w));
    if (!w) {
        s->memory -= WAIT_COST;
        return false;
    }
    w->conn = c;
    w->entry = e;
    DL_APPEND(e->waits, w);
    DL_APPEND2(c->waits, w, conn_prev, conn_next);
    return true;
}

static void wait_free(struct fbr_service *s, struct waiter *w)
{
    DL_DELETE(w->entry->waits, w);
    DL_DELETE2(w->conn->waits, w, conn_prev, conn_next);
    s->memory -= WAIT_COST;
    free(w);
}

static void stop_waiting(struct fbr_service *s, struct fbr_service_conn *c)
{
    c->awaited = 0;
    while (c->waits) {
        struct entry *e = c->waits->entry;

        wait_free(s, c->waits);
        drop_if_empty(s, e);
    }
}

/* The key has come: wakes all connections that wait for it, or the first of them. */
static void wake(struct fbr_service *s, struct entry *e, bool all)
{
    while (e->waits) {
        struct fbr_service_conn *c = e->waits->conn;

        wait_free(s, e->waits);
        if (c->awaited && --c->awaited == 0) {
            reply_u8(s, c, STOP_WAITING);
            if (!all)
                return;
        }
    }
}

/* ---- requests ---- */

/* Sets the value of the key, and takes it over. */
static void replace_value(struct fbr_service *s, struct entry *e, struct value *v)
{
    s->keys += !e->value;
    value_free(s, e->value);
    e->value = v;
}

/* The same. Wakes connections that wait. */
static void set_value(struct fbr_service *s, struct entry *e, struct value *v)
{
    replace_value(s, e, v);
    wake(s, e, true);
}

static bool set(struct fbr_service *s, struct text key, struct text data)
{
    struct entry *e = find_or_add(s, key);
    struct value *v = e ? value_new(s, data.data, data.len) : NULL;

    if (v)
        set_value(s, e, v);
    else if (e)
        drop_if_empty(s, e);
    return v != NULL;
}

static struct text get_text(struct fbr_cur *c)
{
    size_t len = (size_t)fbr_get_u64(c);

    return (struct text){fbr_get(c, len), len};
}

static bool on_set(struct fbr_service *s, struct fbr_service_conn *c, struct fbr_cur *args)
{
    struct text key = get_text(args);

    return set(s, key, get_text(args));
}

/* If the key is not there: an empty expected value sets the key; otherwise the answer is the
 * expected value, as in torch. */
static bool on_compare_set(struct fbr_service *s, struct fbr_service_conn *c, struct fbr_cur *args)
{
    struct text key = get_text(args), expected = get_text(args), desired = get_text(args);
    struct entry *e = find(s, key);
    const struct value *v = e ? e->value : NULL;

    if (v ? v->len == expected.len && !memcmp(v->data, expected.data, v->len) : !expected.len) {
        if (!set(s, key, desired))
            return false;
        out_text(s, desired.data, desired.len);
    } else if (v) {
        out_value(s, v);
    } else {
        out_text(s, expected.data, expected.len);
    }
    reply_out(s, c);
    return true;
}

static bool on_get(struct fbr_service *s, struct fbr_service_conn *c, struct fbr_cur *args)
{
    struct entry *e = find(s, get_text(args));

    out_value(s, e ? e->value : NULL);
    reply_out(s, c);
    return true;
}

/* Reads the value as a number in text. False: it is none. */
static bool value_number(const struct value *v, int64_t *n)
{
    char text[24];

    if (!v->len || v->len >= sizeof(text))
        return false;
    memcpy(text, v->data, v->len);
    text[v->len] = 0;
    return fbr_number(text, INT64_MIN, INT64_MAX, n);
}

/* Adds to the number at the key, from 0. Wakes connections that wait, unless `quiet`. */
static bool add(struct fbr_service *s, struct text key, int64_t by, int64_t *sum, bool quiet)
{
    struct entry *e = find_or_add(s, key);
    struct value *v;
    char text[24];
    int64_t n = 0;

    if (!e)
        return false;
    if ((e->value && !value_number(e->value, &n)) || __builtin_add_overflow(n, by, sum)) {
        drop_if_empty(s, e);
        return false;
    }
    v = value_new(s, text, (size_t)snprintf(text, sizeof(text), "%" PRId64, *sum));
    if (!v) {
        drop_if_empty(s, e);
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
    struct text key = get_text(args);
    int64_t sum;

    if (!add(s, key, (int64_t)fbr_get_u64(args), &sum, false))
        return false;
    reply_i64(s, c, sum);
    return true;
}

static bool is_ready(struct fbr_service *s, struct text key)
{
    struct entry *e = find(s, key);

    return e && (e->value || e->queue);
}

static bool on_check(struct fbr_service *s, struct fbr_service_conn *c, struct fbr_cur *args)
{
    uint64_t n = fbr_get_u64(args);
    bool all = true;

    while (n--)
        all = is_ready(s, get_text(args)) && all;
    reply_u8(s, c, all ? READY : NOT_READY);
    return true;
}

static bool on_wait(struct fbr_service *s, struct fbr_service_conn *c, struct fbr_cur *args)
{
    uint64_t n = fbr_get_u64(args);

    stop_waiting(s, c);
    while (n--) {
        struct text key = get_text(args);
        struct entry *e;

        if (is_ready(s, key))
            continue;
        e = find_or_add(s, key);
        if (!e || !wait_add(s, c, e)) {
            if (e)
                drop_if_empty(s, e);
            return false;
        }
        c->awaited++;
    }
    if (!c->awaited)
        reply_u8(s, c, STOP_WAITING);
    return true;
}

static bool on_getnumkeys(struct fbr_service *s, struct fbr_service_conn *c, struct fbr_cur *args)
{
    reply_i64(s, c, s->keys);
    return true;
}

static bool on_delete(struct fbr_service *s, struct fbr_service_conn *c, struct fbr_cur *args)
{
    struct entry *e = find(s, get_text(args));
    struct value *old = e ? e->value : NULL;

    if (old) {
        e->value = NULL;
        s->keys--;
        value_free(s, old);
        drop_if_empty(s, e);
    }
    reply_i64(s, c, old ? 1 : 0);
    return true;
}

static bool on_append(struct fbr_service *s, struct fbr_service_conn *c, struct fbr_cur *args)
{
    struct text key = get_text(args), data = get_text(args);
    struct entry *e = find(s, key);
    struct value *v;

    if (!e || !e->value)
        return set(s, key, data);
    if (!charge(s, data.len))
        return false;
    v = realloc(e->value, sizeof(*v) + e->value->len + data.len);
    if (!v) {
        s->memory -= data.len;
        return false;
    }
    memcpy(v->data + v->len, data.data, data.len);
    v->len += data.len;
    e->value = v;
    wake(s, e, true);
    return true;
}

static bool on_multi_get(struct fbr_service *s, struct fbr_service_conn *c, struct fbr_cur *args)
{
    uint64_t n = fbr_get_u64(args);

    while (n--) {
        struct entry *e = find(s, get_text(args));

        out_value(s, e ? e->value : NULL);
        if (s->out.len > FBR_TCPSTORE_MEMORY_MAX)
            s->out.failed = true;
        if (s->out.failed)
            break;
    }
    reply_out(s, c);
    return true;
}

static bool on_multi_set(struct fbr_service *s, struct fbr_service_conn *c, struct fbr_cur *args)
{
    uint64_t n = fbr_get_u64(args);

    while (n--) {
        struct text key = get_text(args);

        if (!set(s, key, get_text(args)))
            return false;
    }
    return true;
}

static bool on_cancel_wait(struct fbr_service *s, struct fbr_service_conn *c, struct fbr_cur *args)
{
    stop_waiting(s, c);
    reply_u8(s, c, WAIT_CANCELED);
    return true;
}

static bool on_validate(struct fbr_service *s, struct fbr_service_conn *c, struct fbr_cur *args)
{
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
    struct entry *e = find_or_add(s, get_text(args));
    struct text data = get_text(args);
    struct value *v = e ? value_new(s, data.data, data.len) : NULL;

    if (!v) {
        if (e)
            drop_if_empty(s, e);
        return false;
    }
    DL_APPEND(e->queue, v);
    e->queued++;
    wake(s, e, false);
    return true;
}

static bool on_queue_pop(struct fbr_service *s, struct fbr_service_conn *c, struct fbr_cur *args)
{
    struct entry *e = find(s, get_text(args));
    struct value *v = e ? e->queue : NULL;

    fbr_put_u64(&s->out, e ? (uint64_t)e->queued : 0);
    if (v) {
        out_value(s, v);
        DL_DELETE(e->queue, v);
        e->queued--;
        value_free(s, v);
        drop_if_empty(s, e);
    }
    reply_out(s, c);
    return true;
}

static bool on_queue_len(struct fbr_service *s, struct fbr_service_conn *c, struct fbr_cur *args)
{
    struct entry *e = find(s, get_text(args));

    reply_i64(s, c, e ? e->queued : 0);
    return true;
}

static bool on_list_keys(struct fbr_service *s, struct fbr_service_conn *c, struct fbr_cur *args)
{
    struct entry *e, *next;

    fbr_put_u64(&s->out, (uint64_t)s->keys);
    HASH_ITER(hh, s->entries, e, next) {
        if (e->value)
            out_text(s, e->key, e->key_len);
    }
    reply_out(s, c);
    return true;
}

/* The key counts the ranks that have come; the last one releases all. */
static bool on_barrier(struct fbr_service *s, struct fbr_service_conn *c, struct fbr_cur *args)
{
    struct text key = get_text(args);
    int64_t size = (int64_t)fbr_get_u64(args), come;

    stop_waiting(s, c);
    if (!add(s, key, 1, &come, true))
        return false;
    if (come < size) {
        c->awaited = 1;
        return wait_add(s, c, find(s, key));
    }
    wake(s, find(s, key), true);
    reply_u8(s, c, STOP_WAITING);
    return true;
}

/* The shape of the arguments: k a key, v a value, 4 and 8 numbers of 4 and 8 bytes, K a list of
 * keys, P a list of keys with values. run() returns false if the connection must be closed. */
static const struct {
    const char *shape;
    bool (*run)(struct fbr_service *s, struct fbr_service_conn *c, struct fbr_cur *args);
} requests[REQUESTS] = {
    [VALIDATE] = {"4", on_validate},
    [SET] = {"kv", on_set},
    [COMPARE_SET] = {"kvv", on_compare_set},
    [GET] = {"k", on_get},
    [ADD] = {"k8", on_add},
    [CHECK] = {"K", on_check},
    [WAIT] = {"K", on_wait},
    [GETNUMKEYS] = {"", on_getnumkeys},
    [DELETE_KEY] = {"k", on_delete},
    [APPEND] = {"kv", on_append},
    [MULTI_GET] = {"K", on_multi_get},
    [MULTI_SET] = {"P", on_multi_set},
    [CANCEL_WAIT] = {"", on_cancel_wait},
    [PING] = {"4", on_ping},
    [QUEUE_PUSH] = {"kv", on_queue_push},
    [QUEUE_POP] = {"k", on_queue_pop},
    [QUEUE_LEN] = {"k", on_queue_len},
    [LIST_KEYS] = {"", on_list_keys},
    [BARRIER] = {"k8", on_barrier},
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
        c->dialect = FIRST;
        return true;
    }
    if (c->in.len < 5)
        return false;
    fbr_get_u8(&at);
    c->dialect = fbr_get_u32(&at) == FBR_TCPSTORE_MAGIC ? SECOND : FIRST;
    return true;
}

static enum request request_of(const struct fbr_service_conn *c, uint8_t byte)
{
    if (c->dialect == FIRST)
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
        m = r == REQUESTS ? MALFORMED : measure(requests[r].shape, &next);
        if (m == NOT_YET)
            break;
        if (m == MALFORMED || !requests[r].run(s, c, &args))
            c->bad = true;
        at = next;
    }
    fbr_buf_consume(&c->in, (size_t)(at.at - c->in.data));
    /* The bytes of a request that is not complete count as well. */
    if (c->in.len > FBR_TCPSTORE_MEMORY_MAX - s->memory)
        c->bad = true;
    if (!c->in.len && c->in.cap > (1u << 20))
        fbr_buf_fini(&c->in);
}

static void tcpstore_closed(struct fbr_service_conn *c)
{
    stop_waiting(c->service, c);
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
    else if (c->dialect != UNKNOWN || detect_dialect(c))
        run_requests(s, c);
    if (c->bad) {
        s->host->hang_up(c->peer);
        tcpstore_closed(c);
    }
}

static void tcpstore_close(struct fbr_service *s)
{
    struct entry *e, *next;
    struct value *v, *v2;

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
