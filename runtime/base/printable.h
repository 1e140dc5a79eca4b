/* printable.h - makes text from other programs (command lines, lines of ranks) safe to print.
 *
 * Pure; any thread.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "runtime/base/buf.h"

/* Returns the number of bytes of the character at s if it is well-formed UTF-8 (no surrogate or
 * overlong form), else 0. Reads no byte behind a NUL. */
size_t fbr_printable_utf8(const unsigned char *s);
/* The same, but returns 0 for a control character, too. */
size_t fbr_printable_char(const unsigned char *s);
/* Copies text, with '?' for each byte that is not part of such a character. A text that does not
 * fit ends in "...". */
void fbr_printable_plain(char *out, size_t size, const char *text);
/* Copies text. If the text does not fit, copies as many words as fit, then " ...". */
void fbr_printable_cut(char *out, size_t size, const char *text);
/* Copies the last line of a text; newlines at its end do not count. */
void fbr_printable_last_line(const char *text, char *out, size_t size);
/* Turns a text into a sentence: removes blanks at its end, and adds a full stop unless the text
 * ends with a punctuation mark. Adds none to a text of several lines, because it quotes other
 * text. */
void fbr_printable_end(char *text, size_t size);

/* The state of a stream that goes to a terminal; a control sequence may be split between two calls.
 * Starts as zeros. */
struct fbr_printable_filter {
    uint8_t state, len;
    bool plain; /* colours and erasing are dropped, too */
    char sequence[32];
};

/* Appends the bytes that are safe for a terminal: text, newline, return, tab and backspace, colours
 * (SGR), and the sequence that erases the rest of a line (EL). Drops every other control character
 * and escape sequence. */
void fbr_printable_filter(struct fbr_printable_filter *f, const void *data, size_t len,
                          struct fbr_buf *out);
