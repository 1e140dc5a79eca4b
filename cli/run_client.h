/* run_client.h - the other end of a run's door (runtime/inspect/run_control.h): for ps, logs, kill
 * and top.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef CLI_CLIENT_H
#define CLI_CLIENT_H

#include <stdbool.h>
#include <stddef.h>

#include "fiber.h"
#include "runtime/inspect/run_control_wire.h"
#include "runtime/base/error.h"

enum run_client_state { CLIENT_RUNNING, CLIENT_SILENT, CLIENT_ENDED, CLIENT_LOST };

struct run_client {
    enum run_client_state state; /* SILENT: its launcher does not answer (it is stopped, say) */
    struct fbr_run_control_about about;
    struct fbr_run_facts facts;
    int code; /* of one that has ended */
    char report[1024];
    int fd; /* -1 when it has ended, or takes no more callers */
    struct fbr_buf got;
    int owed;                   /* requests whose DONE has not come: they are answered in order */
    bool ranks_owed;            /* the last of them is that of run_client_ranks() */
    struct fbr_run_rank *ranks; /* of run_client_ranks() */
    int nranks;
    struct fbr_run_rank *before; /* those of its last answer but one */
    int nbefore;
    struct fbr_run_rank *coming; /* of the answer that is not all there */
    int ncoming;
};

#define CLIENT_PATIENCE_MS 2000 /* after which a launcher is called silent */

/* All runs of this user here, oldest first, with their facts; `ended`: also those that have
 * ended. */
int run_client_list(struct run_client **runs, size_t *count, bool ended, struct fbr_error *err);
void run_client_list_free(struct run_client *runs, size_t count);

/* The run that is called so, or whose uid begins so; one that runs before one that has ended, and
 * the youngest of those. -ENOENT, -EEXIST (several run), with a sentence. Free with
 * run_client_free(). */
int run_client_find(const char *typed, struct run_client *run, struct fbr_error *err);
void run_client_free(struct run_client *run);

/* The only run of this user here that goes on. -ENOENT: there is none; -EEXIST: there are several,
 * which err names. Free with run_client_free(). */
int run_client_only(struct run_client *run, struct fbr_error *err);

/* One more connection to it, for run_client_tunnel() and the like. Free with run_client_free(). */
int run_client_again(const struct run_client *run, struct run_client *again, struct fbr_error *err);

/* Asks for its facts and ranks again. -ECONNRESET: it has ended. -ETIMEDOUT: no answer within so
 * many ms; what was known stays, and the next call waits on for the same answer. */
int run_client_ranks(struct run_client *run, unsigned patience_ms, struct fbr_error *err);
/* A request that is answered by DONE alone. -ETIMEDOUT: no answer within five seconds; a launcher
 * that goes on later still does it. */
int run_client_ask(struct run_client *run, enum fbr_run_control_op op, int rank, int argument,
                   struct fbr_error *err);
/* After it run->fd is a stream to what serves visitors where that rank or worker is (-1: any that
 * will do), for runtime/inspect/message.h; it waits at most a minute for a byte. */
int run_client_tunnel(struct run_client *run, int rank, struct fbr_error *err);
/* Calls line() for each part of each line that rank (-1: all) prints, until the run ends: 0 and its
 * code, or -ECONNRESET. */
int run_client_follow(struct run_client *run, int rank,
                      void (*line)(void *user, int rank, int stream, bool more, const void *data,
                                   size_t len),
                      void *user, int *code, struct fbr_error *err);

/* Ranks, or the workers that are wanted. */
int run_client_size(const struct run_client *run);

/* For listings: "3m 20s"; "1.2 GiB". */
void run_client_age(char out[32], int64_t ms);
void run_client_bytes(char out[32], uint64_t bytes);
const char *run_client_rank_state(const struct fiber_rank_stats *s, char out[48]);
/* Milliseconds since the epoch. */
int64_t run_client_now(void);
/* Parses a rank's number: -1 and a sentence when it is none. */
int run_client_rank(const char *text, const struct run_client *run, struct fbr_error *err);
/* The same of a rank or a worker as cp, exec and stack take it: "7"; of a pool also its job's name,
 * "worker-7". */
int run_client_job(const char *text, const struct run_client *run, struct fbr_error *err);

#endif
