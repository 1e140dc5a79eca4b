/* store_wire.c - writes and reads requests to a shared store; see store_wire.h.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "share/store_wire.h"

#include <errno.h>
#include <string.h>

/* The arguments of each op, in their order. w: u8 wait; n: u64 number; v: u32 length and bytes of
 * the value; x: u8 0, or 1 and the expected value like v. */
static const char *const arguments[FBR_STORE_OPS] = {
    [FBR_STORE_SET] = "v",        [FBR_STORE_GET] = "w",        [FBR_STORE_SWAP] = "xv",
    [FBR_STORE_DELETE] = "",      [FBR_STORE_KEYS] = "",        [FBR_STORE_ADD] = "n",
    [FBR_STORE_PUSH] = "v",       [FBR_STORE_POP] = "w",        [FBR_STORE_AT] = "n",
    [FBR_STORE_LENGTH] = "",      [FBR_STORE_LOCK] = "wv",      [FBR_STORE_UNLOCK] = "",
    [FBR_STORE_ACQUIRE] = "nw",   [FBR_STORE_RELEASE] = "",     [FBR_STORE_EVENT_SET] = "",
    [FBR_STORE_EVENT_CLEAR] = "", [FBR_STORE_EVENT_WAIT] = "w", [FBR_STORE_BARRIER] = "nw",
};

struct fbr_store_ask fbr_store_ask(enum fbr_store_op op, const char *name)
{
    return (struct fbr_store_ask){.op = op, .name = name, .name_len = name ? strlen(name) : 0};
}

static bool is_name(const void *name, size_t len)
{
    return len <= FBR_STORE_NAME_MAX && (!len || !memchr(name, 0, len));
}

static void put_argument(struct fbr_buf *b, const struct fbr_store_ask *ask, char letter)
{
    switch (letter) {
    case 'w':
        fbr_put_u8(b, ask->wait);
        break;
    case 'n':
        fbr_put_u64(b, (uint64_t)ask->number);
        break;
    case 'v':
        fbr_put_bytes(b, ask->value, ask->value_len);
        break;
    case 'x':
        fbr_put_u8(b, ask->expect != NULL);
        if (ask->expect)
            fbr_put_bytes(b, ask->expect, ask->expect_len);
        break;
    }
}

int fbr_store_ask_put(struct fbr_buf *b, const struct fbr_store_ask *ask)
{
    size_t len = b->len;

    if (ask->op < FBR_STORE_SET || ask->op >= FBR_STORE_OPS || !is_name(ask->name, ask->name_len))
        return -EINVAL;
    if (ask->value_len > UINT32_MAX || ask->expect_len > UINT32_MAX)
        return -EMSGSIZE;
    fbr_put_u8(b, (uint8_t)ask->op);
    fbr_put_bytes(b, ask->name, ask->name_len);
    for (const char *letter = arguments[ask->op]; *letter; letter++)
        put_argument(b, ask, *letter);
    if (!b->failed)
        return 0;
    b->len = len;
    return -ENOMEM;
}

static bool get_flag(struct fbr_cur *c)
{
    uint8_t flag = fbr_get_u8(c);

    if (flag > 1)
        c->bad = true;
    return flag == 1;
}

static void get_argument(struct fbr_cur *c, struct fbr_store_ask *ask, char letter)
{
    switch (letter) {
    case 'w':
        ask->wait = get_flag(c);
        break;
    case 'n':
        ask->number = (int64_t)fbr_get_u64(c);
        break;
    case 'v':
        ask->value = fbr_get_bytes(c, &ask->value_len);
        break;
    case 'x':
        if (get_flag(c))
            ask->expect = fbr_get_bytes(c, &ask->expect_len);
        break;
    }
}

int fbr_store_ask_get(struct fbr_cur *c, struct fbr_store_ask *ask)
{
    uint8_t op = fbr_get_u8(c);

    memset(ask, 0, sizeof(*ask));
    if (!fbr_cur_ok(c) || op < FBR_STORE_SET || op >= FBR_STORE_OPS)
        return -EBADMSG;
    ask->op = (enum fbr_store_op)op;
    ask->name = fbr_get_bytes(c, &ask->name_len);
    if (!fbr_cur_ok(c) || !is_name(ask->name, ask->name_len))
        return -EBADMSG;
    for (const char *letter = arguments[op]; *letter; letter++)
        get_argument(c, ask, *letter);
    return fbr_cur_ok(c) && !fbr_cur_left(c) ? 0 : -EBADMSG;
}
