/* printable.h - text that others chose (command lines, lines of ranks), made fit to be shown.
 *
 * Pure; any thread.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef FBR_PRINTABLE_H
#define FBR_PRINTABLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "runtime/base/buf.h"

/* How many bytes the character at s has, if it is well-formed UTF-8 (no surrogate or overlong
 * form); else 0. Reads no byte behind a NUL. */
size_t fbr_printable_utf8(const unsigned char *s);
/* The same; 0 too when it is a control character. */
size_t fbr_printable_char(const unsigned char *s);
/* Copies text, with '?' for each byte that is not part of such a character, and "..." at the end
 * when it does not fit. */
void fbr_printable_plain(char *out, size_t size, const char *text);
/* Copies text; from a text that does not fit, as many words as fit, and " ...". */
void fbr_printable_cut(char *out, size_t size, const char *text);
/* Makes a sentence of a text: removes blanks at its end, and adds a full stop unless the text ends
 * with a mark. Not for a text of several lines, which quotes something. */
void fbr_printable_end(char *text, size_t size);

/* The state of a stream to a terminal: control sequences may be cut anywhere. Zeros begin a
 * stream. */
struct fbr_printable_filter {
    uint8_t state, len;
    bool plain; /* colours are dropped, too */
    char sequence[32];
};

/* Appends the bytes that a terminal may be given: text, newline, return, tab and backspace, colours
 * (SGR) and the erasing of a line's rest (EL). Every other control character and escape sequence is
 * dropped. */
void fbr_printable_filter(struct fbr_printable_filter *f, const void *data, size_t len,
                          struct fbr_buf *out);

#endif
