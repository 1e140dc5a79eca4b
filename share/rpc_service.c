/* rpc_service.c - the owner's side of calls on an object; see rpc.h.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "share/rpc.h"

static void on_record(void *user, uint64_t peer, const void *record, size_t len)
{
    struct fbr_rpc_service *s = user;
    struct fbr_cur c = fbr_cur(record, len);
    uint32_t op = fbr_get_u32(&c);
    uint64_t call;

    fbr_get_u32(&c);
    call = fbr_get_u64(&c);
    if (!fbr_cur_ok(&c))
        return;
    switch (op) {
    case FBR_RPC_CALL:
        s->ops->on_call(s->user, peer, call, c.at, fbr_cur_left(&c));
        break;
    case FBR_RPC_CANCEL:
        if (s->ops->on_cancel)
            s->ops->on_cancel(s->user, peer, call);
        break;
    case FBR_RPC_LEAVE:
        if (s->ops->on_gone)
            s->ops->on_gone(s->user, peer);
        break;
    default:
        break;
    }
}

static void on_gone(void *user, uint64_t peer)
{
    struct fbr_rpc_service *s = user;

    if (s->ops->on_gone)
        s->ops->on_gone(s->user, peer);
}

static const struct fbr_object_ops object_ops = {.on_record = on_record, .on_gone = on_gone};

int fbr_service_open(struct fbr_rpc_service *s)
{
    struct fbr_runtime *rt = fbr_rt();

    if (!rt)
        return fbr_kept();
    s->limit = fbr_config_size(rt->config, "max_message") - FBR_RPC_ROOM;
    return fbr_object_open(&s->object, &object_ops, s);
}

void fbr_service_answer(struct fbr_rpc_service *s, uint64_t peer, uint64_t call, int code,
                        const void *bytes, size_t len)
{
    struct fbr_rpc_answer head = {call, code, 0};
    struct iovec iov[2] = {{&head, sizeof(head)}, {(void *)(uintptr_t)bytes, len}};
    char text[128];

    if (len > s->limit) {
        snprintf(text, sizeof(text), "an answer of %zu bytes is longer than max_message", len);
        head.code = -EMSGSIZE;
        iov[1] = (struct iovec){text, strlen(text)};
    }
    fbr_object_send(s->object, peer, iov, iov[1].iov_len ? 2 : 1);
}

void fbr_service_close(struct fbr_rpc_service *s)
{
    fbr_object_close(s->object);
}
