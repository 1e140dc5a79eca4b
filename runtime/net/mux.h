/* mux.h - one direction of a data link: records packed into messages, messages sealed; pure, but
 * for allocation.
 *
 * A record is a byte string of any length. Small records that wait together travel in one message;
 * a long one travels in pieces, so that no message is longer than FBR_MUX_MAX.
 *
 *     message   u32 version, u64 link, { u32 seq, u32 ack, pieces } or u64 counter and the same,
 *               sealed
 *     piece     u32 length, u32 flags, [u64 stream], [u64 length of the whole record, on its first
 *               piece of several], bytes, zeros up to a multiple of 8
 *
 * so that a record in one piece lies 8-byte aligned in the message that sock.h hands out.
 *
 * A link may carry streams, numbered from 1: those of the workers behind one host. Records of one
 * stream keep their order, those of different streams overtake each other: a long one holds the
 * others up for one message at a time. Stream 0 is the link's own, whose records travel without the
 * number.
 *
 * A receiver keeps of long records only what was begun and is not finished: one of the link's own,
 * and one of each stream that is open, each of at most `limit` bytes, and in memory as they come.
 * So several workers behind a host may send long results at the same time, and nobody makes us keep
 * more than they could on links of their own.
 *
 * One lane belongs to one thread at a time; the link's lock sees to it.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef FBR_MUX_H
#define FBR_MUX_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

#include "runtime/base/buf.h"
#include "runtime/base/held.h"
#include "runtime/net/aead.h"

#define FBR_MUX_VERSION 1
#define FBR_MUX_MAX (256 * 1024)
#define FBR_MUX_EMPTY 44 /* a sealed message without records, as the first one up is */

/* Keys of a link: NULL where there is no seal (in one host's 0700 directory). */
struct fbr_keys {
    uint8_t up[FBR_KEY_SIZE], down[FBR_KEY_SIZE];
    enum fbr_aead_alg alg;
};

/* Room in a record beyond the longest message of a program: for heads, and small items beside
 * it. */
#define FBR_MUX_SLACK (256 * 1024)

struct fbr_piece; /* a message that is packed already */
struct fbr_mux_part;

/* A queue, in order: messages that are packed, then small records. */
struct fbr_mux_queue {
    struct fbr_mux_queue *next;
    uint64_t stream;
    struct fbr_buf small; /* records that wait to be packed together */
    struct fbr_piece *first, **last;
    size_t queued;  /* bytes */
    uint64_t after; /* so many messages of the first queue: earlier records of the stream */
};

struct fbr_mux_out {
    uint64_t link;
    struct fbr_aead seal;
    bool sealed;
    uint32_t seq; /* of the last message taken */
    /* The first is of stream 0 and of the small records of all others; behind it, in turn, those of
     * streams with a long record under way, which hold all that such a stream has from then on. */
    struct fbr_mux_queue queues;
    bool own_turn;          /* the last message was of a small queue */
    uint64_t packed, taken; /* messages of the first */
    size_t queued;          /* bytes, of all */
};

int fbr_mux_out_init(struct fbr_mux_out *l, uint64_t link, const uint8_t *key,
                     enum fbr_aead_alg alg);
void fbr_mux_out_fini(struct fbr_mux_out *l);
/* Adds one record, copied from n parts. */
int fbr_mux_add(struct fbr_mux_out *l, const struct iovec *iov, int n);
int fbr_mux_add_to(struct fbr_mux_out *l, uint64_t stream, const struct iovec *iov, int n);
static inline bool fbr_mux_empty(const struct fbr_mux_out *l)
{
    return l->queued == 0;
}
/* Whether this stream should add no more now: more than so many bytes of its long records, or of
 * the short records of all streams, wait. */
bool fbr_mux_crowded(const struct fbr_mux_out *l, uint64_t stream, size_t most);
/* Takes the next message to send, numbered, with `ack` in it; fbr_sock sends or frees it. When the
 * lane is empty, the message has no records. */
int fbr_mux_take(struct fbr_mux_out *l, uint32_t ack, void **msg, size_t *len);

/* Memory for a long record, kept for the next one because its pages are present already. The lanes
 * of one thread share it. */
struct fbr_spare {
    uint8_t *data;
    size_t cap;
};

struct fbr_mux_in {
    uint64_t link;
    struct fbr_aead seal;
    bool sealed;
    bool repeats;               /* the first message may come again, while there was no other */
    uint32_t seq;               /* number of the last message that was opened */
    uint64_t stream;            /* of the record that is handed out */
    struct fbr_mux_part *parts; /* long records under way, one of a stream at most */
    size_t n_parts;
    struct fbr_spare *spare; /* may be NULL */
    size_t limit;            /* longest record that is taken */
    struct fbr_held *held;   /* counts long records under way, as they come; may be NULL */
    uint64_t streams;        /* the highest that may have long records; 0, as at first: none */
    /* Whether a stream is open; long records of one that is not are passed over. NULL: all are. */
    bool (*is_open)(void *user, uint64_t stream);
    void *user;
    const char *fault; /* the fault of a refused message; NULL: the error code says it */
};

int fbr_mux_in_init(struct fbr_mux_in *l, uint64_t link, const uint8_t *key, enum fbr_aead_alg alg,
                    size_t limit);
void fbr_mux_in_fini(struct fbr_mux_in *l);

/* Drops the begun records of streams that were closed since. */
void fbr_mux_forget(struct fbr_mux_in *l);

/* Reads the link that a message claims to belong to. -EBADMSG: not a message. */
int fbr_mux_link(const void *msg, size_t len, uint64_t *link);

typedef void (*fbr_record_fn)(void *user, const void *record, size_t len);

/* Opens a message in place: authenticates it, checks that it is the next one, answers its ack and
 * hands out the records that it completes (valid during the call). -EBADMSG: no message, forged or
 * damaged; -EPROTO: authentic and makes no sense; -EILSEQ: a message is missing; -EMSGSIZE: a
 * record above the limit; -ENOMEM. All of them end the link. `ack` is set before the records are
 * handed out. */
int fbr_mux_open(struct fbr_mux_in *l, void *msg, size_t len,
                 void (*on_ack)(void *user, uint32_t ack, bool records), fbr_record_fn on_record,
                 void *user);

#endif
