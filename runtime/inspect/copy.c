/* copy.c - a file through a stream of bytes; see copy.h.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "runtime/inspect/copy.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "runtime/base/beside.h"

/* ---- Messages ---- */

void fbr_copy_put_request(struct fbr_buf *b, const struct fbr_copy_request *r)
{
    size_t at = b->len;

    fbr_put_u32(b, 0);
    fbr_put_u8(b, r->op);
    fbr_put_u32(b, r->mode);
    fbr_put_str(b, r->path);
    fbr_put_str(b, r->name);
    if (!b->failed)
        fbr_set_u32(b, at, (uint32_t)(b->len - at - 4));
}

void fbr_copy_put_answer(struct fbr_buf *b, const struct fbr_copy_answer *a)
{
    size_t at = b->len;

    fbr_put_u32(b, 0);
    fbr_put_u32(b, (uint32_t)a->code);
    fbr_put_u32(b, a->mode);
    fbr_put_str(b, a->text);
    if (!b->failed)
        fbr_set_u32(b, at, (uint32_t)(b->len - at - 4));
}

bool fbr_copy_get_request(struct fbr_cur *c, struct fbr_copy_request *r)
{
    r->op = fbr_get_u8(c);
    r->mode = fbr_get_u32(c);
    fbr_get_str(c, r->path, sizeof(r->path));
    fbr_get_str(c, r->name, sizeof(r->name));
    return fbr_cur_ok(c) && r->op >= FBR_COPY_GET && r->op <= FBR_COPY_PUT_TREE &&
           !strchr(r->name, '/');
}

bool fbr_copy_get_answer(struct fbr_cur *c, struct fbr_copy_answer *a)
{
    a->code = (int32_t)fbr_get_u32(c);
    a->mode = fbr_get_u32(c);
    fbr_get_str(c, a->text, sizeof(a->text));
    return fbr_cur_ok(c) && a->code <= 0;
}

/* ---- Sockets ---- */

static int send_all(int sock, const void *data, size_t len)
{
    const char *at = data;

    while (len) {
        ssize_t n = send(sock, at, len, MSG_NOSIGNAL);

        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return errno == EPIPE ? -ECONNRESET : -errno;
        at += n;
        len -= (size_t)n;
    }
    return 0;
}

static int recv_all(int sock, void *data, size_t len)
{
    char *at = data;

    while (len) {
        ssize_t n = recv(sock, at, len, 0);

        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return n < 0 ? -errno : -ECONNRESET;
        at += n;
        len -= (size_t)n;
    }
    return 0;
}

static int recv_u32(int sock, uint32_t *v)
{
    uint8_t bytes[4] = {0};
    struct fbr_cur c = fbr_cur(bytes, sizeof(bytes));
    int rc = recv_all(sock, bytes, sizeof(bytes));

    if (rc == 0)
        *v = fbr_get_u32(&c);
    return rc;
}

static int send_u32(int sock, uint32_t v)
{
    const uint8_t bytes[4] = {(uint8_t)v, (uint8_t)(v >> 8), (uint8_t)(v >> 16),
                              (uint8_t)(v >> 24)};

    return send_all(sock, bytes, sizeof(bytes));
}

int fbr_copy_send(int sock, const struct fbr_buf *b)
{
    return b->failed ? -ENOMEM : send_all(sock, b->data, b->len);
}

int fbr_copy_recv_message(int sock, uint8_t data[FBR_COPY_MESSAGE], struct fbr_cur *c)
{
    uint32_t len = 0;
    int rc = recv_u32(sock, &len);

    if (rc == 0 && len > FBR_COPY_MESSAGE)
        rc = -EBADMSG;
    if (rc == 0)
        rc = recv_all(sock, data, len);
    *c = fbr_cur(data, rc < 0 ? 0 : len);
    return rc;
}

int fbr_copy_recv_request(int sock, struct fbr_copy_request *r)
{
    uint8_t data[FBR_COPY_MESSAGE];
    struct fbr_cur c;
    int rc = fbr_copy_recv_message(sock, data, &c);

    return rc < 0 || fbr_copy_get_request(&c, r) ? rc : -EBADMSG;
}

int fbr_copy_recv_answer(int sock, struct fbr_copy_answer *a)
{
    uint8_t data[FBR_COPY_MESSAGE];
    struct fbr_cur c;
    int rc = fbr_copy_recv_message(sock, data, &c);

    return rc < 0 || fbr_copy_get_answer(&c, a) ? rc : -EBADMSG;
}

int fbr_copy_send_data(int sock, const void *data, size_t len)
{
    const char *at = data;
    int rc = 0;

    while (rc == 0 && len) {
        size_t n = len < FBR_COPY_PIECE ? len : FBR_COPY_PIECE;

        rc = send_u32(sock, (uint32_t)n);
        if (rc == 0)
            rc = send_all(sock, at, n);
        at += n;
        len -= n;
    }
    return rc < 0 ? rc : send_u32(sock, 0);
}

