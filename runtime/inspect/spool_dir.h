/* spool_dir.h - the directories of kept output: one of this user alone, with one in it for each
 * run.
 *
 *   LOGS/UID/about         the facts of the run at its start (a RUN of run_control_wire.h); locked
 *                          while the run is written
 *            end           the same at its end, and a DONE
 *            JOB.RANK      records (spool_record.h) of a rank; JOB is 0 for the run's own ranks
 *            JOB.RANK.old  older records
 *
 * LOGS is the setting log_dir, else $XDG_STATE_HOME/fiber/logs, ~/.local/state/fiber/logs, or,
 * without a home, /var/tmp/fiber-<user id>. UID is the first half of the run's uid. Any thread, any
 * number of processes.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <limits.h>

#include "runtime/base/config.h"
#include "runtime/inspect/run_control_wire.h"
#include "runtime/base/error.h"

#define FBR_SPOOL_RUNS 200 /* number of runs whose output is kept */
#define FBR_SPOOL_DAYS 14  /* days for which output is kept */

/* Stores LOGS, and makes no directory. */
int fbr_spool_root(char root[PATH_MAX], const struct fbr_config *config, struct fbr_error *err);
/* Makes LOGS, or checks the directory that exists. */
int fbr_spool_root_make(const char *root, struct fbr_error *err);
/* Makes LOGS, the directory of a run, and its file `about`, which stays locked as long as *lock is
 * open. */
int fbr_spool_make(char dir[PATH_MAX], int *lock, const char *root,
                   const struct fbr_run_control_about *about, struct fbr_error *err);
/* Writes `end`, the record of the run's end. */
void fbr_spool_note_end(const char *dir, const struct fbr_run_control_about *about,
                        const struct fbr_run_facts *facts, int code, const char *report);

/* A run whose output is kept. */
struct fbr_spool_run {
    char dir[PATH_MAX];
    struct fbr_run_control_about about;
    struct fbr_run_facts facts;
    bool writes; /* its launcher lives */
    bool ended;  /* the run has ended; code and report are set */
    int code;
    char report[1024];
};

/* Reads the current state of a run's kept output. False: nothing is kept. */
bool fbr_spool_look(struct fbr_spool_run *run, const char *root, const char *uid);
/* Passes each run whose output is kept. */
void fbr_spool_each(const char *root, void (*found)(void *user, const struct fbr_spool_run *run),
                    void *user);
/* Finds the youngest run with that name, or with a uid that begins so; NULL: the youngest of all.
 * `backend`: only runs of that backend; NULL: of all. -ENOENT: there is none. */
int fbr_spool_find(struct fbr_spool_run *run, const char *root, const char *typed,
                   const char *backend);

/* Removes the oldest runs that have ended until there are at most FBR_SPOOL_RUNS, none is older
 * than FBR_SPOOL_DAYS, and all have at most `total` bytes (0: bytes are not counted). A run stays
 * if remove() returns false; NULL: none stays. */
void fbr_spool_prune(const char *root, uint64_t total, bool (*remove)(void *user, const char *dir),
                     void *user);
