/* run_control.h - the door of a run, a ring or a pool, in its launcher, for `fiber ps`, `logs`,
 * `kill`, `top` and `scale`.
 *
 * A unix socket in a directory that only this user can enter (registry.h); a caller that the kernel
 * says is somebody else (SO_PEERCRED) is hung up on. Requests and answers: run_control_wire.h. A
 * caller that reads too slowly loses lines, and is told how many; it holds up nothing.
 *
 * Everything here runs on the loop thread, also what it calls.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef FBR_RUN_CONTROL_H
#define FBR_RUN_CONTROL_H

#include "runtime/inspect/run_control_wire.h"
#include "runtime/inspect/registry.h"
#include "runtime/base/error.h"
#include "runtime/net/loop.h"

/* The run's side: calls that the socket makes on it. */
struct fbr_run_control_ops {
    void (*facts)(void *user, struct fbr_run_facts *facts);
    /* As fiber_ring_stats(); `out` is zeroed. */
    int (*stats)(void *user, struct fbr_run_rank *out, int max);
    void (*look)(void *user); /* as fbr_ring_look() */
    /* As fbr_ring_follow(), for all ranks: the door chooses. fn NULL: no more. NULL: it cannot be
     * followed. */
    void (*follow)(void *user,
                   void (*fn)(void *arg, int rank, int stream, const void *data, size_t len),
                   void *arg);
    int (*signal)(void *user, int rank, int signal); /* rank -1: all */
    int (*stop)(void *user);                         /* as fiber_ring_stop() */
    int (*scale)(void *user, int workers);           /* NULL: its size is fixed */
    /* Which process a visitor of that rank or worker is for (-1: of any, when one will do); NULL
     * and a sentence. */
    struct fiber_process *(*host)(void *user, int rank, struct fbr_error *err);
};

struct fbr_run_control;

/* Puts the run into the registry and listens. about->uid names it. Runs go on without a door when
 * this fails (a full disk, say): a warning is enough. */
int fbr_run_control_open(struct fbr_run_control **c, struct fbr_loop *loop,
                         const struct fbr_run_control_ops *ops, void *user,
                         const struct fbr_run_control_about *about, struct fbr_error *err);
/* The run has ended with this exit code and report (may be ""): those who follow are told. */
void fbr_run_control_ended(struct fbr_run_control *c, int code, const char *report);
/* Takes the run out of the registry; it is listed as ended. NULL is fine. */
void fbr_run_control_close(struct fbr_run_control *c);

#endif
