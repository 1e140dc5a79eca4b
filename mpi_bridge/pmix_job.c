/* pmix_job.c - registers a job with libpmix before its ranks start.
 *
 * Two maps have the nodes and the ranks of each node. libpmix derives the rest from them, for its
 * own ranks and for the others. Only the ranks of this agent are described one by one. (To describe
 * 65,536 ranks one by one would take a gigabyte.)
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "mpi_bridge/pmix_bridge.h"

/* ---- Maps ---- */

/* Adds the text in PMIx's notation, and frees it. */
static pmix_status_t add_map(struct fbr_buf *text, pmix_status_t (*generate)(const char *, char **),
                             const char *key, void *list)
{
    pmix_status_t rc = PMIX_ERR_NOMEM;
    char *regex = NULL;

    fbr_put_u8(text, 0);
    if (!text->failed)
        rc = generate((char *)text->data, &regex);
    if (rc == PMIX_SUCCESS)
        rc = PMIx_Info_list_add(list, key, regex, PMIX_REGEX);
    free(regex);
    fbr_buf_fini(text);
    return rc;
}

/* libpmix's notation for names of hosts keeps what is before the first digit in 50 bytes, and the
 * number after it in an int. A list with longer ones stays as it is, which libpmix reads, too. */
static pmix_status_t generate_nodes(const char *names, char **map)
{
    for (const char *at = names; *at; at += strspn(at, ",")) {
        size_t before = strcspn(at, "0123456789,");

        if (before >= 50 || strspn(at + before, "0123456789") > 9) {
            *map = strdup(names);
            return *map ? PMIX_SUCCESS : PMIX_ERR_NOMEM;
        }
        at += strcspn(at, ",");
    }
    return PMIx_generate_regex(names, map);
}

/* Adds "host,host,...". */
static pmix_status_t add_nodes(const struct fbr_bridge_job *job, void *list)
{
    struct fbr_buf names = {0};

    for (uint32_t k = 0; k < job->nodes; k++)
        fbr_putf(&names, "%s%s", k ? "," : "", job->hosts[k]);
    return add_map(&names, generate_nodes, PMIX_NODE_MAP, list);
}

/* Adds "0,1;2,3;...". */
static pmix_status_t add_ranks(const struct fbr_bridge_job *job, void *list)
{
    struct fbr_buf ranks = {0};

    for (uint32_t k = 0; k < job->nodes; k++)
        for (uint32_t r = job->first[k]; r < job->first[k + 1]; r++)
            fbr_putf(&ranks, "%s%u", r > job->first[k] ? "," : k ? ";" : "", r);
    return add_map(&ranks, PMIx_generate_ppn, PMIX_PROC_MAP, list);
}

/* ---- Ranks ---- */

/* Adds the processors of a rank, and the caches and NUMA nodes that follow. A rank that is not
 * bound has neither. */
static void add_binding(const char *cpus, void *list)
{
    pmix_cpuset_t set = {0};
    char *locality = NULL, *text = NULL;

    if (!cpus || !cpus[0] || asprintf(&text, "hwloc:%s", cpus) < 0)
        return;
    if (PMIx_Parse_cpuset_string(text, &set) == PMIX_SUCCESS) {
        PMIx_Info_list_add(list, PMIX_CPUSET, text, PMIX_STRING);
        if (PMIx_server_generate_locality_string(&set, &locality) == PMIX_SUCCESS && locality)
            PMIx_Info_list_add(list, PMIX_LOCALITY_STRING, locality, PMIX_STRING);
        free(locality);
        PMIx_Cpuset_destruct(&set);
    }
    free(text);
}

/* libpmix needs LOCAL_RANK and NODE_RANK of each rank that is described. */
static pmix_status_t add_rank(const struct fbr_bridge_job *job, uint16_t local, void *list)
{
    const struct fbr_bridge_rank *rank = &job->local[local];
    pmix_rank_t number = rank->rank;
    pmix_data_array_t data;
    void *about = PMIx_Info_list_start();
    pmix_status_t rc;

    PMIx_Info_list_add(about, PMIX_RANK, &number, PMIX_PROC_RANK);
    PMIx_Info_list_add(about, PMIX_LOCAL_RANK, &local, PMIX_UINT16);
    PMIx_Info_list_add(about, PMIX_NODE_RANK, &local, PMIX_UINT16);
    PMIx_Info_list_add(about, PMIX_APPNUM, &rank->app, PMIX_UINT32);
    if (job->spawned) {
        bool yes = true;

        PMIx_Info_list_add(about, PMIX_SPAWNED, &yes, PMIX_BOOL);
    }
    add_binding(rank->cpus, about);
    rc = PMIx_Info_list_convert(about, &data);
    PMIx_Info_list_release(about);
    if (rc != PMIX_SUCCESS)
        return rc;
    rc = PMIx_Info_list_add(list, PMIX_PROC_DATA, &data, PMIX_DATA_ARRAY);
    PMIX_DATA_ARRAY_DESTRUCT(&data);
    return rc;
}

