/* text.h - text that others chose (command lines, lines of ranks), made fit to be shown.
 *
 * Pure; any thread.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef FBR_TEXT_H
#define FBR_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "runtime/base/buf.h"

/* How many bytes the character at s has, if it is printable and well-formed UTF-8 (no control
 * character, surrogate or overlong form); else 0. Reads no byte behind a NUL. */
size_t fbr_text_char(const unsigned char *s);
/* Copies text, with '?' for each byte of what is not such a character, and "..." at the end when it
 * does not fit. */
void fbr_text_plain(char *out, size_t size, const char *text);
/* Copies text; of one that does not fit as many words as do, and " ...". */
void fbr_text_cut(char *out, size_t size, const char *text);
/* Makes a sentence of it: without blanks at its end, and with a full stop unless it ends otherwise.
 * Not of a text of several lines, which quotes something. */
void fbr_text_end(char *text, size_t size);

/* A stream on its way to a terminal: control sequences may be cut anywhere. Zeros begin one. */
struct fbr_text_filter {
    uint8_t state, len;
    bool plain; /* colours are dropped, too */
    char sequence[32];
};

/* Appends what a terminal may be given of these bytes: text, newline, return, tab and backspace, colours (SGR) and
 * the erasing of a line's rest (EL); every other control character and escape sequence is dropped. */
void fbr_text_filter(struct fbr_text_filter *f, const void *data, size_t len, struct fbr_buf *out);

#endif
