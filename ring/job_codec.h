/* job_codec.h - the description of a job that is sent to agents: which ranks run where, and which
 * programs they run. docs/wire.md has its bytes.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "mpi_bridge/bridge.h"
#include "runtime/base/buf.h"

struct fbr_app {
    uint32_t first; /* first rank that runs it; it ends before the next program's first */
    char **argv;    /* NULL-terminated; empty: our own program, with `work` */
    char **env;     /* NULL-terminated, added to the rank's environment */
    char *workdir;  /* "": the agent's */
};

void fbr_apps_free(struct fbr_app *programs, uint32_t n); /* NULL is fine */
/* Reads u32 n and the programs of `size` ranks, at least one rank each. NULL: the cursor is bad. */
struct fbr_app *fbr_apps_get(struct fbr_cur *c, uint32_t size, uint32_t *n);

struct fbr_ring_job {
    /* The struct owns what the pointers of `info` point to. Only the agent sets dir, local and
     * node. */
    struct fbr_bridge_job info;
    /* For each node, the first node on the same machine that may use the same processors; the
     * node itself if no node before it does. */
    uint32_t *machines;
    struct fbr_app *programs;
    uint32_t nprograms;
    bool has_stdin; /* rank `reader` reads what the launcher sends */
    bool pty;       /* and has a pseudo-terminal */
    uint32_t reader;
    uint16_t rows, columns; /* size of the pseudo-terminal */
    char term[64];          /* its type (TERM); "": not known */
    uint32_t reader_ms;     /* as show_ms, for rank `reader`, if it is less */
    /* for each stream: an unfinished line is shown if nothing follows it for this time */
    uint32_t show_ms[2];
    char last_failure[512]; /* why all ranks were started again; "": they were not */
    uint8_t *work;          /* start record of ranks that run a function (entry.h) */
    size_t work_len;
    uint32_t *restarts; /* [size]: number of restarts of each rank; NULL: none */
};

void fbr_ring_job_put(const struct fbr_ring_job *j, struct fbr_buf *b);
/* Reads a description. Returns 0, or -EBADMSG or -ENOMEM with *j empty. */
int fbr_ring_job_get(struct fbr_ring_job *j, struct fbr_cur *c);
void fbr_ring_job_fini(struct fbr_ring_job *j);
/* Returns the number of ranks that share the processors of `node`, and in *before how many of
 * them come before the node's own. node -1: 0. */
uint32_t fbr_ring_job_sharing(const struct fbr_ring_job *j, int32_t node, uint32_t *before);
uint32_t fbr_ring_job_restarts(const struct fbr_ring_job *j, uint32_t rank);
/* Counts one more restart of the rank. Returns 0 or -ENOMEM. */
int fbr_ring_job_restarted(struct fbr_ring_job *j, uint32_t rank);
const struct fbr_app *fbr_ring_job_program(const struct fbr_ring_job *j, uint32_t rank);
