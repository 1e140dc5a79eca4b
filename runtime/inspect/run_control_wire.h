/* run_control_wire.h - requests and answers at the socket of a run (run_control.h), as bytes.
 *
 * Frames: u32 length of what follows, then
 *
 *   request   u8 FBR_RUN_CONTROL_VERSION, u8 op, i32 rank, i32 argument
 *   answer    u8 kind, its fields
 *
 * One request at a time; each is answered by any number of answers and one DONE. Both ends belong
 * to one user but may be of two builds: another version is refused in words, and a field that is
 * added goes to the end of its answer.
 *
 * Pure; any thread.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef FBR_RUN_CONTROL_WIRE_H
#define FBR_RUN_CONTROL_WIRE_H

#include <stddef.h>
#include <stdint.h>

#include "fiber.h"
#include "runtime/base/buf.h"

#define FBR_RUN_CONTROL_VERSION 1
#define FBR_RUN_CONTROL_REQUEST_MAX 64        /* a longer frame is none of ours */
#define FBR_RUN_CONTROL_ANSWER_MAX (1u << 20) /* longer lines come in parts */
#define FBR_RUN_CONTROL_PART (1u << 19)

enum fbr_run_control_op {
    /* argument 1: RUN and each RANK, and new figures are asked for; 0: RUN */
    FBR_RUN_CONTROL_STATUS = 1,
    /* rank or -1: a LINE for each line from now on, DONE at the end of the run */
    FBR_RUN_CONTROL_FOLLOW,
    FBR_RUN_CONTROL_SIGNAL, /* rank or -1; argument: the signal */
    FBR_RUN_CONTROL_STOP,   /* as a failure would */
    FBR_RUN_CONTROL_SCALE,  /* argument: how many workers are wanted */
    /* rank or -1; after a DONE of 0 all bytes are its process's: tunnel.h. 6 was the same with
     * other messages */
    FBR_RUN_CONTROL_TUNNEL = 7,
};

/* The current state of a run. */
struct fbr_run_facts {
    char uid[33]; /* of the run */
    char backend[32];
    int size, agents, agents_joined, running, ended, restarts;
    char waiting[480];  /* what it waits for, when something is not there yet; "" */
    int64_t started_ms; /* since the epoch */
    char doing[96];     /* a pool: its tasks, for people; "" */
    int64_t ended_ms;   /* of a record of a run that has ended: since the epoch; 0: unknown */
};

/* A rank of a ring, or a worker of a pool. */
struct fbr_run_rank {
    struct fiber_rank_stats stats;
    int64_t started_ms; /* since the epoch; 0: unknown, the run's start is the best guess */
    uint64_t tasks;     /* of a worker: that it has done */
    double busy;        /* of a worker: seconds that it spent in tasks */
};

enum fbr_run_control_kind {
    FBR_RUN_CONTROL_RUN = 1,
    FBR_RUN_CONTROL_RANK,
    FBR_RUN_CONTROL_LINE,
    FBR_RUN_CONTROL_DONE
};

struct fbr_run_control_request {
    uint8_t version, op;
    int32_t rank, argument;
};

enum fbr_run_kind { FBR_RUN_RING, FBR_RUN_POOL };

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
};

/* A whole frame, appended. */
void fbr_run_control_put_request(struct fbr_buf *b, const struct fbr_run_control_request *r);
void fbr_run_control_put_run(struct fbr_buf *b, const struct fbr_run_control_about *about,
                             const struct fbr_run_facts *facts);
void fbr_run_control_put_rank(struct fbr_buf *b, const struct fbr_run_rank *r);
/* in parts */
void fbr_run_control_put_line(struct fbr_buf *b, int rank, int stream, const void *data,
                              size_t len);
void fbr_run_control_put_done(struct fbr_buf *b, int code, const char *text);

/* Takes the next frame from the front of what has come: 1 and its inside in *frame (valid until the
 * bytes are consumed), *used bytes; 0: not all there yet; -EMSGSIZE: longer than max. */
int fbr_run_control_frame(const void *data, size_t len, size_t max, struct fbr_cur *frame,
                          size_t *used);

/* The inside of a frame; for answers behind the kind. False: not well formed. */
bool fbr_run_control_get_request(struct fbr_cur *c, struct fbr_run_control_request *r);
bool fbr_run_control_get_run(struct fbr_cur *c, struct fbr_run_control_about *about,
                             struct fbr_run_facts *facts);
bool fbr_run_control_get_rank(struct fbr_cur *c, struct fbr_run_rank *r);
/* more: this line goes on in the next LINE of its rank and stream. */
bool fbr_run_control_get_line(struct fbr_cur *c, int *rank, int *stream, bool *more,
                              const void **data, size_t *len);
bool fbr_run_control_get_done(struct fbr_cur *c, int *code, char *text, size_t size);

#endif
