/* ticket.c - the ticket that a job gets from its parent.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "runtime/proc/ticket.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MAGIC 0x4b544246u /* "FBTK" */
/* longest wait for the next bytes of a ticket that comes over a network */
#define STREAM_MS 60000

#define FIELD(member) FBR_FIELD(struct fbr_join, member)
static const struct fbr_field fields[] = {FIELD(url),   FIELD(run_uid), FIELD(name),
                                          FIELD(root),  FIELD(by_host), FIELD(me.kind),
                                          FIELD(me.id), FIELD(secret),  {0}};

void fbr_join_put(const struct fbr_join *j, const struct fbr_config *config, struct fbr_buf *b)
{
    fbr_put_u32(b, MAGIC);
    fbr_put_fields(b, fields, j);
    fbr_config_put(config, b);
}

int fbr_join_get(struct fbr_join *j, struct fbr_config **config, const void *data, size_t len,
                 struct fbr_error *err)
{
    struct fbr_cur c = fbr_cur(data, len);
    uint32_t magic = fbr_get_u32(&c);
    int rc;

    memset(j, 0, sizeof(*j));
    fbr_get_fields(&c, fields, j);
    if (!fbr_cur_ok(&c) || magic != MAGIC)
        return fbr_fail(err, -EBADMSG, "the ticket from the parent is damaged");
    *config = fbr_config_new();
    if (!*config)
        return fbr_fail(err, -ENOMEM, "out of memory");
    rc = fbr_config_get(*config, &c, err);
    if (rc < 0) {
        fbr_config_free(*config);
        *config = NULL;
    }
    return rc;
}

/* Reads exactly `len` bytes of a stream, which may be slow: waits at most STREAM_MS for each
 * piece. */
static int read_stream(int fd, uint8_t *data, size_t len)
{
    struct pollfd readable = {.fd = fd, .events = POLLIN};

    while (len) {
        int ready = poll(&readable, 1, STREAM_MS);
        ssize_t n;

        if (ready == 0)
            return -ETIMEDOUT;
        n = ready < 0 ? -1 : read(fd, data, len);
        if (n < 0 && errno != EINTR && errno != EAGAIN)
            return -errno;
        if (n == 0)
            return -ENODATA;
        data += n > 0 ? n : 0;
        len -= n > 0 ? (size_t)n : 0;
    }
    return 0;
}

/* Reads a length, then that many bytes. */
static int read_counted(int fd, uint8_t *data, size_t *len)
{
    uint8_t head[4];
    struct fbr_cur c;
    int rc = read_stream(fd, head, sizeof(head));

    if (rc < 0)
        return rc;
    c = fbr_cur(head, sizeof(head));
    *len = fbr_get_u32(&c);
    return *len > FBR_TICKET_MAX ? -EBADMSG : read_stream(fd, data, *len);
}

/* Reads the ticket from standard input, and replaces standard input by /dev/null: later bytes are
 * not for us, and the end of that stream does not mean the parent's end. */
static int read_stdin(uint8_t *data, size_t *len)
{
    int rc = read_counted(0, data, len);
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);

    if (null >= 0 && null != 0) {
        dup2(null, 0);
        close(null);
    }
    return rc;
}

static bool is_ticket(const void *data, size_t len)
{
    struct fbr_cur c = fbr_cur(data, len);

    return fbr_get_u32(&c) == MAGIC;
}

/* Reads the ticket; empties its file, and removes the file if it has a name. Any other file stays
 * as it is: a wrapper of the program may have opened one at the ticket's descriptor. */
static int read_and_wipe(const char *where, uint8_t *data, size_t *len)
{
    const char *path = strncmp(where, "file:", 5) == 0 ? where + 5 : NULL;
    int fd = path ? open(path, O_RDWR | O_CLOEXEC) : -1;
    ssize_t n = 0;
    int rc;

    if (strcmp(where, "fd:0") == 0)
        return read_stdin(data, len);
    if (strncmp(where, "fd:", 3) == 0)
        fd = atoi(where + 3);
    /* a mounted secret is read-only */
    else if (path && fd < 0 && (fd = open(path, O_RDONLY | O_CLOEXEC)) < 0)
        return -errno;
    if (fd < 3)
        return -EBADF;
    while (*len < FBR_TICKET_MAX &&
           (n = pread(fd, data + *len, FBR_TICKET_MAX - *len, (off_t)*len)) > 0)
        *len += (size_t)n;
    rc = n < 0 ? -errno : is_ticket(data, *len) ? 0 : -ENODATA;
    if (rc < 0)
        goto done;
    (void)!ftruncate(fd, 0); /* fails on a read-only mount, where the engine removes the file */
    if (path)
        unlink(path);
done:
    close(fd);
    return rc;
}

int fbr_join_take(struct fbr_join *j, struct fbr_config **config, struct fbr_error *err)
{
    const char *where = getenv(FBR_TICKET_ENV);
    uint8_t *data;
    size_t len = 0;
    int rc;

    if (!where || !where[0])
        return 1;
    data = malloc(FBR_TICKET_MAX);
    if (!data)
        return fbr_fail(err, -ENOMEM, "out of memory");
    rc = read_and_wipe(where, data, &len);
    if (rc < 0)
        fbr_fail(err, rc,
                 "cannot read the ticket (%s=%s): %s; was the variable inherited by a program of "
                 "the job?",
                 FBR_TICKET_ENV, where, fbr_strerror(rc));
    else
        rc = fbr_join_get(j, config, data, len, err);
    fbr_wipe(data, FBR_TICKET_MAX);
    free(data);
    unsetenv(FBR_TICKET_ENV);
    return rc;
}
