/* in_cluster.h - a master that runs in a pod of Kubernetes, as if it ran here: its output, its
 * signals, its exit code.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef CLI_IN_CLUSTER_H
#define CLI_IN_CLUSTER_H

#include "cli/backend_client.h"
#include "cli/option.h"
#include "cli/run_options.h"

/* Returns the name of the backend of which a master can be a job. NULL, after a message: `named`,
 * which may be NULL, is another one. */
const char *in_cluster_backend(const char *named);
/* `fiber run` with these options, there. Answers the exit code. */
int in_cluster_run(const struct run_options *spec, const struct cli_args *args);
/* The program that the operands from the second on are; `env` is a list of VAR[=VALUE]. */
int in_cluster_master(const struct cli_args *args, const struct cli_value *env, bool quiet);

/* Returns the Job that in_cluster_run() would make for its master, as YAML or JSON, for free().
 * -errno and a sentence. */
int in_cluster_show(const struct run_options *spec, const struct cli_args *args,
                    const struct fbr_config *config, int json, char **text, struct fbr_error *err);
/* Whether that server would take its pod: 0 or -errno, and what it says. */
int in_cluster_would(const struct run_options *spec, const struct cli_args *args,
                     struct cli_backend *b, fbr_backend_report *say, void *user);

/* Accounts, Role and RoleBinding of masters of that name as YAML, on standard output
 * (kubernetes_command.c). */
void kubernetes_put_rights(const char *name, const char *namespace);
void kubernetes_put_rights_json(const char *name, const char *namespace);

/* For tests: the words of `fiber run` there. Variables are given by name only, their values go by
 * the environment. NULL-terminated, for fbr_list_free(); NULL without memory. */
char **in_cluster_words(const struct run_options *spec, const struct cli_args *args);

#endif
