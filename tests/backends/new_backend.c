/* new_backend.c - the backend "cabin" of new_backend_test.sh: the least that a backend needs.
 *
 * Its engine is a folder (cabin_dir) with one file for each job; the jobs themselves run as those of the backend local.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "runtime/base/environ.h"
#include "runtime/proc/backend.h"

extern const struct fbr_backend_ops fbr_backend_local;

struct fbr_backend {
    struct fbr_backend_env env;
    struct fbr_backend *local;
    const char *dir;
};

struct cabin_job {
    struct fbr_backend *b;
    void *user, *inner;
    char file[PATH_MAX];
};

static void on_event(void *user, const struct fbr_job_event *event)
{
    struct cabin_job *j = user;

    if (event->type == FBR_JOB_EXITED)
        unlink(j->file);
    j->b->env.event(j->user, event);
}

static int cabin_open(struct fbr_backend **out, const struct fbr_backend_env *env,
                      struct fbr_error *err)
{
    const struct fbr_backend_env inner = {env->loop, env->config, on_event, NULL};
    struct fbr_backend *b = calloc(1, sizeof(*b));
    int rc;

    if (!b)
        return fbr_fail(err, -ENOMEM, "out of memory");
    b->env = *env;
    b->dir = fbr_config_str(env->config, "cabin_dir");
    rc = access(b->dir, W_OK) == 0 ? 0 : fbr_fail(err, -ENOENT, "there is no cabin_dir");
    if (rc == 0)
        rc = fbr_backend_local.open(&b->local, &inner, err);
    if (rc == 0)
        *out = b;
    else
        free(b);
    return rc;
}

static void cabin_close(struct fbr_backend *b)
{
    fbr_backend_local.close(b->local);
    free(b);
}

static int cabin_start(struct fbr_backend *b, const struct fbr_job *job, void *user, void **handle,
                       struct fbr_error *err)
{
    struct cabin_job *j = calloc(1, sizeof(*j));
    int fd, rc;

    if (!j)
        return fbr_fail(err, -ENOMEM, "out of memory");
    j->b = b;
    j->user = user;
    snprintf(j->file, sizeof(j->file), "%s/%s.%s", b->dir, job->run_uid, job->name);
    fd = open(j->file, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
    if (fd >= 0)
        close(fd);
    rc = fbr_backend_local.start(b->local, job, j, &j->inner, err);
    if (rc < 0) {
        unlink(j->file);
        free(j);
        return rc;
    }
    *handle = j;
    return 0;
}

static int cabin_signal(struct fbr_backend *b, void *handle, int sig)
{
    const struct cabin_job *j = handle;

    return fbr_backend_local.signal(b->local, j->inner, sig);
}

static void cabin_pause_output(struct fbr_backend *b, void *handle, int paused)
{
    const struct cabin_job *j = handle;

    fbr_backend_local.pause_output(b->local, j->inner, paused);
}

static void cabin_release(struct fbr_backend *b, void *handle)
{
    struct cabin_job *j = handle;

    fbr_backend_local.release(b->local, j->inner);
    free(j);
}

static int cabin_list(struct fbr_backend *b, fbr_backend_found *found, void *user,
                      struct fbr_error *err)
{
    DIR *dir = opendir(b->dir);
    struct dirent *e;

    if (!dir)
        return fbr_fail(err, -errno, "%s cannot be read", b->dir);
    while ((e = readdir(dir))) {
        const char *dot = strchr(e->d_name, '.');
        char run[64];

        if (!dot || dot == e->d_name)
            continue;
        snprintf(run, sizeof(run), "%.*s", (int)(dot - e->d_name), e->d_name);
        found(user, &(struct fbr_orphan){
                        .run = run, .id = e->d_name, .name = dot + 1, .master = "", .runs = 1});
    }
    closedir(dir);
    return 0;
}

static int cabin_remove(struct fbr_backend *b, const char *id, struct fbr_error *err)
{
    char file[PATH_MAX];

    snprintf(file, sizeof(file), "%s/%s", b->dir, id);
    return unlink(file) == 0 ? 0 : fbr_fail(err, -errno, "%s cannot be removed", file);
}

static const struct fbr_config_key keys[] = {
    {"cabin_dir", "FIBER_CABIN_DIR", FBR_CONFIG_STR, "", 0, FBR_CONFIG_TEXT_MAX, NULL,
     "backend cabin: the folder with its jobs"},
    {"cabin_beds", "FIBER_CABIN_BEDS", FBR_CONFIG_INT, "4", 1, 8, NULL,
     "backend cabin: how many jobs there may be"},
};

static const struct fbr_backend_sign signs[] = {{NULL, "cabin_dir", NULL}};

static const struct fbr_backend_advice advice = {.absent = "set cabin_dir",
                                                 .bad = "correct cabin_dir"};

static int here(void)
{
    return fbr_getenv("CABIN_JOB") != NULL;
}

static void remove_command(const struct fbr_config *config, const char *id, char *out, size_t size)
{
    snprintf(out, size, "rm cabin/%s", id);
}

static const struct fbr_backend_about about = {
    .keys = keys,
    .nkeys = sizeof(keys) / sizeof(keys[0]),
    .signs = signs,
    .nsigns = sizeof(signs) / sizeof(signs[0]),
    .advice = &advice,
    .here = here,
    .remove_command = remove_command,
    .leaves_jobs = 1,
};

static const struct fbr_backend_housekeeping housekeeping = {
    .list = cabin_list,
    .remove = cabin_remove,
};

extern const struct fbr_backend_ops fbr_backend_cabin;
const struct fbr_backend_ops fbr_backend_cabin = {
    .name = "cabin",
    .about = &about,
    .reach = FBR_REACH_HOST,
    .open = cabin_open,
    .close = cabin_close,
    .start = cabin_start,
    .signal = cabin_signal,
    .pause_output = cabin_pause_output,
    .release = cabin_release,
    .housekeeping = &housekeeping,
};
