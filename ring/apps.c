/* apps.c - the programs of a ring: checked, copied, and made ready for agents.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "ring/apps.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int fbr_ring_apps_count(const struct fiber_ring_options *o)
{
    return o->nprograms ? o->nprograms : 1;
}

struct fiber_ring_program fbr_ring_app(const struct fiber_ring_options *o, int size, int i)
{
    struct fiber_ring_program p = {.count = size, .command = o->job.command};

    return o->nprograms ? o->programs[i] : p;
}

int fbr_ring_apps_check(const struct fiber_ring_options *o, int size, struct fbr_error *err)
{
    long long ranks = 0;

    if (o->nprograms < 0 || (o->nprograms && !o->programs) || (o->nprograms && o->job.command))
        return fbr_fail(err, -EINVAL,
                        "ring options: nprograms must be the length of programs, and job.command "
                        "must be NULL with programs");
    for (int i = 0; i < o->nprograms; i++) {
        const struct fiber_ring_program *p = &o->programs[i];

        if (p->count < 1 || !p->command || !p->command[0])
            return fbr_fail(err, -EINVAL,
                            "ring options: programs[%d] needs a command and a count of at least 1",
                            i);
        ranks += p->count;
    }
    return o->nprograms && ranks != size
               ? fbr_fail(err, -EINVAL,
                          "ring options: the counts of the programs add up to %lld ranks, but the "
                          "ring has %d",
                          ranks, size)
               : 0;
}

static void free_list(const char *const *list)
{
    fbr_list_free((char **)(uintptr_t)list);
}

void fbr_ring_apps_free(struct fiber_ring_program *programs, int n)
{
    for (int i = 0; programs && i < n; i++) {
        free_list(programs[i].command);
        free_list(programs[i].env);
        free((char *)(uintptr_t)programs[i].workdir);
    }
    free(programs);
}

static size_t length(const char *const *list)
{
    size_t n = 0;

    while (list && list[n])
        n++;
    return n;
}

/* Copies lists into one. A NULL list is an empty one. NULL: out of memory. */
static char **copy_lists(const char *const *const *lists, size_t n)
{
    size_t all = 0, k = 0;
    char **joined;

    for (size_t i = 0; i < n; i++)
        all += length(lists[i]);
    joined = calloc(all + 1, sizeof(*joined));
    for (size_t i = 0; joined && i < n; i++)
        for (size_t m = 0; lists[i] && lists[i][m]; m++) {
            joined[k] = strdup(lists[i][m]);
            if (!joined[k++]) {
                fbr_list_free(joined);
                return NULL;
            }
        }
    return joined;
}

int fbr_ring_apps_copy(struct fiber_ring_program **out, const struct fiber_ring_options *o)
{
    struct fiber_ring_program *all = calloc((size_t)o->nprograms + 1, sizeof(*all));
    bool good = all != NULL;

    for (int i = 0; good && i < o->nprograms; i++) {
        const struct fiber_ring_program *from = &o->programs[i];

        all[i].count = from->count;
        all[i].command = (const char *const *)copy_lists(&from->command, 1);
        all[i].env = (const char *const *)copy_lists(&from->env, 1);
        all[i].workdir = from->workdir ? strdup(from->workdir) : NULL;
        good = all[i].command && all[i].env && (all[i].workdir || !from->workdir);
    }
    if (!good)
        fbr_ring_apps_free(all, o->nprograms);
    *out = good ? all : NULL;
    return good ? 0 : -ENOMEM;
}

struct fbr_app *fbr_ring_apps_make(const struct fiber_ring_options *o, int size,
                                   const char *const *more)
{
    uint32_t n = (uint32_t)fbr_ring_apps_count(o), first = 0;
    struct fbr_app *all = calloc(n, sizeof(*all));

    for (uint32_t i = 0; all && i < n; i++) {
        struct fiber_ring_program p = fbr_ring_app(o, size, (int)i);
        /* if a name comes twice, the last string counts */
        const char *const *env[] = {o->job.env, p.env, more};
        const char *workdir = p.workdir ? p.workdir : o->job.workdir;

        all[i].first = first;
        all[i].argv = copy_lists(&p.command, 1);
        all[i].env = copy_lists(env, sizeof(env) / sizeof(env[0]));
        all[i].workdir = strdup(workdir ? workdir : "");
        if (!all[i].argv || !all[i].env || !all[i].workdir) {
            fbr_apps_free(all, n);
            return NULL;
        }
        first += (uint32_t)p.count;
    }
    return all;
}

void fbr_ring_apps_name(const struct fiber_ring_options *o, char *out, size_t size)
{
    size_t n = 0;

    out[0] = '\0';
    for (int i = 0; i < fbr_ring_apps_count(o); i++) {
        struct fiber_ring_program p = fbr_ring_app(o, 0, i);

        for (size_t k = 0; p.command && p.command[k] && n < size; k++)
            n += (size_t)snprintf(out + n, size - n, "%s%s",
                                  k   ? " "
                                  : i ? " : "
                                      : "",
                                  p.command[k]);
    }
}
