/* slurm_state.h - what Slurm's commands say, as states and sentences; pure. docs: squeue(1),
 * srun(1), sacct(1).
 *
 * Everything here is read from text that other programs wrote: what it does not understand says
 * nothing, and never that a job has ended.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef FBR_SLURM_STATE_H
#define FBR_SLURM_STATE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "backends/tool/args.h"
#include "runtime/proc/backend.h"

#define FBR_SLURM_ID 48
#define FBR_SLURM_TEXT 400

enum fbr_slurm_phase {
    FBR_SLURM_WAITS,
    FBR_SLURM_RUNS,
    FBR_SLURM_LEAVES, /* its processes are being ended, and may still live */
    FBR_SLURM_ENDED,
    FBR_SLURM_ODD, /* a state that we do not know */
};

/* One job, or one element of an array. */
struct fbr_slurm_job {
    char id[FBR_SLURM_ID]; /* "12", or "12_3" */
    char state[32];        /* "RUNNING" */
    char node[128];        /* "n1"; "" before it has one */
    char reason[128];      /* "Priority"; "None" */
    char comment[128];     /* ours; "(null)" */
    uint32_t status;       /* as wait(2) has it */
};

/* How a job ended. */
struct fbr_slurm_end {
    int32_t code; /* as in FBR_JOB_EXITED */
    int disrupted;
    char text[FBR_SLURM_TEXT];
};

/* The format in which `squeue -O` must print for fbr_slurm_squeue_line(), and `sacct -P -o` for
 * fbr_slurm_sacct_line(). */
#define FBR_SLURM_SQUEUE "JobArrayID:|,State:|,exit_code:|,NodeList:|,Reason:|,Comment:"
#define FBR_SLURM_SACCT "JobID,State,ExitCode,NodeList"

/* One line of theirs, which is cut up. False: it is none. */
bool fbr_slurm_squeue_line(char *line, struct fbr_slurm_job *job);
bool fbr_slurm_sacct_line(char *line, struct fbr_slurm_job *job);
/* The id in what `sbatch --parsable` printed: "12" or "12;cluster". */
bool fbr_slurm_id(const char *text, char id[FBR_SLURM_ID]);

enum fbr_slurm_phase fbr_slurm_phase(const char *state);
/* How a job of the phase ENDED did. `asked`: the signal that we sent it, 0: none; `memory`: what it
 * may have, in bytes, 0: as Slurm gave it. */
void fbr_slurm_end(const struct fbr_slurm_job *job, int asked, uint64_t memory,
                   struct fbr_slurm_end *end);
/* Why a job that waits does: a sentence. True: it will wait for ever. */
bool fbr_slurm_waits(const struct fbr_slurm_job *job, char *text, size_t size);

enum fbr_slurm_refusal {
    FBR_SLURM_NEVER,  /* the request is wrong */
    FBR_SLURM_LATER,  /* nobody answered, so nothing was taken */
    FBR_SLURM_UNSURE, /* the answer did not come: it may have been taken */
    FBR_SLURM_SPLIT,  /* an array is too long */
};
/* Classifies the standard error of a command that failed; `line`: the sentence in it. */
enum fbr_slurm_refusal fbr_slurm_refusal(const char *text, char *line, size_t size);

/* ---- srun ---- */

/* The messages of srun about its step, among the lines of standard error, which it shares with the
 * job. */
struct fbr_slurm_step {
    bool coded, killed, oom, cancelled; /* the task ended with `code`; by a signal ...; `why` */
    bool refused, lost;                 /* the step was not made; its node failed */
    bool unreached;                     /* it was not made, for its node did not answer */
    bool waits;                         /* it is not made yet; `text` has why */
    int code;
    char why[96];   /* "TIME LIMIT" */
    char text[256]; /* the last thing it said */
};

/* Could a line that begins with these bytes be srun's? */
bool fbr_slurm_srun_maybe(const char *text, size_t len);
/* One line of standard error, without its newline. True: srun's, about the step, not the job's. */
bool fbr_slurm_srun_line(struct fbr_slurm_step *s, const char *line);
/* How the step ended, of which srun ended with `code` (-N: signal N). */
void fbr_slurm_step_end(const struct fbr_slurm_step *s, int32_t code, int asked, uint64_t memory,
                        struct fbr_slurm_end *end);

/* ---- Lists ---- */

/* The names in "n[1-3,7],m01", at most `max` (-E2BIG). -EINVAL: it is not a list. Adds to `w`. */
int fbr_slurm_hosts(const char *list, size_t max, struct fbr_args *w);
/* The first n of the numbers in "2(x3),1"; what is missing is as the last. */
void fbr_slurm_counts(const char *text, unsigned *counts, size_t n);

/* ---- Where jobs can go ---- */

/* The facts of an allocation in the environment; NULL: the variable is not set. */
struct fbr_slurm_allocation {
    const char *nodes;  /* SLURM_JOB_NODELIST */
    const char *tasks;  /* SLURM_TASKS_PER_NODE */
    const char *cpus;   /* SLURM_JOB_CPUS_PER_NODE */
    const char *ntasks; /* SLURM_NTASKS: only where the user said so */
    const char *cpus_per_task, *gpus_per_task;
    const char *copies; /* SLURM_STEP_NUM_TASKS */
};

/* -ENOMEM. Nothing is known of an allocation whose nodes cannot be read: 0. */
int fbr_slurm_room_of(const struct fbr_slurm_allocation *a, struct fbr_capacity *room);
/* From lines PARTITION|CPUS|NODES|STATE, which are cut up. `chosen`: all are of our partition; else
 * ours is the default one, whose name ends in a star. */
void fbr_slurm_sizes(char *text, bool chosen, struct fbr_capacity *room);
/* Whether no job starts on such a node. A star: the node does not answer. */
bool fbr_slurm_node_is_out(const char *state);

#endif
