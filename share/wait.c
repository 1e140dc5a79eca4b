/* wait.c - fiber_wait_any: one poll(2) over the descriptors of several objects.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <stdlib.h>
#include <unistd.h>

#include "runtime/proc/context.h"

#define NOTHING INT_MIN /* no errno */

/* The descriptor of the object that the entry names, NOTHING, or a kept error. */
static int fd_of(const struct fiber_wait *w)
{
    int named = !!w->process + !!w->ring + !!w->queue + !!w->pipe + !!w->result + !!w->future;

    if (named > 1)
        return fbr_keep(-EINVAL, "fiber_wait_any: an entry names more than one object");
    if (w->process)
        return fiber_process_sentinel(w->process);
    if (w->ring)
        return fiber_ring_sentinel(w->ring);
    if (w->queue)
        return fiber_queue_fd(w->queue);
    if (w->pipe)
        return fiber_pipe_fd(w->pipe);
    if (w->result)
        return fiber_result_fd(w->result);
    return w->future ? fiber_future_fd(w->future) : NOTHING;
}

static int fill(const struct fiber_wait *things, int n, struct pollfd *fds)
{
    int named = 0;

    for (int i = 0; i < n; i++) {
        int fd = fd_of(&things[i]);

        if (fd < 0 && fd != NOTHING)
            return fd;
        /* poll ignores negative descriptors */
        fds[i] = (struct pollfd){.fd = fd, .events = POLLIN};
        named += fd >= 0;
    }
    return named ? 0 : fbr_keep(-EINVAL, "fiber_wait_any: there is nothing to wait for");
}

/* The number of ready descriptors, 0 when the time is over, or a negative errno. */
static int poll_until(struct pollfd *fds, int n, int timeout_ms)
{
    uint64_t deadline = fbr_deadline(timeout_ms);
    int rc;

    rc = TEMP_FAILURE_RETRY(poll(fds, (nfds_t)n, fbr_ms_until(deadline)));
    return rc < 0 ? -errno : rc;
}

int fiber_wait_any(struct fiber_wait *things, int n, int timeout_ms)
{
    struct pollfd *fds;
    int rc;

    if (!things || n < 1)
        return fbr_keep(-EINVAL, "fiber_wait_any: there is nothing to wait for");
    fds = calloc((size_t)n, sizeof(*fds));
    if (!fds)
        return fbr_keep(-ENOMEM, "fiber_wait_any: out of memory");
    rc = fill(things, n, fds);
    if (rc < 0)
        goto done;
    rc = poll_until(fds, n, timeout_ms);
    if (rc == 0)
        rc = fbr_keep(-ETIMEDOUT, "fiber_wait_any: none of %d is ready after %d ms", n, timeout_ms);
    else if (rc < 0)
        fbr_keep(rc, "fiber_wait_any: %s", fbr_strerror(rc));
done:
    for (int i = 0; i < n; i++)
        things[i].ready = rc > 0 && fds[i].revents != 0;
    free(fds);
    return rc;
}
