/* store_wire.h - the bytes of requests to a shared store and of its answers.
 *
 * A request is: u8 op, name (u32 length, bytes), then the arguments of the op, all little endian.
 * An answer is a code and bytes. docs/wire.md has the arguments, codes and bytes of each op. A
 * request with `wait` may be answered late; the client withdraws it when its time is over
 * (fbr_store_cancel()).
 *
 * Pure functions, except fbr_store_main(); any thread.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "runtime/base/buf.h"

#define FBR_STORE_NAME_MAX 255 /* bytes, without a NUL */

enum fbr_store_op {
    FBR_STORE_SET = 1,
    FBR_STORE_GET,
    FBR_STORE_SWAP,
    FBR_STORE_DELETE,
    FBR_STORE_KEYS,
    FBR_STORE_ADD,
    FBR_STORE_PUSH,
    FBR_STORE_POP,
    FBR_STORE_AT,
    FBR_STORE_LENGTH,
    FBR_STORE_LOCK,
    FBR_STORE_UNLOCK,
    FBR_STORE_ACQUIRE,
    FBR_STORE_RELEASE,
    FBR_STORE_EVENT_SET,
    FBR_STORE_EVENT_CLEAR,
    FBR_STORE_EVENT_WAIT,
    FBR_STORE_BARRIER,
    FBR_STORE_OPS, /* one more than the last */
};

/* A request. Fields that its op does not carry are ignored when written and zero when read.
 * Pointers that were read point into the message. */
struct fbr_store_ask {
    enum fbr_store_op op;
    const char *name; /* not terminated when read */
    size_t name_len;
    const void *value;
    size_t value_len;
    const void *expect; /* NULL: absent. When read, an expected empty value is not NULL */
    size_t expect_len;
    int64_t number; /* delta, index, initial, parties */
    bool wait;
};

/* A short form for clients: {op, name, strlen(name)}; a NULL name is "". */
struct fbr_store_ask fbr_store_ask(enum fbr_store_op op, const char *name);

/* Appends the request. 0; -EINVAL: a name that is too long or has a NUL byte; -EMSGSIZE: a value
 * over 4 GiB - 1; -ENOMEM. After an error `b` is as before, except for `failed`. */
int fbr_store_ask_put(struct fbr_buf *b, const struct fbr_store_ask *ask);
/* Reads a request that must fill the rest of `c`. 0 or -EBADMSG. */
int fbr_store_ask_get(struct fbr_cur *c, struct fbr_store_ask *ask);

/* A fiber_process_fn (store_serve.c): serves a new store until its parent closes it, then ends the
 * process. */
int fbr_store_main(const void *arg, size_t len);
