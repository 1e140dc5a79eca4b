/* store_wire.h - the bytes of requests to a shared store and of its answers.
 *
 * A request is: u8 op, name (u32 length, bytes), then the op's arguments in the order of the table
 * (w: u8 wait, n: u64 number, v: u32 length and bytes of the value, x: u8 0, or 1 and the expected
 * value as u32 length and bytes). All little endian. The value of LOCK is the caller's name for the
 * messages of other processes. An answer is a code and bytes:
 *
 *     op           arguments  code                                          bytes
 *     SET          v          0                                             -
 *     GET          w          0; -ENOENT (also when waiting ended)          the value
 *     SWAP         x v        0; -ESTALE                                    -; u8 1 and the value,
 *                                                                           or u8 0: it is absent
 *     DELETE       -          0; -ENOENT (nothing has the name)             -
 *     KEYS         -          0                                             names with this prefix,
 *                                                                           each with its NUL
 *     ADD          n delta    0; -ERANGE                                    u64: the new value
 *     PUSH         v          0                                             -
 *     POP          w          0; -ETIMEDOUT                                 the value
 *     AT           n index    0; -ENOENT                                    the value
 *     LENGTH       -          0                                             u64
 *     LOCK         w v name   0; -EOWNERDEAD (held now), -ETIMEDOUT         -; -ETIMEDOUT: the
 *                                                                           holder's name
 *     UNLOCK       -          0; -EPERM                                     -
 *     ACQUIRE      n w        0; -ETIMEDOUT, -EINVAL (initial n < 1)        -
 *     RELEASE      -          0; -EPERM (this peer holds no unit)           -
 *     EVENT_SET    -          0                                             -
 *     EVENT_CLEAR  -          0                                             -
 *     EVENT_WAIT   w          0; -ETIMEDOUT                                 -
 *     BARRIER      n w        0; -ETIMEDOUT, -ECONNABORTED, -EINVAL (n)     u32: the index
 *
 * Every op may also be answered -ENOMEM, -ENOSPC (the store's limit) and -EBADMSG. wait 0: answer
 * at once. wait 1: the answer may come late, and the client withdraws the request when its time is
 * over (fbr_store_cancel()).
 *
 * Pure functions, except fbr_store_main(); any thread.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

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
