/* job_codec.c - writes and reads the description of a job.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "ring/job_codec.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "ring/plan.h"
#include "ring/ring_wire.h"

#define INFO(member) FBR_FIELD(struct fbr_bridge_job, member)
static const struct fbr_field info_fields[] = {INFO(epoch),  INFO(max_restarts), INFO(spawned),
                                               INFO(parent), INFO(parent_rank),  {0}};

#define FIELD(member) FBR_FIELD(struct fbr_ring_job, member)
static const struct fbr_field job_fields[] = {
    FIELD(has_stdin), FIELD(pty),       FIELD(reader),  FIELD(rows),         FIELD(columns),
    FIELD(term),      FIELD(reader_ms), FIELD(show_ms), FIELD(last_failure), {0}};

static void put_restarts(const struct fbr_ring_job *j, struct fbr_buf *b)
{
    uint32_t n = 0;

    for (uint32_t r = 0; j->restarts && r < j->info.size; r++)
        n += j->restarts[r] > 0;
    fbr_put_u32(b, n);
    for (uint32_t r = 0; n && r < j->info.size; r++)
        if (j->restarts[r]) {
            fbr_put_u32(b, r);
            fbr_put_u32(b, j->restarts[r]);
        }
}

void fbr_ring_job_put(const struct fbr_ring_job *j, struct fbr_buf *b)
{
    const struct fbr_bridge_job *i = &j->info;

    fbr_put_u32(b, i->id);
    fbr_put_str(b, i->run);
    fbr_put_str(b, i->nspace);
    fbr_put_u32(b, i->size);
    fbr_put_u32(b, i->nodes);
    for (uint32_t k = 0; k <= i->nodes; k++)
        fbr_put_u32(b, i->first[k]);
    for (uint32_t k = 0; k < i->nodes; k++) {
        fbr_put_str(b, i->hosts[k]);
        fbr_put_u32(b, i->agents[k]);
        fbr_put_u32(b, j->machines[k]);
    }
    fbr_put_fields(b, info_fields, i);
    fbr_put_str(b, i->master_host);
    fbr_put_u32(b, j->nprograms);
    for (uint32_t p = 0; p < j->nprograms; p++) {
        fbr_put_u32(b, j->programs[p].first);
        fbr_put_list(b, j->programs[p].argv);
        fbr_put_list(b, j->programs[p].env);
        fbr_put_str(b, j->programs[p].workdir);
    }
    fbr_put_fields(b, job_fields, j);
    fbr_put_bytes(b, j->work, j->work_len);
    put_restarts(j, b);
}

static void get_nodes(struct fbr_ring_job *j, struct fbr_cur *c)
{
    struct fbr_bridge_job *i = &j->info;
    uint32_t *first, *agents;
    char **hosts;

    if (i->nodes == 0 || i->nodes > FBR_PLAN_RANKS || i->nodes > fbr_cur_left(c)) {
        c->bad = true;
        return;
    }
    i->first = first = calloc((size_t)i->nodes + 1, sizeof(*first));
    i->agents = agents = calloc(i->nodes, sizeof(*agents));
    hosts = calloc((size_t)i->nodes + 1, sizeof(*hosts));
    i->hosts = (const char *const *)hosts;
    j->machines = calloc(i->nodes, sizeof(*j->machines));
    if (!first || !agents || !hosts || !j->machines) {
        c->bad = true;
        return;
    }
    for (uint32_t k = 0; k <= i->nodes; k++) {
        first[k] = fbr_get_u32(c);
        c->bad |= k > 0 && first[k] < first[k - 1];
    }
    c->bad |= first[0] != 0 || first[i->nodes] != i->size;
    for (uint32_t k = 0; k < i->nodes && fbr_cur_ok(c); k++) {
        hosts[k] = fbr_get_strdup(c, 256);
        agents[k] = fbr_get_u32(c);
        j->machines[k] = fbr_get_u32(c);
        c->bad |= j->machines[k] > k || (k > 0 && agents[k] <= agents[k - 1]);
    }
}

struct fbr_app *fbr_apps_get(struct fbr_cur *c, uint32_t size, uint32_t *n)
{
    struct fbr_app *all;

    *n = fbr_get_u32(c);
    if (*n == 0 || *n > size || size > FBR_PLAN_RANKS || *n > fbr_cur_left(c))
        c->bad = true;
    all = fbr_cur_ok(c) ? calloc(*n, sizeof(*all)) : NULL;
    for (uint32_t p = 0; all && p < *n && fbr_cur_ok(c); p++) {
        all[p].first = fbr_get_u32(c);
        all[p].argv = fbr_get_list(c);
        all[p].env = fbr_get_list(c);
        all[p].workdir = fbr_get_strdup(c, FBR_RING_PATH);
        c->bad |= all[p].first >= size || (p ? all[p].first <= all[p - 1].first : all[p].first);
    }
    if (all && fbr_cur_ok(c))
        return all;
    fbr_apps_free(all, *n);
    c->bad = true;
    return NULL;
}

/* The ranks come in rising order, each once. */
static void get_restarts(struct fbr_ring_job *j, struct fbr_cur *c)
{
    uint32_t n = fbr_get_u32(c), next = 0;

    if (n > j->info.size || n > fbr_cur_left(c) / 8)
        c->bad = true;
    if (n && fbr_cur_ok(c))
        j->restarts = calloc(j->info.size, sizeof(*j->restarts));
    c->bad |= n && !j->restarts;
    for (uint32_t k = 0; k < n && fbr_cur_ok(c); k++) {
        uint32_t rank = fbr_get_u32(c), times = fbr_get_u32(c);

        if (rank < next || rank >= j->info.size || times == 0) {
            c->bad = true;
            return;
        }
        j->restarts[rank] = times;
        next = rank + 1;
    }
}

