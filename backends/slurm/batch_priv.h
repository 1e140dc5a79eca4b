/* batch_priv.h - what batch.c and submit.c share.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef FBR_SLURM_BATCH_PRIV_H
#define FBR_SLURM_BATCH_PRIV_H

#include "backends/slurm/batch.h"
#include "backends/slurm/batch_dir.h"
#include "backends/slurm/batch_fsm.h"
#include "backends/slurm/slurm_lines.h"
#include "backends/tool/tool.h"
#include "runtime/base/master_id.h"

#define FBR_SLURM_MAX_ARRAY 1000 /* as many as Slurm's default takes */

enum stage { COLLECTING, SUBMITTING, SUBMITTED };

struct batch_job {
    void *user; /* NULL: released, the runtime wants to hear no more */
    struct submission *of;
    unsigned index;
    enum fbr_batch_state state; /* batch.c alone changes it */
    bool seen;                  /* fact: the list at hand has it */
    bool reading;               /* fact: the reads that run are its, too */
    bool again;                 /* fact: something may have been written while we read */
    bool paused;                /* wish: the runtime takes no output */
    int want, asked;            /* signals: to be sent; sent */
    unsigned missing;           /* lists that did not have it, since missed_ms */
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
    unsigned seq, tries, n, living;
    struct batch_job **jobs; /* by index; NULL: told and released */
    struct fbr_timer timer;
    char id[FBR_SLURM_ID], name[160];
    bool busy, listed; /* sbatch runs; it was in the squeue that runs */
    /* the requests of the jobs; the strings are ours */
    struct fbr_args argv, env;
    struct fbr_job job;
    char *file, *workdir;
};

struct fbr_slurm_batch {
    struct fbr_backend_env env;
    const struct fbr_slurm_settings *settings;
    struct fbr_tools *tools;
    struct fbr_slurm_dir dir;
    struct submission *all;
    struct fbr_slurm_reads *reads; /* that run; NULL: none do */
    struct fbr_timer tick, cancel;
    struct fbr_args cancelling; /* ids in the scancels that run, of which there are so many */
    unsigned cancels;
    struct fbr_args dead; /* tags of masters that died here */
    uint64_t looked_ms, delay_ms;
    char master[FBR_MASTER_ID_MAX];
    unsigned seq;
    bool looking, accounting; /* squeue runs; sacct */
    bool unwanted;            /* some wait for ever, and are to be cancelled */
};

/* batch.c */
void fbr_slurm_path(const struct submission *s, unsigned index, const char *kind,
                    char path[PATH_MAX]);
/* One of the commands that ask or cancel. */
int fbr_slurm_run(struct fbr_slurm_batch *b, struct fbr_args *w, unsigned ms,
                  void (*done)(void *user, const struct fbr_tool_result *r), void *user);
void fbr_slurm_notify_pending(struct batch_job *j, const char *text);
/* Slurm has it, under this id. */
void fbr_slurm_submitted(struct submission *s, const char *id);
/* None of it can start; it may be gone afterwards. */
void fbr_slurm_refuse_all(struct submission *s, const char *what, const char *why);

/* submit.c */
/* One that this job could begin; it submits itself after a moment. NULL without memory. */
struct submission *fbr_slurm_submission_new(struct fbr_slurm_batch *b, const struct fbr_job *job);
/* How many processors it asks for: Slurm gives one, also to a job of several processes. 0: it does
 * not matter. */
double fbr_slurm_wish(const struct fbr_job *job);
/* Could it be another of the same? */
bool fbr_slurm_submission_takes(const struct submission *s, const struct fbr_job *job);
void fbr_slurm_submission_free(struct submission *s);

#endif
