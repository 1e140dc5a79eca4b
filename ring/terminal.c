/* terminal.c - our terminal while one rank has a pseudo-terminal: each typed byte goes to the rank,
 * Ctrl-C too, and the pseudo-terminal has the size of ours.
 *
 * Our terminal is raw only from the rank's start to its end, so that everything else can be stopped
 * as always. Meanwhile a child of ours waits for our end: if we are killed, only the child can
 * restore the terminal's mode. Loop thread.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>

#include "ring/ring_priv.h"
#include "runtime/base/environ.h"

/* Stores the size of the first descriptor that is a terminal; without one, 24 rows of 80
 * columns. */
static void get_size(uint16_t *rows, uint16_t *columns)
{
    struct winsize w = {0};

    for (int fd = 0; fd <= 2 && !w.ws_row; fd++)
        if (ioctl(fd, TIOCGWINSZ, &w) < 0)
            w.ws_row = 0;
    *rows = w.ws_row ? w.ws_row : 24;
    *columns = w.ws_row && w.ws_col ? w.ws_col : 80;
}

void fbr_ring_terminal_job(struct ring_job *j)
{
    const struct fiber_ring *r = j->ring;
    const char *term = fbr_getenv("TERM");

    if (!(r->options.flags & FIBER_RING_PTY) || j->job.info.spawned)
        return;
    j->job.pty = j->job.has_stdin = true;
    j->job.reader = (uint32_t)r->options.pty_rank;
    get_size(&j->job.rows, &j->job.columns);
    snprintf(j->job.term, sizeof(j->job.term), "%s", term ? term : "");
}

/* Runs in the child of a process with threads: system calls only. The child has its own process
 * group, so it outlives a kill of our group. It blocks all signals: SIGTTOU would stop it there. */
static void guard_main(int launcher, const struct termios *cooked)
{
    sigset_t all;
    char byte;

    setpgid(0, 0);
    sigfillset(&all);
    sigprocmask(SIG_SETMASK, &all, NULL);
    dup2(launcher, 1);
    if (syscall(SYS_close_range, 2, ~0U, 0) < 0)
        for (int fd = getdtablesize() - 1; fd > 1; fd--)
            close(fd);
    if (read(1, &byte, 1) == 0)
        tcsetattr(0, TCSANOW, cooked);
    _exit(0);
}

/* Starts the child. The run goes on without a child, for example for want of memory. */
static void guard_start(struct fiber_ring *r)
{
    int ends[2];

    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) < 0)
        return;
    r->guard = fork();
    if (r->guard == 0)
        guard_main(ends[1], &r->cooked);
    close(ends[1]);
    if (r->guard > 0)
        r->guard_fd = ends[0];
    else
        close(ends[0]);
}

static void guard_end(struct fiber_ring *r)
{
    if (r->guard <= 0)
        return;
    send(r->guard_fd, "", 1, MSG_NOSIGNAL);
    waitpid(r->guard, NULL, 0);
    close(r->guard_fd);
    r->guard = 0;
}

static void set_raw(struct fiber_ring *r, bool raw)
{
    r->raw = raw;
    for (int fd = 1; fd <= 2; fd++)
        fbr_output_screen(r->rt->output, fd)->raw = raw;
}

void fbr_ring_terminal_set_raw(struct fiber_ring *r)
{
    struct termios raw;

    /* In the background the terminal belongs to another process group. */
    if (r->raw || !isatty(0) || tcgetpgrp(0) != getpgrp() || tcgetattr(0, &r->cooked) < 0)
        return;
    raw = r->cooked;
    cfmakeraw(&raw);
    guard_start(r);
    if (tcsetattr(0, TCSADRAIN, &raw) == 0)
        set_raw(r, true);
    else
        guard_end(r);
}

void fbr_ring_terminal_restore(struct fiber_ring *r)
{
    if (!r->raw)
        return;
    tcsetattr(0, TCSANOW, &r->cooked);
    set_raw(r, false);
    guard_end(r);
}

static int resize(void *arg)
{
    struct fiber_ring *r = arg;
    uint16_t rows, columns;
    struct ring_job *j;
    struct fbr_buf b = {0};

    get_size(&rows, &columns);
    DL_FOREACH(r->jobs, j) {
        if (!j->job.pty || j->over)
            continue;
        j->job.rows = rows; /* for an agent that comes later */
        j->job.columns = columns;
        fbr_buf_clear(&b);
        fbr_put_u32(&b, j->job.info.id);
        fbr_put_u16(&b, rows);
        fbr_put_u16(&b, columns);
        fbr_ring_send(fbr_ring_agent_of(j, j->job.reader), FBR_RING_RESIZE, &b);
    }
    fbr_buf_fini(&b);
    return 0;
}

void fbr_ring_resize(struct fiber_ring *r)
{
    fbr_loop_call(r->rt->loop, resize, r);
}
