/* pmi1_engine.h - a server of PMI-1 and PMI-2 for the ranks that one agent has of one job.
 *
 * Pure: bytes of connections in, bytes and events out through callbacks; no descriptors, no clock.
 * The first line of a client chooses the version:
 * - PMI 1.1 as MPICH's src/pmi and Hydra speak it. RFC 13 of flux-framework/rfc describes it: lines
 *   of "key=value" words, one request and one answer at a time.
 * - PMI 2.0 as Slurm's libpmi2 and MPICH speak it (pmi2_engine.c): after that line, messages with
 *   their length before them.
 *
 * A rank's neighbours can read its puts at once, and all ranks can after the next barrier: the
 * fence carries only the puts since the last barrier. A rank is taken once, by the first connection
 * that speaks for it.
 *
 * The callbacks may not call the engine.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "mpi_bridge/bridge.h"
#include "mpi_bridge/pmi1_spawn.h"

#define FBR_PMI1_NAME_MAX 256         /* with their NUL, as get_maxes reports them */
#define FBR_PMI1_LINE_MAX 16384       /* bytes of a request */
#define FBR_PMI1_STORE_MAX (1u << 30) /* bytes of all keys and values */

struct fbr_pmi1;
struct fbr_pmi1_conn;

struct fbr_pmi1_config {
    const char *nspace; /* name of the ranks' key space; stays valid */
    /* the same of the job whose rank has spawned this one; NULL: none; copied */
    const char *parent;
    uint32_t size;         /* of the job */
    uint32_t first, count; /* our ranks: the first, and how many */
    bool alone;            /* no other agent has ranks of it: no fence is needed */
    /* [count]: our ranks, whose application numbers are copied; NULL: all have number 0 */
    const struct fbr_bridge_rank *local;
};

/* The event that a rank waits for. */
enum fbr_pmi1_wait {
    FBR_PMI1_NOTHING,
    FBR_PMI1_BARRIER,
    FBR_PMI1_PUBLISH,
    FBR_PMI1_LOOKUP,
    FBR_PMI1_UNPUBLISH,
    FBR_PMI1_SPAWN,
    FBR_PMI1_NODE_ATTR, /* PMI-2: a neighbour has to put the attribute */
    FBR_PMI1_RING       /* PMI-2: a barrier whose answer has the texts of the neighbours */
};

struct fbr_pmi1_ops {
    void (*send)(void *user, void *link, const void *data, size_t len);
    /* The connection broke the rules; `why` says how. The engine has forgotten it. */
    void (*hang_up)(void *user, void *link, const char *why);
    void (*met)(void *user, uint32_t rank, const char *how); /* "PMI 1.1" or "PMI 2.0" */
    void (*left)(void *user, uint32_t rank);
    void (*abort)(void *user, uint32_t rank, int code, const char *text);
    /* All local ranks wait. The owner calls fbr_pmi1_fenced() later, unless this fails. */
    int (*fence)(void *user, const void *puts, size_t len);
    /* PUBLISH (with a port), LOOKUP or UNPUBLISH. The owner calls fbr_pmi1_answer() for the rank
     * later, unless this fails; likewise for spawn. */
    int (*name)(void *user, uint32_t rank, enum fbr_pmi1_wait what, const char *name,
                const char *port);
    /* `preput` are "key=value" lines for the new job's store, see fbr_pmi1_preput(). */
    int (*spawn)(void *user, uint32_t rank, const struct fbr_bridge_app *apps, size_t napps,
                 const char *preput);
};

/* NULL without memory. */
struct fbr_pmi1 *fbr_pmi1_open(const struct fbr_pmi1_ops *ops, void *user,
                               const struct fbr_pmi1_config *config);
void fbr_pmi1_close(struct fbr_pmi1 *e); /* NULL is fine; frees the connections too */

/* Puts a pair that every rank finds in the store. */
int fbr_pmi1_set(struct fbr_pmi1 *e, const char *key, const char *value);
/* The same for each line "key=value", of the length that PMI-2 allows. -EINVAL: a line is
 * malformed. */
int fbr_pmi1_preput(struct fbr_pmi1 *e, const char *lines);

/* Adds a connection that belongs to `rank`, or (-1) that must name its rank first, by initack.
 * Returns NULL without memory. */
struct fbr_pmi1_conn *fbr_pmi1_attach(struct fbr_pmi1 *e, void *link, int64_t rank);
void fbr_pmi1_bytes(struct fbr_pmi1_conn *conn, const void *data, size_t len); /* may hang up */
void fbr_pmi1_detach(struct fbr_pmi1_conn *conn); /* the link is gone */

/* Takes the result of fence(): 0 and, for each agent, u32 agent, u32 length, its puts; or a
 * negative errno. */
void fbr_pmi1_fenced(struct fbr_pmi1 *e, int code, const void *data, size_t len);
/* A rank of the job has died, here or elsewhere, and the others go on: from now on barriers fail,
 * and so do waits for an attribute, which that rank may have had to put. */
void fbr_pmi1_lost(struct fbr_pmi1 *e);
/* Takes the result of publish, lookup (`text` is the port), unpublish or spawn (`text` is the
 * new job's nspace). Does nothing if the rank does not wait any more. */
void fbr_pmi1_answer(struct fbr_pmi1 *e, uint32_t rank, int code, const char *text);

/* Writes the value of PMI_process_mapping: which ranks share a node, as blocks of (first node,
 * nodes, ranks per node). Nodes in a row with equally many ranks are one block. If the value
 * does not fit, writes an empty text, which means "unknown". */
void fbr_pmi1_mapping(char out[FBR_PMI1_VALUE_MAX], const uint32_t *first, uint32_t nodes);
