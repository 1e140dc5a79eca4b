/* main.c - the `fiber` command: finds the subcommand, parses its options, runs it.
 *
 * The agents of a ring are this program too, so fiber_init() comes first: in an agent it does not
 * return.
 *
 * Exit codes: 2 for wrong usage and for an invalid configuration; each subcommand's table has the
 * others.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "cli/option.h"
#include "fiber.h"
#include "runtime/base/config_value.h"
#include "runtime/base/fds.h"
#include "runtime/base/log.h"

/* Reports an unknown command. If more words follow, as in `fiber -np 2 ./train`, it may be the
 * command line of another launcher. */
static int unknown_command(const char *typed, const char *next)
{
    const char *near = cli_command_nearest(typed);

    if (typed[0] == '-' && next)
        return cli_failed(2,
                          "there is no option %s before the subcommand; to start a program, use "
                          "fiber run %s %s ...",
                          typed, typed, next);
    if (typed[0] == '-')
        return cli_failed(2, "there is no option %s; try `fiber help`", typed);
    if (near)
        return cli_failed(2, "there is no subcommand %s; did you mean `fiber %s`?", typed, near);
    if (!access(typed, X_OK))
        return cli_failed(2, "there is no subcommand %s; to start that program, use fiber run %s",
                          typed, typed);
    return cli_failed(2, "there is no subcommand %s; try `fiber help`", typed);
}

/* Whether a command needs a valid configuration; `config` and `doctor` report an invalid one. */
static bool needs_configuration(const struct cli_command *c)
{
    return fbr_word_index("config doctor completion help version", c->name) < 0;
}

static int run_command(const struct cli_command *c, int argc, char **argv, int init)
{
    struct fbr_error err = {0, ""};
    struct cli_args args;
    int code;

    if (cli_parse(c, argc, argv, &args, &err) < 0)
        return cli_usage(c, &err);
    if (args.version) {
        printf("fiber %s\n", fiber_version());
        code = 0;
    } else if (args.help) {
        cli_help_command(stdout, c, cli_width(STDOUT_FILENO));
        code = 0;
    } else if (init < 0 && needs_configuration(c)) {
        code = cli_failed(2, "%s", fiber_last_error());
    } else if (cli_args_configure(&args, &err) < 0) {
        code = cli_usage(c, &err);
    } else {
        code = c->run(&args);
    }
    cli_args_fini(&args);
    /* ferror(): an earlier flush has failed */
    if (fflush(stdout) != 0 && code == 0)
        code = cli_failed(1, "cannot write standard output: %m");
    else if (ferror(stdout) && code == 0)
        code = cli_failed(1, "cannot write standard output");
    return code;
}

/* If stdio is closed, the first sockets would become descriptors 0 to 2 and receive messages for
 * the user. Writing to a closed standard output must fail, so that the loss of output is
 * noticed. */
static void open_standard(void)
{
    bool closed = fcntl(STDOUT_FILENO, F_GETFD) < 0;
    int fd;

    do
        fd = open("/dev/null", O_RDWR);
    while (fd >= 0 && fd <= STDERR_FILENO);
    fbr_fds_close(fd);
    fd = closed ? open("/dev/null", O_RDONLY) : -1;
    if (fd >= 0) {
        dup2(fd, STDOUT_FILENO);
        close(fd);
    }
}

int main(int argc, char **argv)
{
    const struct cli_command *c;
    const char *name;
    int init;

    open_standard();
    fbr_log_name(NULL);
    /* ulimit -f: a write beyond the limit becomes an ordinary error */
    signal(SIGXFSZ, SIG_IGN);
    /* if it is inherited as ignored, the exit status of children is lost */
    signal(SIGCHLD, SIG_DFL);
    init = fiber_init(&argc, &argv);
    if (argc < 2) {
        cli_help_short(stderr, cli_width(STDERR_FILENO));
        return 2;
    }
    name = argv[1];
    if (!strcmp(name, "__complete") && argc > 2) {
        cli_complete(stdout, argc - 2, argv + 2);
        return 0;
    }
    if (!strcmp(name, "--help") || !strcmp(name, "-h"))
        name = "help";
    if (!strcmp(name, "--version") || !strcmp(name, "-V"))
        name = "version";
    c = cli_command_find(name);
    return c ? run_command(c, argc - 2, argv + 2, init) : unknown_command(name, argv[2]);
}
