/* buf.h - a growing buffer that messages are written into, and the one bounds-checked cursor that
 * reads them.
 *
 * Everything on a wire is little endian. A buffer remembers that an allocation failed: check
 * `failed` once, at the end, instead of after each put. A cursor turns bad when a read asks for
 * more bytes than are left. A bad cursor returns zeros and never copies; check `fbr_cur_ok` before
 * you use the values.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__,
               "some records are written as they lie in memory");

/* Adds a zeroed element to a list of n elements in memory of malloc(), at whose pointer `list`
 * points. The capacity is the next power of two. Returns the element, or NULL without memory. */
void *fbr_grow(void *list, size_t n, size_t size);

struct fbr_buf { /* zeros are an empty buffer */
    uint8_t *data;
    size_t len, cap;
    bool failed; /* an allocation failed: do not use the contents */
};

void fbr_buf_init(struct fbr_buf *b);
void fbr_buf_fini(struct fbr_buf *b);
void fbr_buf_clear(struct fbr_buf *b); /* empty, memory kept */

/* Makes room for n more bytes. Returns where they go (the length stays the same), or sets `failed`
 * and returns NULL. */
void *fbr_buf_reserve(struct fbr_buf *b, size_t n);
/* Adds n bytes with undefined contents. Returns where they are, or sets `failed` and returns
 * NULL. */
void *fbr_buf_extend(struct fbr_buf *b, size_t n);
/* Ends the contents with a NUL and returns them, for free(); NULL: an allocation failed. The buffer
 * is empty afterwards. */
char *fbr_buf_text(struct fbr_buf *b);
/* Drops the first n bytes. */
void fbr_buf_consume(struct fbr_buf *b, size_t n);

void fbr_put(struct fbr_buf *b, const void *data, size_t len);
void fbr_put_u8(struct fbr_buf *b, uint8_t v);
void fbr_put_u16(struct fbr_buf *b, uint16_t v);
void fbr_put_u32(struct fbr_buf *b, uint32_t v);
void fbr_put_u64(struct fbr_buf *b, uint64_t v);
/* Puts text without its NUL. */
void fbr_putf(struct fbr_buf *b, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* Many records have zeros behind n bytes, up to a multiple of 8: how many, and puts them. */
static inline size_t fbr_pad8(size_t n)
{
    return (8 - n % 8) % 8;
}
extern const uint8_t fbr_zeros[8];
void fbr_put_pad8(struct fbr_buf *b, size_t n);
/* u32 length, then the bytes. A NULL string is written as "". */
void fbr_put_bytes(struct fbr_buf *b, const void *data, size_t len);
void fbr_put_str(struct fbr_buf *b, const char *s);
/* u32 count, then the strings of a NULL-terminated list. NULL: an empty list. */
void fbr_put_list(struct fbr_buf *b, char *const *list);
/* Overwrites the u32 at offset `at`. */
void fbr_set_u32(struct fbr_buf *b, size_t at, uint32_t v);

/* Members of a struct that are written and read one after another: a string (char [n]) as by
 * fbr_put_str(), a bool as u8, any other member as it lies in memory. A table ends with {0}. */
struct fbr_field {
    size_t at, size;
    enum { FBR_FIELD_PLAIN, FBR_FIELD_BOOL, FBR_FIELD_STR } kind;
};
#define FBR_FIELD_KIND(member) \
    _Generic((member), bool : FBR_FIELD_BOOL, char * : FBR_FIELD_STR, default : FBR_FIELD_PLAIN)
#define FBR_FIELD(type, member)                                                                  \
    {                                                                                            \
        offsetof(type, member), sizeof(((type *)0)->member), FBR_FIELD_KIND(((type *)0)->member) \
    }
void fbr_put_fields(struct fbr_buf *b, const struct fbr_field *fields, const void *from);

struct fbr_cur {
    const uint8_t *at, *end;
    bool bad;
};

struct fbr_cur fbr_cur(const void *data, size_t len);
uint8_t fbr_get_u8(struct fbr_cur *c);
uint16_t fbr_get_u16(struct fbr_cur *c);
uint32_t fbr_get_u32(struct fbr_cur *c);
uint64_t fbr_get_u64(struct fbr_cur *c);
/* Returns the next len bytes, in place: they are valid as long as the message. NULL: the cursor is
 * bad. */
const void *fbr_get(struct fbr_cur *c, size_t len);
/* Reads a u32 length, then bytes, in place. */
const void *fbr_get_bytes(struct fbr_cur *c, size_t *len);
/* Reads a u32 length, then a string without NUL bytes, and copies the string with its NUL into
 * `out`. The cursor turns bad if the string does not fit into `size` bytes. */
void fbr_get_str(struct fbr_cur *c, char *out, size_t size);
/* Reads a string of at most `max` bytes into new memory, which the caller frees. NULL: the cursor
 * is bad. */
char *fbr_get_strdup(struct fbr_cur *c, size_t max);
/* Reads a list of at most 65,536 strings of at most 1 MiB each, for fbr_list_free(). NULL: the
 * cursor is bad. */
char **fbr_get_list(struct fbr_cur *c);
void fbr_list_free(char **list); /* NULL is fine */
void fbr_get_fields(struct fbr_cur *c, const struct fbr_field *fields, void *to);
static inline size_t fbr_cur_left(const struct fbr_cur *c)
{
    return (size_t)(c->end - c->at);
}
static inline bool fbr_cur_ok(const struct fbr_cur *c)
{
    return !c->bad;
}
