/* lines.h - bytes of a rank's stream to whole lines: pure.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef FBR_LINES_H
#define FBR_LINES_H

#include <stdbool.h>
#include <stddef.h>

#include "runtime/buf.h"

#define FBR_LINE_HELD (64u << 20) /* a line that is longer is passed on in parts */
#define FBR_LINE_TAIL 2048        /* of the end of each stream, kept for reports */

struct fbr_line_stream {
    struct fbr_buf part; /* a line without its end */
    struct fbr_buf tail;
};

/* Appends to `out` the lines that are whole now, with `tag` in front of each; `reset` ends lines
 * that have escape sequences with the one that undoes colours, so that a colour does not run into
 * another rank's line. */
void fbr_line_add(struct fbr_line_stream *s, const char *tag, bool reset, const void *data,
                  size_t len, struct fbr_buf *out);
/* The same for an unfinished line, which gets its end. */
void fbr_line_end(struct fbr_line_stream *s, const char *tag, bool reset, struct fbr_buf *out);
void fbr_line_fini(struct fbr_line_stream *s);

#endif
