/* ring_job_fuzz.c - the description of a job as an agent reads it: what is taken is written again
 * as the same bytes.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "ring/job_codec.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct fbr_cur c = fbr_cur(data, size);
    struct fbr_ring_job j;
    struct fbr_buf again;

    if (fbr_ring_job_get(&j, &c) < 0)
        return 0;
    for (uint32_t r = 0; r < j.info.size && r < 64; r++)
        if (!fbr_ring_job_program(&j, r)->argv)
            abort();
    fbr_buf_init(&again);
    fbr_ring_job_put(&j, &again);
    if (again.len != size - fbr_cur_left(&c))
        abort();
    fbr_buf_fini(&again);
    fbr_ring_job_fini(&j);
    return 0;
}
