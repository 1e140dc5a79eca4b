/* run_apps.h - several programs in one `fiber run`, in the syntax of mpirun and mpiexec: `fiber run
 * -n 1 A : -n 3 -x VAR=VALUE B`.
 *
 * The words after a ':' are a program with options of its own: -n, --workdir and variables. All
 * other options apply to the run, and stand before the first program.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "cli/run_env.h"
#include "fiber.h"

struct run_program;

struct run_apps {
    struct fiber_ring_program *list; /* NULL and 0: the operands are one program */
    int count;
    struct run_program *parts; /* the data to which the list points */
    char **whole;              /* programs by absolute path; NULL: as written */
    int nwhole;
};

/* Parses the operands and options of `fiber run`; -EINVAL and a message. Points into args. Free
 * with run_apps_fini(), also after a failure. */
int run_apps_take(struct run_apps *p, const struct cli_args *args, struct fbr_error *err);
void run_apps_fini(struct run_apps *p);
/* Returns the ranks of all programs. */
int run_apps_ranks(const struct run_apps *p);

/* For jobs that do not start in this folder: replaces the name of each program that is an
 * executable file here, and has no --workdir, by its absolute path; also in the operands. *p owns
 * the new names. */
int run_apps_whole(struct run_apps *p, const struct cli_args *args, struct fbr_error *err);
/* Returns the absolute path of "./train", for free(). NULL: `name` is searched in PATH, is already
 * absolute, or is not an executable file here. */
char *run_program_whole(const char *name);
