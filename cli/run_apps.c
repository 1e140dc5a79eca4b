/* run_apps.c - parses several programs in one `fiber run`.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "cli/run_apps.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/run_table.h"
#include "runtime/base/buf.h"

#define OWN "to give the program a ':' argument, use sh -c 'PROGRAM ...'"

struct run_program {
    struct cli_args args; /* for a program after a ':' */
    struct fbr_env env;
    char **command; /* NULL-terminated; the strings are not owned */
    int at;         /* index of its name among the operands of all programs */
};

/* Returns where the program at `from` ends: at a ':' before an option, or at the end; a program's
 * own arguments may contain a ':' too. */
static int end_of(const struct cli_args *args, int from)
{
    int i = from;

    while (i < args->noperands && (strcmp(args->operands[i], ":") != 0 ||
                                   (i + 1 < args->noperands && args->operands[i + 1][0] != '-')))
        i++;
    return i;
}

static bool is_of_a_program(size_t option)
{
    return option == RUN_N || option == RUN_WORKDIR || option == RUN_ENV ||
           option == RUN_ENV_FILE || option == RUN_GENV || option == RUN_MCA ||
           run_option_table[option].type == CLI_NOTHING;
}

static int check_options(const struct cli_args *args, struct fbr_error *err)
{
    for (size_t i = 0; i < RUN_OPTIONS; i++)
        if (args->values[i].text && !is_of_a_program(i))
            return fbr_fail(err, -EINVAL,
                            "--%s is for the whole run: put it before the first program",
                            run_option_table[i].name);
    /* nothing else was checked, so there may be no operands */
    if (args->help || args->version)
        return fbr_fail(err, -EINVAL, "put --%s before the first program",
                        args->help ? "help" : "version");
    return args->operands[0][0] ? 0 : fbr_fail(err, -EINVAL, "the program's name is empty");
}

/* A master in the cluster gets the variables by a Secret, one value for each name. */
static int take_env(struct run_program *part, const struct cli_args *all, struct fbr_error *err)
{
    int rc = run_env_take(&part->env, &part->args, err);

    if (rc < 0)
        return rc;
    if (part->env.count && all->values[RUN_IN_CLUSTER].number)
        return fbr_fail(err, -EINVAL,
                        "with --in-cluster variables are for all programs: put them before the "
                        "first program");
    return 0;
}

/* Parses the words from..to: the first program, or a program after a ':'. */
static int take_program(struct run_apps *p, const struct cli_args *all, int from, int to,
                        struct fbr_error *err)
{
    size_t n = (size_t)p->count;
    struct fiber_ring_program *program = fbr_grow(&p->list, n, sizeof(*p->list));
    struct run_program *part = fbr_grow(&p->parts, n, sizeof(*p->parts));
    const struct cli_args *args = n ? &part->args : all;
    int rc, words = to - from;
    struct fbr_error why;

    if (!program || !part)
        return fbr_fail(err, -ENOMEM, "out of memory");
    p->count++;
    if (args != all) {
        if ((rc = cli_parse(all->command, words, all->operands + from, &part->args, err)) < 0 ||
            (rc = check_options(args, err)) < 0) {
            why = *err;
            return fbr_fail(err, rc, "after ':': %.800s; " OWN, why.text);
        }
        rc = take_env(part, all, err);
        if (rc < 0)
            return fbr_wrap(err, "after ':'");
        words = args->noperands;
    }
    if (words == 0)
        return fbr_fail(err, -EINVAL, "the program before ':' is missing");
    if (!args->values[RUN_N].text)
        return fbr_fail(err, -EINVAL,
                        "the number of ranks of %.64s is missing: with several programs each needs "
                        "its own -n: fiber run -n 1 A : -n 3 B (" OWN ")",
                        args->operands[0]);
    part->command = calloc((size_t)words + 1, sizeof(*part->command));
    if (!part->command)
        return fbr_fail(err, -ENOMEM, "out of memory");
    memcpy(part->command, args->operands, (size_t)words * sizeof(*part->command));
    part->at = to - words;
    *program = (struct fiber_ring_program){.count = (int)args->values[RUN_N].number,
                                           .command = (const char *const *)part->command,
                                           .env = (const char *const *)part->env.list,
                                           .workdir = args->values[RUN_WORKDIR].text};
    return 0;
}

int run_apps_take(struct run_apps *p, const struct cli_args *args, struct fbr_error *err)
{
    int rc;

    *p = (struct run_apps){0};
    if (end_of(args, 0) == args->noperands)
        return 0;
    for (int at = 0; at <= args->noperands; at = end_of(args, at) + 1)
        if ((rc = take_program(p, args, at, end_of(args, at), err)) < 0)
            return rc;
    if (run_apps_ranks(p) > RUN_RANKS_MAX)
        return fbr_fail(err, -EINVAL, "a run has at most %d ranks", RUN_RANKS_MAX);
    return 0;
}

int run_apps_ranks(const struct run_apps *p)
{
    long long ranks = 0;

    for (int i = 0; i < p->count; i++)
        ranks += p->list[i].count;
    return ranks > RUN_RANKS_MAX ? RUN_RANKS_MAX + 1 : (int)ranks;
}

char *run_program_whole(const char *name)
{
    const char *slash = strrchr(name, '/');
    char *folder, *real, *whole = NULL;
    struct stat st;

    if (!slash || name[0] == '/' || stat(name, &st) < 0 || !S_ISREG(st.st_mode) ||
        access(name, X_OK) < 0)
        return NULL;
    folder = strndup(name, (size_t)(slash - name));
    real = folder ? realpath(folder, NULL) : NULL; /* the file itself may stay a link */
    if (real && asprintf(&whole, "%s%s", strcmp(real, "/") ? real : "", slash) < 0)
        whole = NULL;
    free(real);
    free(folder);
    return whole;
}

int run_apps_whole(struct run_apps *p, const struct cli_args *args, struct fbr_error *err)
{
    int n = p->count ? p->count : 1;

    p->whole = calloc((size_t)n, sizeof(*p->whole));
    if (!p->whole)
        return fbr_fail(err, -ENOMEM, "out of memory");
    for (int i = 0; i < n; i++) {
        const char *workdir = p->count ? p->list[i].workdir : args->values[RUN_WORKDIR].text;
        int at = p->count ? p->parts[i].at : 0;
        char *whole = workdir ? NULL : run_program_whole(args->operands[at]);

        if (!whole)
            continue;
        p->whole[p->nwhole++] = args->operands[at] = whole;
        if (p->count)
            p->parts[i].command[0] = whole;
    }
    return 0;
}

void run_apps_fini(struct run_apps *p)
{
    for (int i = 0; i < p->nwhole; i++)
        free(p->whole[i]);
    free(p->whole);
    for (int i = 0; i < p->count; i++) {
        if (p->parts[i].args.values)
            cli_args_fini(&p->parts[i].args);
        fbr_env_fini(&p->parts[i].env);
        free(p->parts[i].command);
    }
    free(p->list);
    free(p->parts);
    *p = (struct run_apps){0};
}