/* ---- Jobs ---- */

static void add_facts(struct fbr_bridge *b, const struct fbr_bridge_job *job, void *list)
{
    struct fbr_pmix_job *parent = job->spawned ? fbr_pmix_job_numbered(b, job->parent) : NULL;
    bool yes = true;

    PMIx_Info_list_add(list, PMIX_UNIV_SIZE, &job->size, PMIX_UINT32);
    PMIx_Info_list_add(list, PMIX_JOB_SIZE, &job->size, PMIX_UINT32);
    PMIx_Info_list_add(list, PMIX_MAX_PROCS, &job->size, PMIX_UINT32);
    PMIx_Info_list_add(list, PMIX_NUM_NODES, &job->nodes, PMIX_UINT32);
    PMIx_Info_list_add(list, PMIX_JOBID, job->nspace, PMIX_STRING);
    PMIx_Info_list_add(list, PMIX_TMPDIR, b->host->dir, PMIX_STRING);
    PMIx_Info_list_add(list, PMIX_NSDIR, job->dir, PMIX_STRING);
    PMIx_Info_list_add(list, PMIX_TDIR_RMCLEAN, &yes, PMIX_BOOL);
    if (parent) {
        pmix_proc_t who;

        PMIX_LOAD_PROCID(&who, parent->job->nspace, job->parent_rank);
        PMIx_Info_list_add(list, PMIX_SPAWNED, &yes, PMIX_BOOL);
        PMIx_Info_list_add(list, PMIX_PARENT_ID, &who, PMIX_PROC);
    }
}

int fbr_pmix_register_rank(const struct fbr_bridge_job *job, uint32_t rank, struct fbr_error *err)
{
    pmix_proc_t who;
    pmix_status_t rc;

    PMIX_LOAD_PROCID(&who, job->nspace, rank);
    rc = PMIx_server_register_client(&who, geteuid(), getegid(), NULL, NULL, NULL);
    if (rc != PMIX_SUCCESS && rc != PMIX_OPERATION_SUCCEEDED)
        return fbr_fail(err, -EIO, "PMIx refuses rank %u: %s", rank, PMIx_Error_string(rc));
    return 0;
}

int fbr_pmix_register(struct fbr_bridge *b, const struct fbr_bridge_job *job, struct fbr_error *err)
{
    uint32_t local = fbr_bridge_local(job);
    void *list = PMIx_Info_list_start();
    pmix_data_array_t all = {0};
    pmix_status_t rc = add_nodes(job, list);

    if (rc == PMIX_SUCCESS)
        rc = add_ranks(job, list);
    add_facts(b, job, list);
    for (uint32_t i = 0; i < local && rc == PMIX_SUCCESS; i++)
        rc = add_rank(job, (uint16_t)i, list);
    if (rc == PMIX_SUCCESS)
        rc = PMIx_Info_list_convert(list, &all);
    PMIx_Info_list_release(list);
    if (rc == PMIX_SUCCESS)
        rc = PMIx_server_register_nspace(job->nspace, (int)local, all.array, all.size, NULL, NULL);
    PMIX_DATA_ARRAY_DESTRUCT(&all);
    if (rc != PMIX_SUCCESS && rc != PMIX_OPERATION_SUCCEEDED)
        return fbr_fail(err, -EIO, "PMIx refuses a job of %u ranks on %u nodes: %s", job->size,
                        job->nodes, PMIx_Error_string(rc));
    return 0;
}

const char *fbr_pmix_version(struct fbr_pmix_job *j)
{
    pmix_value_t *v = NULL;
    pmix_proc_t job;

    if (j->version[0])
        return j->version;
    PMIX_LOAD_PROCID(&job, j->job->nspace, PMIX_RANK_WILDCARD);
    if (PMIx_Get(&job, PMIX_BFROPS_MODULE, NULL, 0, &v) == PMIX_SUCCESS && v) {
        if (v->type == PMIX_STRING && v->data.string)
            snprintf(j->version, sizeof(j->version), "%s", v->data.string);
        PMIX_VALUE_RELEASE(v);
    }
    return j->version;
}
