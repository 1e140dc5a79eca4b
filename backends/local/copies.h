/* copies.h - a template: a process of this host that has loaded the program, and from which jobs
 * are copied.
 *
 * An interpreter takes longer to start than to copy. From the fourth similar job on, the local
 * backend starts the command of fiber_template() once, which calls fiber_template_serve(), and
 * orders copies from it. A copy is a child of ours like any other (CLONE_PARENT). A template that
 * is killed or frozen harms no job: jobs that wait for a copy are then started in the same way as
 * the first three.
 *
 * The backend and the template exchange packets on a socket, one order at a time:
 *
 *     template -> backend   HELLO: it has loaded everything
 *     backend -> template   the variables FIBER_* of the copy, and descriptors: its standard output
 *                           and error, its ticket, its working directory, its gate
 *     template -> backend   i32 pid, and a pidfd
 *     backend -> the copy   by the gate: GO. If the gate is closed instead, the copy is not needed,
 *                           and ends
 *
 * A copy inherits everything else from the template. So a template is used only while this process
 * equals the template in all that a job inherits: environment, limits, identity, processors. A
 * template that no longer fits is replaced after three jobs.
 *
 * Loop thread.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>
#include <sys/types.h>

#include "runtime/net/loop.h"
#include "runtime/proc/backend.h"

/* The template's descriptor of the socket. */
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

/* A job that waits for its copy; the first member of the caller's struct. The caller owns the
 * descriptors. */
struct fbr_copies_order {
    struct fbr_copies_order *next, *prev;
    char *const *env;
    /* Its turn has come: fills in its descriptors, except the gate. Negative: it cannot, and is
     * started in the other way. */
    int (*turn)(struct fbr_copies_order *o);
    int fds[FBR_COPIES_FDS];
    /* The copy exists, and runs on when this callback returns: its pid, and a pidfd that the
     * callback owns. pid 0: there is no copy; start the job in the other way. */
    void (*done)(struct fbr_copies_order *o, pid_t pid, int pidfd);
};

struct fbr_copies;

int fbr_copies_open(struct fbr_copies **t, struct fbr_loop *loop);
/* Whether the job becomes a copy. Call exactly once for each job that could be a copy, because the
 * function counts. */
bool fbr_copies_takes(struct fbr_copies *t, const struct fbr_job *job);
void fbr_copies_order(struct fbr_copies *t, struct fbr_copies_order *o);
/* Ends the template. Waiting orders are dropped. */
void fbr_copies_close(struct fbr_copies *t);

/* Both sides: send and receive a packet with n descriptors. Send: 0 or negative. Receive: the
 * packet's length; 0: there is no such packet. */
int fbr_copies_send(int sock, const void *data, size_t len, const int *fds, size_t n);
size_t fbr_copies_receive(int sock, void *data, size_t size, int *fds, size_t n, int flags);
