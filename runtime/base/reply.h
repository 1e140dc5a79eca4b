/* reply.h - the answer of a task or a method, written directly into the message that carries it.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdatomic.h>

#include "fiber.h"
#include "runtime/base/buf.h"

struct fiber_reply {
    struct fbr_buf *buf;          /* the message */
    size_t start;                 /* where this answer begins in the message */
    int code;                     /* the code of fiber_reply_fail() */
    bool failed;                  /* the bytes behind `start` are the text of an error, */
    bool bytes;                   /* or bytes that only the caller understands */
    const atomic_bool *cancelled; /* may be NULL */
};

void fbr_reply_init(struct fiber_reply *r, struct fbr_buf *buf, const atomic_bool *cancelled);
/* Ends the answer after the function returned `rc`. Returns 0 or a negative code: a positive `rc`
 * becomes -EIO, with the number in the text. The text of an error is behind `start`. */
int fbr_reply_end(struct fiber_reply *r, int rc);
