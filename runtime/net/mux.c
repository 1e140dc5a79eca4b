/* mux.c - packs records into data messages, encrypts them, and opens them.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "runtime/net/mux.h"

#include <endian.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define HASH_NONFATAL_OOM 1 /* an entry that could not be added has hh.tbl NULL */
#include <uthash.h>

#include "runtime/net/sock.h"

#define HEAD 12 /* version, link */
#define COUNTER 8
#define INNER 8 /* seq, ack */
#define PIECE_HEAD 8
#define SMALL (64 * 1024)
#define SPARE_MAX (8u << 20)
#define MORE 1u   /* not the last piece of the record */
#define CONT 2u   /* not the first piece of the record */
#define STREAM 4u /* the number of its stream follows */
/* maximum of incomplete long records, for links that never close a stream */
#define PARTS_MAX 65536

_Static_assert(HEAD + COUNTER + INNER + FBR_AEAD_TAG == FBR_MUX_EMPTY, "an empty message");

struct fbr_piece {
    struct fbr_piece *next;
    void *msg; /* from fbr_sock_alloc, with room for the head and the tag */
    size_t len;
};

static size_t piece_head(uint64_t stream)
{
    return PIECE_HEAD + (stream ? 8 : 0);
}

static size_t head_size(bool sealed)
{
    return HEAD + (sealed ? COUNTER : 0) + INNER;
}

static void put32(uint8_t *at, uint32_t v)
{
    v = htole32(v);
    memcpy(at, &v, sizeof(v));
}

static void put64(uint8_t *at, uint64_t v)
{
    v = htole64(v);
    memcpy(at, &v, sizeof(v));
}

int fbr_mux_out_init(struct fbr_mux_out *l, uint64_t link, const uint8_t *key,
                     enum fbr_aead_alg alg)
{
    memset(l, 0, sizeof(*l));
    l->link = link;
    l->queues.last = &l->queues.first;
    l->sealed = key != NULL;
    return key ? fbr_aead_init(&l->seal, FBR_AEAD_SEND, alg, key, &l->link, sizeof(l->link)) : 0;
}

static void queue_fini(struct fbr_mux_queue *q)
{
    while (q->first) {
        struct fbr_piece *p = q->first;

        q->first = p->next;
        fbr_sock_free(p->msg);
        free(p);
    }
    q->last = &q->first;
    fbr_buf_fini(&q->small);
}

void fbr_mux_out_fini(struct fbr_mux_out *l)
{
    queue_fini(&l->queues);
    while (l->queues.next) {
        struct fbr_mux_queue *q = l->queues.next;

        l->queues.next = q->next;
        queue_fini(q);
        free(q);
    }
    if (l->sealed)
        fbr_aead_fini(&l->seal);
}

static uint8_t *new_message(const struct fbr_mux_out *l, size_t payload, size_t *len)
{
    *len = head_size(l->sealed) + payload + (l->sealed ? FBR_AEAD_TAG : 0);
    return fbr_sock_alloc(*len);
}

static int append(struct fbr_mux_out *l, struct fbr_mux_queue *q, void *msg, size_t len)
{
    struct fbr_piece *p = malloc(sizeof(*p));

    if (!p) {
        fbr_sock_free(msg);
        return -ENOMEM;
    }
    *p = (struct fbr_piece){.msg = msg, .len = len};
    *q->last = p;
    q->last = &p->next;
    l->packed += q == &l->queues;
    q->queued += len;
    l->queued += len;
    return 0;
}

static int pack_small(struct fbr_mux_out *l, struct fbr_mux_queue *q)
{
    size_t len, n = q->small.len;
    uint8_t *msg;
    int rc;

    if (!n)
        return 0;
    msg = new_message(l, n, &len);
    if (!msg)
        return -ENOMEM;
    memcpy(msg + head_size(l->sealed), q->small.data, n);
    rc = append(l, q, msg, len);
    if (rc < 0) /* the records stay in `small` */
        return rc;
    fbr_buf_clear(&q->small);
    q->queued -= n;
    l->queued -= n;
    return 0;
}

