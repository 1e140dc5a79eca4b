/* slurm_args.h - the options, scripts and environments of Slurm's commands; pure.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "runtime/program/args.h"
#include "runtime/proc/backend.h"
#include "runtime/base/buf.h"

/* Stands in the environment of jobs that sbatch starts for us, followed by our folder: the job has
 * an allocation of its own, which has no room for further jobs. */
#define FBR_SLURM_OWN "own:"

/* The remedy, where something names a cluster for sbatch alone. */
#define FBR_SLURM_CLUSTERS "set SLURM_CLUSTERS instead, for all of Slurm's commands"

struct fbr_slurm_settings {
    /* from the configuration; "": not set */
    const char *partition, *account, *qos, *constraint, *time;
    struct fbr_args options;
    unsigned poll_ms;
};

/* -EINVAL: slurm_options is not a list of words, names a cluster, or has an option that Fiber needs
 * for itself (--array, --wrap, --test-only, --job-name, --output, --error). */
int fbr_slurm_settings_load(struct fbr_slurm_settings *s, const struct fbr_config *config,
                            struct fbr_error *err);
void fbr_slurm_settings_fini(struct fbr_slurm_settings *s);

/* Whole processors; 0: the job requests none. */
unsigned fbr_slurm_cpus(const struct fbr_job *job);
/* Adds --cpus-per-task, --mem, --gres; without memory, w->failed is set. */
void fbr_slurm_add_needs(struct fbr_args *w, const struct fbr_job *job);
/* Returns the value of this option in slurm_options; NULL: they do not have it. `letter`: its short
 * form; '=': it has none. */
const char *fbr_slurm_option(const struct fbr_slurm_settings *s, const char *name, char letter);
/* The same for --partition and the others, and slurm_options. */
void fbr_slurm_add_settings(struct fbr_args *w, const struct fbr_slurm_settings *s);
/* Returns the partitions in which sbatch will look for nodes: their names, or "" for the default
 * one. `variable`: SBATCH_PARTITION, or NULL. */
const char *fbr_slurm_partition(const struct fbr_slurm_settings *s, const char *variable);
/* Keeps the characters that every part of Slurm accepts; others become '_'. */
void fbr_slurm_name(const char *name, char *out, size_t size);

/* Writes the script that runs `program` in its place, in `workdir` (NULL: the folder that sbatch
 * chose). `ticket`: the path of the ticket up to the index in the array and ".ticket"; NULL: the
 * job gets none. */
void fbr_slurm_script(struct fbr_buf *b, const char *program, char *const *argv,
                      const char *workdir, const char *ticket);

enum fbr_slurm_env { FBR_SLURM_FOR_SRUN, FBR_SLURM_FOR_SBATCH, FBR_SLURM_FOR_TOOLS };

/* Returns `env` without the variables that would change the meaning of our commands, and with
 * `more` (NULL: nothing) at its end. The strings stay the caller's; free the array. NULL without
 * memory. */
char **fbr_slurm_env(char *const *env, enum fbr_slurm_env kind, const char *const *more);
