/* jobspec.h - a jobspec of the caller's, copied whole.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef FBR_STRINGS_H
#define FBR_STRINGS_H

#include "fiber.h"
#include "runtime/base/buf.h"

/* Copies what `from` points to into `keep` (empty before), which then owns it. -ENOMEM. */
int fbr_jobspec_copy(struct fiber_jobspec *to, struct fbr_buf *keep,
                     const struct fiber_jobspec *from);

#endif
