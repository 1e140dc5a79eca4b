/* rundir_fuzz.c - what may lie in place of the file that says whose segments these are.
 *
 * What was understood says the same when it is written again, and its master can be asked about.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/master_id.h"
#include "runtime/proc/rundir.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char again[sizeof(struct fbr_rundir_owner) + 2];
    struct fbr_rundir_owner o;
    int n;

    if (!fbr_rundir_owner((const char *)data, size, &o))
        return 0;
    n = snprintf(again, sizeof(again), "%s %s", o.master, o.root);
    if ((size_t)n != size || memcmp(again, data, size) != 0 || o.root[0] != '/' || !o.master[0])
        abort();
    fbr_master_id_state(o.master);
    return 0;
}
