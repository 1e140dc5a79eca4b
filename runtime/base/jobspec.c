/* jobspec.c - checks and deep copies of jobspecs.
 *
 * All strings of a copy go into one buffer. The buffer moves while it grows, so pointers are stored
 * as offsets until it is complete.
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

static const char *keep_string(struct fbr_buf *b, const char *s)
{
    size_t at = b->len;

    if (!s)
        return NULL;
    fbr_put(b, s, strlen(s) + 1);
    return (const char *)(uintptr_t)(at + 1); /* an offset plus 1, until the buffer is complete */
}

static const char *resolve(const struct fbr_buf *b, const char *offset)
{
    return offset ? (const char *)b->data + ((uintptr_t)offset - 1) : NULL;
}

static size_t count(const char *const *list)
{
    size_t n = 0;

    while (list && list[n])
        n++;
    return n;
}

/* Copies a NULL-terminated list: first its pointers (as offsets), then its strings. Returns its
 * offset plus 1; 0: no list. */
static size_t keep_list(struct fbr_buf *b, const char *const *list)
{
    size_t n = count(list), at;

    while (b->len % sizeof(char *))
        fbr_put_u8(b, 0);
    at = b->len;
    if (!list || !fbr_buf_extend(b, (n + 1) * sizeof(char *)))
        return 0;
    for (size_t i = 0; i <= n; i++) {
        const char *s = keep_string(b, list[i]);

        if (!b->failed)
            memcpy(b->data + at + i * sizeof(s), &s, sizeof(s));
    }
    return at + 1;
}

static const char *const *resolve_list(struct fbr_buf *b, size_t at)
{
    const char **list;

    if (!at)
        return NULL;
    list = (const char **)(void *)(b->data + at - 1);
    for (size_t i = 0; list[i]; i++)
        list[i] = resolve(b, list[i]);
    return list;
}

int fbr_jobspec_copy(struct fiber_jobspec *to, struct fbr_buf *b, const struct fiber_jobspec *from)
{
    const char *name = keep_string(b, from->name), *image = keep_string(b, from->image);
    const char *workdir = keep_string(b, from->workdir);
    size_t command = keep_list(b, from->command), env = keep_list(b, from->env);

    if (b->failed)
        return -ENOMEM;
    *to = *from;
    to->name = resolve(b, name);
    to->image = resolve(b, image);
    to->workdir = resolve(b, workdir);
    to->command = resolve_list(b, command);
    to->env = resolve_list(b, env);
    return 0;
}
