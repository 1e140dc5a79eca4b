/* lines.h - what jobs and ranks print, put together on one screen: whole lines of several ranks, and unfinished ones
 * when there is a reason to show them: pure.
 *
 * A screen is where the bytes go: a terminal, a pipe, a file. It knows whose unfinished line stands on it: the next
 * line of another rank begins on a fresh one. Bytes are not changed otherwise, but for what was asked for or what a
 * terminal needs:
 *
 *   a tag               in front of each line; on a terminal again behind a return (\r), so that a progress bar keeps
 *                       it; in a pipe or a file, of a line with returns only what is behind the last one is passed on
 *   a terminal          gets no control sequences but colours and the erasing of a line (text.h); a colour ends with
 *                       its line
 *   several ranks       into a pipe or a file: a progress bar is passed on when its line has ended
 *
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef FBR_LINES_H
#define FBR_LINES_H

#include <stdbool.h>
#include <stddef.h>

#include "runtime/base/buf.h"
#include "runtime/base/text.h"

#define FBR_LINE_HELD (1u << 20)   /* a line that is longer is passed on in parts */
#define FBR_LINES_HELD (64u << 20) /* so are unfinished lines when they are more than this in all */
#define FBR_LINE_TAIL 2048         /* of the end of each stream, kept for reports */
#define FBR_LINE_REPORT 10         /* lines of it that are shown */

struct fbr_screen {
    bool terminal;
    bool raw;          /* and makes no new line of a newline alone */
    bool shared;       /* several ranks write there */
    const void *owner; /* whose unfinished line stands there; NULL: the next byte begins a line */
    const void *last;  /* whose bytes came last; NULL: our own */
    bool coloured;     /* that line has escape sequences */
    bool returned;     /* its last byte is a return */
    size_t held;       /* bytes of unfinished lines that are not shown */
};

struct fbr_line_stream {
    const void *who;     /* the rank that it is of, for the screen's owner */
    struct fbr_buf part; /* a line without its end, not shown yet */
    struct fbr_buf tail;
    struct fbr_text_filter filter;
};

/* Appends to `out` what the screen is given now: the lines that are whole, with `tag` in front of each. */
void fbr_line_add(struct fbr_line_stream *s, struct fbr_screen *screen, const char *tag,
                  const void *data, size_t len, struct fbr_buf *out);
/* Nothing follows for now: the unfinished line, too, unless it has to be whole there. */
void fbr_line_show(struct fbr_line_stream *s, struct fbr_screen *screen, const char *tag,
                   struct fbr_buf *out);
/* Nothing follows any more: the unfinished line, without an end that it did not have. */
void fbr_line_end(struct fbr_line_stream *s, struct fbr_screen *screen, const char *tag,
                  struct fbr_buf *out);
/* What is shown as it is, by somebody else: it counts as what came last, and for reports. */
void fbr_line_raw(struct fbr_line_stream *s, struct fbr_screen *screen, const void *data,
                  size_t len);
/* Somebody else writes there now: ends the unfinished line that stands there. */
void fbr_screen_break(struct fbr_screen *screen, struct fbr_buf *out);
/* Appends the last lines of the stream for a report, each between `before` and `after`: what is behind its last
 * return, without control characters. */
void fbr_line_report(const struct fbr_line_stream *s, const char *before, const char *after,
                     struct fbr_buf *out);
void fbr_line_fini(struct fbr_line_stream *s, struct fbr_screen *screen);

#endif
