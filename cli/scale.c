/* scale.c - `fiber scale`: changes the number of workers of a running pool.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>

#include "cli/orphans.h"
#include "cli/option.h"
#include "runtime/base/config_value.h"

#define WORKERS_MAX (1 << 20)

static int workers_of(const char *text, struct fbr_error *err)
{
    int64_t v;

    if (!fbr_number(text, 1, WORKERS_MAX, &v))
        return fbr_fail(err, -EINVAL, "\"%.64s\" is not a number of workers, from 1 to %d", text,
                        WORKERS_MAX);
    return (int)v;
}

static int run_scale(const struct cli_args *args)
{
    struct fbr_error err = {0, ""};
    struct run_client run;
    int workers = workers_of(args->operands[1], &err), rc;

    if (workers < 0)
        return cli_usage(args->command, &err);
    if (orphan_run_here(args->operands[0], "scale", &run, NULL, &err) < 0)
        return cli_failed(1, "%s", err.text);
    rc = run_client_ask(&run, FBR_RUN_CONTROL_SCALE, -1, workers, &err);
    run_client_free(&run);
    return rc < 0 ? cli_failed(1, "%s", err.text) : 0;
}

const struct cli_command cli_scale = {
    .name = "scale",
    .operands = "RUN WORKERS",
    .kind = CLI_RUN,
    .about = "Gives a running pool more workers, or fewer",
    .text = "New workers start in the same way as the others. If the pool has too many workers, "
            "the least busy ones end, each after its current tasks. A pool that scales "
            "automatically keeps this number from then on. A ring has a fixed size.",
    .examples = "fiber ps\tthe id of the pool\nfiber scale 3fa9 16\t16 workers",
    .least = 2,
    .most = 2,
    .run = run_scale,
};
