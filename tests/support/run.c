/* run.c - runs programs and keeps what they wrote; see run.h.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/run.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define LIMIT_S 300

static void die(const char *what)
{
    perror(what);
    abort();
}

static pid_t spawn(const char *const *argv, const char *const *env, const char *workdir, int out,
                   int err)
{
    pid_t pid = fork();

    if (pid < 0)
        die("fork");
    if (pid)
        return pid;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (out >= 0)
        dup2(out, 1);
    if (err >= 0)
        dup2(err, 2);
    for (; env && *env; env++)
        putenv((char *)(uintptr_t)*env);
    if (workdir && chdir(workdir) < 0)
        _exit(126);
    execv(argv[0], (char *const *)(uintptr_t)argv);
    _exit(127);
}

struct stream {
    int fd;
    char *data;
    size_t len, cap;
};

static bool read_some(struct stream *s)
{
    ssize_t n;

    if (s->len + 65537 > s->cap) {
        s->cap = 2 * s->cap + 65537;
        s->data = realloc(s->data, s->cap);
        if (!s->data)
            abort();
    }
    n = read(s->fd, s->data + s->len, 65536);
    if (n > 0)
        s->len += (size_t)n;
    s->data[s->len] = '\0';
    if (n > 0 || (n < 0 && errno == EINTR))
        return true;
    close(s->fd);
    s->fd = -1;
    return false;
}

static void read_all(struct stream s[2], pid_t pid)
{
    time_t until = time(NULL) + LIMIT_S;

    while (s[0].fd >= 0 || s[1].fd >= 0) {
        struct pollfd p[2] = {{.fd = s[0].fd, .events = POLLIN}, {.fd = s[1].fd, .events = POLLIN}};

        if (poll(p, 2, 1000) == 0 && time(NULL) > until) {
            fprintf(stderr, "killed after %d s\n", LIMIT_S);
            kill(pid, SIGKILL);
            break;
        }
        for (int i = 0; i < 2; i++)
            if (s[i].fd >= 0 && p[i].revents)
                read_some(&s[i]);
    }
    for (int i = 0; i < 2; i++)
        if (s[i].fd >= 0)
            close(s[i].fd);
}

struct ran run_program(const char *const *argv, const char *const *env, const char *workdir)
{
    struct stream s[2] = {{.data = calloc(1, 1)}, {.data = calloc(1, 1)}};
    int pipes[2][2], status;
    pid_t pid;

    if (pipe2(pipes[0], O_CLOEXEC) < 0 || pipe2(pipes[1], O_CLOEXEC) < 0)
        die("pipe");
    pid = spawn(argv, env, workdir, pipes[0][1], pipes[1][1]);
    for (int i = 0; i < 2; i++) {
        close(pipes[i][1]);
        s[i].fd = pipes[i][0];
    }
    read_all(s, pid);
    if (waitpid(pid, &status, 0) < 0)
        die("waitpid");
    return (struct ran){WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status), s[0].data,
                        s[1].data, s[0].len, s[1].len};
}

struct ran run_self(const char *role, const char *arg, const char *const *env)
{
    const char *const argv[] = {"/proc/self/exe", role, arg, NULL};

    return run_program(argv, env, NULL);
}

void ran_free(struct ran *r)
{
    free(r->out);
    free(r->err);
}

int run_shown(const char *const *argv)
{
    struct ran r = run_program(argv, NULL, NULL);
    int code = r.code;

    if (code)
        fprintf(stderr, "%s\n", r.err);
    ran_free(&r);
    return code;
}

pid_t start_self(const char *role, const char *arg, const char *const *env, int *out)
{
    const char *const argv[] = {"/proc/self/exe", role, arg, NULL};
    int pipes[2] = {-1, -1};
    pid_t pid;

    if (out && pipe2(pipes, O_CLOEXEC) < 0)
        die("pipe");
    pid = spawn(argv, env, NULL, pipes[1], -1);
    if (out) {
        close(pipes[1]);
        *out = pipes[0];
    }
    return pid;
}
