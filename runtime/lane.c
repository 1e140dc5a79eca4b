/* lane.c - packing, sealing and opening of data messages; see lane.h.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "runtime/lane.h"

#include <endian.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/sock.h"

#define HEAD 12 /* version, link */
#define COUNTER 8
#define INNER 8 /* seq, ack */
#define PIECE_HEAD 8
#define SMALL (64 * 1024)
#define SPARE_MAX (8u << 20)
#define MORE 1u /* not the record's last piece */
#define CONT 2u /* not its first */

struct fbr_piece {
    struct fbr_piece *next;
    void *msg; /* of fbr_sock_alloc, with room for the head and the tag */
    size_t len;
};

static size_t pad8(size_t n)
{
    return (8 - n % 8) % 8;
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

int fbr_lane_out_init(struct fbr_lane_out *l, uint64_t link, const uint8_t *key,
                      enum fbr_seal_alg alg)
{
    memset(l, 0, sizeof(*l));
    l->link = link;
    l->last = &l->first;
    l->sealed = key != NULL;
    return key ? fbr_seal_init(&l->seal, FBR_SEAL_SEND, alg, key, &l->link, sizeof(l->link)) : 0;
}

void fbr_lane_out_fini(struct fbr_lane_out *l)
{
    while (l->first) {
        struct fbr_piece *p = l->first;

        l->first = p->next;
        fbr_sock_free(p->msg);
        free(p);
    }
    l->last = &l->first;
    fbr_buf_fini(&l->small);
    if (l->sealed)
        fbr_seal_fini(&l->seal);
}

static uint8_t *new_message(const struct fbr_lane_out *l, size_t payload, size_t *len)
{
    *len = head_size(l->sealed) + payload + (l->sealed ? FBR_SEAL_TAG : 0);
    return fbr_sock_alloc(*len);
}

static int append(struct fbr_lane_out *l, void *msg, size_t len)
{
    struct fbr_piece *p = malloc(sizeof(*p));

    if (!p) {
        fbr_sock_free(msg);
        return -ENOMEM;
    }
    *p = (struct fbr_piece){.msg = msg, .len = len};
    *l->last = p;
    l->last = &p->next;
    l->queued += len;
    return 0;
}

/* Packs what waits in `small` into a message. */
static int pack_small(struct fbr_lane_out *l)
{
    size_t len, n = l->small.len;
    uint8_t *msg;

    if (!n)
        return 0;
    msg = new_message(l, n, &len);
    if (!msg)
        return -ENOMEM;
    memcpy(msg + head_size(l->sealed), l->small.data, n);
    fbr_buf_clear(&l->small);
    l->queued -= n;
    return append(l, msg, len);
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

static int add_small(struct fbr_lane_out *l, struct source *src, size_t total)
{
    size_t pad = pad8(total), need = PIECE_HEAD + total + pad;
    uint8_t *at = fbr_buf_extend(&l->small, need);

    if (!at) {
        l->small.failed = false;
        return -ENOMEM;
    }
    put32(at, (uint32_t)total);
    put32(at + 4, 0);
    read_source(src, at + PIECE_HEAD, total);
    memset(at + PIECE_HEAD + total, 0, pad);
    l->queued += need;
    return 0;
}

static int add_piece(struct fbr_lane_out *l, struct source *src, size_t n, uint32_t flags,
                     size_t total)
{
    bool first = (flags & (MORE | CONT)) == MORE;
    size_t len, pad = pad8(n);
    uint8_t *msg = new_message(l, PIECE_HEAD + (first ? 8 : 0) + n + pad, &len), *at;

    if (!msg)
        return -ENOMEM;
    at = msg + head_size(l->sealed);
    put32(at, (uint32_t)n);
    put32(at + 4, flags);
    at += PIECE_HEAD;
    if (first) {
        put64(at, total);
        at += 8;
    }
    read_source(src, at, n);
    memset(at + n, 0, pad);
    return append(l, msg, len);
}

int fbr_lane_add(struct fbr_lane_out *l, const struct iovec *iov, int n)
{
    struct source src = {iov, n, 0};
    size_t total = 0, sent = 0;
    int rc;

    for (int i = 0; i < n; i++)
        total += iov[i].iov_len;
    if (total <= SMALL) {
        if (l->small.len + total > FBR_LANE_MAX - 64 && (rc = pack_small(l)) < 0)
            return rc;
        return add_small(l, &src, total);
    }
    rc = pack_small(l);
    while (rc == 0 && sent < total) {
        size_t piece = total - sent < FBR_LANE_MAX ? total - sent : FBR_LANE_MAX;
        uint32_t flags = (sent + piece < total ? MORE : 0) | (sent ? CONT : 0);

        rc = add_piece(l, &src, piece, flags, total);
        sent += piece;
    }
    return rc; /* after -ENOMEM in the middle of a record the peer will find the link broken */
}

int fbr_lane_take(struct fbr_lane_out *l, uint32_t ack, void **msg, size_t *len)
{
    uint8_t *m;
    int rc = 0;

    if (!l->first)
        rc = pack_small(l);
    if (rc < 0)
        return rc;
    if (l->first) {
        struct fbr_piece *p = l->first;

        m = p->msg;
        *len = p->len;
        l->first = p->next;
        if (!l->first)
            l->last = &l->first;
        l->queued -= p->len;
        free(p);
    } else {
        m = new_message(l, 0, len);
        if (!m)
            return -ENOMEM;
    }
    put32(m, FBR_LANE_VERSION);
    put64(m + 4, l->link);
    put32(m + head_size(l->sealed) - INNER, ++l->seq);
    put32(m + head_size(l->sealed) - INNER + 4, ack);
    if (l->sealed) {
        uint8_t *inner = m + HEAD + COUNTER;
        uint64_t counter;

        rc = fbr_seal_encrypt(&l->seal, &counter, inner, *len - HEAD - COUNTER - FBR_SEAL_TAG,
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

int fbr_lane_in_init(struct fbr_lane_in *l, uint64_t link, const uint8_t *key,
                     enum fbr_seal_alg alg, size_t limit)
{
    memset(l, 0, sizeof(*l));
    l->link = link;
    l->limit = limit;
    l->sealed = key != NULL;
    return key ? fbr_seal_init(&l->seal, FBR_SEAL_RECEIVE, alg, key, &l->link, sizeof(l->link)) : 0;
}

void fbr_lane_in_fini(struct fbr_lane_in *l)
{
    free(l->part);
    l->part = NULL;
    if (l->sealed)
        fbr_seal_fini(&l->seal);
}

int fbr_lane_link(const void *msg, size_t len, uint64_t *link)
{
    struct fbr_cur c = fbr_cur(msg, len);
    uint32_t version = fbr_get_u32(&c);

    *link = fbr_get_u64(&c);
    return fbr_cur_ok(&c) && version == FBR_LANE_VERSION ? 0 : -EBADMSG;
}

static int begin_long(struct fbr_lane_in *l, struct fbr_cur *c)
{
    uint64_t whole = fbr_get_u64(c);

    if (!fbr_cur_ok(c) || l->part)
        return -EBADMSG;
    if (whole > l->limit)
        return -EMSGSIZE;
    if (l->spare && l->spare->cap >= whole) {
        l->part = l->spare->data;
        l->cap = l->spare->cap;
        *l->spare = (struct fbr_spare){NULL, 0};
    } else {
        l->part = malloc(whole);
        l->cap = whole;
    }
    l->whole = whole;
    l->have = 0;
    return l->part ? 0 : -ENOMEM;
}

/* The long record was handed out. */
static void end_long(struct fbr_lane_in *l)
{
    if (l->spare && l->cap <= SPARE_MAX && l->cap > l->spare->cap) {
        free(l->spare->data);
        *l->spare = (struct fbr_spare){l->part, l->cap};
    } else {
        free(l->part);
    }
    l->part = NULL;
}

static int one_piece(struct fbr_lane_in *l, struct fbr_cur *c, fbr_record_fn on_record, void *user)
{
    size_t len = fbr_get_u32(c);
    uint32_t flags = fbr_get_u32(c);
    const void *bytes;
    int rc;

    if (flags > (MORE | CONT))
        return -EBADMSG;
    if (flags == 0 && len > l->limit)
        return -EMSGSIZE;
    if (flags == MORE && (rc = begin_long(l, c)) < 0)
        return rc;
    bytes = fbr_get(c, len);
    fbr_get(c, pad8(len));
    if (!fbr_cur_ok(c))
        return -EBADMSG;
    if (flags == 0) {
        on_record(user, bytes, len);
        return 0;
    }
    if (!l->part || len > l->whole - l->have)
        return -EBADMSG;
    memcpy(l->part + l->have, bytes, len);
    l->have += len;
    if (flags & MORE)
        return 0;
    if (l->have != l->whole)
        return -EBADMSG;
    on_record(user, l->part, l->whole);
    end_long(l);
    return 0;
}

static int unseal(struct fbr_lane_in *l, struct fbr_cur *c)
{
    uint64_t counter = fbr_get_u64(c);
    uint8_t *inner = (uint8_t *)(uintptr_t)c->at;
    size_t len = fbr_cur_left(c);
    int rc;

    if (!fbr_cur_ok(c))
        return -EBADMSG;
    rc = fbr_seal_decrypt(&l->seal, counter, inner, len, inner);
    if (rc < 0)
        return rc;
    *c = fbr_cur(inner, len - FBR_SEAL_TAG);
    return 0;
}

int fbr_lane_open(struct fbr_lane_in *l, void *msg, size_t len,
                  void (*on_ack)(void *, uint32_t, bool), fbr_record_fn on_record, void *user)
{
    struct fbr_cur c = fbr_cur(msg, len);
    uint32_t seq, ack;
    int rc = 0;

    fbr_get(&c, HEAD);
    if (!fbr_cur_ok(&c))
        return -EBADMSG;
    if (l->sealed && (rc = unseal(l, &c)) < 0)
        return rc;
    seq = fbr_get_u32(&c);
    ack = fbr_get_u32(&c);
    if (!fbr_cur_ok(&c))
        return -EBADMSG;
    if (seq != l->seq + 1)
        return -EILSEQ;
    l->seq = seq;
    if (on_ack)
        on_ack(user, ack, fbr_cur_left(&c) > 0);
    while (rc == 0 && fbr_cur_left(&c))
        rc = one_piece(l, &c, on_record, user);
    return rc;
}
