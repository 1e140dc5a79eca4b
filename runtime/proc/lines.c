/* lines.c - puts the output of ranks together on a shared screen.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "runtime/proc/lines.h"

#include <string.h>

static void keep_tail(struct fbr_line_stream *s, const char *data, size_t len)
{
    if (len > FBR_LINE_TAIL) {
        data += len - FBR_LINE_TAIL;
        len = FBR_LINE_TAIL;
    }
    if (s->tail.len + len > 2 * FBR_LINE_TAIL)
        fbr_buf_consume(&s->tail, s->tail.len + len - FBR_LINE_TAIL);
    fbr_put(&s->tail, data, len);
}

void fbr_screen_break(struct fbr_screen *screen, struct fbr_buf *out)
{
    if (screen->owner && screen->coloured)
        fbr_put(out, "\033[0m", 4);
    if (screen->owner)
        fbr_put(out, screen->raw ? "\r\n" : "\n", screen->raw ? 2 : 1);
    screen->owner = screen->last = NULL;
    screen->coloured = screen->returned = false;
}

/* Puts one line, or a part of one, on a terminal, without its newline. */
static void put_moving(struct fbr_screen *screen, const char *tag, size_t tag_len, const char *at,
                       const char *end, struct fbr_buf *out)
{
    screen->coloured |= at < end && memchr(at, '\033', (size_t)(end - at)) != NULL;
    if (!tag_len) {
        fbr_put(out, at, (size_t)(end - at));
        return;
    }
    while (at < end) {
        const char *back = memchr(at, '\r', (size_t)(end - at));
        const char *stop = back ? back + 1 : end;

        if (screen->returned)
            fbr_put(out, tag, tag_len);
        fbr_put(out, at, (size_t)(stop - at));
        screen->returned = back != NULL;
        at = stop;
    }
}

const char *fbr_line_behind_return(const char *at, const char *end)
{
    const char *back;

    while (end > at && end[-1] == '\r')
        end--;
    back = end > at ? memrchr(at, '\r', (size_t)(end - at)) : NULL;
    return back ? back + 1 : at;
}

/* Puts bytes on the screen; the last line may be unfinished. */
static void put(struct fbr_line_stream *s, struct fbr_screen *screen, const char *tag,
                const char *at, size_t len, struct fbr_buf *out)
{
    const char *end = at + len;
    size_t tag_len = strlen(tag);

    if (!len)
        return;
    if (screen->owner && screen->owner != s->who)
        fbr_screen_break(screen, out);
    screen->last = s->who;
    if (!tag_len && !screen->terminal) { /* nothing needs to go between lines */
        fbr_put(out, at, len);
        screen->owner = end[-1] == '\n' ? NULL : s->who;
        return;
    }
    while (at < end) {
        const char *nl = memchr(at, '\n', (size_t)(end - at)), *stop = nl ? nl : end;

        if (!screen->owner)
            fbr_put(out, tag, tag_len);
        screen->owner = s->who;
        if (screen->terminal)
            put_moving(screen, tag, tag_len, at, stop, out);
        else
            fbr_put(out, at, (size_t)(stop - at));
        if (nl)
            fbr_screen_break(screen, out);
        screen->last = s->who;
        at = nl ? nl + 1 : end;
    }
}

/* Shows the held part of a line. */
static void put_part(struct fbr_line_stream *s, struct fbr_screen *screen, const char *tag,
                     struct fbr_buf *out)
{
    screen->held -= s->part.len;
    put(s, screen, tag, (const char *)s->part.data, s->part.len, out);
    if (s->part.cap > 65536)
        fbr_buf_fini(&s->part);
    else
        fbr_buf_clear(&s->part);
}

/* Whether only the last state of a progress bar is of use on this screen. */
static bool drops_returns(const struct fbr_screen *screen, const char *tag)
{
    return !screen->terminal && *tag;
}

static bool has_return(const struct fbr_line_stream *s, const char *at, const char *last)
{
    return memchr(at, '\r', (size_t)(last - at)) ||
           (s->part.len && memchr(s->part.data, '\r', s->part.len));
}

static void drop_returns(struct fbr_line_stream *s, struct fbr_screen *screen)
{
    const char *at = (const char *)s->part.data;
    size_t n = s->part.len ? (size_t)(fbr_line_behind_return(at, at + s->part.len) - at) : 0;

    fbr_buf_consume(&s->part, n);
    screen->held -= n;
}

