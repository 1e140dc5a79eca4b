/* kill.c - `fiber kill`: ends a run, or sends its ranks a signal.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <ctype.h>
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "cli/client.h"
#include "cli/option.h"

enum { KILL_SIGNAL, KILL_OPTIONS };

/* "USR1", "SIGUSR1" or "10"; -EINVAL. */
static int signal_named(const char *text)
{
    char *end;
    long v;

    if (!strncasecmp(text, "SIG", 3))
        text += 3;
    if (isdigit((unsigned char)text[0])) {
        v = strtol(text, &end, 10);
        return *end || v < 1 || v >= NSIG ? -EINVAL : (int)v;
    }
    for (int i = 1; i < NSIG; i++)
        if (sigabbrev_np(i) && !strcasecmp(sigabbrev_np(i), text))
            return i;
    return -EINVAL;
}

static int run_kill(const struct cli_args *args)
{
    const char *name = args->values[KILL_SIGNAL].text;
    int sig = name ? signal_named(name) : SIGTERM, rank = -1, rc;
    struct fbr_error err = {0, ""};
    struct client_run run;

    if (sig < 0) {
        fbr_fail(&err, -EINVAL, "--signal: there is no signal %.32s", name);
        return cli_usage(args->command, &err);
    }
    if (client_find(args->operands[0], &run, &err) < 0)
        return cli_failed(1, "%s", err.text);
    if (args->noperands > 1)
        rank = client_rank(args->operands[1], &run, &err);
    if (err.code)
        rc = err.code;
    else if (run.state >= CLIENT_ENDED)
        rc = fbr_fail(&err, -ESRCH, "run %.16s has ended already", run.about.uid);
    else if (!name && rank < 0)
        rc = client_ask(&run, FBR_CONTROL_STOP, -1, 0, &err);
    else
        rc = client_ask(&run, FBR_CONTROL_SIGNAL, rank, sig, &err);
    if (rc == -ECONNRESET && !name && rank < 0)
        rc = 0; /* it has ended, before it could say so */
    client_free(&run);
    return rc < 0 ? cli_failed(1, "%s", err.text) : 0;
}

static const struct cli_option options[KILL_OPTIONS] = {
    [KILL_SIGNAL] = {"signal", 's', CLI_TEXT, "S",
                     .help = "sends this signal, such as USR1 or KILL, and nothing more"},
};

const struct cli_command cli_kill = {
    .name = "kill",
    .operands = "RUN [RANK]",
    .kind = CLI_RUN_SIGNAL,
    .about = "Ends a run, or sends its ranks a signal",
    .text = "Without --signal and RANK the run is stopped as Ctrl-C would: its ranks are told "
            "(SIGTERM), "
            "given their grace, "
            "and killed. With RANK alone that rank gets SIGTERM, and what follows is what "
            "--on-failure of "
            "the run says.\n\n"
            "Of a pool the program that has it gets SIGTERM; RANK is the number of a worker, which "
            "is killed and replaced.",
    .examples = "fiber kill train\tstop the run of that name\n"
                "fiber kill 3fa9 --signal KILL\tkill its ranks at once\n"
                "fiber kill train 3 -s USR1\ta signal to rank 3",
    .options = options,
    .count = KILL_OPTIONS,
    .least = 1,
    .most = 2,
    .run = run_kill,
};
