/* docker.c - the backend of the Docker engine (and of engines with the same API, such as Podman): a
 * job is a container.
 *
 * The name of a container is made from the run and the job. So a request whose answer was lost can
 * be repeated: the second time the engine answers that a container of this name exists, and that
 * container is ours. While the engine is away no job counts as dead; when it is back, the list of
 * this run's containers shows the state of each.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <grp.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <utlist.h>

#include "backends/docker/engine_check.h"
#include "backends/docker/docker_priv.h"
#include "runtime/base/environ.h"
#include "runtime/base/fds.h"
#include "runtime/base/log.h"
#include "runtime/program/spawn.h"

#define CLOSE_MS 20000
#define AGAIN_US 30000
#define REMOVED_MS 5000 /* at close, for containers that the engine is creating or removing */
#define ANSWER_MS 2000  /* at close, when no job is left */

/* ---- Who we are in there ---- */

static char *groups(void)
{
    int n = getgroups(0, NULL);
    gid_t *list = n > 0 ? calloc((size_t)n, sizeof(*list)) : NULL;
    char *words = list ? calloc((size_t)n, 12) : NULL;

    n = words ? getgroups(n, list) : 0;
    for (int i = 0; i < n; i++)
        snprintf(words + strlen(words), 12, "%u ", (unsigned)list[i]);
    free(list);
    return words;
}

/* Finds the user for images that are made of a program, which name no user. Root stays root. With a
 * rootless engine, root in the container is the caller on the host, and every other number is
 * another user. */
static void find_caller(struct fbr_backend *b)
{
    struct json_t *info;
    bool rootless = false;

    if (geteuid() == 0 || b->wishes.user[0])
        return;
    info = fbr_docker_engine_get(&b->engine, "/info", NULL, NULL);
    if (!info)
        return;
    rootless = fbr_docker_has_option(info, "rootless") ||
               fbr_json_bool(info, "Rootless", NULL); /* Podman's field */
    fbr_json_free(info);
    if (rootless)
        return;
    snprintf(b->caller, sizeof(b->caller), "%u:%u", (unsigned)geteuid(), (unsigned)getegid());
    b->groups = groups();
}

/* ---- What the runtime calls ---- */

static int load_overlay(struct fbr_backend *b, struct fbr_error *err)
{
    const char *path = fbr_config_str(b->env.config, "docker_template");
    struct fbr_error why = {0, ""};
    size_t len;
    char *text;

    if (!path[0])
        return 0;
    text = fbr_fds_slurp(path, &len, &why);
    if (!text)
        return fbr_fail(err, -EINVAL, "docker_template: %.400s", why.text);
    b->overlay = fbr_json_parse(text, len, &why);
    free(text);
    if (b->overlay && !fbr_json_is_object(b->overlay))
        fbr_fail(&why, -EINVAL, "not a JSON object ({...})");
    return why.text[0] ? fbr_fail(err, -EINVAL, "docker_template %s: %.300s", path, why.text) : 0;
}

static void docker_close(struct fbr_backend *b);

static int docker_open(struct fbr_backend **out, const struct fbr_backend_env *env,
                       struct fbr_error *err)
{
    struct fbr_backend *b = calloc(1, sizeof(*b));
    const char *network = fbr_config_str(env->config, "docker_network");
    int rc;

    if (!b)
        return fbr_fail(err, -ENOMEM, "out of memory");
    /* of the module's own copy */
    fbr_log_level((enum fbr_log_level)fbr_config_int(env->config, "log_level"));
    fbr_environ_use(env->environ);
    b->env = *env;
    if ((rc = fbr_docker_engine_open(&b->engine, env->loop, env->config, err)) < 0 ||
        (rc = load_overlay(b, err)) < 0 ||
        (rc = fbr_docker_images_open(&b->images, &b->engine, env->config, env->loop,
                                     fbr_docker_on_image, b, err)) < 0 ||
        (rc = fbr_docker_bundle_open(&b->bundle, b, err)) < 0)
        goto fail;
    if (fbr_timer_init(&b->again, env->loop, fbr_docker_on_again, b) < 0) {
        rc = fbr_fail(err, -ENOMEM, "out of memory");
        goto fail;
    }
    fbr_master_id_self(b->master);
    /* all events of our run that the engine remembers */
    snprintf(b->since, sizeof(b->since), "1");
    snprintf(b->network, sizeof(b->network), "%.250s",
             network[0] ? network : b->engine.own_network);
    b->tty = fbr_json_bool(b->overlay, "Tty", NULL);
    b->wishes = (struct fbr_docker_wishes){.network = b->network,
                                           .user = fbr_config_str(env->config, "docker_user"),
                                           .mounts = fbr_config_str(env->config, "docker_mounts"),
                                           .caps = fbr_config_str(env->config, "docker_caps"),
                                           .shm = fbr_config_size(env->config, "docker_shm"),
                                           .pids = fbr_config_int(env->config, "docker_pids"),
                                           .overlay = b->overlay,
                                           .master = b->master};
    find_caller(b);
    *out = b;
    return 0;
fail:
    docker_close(b);
    return rc;
}

