/* version.c - `fiber version`: shows this build, and which of its parts can be used here.
 *
 * SPDX-License-Identifier: Apache-2.0 */

#include "cli/option.h"
#include "cli/screen.h"
#include "fiber.h"
#include "mpi_bridge/bridge.h"
#include "runtime/proc/backend.h"
#include "runtime/pin/pin.h"

enum { VERSION_JSON, VERSION_OPTIONS };

static void print_text(const char *pin_missing)
{
    const struct fbr_bridge_ops *const *bridges = fbr_bridges();

    printf("fiber %s\n", fiber_version());
    printf("backends:   ");
    for (size_t i = 0; fbr_backends[i]; i++)
        printf(" %s", fbr_backends[i]->name);
    printf("\nbootstraps: ");
    for (size_t i = 0; bridges[i]; i++)
        printf(" %s", bridges[i]->name);
    printf("\nbinding:     %s\n", pin_missing ? pin_missing : "hwloc");
    if (fbr_bridge_missing("pmix"))
        printf("without:     pmix: %s\n", fbr_bridge_missing("pmix"));
}

static int print_json(const char *pin_missing)
{
    const struct fbr_bridge_ops *const *bridges = fbr_bridges();
    struct fbr_json j = {0};

    fbr_json_object(&j);
    fbr_json_str(&j, "version", fiber_version());
    fbr_json_array(&j, "backends");
    for (size_t i = 0; fbr_backends[i]; i++)
        fbr_json_str(&j, NULL, fbr_backends[i]->name);
    fbr_json_end_array(&j);
    fbr_json_array(&j, "bootstraps");
    for (size_t i = 0; bridges[i]; i++)
        fbr_json_str(&j, NULL, bridges[i]->name);
    fbr_json_end_array(&j);
    fbr_json_bool(&j, "binding", !pin_missing);
    fbr_json_end_object(&j);
    return cli_print_json(stdout, &j);
}

static int run_version(const struct cli_args *args)
{
    struct fbr_error err = {0, ""};
    const char *pin_missing = fbr_pin_load(&err) ? NULL : err.text;

    if (args->values[VERSION_JSON].number)
        return print_json(pin_missing);
    print_text(pin_missing);
    return 0;
}

static const struct cli_option options[VERSION_OPTIONS] = {
    [VERSION_JSON] = {"json", 0, CLI_FLAG, .help = "as a JSON object"},
};

const struct cli_command cli_version = {
    .name = "version",
    .operands = "",
    .about = "Prints the version, and the backends and bootstraps of this build",
    .options = options,
    .count = VERSION_OPTIONS,
    .run = run_version,
};
