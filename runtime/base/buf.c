/* buf.c - a growing buffer that messages are written into, and a bounds-checked cursor that reads
 * them.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "runtime/base/buf.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LIST_MAX 65536      /* strings */
#define LIST_STR (1u << 20) /* bytes of each */

void *fbr_grow(void *list, size_t n, size_t size)
{
    void *at;

    memcpy(&at, list, sizeof(at));
    if (!(n & (n - 1))) {
        at = realloc(at, (n ? n * 2 : 1) * size);
        if (!at)
            return NULL;
        memcpy(list, &at, sizeof(at));
    }
    return memset((char *)at + n * size, 0, size);
}

void fbr_buf_init(struct fbr_buf *b)
{
    memset(b, 0, sizeof(*b));
}

void fbr_buf_fini(struct fbr_buf *b)
{
    free(b->data);
    fbr_buf_init(b);
}

void fbr_buf_clear(struct fbr_buf *b)
{
    b->len = 0;
    b->failed = false;
}

void *fbr_buf_reserve(struct fbr_buf *b, size_t n)
{
    if (b->failed || n > SIZE_MAX - b->len) {
        b->failed = true;
        return NULL;
    }
    if (b->len + n > b->cap || !b->data) {
        size_t cap = b->cap ? b->cap : 256;
        uint8_t *data;

        while (cap < b->len + n)
            cap = cap > SIZE_MAX / 2 ? b->len + n : cap * 2;
        data = realloc(b->data, cap);
        if (!data) {
            b->failed = true;
            return NULL;
        }
        b->data = data;
        b->cap = cap;
    }
    return b->data + b->len;
}

void *fbr_buf_extend(struct fbr_buf *b, size_t n)
{
    void *at = fbr_buf_reserve(b, n);

    if (at)
        b->len += n;
    return at;
}

char *fbr_buf_text(struct fbr_buf *b)
{
    char *text;

    fbr_put_u8(b, 0);
    if (b->failed)
        fbr_buf_fini(b);
    text = (char *)b->data;
    fbr_buf_init(b);
    return text;
}

void fbr_buf_consume(struct fbr_buf *b, size_t n)
{
    if (n >= b->len) {
        b->len = 0;
        return;
    }
    memmove(b->data, b->data + n, b->len - n);
    b->len -= n;
}

void fbr_put(struct fbr_buf *b, const void *data, size_t len)
{
    void *at = fbr_buf_extend(b, len);

    if (at && len)
        memcpy(at, data, len);
}

void fbr_put_u8(struct fbr_buf *b, uint8_t v)
{
    fbr_put(b, &v, 1);
}

void fbr_put_u16(struct fbr_buf *b, uint16_t v)
{
    fbr_put(b, &v, sizeof(v));
}

void fbr_put_u32(struct fbr_buf *b, uint32_t v)
{
    fbr_put(b, &v, sizeof(v));
}

void fbr_put_u64(struct fbr_buf *b, uint64_t v)
{
    fbr_put(b, &v, sizeof(v));
}

void fbr_putf(struct fbr_buf *b, const char *fmt, ...)
{
    char *text;
    va_list ap;
    int n;

    va_start(ap, fmt);
    n = vasprintf(&text, fmt, ap);
    va_end(ap);
    b->failed |= n < 0;
    if (n < 0)
        return;
    fbr_put(b, text, (size_t)n);
    free(text);
}

const uint8_t fbr_zeros[8] = {0};

void fbr_put_pad8(struct fbr_buf *b, size_t n)
{
    fbr_put(b, fbr_zeros, fbr_pad8(n));
}

void fbr_put_bytes(struct fbr_buf *b, const void *data, size_t len)
{
    if (len > UINT32_MAX) {
        b->failed = true;
        return;
    }
    fbr_put_u32(b, (uint32_t)len);
    fbr_put(b, data, len);
}

void fbr_put_str(struct fbr_buf *b, const char *s)
{
    fbr_put_bytes(b, s, s ? strlen(s) : 0);
}

void fbr_put_list(struct fbr_buf *b, char *const *list)
{
    uint32_t n = 0;

    while (list && list[n])
        n++;
    fbr_put_u32(b, n);
    for (uint32_t i = 0; i < n; i++)
        fbr_put_str(b, list[i]);
}

