/* batch_priv.h - the state of batch jobs and submissions, which batch.c and submit.c share.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "backends/slurm/batch.h"
#include "backends/slurm/batch_dir.h"
#include "backends/slurm/batch_fsm.h"
#include "backends/slurm/slurm_lines.h"
#include "backends/tool/tool.h"
#include "runtime/base/master_id.h"

#define FBR_SLURM_MAX_ARRAY 1000 /* Slurm's default limit */

enum stage { COLLECTING, SUBMITTING, ACCEPTED, SUBMITTED, REFUSED };

struct batch_job {
    struct batch_job *next, *prev; /* in the list of all */
    void *user;                    /* NULL: released, the runtime takes no further events */
    struct submission *of;
    unsigned index;
    enum fbr_batch_state state; /* only batch.c changes it */
    bool awaited;               /* fact: the list that was asked for has not shown it yet */
    bool reading;               /* fact: the reads that run include its files */
    bool again;                 /* fact: output may have been written while we read */
    bool suspended;             /* fact: Slurm has stopped it, and the runtime knows */
    bool paused;                /* wish: the runtime takes no output */
    int want, asked;            /* signals: to send; sent */
    unsigned missing;           /* lists without the job, since missed_ms */
    uint64_t missed_ms;
    uint64_t read[2];
    struct fbr_slurm_lines err;
    struct fbr_slurm_end end;
    char pending[FBR_SLURM_TEXT];
};

struct submission {
    struct submission *next, *prev;
    struct fbr_slurm_batch *b;
    enum stage stage;
    unsigned seq, tries, n;
    struct batch_job **jobs; /* by index; NULL: reported and released */
    struct fbr_timer timer;
    char id[FBR_SLURM_ID], name[160];
    /* what the list says of the array without an index; id "": nothing */
    struct fbr_slurm_job rest;
    struct fbr_job *job; /* the needs of the jobs */
};

struct fbr_slurm_batch {
    struct fbr_backend_env env;
    const struct fbr_slurm_settings *settings;
    struct fbr_tools *tools;
    char base[PATH_MAX];      /* slurm_dir */
    struct fbr_slurm_dir dir; /* our folder in it, from the first job on */
    struct submission *all;
    struct batch_job *jobs;        /* of all submissions */
    struct fbr_slurm_reads *reads; /* reads that run; NULL: none */
    struct fbr_timer tick, cancel;
    unsigned cancels;     /* scancels that run */
    struct fbr_args dead; /* tags of dead masters of this host */
    uint64_t looked_ms, delay_ms;
    uint64_t due_ms; /* when `tick` fires, while it runs */
    char master[FBR_MASTER_ID_MAX];
    unsigned seq;
    /* looking: squeue runs; accounting: sacct runs */
    bool looking, accounting;
};

/* batch.c */
void fbr_slurm_path(const struct submission *s, unsigned index, const char *kind,
                    char path[PATH_MAX]);
void fbr_slurm_notify_pending(struct batch_job *j, const char *text);
/* Slurm has accepted the submission, under this id. */
void fbr_slurm_submitted(struct submission *s, const char *id);
/* No job of the submission can start; the submission may be freed afterwards. */
void fbr_slurm_refuse_all(struct submission *s, const char *what, const char *why);

/* submit.c */
/* Makes a submission that begins with this job and submits itself after a moment. NULL without
 * memory. */
struct submission *fbr_slurm_submission_new(struct fbr_slurm_batch *b, const struct fbr_job *job);
/* Returns how many processors the job needs: Slurm gives one, also to a job of several processes.
 * 0: any number. */
double fbr_slurm_wish(const struct fbr_job *job);
/* Whether the job has the same needs, so that it can join the submission. */
bool fbr_slurm_submission_takes(const struct submission *s, const struct fbr_job *job);
void fbr_slurm_submission_free(struct submission *s);