/* Walks over the parts of a record. */
struct source {
    const struct iovec *iov;
    int n;
    size_t skip; /* bytes of iov[0] that were read */
};

static void read_source(struct source *s, uint8_t *to, size_t want)
{
    while (want) {
        size_t left = s->iov->iov_len - s->skip, n = left < want ? left : want;

        if (n)
            memcpy(to, (const uint8_t *)s->iov->iov_base + s->skip, n);
        to += n;
        want -= n;
        s->skip += n;
        if (s->skip == s->iov->iov_len && want) {
            s->iov++;
            s->skip = 0;
        }
    }
}

static int add_small(struct fbr_mux_out *l, struct fbr_mux_queue *q, uint64_t stream,
                     struct source *src, size_t total)
{
    size_t pad = fbr_pad8(total), head = piece_head(stream), need = head + total + pad;
    uint8_t *at = fbr_buf_extend(&q->small, need);

    if (!at) {
        q->small.failed = false;
        return -ENOMEM;
    }
    put32(at, (uint32_t)total);
    put32(at + 4, stream ? STREAM : 0);
    if (stream)
        put64(at + PIECE_HEAD, stream);
    read_source(src, at + head, total);
    memset(at + head + total, 0, pad);
    q->queued += need;
    l->queued += need;
    return 0;
}

struct long_piece {
    uint64_t stream;
    size_t n, total; /* bytes of the piece, of the record */
    uint32_t flags;
};

static int add_piece(struct fbr_mux_out *l, struct fbr_mux_queue *q, struct source *src,
                     const struct long_piece *p)
{
    bool first = (p->flags & (MORE | CONT)) == MORE;
    size_t head = piece_head(p->stream), len, pad = fbr_pad8(p->n);
    uint8_t *msg = new_message(l, head + (first ? 8 : 0) + p->n + pad, &len), *at;

    if (!msg)
        return -ENOMEM;
    at = msg + head_size(l->sealed);
    put32(at, (uint32_t)p->n);
    put32(at + 4, p->flags | (p->stream ? STREAM : 0));
    if (p->stream)
        put64(at + PIECE_HEAD, p->stream);
    at += head;
    if (first) {
        put64(at, p->total);
        at += 8;
    }
    read_source(src, at, p->n);
    memset(at + p->n, 0, pad);
    return append(l, q, msg, len);
}

static int add_long(struct fbr_mux_out *l, struct fbr_mux_queue *q, uint64_t stream,
                    struct source *src, size_t total)
{
    size_t sent = 0;
    int rc = pack_small(l, q);

    while (rc == 0 && sent < total) {
        size_t n = total - sent < FBR_MUX_MAX ? total - sent : FBR_MUX_MAX;
        uint32_t flags = (sent + n < total ? MORE : 0) | (sent ? CONT : 0);

        rc = add_piece(l, q, src, &(struct long_piece){stream, n, total, flags});
        sent += n;
    }
    return rc;
}

/* Returns the queue of a stream that has an incomplete long record. NULL: the stream has none. */
static struct fbr_mux_queue *own_queue(const struct fbr_mux_out *l, uint64_t stream)
{
    struct fbr_mux_queue *q = l->queues.next;

    while (q && q->stream != stream)
        q = q->next;
    return q;
}

static struct fbr_mux_queue *new_queue(struct fbr_mux_out *l, uint64_t stream)
{
    struct fbr_mux_queue *q = pack_small(l, &l->queues) == 0 ? calloc(1, sizeof(*q)) : NULL;
    struct fbr_mux_queue *before = &l->queues;

    if (!q)
        return NULL;
    q->stream = stream;
    q->after = l->packed;
    q->last = &q->first;
    while (before->next)
        before = before->next;
    before->next = q;
    return q;
}

