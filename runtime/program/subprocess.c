/* subprocess.c - runs a program to its end and collects its output.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "runtime/program/subprocess.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <unistd.h>

#include "runtime/base/clock.h"
#include "runtime/base/environ.h"
#include "runtime/program/spawn.h"

#define PIECE 65536
#define LOOK_MS 50 /* interval of the checks of `stop` */

/* Collects output until the program has closed it and has ended. */
static int collect(const struct fbr_subprocess *p, int fd, int pidfd, struct fbr_buf *out)
{
    uint64_t until = fbr_now_ms() + p->limit_ms, now;
    struct pollfd wait = {.fd = fd, .events = POLLIN};

    while ((now = fbr_now_ms()) < until && !(p->stop && atomic_load(p->stop))) {
        int left = p->stop && until - now > LOOK_MS ? LOOK_MS : (int)(until - now);
        void *room = fbr_buf_reserve(out, PIECE);
        ssize_t n;

        if (!room || out->len > p->max)
            return room ? -EFBIG : -ENOMEM;
        if (poll(&wait, 1, left) <= 0)
            continue;
        if (wait.fd == pidfd)
            return 0;
        n = read(fd, room, PIECE);
        if (n > 0)
            fbr_buf_extend(out, (size_t)n);
        else if (n == 0)
            wait.fd = pidfd;
        else if (errno != EINTR)
            return -errno;
    }
    return p->stop && atomic_load(p->stop) ? -ECANCELED : -ETIMEDOUT;
}

int fbr_subprocess_run(const struct fbr_subprocess *p, struct fbr_buf *out, int *code,
                       struct fbr_error *err)
{
    struct fbr_spawn s = {.file = p->file,
                          .argv = p->argv,
                          .env = p->env ? p->env : fbr_environ(),
                          .fds = {p->in, -1, p->errors},
                          .nfds = 3};
    siginfo_t how = {.si_code = CLD_EXITED};
    int ends[2], pidfd = -1, rc;
    pid_t pid = 0;

    if (pipe2(ends, O_CLOEXEC) < 0)
        return fbr_fail(err, -errno, "%s", fbr_strerror(-errno));
    s.fds[1] = ends[1];
    rc = fbr_spawn(&s, &pid, &pidfd, err);
    close(ends[1]);
    if (rc < 0)
        goto done;
    rc = collect(p, ends[0], pidfd, out);
    if (rc < 0)
        kill(-pid, SIGKILL);
    fbr_spawn_wait(pid, pidfd, &how, NULL);
    close(pidfd);
    *code = how.si_code == CLD_EXITED ? how.si_status : -how.si_status;
done:
    close(ends[0]);
    return rc;
}
