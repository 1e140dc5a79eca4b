/* pmix.c - the PMIx bridge: Open MPI 4.1, Open MPI 5 and everything else that speaks PMIx.
 *
 * libpmix is the server. This file starts it, registers jobs and ranks with it, and passes its
 * requests to the other agents. libpmix is linked with this module, which is loaded when an agent
 * opens its bridges (runtime/program/module.h), so programs without MPI never need it.
 *
 * Error output of libpmix goes into the file pmix.log in the bridge's folder: the agent learns of a
 * rank's death by itself, and the terminal is for the ranks' output.
 *
 * Open MPI 4.1 asks its environment, not the library, whether a launcher started it, and silently
 * becomes a singleton if it finds none. JSM_JSRUN_PORT, with any value, stands for IBM's jsrun:
 * then Open MPI uses PMIx and leaves the binding alone. Open MPI 5 needs no such variable.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <fcntl.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <utlist.h>

#include "mpi_bridge/pmix_bridge.h"
#include "runtime/base/environ.h"
#include "runtime/base/fds.h"
#include "runtime/base/log.h"

#define SMALL_JOB 128 /* ranks */
#define GDS "PMIX_MCA_gds"

/* libpmix 4.2, in a server and in a rank, reads through a null pointer if neither HOME nor the
 * list of users has the home directory. */
#define NO_HOME "/"

static void *init_infos(struct fbr_bridge *b)
{
    const struct fbr_bridge_host *host = b->host;
    pmix_rank_t rank = host->agent;
    bool yes = true, no = false;
    void *list = PMIx_Info_list_start();

    PMIx_Info_list_add(list, PMIX_SERVER_TMPDIR, host->dir, PMIX_STRING);
    PMIx_Info_list_add(list, PMIX_SYSTEM_TMPDIR, host->dir, PMIX_STRING);
    PMIx_Info_list_add(list, PMIX_SERVER_NSPACE, b->nspace, PMIX_STRING);
    PMIx_Info_list_add(list, PMIX_SERVER_RANK, &rank, PMIX_PROC_RANK);
    PMIx_Info_list_add(list, PMIX_HOSTNAME, host->hostname, PMIX_STRING);
    PMIx_Info_list_add(list, PMIX_SERVER_SHARE_TOPOLOGY, &yes, PMIX_BOOL);
    PMIx_Info_list_add(list, PMIX_IOF_LOCAL_OUTPUT, &no, PMIX_BOOL);
    return list;
}

static int start_server(struct fbr_bridge *b, struct fbr_error *err)
{
    struct fbr_setting settings[] = {
        {.name = "PMIX_OUTPUT_STDERR_FD"},
        /* hwloc's look at the machine takes two thirds of the time of this start; with a file
         * hwloc needs no plugins */
        {.name = "PMIX_MCA_pmix_hwloc_topo_file"},
        {.name = "HWLOC_PLUGINS_PATH"},
        /* the agent may itself be a rank of another launcher */
        {.name = "PMIX_NAMESPACE"},
        {.name = "PMIX_RANK"},
        {.name = "PMIX_SECURITY_MODE"},
        {.name = "PMIX_BFROP_BUFFER_TYPE"},
        {.name = "PMIX_GDS_MODULE"},
        {.name = "PMIX_LAUNCHER_RNDZ_URI"},
        {.name = "PMIX_KEEPALIVE_PIPE"},
        /* ranks of small jobs do not read the shared memory, and to make and remove its files
         * takes longer than everything else here */
        {.name = GDS, .value = "hash"},
    };
    struct fbr_setting home = {.name = "HOME", .value = NO_HOME};
    bool large = b->host->ranks == 0 || b->host->ranks > SMALL_JOB, chosen = getenv(GDS);
    size_t count = sizeof(settings) / sizeof(*settings) - (large || chosen); /* all but the last */
    pmix_server_module_t module = fbr_pmix_module;
    pmix_data_array_t infos = {0};
    void *list = init_infos(b);
    pmix_status_t rc = PMIx_Info_list_convert(list, &infos);

    PMIx_Info_list_release(list);
    snprintf(settings[0].value, sizeof(settings[0].value), "%d", b->output);
    if (b->host->topology && b->host->topology[0] && access(b->host->topology, R_OK) == 0) {
        snprintf(settings[1].value, sizeof(settings[1].value), "%s", b->host->topology);
        snprintf(settings[2].value, sizeof(settings[2].value), "%s", b->host->dir);
    } else {
        const char *path = getenv("HWLOC_PLUGINS_PATH");

        snprintf(settings[2].value, sizeof(settings[2].value), "%s", path ? path : "");
    }
    fbr_settings_apply(settings, count);
    b->homeless = !getenv("HOME") && !getpwuid(geteuid()); /* may ask a server of the network */
    fbr_settings_apply(&home, b->homeless);
    fbr_pmix_guard_port();
    if (rc == PMIX_SUCCESS)
        rc = PMIx_server_init(&module, infos.array, infos.size);
    fbr_settings_undo(&home, b->homeless);
    fbr_settings_undo(settings, count);
    PMIX_DATA_ARRAY_DESTRUCT(&infos);
    if (rc != PMIX_SUCCESS)
        return fbr_fail(err, -EIO, "PMIx %s cannot start as a server: %s", b->version,
                        PMIx_Error_string(rc));
    return 0;
}

