/* logs.c - `fiber logs`: what the ranks of a run print, from now on; for one that has ended, where
 * it is.
 *
 * Fiber keeps no copy of what ranks print: a run with --output has files.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/client.h"
#include "cli/option.h"

enum { LOGS_FOLLOW, LOGS_TAG, LOGS_OPTIONS };

struct printer {
    bool tag;
    bool failed; /* our own output is gone */
    bool within; /* the last part did not end its line */
};

static void on_line(void *user, int rank, int stream, bool more, const void *data, size_t len)
{
    struct printer *p = user;
    FILE *out = stream == 2 ? stderr : stdout;

    if (p->tag && !p->within && rank >= 0)
        fprintf(out, "[%d] ", rank);
    fwrite(data, 1, len, out);
    if (!more && (!len || ((const char *)data)[len - 1] != '\n'))
        fputc('\n', out);
    p->within = more;
    if (fflush(out) != 0)
        _exit(1); /* whoever read it has gone */
}

static int follow(struct client_run *run, int rank, const struct cli_args *args)
{
    struct printer p = {.tag = rank < 0 && args->values[LOGS_TAG].number > 0};
    struct fbr_error err = {0, ""};
    int code = 0;

    if (client_follow(run, rank, on_line, &p, &code, &err) < 0)
        return cli_failed(1, "%s", err.text);
    if (code)
        fprintf(stderr, "fiber: run %.16s has ended with code %d\n", run->about.uid, code);
    return 0;
}

/* The file to standard output. 0, or -errno. */
static int copy_file(const char *path)
{
    char data[65536];
    int fd = open(path, O_RDONLY | O_CLOEXEC), rc = fd < 0 ? -errno : 0;
    ssize_t n = 0;

    while (fd >= 0 && (n = read(fd, data, sizeof(data))) > 0)
        if (fwrite(data, 1, (size_t)n, stdout) != (size_t)n)
            break;
    if (n < 0)
        rc = -errno;
    if (fd >= 0)
        close(fd);
    return rc;
}

/* From the files of --output: those of one rank, or where they are. */
static int show_files(const struct client_run *run, int rank)
{
    static const char *const ends[] = {"out", "err"};
    char path[600];
    bool any = false;
    struct stat st;

    if (rank < 0) {
        printf("%s\n", run->about.output_dir);
        return stat(run->about.output_dir, &st) < 0 ? cli_failed(1, "%s: %m", run->about.output_dir)
                                                    : 0;
    }
    for (int i = 0; i < 2; i++) {
        snprintf(path, sizeof(path), "%s/%d.%s", run->about.output_dir, rank, ends[i]);
        any = copy_file(path) == 0 || any;
    }
    return any ? 0 : cli_failed(1, "%s/%d.out: %m", run->about.output_dir, rank);
}

static int run_logs(const struct cli_args *args)
{
    struct fbr_error err = {0, ""};
    struct client_run run;
    bool lives;
    int rank = -1, code;

    if (client_find(args->operands[0], &run, &err) < 0)
        return cli_failed(1, "%s", err.text);
    if (args->noperands > 1)
        rank = client_rank(args->operands[1], &run, &err);
    lives = run.state <= CLIENT_SILENT;
    if (err.code)
        code = cli_failed(1, "%s", err.text);
    else if (lives && (args->values[LOGS_FOLLOW].number || !run.about.output_dir[0]))
        code = follow(&run, rank, args);
    else if (run.about.output_dir[0])
        code = show_files(&run, rank);
    else
        code = cli_failed(1,
                          "run %.16s has ended, and what it printed was not kept; fiber run "
                          "--output DIR keeps it%s%s",
                          run.about.uid, run.report[0] ? ". It ended so:\n" : "", run.report);
    client_free(&run);
    return code;
}

static const struct cli_option options[LOGS_OPTIONS] = {
    [LOGS_FOLLOW] = {"follow", 'f', CLI_FLAG,
                     .help = "lines as they are printed, also when there are files"},
    [LOGS_TAG] = {"tag", 'l', CLI_FLAG, .help = "puts the rank in front of each line"},
};

const struct cli_command cli_logs = {
    .name = "logs",
    .operands = "RUN [RANK]",
    .kind = CLI_RUN,
    .about = "Shows what the ranks of a run print",
    .text = "Lines of a run that goes on are shown from now on, until it ends. Of a run that was "
            "started "
            "with --output the "
            "files of RANK are shown, or, without RANK, the directory that they are in.",
    .examples = "fiber logs -f train\twhat all ranks print from now on\n"
                "fiber logs train 3\trank 3",
    .options = options,
    .count = LOGS_OPTIONS,
    .least = 1,
    .most = 2,
    .run = run_logs,
};
