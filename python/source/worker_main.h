/* worker_main.h - what a pool of Python runs in its workers; the form of tasks and results.
 *
 *     common input   u64 kind and flags, then the function, pickled
 *     task           its argument, pickled: as the kind says; FPY_NUMBERED: (number of its call,
 *                    argument)
 *     result         u64 nanoseconds, then the result, pickled
 *     error          code FPY_TASK_RAISED: u64 nanoseconds, then the failure that
 *                    fiber._worker.failure() has made; other codes: a text of the library
 *
 * SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "binding.h"

enum fpy_kind {
    FPY_ONE,        /* f(argument) */
    FPY_STAR,       /* f(*argument) */
    FPY_APPLY,      /* f(*argument[0], **argument[1]) */
    FPY_BLOCK,      /* [f(x) for x in argument] */
    FPY_BLOCK_STAR, /* [f(*x) for x in argument] */
    FPY_KINDS
};

/* Flags of what may change when it is called, such as a bound method. As in multiprocessing, the
 * changes of one call are not seen by the next one. */
#define FPY_AFRESH 8u    /* it is unpickled for each task */
#define FPY_NUMBERED 16u /* it is unpickled in each worker for each call of map() */

#define FPY_TASK_RAISED (-EREMOTEIO)

/* The pool's initializer: the bytes go to fiber._child.run(). */
int fpy_worker_init(const void *work, size_t len);
int fpy_worker_task(const void *in, size_t len, struct fiber_reply *reply);
