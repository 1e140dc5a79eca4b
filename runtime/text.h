/* text.h - text that others chose (command lines, lines of ranks), made fit to be shown.
 *
 * Pure; any thread.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef FBR_TEXT_H
#define FBR_TEXT_H

#include <stddef.h>

/* How many bytes the character at s has, if it is printable and well-formed UTF-8 (no control
 * character, surrogate or overlong form); else 0. Reads no byte behind a NUL. */
size_t fbr_text_char(const unsigned char *s);
/* Copies text, with '?' for each byte of what is not such a character, and "..." at the end when it
 * does not fit. */
void fbr_text_plain(char *out, size_t size, const char *text);
/* argv as one line of such text. */
void fbr_text_command(char *out, size_t size, const char *const *argv);

#endif
