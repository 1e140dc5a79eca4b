/* run_control_wire.h - requests and answers at the control socket of a run (run_control.h), as
 * bytes.
 *
 * Frames: u32 length of the rest, then
 *
 *   request   u8 FBR_RUN_CONTROL_VERSION, u8 op, i32 rank, i32 argument
 *   answer    u8 kind, its fields
 *
 * A connection has one request at a time; any number of answers and one DONE follow it. Both ends
 * belong to one user, but may be of two builds: a request of another version gets a DONE with a
 * sentence, and a new field goes to the end of its answer.
 *
 * Pure; any thread.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "fiber.h"
#include "runtime/base/buf.h"

#define FBR_RUN_CONTROL_VERSION 1
#define FBR_RUN_CONTROL_REQUEST_MAX 64 /* a longer frame is malformed */
#define FBR_RUN_CONTROL_ANSWER_MAX (1u << 20)

enum fbr_run_control_op {
    /* argument 1: a RUN and each RANK, and the ranks are asked for new figures; 0: a RUN */
    FBR_RUN_CONTROL_STATUS = 1,
    /* rank or -1; argument: the signal. 2 asked for the lines of ranks */
    FBR_RUN_CONTROL_SIGNAL = 3,
    FBR_RUN_CONTROL_STOP,  /* ends the run as a failure does */
    FBR_RUN_CONTROL_SCALE, /* argument: number of workers */
    /* rank or -1; after a DONE of 0 the connection leads to the target process (tunnel.h). 6 was
     * the same with other messages */
    FBR_RUN_CONTROL_TUNNEL = 7,
};

/* The current state of a run. */
struct fbr_run_facts {
    int size, agents, agents_joined, running, ended, restarts;
    char waiting[480]; /* the reason why a part of it does not run yet, or "" */
    char doing[96];    /* of a pool: its tasks, for people; or "" */
    /* in the record of an ended run: its end, since the epoch; 0: unknown */
    int64_t ended_ms;
};

/* A rank of a ring, or a worker of a pool. */
struct fbr_run_rank {
    struct fiber_rank_stats stats;
    int64_t started_ms; /* since the epoch; 0: unknown: the best guess is the run's start */
    uint64_t tasks;     /* of a worker: number of tasks that it has done */
    double busy;        /* of a worker: seconds that it spent in tasks */
};

enum fbr_run_control_kind {
    FBR_RUN_CONTROL_RUN = 1,
    FBR_RUN_CONTROL_RANK,
    FBR_RUN_CONTROL_DONE = 4
};

struct fbr_run_control_request {
    uint8_t version, op;
    int32_t rank, argument;
};

/* FBR_RUN_PROGRAM: processes and managers that a program has started by themselves */
enum fbr_run_kind { FBR_RUN_RING, FBR_RUN_POOL, FBR_RUN_PROGRAM };

/* The facts of a run that are fixed at its start. */
struct fbr_run_control_about {
    char uid[33];
    char name[64];
    char command[256]; /* for people: shortened, without control characters */
    char backend[32];
    char output_dir[512]; /* "" when there is none */
    int64_t pid;          /* of the launcher */
    int64_t started_ms;   /* since the epoch */
    int32_t size;
    uint8_t kind; /* enum fbr_run_kind */
    bool unkept;  /* log_keep is 0, so no output is kept */
};

/* Append one whole frame. */
void fbr_run_control_put_request(struct fbr_buf *b, const struct fbr_run_control_request *r);
void fbr_run_control_put_run(struct fbr_buf *b, const struct fbr_run_control_about *about,
                             const struct fbr_run_facts *facts);
void fbr_run_control_put_rank(struct fbr_buf *b, const struct fbr_run_rank *r);
void fbr_run_control_put_done(struct fbr_buf *b, int code, const char *text);

/* Reads the first frame of the received bytes. 1: *frame is its content, valid until the bytes are
 * consumed, and *used its size; 0: it is incomplete; -EMSGSIZE: it is longer than max. */
int fbr_run_control_frame(const void *data, size_t len, size_t max, struct fbr_cur *frame,
                          size_t *used);

/* Read the content of a frame; of an answer, the part after the kind. False: malformed. */
bool fbr_run_control_get_request(struct fbr_cur *c, struct fbr_run_control_request *r);
bool fbr_run_control_get_run(struct fbr_cur *c, struct fbr_run_control_about *about,
                             struct fbr_run_facts *facts);
bool fbr_run_control_get_rank(struct fbr_cur *c, struct fbr_run_rank *r);
bool fbr_run_control_get_done(struct fbr_cur *c, int *code, char *text, size_t size);
