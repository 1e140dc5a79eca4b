/* ready.c - descriptors that poll readable while a condition holds.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "runtime/base/ready.h"

#include <errno.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "runtime/base/error.h"
#include "runtime/base/log.h"

int fbr_ready_fd(struct fbr_ready *r)
{
    if (r->made)
        return r->fd;
    r->fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (r->fd < 0)
        return fbr_keep(-errno, "cannot make a descriptor to wait with: %s", fbr_strerror(errno));
    r->made = true;
    return r->fd;
}

void fbr_ready_set(struct fbr_ready *r, bool holds)
{
    eventfd_t value = 1;

    if (!r->made || r->raised == holds)
        return;
    r->raised = holds;
    if ((holds ? eventfd_write(r->fd, value) : eventfd_read(r->fd, &value)) < 0)
        fbr_debug("a descriptor to wait with: %m"); /* the program read or closed it */
}

void fbr_ready_fini(struct fbr_ready *r)
{
    if (r->made)
        close(r->fd);
    *r = (struct fbr_ready){.made = false};
}