static int prepare(struct fbr_docker_job *j, const struct fbr_job *job, struct fbr_error *err)
{
    struct fbr_backend *b = j->b;
    struct fbr_docker_wishes wishes = b->wishes;
    char here[PATH_MAX], *program = b->program;
    const char *workdir = job->workdir ? job->workdir : getcwd(here, sizeof(here)) ? here : NULL;
    struct fbr_docker_user owner;
    struct json_t *body;
    bool made, known;
    int rc = job->own_program ? fbr_spawn_own_path(program, sizeof(b->program), err) : 0;

    if (rc < 0)
        return rc;
    if (!fbr_docker_is_text(job, err))
        return err ? err->code : -EILSEQ;
    fbr_docker_name(job, j->name);
    rc = fbr_docker_images_choose(b->images, job->image, j->image, sizeof(j->image), err);
    if (rc < 0)
        return rc;
    made = fbr_docker_images_is_made(b->images, j->image);
    if (b->caller[0] && made) {
        wishes.user = b->caller;
        wishes.groups = b->groups;
    }
    body = fbr_docker_body(job, &wishes, j->image, job->own_program ? program : NULL, workdir);
    j->body = body ? fbr_json_print(body, NULL) : NULL;
    if (j->body && job->own_program && !fbr_docker_images_is_own(b->images, j->image))
        j->bundled_body = fbr_docker_bundled(body);
    known = fbr_docker_owner(fbr_json_text(body, "User", NULL), made, &owner);
    j->memory = fbr_json_int(body, 0, "HostConfig", "Memory", NULL);
    fbr_json_free(body);
    if (job->ticket)
        fbr_docker_ticket(job->ticket, job->ticket_len, known ? &owner : NULL, &j->ticket);
    return !j->body || j->ticket.failed ? fbr_fail(err, -ENOMEM, "out of memory") : 0;
}

static int docker_start(struct fbr_backend *b, const struct fbr_job *job, void *user, void **handle,
                        struct fbr_error *err)
{
    struct fbr_docker_job *j = calloc(1, sizeof(*j));
    int rc;

    if (!j)
        return fbr_fail(err, -ENOMEM, "out of memory");
    j->b = b;
    j->user = user;
    j->bundle = -1;
    rc = prepare(j, job, err);
    if (rc < 0)
        goto fail;
    if (fbr_timer_init(&j->timer, b->env.loop, fbr_docker_job_on_time, j) < 0) {
        rc = fbr_fail(err, -ENOMEM, "out of memory");
        goto fail;
    }
    if (!b->run[0]) {
        snprintf(b->run, sizeof(b->run), "%.36s", job->run_uid);
        fbr_docker_watch(b);
        fbr_docker_sweep(b);
    }
    DL_APPEND(b->jobs, j);
    *handle = j;
    fbr_docker_job_start(j);
    return 0;
fail:
    fbr_docker_job_wipe(j);
    free(j);
    return rc;
}

static int docker_signal(struct fbr_backend *b, void *handle, int sig)
{
    fbr_docker_job_signal(handle, sig);
    return 0;
}

static void docker_pause_output(struct fbr_backend *b, void *handle, int paused)
{
    struct fbr_docker_job *j = handle;

    j->paused = paused;
    if (j->state <= RUNNING && j->output)
        fbr_http_pause(j->output, paused);
}

static void docker_release(struct fbr_backend *b, void *handle)
{
    struct fbr_docker_job *j = handle;

    j->user = NULL;
    if (j->state == TOLD)
        free(j);
}

/* ---- The end ---- */

/* Removes the containers of a list, all at once. The next list shows which of them are gone. */
static void remove_listed(struct fbr_backend *b, const struct json_t *list)
{
    size_t n = 0, count = fbr_json_count(list);
    struct fbr_http_request *r = count ? calloc(count, sizeof(*r)) : NULL;

    for (size_t i = 0; r && i < count; i++) {
        const struct json_t *c = fbr_json_item(list, i);
        const char *id = fbr_json_text(c, "Id", NULL);
        const char *name = fbr_json_text(fbr_json_item(fbr_json_at(c, "Names", NULL), 0), NULL);
        struct fbr_docker_job *j = fbr_docker_find(b, id, name);
        char *path = fbr_docker_path(&b->engine, "/containers/%s?force=1&v=1", id);

        if (j)
            j->call = NULL; /* it is made, whether the answer has come or not */
        if (path)
            r[n++] = (struct fbr_http_request){
                .method = "DELETE", .path = path, .done = fbr_docker_on_sent};
    }
    if (n)
        fbr_http_now(b->engine.http, r, n, CLOSE_MS);
    while (n)
        free((void *)(uintptr_t)r[--n].path);
    free(r);
}

