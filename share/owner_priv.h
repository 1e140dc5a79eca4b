/* owner_priv.h - what owner.c (the channel, and its clients) and owner_local.c (puts and gets of
 * this process) share: one lock.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef FBR_HOST_PRIV_H
#define FBR_HOST_PRIV_H

#include "runtime/base/ready.h"
#include "share/channel.h"
#include "share/direct.h"

/* A client that does not answer a recall for so long holds up the others no longer. One that is
 * well and answers later, because many want its processor, may bring messages back out of order. */
#define OVERDUE_MS 5000

/* A batch of a client of which some messages wait for room, or that asks for an answer behind one
 * of those. */
struct parked {
    struct parked *next, *prev;
    uint64_t peer, batch;
    uint32_t left;
    bool answer;
    int code;
};

/* A thread of ours that waits for room. */
struct local_put {
    struct local_put *next, *prev;
    uint64_t call;
    bool done;
    int code;
};

/* A client that was asked to return messages. */
struct recalled {
    struct recalled *next, *prev;
    uint64_t peer, since_ms;
};

/* A client that waits until all messages are finished; `call` is its last one. */
struct joiner {
    struct joiner *next, *prev;
    uint64_t peer, call;
};

struct lane {
    struct fbr_owner *host;
    uint32_t number;
    struct fbr_queue_engine *engine;
    struct parked *parked;
    struct local_put *puts;
    struct recalled *recalled;
    struct joiner *joiners;
    pthread_cond_t arrived, room, finished;
    struct fbr_ready ready; /* of our own gets */
};

/* An end of a pipe lives until its last holder has gone. */
struct channel_end {
    bool exported; /* its address was given away, */
    bool taken;    /* and somebody has attached to it */
    bool ended;    /* nobody holds it, and nobody will */
    int here;      /* handles of this process */
    uint64_t *peers;
    size_t n_peers;
};

struct fbr_owner {
    struct fbr_object *object; /* until it is closed */
    uint64_t id;
    int refs; /* atomic */
    enum fbr_kind kind;
    size_t longest;        /* message */
    struct fbr_held *held; /* what this process keeps for others */
    int n_lanes;
    pthread_mutex_t lock; /* all below */
    struct lane lanes[2];
    struct channel_end ends[2];
    /* For a pipe: a stream between `near`, an end that no other process holds, and a process that
     * alone has the other end. */
    struct fbr_direct *direct;
    uint64_t direct_peer;
    int near;
    bool streams; /* the stream has what the peer sends, behind the next `before` messages */
    size_t before;
    uint64_t returns_by_ms; /* until then what the peer has not read comes back; 0: nothing does */
    bool leaving;           /* its reader must leave it to end_stream_to() */
    bool no_direct;         /* somebody watches */
    uint64_t next_call;
    bool closed; /* it has no object any more, or soon */
    bool over;   /* nobody of ours puts or gets any more: closed, or the program ends */
};

/* All under the host's lock, but for the last one. */

/* Has on_time look after what waits here. */
void fbr_owner_remind(struct lane *l);
/* Nobody waits any more for clients that have not answered a recall. */
void fbr_owner_drop_recalls(struct lane *l);
/* Whether what comes next in this lane comes by the stream, or by the stream first. */
bool fbr_owner_by_stream(const struct lane *l);
/* Somebody else has an end as well: what the first one has not read comes back, for those who
 * ask. */
void fbr_owner_second_holder(struct fbr_owner *h);
/* The content of the stream to this end becomes messages like others: somebody else is to read
 * there, or watches (for_ever: it gets no other stream). Without the lock, any thread. */
void fbr_owner_end_stream(struct fbr_owner *h, int end, bool for_ever);

#endif
