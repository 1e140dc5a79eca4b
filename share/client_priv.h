/* client_priv.h - what client.c (life), client_put.c and client_get.c share: one lock, two lanes.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef FBR_CLIENT_PRIV_H
#define FBR_CLIENT_PRIV_H

#define HASH_NONFATAL_OOM 1
#include <uthash.h>

#include "runtime/base/ready.h"
#include "share/channel.h"
#include "share/direct.h"
#include "share/share_priv.h"

#define FBR_CLIENT_UNDER_WAY 64 /* batches */

struct client_message {
    struct client_message *next;
    uint64_t seq;
    size_t len;
    void *data;
};

/* A thread that waits for the answer to its batch, in a bounded queue. */
struct put_wait {
    struct put_wait *next;
    uint64_t batch;
    bool done;
    int code;
};

/* A thread that waits for the answer to a DONE or a JOIN. */
struct call_wait {
    struct call_wait *next;
    enum fbr_channel_op answer;
    uint64_t call;
    bool done;
    int code;
};

struct client_lane {
    struct fbr_client *client;
    uint32_t number;
    int putters;        /* handles that put here; for a pipe, that are this end */
    bool leaving, left; /* the last of them goes; the host has let go of it */
    /* Putting. */
    struct fbr_buf out; /* messages that are not sent */
    uint32_t out_count;
    uint64_t sent, asked, acked; /* batches; the last one that will be answered */
    size_t unacked;              /* bytes that are not acknowledged */
    size_t unasked;              /* those of them behind the last answer that was asked for */
    size_t sizes[FBR_CLIENT_UNDER_WAY]; /* of batches under way, by number */
    uint64_t sent_ns;
    struct put_wait *waits;
    int put_code; /* why no more can be put */
    pthread_cond_t room;
    /* Getting. */
    struct client_message *first, **last;
    size_t n_in;              /* messages that are here */
    uint64_t last_seq, taken; /* delivered; taken by the program, or handed */
    uint32_t hungry, looking; /* threads that wait; those of them that will take nothing */
    /* The first of the messages here: they count as taken, as somebody woke up for them. */
    uint32_t handed;
    uint32_t want;
    struct {
        uint64_t taken;
        uint32_t hungry, want;
    } told; /* what the host knows */
    uint64_t asked_ns, mean_len;
    bool ahead; /* it gives us messages before we say that we are hungry */
    uint64_t probe, answered;
    bool uncertain;  /* what is here may have been given to others: see fbr_client_note_time() */
    uint64_t assure; /* the probe whose answer ends the doubt, once it was sent */
    bool eof;
    int get_code; /* why no more can be had */
    pthread_cond_t arrived;
    /* Watching. */
    struct fbr_ready ready;
    bool watching, there; /* the host tells us; it said that there is something */
    /* Asking. */
    struct call_wait *calls;
    uint64_t last_call;
    bool have_size;
    uint64_t size;
};

struct client_key {
    uint64_t owner, object;
    uint8_t secret[FBR_KEY_SIZE]; /* who has a wrong one joins nobody who had the right one */
};

enum fbr_client_state { FBR_CLIENT_OPENING, FBR_CLIENT_OPEN, FBR_CLIENT_CLOSING };

struct fbr_client {
    struct client_key key;
    struct fbr_share *share;
    enum fbr_client_state state; /* these under share's lock */
    int users;
    bool listed;
    UT_hash_handle hh;
    struct fbr_proxy *proxy;
    int n_lanes;
    bool pipe, bounded;
    size_t longest;       /* message */
    pthread_mutex_t lock; /* the lanes, and: */
    bool gone;
    bool later;                /* a tick will come */
    uint64_t seen_ms, sure_ms; /* when somebody last looked; so long nobody may look */
    /* For a pipe on this host: a stream of its own to the host, client_direct.c. */
    char beside[FBR_URL_MAX]; /* the path of a socket of the host; "" none */
    struct fbr_direct *direct;
    int near;   /* our end */
    bool asked; /* and not answered */
    bool streams_in, streams_out;
    bool leaving;    /* its reader leaves it to fbr_client_end_stream() */
    bool no_direct;  /* somebody watches */
    bool unanswered; /* what was got last has had no answer */
    bool answers;    /* to each message that is got, one is put */
    uint32_t used, next,
        step; /* messages; when to ask for a stream again, and how much later then */
    struct client_message *spilled; /* the rest of a stream, before all that comes another way */
    struct client_lane lanes[2];
};

/* All under the client's lock, but for the calls of channel.h. */

/* client.c */
int fbr_client_post(struct client_lane *l, enum fbr_channel_op op, const void *body, size_t len,
                    bool more);
/* A record, behind what else there is to say. */
int fbr_client_notify(struct client_lane *l, enum fbr_channel_op op, const void *body, size_t len);

/* client_put.c */
void fbr_client_on_ack(struct client_lane *l, struct fbr_cur *c);
/* Why nothing can be put, or 0. */
int fbr_client_put_fault(const struct client_lane *l);
int fbr_client_flush_out(struct client_lane *l, bool answer);
int fbr_client_flush_lane(struct client_lane *l, uint64_t deadline);

/* client_direct.c */

/* Asks for a stream, if that is worth while. This lane brings us messages, and none is here. */
void fbr_client_ask_stream(struct client_lane *l);
void fbr_client_on_direct(struct client_lane *l, struct fbr_cur *c);
/* Whether this lane is read, or written, by the stream. */
bool fbr_client_reads_stream(const struct client_lane *l);
bool fbr_client_writes_stream(const struct client_lane *l);
/* Without the lock. -ESTALE: look again. */
int fbr_client_get_direct(struct client_lane *l, struct fbr_direct *d, struct fiber_bytes *out,
                          uint64_t deadline);
/* Nothing more comes by the stream: what is in it is in `spilled`. Without the lock. */
void fbr_client_end_stream(struct fbr_client *g);
/* The same, and what is in it goes back to the host. */
void fbr_client_return_stream(struct fbr_client *g);
/* The first of `spilled`; NULL: there is none. */
struct client_message *fbr_client_unspill(struct fbr_client *g);
void fbr_client_drop_stream(struct fbr_client *g);

/* client_get.c */
void fbr_client_begin_get(struct client_lane *l); /* nothing was delivered yet; also: begin again */
void fbr_client_drop(struct client_lane *l, size_t n); /* what is here but the first n */
void fbr_client_on_deliver(struct client_lane *l, struct fbr_cur *c);
void fbr_client_on_recall(struct client_lane *l);
void fbr_client_on_ready(struct client_lane *l, struct fbr_cur *c);
/* Shows the current state to watchers. */
void fbr_client_show(struct client_lane *l);
void fbr_client_on_empty(struct client_lane *l, struct fbr_cur *c);
/* Says what was taken and who is hungry, where the host does not know it yet. */
void fbr_client_notify_news(struct fbr_client *g, bool more);
/* By a thread that begins to look at what is here. When nobody did for too long, this process may
 * have been stopped, and the host may have given it up and its messages to others: what is here is
 * in doubt until the host has answered a probe. */
void fbr_client_note_time(struct fbr_client *g);

#endif
