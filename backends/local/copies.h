/* copies.h - a template: a process of this host that has loaded the program, and that jobs are
 * copies of.
 *
 * An interpreter takes longer to start than to copy. From the fourth alike job on, the local
 * backend starts the command of fiber_template() once, which calls fiber_template_serve(), and asks
 * it for copies. A copy is a child of ours like any other (CLONE_PARENT), and a template that is
 * killed or frozen takes nothing with it: jobs that wait for a copy are then started as the first
 * three were.
 *
 * We talk by a socket of packets, one order at a time:
 *
 *     template -> us   HELLO: it has loaded all
 *     us -> template   the variables FIBER_* of the copy, and descriptors: its standard output and
 *                      error, its ticket, its folder, its gate
 *     template -> us   i32 pid, and a pidfd
 *     us -> the copy   by the gate: GO. The end of the gate instead: it is not wanted, and ends
 *
 * Everything else of a copy is the template's, so a template serves only while this process is in
 * all that a job inherits just as it was when the template began: environment, limits, identity,
 * processors. One that does not fit any more is replaced after three jobs.
 *
 * Loop thread.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef FBR_LOCAL_COPIES_H
#define FBR_LOCAL_COPIES_H

#include <stdbool.h>
#include <sys/types.h>

#include "runtime/net/loop.h"
#include "runtime/proc/backend.h"

/* The descriptor of a template that leads to us. */
#define FBR_COPIES_FD 3
#define FBR_COPIES_HELLO 'H'
#define FBR_COPIES_GO 'G'
#define FBR_COPIES_MESSAGE 65536
enum {
    FBR_COPIES_OUT,
    FBR_COPIES_ERR,
    FBR_COPIES_TICKET,
    FBR_COPIES_FOLDER,
    FBR_COPIES_GATE,
    FBR_COPIES_FDS
};

/* A job that waits for its copy; a part of what it is about. The descriptors stay its owner's. */
struct fbr_copies_order {
    struct fbr_copies_order *next, *prev;
    char *const *env;
    /* It is its turn: fills in these descriptors. Negative: it cannot, and is started otherwise. */
    int (*turn)(struct fbr_copies_order *o);
    int out, err, ticket;
    int folder; /* where it works */
    /* The copy is there, and goes on once this returns: pid, and a pidfd that is the callee's. pid
     * 0: there is none, start it otherwise. */
    void (*done)(struct fbr_copies_order *o, pid_t pid, int pidfd);
};

struct fbr_copies;

int fbr_copies_open(struct fbr_copies **t, struct fbr_loop *loop, struct fbr_error *err);
/* Whether the job is to be a copy. To be asked once for each job that could be one: it counts. */
bool fbr_copies_takes(struct fbr_copies *t, const struct fbr_job *job);
void fbr_copies_order(struct fbr_copies *t, struct fbr_copies_order *o);
/* Ends the template. Orders that still wait are forgotten. */
void fbr_copies_close(struct fbr_copies *t);

#endif
