/* slurm_args.c - the options, scripts and environments of Slurm's commands.
 *
 * The environment matters as much as the arguments, because its variables change the effect of each
 * command. So srun gets the allocation's variables, but not the options that another srun, salloc
 * or a script left there: a script sets SRUN_CPUS_PER_TASK to what a rank gets, and our srun starts
 * the agent of a node. sbatch gets no variable of the allocation in which we may run, but keeps the
 * user's SBATCH_*. The commands that query states get no filters.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "backends/slurm/slurm_args.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "runtime/base/environ.h"

#define MIB ((uint64_t)1 << 20)

/* Returns the value of option i, written in one word or two; NULL: it is another option. */
static const char *value_of(const struct fbr_args *w, size_t i, const char *name, char letter)
{
    const char *at = w->at[i], *next = i + 1 < w->n ? w->at[i + 1] : "";
    size_t n = strlen(name);

    if (at[0] != '-')
        return NULL;
    if (at[1] == letter)
        return at[2] ? at + 2 : next;
    if (strncmp(at, "--", 2) != 0 || strncmp(at + 2, name, n) != 0)
        return NULL;
    return at[2 + n] == '=' ? at + 3 + n : at[2 + n] ? NULL : next;
}

#define OTHERS "Fiber itself decides how many jobs there are, and what they run"
#define FINDS "by this name Fiber finds its jobs, also those of a dead master"
#define READS "Fiber reads what a job prints from files in slurm_dir, and prints it"

/* Options that Fiber needs for itself; and those that only sbatch would get: squeue and scancel
 * would look on this host's own cluster. */
static const struct {
    const char *name;
    char letter; /* '=': none */
    const char *why;
} reserved[] = {{"array", 'a', OTHERS},
                {"wrap", '=', OTHERS},
                {"test-only", '=', OTHERS},
                {"job-name", 'J', FINDS},
                {"output", 'o', READS},
                {"error", 'e', READS},
                {"clusters", 'M', FBR_SLURM_CLUSTERS},
                {"cluster", 'M', FBR_SLURM_CLUSTERS}};

static int refuse_reserved(const struct fbr_args *options, struct fbr_error *err)
{
    for (size_t i = 0; i < options->n; i++)
        for (size_t k = 0; k < sizeof(reserved) / sizeof(reserved[0]); k++)
            if (value_of(options, i, reserved[k].name, reserved[k].letter))
                return fbr_fail(err, -EINVAL, "slurm_options must not have %.60s: %s",
                                options->at[i], reserved[k].why);
    return 0;
}

int fbr_slurm_settings_load(struct fbr_slurm_settings *s, const struct fbr_config *config,
                            struct fbr_error *err)
{
    memset(s, 0, sizeof(*s));
    s->partition = fbr_config_str(config, "slurm_partition");
    s->account = fbr_config_str(config, "slurm_account");
    s->qos = fbr_config_str(config, "slurm_qos");
    s->constraint = fbr_config_str(config, "slurm_constraint");
    s->time = fbr_config_str(config, "slurm_time");
    s->poll_ms = (unsigned)fbr_config_ms(config, "slurm_poll");
    if (fbr_args_split(&s->options, fbr_config_str(config, "slurm_options"), err) < 0)
        return fbr_wrap(err, "slurm_options");
    return refuse_reserved(&s->options, err);
}

void fbr_slurm_settings_fini(struct fbr_slurm_settings *s)
{
    fbr_args_fini(&s->options);
}

unsigned fbr_slurm_cpus(const struct fbr_job *job)
{
    unsigned whole = job->cpus > 0 && job->cpus <= 1e6 ? (unsigned)job->cpus : 0;

    return whole + (job->cpus > whole);
}

void fbr_slurm_add_needs(struct fbr_args *w, const struct fbr_job *job)
{
    unsigned long long mib = job->memory ? (job->memory - 1) / MIB + 1 : 0;

    if (job->cpus > 0)
        fbr_args_addf(w, "--cpus-per-task=%u", fbr_slurm_cpus(job));
    if (mib)
        fbr_args_addf(w, "--mem=%lluM", mib);
    if (job->gpus > 0)
        fbr_args_addf(w, "--gres=gpu:%d", job->gpus);
}

void fbr_slurm_add_settings(struct fbr_args *w, const struct fbr_slurm_settings *s)
{
    const struct {
        const char *option, *value;
    } settings[] = {{"partition", s->partition},
                    {"account", s->account},
                    {"qos", s->qos},
                    {"constraint", s->constraint},
                    {"time", s->time}};

    for (size_t i = 0; i < sizeof(settings) / sizeof(settings[0]); i++)
        if (settings[i].value[0])
            fbr_args_addf(w, "--%s=%s", settings[i].option, settings[i].value);
    fbr_args_add_all(w, s->options.at);
}

const char *fbr_slurm_option(const struct fbr_slurm_settings *s, const char *name, char letter)
{
    const char *found = NULL, *value;

    for (size_t i = 0; i < s->options.n; i++) { /* the last one counts */
        value = value_of(&s->options, i, name, letter);
        found = value ? value : found;
    }
    return found;
}

const char *fbr_slurm_partition(const struct fbr_slurm_settings *s, const char *variable)
{
    const char *found = fbr_slurm_option(s, "partition", 'p');

    return found ? found : s->partition[0] ? s->partition : variable ? variable : "";
}

