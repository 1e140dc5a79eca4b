/* share_priv.h - the state of shared objects in a process: for object_server.c, object_client.c,
 * shared_proxy.c and rpc.c.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "share/share.h"

struct fbr_object;
struct fbr_object_client;
struct fbr_shared_proxy;
struct peer;

struct fbr_share {
    struct fbr_runtime *rt;
    pthread_mutex_t lock; /* all below */
    pthread_cond_t idle;  /* signals: a callback returned, or a connection changed */
    struct fbr_object *objects;
    uint64_t next_object;
    bool reminding;         /* the clock runs, or will soon */
    struct fbr_timer clock; /* for reminders; loop thread */
    struct peer *peers;
    struct fbr_post hang_up; /* disconnects peers that were cut off */
    uint64_t next_peer;      /* peers begin at 1; 0: the owner's process */
    struct fbr_object_client *remotes;
    struct fbr_shared_proxy *proxies; /* of queues, pipes and services in use */
    uint64_t next_call;               /* number of the last call of an rpc */
    /* threads that close pipe ends which this process held for a child; see pipe.c */
    int closing;
    /* fiber_fini() was called: no peer connects, no connection is made, and the loop may be
     * gone. */
    bool ended;
};

extern const struct fbr_hold_ops fbr_pipe_holds; /* pipe.c */

/* The share of this process; the first call opens it. NULL: the error is kept. */
struct fbr_share *fbr_share(void);
void fbr_object_client_close_all(struct fbr_share *s);
