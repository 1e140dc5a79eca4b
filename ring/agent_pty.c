/* agent_pty.c - the pseudo-terminal of a rank. Its own end is the rank's standard streams and the
 * controlling terminal of the rank's session. The local backend reads our end; agent_stdin.c writes
 * it.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <fcntl.h>
#include <pty.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "ring/agent_priv.h"

static void set_size(int fd, const struct fbr_ring_job *j)
{
    const struct winsize w = {.ws_row = j->rows, .ws_col = j->columns};

    ioctl(fd, TIOCSWINSZ, &w);
}

int fbr_agent_pty_open(struct agent_rank *r, int *theirs, struct fbr_error *err)
{
    int ours;

    *theirs = -1;
    if (openpty(&ours, theirs, NULL, NULL, NULL) < 0)
        return fbr_fail(err, -errno, "cannot open a pseudo-terminal: %s (is /dev/pts mounted?)",
                        fbr_strerror(errno));
    fcntl(ours, F_SETFD, FD_CLOEXEC);
    fcntl(*theirs, F_SETFD, FD_CLOEXEC);
    set_size(ours, &r->job->job);
    r->pty = ours;
    return 0;
}

void fbr_agent_pty_close(struct agent_rank *r)
{
    if (r->pty)
        close(r->pty);
    r->pty = 0;
}

void fbr_agent_on_resize(struct agent *a, struct fbr_cur *body)
{
    struct agent_job *j = fbr_agent_job_find(a, fbr_get_u32(body));
    uint16_t rows = fbr_get_u16(body), columns = fbr_get_u16(body);
    struct agent_rank *r = j ? fbr_agent_rank_find(j, j->job.reader) : NULL;

    if (!r || !fbr_cur_ok(body))
        return;
    j->job.rows = rows;
    j->job.columns = columns;
    /* the kernel sends SIGWINCH to the rank */
    if (r->pty)
        set_size(r->pty, &j->job);
}
