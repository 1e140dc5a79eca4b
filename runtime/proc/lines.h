/* lines.h - puts the output of jobs and ranks together on one screen; pure.
 *
 * A screen is the target of the bytes: a terminal, a pipe or a file. Output appears there in whole
 * lines; an unfinished line appears only if there is a reason to show it. The screen knows whose
 * unfinished line is on it, so that the next line of another rank begins on a fresh line.
 * Otherwise, bytes change only as the caller asks or as a terminal needs:
 *
 *   a tag               in front of each line; on a terminal again after a return (\r), so that a
 *                       progress bar keeps it; in a pipe or a file, only the part of a line after
 *                       its last return is passed on
 *   a terminal          gets no control sequences except colours and the erasing of a line
 *                       (printable.h); a colour ends with its line
 *   several ranks       into a pipe or a file: a progress bar is passed on when its line has ended
 *
 * SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "runtime/base/buf.h"
#include "runtime/base/printable.h"

#define FBR_LINE_HELD (1u << 20)   /* a longer line is passed on in parts */
#define FBR_LINES_HELD (64u << 20) /* beyond this sum, unfinished lines are passed on, too */
#define FBR_LINE_TAIL 2048         /* bytes of the end of each stream, kept for reports */
#define FBR_LINE_REPORT 10         /* lines of the tail that a report shows */

struct fbr_screen {
    bool terminal;
    bool raw;    /* a newline alone begins no new line there */
    bool shared; /* several ranks write there */
    /* owner of the unfinished line on the screen; NULL: the next byte begins a line */
    const void *owner;
    const void *last; /* owner of the last bytes; NULL: this process */
    bool coloured;    /* that line has escape sequences */
    bool returned;    /* its last byte is a return */
    size_t held;      /* bytes of unfinished lines that are not shown */
};

struct fbr_line_stream {
    const void *who;     /* the rank of the stream, for the screen's owner */
    struct fbr_buf part; /* a line without its end, not shown yet */
    struct fbr_buf tail;
    struct fbr_printable_filter filter;
};

/* Appends to `out` the bytes that the screen gets now: the whole lines, with `tag` in front of
 * each. */
void fbr_line_add(struct fbr_line_stream *s, struct fbr_screen *screen, const char *tag,
                  const void *data, size_t len, struct fbr_buf *out);
/* Shows the unfinished line, too, because nothing follows for now; not if the screen needs whole
 * lines. */
void fbr_line_show(struct fbr_line_stream *s, struct fbr_screen *screen, const char *tag,
                   struct fbr_buf *out);
/* Shows the unfinished line at the end of the stream, without a newline. */
void fbr_line_end(struct fbr_line_stream *s, struct fbr_screen *screen, const char *tag,
                  struct fbr_buf *out);
/* Notes bytes that another part shows unchanged: they count as the last bytes on the screen, and
 * for reports. */
void fbr_line_raw(struct fbr_line_stream *s, struct fbr_screen *screen, const void *data,
                  size_t len);
/* Ends the unfinished line on the screen, because another part writes there now. */
void fbr_screen_break(struct fbr_screen *screen, struct fbr_buf *out);
/* Appends the last lines of the stream for a report, each between `before` and `after`: the part
 * after the line's last return, without control characters. */
void fbr_line_report(const struct fbr_line_stream *s, const char *before, const char *after,
                     struct fbr_buf *out);
/* Returns the part of a line, without its newline, behind its last return: the last state of a
 * progress bar. Returns at its end belong to that part. Pure. */
const char *fbr_line_behind_return(const char *at, const char *end);
void fbr_line_fini(struct fbr_line_stream *s, struct fbr_screen *screen);
