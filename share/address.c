/* address.c - addresses of objects, as bytes and as text.
 *
 *     u8 version, u8 kind, u8 flags, u64 owner, u64 object, 32 bytes of key, str url;
 *     zeros to the end
 *
 * As text: "fiber:" and these bytes in hexadecimal digits, without the zeros at their end. A text
 * that was cut off ends within the url, so the url is malformed.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <ctype.h>
#include <errno.h>
#include <string.h>

#include "share/share.h"

#define VERSION 1
#define PREFIX "fiber:"

#define FIELD(member) FBR_FIELD(struct fbr_address, member)
static const struct fbr_field fields[] = {FIELD(kind), FIELD(flags), FIELD(owner), FIELD(object),
                                          FIELD(key),  FIELD(url),   {0}};

static const char *const kinds[] = {"?", "queue", "pipe", "manager", "store", "ring"};

int fbr_address_put(const struct fbr_address *a, struct fiber_address *out)
{
    struct fbr_buf b = {0};
    int rc;

    fbr_put_u8(&b, VERSION);
    fbr_put_fields(&b, fields, a);
    memset(out, 0, sizeof(*out));
    rc = b.failed ? -ENOMEM : b.len > sizeof(out->bytes) ? -ENAMETOOLONG : 0;
    if (rc == 0)
        memcpy(out->bytes, b.data, b.len);
    if (b.data)
        fbr_wipe(b.data, b.len);
    fbr_buf_fini(&b);
    return rc;
}

static int read_address(struct fbr_address *a, const struct fiber_address *in)
{
    struct fbr_cur c = fbr_cur(in->bytes, sizeof(in->bytes));
    uint8_t version = fbr_get_u8(&c);

    fbr_get_fields(&c, fields, a);
    return fbr_cur_ok(&c) && version == VERSION && a->kind && a->kind <= FBR_KIND_RING && a->url[0]
               ? 0
               : -EINVAL;
}

int fbr_address_get(struct fbr_address *a, const struct fiber_address *in, enum fbr_kind kind)
{
    if (read_address(a, in) < 0)
        return fbr_keep(-EINVAL, "these bytes are not an address of Fiber");
    if (a->kind != kind)
        return fbr_keep(-EINVAL, "this is the address of a %s, not of a %s", kinds[a->kind],
                        kinds[kind]);
    return 0;
}

/* ---- As text ---- */

static bool is_address(const struct fiber_address *address)
{
    struct fbr_address a;
    bool is = read_address(&a, address) == 0;

    fbr_wipe(&a, sizeof(a));
    return is;
}

int fiber_address_format(const struct fiber_address *address, char *text, size_t size)
{
    static const char digits[] = "0123456789abcdef";
    size_t n = sizeof(address->bytes), at = sizeof(PREFIX) - 1;

    if (!is_address(address))
        return fbr_keep(-EINVAL, "these bytes are not an address of Fiber");
    while (!address->bytes[n - 1])
        n--;
    if (size < at + 2 * n + 1)
        return fbr_keep(-ERANGE, "this address needs %zu bytes as text, but size is %zu",
                        at + 2 * n + 1, size);
    memcpy(text, PREFIX, at);
    for (size_t i = 0; i < n; i++) {
        text[at++] = digits[address->bytes[i] >> 4];
        text[at++] = digits[address->bytes[i] & 15];
    }
    text[at] = '\0';
    return 0;
}

static int digit(char c)
{
    return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

int fiber_address_parse(struct fiber_address *address, const char *text)
{
    bool good = text && strncmp(text, PREFIX, sizeof(PREFIX) - 1) == 0; /* NULL: of getenv() */
    struct fiber_address a = {{0}};
    size_t n = 0;

    text = good ? text + sizeof(PREFIX) - 1 : "";
    while (good && *text && !isspace((unsigned char)*text)) {
        int high = digit(text[0]), low = high < 0 ? -1 : digit(text[1]);

        good = low >= 0 && n < sizeof(a.bytes);
        if (good)
            a.bytes[n++] = (unsigned char)(high << 4 | low);
        text += 2;
    }
    good = good && !text[strspn(text, " \t\r\n")] && is_address(&a);
    if (good)
        *address = a;
    fbr_wipe(&a, sizeof(a));
    return good ? 0
                : fbr_keep(-EINVAL, "this text is not an address of Fiber, or it is incomplete");
}
