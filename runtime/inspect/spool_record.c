/* spool_record.c - the bytes of a record of kept output.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "runtime/inspect/spool_record.h"

#include <errno.h>

#define REST (FBR_RECORD_HEAD - 4)

void fbr_record_put(struct fbr_buf *b, const struct fbr_record *r)
{
    fbr_put_u32(b, (uint32_t)(REST + r->len));
    fbr_put_u64(b, r->time_us);
    fbr_put_u32(b, r->job);
    fbr_put_u32(b, r->rank);
    fbr_put_u8(b, r->kind);
    fbr_put(b, r->data, r->len);
}

int fbr_record_get(const void *data, size_t len, struct fbr_record *r, size_t *used)
{
    struct fbr_cur c = fbr_cur(data, len);
    uint32_t rest;

    if (len < 4)
        return 0;
    rest = fbr_get_u32(&c);
    if (rest < REST || rest - REST > FBR_RECORD_MAX)
        return -EBADMSG;
    if (fbr_cur_left(&c) < rest)
        return 0;
    *r = (struct fbr_record){.len = rest - REST};
    r->time_us = fbr_get_u64(&c);
    r->job = fbr_get_u32(&c);
    r->rank = fbr_get_u32(&c);
    r->kind = fbr_get_u8(&c);
    r->data = fbr_get(&c, r->len);
    *used = 4 + (size_t)rest;
    return r->kind >= FBR_RECORD_OUT && r->kind <= FBR_RECORD_MARK ? 1 : -EBADMSG;
}
