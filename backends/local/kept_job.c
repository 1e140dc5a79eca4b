/* kept_job.c - a copy of a job, in one piece of memory.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "backends/local/kept_job.h"

#include <stdlib.h>
#include <string.h>

#include "runtime/base/random.h"

struct kept {
    struct fbr_job job;
    size_t size;
    char *at;      /* where the next string is stored */
    char *lists[]; /* argv, then env, each with its NULL */
};

static size_t count(char *const *list)
{
    size_t n = 0;

    while (list[n])
        n++;
    return n;
}

static size_t bytes(char *const *list)
{
    size_t n = 0;

    for (; *list; list++)
        n += strlen(*list) + 1;
    return n;
}

static char *put(struct kept *k, const char *s)
{
    char *copy = k->at;

    if (!s)
        return NULL;
    k->at = stpcpy(copy, s) + 1;
    return copy;
}

static char **put_list(struct kept *k, char **to, char *const *from)
{
    size_t n = count(from);

    for (size_t i = 0; i < n; i++)
        to[i] = put(k, from[i]);
    to[n] = NULL;
    return to;
}

struct fbr_job *fbr_kept_job(const struct fbr_job *job)
{
    size_t argc = count(job->argv), envc = count(job->env);
    size_t strings = bytes(job->argv) + bytes(job->env) + strlen(job->name) + strlen(job->file) +
                     (job->workdir ? strlen(job->workdir) : 0) + 3;
    size_t lists = (argc + envc + 2) * sizeof(char *);
    size_t size = sizeof(struct kept) + lists + strings + job->ticket_len;
    struct kept *k = malloc(size);

    if (!k)
        return NULL;
    k->job = *job;
    k->size = size;
    k->at = (char *)k + sizeof(*k) + lists;
    k->job.argv = put_list(k, k->lists, job->argv);
    k->job.env = put_list(k, k->lists + argc + 1, job->env);
    k->job.name = put(k, job->name);
    k->job.file = put(k, job->file);
    k->job.workdir = put(k, job->workdir);
    k->job.ticket = job->ticket_len ? memcpy(k->at, job->ticket, job->ticket_len) : job->ticket;
    k->job.local = NULL;
    k->job.link = k->job.control = 0;
    return &k->job;
}

void fbr_kept_job_free(struct fbr_job *job)
{
    struct kept *k = (struct kept *)(void *)job;

    if (!k)
        return;
    fbr_wipe(k, k->size); /* the ticket is a secret */
    free(k);
}
