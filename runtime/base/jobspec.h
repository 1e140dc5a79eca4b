/* jobspec.h - deep copies of a caller's jobspec.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef FBR_STRINGS_H
#define FBR_STRINGS_H

#include "fiber.h"
#include "runtime/base/buf.h"

/* Copies `from`, with all that it points to, into `to`. `keep` (empty before) owns the copied
 * strings. -ENOMEM. */
int fbr_jobspec_copy(struct fiber_jobspec *to, struct fbr_buf *keep,
                     const struct fiber_jobspec *from);

#endif
