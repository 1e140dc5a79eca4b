/* copy_fuzz.c - what is asked of a visited process, and what it answers, read as either; what could be read is written
 * and read again, and must be the same.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>
#include <string.h>

#include "runtime/inspect/copy.h"

static struct fbr_cur inside(const struct fbr_buf *b)
{
    struct fbr_cur c = fbr_cur(b->data, b->len);

    if (b->failed || fbr_get_u32(&c) != b->len - 4 || b->len - 4 > FBR_COPY_MESSAGE)
        abort();
    return c;
}

static void check_request(struct fbr_cur c)
{
    struct fbr_copy_request r, again;
    struct fbr_buf b;

    if (!fbr_copy_get_request(&c, &r))
        return;
    fbr_buf_init(&b);
    fbr_copy_put_request(&b, &r);
    c = inside(&b);
    if (!fbr_copy_get_request(&c, &again) || r.op != again.op || r.mode != again.mode ||
        strcmp(r.path, again.path) != 0 || strcmp(r.name, again.name) != 0 || strchr(r.name, '/'))
        abort();
    fbr_buf_fini(&b);
}

static void check_answer(struct fbr_cur c)
{
    struct fbr_copy_answer a, again;
    struct fbr_buf b;

    if (!fbr_copy_get_answer(&c, &a))
        return;
    fbr_buf_init(&b);
    fbr_copy_put_answer(&b, &a);
    c = inside(&b);
    if (!fbr_copy_get_answer(&c, &again) || a.code != again.code || a.mode != again.mode ||
        strcmp(a.text, again.text) != 0)
        abort();
    fbr_buf_fini(&b);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    check_request(fbr_cur(data, size));
    check_answer(fbr_cur(data, size));
    return 0;
}