int fbr_copy_recv_data(int sock, struct fbr_buf *b, size_t max)
{
    uint32_t len = 0;
    void *room;
    int rc;

    while ((rc = recv_u32(sock, &len)) == 0 && len && len <= FBR_COPY_PIECE) {
        if (b->len + len > max)
            return -EFBIG;
        room = fbr_buf_extend(b, len);
        if (!room)
            return -ENOMEM;
        rc = recv_all(sock, room, len);
        if (rc < 0)
            return rc;
    }
    if (rc < 0 || !len)
        return rc;
    return len == FBR_COPY_BROKEN ? -EPIPE : -EBADMSG;
}

/* ---- A file that goes ---- */

int fbr_copy_open(const char *path, uint32_t *mode, struct fbr_error *err)
{
    /* Not to wait for the other end of a FIFO. */
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY), rc = fd < 0 ? -errno : 0;
    struct stat st;

    if (fd >= 0 && fstat(fd, &st) < 0)
        rc = -errno;
    if (rc < 0)
        fbr_fail(err, rc, "%.300s: %s", path, fbr_strerror(rc));
    else if (S_ISDIR(st.st_mode))
        rc = fbr_fail(
            err, -EISDIR,
            "%.300s is a directory, and the other end takes files only: is it another version "
            "of Fiber?",
            path);
    else if (!S_ISREG(st.st_mode))
        rc = fbr_fail(err, -EINVAL, "%.300s is no regular file", path);
    if (rc < 0) {
        if (fd >= 0)
            close(fd);
        return rc;
    }
    *mode = st.st_mode & 0777;
    return fd;
}

int fbr_copy_send_file(int sock, int fd, struct fbr_error *err)
{
    char *data = malloc(FBR_COPY_PIECE);
    ssize_t n = data ? 1 : -1;
    int rc = 0;

    if (!data)
        errno = ENOMEM;
    while (rc == 0 && n > 0) {
        n = read(fd, data, FBR_COPY_PIECE);
        if (n < 0 && errno == EINTR)
            n = 1;
        else if (n > 0)
            rc = send_u32(sock, (uint32_t)n);
        if (rc == 0 && n > 0)
            rc = send_all(sock, data, (size_t)n);
    }
    free(data);
    if (n < 0) {
        fbr_fail(err, -EIO, "cannot be read: %s", strerror(errno));
        rc = send_u32(sock, FBR_COPY_BROKEN);
        return rc < 0 ? rc : -EIO;
    }
    return rc < 0 ? rc : send_u32(sock, 0);
}

/* ---- A file that comes ---- */

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
        return fbr_fail(err, -ENOENT, "%.300s: there is no such directory", path);
    else
        snprintf(f->path, sizeof(f->path), "%s", path);
    if (stat(f->path, &st) == 0 && !S_ISREG(st.st_mode))
        return fbr_fail(err, -EEXIST, "%.300s is there, and is no regular file", f->path);
    f->fd = fbr_beside_nameless(f->path);
    if (f->fd == -EOPNOTSUPP) {
        f->fd = fbr_beside_file(f->path, f->beside, sizeof(f->beside));
        f->named = f->fd >= 0;
    }
    return f->fd < 0 ? fail(f, f->fd, err) : 0;
}

static int write_all(int fd, const char *data, size_t len)
{
    while (len) {
        ssize_t n = write(fd, data, len);

        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return -errno;
        data += n;
        len -= (size_t)n;
    }
    return 0;
}

int fbr_copy_recv_file(struct fbr_copy_file *f, int sock, struct fbr_error *err)
{
    char *data = malloc(FBR_COPY_PIECE);
    uint32_t len = 0;
    int rc = data ? 0 : -ENOMEM, cut;

    while (rc == 0 && (cut = recv_u32(sock, &len)) == 0 && len && len <= FBR_COPY_PIECE &&
           (cut = recv_all(sock, data, len)) == 0)
        rc = write_all(f->fd, data, len);
    free(data);
    if (rc < 0)
        return fail(f, rc, err);
    if (cut == 0 && len == 0)
        return 0;
    fbr_copy_drop(f);
    if (cut == 0 && len == FBR_COPY_BROKEN)
        return -EPIPE;
    cut = cut < 0 ? cut : -EBADMSG;
    return fbr_fail(err, cut, "%.300s: it broke off: %s", f->path, fbr_strerror(cut));
}

int fbr_copy_commit(struct fbr_copy_file *f, uint32_t mode, struct fbr_error *err)
{
    int rc = fchmod(f->fd, mode & 0777) < 0 ? -errno : 0;

    if (rc == 0 && !f->named) { /* a name of its own first: only a rename replaces what is there */
        rc = fbr_beside_name(f->fd, f->path, f->beside, sizeof(f->beside));
        f->named = rc == 0;
    }
    if (rc == 0 && rename(f->beside, f->path) < 0)
        rc = -errno;
    if (rc < 0)
        return fail(f, rc, err);
    f->named = false;
    rc = close(f->fd) < 0 ? -errno : 0; /* where a quota or a server speaks last */
    f->fd = -1;
    return rc < 0 ? fbr_fail(err, rc, "%.300s: %s", f->path, fbr_strerror(rc)) : 0;
}

void fbr_copy_drop(struct fbr_copy_file *f)
{
    if (f->named)
        unlink(f->beside);
    if (f->fd >= 0)
        close(f->fd);
    f->fd = -1;
    f->named = false;
}
