/* kept_job.c - a copy of a job.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "backends/tool/kept_job.h"

#include <stdint.h>
#include <stdlib.h>

#include "runtime/base/buf.h"
#include "runtime/base/jobspec.h"
#include "runtime/base/random.h"

struct kept {
    struct fbr_job job;
    struct fbr_buf strings, ticket;
};

struct fbr_job *fbr_kept_job(const struct fbr_job *job)
{
    struct fiber_jobspec s = {.name = job->name,
                              .image = job->file, /* a jobspec has no other place for it */
                              .workdir = job->workdir,
                              .command = (const char *const *)job->argv,
                              .env = (const char *const *)job->env};
    struct kept *k = calloc(1, sizeof(*k));

    if (!k)
        return NULL;
    k->job = *job;
    fbr_put(&k->ticket, job->ticket, job->ticket_len);
    if (k->ticket.failed || fbr_jobspec_copy(&s, &k->strings, &s) < 0) {
        fbr_kept_job_free(&k->job);
        return NULL;
    }
    k->job.name = s.name;
    k->job.file = s.image;
    k->job.workdir = s.workdir;
    k->job.argv = (char *const *)(uintptr_t)s.command;
    k->job.env = (char *const *)(uintptr_t)s.env;
    k->job.ticket = job->ticket ? k->ticket.data : NULL;
    k->job.local = NULL;
    k->job.link = k->job.control = 0;
    return &k->job;
}

void fbr_kept_job_free(struct fbr_job *job)
{
    struct kept *k = (struct kept *)(void *)job;

    if (!k)
        return;
    fbr_wipe(k->ticket.data, k->ticket.len);
    fbr_buf_fini(&k->ticket);
    fbr_buf_fini(&k->strings);
    free(k);
}
