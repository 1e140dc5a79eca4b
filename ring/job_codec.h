/* job_codec.h - the description of a job as it travels to agents: who runs where, and what.
 *
 *     u32 id, str run, str nspace, u32 size, u32 nodes, (nodes + 1) x u32 first, nodes x (str host,
 *         u32 agent),
 *     u32 epoch, u32 restarts at most, u8 spawned, u32 parent job, u32 parent rank, str
 *         master host,
 *     u32 n programs, n x (u32 first rank of it, argv list, environment list, str workdir),
 *     u8 stdin, u8 pty, u32 reader, u16 rows, u16 columns, str TERM, u32 reader ms, 2 x u32
 *         show ms, bytes work,
 *     u32 n, n x (u32 rank, u32 how often it was started again)
 *
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef FBR_RING_JOB_H
#define FBR_RING_JOB_H

#include "mpi_bridge/bridge.h"
#include "runtime/base/buf.h"

struct fbr_app {
    uint32_t first; /* rank that runs it; the next program begins where this one ends */
    char **argv;    /* NULL-terminated; empty: our own program, with `work` */
    char **env;     /* NULL-terminated, to add */
    char *workdir;  /* "" : as ours */
};

void fbr_apps_free(struct fbr_app *programs, uint32_t n); /* NULL is fine */

struct fbr_ring_job {
    struct fbr_bridge_job
        /* what its pointers point to is owned by this struct; dir, local and node are not set */
        info;
    /* For each node, the first node on the same machine that may use the same processors; the node
     * itself when it has them alone. NULL: each has them alone. */
    uint32_t *machines;
    struct fbr_app *programs;
    uint32_t nprograms;
    bool has_stdin; /* rank `reader` reads what the launcher sends */
    bool pty;       /* and has a pseudo-terminal */
    uint32_t reader;
    uint16_t rows, columns; /* of that */
    char term[64];          /* what it is like (TERM); "": nobody knows */
    uint32_t reader_ms;     /* as show_ms, of a rank 0 that reads */
    /* of each stream: an unfinished line is shown when nothing follows it for so long */
    uint32_t show_ms[2];
    uint8_t *work; /* of ranks that run a function (entry.h) */
    size_t work_len;
    uint32_t *restarts; /* [size]: how often each was started again; NULL: none was */
};

void fbr_ring_job_put(const struct fbr_ring_job *j, struct fbr_buf *b);
/* Reads one; -EBADMSG or -ENOMEM, and then *j is empty. */
int fbr_ring_job_get(struct fbr_ring_job *j, struct fbr_cur *c);
void fbr_ring_job_fini(struct fbr_ring_job *j);
/* The ranks that share the processors of a node: how many, and how many of them come before its
 * own. 0 of none (-1). */
uint32_t fbr_ring_job_sharing(const struct fbr_ring_job *j, int32_t node, uint32_t *before);
uint32_t fbr_ring_job_restarts(const struct fbr_ring_job *j, uint32_t rank);
/* One more of that rank. */
int fbr_ring_job_restarted(struct fbr_ring_job *j, uint32_t rank);
const struct fbr_app *fbr_ring_job_program(const struct fbr_ring_job *j, uint32_t rank);

/* Lists of strings. */
void fbr_put_list(struct fbr_buf *b, char *const *list); /* NULL: an empty one */
char **fbr_get_list(struct fbr_cur *c);        /* NULL and a bad cursor when it is malformed */
char **fbr_list_copy(const char *const *list); /* NULL without memory; of NULL: an empty list */
void fbr_list_free(char **list);

#endif