int fbr_mux_add_to(struct fbr_mux_out *l, uint64_t stream, const struct iovec *iov, int n)
{
    struct fbr_mux_queue *q = stream ? own_queue(l, stream) : NULL;
    struct source src = {iov, n, 0};
    size_t total = 0;
    int rc;

    for (int i = 0; i < n; i++)
        total += iov[i].iov_len;
    if (!q)
        q = stream && total > SMALL ? new_queue(l, stream) : &l->queues;
    if (!q)
        return -ENOMEM;
    if (q->after < l->own)
        q->after = l->own;
    /* After -ENOMEM in the middle of a long record, the peer will find the link broken. */
    if (total > SMALL)
        rc = add_long(l, q, stream, &src, total);
    else if (q->small.len + total <= FBR_MUX_MAX - 64 || (rc = pack_small(l, q)) == 0)
        rc = add_small(l, q, stream, &src, total);
    if (!stream)
        l->own = l->packed + (l->queues.small.len > 0);
    return rc;
}

int fbr_mux_add(struct fbr_mux_out *l, const struct iovec *iov, int n)
{
    return fbr_mux_add_to(l, 0, iov, n);
}

bool fbr_mux_crowded(const struct fbr_mux_out *l, uint64_t stream, size_t most)
{
    const struct fbr_mux_queue *q = own_queue(l, stream);

    return (q ? q : &l->queues)->queued > most;
}

static bool queue_empty(const struct fbr_mux_queue *q)
{
    return !q->first && !q->small.len;
}

/* Ends the turn of a queue after one message. */
static void end_turn(struct fbr_mux_out *l, struct fbr_mux_queue *q)
{
    struct fbr_mux_queue *last = q;

    if (q == &l->queues || (!q->next && !queue_empty(q)))
        return;
    l->queues.next = q->next; /* q is the first of the streams' queues */
    if (queue_empty(q)) {
        fbr_buf_fini(&q->small);
        free(q);
        return;
    }
    while (last->next)
        last = last->next;
    last->next = q;
    q->next = NULL;
}

/* Chooses the queue that sends next. The small records of all streams have every second turn, so
 * that they wait for one piece of a long record and not for the whole. The other queues take turns.
 * NULL: there is nothing to send. */
static struct fbr_mux_queue *next_queue(struct fbr_mux_out *l)
{
    struct fbr_mux_queue *q;

    while ((q = l->queues.next) && queue_empty(q)) /* no memory for its first record */
        end_turn(l, q);
    l->own_turn = !l->own_turn;
    if (q && l->taken >= q->after && (l->own_turn || queue_empty(&l->queues)))
        return q;
    return queue_empty(&l->queues) ? NULL : &l->queues;
}

static int take_first(struct fbr_mux_out *l, struct fbr_mux_queue *q, uint8_t **msg, size_t *len)
{
    struct fbr_piece *p;
    int rc = q->first ? 0 : pack_small(l, q);

    if (rc < 0)
        return rc;
    p = q->first;
    *msg = p->msg;
    *len = p->len;
    q->first = p->next;
    if (!q->first)
        q->last = &q->first;
    q->queued -= p->len;
    l->queued -= p->len;
    l->taken += q == &l->queues;
    free(p);
    end_turn(l, q);
    return 0;
}

int fbr_mux_take(struct fbr_mux_out *l, uint32_t ack, void **msg, size_t *len)
{
    struct fbr_mux_queue *q = next_queue(l);
    uint8_t *m;
    int rc = 0;

    if (q) {
        rc = take_first(l, q, &m, len);
    } else {
        m = new_message(l, 0, len);
        rc = m ? 0 : -ENOMEM;
    }
    if (rc < 0)
        return rc;
    put32(m, FBR_MUX_VERSION);
    put64(m + 4, l->link);
    put32(m + head_size(l->sealed) - INNER, ++l->seq);
    put32(m + head_size(l->sealed) - INNER + 4, ack);
    if (l->sealed) {
        uint8_t *inner = m + HEAD + COUNTER;
        uint64_t counter;

        rc = fbr_aead_encrypt(&l->seal, &counter, inner, *len - HEAD - COUNTER - FBR_AEAD_TAG,
                              inner);
        put64(m + HEAD, counter);
    }
    if (rc < 0)
        fbr_sock_free(m);
    else
        *msg = m;
    return rc;
}

