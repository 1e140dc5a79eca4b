/* mux.h - one direction of a data link: packs records of several streams into encrypted messages.
 *
 * The code is pure, except that it allocates memory. A record is a byte string of any length. Small
 * records that wait travel together in one message. A long record travels in pieces, so that no
 * message carries more than FBR_MUX_MAX bytes of it.
 *
 *     message   u32 version, u64 link, { u32 seq, u32 ack, pieces } or u64 counter and the same,
 *               encrypted
 *     piece     u32 length, u32 flags, [u64 stream], [u64 length of the whole record, on its first
 *               piece of several], bytes, zeros up to a multiple of 8
 *
 * So a record in one piece lies 8-byte aligned in the message that sock.h returns.
 *
 * A link may carry streams, numbered from 1: those of the workers behind one host process. Records
 * of one stream keep their order. Records of different streams overtake each other: a long record
 * delays the others by one message at a time. Stream 0 belongs to the link itself; its records
 * travel without the number, and no record that a stream adds later overtakes them.
 *
 * A receiver keeps only the incomplete long records: one of the link itself, and one of each open
 * stream. Each has at most `limit` bytes, and uses memory as its bytes arrive. So several workers
 * behind a host process may send long results at the same time, and no process makes us keep more
 * than it could with a link of its own.
 *
 * One mux object belongs to one thread at a time; its user ensures this, for example with the lock
 * of the link.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <sys/uio.h>

#include "runtime/base/buf.h"
#include "runtime/base/held.h"
#include "runtime/net/aead.h"

#define FBR_MUX_VERSION 1
#define FBR_MUX_MAX (256 * 1024)
/* size of an encrypted message without records, such as the first one up */
#define FBR_MUX_EMPTY 44

/* Keys of a link. A NULL pointer means no encryption (between processes of one host, in a directory
 * of mode 0700). */
struct fbr_keys {
    uint8_t up[FBR_KEY_SIZE], down[FBR_KEY_SIZE];
    enum fbr_aead_alg alg;
};

/* Room in a record for more than the longest message of a program: for heads, and for small items
 * next to the message. */
#define FBR_MUX_SLACK (256 * 1024)

struct fbr_piece; /* a packed message */
struct fbr_mux_part;

/* A queue. Its order: first the packed messages, then the small records. */
struct fbr_mux_queue {
    struct fbr_mux_queue *next;
    uint64_t stream;
    struct fbr_buf small; /* records that wait to be packed together */
    struct fbr_piece *first, **last;
    size_t queued; /* bytes */
    /* this many messages of the first queue go before: they have earlier records of the stream, or
     * records of stream 0 */
    uint64_t after;
};

struct fbr_mux_out {
    uint64_t link;
    struct fbr_aead seal;
    bool sealed;
    uint32_t seq; /* number of the last message taken */
    /* The first queue holds stream 0 and the small records of all other streams. The queues behind
     * it, which take turns, each belong to a stream with an incomplete long record, and hold all
     * records that the stream adds from then on. */
    struct fbr_mux_queue queues;
    bool own_turn;          /* the turn of the streams' queues; flips with each message */
    uint64_t packed, taken; /* messages of the first queue */
    uint64_t own;           /* how many of them have all records of stream 0 */
    size_t queued;          /* bytes of all queues */
};

int fbr_mux_out_init(struct fbr_mux_out *l, uint64_t link, const uint8_t *key,
                     enum fbr_aead_alg alg);
void fbr_mux_out_fini(struct fbr_mux_out *l);
/* These add one record, copied from n parts. */
int fbr_mux_add(struct fbr_mux_out *l, const struct iovec *iov, int n);
int fbr_mux_add_to(struct fbr_mux_out *l, uint64_t stream, const struct iovec *iov, int n);
static inline bool fbr_mux_empty(const struct fbr_mux_out *l)
{
    return l->queued == 0;
}
/* Whether this stream should wait before it adds more: more than `most` bytes of its long records,
 * or of the short records of all streams, are queued. */
bool fbr_mux_crowded(const struct fbr_mux_out *l, uint64_t stream, size_t most);
/* Takes the next message to send, numbered, with `ack` in it; fbr_sock sends or frees it. If no
 * records wait, the message has no records. */
int fbr_mux_take(struct fbr_mux_out *l, uint32_t ack, void **msg, size_t *len);

/* Memory for a long record, kept for the next one because its pages are present already. All mux
 * objects of one thread share it. */
struct fbr_spare {
    uint8_t *data;
    size_t cap;
};

struct fbr_mux_in {
    uint64_t link;
    struct fbr_aead seal;
    bool sealed;
    bool repeats;               /* the first message may come again, as long as no other came */
    uint32_t seq;               /* number of the last message that was opened */
    uint64_t stream;            /* stream of the record that is passed on */
    struct fbr_mux_part *parts; /* incomplete long records, at most one per stream */
    size_t n_parts;
    struct fbr_spare *spare; /* may be NULL */
    size_t limit;            /* longest record accepted */
    struct fbr_held *held;   /* counts the bytes of incomplete long records; may be NULL */
    /* highest stream that may have long records; 0, the initial value: none */
    uint64_t streams;
    /* Whether a stream is open; long records of other streams are skipped. NULL: all streams are
     * open. */
    bool (*is_open)(void *user, uint64_t stream);
    void *user;
    const char *fault; /* what is wrong with a refused message; NULL: the error code is enough */
};

int fbr_mux_in_init(struct fbr_mux_in *l, uint64_t link, const uint8_t *key, enum fbr_aead_alg alg,
                    size_t limit);
void fbr_mux_in_fini(struct fbr_mux_in *l);

/* Drops the incomplete records of streams that are now closed. */
void fbr_mux_forget(struct fbr_mux_in *l);

/* Reads the id of the link that a message claims to belong to. -EBADMSG: not a message. */
int fbr_mux_link(const void *msg, size_t len, uint64_t *link);

typedef void (*fbr_record_fn)(void *user, const void *record, size_t len);

/* Opens a message in place: authenticates it, checks that it is the next one, reports its ack, and
 * passes on the records that it completes (valid during the call). -EBADMSG: no message, forged or
 * damaged; -EPROTO: authentic but invalid; -EILSEQ: a message is missing; -EMSGSIZE: a record is
 * too long, or too many long records are incomplete; -ENOBUFS: the account `held` is full; -ENOMEM.
 * All of them end the link. on_ack is called before the records are passed on. */
int fbr_mux_open(struct fbr_mux_in *l, void *msg, size_t len,
                 void (*on_ack)(void *user, uint32_t ack, bool records), fbr_record_fn on_record,
                 void *user);
