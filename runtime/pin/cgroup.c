/* cgroup.c - reads the limits of this process from its control group and the scheduler.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "runtime/pin/cgroup.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/fds.h"
#include "runtime/base/random.h"
#include "runtime/pin/cpulist.h"

#define NO_LIMIT (1ull << 60) /* version 1 reports "no limit" as a number about this large */

static void take_quota(struct fbr_cgroup *l, double quota, double period)
{
    if (quota > 0 && period > 0 && (l->quota == 0 || quota / period < l->quota))
        l->quota = quota / period;
}

static void take_memory(struct fbr_cgroup *l, const char *text)
{
    unsigned long long bytes = strtoull(text, NULL, 10); /* "max" gives 0: no limit */

    if (bytes > 0 && bytes < NO_LIMIT && (l->memory == 0 || bytes < l->memory))
        l->memory = bytes;
}

/* Reads the line "oom_kill N". */
static bool read_kills(const char *path, uint64_t *out)
{
    FILE *f = fopen(path, "re");
    unsigned long long n = 0;
    bool found = false;
    char line[128];

    while (f && !found && fgets(line, sizeof(line), f))
        found = sscanf(line, "oom_kill %llu", &n) == 1;
    if (f)
        fclose(f);
    if (found)
        *out = n;
    return found;
}

/* Takes the count of the group itself: a limit of a parent group may kill processes of other
 * groups. */
static void take_kills(struct fbr_cgroup *l, const char *dir)
{
    char path[2 * PATH_MAX + 64];

    snprintf(path, sizeof(path), "%s/memory.events", dir);
    l->oom_known = read_kills(path, &l->oom_kills);
    if (l->oom_known)
        return;
    snprintf(path, sizeof(path), "%s/memory.oom_control", dir);
    l->oom_known = read_kills(path, &l->oom_kills);
}

static bool read_in(const char *dir, const char *name, char *out, size_t size)
{
    char path[2 * PATH_MAX + 64];

    snprintf(path, sizeof(path), "%s/%s", dir, name);
    return fbr_fds_read_file(path, out, size) >= 0;
}

static void look_in(struct fbr_cgroup *l, const char *dir)
{
    char text[128], period[64];
    double quota, of;

    if (read_in(dir, "cpu.max", text, sizeof(text)) && sscanf(text, "%lf %lf", &quota, &of) == 2)
        take_quota(l, quota, of);
    if (read_in(dir, "cpu.cfs_quota_us", text, sizeof(text)) &&
        read_in(dir, "cpu.cfs_period_us", period, sizeof(period)))
        take_quota(l, atof(text), atof(period));
    if (read_in(dir, "memory.max", text, sizeof(text)))
        take_memory(l, text);
    if (read_in(dir, "memory.limit_in_bytes", text, sizeof(text)))
        take_memory(l, text);
    if (!l->oom_known)
        take_kills(l, dir);
}

/* Reads the limits of a group and of those above it, which all apply. In a container the hierarchy
 * may begin with the container's own group, while /proc reports the path outside: then only the top
 * exists. */
static void look_up(struct fbr_cgroup *l, const char *top, const char *group)
{
    char dir[2 * PATH_MAX];
    char *end;

    snprintf(dir, sizeof(dir), "%s%s", top, group);
    while (strlen(dir) > strlen(top) && (end = strrchr(dir, '/'))) {
        look_in(l, dir);
        *end = '\0';
    }
    look_in(l, top);
}

/* Handles a line of /proc/self/cgroup: "0::/path" in version 2, "4:cpu,cpuacct:/path" in version
 * 1. */
static void look_at(struct fbr_cgroup *l, const char *root, char *line)
{
    char *name = strchr(line, ':'), *group = name ? strchr(++name, ':') : NULL;
    char top[PATH_MAX];

    if (!group)
        return;
    *group++ = '\0';
    if (name[0] == '\0')
        snprintf(top, sizeof(top), "%s/sys/fs/cgroup", root);
    else if (strstr(name, "cpu,") || strcmp(name, "cpu") == 0 || strcmp(name, "cpuacct,cpu") == 0)
        snprintf(top, sizeof(top), "%s/sys/fs/cgroup/cpu", root);
    else if (strcmp(name, "memory") == 0)
        snprintf(top, sizeof(top), "%s/sys/fs/cgroup/memory", root);
    else
        return;
    look_up(l, top, strcmp(group, "/") == 0 ? "" : group);
}

static void count_processors(struct fbr_cgroup *l)
{
    struct fbr_cpuset set;
    unsigned n = 0;

    if (fbr_cpuset_read(&set, 0) == 0) {
        n = fbr_cpuset_count(&set);
        l->machine = fbr_hash(l->machine, set.bits, sizeof(set.bits));
    }
    l->affinity = n > 0 ? n : 1;
}

void fbr_cgroup_read_at(struct fbr_cgroup *l, const char *root)
{
    char text[4096], path[PATH_MAX];
    char *rest = NULL;

    memset(l, 0, sizeof(*l));
    snprintf(path, sizeof(path), "%s/proc/sys/kernel/random/boot_id", root);
    fbr_fds_read_file(path, text, sizeof(text));
    l->machine = fbr_hash(FBR_HASH, text, strlen(text));
    count_processors(l);
    snprintf(path, sizeof(path), "%s/proc/self/cgroup", root);
    fbr_fds_read_file(path, text, sizeof(text));
    for (char *line = strtok_r(text, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest))
        look_at(l, root, line);
    snprintf(path, sizeof(path), "%s/proc/vmstat", root);
    if (!l->oom_known)
        read_kills(path, &l->oom_kills);
}

void fbr_cgroup_read(struct fbr_cgroup *l)
{
    fbr_cgroup_read_at(l, "");
}

uint32_t fbr_cgroup_cpus(const struct fbr_cgroup *l)
{
    uint32_t whole = (uint32_t)l->quota;

    if (l->quota <= 0 || l->quota >= l->affinity)
        return l->affinity;
    whole += l->quota > whole + 0.01; /* a part of a processor is useful too */
    return whole ? whole : 1;
}

bool fbr_cgroup_floats(const struct fbr_cgroup *l)
{
    return l->quota > 0 && l->quota < l->affinity;
}
