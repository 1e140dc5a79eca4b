/* subprocess.c - runs a program to its end and collects its output.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "runtime/program/subprocess.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <unistd.h>

#include "runtime/base/clock.h"
#include "runtime/base/environ.h"
#include "runtime/base/fds.h"
#include "runtime/program/spawn.h"

#define PIECE 65536
#define LOOK_MS 50 /* interval of the checks of `stop` */

/* Reads the bytes that a pipe has; at its end *fd becomes -1. */
static int read_some(const struct fbr_subprocess *p, int *fd, struct fbr_buf *out)
{
    void *room = fbr_buf_reserve(out, PIECE);
    ssize_t n;

    if (!room || out->len > p->max)
        return room ? -EFBIG : -ENOMEM;
    n = read(*fd, room, PIECE);
    if (n > 0)
        fbr_buf_extend(out, (size_t)n);
    else if (n == 0)
        *fd = -1;
    return n < 0 && errno != EINTR ? -errno : 0;
}

/* Collects output until the program has ended, and no more output is available: its children may
 * hold the pipes open. */
static int collect(const struct fbr_subprocess *p, struct pollfd wait[3], struct fbr_buf *out)
{
    struct fbr_buf *const to[] = {out, p->said};
    uint64_t until = fbr_now_ms() + p->limit_ms, now;
    int rc;

    while ((now = fbr_now_ms()) < until && !(p->stop && atomic_load(p->stop))) {
        int left = p->stop && until - now > LOOK_MS ? LOOK_MS : (int)(until - now);

        if (poll(wait, 3, left) <= 0)
            continue;
        if (wait[2].revents && !wait[0].revents && !wait[1].revents)
            return 0;
        for (int i = 0; i < 2; i++)
            if (wait[i].revents && (rc = read_some(p, &wait[i].fd, to[i])) < 0)
                return rc;
    }
    return p->stop && atomic_load(p->stop) ? -ECANCELED : -ETIMEDOUT;
}

int fbr_subprocess_run(const struct fbr_subprocess *p, struct fbr_buf *out, int *code,
                       struct fbr_error *err)
{
    struct fbr_spawn s = {
        .file = p->file, .argv = p->argv, .env = p->env ? p->env : fbr_environ(), .nfds = 3};
    siginfo_t how = {.si_code = CLD_EXITED};
    int ends[2] = {-1, -1}, errs[2] = {-1, -1}, pidfd = -1, rc;
    struct pollfd wait[3];
    pid_t pid = 0;

    if ((out && pipe2(ends, O_CLOEXEC) < 0) || (p->said && pipe2(errs, O_CLOEXEC) < 0)) {
        rc = fbr_fail(err, -errno, "%s", fbr_strerror(-errno));
        goto done;
    }
    s.fds[0] = p->in;
    s.fds[1] = ends[1];
    s.fds[2] = p->said ? errs[1] : p->errors;
    rc = fbr_spawn(&s, &pid, &pidfd, err);
    fbr_fds_close(ends[1]);
    fbr_fds_close(errs[1]);
    ends[1] = errs[1] = -1;
    if (rc < 0)
        goto done;
    wait[0] = (struct pollfd){.fd = ends[0], .events = POLLIN};
    wait[1] = (struct pollfd){.fd = errs[0], .events = POLLIN};
    wait[2] = (struct pollfd){.fd = pidfd, .events = POLLIN};
    rc = collect(p, wait, out);
    if (rc < 0)
        kill(-pid, SIGKILL);
    fbr_spawn_wait(pid, pidfd, &how, NULL);
    close(pidfd);
    *code = how.si_code == CLD_EXITED ? how.si_status : -how.si_status;
done:
    for (int i = 0; i < 2; i++) {
        fbr_fds_close(ends[i]);
        fbr_fds_close(errs[i]);
    }
    return rc;
}
