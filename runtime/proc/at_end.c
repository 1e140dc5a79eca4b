/* at_end.c - the ordered list of functions that the end of a process calls.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "runtime/proc/at_end.h"

#include <errno.h>

int fbr_at_end_set(struct fbr_at_end *e, enum fbr_end_stage stage, fbr_end_fn *fn)
{
    if ((unsigned)stage < e->begun)
        return -ESHUTDOWN;
    e->fn[stage] = fn;
    return 0;
}

int fbr_at_end_next(struct fbr_at_end *e, fbr_end_fn **fn)
{
    if (e->begun == FBR_END_STAGES)
        return 0;
    *fn = e->fn[e->begun++];
    return 1;
}
