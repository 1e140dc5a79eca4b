/* missing.c - ranks that never called MPI_Init, and ranks that wait for them in MPI_Init.
 *
 * All ranks of a job are one MPI_COMM_WORLD, and MPI_Init returns when all have called it. A rank
 * may end with code 0 and without MPI_Init if no rank uses MPI. A rank that fails before MPI_Init
 * may be lost to a ring that goes on without it. So if there is such a rank and another rank has
 * met its server, the launcher asks the agents, a few seconds later, whether a rank waits in
 * MPI_Init. That rank would wait for ever, so the ring fails. In the same way a rank waits in
 * MPI_Comm_spawn for the ranks that were spawned.
 *
 * Ranks with Open MPI meet their server by PMIx, and ranks with MPICH by PMI. If one rank waits
 * at the first, and another has come to the second, neither's MPI_Init can return.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <string.h>

#include "ring/ring_priv.h"

#define PATIENCE_MS 5000

enum { BY_PMI = 1, BY_PMIX = 2, BY_BOTH = 3 };

static void on_ask(void *arg)
{
    struct fiber_ring *r = arg;
    struct ring_job *j;
    struct fbr_buf b = {0};

    if (r->state != R_RUNNING)
        return;
    DL_FOREACH(r->jobs, j) {
        if ((!j->missing && !j->lonely && j->protocols != BY_BOTH) || j->over)
            continue;
        fbr_buf_clear(&b);
        fbr_put_u32(&b, j->job.info.id);
        fbr_ring_send_all(r, FBR_RING_WAITS, &b);
    }
    fbr_buf_fini(&b);
}

static void ask(struct fiber_ring *r)
{
    if (r->state == R_RUNNING && !fbr_timer_runs(&r->ask) &&
        fbr_timer_init(&r->ask, r->rt->loop, on_ask, r) == 0)
        fbr_timer_start(&r->ask, PATIENCE_MS, 0);
}

/* True if MPI_Init of the others cannot return without this rank. It can if the rank's agent is
 * idle. A failed rank counts only where the ring goes on. */
static bool is_missing(const struct ring_job *j, uint32_t rank)
{
    const struct ring_rank *k = &j->ranks[rank];

    return !j->refused && k->state == RANK_ENDED && !k->came &&
           !(k->flags & (FBR_RANK_MET | FBR_RANK_MPI)) && !fbr_ring_agent_of(j, rank)->idle &&
           (k->code == 0 || j->ring->options.on_failure >= FIBER_RING_SHRINK);
}

static bool waits_for_any(const struct ring_job *j)
{
    return j->missing && is_missing(j, j->missing - 1);
}

/* A rank of the job, which was spawned, is missing, and none has met a server yet. */
static void note_lonely(struct ring_job *j)
{
    struct ring_job *parent = fbr_ring_job_find(j->ring, j->job.info.parent);

    if (!parent || (parent->lonely && !parent->lonely->met))
        return;
    parent->lonely = j;
    ask(j->ring);
}

void fbr_ring_missing_ended(struct ring_job *j, uint32_t rank)
{
    if (!is_missing(j, rank) || waits_for_any(j))
        return;
    j->missing = rank + 1;
    if (j->met)
        ask(j->ring);
    else if (j->job.info.spawned)
        note_lonely(j);
}

/* The protocol by which its process has first met its server. */
static uint8_t protocol(const struct ring_rank *k)
{
    if (!(k->flags & FBR_RANK_MET))
        return 0;
    return !strncmp(k->how, "PMIx ", 5) ? BY_PMIX : !strncmp(k->how, "PMI ", 4) ? BY_PMI : 0;
}

void fbr_ring_missing_met(struct ring_job *j, uint32_t rank)
{
    j->ranks[rank].came = true;
    j->met = true;
    j->protocols |= protocol(&j->ranks[rank]);
    if (j->missing || j->protocols == BY_BOTH)
        ask(j->ring);
}

static void format_end(int code, char *out, size_t size)
{
    if (code < 0)
        snprintf(out, size, "was killed by signal %d", -code);
    else
        snprintf(out, size, "%s with code %d", code ? "exited" : "ended", code);
}

/* A rank that is missing fails the ring: `waits` waits for it in `where`. */
static void fail(struct ring_job *j, uint32_t waits, const char *where, const char *hint)
{
    uint32_t missing = j->missing - 1;
    int code = j->ranks[missing].code;
    char who[300], how[64];

    fbr_ring_name_rank(j, missing, who, sizeof(who));
    format_end(code, how, sizeof(how));
    fbr_ring_fail(j->ring, j, missing, code, hint,
                  "%s %s without MPI_Init, and rank %u waits for it %s forever", who, how, waits,
                  where);
}

/* True if the rank's job waits for one that it has spawned. */
static bool waits_for_spawned(const struct ring_job *j, const struct ring_rank *k)
{
    const struct fbr_bridge_ops *bridge = fbr_bridge_met(k->how);
    const struct ring_job *child = j->lonely;

    return child && !child->met && waits_for_any(child) && !(bridge && bridge->spawns_any) &&
           j->ranks[child->job.info.parent_rank].state == RANK_RUNNING;
}

/* The rank waits for one that has come by the other protocol. Returns true if it failed the
 * ring. */
static bool fail_mixture(struct ring_job *j, uint32_t rank)
{
    uint8_t mine = protocol(&j->ranks[rank]);
    uint32_t i = 0;
    char who[300];

    if (!mine)
        return false;
    while (i < j->job.info.size &&
           (j->ranks[i].state != RANK_RUNNING || protocol(&j->ranks[i]) != (BY_BOTH ^ mine)))
        i++;
    if (i == j->job.info.size)
        return false;
    fbr_ring_name_rank(j, rank, who, sizeof(who));
    fbr_ring_fail(
        j->ring, j, rank, 1,
        "All ranks of a run are one MPI_COMM_WORLD: use the same MPI in all programs, and "
        "on all hosts. Open MPI uses PMIx, MPICH uses PMI.",
        "%s has called MPI_Init by %s and rank %u by %s, and they wait for each other "
        "forever",
        who, mine == BY_PMI ? "PMI" : "PMIx", i, mine == BY_PMI ? "PMIx" : "PMI");
    return true;
}

void fbr_ring_missing_waits(struct ring_job *j, uint32_t rank)
{
    const struct ring_rank *k = &j->ranks[rank];

    if (k->state != RANK_RUNNING || !(k->flags & FBR_RANK_MET))
        return;
    if (fail_mixture(j, rank))
        return;
    if (waits_for_any(j))
        fail(j, rank, "there",
             j->ranks[j->missing - 1].code
                 ? "MPI_Init cannot go on without a rank that was lost before. Use --on-failure "
                   "restart to start all ranks again."
                 : "All ranks of a run are one MPI_COMM_WORLD: call MPI_Init in each rank or in "
                   "none. Start a program without MPI as a run of its own.");
    else if (waits_for_spawned(j, k))
        fail(j->lonely, j->lonely->job.info.parent_rank, "in MPI_Comm_spawn",
             "MPI_Comm_spawn returns when all ranks that it starts have called MPI_Init.");
}
