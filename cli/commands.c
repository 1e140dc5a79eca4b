/* commands.c - the list of subcommands, in the order of the help.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <stddef.h>
#include <string.h>

#include "cli/option.h"

extern const struct cli_command cli_run, cli_ps, cli_logs, cli_kill, cli_top, cli_scale, cli_stack,
    cli_cp, cli_exec, cli_gc, cli_doctor, cli_image, cli_kubernetes, cli_config, cli_completion,
    cli_help, cli_version;

const struct cli_command *const cli_commands[] = {
    &cli_run,        &cli_ps,     &cli_logs,       &cli_kill, &cli_top,     &cli_scale,
    &cli_stack,      &cli_cp,     &cli_exec,       &cli_gc,   &cli_doctor,  &cli_image,
    &cli_kubernetes, &cli_config, &cli_completion, &cli_help, &cli_version, NULL};

const struct cli_command *cli_command_find(const char *name)
{
    for (size_t i = 0; cli_commands[i]; i++)
        if (!strcmp(cli_commands[i]->name, name))
            return cli_commands[i];
    return NULL;
}

/* Names that other tools use for the same command: Docker, Kubernetes, Ray, Slurm. */
static const char *const others[][2] = {
    {"cancel", "kill"},  {"delete", "kill"}, {"launch", "run"},  {"list", "ps"},
    {"ls", "ps"},        {"rm", "kill"},     {"start", "run"},   {"status", "ps"},
    {"stop", "kill"},    {"submit", "run"},  {"clean", "gc"},    {"prune", "gc"},
    {"check", "doctor"}, {"attach", "logs"}, {"build", "image"},
};

const char *cli_command_nearest(const char *typed)
{
    struct cli_guess g;

    for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++)
        if (!strcmp(others[i][0], typed))
            return others[i][1];
    cli_guess_begin(&g, typed);
    for (size_t i = 0; cli_commands[i]; i++)
        cli_guess_try(&g, cli_commands[i]->name);
    return g.found;
}
