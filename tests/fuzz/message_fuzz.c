/* message_fuzz.c - messages of a visit, read from a hostile end; an inside that could be read is
 * written and read again, and must be the same.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "runtime/inspect/exec.h"

static void check_item(struct fbr_cur c)
{
    struct fbr_msg_item i, again;
    struct fbr_buf b;

    if (!fbr_msg_get_item(&c, &i))
        return;
    if (strchr(i.name, '/'))
        abort();
    fbr_buf_init(&b);
    fbr_put_u32(&b, i.mode);
    fbr_put_str(&b, i.name);
    fbr_put_str(&b, i.path);
    c = fbr_cur(b.data, b.len);
    if (b.failed || !fbr_msg_get_item(&c, &again) || i.mode != again.mode ||
        strcmp(i.name, again.name) != 0 || strcmp(i.path, again.path) != 0)
        abort();
    fbr_buf_fini(&b);
}

static void check_done(struct fbr_cur c)
{
    char text[FBR_MSG_TEXT];
    int code;

    if (fbr_msg_get_done(&c, &code, text) && strlen(text) >= sizeof(text))
        abort();
}

static void check_command(struct fbr_cur c)
{
    struct fbr_exec_request r, again;
    struct fbr_buf b;
    size_t n = 0;

    fbr_buf_init(&b);
    if (fbr_exec_get(&c, &r) == 0) {
        fbr_exec_put(&b, r.input, r.rank, r.argv);
        c = fbr_cur(b.data, b.len);
        if (b.failed || fbr_exec_get(&c, &again) < 0 || r.rank != again.rank ||
            r.input != again.input)
            abort();
        for (; r.argv[n]; n++)
            if (!again.argv[n] || strcmp(r.argv[n], again.argv[n]) != 0)
                abort();
        if (again.argv[n] || n == 0)
            abort();
        fbr_list_free(again.argv);
    }
    fbr_list_free(r.argv);
    fbr_buf_fini(&b);
}

static void check_stream(const uint8_t *data, size_t size)
{
    struct fbr_msg m = {.kind = 0};
    struct fbr_error err;
    int ends[2], rc = 1;

    if (size > FBR_MSG_MAX || socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) < 0)
        return;
    if (send(ends[0], data, size, MSG_NOSIGNAL | MSG_DONTWAIT) != (ssize_t)size)
        size = 0;
    shutdown(ends[0], SHUT_WR);
    while (rc >= 0) {
        rc = fbr_msg_recv(ends[1], &m, &err);
        if (rc >= 0 && (rc != m.kind || fbr_cur_left(&m.body) > size))
            abort();
        if (rc < 0 && !err.text[0])
            abort();
    }
    fbr_buf_fini(&m.bytes);
    close(ends[0]);
    close(ends[1]);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    check_item(fbr_cur(data, size));
    check_done(fbr_cur(data, size));
    check_command(fbr_cur(data, size));
    check_stream(data, size);
    return 0;
}
