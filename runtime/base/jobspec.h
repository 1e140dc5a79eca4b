/* jobspec.h - checks and copies a caller's jobspec.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "fiber.h"
#include "runtime/base/buf.h"
#include "runtime/base/error.h"

/* -EINVAL: no backend can do this; the text names the caller's options, "pool" for example. */
int fbr_jobspec_check(const char *whose, const struct fiber_jobspec *job, struct fbr_error *err);

/* Copies `from`, with all that it points to, into `to`. `keep` (empty before) owns the copied
 * strings. -ENOMEM. */
int fbr_jobspec_copy(struct fiber_jobspec *to, struct fbr_buf *keep,
                     const struct fiber_jobspec *from);
