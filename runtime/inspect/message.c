/* message.c - messages between a client of a run's control socket and one of its processes.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "runtime/inspect/message.h"

#include <endian.h>
#include <errno.h>
#include <string.h>
#include <sys/socket.h>

/* ---- Contents ---- */

bool fbr_msg_get_item(struct fbr_cur *c, struct fbr_msg_item *i)
{
    i->mode = fbr_get_u32(c);
    fbr_get_str(c, i->name, sizeof(i->name));
    fbr_get_str(c, i->path, sizeof(i->path));
    return fbr_cur_ok(c) && !strchr(i->name, '/');
}

bool fbr_msg_get_done(struct fbr_cur *c, int *code, char text[FBR_MSG_TEXT])
{
    *code = (int32_t)fbr_get_u32(c);
    fbr_get_str(c, text, FBR_MSG_TEXT);
    return fbr_cur_ok(c);
}

/* ---- Sending ---- */

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

int fbr_msg_send(int sock, enum fbr_msg_kind kind, const void *data, size_t len)
{
    uint32_t all = htole32((uint32_t)len + 1);
    uint8_t head[5] = {[4] = (uint8_t)kind};
    int rc;

    if (len > FBR_MSG_MAX)
        return -EMSGSIZE;
    memcpy(head, &all, 4);
    rc = send_all(sock, head, sizeof(head));
    return rc < 0 ? rc : send_all(sock, data, len);
}

int fbr_msg_send_data(int sock, const void *data, size_t len)
{
    const char *at = data;
    int rc = 0;

    while (rc == 0 && len) {
        size_t n = len < FBR_MSG_MAX ? len : FBR_MSG_MAX;

        rc = fbr_msg_send(sock, FBR_MSG_DATA, at, n);
        at += n;
        len -= n;
    }
    return rc < 0 ? rc : fbr_msg_send(sock, FBR_MSG_DATA, NULL, 0);
}

int fbr_msg_send_item(int sock, enum fbr_msg_kind kind, uint32_t mode, const char *name,
                      const char *path)
{
    struct fbr_buf b = {0};
    int rc;

    if (strlen(name) >= FBR_MSG_NAME || strlen(path) >= FBR_MSG_PATH)
        return -ENAMETOOLONG;
    fbr_put_u32(&b, mode);
    fbr_put_str(&b, name);
    fbr_put_str(&b, path);
    rc = b.failed ? -ENOMEM : fbr_msg_send(sock, kind, b.data, b.len);
    fbr_buf_fini(&b);
    return rc;
}

void fbr_msg_put_done(struct fbr_buf *b, int code, const char *text)
{
    size_t len = strnlen(text, FBR_MSG_TEXT - 1);

    fbr_put_u32(b, (uint32_t)(1 + 4 + 4 + len));
    fbr_put_u8(b, FBR_MSG_DONE);
    fbr_put_u32(b, (uint32_t)code);
    fbr_put_bytes(b, text, len);
}

int fbr_msg_send_done(int sock, int code, const char *text)
{
    struct fbr_buf b = {0};
    int rc;

    fbr_msg_put_done(&b, code, text);
    rc = b.failed ? -ENOMEM : send_all(sock, b.data, b.len);
    fbr_buf_fini(&b);
    return rc;
}

/* ---- Receiving ---- */

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

static int recv_one(int sock, struct fbr_msg *m)
{
    uint8_t head[5];
    uint32_t len;
    void *room;
    int rc = recv_all(sock, head, sizeof(head));

    if (rc < 0)
        return rc;
    memcpy(&len, head, 4);
    len = le32toh(len);
    if (len < 1 || len > FBR_MSG_MAX + 1)
        return -EBADMSG;
    m->kind = head[4];
    fbr_buf_clear(&m->bytes);
    /* one byte more than the body, so that it is never zero bytes */
    room = fbr_buf_extend(&m->bytes, len);
    if (!room)
        return -ENOMEM;
    rc = recv_all(sock, room, len - 1);
    m->body = fbr_cur(m->bytes.data, len - 1);
    return rc;
}

int fbr_msg_malformed(struct fbr_error *err)
{
    return fbr_fail(err, -EBADMSG,
                    "the other end sent an invalid message; is it another version of Fiber?");
}

int fbr_msg_recv(int sock, struct fbr_msg *m, struct fbr_error *err)
{
    char text[FBR_MSG_TEXT];
    struct fbr_cur c;
    int rc = recv_one(sock, m), code;

    if (rc == -EBADMSG)
        return fbr_msg_malformed(err);
    if (rc < 0)
        return fbr_fail(err, rc, "%s",
                        rc == -EAGAIN ? "the other end has sent nothing for a minute; is its job, "
                                        "or the agent of its ranks, stopped?"
                        : rc == -ECONNRESET ? "the job or its launcher has ended"
                                            : fbr_strerror(rc));
    c = m->body;
    if (m->kind != FBR_MSG_DONE)
        return m->kind;
    if (!fbr_msg_get_done(&c, &code, text))
        return fbr_msg_malformed(err);
    return code < 0 ? fbr_fail(err, code, "in the job: %s", text) : m->kind;
}

int fbr_msg_expect(int sock, struct fbr_msg *m, enum fbr_msg_kind kind, struct fbr_error *err)
{
    int rc = fbr_msg_recv(sock, m, err);

    return rc < 0 ? rc : rc == (int)kind ? 0 : fbr_msg_malformed(err);
}
