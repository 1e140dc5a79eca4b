/* run_client.h - the client of a run's control socket (runtime/inspect/run_control.h): for ps,
 * logs, kill and top.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>

#include "fiber.h"
#include "runtime/inspect/run_control_wire.h"
#include "runtime/base/error.h"

enum run_client_state { CLIENT_RUNNING, CLIENT_SILENT, CLIENT_ENDED, CLIENT_LOST };

struct run_client {
    /* SILENT: the launcher does not answer (it is stopped, for instance) */
    enum run_client_state state;
    struct fbr_run_control_about about;
    struct fbr_run_facts facts;
    int code; /* exit code of a run that has ended */
    char report[1024];
    int fd; /* -1 if the run has ended, or accepts no more connections */
    struct fbr_buf got;
    bool exact;                 /* nothing behind the next answer may be read */
    int owed;                   /* requests whose DONE has not come; the answers come in order */
    bool ranks_owed;            /* the last of them is the request of run_client_ranks() */
    struct fbr_run_rank *ranks; /* result of run_client_ranks() */
    int nranks;
    struct fbr_run_rank *before; /* result of the answer before the last one */
    int nbefore;
    struct fbr_run_rank *coming; /* ranks of an answer that is incomplete */
    int ncoming;
};

#define CLIENT_PATIENCE_MS 2000 /* a launcher that takes longer is SILENT */

/* Lists all runs of this user on this host, oldest first, with their facts; `ended`: also those
 * that have ended. `kept`, if not NULL: also those that only their kept output there
 * (runtime/inspect/spool_dir.h) shows to have ended: the registry goes when the user logs out. */
int run_client_list(struct run_client **runs, size_t *count, bool ended, const char *kept,
                    struct fbr_error *err);
void run_client_list_free(struct run_client *runs, size_t count);

/* Finds the run of this name, or whose uid begins so: a running one before an ended one, and the
 * youngest of those. -ENOENT, -EEXIST (several run), with a message. Free with
 * run_client_free(). */
int run_client_find(const char *typed, struct run_client *run, struct fbr_error *err);
void run_client_free(struct run_client *run);

/* Finds the only running run of this user on this host; if none is running and `ended`, the one
 * that ended last. -ENOENT: there is none; -EEXIST: there are several, which err names. Free with
 * run_client_free(). */
int run_client_only(struct run_client *run, bool ended, struct fbr_error *err);

/* Opens one more connection to the run, for run_client_tunnel() and the like. Free with
 * run_client_free(). */
int run_client_again(const struct run_client *run, struct run_client *again, struct fbr_error *err);

/* Updates the facts and ranks. -ECONNRESET: the run has ended. -ETIMEDOUT: no answer within
 * patience_ms; the old data stay, and the next call waits for the same answer. */
int run_client_ranks(struct run_client *run, unsigned patience_ms, struct fbr_error *err);
/* Sends a request whose only answer is DONE. -ETIMEDOUT: no answer within five seconds; a launcher
 * that continues later still executes the request. */
int run_client_ask(struct run_client *run, enum fbr_run_control_op op, int rank, int argument,
                   struct fbr_error *err);
/* Afterwards run->fd is a stream to the exec server of the process of that rank or worker (-1: any
 * process), for runtime/inspect/message.h; a read waits at most a minute for a byte. */
int run_client_tunnel(struct run_client *run, int rank, struct fbr_error *err);
/* The words for a kind of run, and for its jobs: pool, worker, workers, WORKER. */
struct run_client_words {
    const char *kind, *one, *many, *head;
};
const struct run_client_words *run_client_words(const struct fbr_run_control_about *about);
/* Returns the number of ranks, of the requested workers, or of processes so far. */
int run_client_size(const struct run_client *run);

/* For listings: "3m 20s"; "1.2 GiB". */
void run_client_age(char out[32], int64_t ms);
void run_client_bytes(char out[32], uint64_t bytes);
const char *run_client_rank_state(const struct fiber_rank_stats *s, char out[48]);
/* Splits "RUN/3" into RUN and rank 3; `rank` stays as it is if there is none. -EINVAL: RUN is too
 * long. */
int run_client_split(const char *typed, char *run, size_t size, const char **rank);
/* Parses a rank or a worker, as commands accept it: "7"; for a pool also the name of its job,
 * "worker-7", by which reports call it. -EINVAL and a message if it is invalid. */
int run_client_job(const char *text, const struct run_client *run, struct fbr_error *err);
