/* reply.c - the answers of tasks and methods, written directly into the messages that carry them.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "runtime/base/reply.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "runtime/base/error.h"

void fbr_reply_init(struct fiber_reply *r, struct fbr_buf *buf, const atomic_bool *cancelled)
{
    *r = (struct fiber_reply){.buf = buf, .start = buf->len, .cancelled = cancelled};
}

static void put_error(struct fiber_reply *r, const void *data, size_t len)
{
    r->buf->failed = false;
    r->buf->len = r->start;
    fbr_put(r->buf, data, len);
    r->failed = true;
    r->bytes = false;
}

static void put_text(struct fiber_reply *r, const char *text)
{
    put_error(r, text, strlen(text));
}

int fbr_reply_end(struct fiber_reply *r, int rc)
{
    char text[64];

    if (rc == 0 && r->failed)
        rc = r->code;
    if (r->buf->failed) {
        put_text(r, "the answer does not fit into memory");
        return -ENOMEM;
    }
    if (rc != 0 && !r->failed) {
        snprintf(text, sizeof(text), "the function returned %d", rc);
        put_text(r, text);
    } else if (rc > 0 && !r->bytes) {
        fbr_putf(r->buf, " (code %d)", rc);
    }
    return rc > 0 ? -EIO : rc;
}

int fiber_reply_write(struct fiber_reply *r, const void *data, size_t len)
{
    if (r->failed)
        return fbr_keep(-EINVAL, "fiber_reply_write: the answer is an error already");
    fbr_put(r->buf, data, len);
    return r->buf->failed ? fbr_keep(-ENOMEM, "the answer does not fit into memory") : 0;
}

void *fiber_reply_alloc(struct fiber_reply *r, size_t len)
{
    return r->failed ? NULL : fbr_buf_extend(r->buf, len);
}

int fiber_reply_fail(struct fiber_reply *r, int code, const char *fmt, ...)
{
    char text[2048];
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    r->code = code ? code : -EIO;
    put_text(r, text);
    return r->code;
}

int fiber_reply_fail_bytes(struct fiber_reply *r, int code, const void *data, size_t len)
{
    r->code = code ? code : -EIO;
    put_error(r, data, len);
    r->bytes = true;
    return r->code;
}

int fiber_reply_cancelled(struct fiber_reply *r)
{
    return r->cancelled && atomic_load_explicit(r->cancelled, memory_order_relaxed);
}
