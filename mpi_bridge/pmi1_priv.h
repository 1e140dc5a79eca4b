/* pmi1_priv.h - the state of the PMI server that PMI-1 (pmi1_engine.c) and PMI-2 (pmi2_engine.c)
 * share.
 *
 * A connection speaks PMI-1 until its first request asks for version 2. The ranks of a job have one
 * key space and one barrier, whichever version they speak.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#pragma once

#define HASH_NONFATAL_OOM 1 /* an entry that could not be added has hh.tbl NULL */
#include <uthash.h>

#include "mpi_bridge/pmi1_engine.h"
#include "mpi_bridge/pmi1_spawn.h"
#include "runtime/base/buf.h"

struct fbr_pmi1_entry {
    UT_hash_handle hh;
    char *value;
    bool fresh; /* put by a rank of ours since the last fence */
    char key[];
};

struct fbr_pmi1_slot {
    struct fbr_pmi1_conn *conn; /* the connection that speaks for the rank */
    bool taken;                 /* a connection has spoken for it: no other can */
    enum fbr_pmi1_wait wait;
    bool left;
    uint32_t app; /* which of the programs that were spawned together it runs */
    char *attr;   /* the attribute that NODE_ATTR waits for */
};

struct fbr_pmi1_conn {
    struct fbr_pmi1 *e;
    void *link;
    int64_t rank;   /* -1: not known yet */
    bool speaks;    /* for its rank: slot->conn is this connection */
    bool dead;      /* hung up; freed when its bytes are read next, or with the engine */
    bool aborted;   /* its further requests are ignored */
    bool reading;   /* within fbr_pmi1_bytes() */
    int version;    /* of PMI: 1, or 2 after the first request */
    char thrid[32]; /* thrid of the PMI-2 request that is being answered; "": none */
    struct fbr_buf in;
    size_t at;                    /* bytes of `in` that have been read, within fbr_pmi1_bytes() */
    struct fbr_pmi1_spawn *spawn; /* the spawn that is being read */
    struct fbr_pmi1_conn *prev, *next;
};

struct fbr_pmi1 {
    const struct fbr_pmi1_ops *ops;
    void *user;
    struct fbr_pmi1_config config;
    char parent[FBR_PMI1_NAME_MAX]; /* copy of config.parent */
    struct fbr_pmi1_entry *store;
    struct fbr_pmi1_entry *attrs; /* attributes of the node, PMI-2 */
    size_t store_size;            /* of both tables */
    uint32_t in_barrier;
    bool broken; /* a rank of the job has died: nothing that others must do is waited for */
    bool resuming, resume_again;
    struct fbr_pmi1_slot *slots; /* [count] */
    struct fbr_pmi1_conn *conns;
};

struct fbr_pmi1_slot *fbr_pmi1_slot(struct fbr_pmi1 *e, int64_t rank);
/* The first connection that speaks for a rank is the rank. Hangs up on others and returns false. */
bool fbr_pmi1_speak_for(struct fbr_pmi1_conn *c);
void fbr_pmi1_hang_up(struct fbr_pmi1_conn *c, const char *why);

/* NULL: the key is not there. */
const char *fbr_pmi1_find(struct fbr_pmi1_entry *table, const char *key);
int fbr_pmi1_table_set(struct fbr_pmi1 *e, struct fbr_pmi1_entry **table, const char *key,
                       const char *value);
/* Puts a pair into the store, and so into the next fence for the other agents. */
int fbr_pmi1_put(struct fbr_pmi1 *e, const char *key, const char *value);
/* The rank waits for all ranks; `wait` chooses the answer that it gets. */
void fbr_pmi1_enter(struct fbr_pmi1_conn *c, enum fbr_pmi1_wait wait);
/* Names and ports are words: printable ASCII without blanks. NULL is none. */
bool fbr_pmi1_is_word(const char *text);
/* The rank waits for the answer about this name, or for its spawn. */
void fbr_pmi1_name(struct fbr_pmi1_conn *c, enum fbr_pmi1_wait what, const char *name,
                   const char *port);
void fbr_pmi1_start(struct fbr_pmi1_conn *c, const struct fbr_pmi1_spawn *s);
void fbr_pmi1_leave(struct fbr_pmi1_conn *c); /* the rank leaves its server */

/* Some ranks do not wait any more: reads the requests that their PMI-2 clients, which may have
 * threads, have sent meanwhile. */
void fbr_pmi1_resume(struct fbr_pmi1 *e);

/* ---- PMI-2 ---- */

/* Serves the next message and returns 1, if the message is whole and the rank does not wait;
 * else returns 0. Hangs up on malformed messages. */
int fbr_pmi2_read(struct fbr_pmi1_conn *c);
/* Answers the ranks that wait for this attribute of the node. Key NULL: those that wait for any,
 * which nobody may put any more. */
void fbr_pmi2_attribute(struct fbr_pmi1 *e, const char *key, const char *value);
/* Answers the request for which the connection has waited; `text` is a port, or a job's name. */
void fbr_pmi2_done(struct fbr_pmi1_conn *c, enum fbr_pmi1_wait what, int code, const char *text);
