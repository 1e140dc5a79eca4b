/* printable.c - makes text from other programs safe to print.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "runtime/base/printable.h"

#include <stdio.h>
#include <string.h>

size_t fbr_printable_utf8(const unsigned char *s)
{
    static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
    size_t n = s[0] < 0x80   ? 1
               : s[0] < 0xc2 ? 0
               : s[0] < 0xe0 ? 2
               : s[0] < 0xf0 ? 3
               : s[0] < 0xf5 ? 4
                             : 0;
    uint32_t v;

    if (n < 2)
        return n;
    v = s[0] & (0xffu >> (n + 1));
    for (size_t i = 1; i < n; i++) {
        if ((s[i] & 0xc0) != 0x80)
            return 0;
        v = v << 6 | (s[i] & 0x3fu);
    }
    return v < least[n] || v > 0x10ffff || (v >= 0xd800 && v < 0xe000) ? 0 : n;
}

size_t fbr_printable_char(const unsigned char *s)
{
    bool control = s[0] < 0x20 || s[0] == 0x7f || (s[0] == 0xc2 && s[1] < 0xa0);

    return control ? 0 : fbr_printable_utf8(s);
}

void fbr_printable_plain(char *out, size_t size, const char *text)
{
    const unsigned char *s = (const unsigned char *)text;
    size_t at = 0, safe = 0; /* safe: the last offset at which "..." fits */

    while (*s) {
        size_t n = fbr_printable_char(s), take = n ? n : 1;

        if (at + 4 <= size)
            safe = at;
        if (at + take >= size) {
            if (size >= 4)
                memcpy(out + safe, "...", 4);
            else if (size)
                out[at] = '\0';
            return;
        }
        if (n)
            memcpy(out + at, s, n);
        else
            out[at] = '?';
        at += take;
        s += take;
    }
    if (size)
        out[at] = '\0';
}

void fbr_printable_cut(char *out, size_t size, const char *text)
{
    size_t n = (size_t)snprintf(out, size, "%s", text);

    if (n < size || size < 5)
        return;
    n = size - 5;
    for (size_t i = n; i > n / 2; i--)
        if (text[i] == ' ') { /* cut between words, unless the word is too long */
            n = i;
            break;
        }
    while (n > 0 && strchr(" ,;:", text[n - 1]))
        n--;
    while (n > 0 && ((unsigned char)text[n] & 0xc0) == 0x80) /* do not cut inside a character */
        n--;
    memcpy(out + n, " ...", 5); /* the text before this was copied above */
}

void fbr_printable_last_line(const char *text, char *out, size_t size)
{
    const char *end = text + strlen(text), *at;

    while (end > text && end[-1] == '\n')
        end--;
    at = end;
    while (at > text && at[-1] != '\n')
        at--;
    snprintf(out, size, "%.*s", (int)(end - at), at);
}

void fbr_printable_end(char *text, size_t size)
{
    size_t n = strlen(text);

    while (n > 0 && strchr(" \t\r\n", text[n - 1]))
        text[--n] = '\0';
    if (n > 0 && n + 1 < size && !strchr(text, '\n') && !strchr(".?!:", text[n - 1]))
        memcpy(text + n, ".", 2);
}

/* ---- The filter for terminals ---- */

enum {
    F_TEXT,
    F_C1,       /* 0xc2: the first byte of a character from U+0080 to U+00bf */
    F_ESCAPE,   /* ESC */
    F_BETWEEN,  /* ESC and intermediate bytes */
    F_SEQUENCE, /* ESC [ */
    F_STRING,   /* ESC ] and similar: until BEL or ESC \ */
    F_STRING_ESCAPE,
};

static int filter_text(struct fbr_printable_filter *f, uint8_t c, struct fbr_buf *out)
{
    if (c == 0x1b)
        return F_ESCAPE;
    if (c == 0xc2)
        return F_C1;
    if ((c >= 0x20 && c != 0x7f) || (c >= '\b' && c <= '\n') || c == '\r')
        fbr_put_u8(out, c);
    f->len = 0;
    return F_TEXT;
}

static int filter_escape(uint8_t c)
{
    if (c == '[')
        return F_SEQUENCE;
    if (c && strchr("]PX^_", c))
        return F_STRING;
    return c >= 0x20 && c < 0x30 ? F_BETWEEN : F_TEXT;
}

static int filter_sequence(struct fbr_printable_filter *f, uint8_t c, struct fbr_buf *out)
{
    bool fits = f->len < sizeof(f->sequence);

    if (c >= 0x20 && c < 0x40) {
        if (fits)
            f->sequence[f->len++] = (char)c;
        return F_SEQUENCE;
    }
    for (uint8_t i = 0; i < f->len; i++)
        fits &= f->sequence[i] != '\0' && strchr("0123456789;:", f->sequence[i]) != NULL;
    if (fits && (c == 'm' || c == 'K') && !f->plain) {
        fbr_put(out, "\033[", 2);
        fbr_put(out, f->sequence, f->len);
        fbr_put_u8(out, c);
    }
    f->len = 0;
    return F_TEXT;
}

/* Whether c ends the current sequence: a control character does, and the filter then handles it as
 * text. */
static bool interrupts(const struct fbr_printable_filter *f, uint8_t c)
{
    if (f->state == F_STRING || f->state == F_STRING_ESCAPE)
        return c == '\n';
    return f->state >= F_ESCAPE && (c < 0x20 || c >= 0x7f);
}

static void filter_byte(struct fbr_printable_filter *f, uint8_t c, struct fbr_buf *out)
{
    if (f->state == F_C1) {
        f->state = F_TEXT;
        if (c >= 0x80 && c < 0xa0)
            return;
        fbr_put_u8(out, 0xc2);
    } else if (interrupts(f, c)) {
        f->state = F_TEXT;
        f->len = 0;
    }
    switch (f->state) {
    case F_ESCAPE:
        f->state = (uint8_t)filter_escape(c);
        break;
    case F_BETWEEN:
        f->state = c >= 0x20 && c < 0x30 ? F_BETWEEN : F_TEXT;
        break;
    case F_SEQUENCE:
        f->state = (uint8_t)filter_sequence(f, c, out);
        break;
    case F_STRING:
        f->state = c == 0x07 ? F_TEXT : c == 0x1b ? F_STRING_ESCAPE : F_STRING;
        break;
    case F_STRING_ESCAPE:
        f->state = c == '\\' ? F_TEXT : F_STRING;
        break;
    default:
        f->state = (uint8_t)filter_text(f, c, out);
    }
}

void fbr_printable_filter(struct fbr_printable_filter *f, const void *data, size_t len,
                          struct fbr_buf *out)
{
    const uint8_t *at = data;

    for (size_t i = 0; i < len; i++)
        filter_byte(f, at[i], out);
}
