/* exec_command.c - `fiber exec`: runs a command next to a process of a run, through the run's
 * launcher.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/orphans.h"
#include "cli/option.h"
#include "runtime/base/printable.h"
#include "runtime/base/fds.h"
#include "runtime/inspect/exec.h"

#define FAILED 125 /* our own failures; other codes are the command's */

enum { EXEC_INPUT, EXEC_OPTIONS };

struct exec {
    struct run_client run;
    struct fbr_msg m;
    bool input;  /* our input is sent, and has not ended */
    size_t room; /* bytes that we may send */
    int code;
};

static int start(struct exec *e, int rank, char *const *argv, struct fbr_error *err)
{
    struct fbr_buf b = {0};
    int rc;

    fbr_exec_put(&b, e->input, rank, argv);
    rc = b.failed ? -ENOMEM : fbr_msg_send(e->run.fd, FBR_MSG_EXEC, b.data, b.len);
    fbr_buf_fini(&b);
    return rc == -EMSGSIZE ? fbr_fail(err, rc, "the command has more than %u bytes", FBR_MSG_MAX)
           : rc == -ENOMEM ? fbr_fail(err, rc, "out of memory")
                           : 0; /* the answer has the reason */
}

/* Handles one message: 1; 0: the command has ended, with e->code. */
static int take(struct exec *e, struct fbr_error *err)
{
    char text[FBR_MSG_TEXT], plain[FBR_MSG_TEXT];
    int rc = fbr_msg_recv(e->run.fd, &e->m, err);
    size_t n = fbr_cur_left(&e->m.body);

    if (rc == FBR_MSG_DATA || rc == FBR_MSG_ERRORS) {
        rc = fbr_fds_write(rc == FBR_MSG_DATA ? STDOUT_FILENO : STDERR_FILENO, e->m.body.at, n);
        return rc < 0 ? fbr_fail(err, rc, "cannot write its output: %s", fbr_strerror(rc)) : 1;
    }
    if (rc == FBR_MSG_TAKEN)
        e->room += fbr_get_u32(&e->m.body);
    if (rc < 0 || rc == FBR_MSG_READY || rc == FBR_MSG_TAKEN)
        return rc < 0 ? rc : 1;
    if (rc != FBR_MSG_DONE || !fbr_msg_get_done(&e->m.body, &e->code, text))
        return fbr_msg_malformed(err);
    fbr_printable_plain(plain, sizeof(plain), text);
    if (plain[0])
        cli_failed(0, "in the job: %s", plain);
    return 0;
}

/* Sends more of our standard input, or its end. If the other end is gone, its last messages must
 * still be read. */
static void give(struct exec *e)
{
    uint8_t data[FBR_EXEC_WINDOW];
    ssize_t n = read(STDIN_FILENO, data, e->room < sizeof(data) ? e->room : sizeof(data));

    if (n < 0 && (errno == EINTR || errno == EAGAIN)) /* another reader was faster */
        return;
    n = n < 0 ? 0 : n;
    e->room -= (size_t)n;
    if (fbr_msg_send(e->run.fd, FBR_MSG_DATA, data, (size_t)n) < 0 || n == 0)
        e->input = false;
}

static int talk(struct exec *e, struct fbr_error *err)
{
    int rc = take(e, err); /* the command begins within a minute */

    while (rc > 0) {
        struct pollfd p[2] = {{.fd = e->run.fd, .events = POLLIN},
                              {.fd = e->input && e->room ? STDIN_FILENO : -1, .events = POLLIN}};

        if (poll(p, 2, -1) < 0)
            return fbr_fail(err, -errno, "%s", fbr_strerror(-errno));
        if (p[1].revents)
            give(e);
        if (p[0].revents)
            rc = take(e, err);
    }
    return rc;
}

static int exec_there(struct exec *e, const char *job, char *const *argv, struct fbr_error *err)
{
    bool ring = e->run.about.kind == FBR_RUN_RING;
    int rank = -1, rc;

    if (job[0] && (rank = run_client_job(job, &e->run, err)) < 0)
        return rank;
    if ((rc = run_client_tunnel(&e->run, rank, err)) < 0 ||
        (rc = start(e, ring ? (rank < 0 ? 0 : rank) : -1, argv, err)) < 0)
        return rc;
    return talk(e, err);
}

static int run_exec(const struct cli_args *args)
{
    struct exec e = {.input = args->values[EXEC_INPUT].number > 0, .room = FBR_EXEC_WINDOW};
    char **argv = args->operands + 1;
    const char *job;
    struct fbr_error err = {0, ""};
    int rc;

    if (!strcmp(argv[0], "--"))
        argv++;
    if (!argv[0]) {
        fbr_fail(&err, -EINVAL, "the command is missing: fiber exec RUN[/RANK] -- COMMAND");
        return cli_usage(args->command, &err);
    }
    if (orphan_run_here(args->operands[0], "exec", &e.run, &job, &err) < 0)
        return cli_failed(FAILED, "%s", err.text);
    rc = exec_there(&e, job, argv, &err);
    fbr_buf_fini(&e.m.bytes);
    run_client_free(&e.run);
    return rc < 0 ? cli_failed(FAILED, "%s", err.text) : e.code;
}

static const struct cli_option options[EXEC_OPTIONS] = {
    [EXEC_INPUT] = {"stdin", 'i', CLI_FLAG, .also = "interactive",
                    .help =
                        "the command reads the standard input of fiber exec; otherwise its input "
                        "is empty"},
};

const struct cli_command cli_exec = {
    .name = "exec",
    .operands = "RUN[/RANK] [--] COMMAND [ARGUMENT...]",
    .kind = CLI_RUN,
    .about = "Runs a command where a rank or a worker of a run is",
    .text =
        "RUN is as in ps, RANK the number of a rank, a worker or a process, as top shows it; "
        "without it, rank 0, or the only worker or process, is used. Its job starts the command: "
        "on its host, in its container, in the job's working directory and with the job's "
        "environment. FIBER_PID is the process id of the rank, the worker or the process there. "
        "The command must exist there: an image that Fiber makes has only the program and its "
        "libraries.\n\n"
        "The standard output and standard error of the command are printed here, and its exit code "
        "is the exit code of fiber exec. It has no terminal. All data go through the run's "
        "launcher, so this works on every backend, but only while the run goes on. If fiber exec "
        "is stopped (Ctrl-C), the command gets SIGTERM, and SIGKILL 2 seconds later; it also ends "
        "with its job.",
    .examples = "fiber exec train/3 -- nvidia-smi\ton the host of rank 3\n"
                "fiber exec train/3 -- sh -c 'py-spy dump -p $FIBER_PID'\tof that rank\n"
                "fiber exec -i train -- tar xf - <data.tar\twith input",
    .exit = "CODE\tof the command; 128 + N when signal N ended it\n"
            "125\tthe run did not answer, or ended\n"
            "126\tthe command cannot be started\n"
            "127\tthe command does not exist",
    .options = options,
    .count = EXEC_OPTIONS,
    .least = 2,
    .most = -1,
    .stops = true,
    .run = run_exec,
};
