/* copy.c - sends and receives a file in messages.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "runtime/inspect/copy.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "runtime/base/atomic_file.h"
#include "runtime/base/fds.h"

/* ---- Sending ---- */

int fbr_copy_send_file(int sock, int fd, struct fbr_error *err)
{
    char *data = malloc(FBR_MSG_MAX);
    ssize_t n = 1;
    int rc = 0;

    if (!data)
        return fbr_fail(err, -EIO, "cannot be read: %s", strerror(ENOMEM));
    while (rc == 0 && n) {
        n = read(fd, data, FBR_MSG_MAX);
        if (n >= 0)
            rc = fbr_msg_send(sock, FBR_MSG_DATA, data, (size_t)n);
        else if (errno != EINTR)
            rc = fbr_fail(err, -EIO, "cannot be read: %s", strerror(errno));
    }
    free(data);
    return rc;
}

/* ---- Receiving ---- */

static int fail(struct fbr_copy_file *f, int rc, struct fbr_error *err)
{
    fbr_fail(err, rc, "%.300s: %s", f->path, fbr_strerror(rc));
    fbr_copy_drop(f);
    return rc;
}

int fbr_copy_begin(struct fbr_copy_file *f, const char *path, const char *name,
                   struct fbr_error *err)
{
    struct stat st;

    memset(f, 0, sizeof(*f));
    f->fd = -1;
    if (!path[0])
        path = ".";
    if (stat(path, &st) == 0 && S_ISDIR(st.st_mode))
        snprintf(f->path, sizeof(f->path), "%s/%s", path, name);
    else if (path[strlen(path) - 1] == '/')
        return fbr_fail(err, -ENOENT, "%.300s: no such directory", path);
    else
        snprintf(f->path, sizeof(f->path), "%s", path);
    if (stat(f->path, &st) == 0 && !S_ISREG(st.st_mode))
        return fbr_fail(err, -EEXIST, "%.300s exists, and is not a regular file", f->path);
    f->fd = fbr_atomic_nameless(f->path);
    if (f->fd == -EOPNOTSUPP) {
        f->fd = fbr_atomic_file(f->path, f->beside, sizeof(f->beside));
        f->named = f->fd >= 0;
    }
    return f->fd < 0 ? fail(f, f->fd, err) : 0;
}

int fbr_copy_recv_file(struct fbr_copy_file *f, int sock, struct fbr_error *err)
{
    struct fbr_msg m = {.kind = 0};
    int rc;

    while ((rc = fbr_msg_expect(sock, &m, FBR_MSG_DATA, err)) == 0 && fbr_cur_left(&m.body)) {
        rc = fbr_fds_write(f->fd, m.body.at, fbr_cur_left(&m.body));
        if (rc < 0) {
            fail(f, rc, err);
            break;
        }
    }
    fbr_buf_fini(&m.bytes);
    if (rc < 0)
        fbr_copy_drop(f);
    return rc;
}

/* A quota or a file server may report that the file is not whole only when it is closed. */
static int close_copy(int fd)
{
    int copy = fcntl(fd, F_DUPFD_CLOEXEC, 0);

    return copy < 0 || close(copy) < 0 ? -1 : 0;
}

int fbr_copy_commit(struct fbr_copy_file *f, uint32_t mode, struct fbr_error *err)
{
    int rc;

    if (fchmod(f->fd, mode & 0777) < 0 || close_copy(f->fd) < 0)
        return fail(f, -errno, err);
    if (!f->named) { /* a temporary name first: only a rename replaces an existing file */
        rc = fbr_atomic_name(f->fd, f->path, f->beside, sizeof(f->beside));
        if (rc < 0)
            return fail(f, rc, err);
        f->named = true;
    }
    if (rename(f->beside, f->path) < 0)
        return fail(f, -errno, err);
    f->named = false;
    close(f->fd);
    f->fd = -1;
    return 0;
}

void fbr_copy_drop(struct fbr_copy_file *f)
{
    if (f->named)
        unlink(f->beside);
    f->fd = fbr_fds_close(f->fd);
    f->named = false;
}
