/* owner_priv.h - state of a channel in its process, under one lock: for owner.c (the channel and
 * its clients) and owner_local.c (puts and gets of this process).
 *
 * SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "runtime/base/ready.h"
#include "share/channel.h"
#include "share/direct.h"

/* The others no longer wait for a client that has not answered a recall for about this long. If a
 * client that works answers later, because many processes want its processor, its messages may come
 * back out of order. */
#define OVERDUE_MS 5000

/* Something that a client still gets, or has to send; or only that there is such a client. */
struct pending {
    struct pending *next, *prev;
    uint64_t peer;
    uint64_t number; /* of the batch, or of the client's newest JOIN; RECALL: when, in ms */
    uint32_t left;   /* messages of the batch that wait for room */
    bool answer;     /* the batch asks for an answer */
    int code;
};

/* A thread of this process that waits for room. */
struct local_put {
    struct local_put *next, *prev;
    uint64_t call;
    bool done;
    int code;
};

struct lane {
    struct fbr_owner *host;
    uint32_t number;
    struct fbr_queue_engine *engine;
    struct local_put *puts;
    /* Batches with messages that wait for room, and those after them that ask for an answer;
     * clients that were asked to return messages; clients that wait until all messages are
     * finished. */
    struct pending *parked, *recalled, *joiners;
    pthread_cond_t arrived, room, finished;
    struct fbr_ready ready; /* for the gets of this process */
    int watchers;           /* handles that have asked for it */
};

/* An end of a pipe lives until its last holder has gone. */
struct channel_end {
    bool awaits;             /* its address was exported, and no process has attached since */
    uint64_t exporter;       /* the peer that did so; 0: this process */
    bool ended;              /* no process holds it, and none will */
    int here;                /* handles of this process */
    struct pending *holders; /* other processes */
};

struct fbr_owner {
    struct fbr_object *object; /* until it is closed */
    uint64_t id;
    int refs; /* atomic */
    enum fbr_kind kind;
    size_t longest; /* bytes of a message, at most */
    int n_lanes;
    pthread_mutex_t lock; /* all below */
    struct lane lanes[2];
    struct channel_end ends[2];
    /* For a pipe: a stream between `near`, an end that no other process holds, and the one process
     * that holds the other end. */
    struct fbr_direct *direct;
    uint64_t direct_peer;
    int near;
    bool asked_back; /* the peer was asked for the messages that it had not read */
    bool streams;    /* messages of the peer come by the stream, after the next `before` messages */
    size_t before;
    /* until then messages that the peer has not read come back; 0: none do */
    uint64_t returns_by_ms;
    bool leaving;   /* its reader must leave the stream to fbr_owner_end_stream() */
    bool no_direct; /* a watcher exists */
    uint64_t next_call;
    bool closed; /* the object is closed, or will be soon */
    /* no thread of this process puts or gets any more: the channel is closed, or the program
     * ends */
    bool over;
};

/* All under the channel's lock, except the last one. */

/* Arranges a call of on_time, which looks after everything that waits in this lane. */
void fbr_owner_remind(struct lane *l);
/* The number of messages that a get, now or later, can take. */
size_t fbr_owner_count(const struct lane *l);
/* Whether the next message of this lane comes by the stream, or must be looked for there first. */
bool fbr_owner_by_stream(const struct lane *l);
/* Another process has an end as well: messages that the first process has not read come back, for
 * the processes that ask. */
void fbr_owner_second_holder(struct fbr_owner *h);
/* Turns the content of the stream to this end into messages like others, because another process is
 * about to read there, or a thread watches (`for_ever`: the end gets no other stream). -ENOMEM: the
 * rest of the messages stays in the stream. Without the lock, any thread. */
int fbr_owner_end_stream(struct fbr_owner *h, int end, bool for_ever);