static void hold(struct fbr_line_stream *s, struct fbr_screen *screen, const char *tag,
                 const char *at, size_t len, struct fbr_buf *out)
{
    fbr_put(&s->part, at, len);
    screen->held += len;
    if (s->part.len > FBR_LINE_HELD && drops_returns(screen, tag))
        drop_returns(s, screen);
    if (s->part.len > FBR_LINE_HELD || screen->held > FBR_LINES_HELD)
        put_part(s, screen, tag, out);
}

void fbr_line_add(struct fbr_line_stream *s, struct fbr_screen *screen, const char *tag,
                  const void *data, size_t len, struct fbr_buf *out)
{
    const char *at = data, *end = at + len, *last;
    struct fbr_buf shown = {0};

    keep_tail(s, data, len);
    if (screen->terminal) {
        fbr_printable_filter(&s->filter, data, len, &shown);
        at = (const char *)shown.data;
        end = at + shown.len;
        out->failed |= shown.failed;
    }
    last = at < end ? memrchr(at, '\n', (size_t)(end - at)) : NULL;
    while (last && at <= last && drops_returns(screen, tag) && has_return(s, at, last)) {
        const char *nl = memchr(at, '\n', (size_t)(end - at));

        if (s->part.len) {
            hold(s, screen, tag, at, (size_t)(nl - at), out);
            drop_returns(s, screen);
            put_part(s, screen, tag, out);
            at = nl;
        }
        at = fbr_line_behind_return(at, nl);
        put(s, screen, tag, at, (size_t)(nl + 1 - at), out);
        at = nl + 1;
    }
    if (last && at <= last) {
        put_part(s, screen, tag, out);
        put(s, screen, tag, at, (size_t)(last + 1 - at), out);
        at = last + 1;
    }
    if (at < end)
        hold(s, screen, tag, at, (size_t)(end - at), out);
    fbr_buf_fini(&shown);
}

void fbr_line_raw(struct fbr_line_stream *s, struct fbr_screen *screen, const void *data,
                  size_t len)
{
    if (!len)
        return;
    keep_tail(s, data, len);
    screen->owner = ((const char *)data)[len - 1] == '\n' ? NULL : s->who;
    screen->last = s->who;
}

void fbr_line_show(struct fbr_line_stream *s, struct fbr_screen *screen, const char *tag,
                   struct fbr_buf *out)
{
    bool whole = !screen->terminal && (screen->shared || *tag);

    if (s->part.len && !(whole && memchr(s->part.data, '\r', s->part.len)))
        put_part(s, screen, tag, out);
}

void fbr_line_end(struct fbr_line_stream *s, struct fbr_screen *screen, const char *tag,
                  struct fbr_buf *out)
{
    if (drops_returns(screen, tag))
        drop_returns(s, screen);
    put_part(s, screen, tag, out);
    if (screen->owner == s->who && screen->coloured)
        fbr_put(out, "\033[0m", 4);
    if (screen->owner == s->who)
        screen->coloured = false;
    s->filter = (struct fbr_printable_filter){0};
}

void fbr_line_report(const struct fbr_line_stream *s, const char *before, const char *after,
                     struct fbr_buf *out)
{
    struct fbr_printable_filter plain = {.plain = true};
    struct fbr_buf text = {0};
    const char *at, *end;
    int lines = 0;

    fbr_printable_filter(&plain, s->tail.data, s->tail.len, &text);
    at = (const char *)text.data;
    end = at + text.len;
    while (end > at && (end[-1] == '\n' || end[-1] == '\r'))
        end--;
    for (const char *p = end; p > at; p--)
        if (p[-1] == '\n' && ++lines == FBR_LINE_REPORT) {
            at = p;
            break;
        }
    while (at < end) {
        const char *nl = memchr(at, '\n', (size_t)(end - at)), *stop = nl ? nl : end;

        fbr_put(out, before, strlen(before));
        for (at = fbr_line_behind_return(at, stop); at < stop; at++)
            if ((unsigned char)*at >= ' ' || *at == '\t')
                fbr_put_u8(out, (uint8_t)*at);
        fbr_put(out, after, strlen(after));
        at = nl ? nl + 1 : end;
    }
    fbr_buf_fini(&text);
}

void fbr_line_fini(struct fbr_line_stream *s, struct fbr_screen *screen)
{
    screen->held -= s->part.len;
    fbr_buf_fini(&s->part);
    fbr_buf_fini(&s->tail);
}