void fbr_slurm_name(const char *name, char *out, size_t size)
{
    static const char good[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-_";

    snprintf(out, size, "%s", name);
    for (char *at = out; *at; at++)
        if (!strchr(good, *at))
            *at = '_';
}

/* ---- The script ---- */

void fbr_slurm_script(struct fbr_buf *b, const char *program, char *const *argv,
                      const char *workdir, const char *ticket)
{
    fbr_putf(b, "#!/bin/sh\n");
    if (workdir) {
        fbr_putf(b, "cd -- ");
        fbr_args_quote(b, workdir);
        fbr_putf(b, " || exit 125\n");
    }
    if (ticket) {
        fbr_putf(b, "FIBER_TICKET=file:");
        fbr_args_quote(b, ticket);
        fbr_putf(b, "${SLURM_ARRAY_TASK_ID:-0}.ticket\nexport FIBER_TICKET\n");
    }
    /* the shell's own message is unclear, and does not name the host */
    if (strchr(program, '/')) {
        fbr_putf(b, "test -e ");
        fbr_args_quote(b, program);
        fbr_putf(b, " || { echo \"$(hostname): no such file: \"");
        fbr_args_quote(b, program);
        fbr_putf(b, " >&2; exit 127; }\n");
    }
    fbr_putf(b, "exec ");
    fbr_args_quote(b, program);
    for (size_t i = 1; argv && argv[0] && argv[i]; i++) {
        fbr_putf(b, " ");
        fbr_args_quote(b, argv[i]);
    }
    fbr_putf(b, "\n");
}

/* ---- Environments ---- */

/* Options of srun that salloc, sbatch or another srun put into the environment. */
static const char *const of_srun[] = {
    "SLURM_STDOUTMODE=",   "SLURM_STDERRMODE=",  "SLURM_STDINMODE=",     "SLURM_LABELIO=",
    "SLURM_NTASKS",        "SLURM_NPROCS=",      "SLURM_GPUS",           "SLURM_GPU_",
    "SLURM_DISTRIBUTION=", "SLURM_HINT=",        "SLURM_THREADS",        "SLURM_CPU_BIND",
    "SLURM_MEM_BIND",      "SLURM_MEM_PER_",     "SLURM_CPUS_PER_",      "SLURM_TRES_PER_TASK=",
    "SLURM_EXCLUSIVE=",    "SLURM_EXACT=",       "SLURM_OVERLAP=",       "SLURM_WHOLE=",
    "SLURM_RESV_PORTS=",   "SLURM_WORKING_DIR=", "SLURM_MULTI_PROG=",    "SLURM_OVERCOMMIT=",
    "SLURM_EXPORT_ENV=",   "SLURM_JOB_NAME=",    "SLURM_KILL_BAD_EXIT=", "SLURM_WAIT=",
    "SLURM_NO_KILL=",      "SLURM_TIMELIMIT=",   "SLURM_GRES",           "SLURM_UNBUFFEREDIO=",
    "SLURM_DEBUG=",        "SLURMD_DEBUG=",      "SLURM_OPEN_MODE=",     "SLURM_RELATIVE=",
    "SLURM_NETWORK=",      "SLURM_MPI_TYPE=",    "SLURM_PROFILE=",       "SLURM_SPREAD_JOB=",
    "SLURM_STEP_",         "SLURM_HET_",         "SLURM_HOSTFILE=",      "SLURM_BCAST",
    "SLURM_CONSTRAINT=",   "SLURM_CORE_SPEC=",   "SLURM_IMMEDIATE=",     "SLURM_SLURMD_DEBUG=",
    "SLURM_TASK_EPILOG=",  "SLURM_TASK_PROLOG=", "SLURM_PROLOG=",        "SLURM_EPILOG=",
    "SRUN_CPUS_PER_TASK=", "SRUN_INPUT=",        "SRUN_OUTPUT=",         "SRUN_ERROR=",
    "SRUN_DEBUG=",         "SRUN_EXPORT_ENV=",   "FIBER_TICKET=",        NULL};
/* Variables of an allocation, in which the new job is not; and variables that would make sbatch
 * another command. */
static const char *const of_sbatch[] = {"SLURM_",      "SLURMD_",           "SBATCH_WAIT=",
                                        "SBATCH_WRAP", "SBATCH_ARRAY_INX=", "SBATCH_TEST_ONLY=",
                                        "SRUN_",       "FIBER_TICKET=",     NULL};
static const char *const of_tools[] = {
    "SQUEUE_", "SCANCEL_", "SACCT_", "SINFO_", "SLURM_TIME_FORMAT=", "SLURM_BITSTR_LEN=", NULL};
/* Variables by which the commands find Slurm. */
static const char *const always[] = {"SLURM_CONF", "SLURM_JWT=", "SLURM_CLUSTERS=", NULL};

static bool drops(const void *user, const char *setting)
{
    static const char *const *const lists[] = {[FBR_SLURM_FOR_SRUN] = of_srun,
                                               [FBR_SLURM_FOR_SBATCH] = of_sbatch,
                                               [FBR_SLURM_FOR_TOOLS] = of_tools};
    enum fbr_slurm_env kind = *(const enum fbr_slurm_env *)user;

    if (kind != FBR_SLURM_FOR_TOOLS && fbr_strings_begin(setting, always))
        return false;
    return fbr_strings_begin(setting, lists[kind]);
}

char **fbr_slurm_env(char *const *env, enum fbr_slurm_env kind, const char *const *more)
{
    return fbr_environ_without(env, drops, &kind, more);
}
