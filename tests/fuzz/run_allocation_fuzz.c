/* run_allocation_fuzz.c - what managers say of hosts: what comes out is names that no command takes for options, each
 * with ranks.
 *
 * The first byte is the manager.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <stdint.h>

#include "cli/run_hosts.c"
#include "cli/text_file.c"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct fbr_error err = {0, ""};
    struct run_hosts h = {0};
    int rc;

    if (!size)
        return 0;
    rc = run_allocation_parse(&h, (enum run_manager)(data[0] % RUN_MANAGERS), "fuzz",
                              (const char *)data + 1, size - 1, &err);
    if (rc < 0 ? !err.text[0] : !h.n)
        abort();
    for (size_t i = 0; rc == 0 && i < h.n; i++)
        if (h.at[i].name[0] == '-' || strpbrk(h.at[i].name, "/ \t\n,;$`\"'=") ||
            h.at[i].slots + h.at[i].bare < 1)
            abort();
    run_hosts_fini(&h);
    return 0;
}
