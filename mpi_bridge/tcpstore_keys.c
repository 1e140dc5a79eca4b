/* tcpstore_keys.c - the keys of the service "tcpstore", and the connections that wait for them.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "mpi_bridge/tcpstore_priv.h"

#include <stdlib.h>
#include <string.h>

#define ENTRY_COST 256 /* bytes of a key or a value without its text, roughly */
#define WAIT_COST 64

/* ---- memory ---- */

bool fbr_tcp_charge(struct fbr_service *s, uint64_t bytes)
{
    if (bytes > FBR_TCPSTORE_MEMORY_MAX - s->memory)
        return false;
    s->memory += bytes;
    return true;
}

struct fbr_tcp_value *fbr_tcp_value_new(struct fbr_service *s, const void *data, size_t len)
{
    struct fbr_tcp_value *v;

    if (!fbr_tcp_charge(s, ENTRY_COST + (uint64_t)len))
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

void fbr_tcp_value_free(struct fbr_service *s, struct fbr_tcp_value *v)
{
    if (v)
        s->memory -= ENTRY_COST + (uint64_t)v->len;
    free(v);
}

/* ---- keys ---- */

struct fbr_tcp_entry *fbr_tcp_find(struct fbr_service *s, struct fbr_tcp_text key)
{
    struct fbr_tcp_entry *e;

    HASH_FIND(hh, s->entries, key.data, key.len, e);
    return e;
}

struct fbr_tcp_entry *fbr_tcp_find_or_add(struct fbr_service *s, struct fbr_tcp_text key)
{
    struct fbr_tcp_entry *e = fbr_tcp_find(s, key);

    if (e || !fbr_tcp_charge(s, ENTRY_COST + (uint64_t)key.len))
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

void fbr_tcp_drop_if_empty(struct fbr_service *s, struct fbr_tcp_entry *e)
{
    if (e->value || e->queue || e->waits)
        return;
    HASH_DEL(s->entries, e);
    s->memory -= ENTRY_COST + (uint64_t)e->key_len;
    free(e);
}

/* ---- answers ---- */

void fbr_tcp_reply_u8(struct fbr_service *s, struct fbr_service_conn *c, uint8_t v)
{
    s->host->send(c->peer, &v, 1);
}

void fbr_tcp_reply_i64(struct fbr_service *s, struct fbr_service_conn *c, int64_t v)
{
    s->host->send(c->peer, &v, sizeof(v));
}

void fbr_tcp_out_text(struct fbr_service *s, const void *data, size_t len)
{
    fbr_put_u64(&s->out, len);
    fbr_put(&s->out, data, len);
}

void fbr_tcp_out_value(struct fbr_service *s, const struct fbr_tcp_value *v)
{
    fbr_tcp_out_text(s, v ? v->data : "", v ? v->len : 0);
}

void fbr_tcp_reply_out(struct fbr_service *s, struct fbr_service_conn *c)
{
    if (s->out.failed)
        c->bad = true;
    else if (s->out.len)
        s->host->send(c->peer, s->out.data, s->out.len);
    /* a rare large answer does not keep its memory */
    if (s->out.failed || s->out.cap > (1u << 20)) {
        fbr_buf_fini(&s->out);
        fbr_buf_init(&s->out);
    }
    fbr_buf_clear(&s->out);
}

/* ---- waiting ---- */

bool fbr_tcp_wait_add(struct fbr_service *s, struct fbr_service_conn *c, struct fbr_tcp_entry *e)
{
    struct fbr_tcp_wait *w;

    if (!fbr_tcp_charge(s, WAIT_COST))
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

static void wait_free(struct fbr_service *s, struct fbr_tcp_wait *w)
{
    DL_DELETE(w->entry->waits, w);
    DL_DELETE2(w->conn->waits, w, conn_prev, conn_next);
    s->memory -= WAIT_COST;
    free(w);
}

void fbr_tcp_stop_waiting(struct fbr_service *s, struct fbr_service_conn *c)
{
    c->awaited = 0;
    while (c->waits) {
        struct fbr_tcp_entry *e = c->waits->entry;

        wait_free(s, c->waits);
        fbr_tcp_drop_if_empty(s, e);
    }
}

void fbr_tcp_wake(struct fbr_service *s, struct fbr_tcp_entry *e, bool all)
{
    while (e->waits) {
        struct fbr_service_conn *c = e->waits->conn;

        wait_free(s, e->waits);
        if (c->awaited && --c->awaited == 0) {
            fbr_tcp_reply_u8(s, c, FBR_TCP_STOP_WAITING);
            if (!all)
                return;
        }
    }
}