void fbr_set_u32(struct fbr_buf *b, size_t at, uint32_t v)
{
    if (!b->failed && at + sizeof(v) <= b->len)
        memcpy(b->data + at, &v, sizeof(v));
}

void fbr_put_fields(struct fbr_buf *b, const struct fbr_field *f, const void *from)
{
    for (; f->size; f++) {
        const void *at = (const uint8_t *)from + f->at;

        if (f->kind == FBR_FIELD_STR)
            fbr_put_str(b, at);
        else
            fbr_put(b, at, f->size);
    }
}

struct fbr_cur fbr_cur(const void *data, size_t len)
{
    struct fbr_cur c = {data, data, false};

    if (data)
        c.end = c.at + len;
    return c;
}

const void *fbr_get(struct fbr_cur *c, size_t len)
{
    const uint8_t *at = c->at;

    if (c->bad || len > fbr_cur_left(c)) {
        c->bad = true;
        return NULL;
    }
    c->at += len;
    return at;
}

/* Copies the next n bytes; zeros if the cursor is bad. */
static void copy_out(struct fbr_cur *c, void *to, size_t n)
{
    const void *from = fbr_get(c, n);

    if (from)
        memcpy(to, from, n);
    else
        memset(to, 0, n);
}

uint8_t fbr_get_u8(struct fbr_cur *c)
{
    const uint8_t *p = fbr_get(c, 1);

    return p ? *p : 0;
}

uint16_t fbr_get_u16(struct fbr_cur *c)
{
    uint16_t v;

    copy_out(c, &v, sizeof(v));
    return v;
}

uint32_t fbr_get_u32(struct fbr_cur *c)
{
    uint32_t v;

    copy_out(c, &v, sizeof(v));
    return v;
}

uint64_t fbr_get_u64(struct fbr_cur *c)
{
    uint64_t v;

    copy_out(c, &v, sizeof(v));
    return v;
}

const void *fbr_get_bytes(struct fbr_cur *c, size_t *len)
{
    size_t n = fbr_get_u32(c);
    const void *p = fbr_get(c, n);

    *len = p ? n : 0;
    return p;
}

/* Returns a string without NUL bytes, in place and without a NUL at its end. NULL: the cursor is
 * bad, because the string has more than `max` bytes, for instance. */
static const char *get_text(struct fbr_cur *c, size_t max, size_t *len)
{
    const char *p = fbr_get_bytes(c, len);

    if (p && *len <= max && !memchr(p, '\0', *len))
        return p;
    c->bad = true;
    return NULL;
}

void fbr_get_str(struct fbr_cur *c, char *out, size_t size)
{
    size_t len;
    const char *p = get_text(c, size - 1, &len);

    if (p)
        memcpy(out, p, len);
    out[p ? len : 0] = '\0';
}

char *fbr_get_strdup(struct fbr_cur *c, size_t max)
{
    size_t len;
    const char *p = get_text(c, max, &len);
    char *s = p ? malloc(len + 1) : NULL;

    c->bad |= !s;
    if (!s)
        return NULL;
    memcpy(s, p, len);
    s[len] = '\0';
    return s;
}

void fbr_list_free(char **list)
{
    for (size_t i = 0; list && list[i]; i++)
        free(list[i]);
    free(list);
}

char **fbr_get_list(struct fbr_cur *c)
{
    uint32_t n = fbr_get_u32(c);
    char **list =
        n <= LIST_MAX && n <= fbr_cur_left(c) ? calloc((size_t)n + 1, sizeof(*list)) : NULL;

    if (!list)
        c->bad = true;
    for (uint32_t i = 0; list && i < n; i++)
        list[i] = fbr_get_strdup(c, LIST_STR);
    if (!fbr_cur_ok(c)) {
        fbr_list_free(list);
        return NULL;
    }
    return list;
}

void fbr_get_fields(struct fbr_cur *c, const struct fbr_field *f, void *to)
{
    for (; f->size; f++) {
        void *at = (uint8_t *)to + f->at;

        if (f->kind == FBR_FIELD_STR)
            fbr_get_str(c, at, f->size);
        else if (f->kind == FBR_FIELD_BOOL)
            *(bool *)at = fbr_get_u8(c) != 0;
        else
            copy_out(c, at, f->size);
    }
}
