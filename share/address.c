/* address.c - addresses of objects, as bytes that travel.
 *
 *     u8 version, u8 kind, u8 flags, u64 owner, u64 object, 32 bytes of key, str url;
 *     zeros up to the end
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <string.h>

#include "share/share.h"

#define VERSION 1

static const char *const kinds[] = {"?", "queue", "pipe", "manager", "store"};

int fbr_address_put(const struct fbr_address *a, struct fiber_address *out)
{
    struct fbr_buf b;
    int rc;

    fbr_buf_init(&b);
    fbr_put_u8(&b, VERSION);
    fbr_put_u8(&b, a->kind);
    fbr_put_u8(&b, a->flags);
    fbr_put_u64(&b, a->owner);
    fbr_put_u64(&b, a->object);
    fbr_put(&b, a->key, FBR_KEY_SIZE);
    fbr_put_str(&b, a->url);
    memset(out, 0, sizeof(*out));
    rc = b.failed ? -ENOMEM : b.len > sizeof(out->bytes) ? -ENAMETOOLONG : 0;
    if (rc == 0)
        memcpy(out->bytes, b.data, b.len);
    if (b.data)
        fbr_wipe(b.data, b.len);
    fbr_buf_fini(&b);
    return rc;
}

int fbr_address_get(struct fbr_address *a, const struct fiber_address *in, enum fbr_kind kind)
{
    struct fbr_cur c = fbr_cur(in->bytes, sizeof(in->bytes));
    uint8_t version = fbr_get_u8(&c);
    const void *key;

    a->kind = fbr_get_u8(&c);
    a->flags = fbr_get_u8(&c);
    a->owner = fbr_get_u64(&c);
    a->object = fbr_get_u64(&c);
    key = fbr_get(&c, FBR_KEY_SIZE);
    fbr_get_str(&c, a->url, sizeof(a->url));
    if (!fbr_cur_ok(&c) || version != VERSION || a->kind == 0 || a->kind > FBR_KIND_STORE)
        return fbr_keep(-EINVAL, "these bytes are not an address of Fiber");
    if (a->kind != kind)
        return fbr_keep(-EINVAL, "this is the address of a %s, not of a %s", kinds[a->kind],
                        kinds[kind]);
    memcpy(a->key, key, FBR_KEY_SIZE);
    return 0;
}
