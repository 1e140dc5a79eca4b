/* doctor_ask.c - asks other programs who they are, and does not wait long for the answer.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cli/doctor.h"
#include "runtime/base/spawn.h"
#include "runtime/net/loop.h"

#define PATIENCE_MS 5000

int doctor_which(const char *name, char *path, size_t size)
{
    return fbr_spawn_find(name, path, size, NULL);
}

/* Reads until the end, keeping what fits. 0 or -ETIMEDOUT. */
static int read_all(int fd, char *text, size_t size)
{
    uint64_t until = fbr_now_ms() + PATIENCE_MS;
    size_t len = 0;
    char spare[4096];
    ssize_t n;

    do {
        struct pollfd p = {.fd = fd, .events = POLLIN};
        uint64_t now = fbr_now_ms();

        if (now >= until || poll(&p, 1, (int)(until - now)) == 0) {
            text[len] = '\0';
            return -ETIMEDOUT;
        }
        n = len + 1 < size ? read(fd, text + len, size - 1 - len) : read(fd, spare, sizeof(spare));
        if (n > 0 && len + 1 < size)
            len += (size_t)n;
    } while (n > 0 || (n < 0 && errno == EINTR));
    text[len] = '\0';
    return 0;
}

static int start(const char *const *argv, int out, pid_t *pid)
{
    posix_spawn_file_actions_t fa;
    posix_spawnattr_t attr;
    sigset_t none;
    int rc;

    sigemptyset(&none);
    posix_spawnattr_init(&attr);
    posix_spawnattr_setflags(&attr, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK);
    posix_spawnattr_setpgroup(&attr, 0);
    posix_spawnattr_setsigmask(&attr, &none);
    posix_spawn_file_actions_init(&fa);
    posix_spawn_file_actions_addopen(&fa, 0, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_adddup2(&fa, out, 1);
    posix_spawn_file_actions_addopen(&fa, 2, "/dev/null", O_WRONLY, 0);
    rc = posix_spawnp(pid, argv[0], &fa, &attr, (char *const *)argv, environ);
    posix_spawn_file_actions_destroy(&fa);
    posix_spawnattr_destroy(&attr);
    return -rc;
}

int doctor_ask_all(const char *const *argv, char *text, size_t size)
{
    int ends[2], rc, status = 0;
    pid_t pid;

    text[0] = '\0';
    if (pipe2(ends, O_CLOEXEC) < 0)
        return -errno;
    rc = start(argv, ends[1], &pid);
    close(ends[1]);
    if (rc == 0) {
        rc = read_all(ends[0], text, size);
        kill(-pid, SIGKILL); /* and what it left behind */
        while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
            ;
        if (rc == 0 && !(WIFEXITED(status) && WEXITSTATUS(status) == 0) && !text[0])
            rc = -EIO;
    }
    close(ends[0]);
    return rc;
}

int doctor_ask(const char *const *argv, char *line, size_t size)
{
    int rc = doctor_ask_all(argv, line, size);

    line[strcspn(line, "\n")] = '\0';
    return rc;
}
