/* pmi1_priv.h - within the PMI server: the state that PMI-1 (pmi1_engine.c) and PMI-2
 * (pmi2_engine.c) share.
 *
 * A connection speaks PMI-1 until its first request asks for version 2. The ranks of one job have
 * one key space and one barrier whichever they speak.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef FBR_PMI1_PRIV_H
#define FBR_PMI1_PRIV_H

#define HASH_NONFATAL_OOM 1 /* an entry that could not be added has hh.tbl NULL */
#include <uthash.h>

#include "mpi_bridge/pmi1_engine.h"
#include "mpi_bridge/pmi1_spawn.h"
#include "runtime/base/buf.h"

#define FBR_PMI2_KEY_MAX 65 /* with their NUL: what PMI-2 allows, one more than PMI-1 each */
#define FBR_PMI2_VALUE_MAX 1025

struct fbr_pmi1_entry {
    UT_hash_handle hh;
    char *value;
    char key[];
};

/* The event that a rank waits for. */
enum fbr_pmi1_wait {
    FBR_PMI1_NOTHING,
    FBR_PMI1_BARRIER,
    FBR_PMI1_PUBLISH,
    FBR_PMI1_LOOKUP,
    FBR_PMI1_UNPUBLISH,
    FBR_PMI1_SPAWN,
    FBR_PMI1_NODE_ATTR, /* of PMI-2: a neighbour has to put it */
    FBR_PMI1_RING       /* of PMI-2: a barrier that tells what the neighbours gave */
};

struct fbr_pmi1_slot {
    struct fbr_pmi1_conn *conn; /* that speaks for the rank */
    bool taken;                 /* has ever been: it can not be taken again */
    enum fbr_pmi1_wait wait;
    bool left;
    uint32_t app; /* which of the programs that were spawned together it runs */
    char *attr;   /* that NODE_ATTR waits for */
};

struct fbr_pmi1_conn {
    struct fbr_pmi1 *e;
    void *link;
    int64_t rank;   /* -1: not known yet */
    bool speaks;    /* for its rank, slot->conn is this one */
    bool dead;      /* hung up within a call; freed at the end of it */
    bool aborted;   /* what else it says is not heard */
    bool reading;   /* within fbr_pmi1_bytes or what comes after an answer */
    int version;    /* of PMI: 1, or 2 after the first request */
    char thrid[32]; /* of PMI-2's request that is being answered, "" without */
    struct fbr_buf in;
    size_t at;                    /* what of it has been read, within fbr_pmi1_bytes */
    struct fbr_pmi1_spawn *spawn; /* being read */
    struct fbr_pmi1_conn *prev, *next;
};

struct fbr_pmi1 {
    const struct fbr_pmi1_ops *ops;
    void *user;
    struct fbr_pmi1_config config;
    char nspace[FBR_PMI1_NAME_MAX], parent[FBR_PMI1_NAME_MAX];
    struct fbr_pmi1_entry *store;
    struct fbr_pmi1_entry *attrs; /* of the node, PMI-2 */
    size_t store_size;            /* of both */
    struct fbr_buf puts;          /* since the last barrier: key, value, ... */
    uint32_t in_barrier;
    bool broken; /* a rank of the job has died: no barrier can end */
    bool resuming, resume_again;
    struct fbr_pmi1_slot *slots; /* [count] */
    struct fbr_pmi1_conn *conns;
};

struct fbr_pmi1_slot *fbr_pmi1_slot(struct fbr_pmi1 *e, int64_t rank);
/* The first connection that speaks for a rank is the rank; hangs up on others. */
bool fbr_pmi1_speak_for(struct fbr_pmi1_conn *c);
void fbr_pmi1_hang_up(struct fbr_pmi1_conn *c, const char *why);

/* NULL: there is none. */
const char *fbr_pmi1_find(struct fbr_pmi1_entry *table, const char *key);
int fbr_pmi1_table_set(struct fbr_pmi1 *e, struct fbr_pmi1_entry **table, const char *key,
                       const char *value);
/* Into the store, and to the other agents with the next barrier. */
int fbr_pmi1_put(struct fbr_pmi1 *e, const char *key, const char *value);
/* The rank waits for all: `wait` says how it is told. */
void fbr_pmi1_enter(struct fbr_pmi1_conn *c, enum fbr_pmi1_wait wait);

/* Some ranks do not wait any more: reads what their clients of PMI-2, which may have threads, have
 * asked meanwhile. */
void fbr_pmi1_resume(struct fbr_pmi1 *e);

/* ---- of PMI-2 ---- */

/* Serves the next message, if all of it has come and the rank does not wait: 1, else 0. Hangs up on
 * nonsense. */
int fbr_pmi2_read(struct fbr_pmi1_conn *c);
/* Answers what the connection has waited for; `text` is a port, or a job's name. */
void fbr_pmi2_done(struct fbr_pmi1_conn *c, enum fbr_pmi1_wait what, int code, const char *text);

#endif
