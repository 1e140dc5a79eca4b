/* text.c - text of others, made fit to be shown; see text.h.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "runtime/text.h"

#include <stdint.h>
#include <stdio.h>
#include <string.h>

size_t fbr_text_char(const unsigned char *s)
{
    static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
    size_t n = s[0] < 0x80   ? 1
               : s[0] < 0xc2 ? 0
               : s[0] < 0xe0 ? 2
               : s[0] < 0xf0 ? 3
               : s[0] < 0xf5 ? 4
                             : 0;
    uint32_t v;

    if (n == 1)
        return s[0] >= 0x20 && s[0] != 0x7f;
    if (!n)
        return 0;
    v = s[0] & (0xffu >> (n + 1));
    for (size_t i = 1; i < n; i++) {
        if ((s[i] & 0xc0) != 0x80)
            return 0;
        v = v << 6 | (s[i] & 0x3fu);
    }
    return v < least[n] || v > 0x10ffff || (v >= 0xd800 && v < 0xe000) || (v >= 0x80 && v < 0xa0)
               ? 0
               : n;
}

void fbr_text_plain(char *out, size_t size, const char *text)
{
    const unsigned char *s = (const unsigned char *)text;
    size_t at = 0, safe = 0; /* safe: the last place where "..." would fit */

    while (*s) {
        size_t n = fbr_text_char(s), take = n ? n : 1;

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

void fbr_text_command(char *out, size_t size, const char *const *argv)
{
    char line[2048];
    size_t at = 0;

    for (int i = 0; argv && argv[i] && at < sizeof(line) - 1; i++) {
        int n = snprintf(line + at, sizeof(line) - at, "%s%s", i ? " " : "", argv[i]);

        at += n < 0 ? 0 : (size_t)n;
    }
    line[at < sizeof(line) ? at : sizeof(line) - 1] = '\0';
    fbr_text_plain(out, size, line);
}
