/* share_priv.h - what object_server.c, object_client.c, client.c and rpc.c keep for a process.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef FBR_SHARE_PRIV_H
#define FBR_SHARE_PRIV_H

#include "share/share.h"

struct fbr_client;
struct fbr_object;
struct fbr_object_client;
struct fbr_rpc;
struct peer;

struct fbr_share {
    struct fbr_runtime *rt;
    pthread_mutex_t lock; /* all below */
    pthread_cond_t idle;  /* a callback returned; a remote changed */
    struct fbr_object *objects;
    uint64_t next_object;
    bool reminding;         /* the clock is set, or will be */
    struct fbr_timer clock; /* of reminders; the loop thread's */
    struct peer *peers;
    uint64_t next_peer;
    struct fbr_object_client *remotes;
    struct fbr_client *clients;
    struct fbr_rpc *rpcs;
    uint64_t next_call; /* of an rpc */
    int closing;        /* threads that close what a process has held; see pipe.c */
    /* fiber_fini() was here: nobody comes in or goes out any more, and the loop may be gone. */
    bool ended;
};

extern const struct fbr_hold_ops fbr_pipe_holds; /* pipe.c */

/* The process's, opened when first asked for; NULL: kept. */
struct fbr_share *fbr_share(void);
void fbr_object_client_close_all(struct fbr_share *s);

#endif
