/* jobspec.c - checks and deep copies of jobspecs.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "runtime/base/jobspec.h"

#include <errno.h>
#include <string.h>

#define CPUS_MAX 1e6 /* more than a job can have; its billionths fit 64 bits */

int fbr_jobspec_check(const char *whose, const struct fiber_jobspec *job, struct fbr_error *err)
{
    if (!(job->cpus >= 0 && job->cpus <= CPUS_MAX)) /* NaN is neither */
        return fbr_fail(err, -EINVAL, "%s options: job.cpus is %g; use 0 to %g", whose, job->cpus,
                        CPUS_MAX);
    if (job->gpus < 0)
        return fbr_fail(err, -EINVAL, "%s options: job.gpus is %d, and cannot be negative", whose,
                        job->gpus);
    if (job->command && !job->command[0])
        return fbr_fail(err, -EINVAL, "%s options: job.command is empty", whose);
    return 0;
}

static size_t size_of(const char *s)
{
    return s ? strlen(s) + 1 : 0;
}

/* Returns how many pointers a list has, and adds the size of its strings to *bytes. */
static size_t measure(const char *const *list, size_t *bytes)
{
    size_t n = 0;

    for (; list && list[n]; n++)
        *bytes += size_of(list[n]);
    return list ? n + 1 : 0;
}

/* Copies a string to *at, and moves *at behind the copy. */
static const char *copy_string(char **at, const char *s)
{
    const char *copy = s ? *at : NULL;

    if (s)
        *at = stpcpy(*at, s) + 1;
    return copy;
}

/* The same for a list, whose pointers go to *pointers. */
static const char *const *copy_list(const char ***pointers, char **at, const char *const *list)
{
    const char **copy = *pointers;

    if (!list)
        return NULL;
    for (; *list; list++)
        *(*pointers)++ = copy_string(at, *list);
    *(*pointers)++ = NULL;
    return copy;
}

int fbr_jobspec_copy(struct fiber_jobspec *to, struct fbr_buf *keep,
                     const struct fiber_jobspec *from)
{
    size_t bytes = size_of(from->name) + size_of(from->image) + size_of(from->workdir);
    size_t count = measure(from->command, &bytes) + measure(from->env, &bytes);
    const char **pointers = fbr_buf_extend(keep, count * sizeof(*pointers) + bytes);
    char *at;

    if (!pointers)
        return -ENOMEM;
    at = (char *)(pointers + count);
    *to = *from;
    to->name = copy_string(&at, from->name);
    to->image = copy_string(&at, from->image);
    to->workdir = copy_string(&at, from->workdir);
    to->command = copy_list(&pointers, &at, from->command);
    to->env = copy_list(&pointers, &at, from->env);
    return 0;
}
