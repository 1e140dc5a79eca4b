/* ps.c - `fiber ps`: the runs of this user on this host.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/client.h"
#include "cli/option.h"
#include "ring/json_out.h"

enum { PS_ALL, PS_JSON, PS_NAMES, PS_OPTIONS };

static const char *state_of(const struct client_run *run, char out[48])
{
    switch (run->state) {
    case CLIENT_SILENT:
        return "no answer";
    case CLIENT_LOST:
        return "lost";
    case CLIENT_ENDED:
        snprintf(out, 48, "exit %d", run->code);
        return out;
    default:
        if (run->facts.waiting[0])
            return "waiting";
        return run->facts.running ? "running" : "starting";
    }
}

static void put_json(struct fbr_json *j, const struct client_run *run)
{
    char state[48];

    fbr_json_object(j, NULL);
    fbr_json_str(j, "uid", run->about.uid);
    fbr_json_str(j, "name", run->about.name);
    fbr_json_str(j, "command", run->about.command);
    fbr_json_str(j, "backend", run->about.backend);
    fbr_json_str(j, "state", run->state == CLIENT_ENDED ? "ended" : state_of(run, state));
    if (run->state == CLIENT_ENDED)
        fbr_json_int(j, "code", run->code);
    else
        fbr_json_null(j, "code");
    fbr_json_int(j, "pid", run->about.pid);
    fbr_json_int(j, "size", run->about.size);
    fbr_json_int(j, "agents", run->facts.agents);
    fbr_json_int(j, "running", run->facts.running);
    fbr_json_int(j, "ended", run->facts.ended);
    fbr_json_int(j, "restarts", run->facts.restarts);
    fbr_json_int(j, "started_ms", run->about.started_ms);
    fbr_json_str(j, "waiting", run->facts.waiting);
    fbr_json_str(j, "output", run->about.output_dir);
    if (run->state >= CLIENT_ENDED)
        fbr_json_str(j, "report", run->report);
    fbr_json_end_object(j);
}

static int print_json(const struct client_run *runs, size_t count)
{
    struct fbr_json j;
    char *text;

    fbr_json_init(&j);
    fbr_json_array(&j, NULL);
    for (size_t i = 0; i < count; i++)
        put_json(&j, &runs[i]);
    fbr_json_end_array(&j);
    text = fbr_json_take(&j);
    if (!text)
        return cli_failed(1, "out of memory");
    puts(text);
    free(text);
    return 0;
}

static void print_row(const struct client_run *run, int width)
{
    char state[48], ranks[48], age[32], line[1024];
    int n;

    client_age(age, client_now() - run->about.started_ms);
    if (run->state <= CLIENT_SILENT)
        snprintf(ranks, sizeof(ranks), "%d/%d", run->facts.running, run->about.size);
    else
        snprintf(ranks, sizeof(ranks), "%d", run->about.size);
    n = snprintf(line, sizeof(line), "%-9.8s %-16.16s %-10.10s %-9s %9s %8d %9s  %s",
                 run->about.uid, run->about.name, run->about.backend, state_of(run, state), ranks,
                 run->facts.restarts, age, run->about.command);
    if (isatty(STDOUT_FILENO) && n > width)
        snprintf(line + width - 3, 4, "...");
    puts(line);
}

static int run_ps(const struct cli_args *args)
{
    struct fbr_error err = {0, ""};
    struct client_run *runs;
    size_t count;
    int code = 0;

    if (client_list(&runs, &count, args->values[PS_ALL].number > 0, &err) < 0)
        return cli_failed(1, "%s", err.text);
    if (args->values[PS_JSON].number) {
        code = print_json(runs, count);
    } else if (args->values[PS_NAMES].number) {
        for (size_t i = 0; i < count; i++)
            printf("%.8s\n%s\n", runs[i].about.uid, runs[i].about.name);
    } else {
        printf("%-9s %-16s %-10s %-9s %9s %8s %9s  %s\n", "RUN", "NAME", "BACKEND", "STATE",
               "RANKS", "RESTARTS", "AGE", "COMMAND");
        for (size_t i = 0; i < count; i++)
            print_row(&runs[i], cli_width(STDOUT_FILENO));
    }
    client_list_free(runs, count);
    return code;
}

static const struct cli_option options[PS_OPTIONS] = {
    [PS_ALL] = {"all", 'a', CLI_FLAG, .help = "also the last runs that have ended"},
    [PS_JSON] = {"json", 0, CLI_FLAG, .help = "as a JSON array"},
    [PS_NAMES] = {"names", 0, CLI_FLAG, .help = "for completion", .hidden = true},
};

const struct cli_command cli_ps = {
    .name = "ps",
    .operands = "",
    .about = "Lists your runs on this host",
    .text = "RANKS is how many run, of how many there are. A run is named by its id, the beginning "
            "of it, or "
            "its name in "
            "logs, kill and top.",
    .examples = "fiber ps\twhat runs\nfiber ps -a\talso what has ended, and how\nfiber ps "
                "--json\tfor programs",
    .options = options,
    .count = PS_OPTIONS,
    .run = run_ps,
};
