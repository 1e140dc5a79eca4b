/* in_cluster.h - a master that runs in a pod of Kubernetes with the behaviour of a local one: its
 * output, its signals, its exit code.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdatomic.h>

#include "cli/backend_client.h"
#include "cli/option.h"
#include "cli/run_options.h"
#include "runtime/base/printable.h"

/* Returns the name of the backend that can start a master as a job. NULL, after a message: `named`,
 * which may be NULL, is another backend. */
const char *in_cluster_backend(const char *named);
/* Runs `fiber run` with these options in the cluster. Returns the exit code. */
int in_cluster_run(const struct run_options *spec, const struct cli_args *args);
/* Runs a program as a master in the cluster: the operands from the second on are the program and
 * its arguments; `env` is a list of VAR[=VALUE]. */
int in_cluster_master(const struct cli_args *args, const struct cli_value *env, bool quiet);
/* The job of the master that in_cluster_run() starts; for a dry run, too. */
struct in_cluster_draft {
    struct fbr_job job;
    char **words, **env;
};

/* -ENOMEM and a message. Free with in_cluster_draft_fini() in each case. */
int in_cluster_draft(struct in_cluster_draft *d, const struct run_options *spec,
                     const struct cli_args *args, struct fbr_error *err);
void in_cluster_draft_fini(struct in_cluster_draft *d);

/* Prints the accounts, Role and RoleBinding of masters with that name on standard output, as YAML
 * (kubernetes_command.c). */
void kubernetes_put_rights(const char *name, const char *namespace);

/* For tests: makes the command line of `fiber run` in the cluster. Variables are given by name
 * only; their values are passed in the environment. NULL-terminated, for fbr_list_free(); NULL
 * without memory. */
char **in_cluster_words(const struct run_options *spec, const struct cli_args *args);
/* For tests: writes the master's output to standard output. A terminal gets no control sequences
 * except those that the filter passes. False: it has no reader, or after *stopped a slow one. */
bool in_cluster_print(struct fbr_printable_filter *filter, const atomic_bool *stopped,
                      const char *data, size_t len);
