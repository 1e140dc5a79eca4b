/* run_apps.h - several programs in one `fiber run`, as mpirun and mpiexec write them:
 * `fiber run -n 1 A : -n 3 -x VAR=VALUE B`.
 *
 * The words behind a ':' are a program with options of its own: -n, --workdir and variables. All
 * others are the run's, and stand before the first program.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef CLI_RUN_PROGRAMS_H
#define CLI_RUN_PROGRAMS_H

#include "cli/run_env.h"
#include "fiber.h"

struct run_program;

struct run_apps {
    struct fiber_ring_program *list; /* NULL and 0: the operands are one program */
    int count;
    struct run_program *parts; /* what the list points to */
    char **whole;              /* programs by absolute path; NULL: as they were written */
    int nwhole;
};

/* From the operands and options of `fiber run`; -EINVAL and a sentence. Points into args. Free with
 * run_apps_fini(), after a failure, too. */
int run_apps_take(struct run_apps *p, const struct cli_args *args, struct fbr_error *err);
void run_apps_fini(struct run_apps *p);
/* All of them. */
int run_apps_ranks(const struct run_apps *p);

/* For jobs that do not start in this folder: names each program that is an executable file here,
 * and that no --workdir goes with, by its absolute path; also among the operands, which it owns
 * from then on. */
int run_apps_whole(struct run_apps *p, const struct cli_args *args, struct fbr_error *err);
/* The absolute path of "./train", for free(). NULL: `name` is looked for in PATH, is absolute
 * already, or is not an executable file here. */
char *run_program_whole(const char *name);

#endif
