/* missing.c - ranks that never called MPI_Init, and ranks that wait for them in MPI_Init.
 *
 * All ranks of a job are one MPI_COMM_WORLD, and MPI_Init returns when all have called it. A rank
 * may end with code 0 and without MPI_Init if no rank uses MPI. So if there is such a rank and
 * another rank has met its server, the launcher asks the agents, a few seconds later, whether a
 * rank waits in MPI_Init. That rank would wait for ever, so the ring fails.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "ring/ring_priv.h"

#define PATIENCE_MS 5000

static void ask(struct fiber_ring *r)
{
    if (r->state == R_RUNNING && !fbr_timer_runs(&r->ask))
        fbr_timer_start(&r->ask, PATIENCE_MS, 0);
}

static void on_ask(void *arg)
{
    struct fiber_ring *r = arg;
    struct ring_job *j;
    struct fbr_buf b;

    if (r->state != R_RUNNING)
        return;
    fbr_buf_init(&b);
    DL_FOREACH(r->jobs, j) {
        if (!j->missing || j->over)
            continue;
        fbr_buf_clear(&b);
        fbr_put_u32(&b, j->job.info.id);
        fbr_ring_send_all(r, FBR_RING_WAITS, &b);
    }
    fbr_buf_fini(&b);
}

int fbr_ring_missing_init(struct fiber_ring *r)
{
    return fbr_timer_init(&r->ask, r->rt->loop, on_ask, r);
}

void fbr_ring_missing_fini(struct fiber_ring *r)
{
    fbr_timer_fini(&r->ask);
}

void fbr_ring_missing_ended(struct ring_job *j, uint32_t rank)
{
    const struct ring_rank *k = &j->ranks[rank];

    if (k->code != 0 || (k->flags & (FBR_RANK_MET | FBR_RANK_MPI)) || j->missing)
        return;
    j->missing = rank + 1;
    if (j->met)
        ask(j->ring);
}

void fbr_ring_missing_met(struct ring_job *j)
{
    j->met = true;
    if (j->missing)
        ask(j->ring);
}

void fbr_ring_missing_waits(struct ring_job *j, uint32_t rank)
{
    const struct ring_rank *k = &j->ranks[rank];
    uint32_t missing = j->missing - 1;
    char who[300];

    if (!j->missing || k->state != RANK_RUNNING || !(k->flags & FBR_RANK_MET))
        return;
    fbr_ring_name_rank(j, missing, who, sizeof(who));
    fbr_ring_fail(j->ring, j, missing, 1,
                  "All ranks of a run are one MPI_COMM_WORLD: call MPI_Init in each rank or in "
                  "none. Start a program without MPI as a run of its own.",
                  "%s ended with code 0 without MPI_Init, and rank %u waits for it there forever",
                  who, rank);
}
