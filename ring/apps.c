/* apps.c - the programs of a ring: checked, and made ready for agents.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "ring/apps.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/program/args.h"

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

/* Copies two lists into one; each may be NULL. NULL: out of memory. */
static char **join(const char *const *first, const char *const *second)
{
    struct fbr_args w = {0};

    fbr_args_add_all(&w, (char *const *)(uintptr_t)first);
    fbr_args_add_all(&w, (char *const *)(uintptr_t)second);
    return fbr_args_take(&w);
}

struct fbr_app *fbr_ring_apps_make(const struct fiber_ring_options *o, int size)
{
    uint32_t n = (uint32_t)fbr_ring_apps_count(o), first = 0;
    struct fbr_app *all = calloc(n, sizeof(*all));

    for (uint32_t i = 0; all && i < n; i++) {
        struct fiber_ring_program p = fbr_ring_app(o, size, (int)i);
        const char *workdir = p.workdir ? p.workdir : o->job.workdir;

        all[i].first = first;
        all[i].argv = join(p.command, NULL);
        all[i].env = join(o->job.env, p.env); /* if a name comes twice, the last string counts */
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
