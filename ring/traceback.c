/* traceback.c - a hint for a Python program whose exception leaves its ranks waiting in MPI.
 *
 * mpi4py calls MPI_Finalize when an interpreter exits, also after an exception that the program
 * did not catch. That rank then waits in MPI_Finalize for the other ranks, and the other ranks
 * wait for its messages, for ever. A program may also print a traceback and go on, so this is a
 * hint and no failure. It is printed once, if no rank prints anything for a while after a
 * traceback.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "ring/ring_priv.h"

#define SILENCE_MS 10000

static void on_silence(void *arg)
{
    struct fiber_ring *r = arg;
    char name[300];

    if (r->state != R_RUNNING || r->traceback.rank->state != RANK_RUNNING)
        return;
    r->traceback.hinted = true;
    fbr_ring_name_rank(r->traceback.job, (uint32_t)(r->traceback.rank - r->traceback.job->ranks),
                       name, sizeof(name));
    fbr_ring_print(r,
                   "%s printed a traceback, and no rank has printed anything for %d s. If the "
                   "exception ended its program, it waits in MPI_Finalize for the other ranks. "
                   "Use `python3 -m mpi4py PROGRAM`: then an exception ends the run",
                   name, SILENCE_MS / 1000);
}

void fbr_ring_traceback_output(struct ring_job *j, uint32_t rank, int stream, const void *data,
                               size_t len)
{
    static const char header[] = "Traceback (most recent call last):";
    struct ring_traceback *t = &j->ring->traceback;

    if (!j->met || j->job.info.size == 1 || t->hinted)
        return;
    if (stream == 2 && memmem(data, len, header, strlen(header)) &&
        fbr_timer_init(&t->silence, j->ring->rt->loop, on_silence, j->ring) == 0) {
        t->job = j;
        t->rank = &j->ranks[rank];
        fbr_timer_start(&t->silence, SILENCE_MS, 0);
    } else if (len && fbr_timer_runs(&t->silence))
        fbr_timer_start(&t->silence, SILENCE_MS, 0);
}
