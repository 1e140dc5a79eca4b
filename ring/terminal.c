/* terminal.c - our terminal while one rank has a pseudo-terminal: what is typed goes there byte by
 * byte, also Ctrl-C, and its size is ours.
 *
 * It is raw from the rank's start to its end only, so that everything else can be stopped as
 * always. Loop thread.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

#include "ring/ring_priv.h"
#include "runtime/base/environ.h"

/* Stores the size of the first descriptor that is a terminal; else the size of old terminals. */
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

static void set_raw(struct fiber_ring *r, bool raw)
{
    r->raw = raw;
    for (int fd = 1; fd <= 2; fd++)
        fbr_output_screen(r->rt->output, fd)->raw = raw;
}

void fbr_ring_terminal_take(struct fiber_ring *r)
{
    struct termios raw;

    /* In the background it is somebody else's. */
    if (r->raw || !isatty(0) || tcgetpgrp(0) != getpgrp() || tcgetattr(0, &r->cooked) < 0)
        return;
    raw = r->cooked;
    cfmakeraw(&raw);
    if (tcsetattr(0, TCSADRAIN, &raw) == 0)
        set_raw(r, true);
}

void fbr_ring_terminal_give(struct fiber_ring *r)
{
    if (!r->raw)
        return;
    tcsetattr(0, TCSANOW, &r->cooked);
    set_raw(r, false);
}

static int resize(void *arg)
{
    struct fiber_ring *r = arg;
    uint16_t rows, columns;
    struct ring_job *j;
    struct fbr_buf b;

    get_size(&rows, &columns);
    fbr_buf_init(&b);
    DL_FOREACH(r->jobs, j) {
        if (!j->job.pty || j->over)
            continue;
        j->job.rows = rows; /* for an agent that comes later */
        j->job.columns = columns;
        fbr_buf_clear(&b);
        fbr_put_u32(&b, j->job.info.id);
        fbr_put_u16(&b, rows);
        fbr_put_u16(&b, columns);
        fbr_ring_send(&r->agents[j->job.info.agents[fbr_ring_node_of(j, j->job.reader)]],
                      FBR_RING_RESIZE, &b);
    }
    fbr_buf_fini(&b);
    return 0;
}

void fbr_ring_resize(struct fiber_ring *r)
{
    fbr_loop_call(r->rt->loop, resize, r);
}
