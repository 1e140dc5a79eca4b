/* master_id.c - names of masters, which show whether a job's master is gone.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "runtime/base/master_id.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "runtime/base/fds.h"
#include "runtime/base/random.h"

#define HOST_CHARS 24
#define START_FIELD 22 /* field of /proc/PID/stat, counted from 1; proc(5) */

/* Returns the mark of this host, boot and PID namespace. 0: unknown. */
static uint64_t mark_of_here(const char *host)
{
    char boot[64], space[64], all[400];
    ssize_t n = readlink("/proc/self/ns/pid", space, sizeof(space) - 1);

    if (n < 0 || fbr_fds_read_file("/proc/sys/kernel/random/boot_id", boot, sizeof(boot)) <= 0)
        return 0;
    space[n] = '\0';
    snprintf(all, sizeof(all), "%s\n%s\n%s\n", host, boot, space);
    return fbr_hash(FBR_HASH, all, strlen(all));
}

/* Returns the start time of that process, in ticks since the boot. 0: there is no such process, or
 * it is a zombie. */
static uint64_t start_of(long pid)
{
    char path[40], stat[1024], *at;

    snprintf(path, sizeof(path), "/proc/%ld/stat", pid);
    if (fbr_fds_read_file(path, stat, sizeof(stat)) <= 0)
        return 0;
    at = strrchr(stat, ')'); /* the name before ')' may contain any character */
    if (!at || strlen(at) < 3 || strchr("ZX", at[2]))
        return 0;
    for (int field = 2; field < START_FIELD && at; field++)
        at = strchr(at + 1, ' ');
    return at ? strtoull(at + 1, NULL, 10) : 0;
}

static void host_name(char out[256])
{
    memset(out, 0, 256);
    if (gethostname(out, 255) < 0)
        out[0] = '\0';
}

void fbr_master_id_self(char out[FBR_MASTER_ID_MAX])
{
    char host[256], shown[HOST_CHARS + 1];

    host_name(host);
    snprintf(shown, sizeof(shown), "%.*s", HOST_CHARS, host[0] ? host : "host");
    for (char *c = shown; *c; c++)
        if (!isalnum((unsigned char)*c) && *c != '.')
            *c = '-';
    snprintf(out, FBR_MASTER_ID_MAX, "%s:%ld:%016" PRIx64 ".%" PRIx64, shown, (long)getpid(),
             mark_of_here(host), start_of(getpid()));
}

enum fbr_master_id_state fbr_master_id_state(const char *name)
{
    const char *pid_at = strchr(name, ':'), *mark_at = pid_at ? strchr(pid_at + 1, ':') : NULL;
    const char *start_at = mark_at ? strchr(mark_at, '.') : NULL;
    uint64_t mark, start;
    char host[256];
    long pid;

    if (!start_at || strlen(name) >= FBR_MASTER_ID_MAX)
        return FBR_MASTER_ID_UNKNOWN;
    host_name(host);
    pid = strtol(pid_at + 1, NULL, 10);
    mark = strtoull(mark_at + 1, NULL, 16);
    start = strtoull(start_at + 1, NULL, 16);
    /* If /proc hides even this process, it shows nothing about others. */
    if (pid <= 0 || !mark || !start || mark != mark_of_here(host) || !start_of(getpid()))
        return FBR_MASTER_ID_UNKNOWN;
    return start_of(pid) == start ? FBR_MASTER_ID_ALIVE : FBR_MASTER_ID_DEAD;
}