/* ---- The bridge ---- */

/* "OpenPMIx 4.2.2 (PMIx Standard: ..." */
static int check_version(struct fbr_bridge *b, struct fbr_error *err)
{
    const char *text = PMIx_Get_version(), *number = strpbrk(text, "0123456789");

    snprintf(b->version, sizeof(b->version), "%.*s",
             number ? (int)strspn(number, "0123456789.") : 0, number ? number : "");
    if (strtol(b->version, NULL, 10) < FBR_PMIX_OLDEST)
        return fbr_fail(err, -ENOSYS, "PMIx %s is too old: Fiber needs libpmix %d or later", text,
                        FBR_PMIX_OLDEST);
    return 0;
}

static void bridge_free(struct fbr_bridge *b)
{
    struct fbr_pmix_job *j, *next;

    DL_FOREACH_SAFE(b->jobs, j, next) {
        free(j->local);
        free(j);
    }
    fbr_pmix_queue_close(b);
    fbr_fds_close(b->output);
    free(b);
}

static int bridge_open(struct fbr_bridge **out, const struct fbr_bridge_host *host,
                       struct fbr_error *err)
{
    struct fbr_bridge *b = calloc(1, sizeof(*b));
    char path[4096];
    int rc;

    if (!b)
        return fbr_fail(err, -ENOMEM, "PMIx: out of memory");
    fbr_log_level((enum fbr_log_level)host->log_level); /* of the module's own copy */
    b->host = host;
    b->output = -1;
    rc = check_version(b, err);
    if (rc < 0)
        goto fail;
    snprintf(path, sizeof(path), "%s/pmix.log", host->dir);
    b->output = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    if (b->output < 0) {
        rc = fbr_fail(err, -errno, "PMIx: cannot write %s: %s", path, fbr_strerror(errno));
        goto fail;
    }
    snprintf(b->nspace, sizeof(b->nspace), "fiber-agent.%u", host->agent);
    rc = fbr_pmix_queue_open(b);
    if (rc < 0) {
        fbr_fail(err, rc, "PMIx: this process already has a server, and libpmix allows only one");
        goto fail;
    }
    rc = start_server(b, err);
    if (rc < 0)
        goto fail;
    *out = b;
    return 0;
fail:
    bridge_free(b);
    return rc;
}

static void bridge_close(struct fbr_bridge *b)
{
    fbr_pmix_queue_shut();
    if (b->torn) /* libpmix may not end then; the process is about to */
        return;
    PMIx_server_finalize();
    bridge_free(b);
}

/* ---- Jobs ---- */

static int bridge_job(struct fbr_bridge *b, const struct fbr_bridge_job *job, struct fbr_error *err)
{
    uint32_t local = fbr_bridge_local(job);
    struct fbr_pmix_job *j = calloc(1, sizeof(*j));
    int rc;

    if (!j || !(j->local = calloc(local + 1, sizeof(*j->local)))) {
        free(j);
        return fbr_fail(err, -ENOMEM, "PMIx: out of memory");
    }
    j->job = job;
    rc = fbr_pmix_register(b, job, err);
    if (rc < 0)
        goto fail;
    for (uint32_t i = 0; i < local; i++)
        if ((rc = fbr_pmix_register_rank(job, job->first[job->node] + i, err)) < 0)
            goto fail;
    DL_APPEND(b->jobs, j);
    return 0;
fail:
    free(j->local);
    free(j);
    return rc;
}

static bool is_torn(const struct fbr_pmix_job *j)
{
    for (uint32_t i = 0; i < fbr_bridge_local(j->job); i++)
        if (j->local[i].code != 0)
            return true;
    return false;
}