int fbr_ring_job_get(struct fbr_ring_job *j, struct fbr_cur *c)
{
    struct fbr_bridge_job *i = &j->info;
    const void *work;

    memset(j, 0, sizeof(*j));
    i->id = fbr_get_u32(c);
    i->run = fbr_get_strdup(c, 200);
    i->nspace = fbr_get_strdup(c, 200);
    i->size = fbr_get_u32(c);
    i->nodes = fbr_get_u32(c);
    if (i->size == 0 || i->size > FBR_PLAN_RANKS)
        c->bad = true;
    if (fbr_cur_ok(c))
        get_nodes(j, c);
    fbr_get_fields(c, info_fields, i);
    i->master_host = fbr_get_strdup(c, 256);
    if (fbr_cur_ok(c))
        j->programs = fbr_apps_get(c, i->size, &j->nprograms);
    fbr_get_fields(c, job_fields, j);
    c->bad |= j->reader >= i->size;
    work = fbr_get_bytes(c, &j->work_len);
    if (fbr_cur_ok(c)) {
        j->work = malloc(j->work_len + 1);
        if (j->work)
            memcpy(j->work, work, j->work_len);
        get_restarts(j, c);
    }
    i->node = -1;
    if (fbr_cur_ok(c) && j->work)
        return 0;
    fbr_ring_job_fini(j);
    return fbr_cur_ok(c) ? -ENOMEM : -EBADMSG;
}

void fbr_apps_free(struct fbr_app *programs, uint32_t n)
{
    for (uint32_t i = 0; programs && i < n; i++) {
        fbr_list_free(programs[i].argv);
        fbr_list_free(programs[i].env);
        free(programs[i].workdir);
    }
    free(programs);
}

void fbr_ring_job_fini(struct fbr_ring_job *j)
{
    struct fbr_bridge_job *i = &j->info;

    free((char *)(uintptr_t)i->run);
    free((char *)(uintptr_t)i->nspace);
    free((uint32_t *)(uintptr_t)i->first);
    free((uint32_t *)(uintptr_t)i->agents);
    free(j->machines);
    for (uint32_t k = 0; i->hosts && k < i->nodes; k++)
        free((char *)(uintptr_t)i->hosts[k]);
    free((char **)(uintptr_t)i->hosts);
    free((char *)(uintptr_t)i->master_host);
    fbr_apps_free(j->programs, j->nprograms);
    free(j->work);
    free(j->restarts);
    memset(j, 0, sizeof(*j));
}

uint32_t fbr_ring_job_sharing(const struct fbr_ring_job *j, int32_t node, uint32_t *before)
{
    const struct fbr_bridge_job *i = &j->info;
    uint32_t all = 0;

    *before = 0;
    for (uint32_t k = 0; node >= 0 && k < i->nodes; k++) {
        if (j->machines[k] != j->machines[node])
            continue;
        if (k == (uint32_t)node)
            *before = all;
        all += i->first[k + 1] - i->first[k];
    }
    return all;
}

uint32_t fbr_ring_job_restarts(const struct fbr_ring_job *j, uint32_t rank)
{
    return j->restarts ? j->restarts[rank] : 0;
}

int fbr_ring_job_restarted(struct fbr_ring_job *j, uint32_t rank)
{
    if (!j->restarts)
        j->restarts = calloc(j->info.size, sizeof(*j->restarts));
    if (!j->restarts)
        return -ENOMEM;
    j->restarts[rank]++;
    return 0;
}

const struct fbr_app *fbr_ring_job_program(const struct fbr_ring_job *j, uint32_t rank)
{
    uint32_t p = j->nprograms;

    while (p > 1 && j->programs[p - 1].first > rank)
        p--;
    return &j->programs[p - 1];
}