/* Whether the engine may be creating a container that no list has shown yet. The engine finishes it
 * although no client waits for the answer any more. */
static bool is_making(const struct fbr_backend *b)
{
    const struct fbr_docker_job *j;

    DL_FOREACH(b->jobs, j)
        if (fbr_container_is_being_made(j->state) && j->call && fbr_http_sent(j->call))
            return true;
    return false;
}

/* Removes all our containers, until the engine lists none. It removes those that have ended in its
 * own time; until then the removal of their network fails, because the network is in use. */
static void remove_all(struct fbr_backend *b)
{
    uint64_t until = 0;
    bool left = b->run[0];
    char filter[80 + FBR_MASTER_ID_MAX];

    snprintf(filter, sizeof(filter), "{\"label\":[\"fiber.run=%s\",\"fiber.master=%s\"]}", b->run,
             b->master);
    while (left) {
        char *path = fbr_docker_list_path(b, "/containers/json?all=1", filter);
        struct json_t *list = fbr_docker_engine_ask(&b->engine, "GET", path,
                                                    b->jobs ? CLOSE_MS : ANSWER_MS, NULL, NULL);

        remove_listed(b, list);
        until = until ? until : fbr_now_ms() + REMOVED_MS;
        /* without an answer there is nothing to wait for */
        left = list && (fbr_json_count(list) || is_making(b)) && fbr_now_ms() < until;
        fbr_json_free(list);
        if (left)
            usleep(AGAIN_US);
    }
}

static void docker_close(struct fbr_backend *b)
{
    struct fbr_docker_job *j, *next;

    remove_all(b);
    DL_FOREACH_SAFE(b->jobs, j, next) {
        fbr_docker_job_wipe(j);
        fbr_timer_fini(&j->timer);
        free(j);
    }
    fbr_buf_fini(&b->lines.line);
    fbr_timer_fini(&b->again);
    fbr_docker_bundle_close(b->bundle);
    fbr_docker_images_close(b->images);
    fbr_docker_engine_close(&b->engine);
    fbr_json_free(b->overlay);
    free(b->groups);
    free(b);
}

static int docker_list(struct fbr_backend *b, fbr_backend_found *found, void *user,
                       struct fbr_error *err)
{
    struct json_t *list;
    char filter[64];

    snprintf(filter, sizeof(filter), "{\"label\":[\"fiber.uid=%d\"]}", (int)geteuid());
    list = fbr_docker_engine_get(&b->engine, "/containers/json?all=1&filters=%s", filter, err);
    if (!list)
        return -EIO;
    for (size_t i = 0; i < fbr_json_count(list); i++) {
        const struct json_t *c = fbr_json_item(list, i);
        const char *state = fbr_json_text(c, "State", NULL);

        found(user, &(struct fbr_orphan){.run = fbr_json_text(c, "Labels", "fiber.run", NULL),
                                         .id = fbr_json_text(c, "Id", NULL),
                                         .name = fbr_json_text(c, "Labels", "fiber.job", NULL),
                                         .master = fbr_json_text(c, "Labels", "fiber.master", NULL),
                                         .since_ms = 1000 * fbr_json_int(c, 0, "Created", NULL),
                                         .runs = strcmp(state, "running") == 0 ||
                                                 strcmp(state, "paused") == 0});
    }
    fbr_json_free(list);
    return 0;
}

static int docker_remove(struct fbr_backend *b, const char *id, struct fbr_error *err)
{
    char *path = fbr_docker_path(&b->engine, "/containers/%s?force=1&v=1", id);
    struct fbr_error why = {0, ""};
    int status;

    fbr_json_free(fbr_docker_engine_ask(&b->engine, "DELETE", path, CLOSE_MS, &status, &why));
    /* 409: its removal is in progress */
    return status == 204 || status == 404 || status == 409
               ? 0
               : fbr_fail(err, -EIO, "%.12s: %s", id, why.text);
}

static int docker_address(struct fbr_backend *b, char out[FBR_HOST_ADDRESS_MAX],
                          struct fbr_error *err)
{
    return fbr_docker_engine_address(&b->engine, b->network, out, err);
}

static void docker_check(struct fbr_backend *b, const struct fbr_findings *to)
{
    fbr_docker_check(&b->engine, b->images, b->env.config, to);
}

static const struct fbr_backend_housekeeping housekeeping = {
    .list = docker_list,
    .remove = docker_remove,
    .sweep = fbr_docker_sweep_images,
    .logs = fbr_docker_logs,
};

extern const struct fbr_backend_ops fbr_docker_ops;
const struct fbr_backend_ops fbr_docker_ops = {
    .name = "docker",
    .reach = FBR_REACH_TCP,
    .one_host = 1,
    .open = docker_open,
    .close = docker_close,
    .start = docker_start,
    .signal = docker_signal,
    .pause_output = docker_pause_output,
    .release = docker_release,
    .housekeeping = &housekeeping,
    .address = docker_address,
    .check = docker_check,
};