/* After a rank was killed in MPI_Finalize, libpmix 4.2.2 may wait for ever for a lock of its
 * own, here or at its end (2 of 360 times). So libpmix keeps its state of such a job. */
static void bridge_job_end(struct fbr_bridge *b, const struct fbr_bridge_job *job)
{
    struct fbr_pmix_job *j = fbr_pmix_job_named(b, job->nspace);

    if (!j)
        return;
    fbr_pmix_queue_drain();
    fbr_pmix_forget(b, job);
    if (is_torn(j))
        b->torn = true;
    else
        PMIx_server_deregister_nspace(job->nspace, NULL, NULL);
    DL_DELETE(b->jobs, j);
    free(j->local);
    free(j);
}

/* ---- Ranks ---- */

/* Prepares a rank that starts again in its old place. Since its death libpmix expects one rank
 * less, so the number is registered again. */
static int start_again(struct fbr_pmix_job *j, struct fbr_pmix_rank *rank, const pmix_proc_t *who,
                       struct fbr_error *err)
{
    int alive = 0;
    pmix_info_t info;
    bool yes = true;

    for (uint32_t i = 0; i < fbr_bridge_local(j->job); i++)
        alive +=
            &j->local[i] == rank || j->local[i].state != FBR_PMIX_ENDED || j->local[i].code == 0;
    PMIx_server_deregister_client(who, NULL, NULL);
    PMIX_INFO_LOAD(&info, PMIX_REGISTER_NODATA, &yes, PMIX_BOOL);
    PMIx_server_register_nspace(who->nspace, alive, &info, 1, NULL, NULL);
    PMIX_INFO_DESTRUCT(&info);
    return fbr_pmix_register_rank(j->job, who->rank, err);
}

static int bridge_rank(struct fbr_bridge *b, const struct fbr_bridge_job *job, uint32_t rank,
                       struct fbr_env *env, int *fd, struct fbr_error *err)
{
    struct fbr_pmix_job *j = fbr_pmix_job_named(b, job->nspace);
    struct fbr_pmix_rank *local = fbr_pmix_local(j, rank);
    char **added = NULL;
    pmix_proc_t who;
    pmix_status_t rc;
    int code;

    PMIX_LOAD_PROCID(&who, job->nspace, rank);
    if (local->state != FBR_PMIX_NEW) {
        code = start_again(j, local, &who, err);
        if (code < 0)
            return code;
    }
    rc = PMIx_server_setup_fork(&who, &added);
    if (rc != PMIX_SUCCESS)
        return fbr_fail(err, -EIO, "PMIx cannot set up the environment of rank %u: %s", rank,
                        PMIx_Error_string(rc));
    for (char **pair = added; pair && *pair; pair++) {
        fbr_env_put(env, *pair);
        free(*pair);
    }
    free(added);
    fbr_env_set(env, "JSM_JSRUN_PORT", "0");
    if (b->homeless)
        fbr_env_default(env, "HOME", NO_HOME);
    /* With a small job, messages bring the data to a rank soonest, and the shared memory of
     * libpmix 4.2 loses keys that are put one after the other. With a large job messages would
     * take minutes and gigabytes: it keeps shared memory, unless a ring that began small spawned
     * it. */
    if (job->size <= SMALL_JOB)
        fbr_env_set(env, "PMIX_GDS_MODULE", "hash");
    local->state = FBR_PMIX_STARTED;
    local->came = local->lost = false;
    local->code = 0;
    return 0;
}

static void bridge_ended(struct fbr_bridge *b, const struct fbr_bridge_job *job, uint32_t rank,
                         int code)
{
    struct fbr_pmix_job *j = fbr_pmix_job_named(b, job->nspace);
    struct fbr_pmix_rank *local = j ? fbr_pmix_local(j, rank) : NULL;

    fbr_pmix_queue_drain(); /* requests that the rank sent before its end come first */
    if (!local)
        return;
    local->state = FBR_PMIX_ENDED;
    local->code = code;
}

__attribute__((visibility("default"))) extern const struct fbr_bridge_ops fbr_module_pmix;
const struct fbr_bridge_ops fbr_module_pmix = {
    .name = "pmix",
    .open = bridge_open,
    .job = bridge_job,
    .rank = bridge_rank,
    .ended = bridge_ended,
    .lost = fbr_pmix_lost,
    .message = fbr_pmix_message,
    .job_end = bridge_job_end,
    .close = bridge_close,
};