/* ---- The receiving side ---- */

int fbr_mux_in_init(struct fbr_mux_in *l, uint64_t link, const uint8_t *key, enum fbr_aead_alg alg,
                    size_t limit)
{
    memset(l, 0, sizeof(*l));
    l->link = link;
    l->limit = limit;
    l->sealed = key != NULL;
    return key ? fbr_aead_init(&l->seal, FBR_AEAD_RECEIVE, alg, key, &l->link, sizeof(l->link)) : 0;
}

struct fbr_mux_part {
    uint64_t stream;
    uint8_t *data;
    size_t have, whole, cap;
    UT_hash_handle hh;
};

static void drop(struct fbr_mux_in *l, struct fbr_mux_part *p)
{
    HASH_DELETE(hh, l->parts, p);
    l->n_parts--;
    fbr_held_release(l->held, p->have);
    free(p->data);
    free(p);
}

static bool is_open(const struct fbr_mux_in *l, uint64_t stream)
{
    return !stream || !l->is_open || l->is_open(l->user, stream);
}

void fbr_mux_forget(struct fbr_mux_in *l)
{
    struct fbr_mux_part *p, *next;

    HASH_ITER(hh, l->parts, p, next)
        if (!is_open(l, p->stream))
            drop(l, p);
}

void fbr_mux_in_fini(struct fbr_mux_in *l)
{
    struct fbr_mux_part *p, *next;

    HASH_ITER(hh, l->parts, p, next)
        drop(l, p);
    if (l->sealed)
        fbr_aead_fini(&l->seal);
}

int fbr_mux_link(const void *msg, size_t len, uint64_t *link)
{
    struct fbr_cur c = fbr_cur(msg, len);
    uint32_t version = fbr_get_u32(&c);

    *link = fbr_get_u64(&c);
    return fbr_cur_ok(&c) && version == FBR_MUX_VERSION ? 0 : -EBADMSG;
}

static struct fbr_mux_part *find_part(const struct fbr_mux_in *l, uint64_t stream)
{
    struct fbr_mux_part *p;

    HASH_FIND(hh, l->parts, &stream, sizeof(stream), p);
    return p;
}

static int refuse(struct fbr_mux_in *l, int code, const char *why)
{
    l->fault = why;
    return code;
}

static int new_part(struct fbr_mux_in *l, uint64_t whole)
{
    struct fbr_mux_part *p = calloc(1, sizeof(*p));

    if (!p)
        return -ENOMEM;
    p->stream = l->stream;
    p->whole = whole;
    if (l->spare && l->spare->cap >= whole) {
        p->data = l->spare->data;
        p->cap = l->spare->cap;
        *l->spare = (struct fbr_spare){NULL, 0};
    } else {
        p->data = malloc(whole);
        p->cap = whole;
    }
    if (p->data)
        HASH_ADD(hh, l->parts, stream, sizeof(p->stream), p);
    if (!p->data || !p->hh.tbl) {
        free(p->data);
        free(p);
        return -ENOMEM;
    }
    l->n_parts++;
    return 0;
}

/* Reads the length in the first piece of a long record, and makes room for the record if it is
 * wanted. */
static int begin_long(struct fbr_mux_in *l, struct fbr_cur *c, bool wanted)
{
    uint64_t whole = fbr_get_u64(c);

    if (!fbr_cur_ok(c))
        return refuse(l, -EPROTO, "a piece of a record runs over the end of its message");
    if (whole > l->limit)
        return refuse(l, -EMSGSIZE, "a record is longer than max_message");
    if (!wanted)
        return 0;
    if (find_part(l, l->stream))
        return refuse(l, -EPROTO, "a second long record began inside the first of its stream");
    if (l->n_parts == PARTS_MAX)
        return refuse(l, -EMSGSIZE, "too many long records are under way at once");
    return new_part(l, whole);
}

