/* usage.c - reads /proc/PID/stat.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "runtime/inspect/usage.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "runtime/base/fds.h"

bool fbr_usage_read(pid_t pid, uint64_t *cpu_ns, uint64_t *resident)
{
    unsigned long long user = 0, system = 0, pages = 0;
    char path[64], line[1024], *at;

    snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
    at = fbr_fds_read_file(path, line, sizeof(line)) > 0 ? strrchr(line, ')') : NULL;
    if (!at || sscanf(at + 1,
                      " %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %llu %llu %*d %*d %*d %*d %*d "
                      "%*d %*u %*u %llu",
                      &user, &system, &pages) != 3)
        return false; /* proc(5): the 14th, 15th and 24th field */
    *cpu_ns = (uint64_t)((double)(user + system) * 1e9 / (double)sysconf(_SC_CLK_TCK));
    *resident = pages * (uint64_t)sysconf(_SC_PAGESIZE);
    return true;
}
