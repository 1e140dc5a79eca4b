/* spawn.c - vfork + exec; see spawn.h.
 *
 * The child of vfork runs in our memory while our thread is suspended: it may only make system calls, and tells of a
 * failure by a variable of ours. posix_spawn cannot ask for the death signal, which must be set in the child.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "runtime/spawn.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/close_range.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

struct failure {
    int code;
    const char *step;
};

#define HIGH_FD 64 /* descriptors are parked above the target ones first, so that none is overwritten too early */

static int place_fds(const struct fbr_spawn *s)
{
    int parked[FBR_SPAWN_FDS];

    for (int i = 0; i < s->nfds; i++) {
        int fd = s->fds[i] >= 0 ? s->fds[i] : open("/dev/null", O_RDWR | O_CLOEXEC);

        parked[i] = fd < 0 ? -1 : fcntl(fd, F_DUPFD, HIGH_FD);
        if (parked[i] < 0)
            return -errno;
    }
    for (int i = 0; i < s->nfds; i++)
        if (dup2(parked[i], i) < 0)
            return -errno;
    if (syscall(SYS_close_range, (unsigned)s->nfds, ~0U, 0) < 0) /* kernels before 5.9: all ours are close-on-exec */
        for (int i = 0; i < s->nfds; i++)
            close(parked[i]);
    return 0;
}

static void fail(volatile struct failure *f, int code, const char *step)
{
    f->code = code;
    f->step = step;
    _exit(127);
}

static void run_child(const struct fbr_spawn *s, pid_t parent, volatile struct failure *f)
{
    sigset_t none;
    int rc;

    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent)
        _exit(127);
    setpgid(0, 0);
    rc = place_fds(s);
    if (rc < 0)
        fail(f, rc, "descriptors");
    if (s->workdir && chdir(s->workdir) < 0)
        fail(f, -errno, "working directory");
    signal(SIGPIPE, SIG_DFL);
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    execve(s->file, s->argv, s->env);
    fail(f, -errno, "exec");
}

int fbr_spawn(const struct fbr_spawn *s, pid_t *pid_out, int *pidfd_out, struct fbr_error *err)
{
    volatile struct failure f = {0, NULL};
    const pid_t parent = getpid();
    sigset_t all, old;
    pid_t pid;
    int pidfd, rc = 0;

    sigfillset(&all); /* no handler of ours may run in the child, on our memory */
    pthread_sigmask(SIG_SETMASK, &all, &old);
    pid = vfork();
    if (pid == 0)
        run_child(s, parent, &f);
    if (pid < 0)
        rc = -errno;
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    if (pid < 0)
        return fbr_fail(err, rc, "cannot start a process: %s", fbr_strerror(rc));
    if (f.code) {
        waitpid(pid, NULL, 0);
        return fbr_fail(err, f.code, "cannot start %s: %s: %s", s->file, f.step, fbr_strerror(f.code));
    }
    pidfd = (int)syscall(SYS_pidfd_open, pid, 0);
    if (pidfd < 0) {
        rc = -errno;
        kill(pid, SIGKILL);
        waitpid(pid, NULL, 0);
        return fbr_fail(err, rc, "cannot watch process %d: %s", (int)pid, fbr_strerror(rc));
    }
    *pid_out = pid;
    *pidfd_out = pidfd;
    return 0;
}