/* Frees a long record that was passed on, or keeps its memory for the next one. */
static void end_long(struct fbr_mux_in *l, struct fbr_mux_part *p)
{
    if (l->spare && p->cap <= SPARE_MAX && p->cap > l->spare->cap) {
        free(l->spare->data);
        *l->spare = (struct fbr_spare){p->data, p->cap};
        p->data = NULL;
    }
    drop(l, p);
}

static int long_piece(struct fbr_mux_in *l, const void *bytes, size_t len, bool more,
                      fbr_record_fn on_record, void *user)
{
    struct fbr_mux_part *p = find_part(l, l->stream);

    if (!p)
        return refuse(l, -EPROTO, "a piece continues no record");
    if (len > p->whole - p->have || (!more && len < p->whole - p->have))
        return refuse(l, -EPROTO, "the pieces of a record do not add up to its length");
    if (fbr_held_reserve(l->held, len) < 0)
        return refuse(
            l, -ENOBUFS,
            "a long record, and this process holds as much for others as hold_max allows");
    memcpy(p->data + p->have, bytes, len);
    p->have += len;
    if (more)
        return 0;
    on_record(user, p->data, p->whole);
    end_long(l, p);
    return 0;
}

static int one_piece(struct fbr_mux_in *l, struct fbr_cur *c, fbr_record_fn on_record, void *user)
{
    size_t len = fbr_get_u32(c);
    uint32_t flags = fbr_get_u32(c), place = flags & (MORE | CONT);
    bool wanted;
    const void *bytes;
    int rc;

    if (flags > (MORE | CONT | STREAM))
        return refuse(l, -EPROTO, "a record has unknown flags");
    l->stream = flags & STREAM ? fbr_get_u64(c) : 0;
    if (place && l->stream > l->streams)
        return refuse(l, -EPROTO, "a long record is of a stream that was never opened");
    wanted = !place || is_open(l, l->stream);
    if (!place && len > l->limit)
        return refuse(l, -EMSGSIZE, "a record is longer than max_message");
    if (place == MORE && (rc = begin_long(l, c, wanted)) < 0)
        return rc;
    bytes = fbr_get(c, len);
    fbr_get(c, fbr_pad8(len));
    if (!fbr_cur_ok(c))
        return refuse(l, -EPROTO, "a piece of a record runs over the end of its message");
    if (place && wanted)
        return long_piece(l, bytes, len, flags & MORE, on_record, user);
    if (!place)
        on_record(user, bytes, len);
    return 0;
}

static int unseal(struct fbr_mux_in *l, struct fbr_cur *c)
{
    uint64_t counter = fbr_get_u64(c);
    uint8_t *inner = (uint8_t *)(uintptr_t)c->at;
    size_t len = fbr_cur_left(c);
    int rc;

    if (!fbr_cur_ok(c))
        return -EBADMSG;
    rc = fbr_aead_decrypt(&l->seal, counter, inner, len, inner);
    if (rc < 0)
        return rc;
    *c = fbr_cur(inner, len - FBR_AEAD_TAG);
    return 0;
}

int fbr_mux_open(struct fbr_mux_in *l, void *msg, size_t len,
                 void (*on_ack)(void *, uint32_t, bool), fbr_record_fn on_record, void *user)
{
    struct fbr_cur c = fbr_cur(msg, len);
    uint32_t seq, ack;
    int rc = 0;

    l->fault = NULL;
    fbr_get(&c, HEAD);
    if (!fbr_cur_ok(&c))
        return -EBADMSG;
    if (l->sealed && (rc = unseal(l, &c)) < 0)
        return rc;
    seq = fbr_get_u32(&c);
    ack = fbr_get_u32(&c);
    if (!fbr_cur_ok(&c))
        return -EBADMSG;
    if (seq != l->seq + 1 && !(l->repeats && seq == 1 && l->seq == 1))
        return refuse(l, -EILSEQ, "a message is missing");
    l->seq = seq;
    if (on_ack)
        on_ack(user, ack, fbr_cur_left(&c) > 0);
    while (rc == 0 && fbr_cur_left(&c))
        rc = one_piece(l, &c, on_record, user);
    return rc;
}
