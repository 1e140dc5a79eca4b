/* orphans.h - this user's jobs on the engines, and the state of their runs: for gc and ps; and runs
 * that only the engines know: for logs and kill. Other commands report that they cannot handle such
 * a run.
 *
 * A run whose master is dead, or on another host, has no control socket here. Only the labels of
 * its jobs are known: its id, their names, its master.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdint.h>

#include "cli/backend_client.h"
#include "runtime/base/error.h"
#include "cli/run_client.h"

enum orphan_verdict {
    ORPHAN_LIVES,   /* the run goes on */
    ORPHAN_DEAD,    /* the run is certainly over */
    ORPHAN_UNKNOWN, /* cannot be found out from here */
};

struct orphan {
    const char *backend;
    char *run, *id, *name, *master;
    char *fiber; /* Fiber's command in the master's container; NULL: unknown */
    int64_t since_ms;
    bool runs; /* whether the job runs */
    enum orphan_verdict verdict;
    const char *why; /* reason of the verdict */
};

struct orphans {
    const char *backend; /* that has the jobs */
    struct orphan *jobs;
    size_t count;
    bool failed; /* out of memory */
};

/* Opens that backend, lists its jobs, and judges them: 1. 0: the backend cannot be queried, and
 * neither did the user name it nor is there a sign that it is used here. On 1, close the backend
 * and free l. */
int orphans_ask(struct orphans *l, struct cli_backend *b, const char *name, const char *only,
                struct fbr_error *err);
/* Gives each job its verdict, from the state of its master (runtime/base/master_id.h), and sorts
 * the jobs by run. If a master of a run lives here, it is that of the run's first job. */
void orphans_judge(struct orphans *l);
/* Returns how many jobs, from `first` on, belong to the same run; call after orphans_judge(). */
size_t orphans_same_run(const struct orphans *l, size_t first);
/* A fbr_backend_found: adds a job to a struct orphans. For tests. */
void orphans_add(void *list, const struct fbr_orphan *job);
void orphans_free(struct orphans *l);

/* Returns the names of the backends to query: all if `only` is NULL, else that one; NULL after the
 * last. */
const char *orphans_backend(const char *only, size_t at);
/* Writes the engine's command that removes the job: "docker rm -f 12ab". */
void orphan_command(const struct orphan *j, const struct fbr_config *config, char *out,
                    size_t size);
/* Writes "HOST:PID" of the job's master, for users. */
void orphan_master(const struct orphan *j, char out[40]);
long orphan_pid(const struct orphan *j); /* 0: unknown */

/* ---- Runs ---- */

#define ORPHAN_RUN_BACKENDS 4

/* The jobs of the run on one engine. */
struct engine_jobs {
    struct cli_backend backend;
    struct orphans all;
    const struct orphan *jobs;
    size_t count;
};

struct orphan_run {
    char uid[40];
    struct engine_jobs at[ORPHAN_RUN_BACKENDS];
    size_t count; /* number of engines that have jobs of the run */
};

/* Whether `typed` may be the beginning of a run's id: engines do not know the names of runs. */
bool orphan_run_is_id(const char *typed);

/* Finds the jobs in a list that belong to the run that was typed, or to the run of the registry
 * that was lost (either may be NULL): sets *first and returns how many. 0: none; -EEXIST and a
 * message: several runs have such an id. For tests. */
int orphan_run_choose(const struct orphans *l, const char *typed, const struct run_client *lost,
                      const struct orphan **first, struct fbr_error *err);

/* Finds the jobs of a run on the engines, as orphan_run_choose() does on one: returns how many
 * engines have some. 0: none; -EEXIST and a message: several runs have such an id. An engine that
 * cannot be queried is an error only if no other has the run. *e may be freed in each case. */
int orphan_run_ask(struct orphan_run *e, const char *typed, const struct run_client *lost,
                   const char *only, struct fbr_error *err);
/* Finds a run of this host, as run_client_find(): 0 and *run; or a run that only the engines know:
 * 1 and *e. `only`: no other backend is queried, and the registry is searched only for runs there;
 * NULL: all configured backends. */
int orphan_run_find(const char *typed, const char *only, struct run_client *run,
                    struct orphan_run *e, struct fbr_error *err);
void orphan_run_free(struct orphan_run *e);

/* Finds a run of this host for a command that only the run's master can answer (`verb`: top, scale,
 * cp, stack, exec): 0 and *run, which has not ended. If only the engines know the run, the error
 * explains how to reach its master. With `job`, RUN/JOB is split: *job is JOB, or "". */
int orphan_run_here(const char *typed, const char *verb, struct run_client *run, const char **job,
                    struct fbr_error *err);
/* Makes that error. For tests. */
int orphan_run_elsewhere(const struct engine_jobs *at, const char *verb, struct fbr_error *err);

/* Whether a job matches: by its name, or by its id on the engine, or because `name` is NULL. An
 * object that is not a job never matches. */
bool orphan_run_wants(const struct orphan *job, const char *name);
/* Returns how many jobs match. None: -ENOENT, and a message with the existing names. */
int orphan_run_wanted(const struct orphan_run *e, const char *name, struct fbr_error *err);
