/* orphans.h - jobs that engines have of this user's runs, and what became of those runs: for gc and
 * ps; and runs that only engines know, for logs and kill: what others cannot do with such a run
 * they say.
 *
 * A run whose master is dead, or on another host, has no door here. Only the labels of its jobs are
 * known: its id, their names, its master.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef CLI_ORPHANS_H
#define CLI_ORPHANS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cli/backend_client.h"
#include "runtime/base/error.h"
#include "cli/run_client.h"

enum orphan_verdict {
    ORPHAN_LIVES,   /* its run goes on */
    ORPHAN_DEAD,    /* its run is over, for certain */
    ORPHAN_UNKNOWN, /* cannot be told from here */
};

struct orphan {
    const char *backend;
    char *run, *id, *name, *master;
    char *fiber; /* the command beside a master; NULL: unknown */
    int64_t since_ms;
    bool alive; /* the job */
    enum orphan_verdict verdict;
    const char *why; /* of the verdict */
};

struct orphans {
    struct orphan *jobs;
    size_t count;
    bool failed; /* out of memory */
};

/* Opens that backend, asks it, and judges: 1; 0: it cannot be asked, and nobody named it nor is
 * there a sign that it is used here. On 1, close the backend and free l. */
int orphans_ask(struct orphans *l, struct cli_backend *b, const char *name, const char *only,
                struct fbr_error *err);
/* Sorts them by run and gives each its verdict, by looking at the masters
 * (runtime/base/master_id.h). */
void orphans_judge(struct orphans *l);
/* How many from that one on are of its run; after orphans_judge(). */
size_t orphans_same_run(const struct orphans *l, size_t first);
/* For tests. */
void orphans_add(struct orphans *l, const char *backend, const struct fbr_orphan *job);
void orphans_free(struct orphans *l);

/* The names of the backends that are asked when `only` is NULL, or that one; NULL behind the
 * last. */
const char *orphans_backend(const char *only, size_t at);
/* The command of its engine that removes it: "docker rm -f 12ab". */
void orphan_command(const struct orphan *j, char *out, size_t size);
/* "HOST:PID" of its master, for people. */
void orphan_master(const struct orphan *j, char out[40]);
long orphan_pid(const struct orphan *j); /* 0: unknown */

/* ---- Runs ---- */

#define ORPHAN_RUN_BACKENDS 4

/* The run's jobs on one engine. */
struct engine_jobs {
    struct cli_backend backend;
    struct orphans all;
    const struct orphan *jobs;
    size_t count;
};

struct orphan_run {
    char uid[40];
    struct engine_jobs at[ORPHAN_RUN_BACKENDS];
    size_t count; /* engines that have jobs of it */
};

/* Whether that may be the beginning of a run's id: no engine knows names of runs. */
bool orphan_run_is_id(const char *typed);

/* Which jobs of a list are of the run that was typed, or of the one of the registry that was lost
 * (either may be NULL): the first, and how many. 0: none; -EEXIST and a sentence: several runs have
 * such an id. For tests. */
int orphan_run_choose(const struct orphans *l, const char *typed, const struct run_client *lost,
                      const struct orphan **first, struct fbr_error *err);

/* A run of this host, as run_client_find(): 0 and *run; or one that only engines know: 1 and *e.
 * `only`: no other backend is asked, and the registry only for runs there; NULL: all that are
 * configured. */
int orphan_run_find(const char *typed, const char *only, struct run_client *run,
                    struct orphan_run *e, struct fbr_error *err);
void orphan_run_free(struct orphan_run *e);

/* Finds a run of this host for a command that only its master can answer (`verb`: top, scale, cp,
 * stack, exec): 0 and *run. When only engines know the run, the error says how to ask its
 * master. */
int orphan_run_here(const char *typed, const char *verb, struct run_client *run,
                    struct fbr_error *err);
/* That sentence: an error. For tests. */
int orphan_run_elsewhere(const struct engine_jobs *at, const char *verb, struct fbr_error *err);

/* Whether a job is meant: by its name, or by its id there, or `name` is NULL. An object that is no
 * job is not meant. */
bool orphan_run_wants(const struct orphan *job, const char *name);
/* How many are. None: -ENOENT, and a sentence with the names that there are. */
int orphan_run_wanted(const struct orphan_run *e, const char *name, struct fbr_error *err);

#endif
