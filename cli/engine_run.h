/* engine_run.h - a run that only engines know: its master is dead, or on another host; for logs and kill; what
 * others cannot do with it they say.
 *
 * Of such a run there is no door. What its jobs are labelled with is all that is known: its id, their names, its
 * master.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef CLI_ENGINE_RUN_H
#define CLI_ENGINE_RUN_H

#include "cli/client.h"
#include "cli/leftover.h"

#define ENGINE_RUN_BACKENDS 4

/* Its jobs on one engine. */
struct engine_jobs {
    struct cli_backend backend;
    struct leftovers all;
    const struct leftover *jobs;
    size_t count;
};

struct engine_run {
    char uid[40];
    struct engine_jobs at[ENGINE_RUN_BACKENDS];
    size_t count; /* engines that have jobs of it */
};

/* Whether that may be the beginning of a run's id: no engine knows names of runs. */
bool engine_run_is_id(const char *typed);

/* Which jobs of a list are of the run that was typed, or of the one of the registry that was lost (either may be NULL):
 * the first, and how many. 0: none; -EEXIST and a sentence: several runs have such an id. For tests. */
int engine_run_choose(const struct leftovers *l, const char *typed, const struct client_run *lost,
                      const struct leftover **first, struct fbr_error *err);

/* A run of this host, as client_find(): 0 and *run; or one that only engines know: 1 and *e. `only`: no other backend
 * is asked, and the registry only for runs there; NULL: all that are configured. */
int engine_run_find(const char *typed, const char *only, struct client_run *run,
                    struct engine_run *e, struct fbr_error *err);
void engine_run_free(struct engine_run *e);

/* A run of this host, for what only its master can be asked (top, scale, cp, stack: `verb`): 0 and *run. Of one that
 * only engines know the sentence says how its master is asked. */
int engine_run_here(const char *typed, const char *verb, struct client_run *run,
                    struct fbr_error *err);
/* That sentence: an error. For tests. */
int engine_run_elsewhere(const struct engine_jobs *at, const char *verb, struct fbr_error *err);

/* Whether a job is meant: by its name, or by its id there, or `name` is NULL. What is no job is not. */
bool engine_run_wants(const struct leftover *job, const char *name);
/* How many are. None: -ENOENT, and a sentence with the names that there are. */
int engine_run_wanted(const struct engine_run *e, const char *name, struct fbr_error *err);

#endif
