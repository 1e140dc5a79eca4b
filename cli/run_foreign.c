/* run_foreign.c - options in the words and units of other launchers; see run_foreign.h.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "cli/run_foreign.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/pin/limits.h"
#include "runtime/pin/pin.h"

static unsigned count_gpus(void)
{
    struct fbr_error err = {0, ""};
    const struct fbr_pin_ops *pin = fbr_pin_load(&err);
    struct fbr_topology_facts facts = {0};
    struct fbr_topology *t;

    if (!pin || pin->open(&t, NULL, FBR_TOPOLOGY_DEVICES, &err) < 0)
        return 0;
    pin->facts(t, &facts);
    pin->close(t);
    return facts.gpus;
}

static unsigned count_cpus(void)
{
    struct fbr_limits limits;

    fbr_limits_read(&limits);
    return fbr_limits_cpus(&limits);
}

int run_foreign_per_node(const struct cli_value *v, int *per_node, struct fbr_error *err)
{
    unsigned gpus;

    if (!v->text)
        return 0;
    if (!isalpha((unsigned char)v->text[0])) {
        *per_node = (int)v->number;
        return 0;
    }
    gpus = strcmp(v->text, "cpu") != 0 ? count_gpus() : 0;
    if (!strcmp(v->text, "gpu") && gpus == 0)
        return fbr_fail(err, -EINVAL, "--per-node gpu: there is no GPU here; write their number");
    *per_node = (int)(gpus ? gpus : count_cpus());
    return 0;
}

/* sbatch(1): minutes, minutes:seconds, hours:minutes:seconds, days-hours, days-hours:minutes,
 * days-hours:minutes:seconds. -1: none of these. */
static int64_t srun_seconds(const char *text)
{
    static const int64_t of_days[] = {3600, 60, 1}, of_two[] = {60, 1};
    const char *dash = strchr(text, '-'), *at = dash ? dash + 1 : text;
    const int64_t *unit;
    int64_t part[3], all = 0;
    int n = 0;

    for (bool more = true; more; at += more) {
        char *end;

        if (n == 3 || !isdigit((unsigned char)*at))
            return -1;
        part[n] = strtoll(at, &end, 10);
        if (part[n++] > INT32_MAX)
            return -1;
        at = end;
        more = *at == ':';
    }
    if (*at || (dash && (dash == text || dash - text > 4)))
        return -1;
    for (const char *d = text; dash && d < dash; d++) {
        if (!isdigit((unsigned char)*d))
            return -1;
        all = all * 10 + (*d - '0');
    }
    unit = dash || n == 3 ? of_days : of_two;
    all *= 86400;
    for (int i = 0; i < n; i++)
        all += part[i] * unit[i];
    return all;
}

static int take_time(struct run_spec *s, const struct cli_args *args, struct fbr_error *err)
{
    const char *text = args->values[RUN_TIME].text;
    int64_t seconds = text ? srun_seconds(text) : 0;

    if (!text)
        return 0;
    if (seconds <= 0 || seconds > INT32_MAX / 1000)
        return fbr_fail(err, -EINVAL,
                        "--time: \"%.64s\" is no time as srun has it (minutes, hours:minutes:"
                        "seconds, days-hours), up to 24 days; --timeout takes 90s or 2h",
                        text);
    if (args->values[RUN_TIMEOUT].text)
        return 0;
    s->ring.timeout_ms = (int)seconds * 1000;
    snprintf(s->note, sizeof(s->note), "--time %.32s is taken as srun's: --timeout %llds", text,
             (long long)seconds);
    return 0;
}

static int check_stdin(const char *text, struct fbr_error *err)
{
    if (!text || !strcmp(text, "0") || !strcmp(text, "none"))
        return 0;
    return fbr_fail(err, -EINVAL,
                    "--stdin %.64s: rank 0 reads standard input, or none does; to give others a "
                    "file: sh -c 'exec PROGRAM <FILE'",
                    text);
}

int run_foreign_take(struct run_spec *s, const struct cli_args *args, struct fbr_error *err)
{
    const struct cli_value *v = args->values;
    int rc = take_time(s, args, err);

    if (rc == 0)
        rc = check_stdin(v[RUN_STDIN].text, err);
    if (rc == 0 && v[RUN_KILL].text && !strcmp(v[RUN_KILL].text, "0"))
        rc = fbr_fail(err, -EINVAL,
                      "--kill-on-bad-exit=0: for the others to go on when a rank fails use "
                      "--on-failure shrink");
    if (rc == 0 && v[RUN_HWTHREADS].text && !s->ring.bind_to)
        s->ring.bind_to = "hwthread";
    return rc;
}
