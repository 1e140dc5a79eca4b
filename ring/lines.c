/* lines.c - bytes to whole lines; see lines.h.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "ring/lines.h"

#include <string.h>

static void keep_tail(struct fbr_line_stream *s, const char *data, size_t len)
{
    if (len > FBR_LINE_TAIL) {
        data += len - FBR_LINE_TAIL;
        len = FBR_LINE_TAIL;
    }
    if (s->tail.len + len > 2 * FBR_LINE_TAIL)
        fbr_buf_consume(&s->tail, s->tail.len + len - FBR_LINE_TAIL < s->tail.len
                                      ? s->tail.len + len - FBR_LINE_TAIL
                                      : s->tail.len);
    fbr_put(&s->tail, data, len);
}

static void put_line(struct fbr_line_stream *s, const char *tag, size_t tag_len, bool reset,
                     const char *data, size_t len, struct fbr_buf *out)
{
    fbr_put(out, tag, tag_len);
    fbr_put(out, s->part.data, s->part.len);
    fbr_put(out, data, len);
    if (reset &&
        (memchr(data, '\033', len) || (s->part.len && memchr(s->part.data, '\033', s->part.len))))
        fbr_put(out, "\033[0m", 4);
    fbr_put_u8(out, '\n');
    if (s->part.cap > 65536)
        fbr_buf_fini(&s->part);
    else
        fbr_buf_clear(&s->part);
}

/* All of it at once, when nothing has to be put between lines. */
static const char *put_block(struct fbr_line_stream *s, const char *at, const char *end,
                             struct fbr_buf *out)
{
    const char *last = memrchr(at, '\n', (size_t)(end - at));

    if (!last)
        return at;
    fbr_put(out, s->part.data, s->part.len);
    fbr_put(out, at, (size_t)(last + 1 - at));
    if (s->part.cap > 65536)
        fbr_buf_fini(&s->part);
    else
        fbr_buf_clear(&s->part);
    return last + 1;
}

void fbr_line_add(struct fbr_line_stream *s, const char *tag, bool reset, const void *data,
                  size_t len, struct fbr_buf *out)
{
    const char *at = data, *end = at + len;
    size_t tag_len = strlen(tag);

    keep_tail(s, data, len);
    if (tag_len == 0 && !reset)
        at = put_block(s, at, end, out);
    while (at < end) {
        const char *nl = memchr(at, '\n', (size_t)(end - at));

        if (!nl) {
            fbr_put(&s->part, at, (size_t)(end - at));
            if (s->part.len > FBR_LINE_HELD)
                fbr_line_end(s, tag, reset, out);
            return;
        }
        put_line(s, tag, tag_len, reset, at, (size_t)(nl - at), out);
        at = nl + 1;
    }
}

void fbr_line_end(struct fbr_line_stream *s, const char *tag, bool reset, struct fbr_buf *out)
{
    if (s->part.len)
        put_line(s, tag, strlen(tag), reset, "", 0, out);
}

void fbr_line_fini(struct fbr_line_stream *s)
{
    fbr_buf_fini(&s->part);
    fbr_buf_fini(&s->tail);
}
