/* client_priv.h - the client of a channel that lives in another process, with its lanes under one
 * lock: for client.c (life), client_put.c, client_get.c and client_direct.c.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <time.h>

#include <utlist.h>

#include "runtime/base/ready.h"
#include "share/channel.h"
#include "share/direct.h"
#include "share/shared_proxy.h"

#define FBR_CLIENT_UNDER_WAY 64 /* batches */

struct client_message {
    struct client_message *next;
    uint64_t seq;
    size_t len;
    void *data;
};

/* A thread that waits for the answer to its call, or to its batch in a bounded queue. */
struct call_wait {
    struct call_wait *next;
    enum fbr_channel_op op; /* of the answer */
    uint64_t call;          /* ACK: the batch */
    bool done;
    int64_t result;
};

struct client_lane {
    struct fbr_client *client;
    uint32_t number;
    int putters;  /* handles that put here; for a pipe, handles on this end */
    bool leaving; /* the last handle closes */
    /* Putting. */
    struct fbr_buf out; /* messages that are not sent yet */
    uint32_t out_count;
    /* batches: sent; the last one for which an answer was asked; acknowledged */
    uint64_t sent, asked, acked;
    size_t unacked; /* bytes that are not acknowledged */
    /* of these, bytes sent after the last batch for which an answer was asked */
    size_t unasked;
    size_t sizes[FBR_CLIENT_UNDER_WAY]; /* of batches under way, by number */
    uint64_t sent_ns;
    int put_code;        /* the error of further puts, or 0 */
    pthread_cond_t room; /* for puts and calls; broadcasts only */
    /* Getting. */
    struct client_message *first, **last;
    size_t n_in;              /* messages that are here */
    uint64_t last_seq, taken; /* last delivered; last that the program took, or that is `handed` */
    uint32_t hungry, looking; /* threads that wait; of these, threads that will take nothing */
    /* How many of the first messages here count as taken, because a thread woke up for each. */
    uint32_t handed;
    uint32_t want;
    struct {
        uint64_t taken;
        uint32_t hungry, want;
    } told; /* the state that the owner knows */
    uint64_t asked_ns, mean_len;
    bool ahead; /* the owner sends messages before we report that we are hungry */
    uint64_t probe, answered;
    bool uncertain;  /* messages here may have been given to others: see fbr_client_note_time() */
    uint64_t assure; /* the probe whose answer ends the doubt; 0: not sent yet */
    bool eof;
    int get_code;           /* the error of further gets, or 0 */
    pthread_cond_t arrived; /* for gets alone: a signal wakes one of them for a message */
    /* Watching. */
    struct fbr_ready ready;
    bool watching, there; /* the owner reports READY; its last report was that there is a message */
    /* Asking. */
    struct call_wait *calls;
    uint64_t last_call;
};

struct fbr_client {
    struct fbr_shared_proxy shared;
    int n_lanes;
    bool pipe, bounded;
    size_t longest;       /* message */
    pthread_mutex_t lock; /* guards the lanes and all below */
    bool gone;
    bool later; /* a tick will come */
    /* when a thread last looked at the clock, by fbr_boot_ms(); for how long none may look without
     * doubt */
    uint64_t seen_ms, sure_ms;
    struct timespec tick; /* of the coarse clock, at that time */
    /* For a pipe on this machine: its own stream to the owner, client_direct.c. */
    char beside[FBR_URL_MAX]; /* path of a socket of the owner; "": none */
    struct fbr_direct *direct;
    int near;   /* our end */
    bool asked; /* a stream was asked for, and the answer has not come */
    bool streams_in, streams_out;
    bool leaving;    /* its reader must leave the stream to fbr_client_end_stream() */
    bool no_direct;  /* a watcher exists */
    bool unanswered; /* no put followed the last get */
    bool answers;    /* the program puts one message for each message that it gets */
    /* messages so far; at how many to ask for a stream again; how many more for the time after */
    uint32_t used, next, step;
    /* the rest of a stream, read before messages that come another way */
    struct client_message *spilled;
    struct client_lane lanes[2];
};

/* All under the client's lock, except the calls of channel.h. */

/* client.c */
int fbr_client_post(struct client_lane *l, enum fbr_channel_op op, const void *body, size_t len,
                    bool more);
/* Sends a record, after the news that the owner does not have yet. */
int fbr_client_notify(struct client_lane *l, enum fbr_channel_op op, const void *body, size_t len);
/* Lists a thread that waits for an answer. The thread takes itself off the list. */
void fbr_client_call_begin(struct client_lane *l, struct call_wait *w, enum fbr_channel_op op,
                           uint64_t call);
void fbr_client_call_answer(struct client_lane *l, enum fbr_channel_op op, uint64_t call,
                            int64_t result);

/* client_put.c */
void fbr_client_on_ack(struct client_lane *l, struct fbr_cur *c);
/* The error of a put, or 0. */
int fbr_client_put_fault(const struct client_lane *l);
int fbr_client_flush_out(struct client_lane *l, bool answer);
int fbr_client_flush_lane(struct client_lane *l, uint64_t deadline);

/* client_direct.c */

/* Asks for a stream, if one is worth while. This lane brings us messages, and none is here. */
void fbr_client_ask_stream(struct client_lane *l);
void fbr_client_on_direct(struct client_lane *l, struct fbr_cur *c);
/* Whether messages of this lane are read from the stream, or written to it. */
bool fbr_client_reads_stream(const struct client_lane *l);
bool fbr_client_writes_stream(const struct client_lane *l);
/* Without the lock. -ESTALE: the message may come another way now, look again. */
int fbr_client_get_direct(struct client_lane *l, struct fbr_direct *d, struct fiber_bytes *out,
                          uint64_t deadline);
/* Ends reading by the stream and moves the content of the stream to `spilled`. -ENOMEM: the rest is
 * read by the stream, after `spilled`. Without the lock. */
int fbr_client_end_stream(struct fbr_client *g);
/* The same, and sends the content back to the owner. */
void fbr_client_return_stream(struct fbr_client *g);
/* Removes and returns the first message of `spilled`; NULL: there is none. */
struct client_message *fbr_client_unspill(struct fbr_client *g);
void fbr_client_drop_stream(struct fbr_client *g);

/* client_get.c */
/* sets the state in which nothing was delivered; also to begin again */
void fbr_client_begin_get(struct client_lane *l);
/* drops the messages here, except the first n */
void fbr_client_drop(struct client_lane *l, size_t n);
void fbr_client_on_deliver(struct client_lane *l, struct fbr_cur *c);
void fbr_client_on_recall(struct client_lane *l);
void fbr_client_on_ready(struct client_lane *l, struct fbr_cur *c);
/* Shows the current state to watchers. */
void fbr_client_show(struct client_lane *l);
void fbr_client_on_empty(struct client_lane *l, struct fbr_cur *c);
/* Reports the messages taken and the threads that wait, in lanes where the owner does not know them
 * yet. */
void fbr_client_notify_news(struct fbr_client *g, bool more);
/* Called by a thread that begins to look at the messages here. If no thread did so for too long,
 * this process may have been stopped, and the owner may have given it up and given its messages to
 * others: the messages here are in doubt until the owner has answered a probe. */
void fbr_client_note_time(struct fbr_client *g);
