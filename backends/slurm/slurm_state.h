/* slurm_state.h - converts the output of Slurm's commands to states and messages; pure. docs:
 * squeue(1), srun(1), sacct(1).
 *
 * Everything here is read from the text of other programs: text that is not understood has no
 * effect, and never ends a job.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "runtime/program/args.h"
#include "runtime/proc/backend.h"

#define FBR_SLURM_ID 48
#define FBR_SLURM_TEXT 400

enum fbr_slurm_phase {
    FBR_SLURM_WAITS,
    FBR_SLURM_RUNS,
    FBR_SLURM_LEAVES, /* its processes are being ended, and may still run */
    FBR_SLURM_ENDED,
    FBR_SLURM_ODD, /* an unknown state */
};

/* One job, or one element of an array. */
struct fbr_slurm_job {
    char id[FBR_SLURM_ID]; /* "12", or "12_3" */
    char state[32];        /* "RUNNING" */
    char node[128];        /* "n1"; "" while it has no node */
    char reason[128];      /* "Priority"; "None" */
    uint32_t status;       /* in the format of wait(2) */
};

/* How a job ended. */
struct fbr_slurm_end {
    int32_t code; /* as in FBR_JOB_EXITED */
    int disrupted;
    char text[FBR_SLURM_TEXT];
};

/* The formats that `squeue -O` must print for fbr_slurm_squeue_line(), and `sacct -P -o` for
 * fbr_slurm_sacct_line(). */
#define FBR_SLURM_SQUEUE "JobArrayID:|,State:|,exit_code:|,NodeList:|,Reason:|"
#define FBR_SLURM_SACCT "JobID,State,ExitCode,NodeList"

/* Returns the list without the line "CLUSTER: NAME", which squeue prints before it if
 * SLURM_CLUSTERS is set. */
char *fbr_slurm_list(char *text);
/* Cuts a line at its first n - 1 '|' into fields; the last one has the rest. False: it has too
 * few. */
bool fbr_slurm_cut(char *line, char **field, size_t n);
/* Parse one line of squeue or sacct, and cut it up. False: not such a line. */
bool fbr_slurm_squeue_line(char *line, struct fbr_slurm_job *job);
bool fbr_slurm_sacct_line(char *line, struct fbr_slurm_job *job);
/* Finds the id in the output of `sbatch --parsable`: the last line that is "12" or "12;cluster". A
 * site's sbatch may print other lines before it. */
bool fbr_slurm_id(const char *text, char id[FBR_SLURM_ID]);

enum fbr_slurm_phase fbr_slurm_phase(const char *state);
/* Whether a job in the phase RUNS is stopped, by `scontrol suspend` or a job of higher priority. */
bool fbr_slurm_suspended(const char *state);
/* Describes how a job in the phase ENDED ended. `asked`: the signal that we sent, 0: none;
 * `memory`: its limit in bytes, 0: Slurm's default. */
void fbr_slurm_end(const struct fbr_slurm_job *job, int asked, uint64_t memory,
                   struct fbr_slurm_end *end);
/* Writes why a waiting job waits. True: it will wait for ever. */
bool fbr_slurm_waits(const struct fbr_slurm_job *job, char *text, size_t size);

enum fbr_slurm_refusal {
    FBR_SLURM_NEVER,  /* the request is wrong */
    FBR_SLURM_LATER,  /* nothing answered, so nothing was accepted */
    FBR_SLURM_UNSURE, /* the answer did not come: the request may have been accepted */
    FBR_SLURM_SPLIT,  /* the array is too long */
    FBR_SLURM_FEWER,  /* the user may not have so many jobs in the queue */
};
/* Classifies the standard error of a command that failed; `line`: the message in it. */
enum fbr_slurm_refusal fbr_slurm_refusal(const char *text, char *line, size_t size);

/* ---- srun ---- */

/* The messages of srun about its step. They stand among the lines of standard error, which srun
 * shares with the job. */
struct fbr_slurm_step {
    int code; /* how the task ended: exit code, -N: signal N; 0: srun did not say */
    /* the task ended: oom: memory ran out; cancelled: for the reason `why` */
    bool oom, cancelled;
    /* refused: the step was not made; lost: its node failed */
    bool refused, lost;
    bool unreached; /* the step was not made, because its node did not answer */
    bool waits;     /* the step is not made yet; `text` has the reason */
    char why[96];   /* "TIME LIMIT" */
    char text[256]; /* its last message */
};

/* Whether a line that begins with these bytes may be srun's. */
bool fbr_slurm_srun_maybe(const char *text, size_t len);
/* Parses one line of standard error, without its newline. True: the line is srun's, about the step,
 * and not the job's. */
bool fbr_slurm_srun_line(struct fbr_slurm_step *s, const char *line);
/* Describes how the step ended, when its srun ended with `code` (-N: signal N). */
void fbr_slurm_step_end(const struct fbr_slurm_step *s, int32_t code, int asked, uint64_t memory,
                        struct fbr_slurm_end *end);

/* ---- Lists ---- */

/* Adds the names in "n[1-3,7],m01" to `w`, at most `max` (-E2BIG). -EINVAL: it is not a list. */
int fbr_slurm_hosts(const char *list, size_t max, struct fbr_args *w);
/* Reads the first n of the numbers in "2(x3),1"; missing numbers are equal to the last one. */
void fbr_slurm_counts(const char *text, unsigned *counts, size_t n);

/* ---- The room for jobs ---- */

/* The facts of an allocation in the environment; NULL: the variable is not set. */
struct fbr_slurm_allocation {
    const char *nodes;  /* SLURM_JOB_NODELIST */
    const char *tasks;  /* SLURM_TASKS_PER_NODE */
    const char *cpus;   /* SLURM_JOB_CPUS_PER_NODE */
    const char *ntasks; /* SLURM_NTASKS: only set if the user gave it */
    const char *cpus_per_task, *gpus_per_task;
    const char *copies; /* SLURM_STEP_NUM_TASKS */
};

/* -ENOMEM. If the list of nodes cannot be read, nothing is known of the allocation: 0. */
int fbr_slurm_room_of(const struct fbr_slurm_allocation *a, struct fbr_capacity *room);
/* Counts from lines PARTITION|CPUS|NODES|STATE|GRES, which it cuts up. `chosen`: all are about our
 * partition; else our partition is the default one, whose name ends in a star. */
void fbr_slurm_sizes(char *text, bool chosen, struct fbr_capacity *room);
/* Whether no job starts on a node in this state. A star means that the node does not answer. */
bool fbr_slurm_node_is_out(const char *state);
