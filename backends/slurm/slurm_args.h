/* slurm_args.h - what Slurm is asked for: options, the script of a batch job, environments; pure.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef FBR_SLURM_WORDS_H
#define FBR_SLURM_WORDS_H

#include "backends/tool/args.h"
#include "runtime/proc/backend.h"
#include "runtime/base/buf.h"

/* In the environment of what sbatch starts for us, with our folder after it: it is in an allocation
 * that is its own, which has no room for jobs of its. */
#define FBR_SLURM_OWN "own:"

struct fbr_slurm_settings {
    const char *partition, *account, *qos, *constraint, *time; /* the configuration's; "" */
    struct fbr_args options;
    unsigned poll_ms;
};

int fbr_slurm_settings_load(struct fbr_slurm_settings *s, const struct fbr_config *config,
                            struct fbr_error *err);
void fbr_slurm_settings_fini(struct fbr_slurm_settings *s);

/* Adds text as one word. */
int fbr_slurm_add(struct fbr_args *w, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* Whole processors; 0: it did not say. */
unsigned fbr_slurm_cpus(const struct fbr_job *job);
/* Adds --cpus-per-task, --mem, --gres. */
int fbr_slurm_add_needs(struct fbr_args *w, const struct fbr_job *job);
/* Adds --partition and the others, and slurm_options. */
int fbr_slurm_add_settings(struct fbr_args *w, const struct fbr_slurm_settings *s);
/* Where sbatch will look for nodes: names of partitions, "" for the default one. `variable`:
 * SBATCH_PARTITION, or NULL. NULL: on another cluster. */
const char *fbr_slurm_partition(const struct fbr_slurm_settings *s, const char *variable);
/* Letters that every part of Slurm takes; others become '_'. */
void fbr_slurm_name(const char *name, char *out, size_t size);

/* The script that becomes `program`, in `workdir` (NULL: where sbatch put it). `ticket`: where
 * it is, and after it comes the index in the array and ".ticket"; NULL: it gets none. */
void fbr_slurm_script(struct fbr_buf *b, const char *program, char *const *argv,
                      const char *workdir, const char *ticket);

enum fbr_slurm_env { FBR_SLURM_FOR_SRUN, FBR_SLURM_FOR_SBATCH, FBR_SLURM_FOR_TOOLS };

/* `env` without what would change the meaning of our commands, and with `more` (NULL: nothing)
 * at its end. The strings are the caller's; the array is to be freed. NULL without memory. */
char **fbr_slurm_env(char *const *env, enum fbr_slurm_env kind, const char *const *more);

#endif
