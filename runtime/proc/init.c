/* init.c - fiber_init() and fiber_fini(): how a process becomes one of Fiber's, and how it ends.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "runtime/base/environ.h"
#include "runtime/base/log.h"
#include "runtime/net/relay.h"
#include "runtime/proc/child.h"
#include "runtime/proc/subjobs.h"
#include "runtime/proc/output.h"
#include "runtime/proc/process.h"
#include "runtime/proc/entry.h"

#define END_AT_ONCE_MS 1000
#define END_OF_OTHER_MS 60000 /* only a thread that the end itself waits for can wait so long */

const char *fiber_version(void)
{
    return "0.1.0";
}

void fiber_bytes_free(struct fiber_bytes *bytes)
{
    if (!bytes)
        return;
    free(bytes->data);
    bytes->data = NULL;
    bytes->len = 0;
}

/* ---- The start ---- */

static int new_runtime(struct fbr_runtime **out, struct fbr_error *err)
{
    struct fbr_runtime *rt = calloc(1, sizeof(*rt));
    int rc;

    if (!rt)
        return fbr_fail(err, -ENOMEM, "out of memory");
    pthread_mutex_init(&rt->lock, NULL);
    fbr_cond_init(&rt->changed);
    if ((rc = fbr_random_id(rt->run_uid)) < 0 ||
        (rc = fbr_random(&rt->self, sizeof(rt->self))) < 0) {
        free(rt);
        return fbr_fail(err, rc, "cannot get random bytes: %s", fbr_strerror(rc));
    }
    rc = fbr_rt_set(*out = rt);
    return rc < 0 ? fbr_fail(err, rc, "out of memory") : 0;
}

static void apply_log_level(struct fbr_runtime *rt)
{
    fbr_log_level((enum fbr_log_level)fbr_config_int(rt->config, "log_level"));
}

static int become_child(struct fbr_runtime *rt, const struct fbr_join *join, struct fbr_error *err)
{
    int rc;

    snprintf(rt->run_uid, sizeof(rt->run_uid), "%s", join->run_uid);
    pthread_mutex_lock(&rt->lock);
    rc = fbr_rt_start(rt, join->root, err);
    pthread_mutex_unlock(&rt->lock);
    return rc < 0 ? rc : fbr_child_join(rt, join, err);
}

int fiber_init(int *argc, char ***argv)
{
    struct fbr_error err = {0, ""};
    struct fbr_join join;
    struct fbr_runtime *rt = fbr_rt_any();
    int rc;

    (void)argc; /* for future options of Fiber */
    if (rt)
        return fbr_rt_check() < 0 ? -EPERM : rt->child != NULL;
    rc = new_runtime(&rt, &err);
    if (rc < 0)
        return fbr_keep_error(&err);
    atexit(fiber_fini);
    rc = fbr_join_take(&join, &rt->config, &err);
    fbr_environ_keep(); /* without the ticket, which was for this process alone */
    if (rc == 1) {
        rc = fbr_config_load(&rt->config, &err);
        if (rc < 0) {
            free(rt);
            fbr_rt_set(NULL);
            return fbr_keep_error(&err);
        }
        apply_log_level(rt);
        rc = fbr_entry_run(rt->root, &err);
        if (rc == 0)
            return 0;
    } else if (rc == 0) {
        apply_log_level(rt);
        rc = become_child(rt, &join, &err);
        fbr_wipe(&join, sizeof(join));
    }
    if (rc < 0) {
        fbr_log_error("%s", err.text);
        _exit(125);
    }
    fbr_child_run(rt);
    return 1;
}

int fiber_config_set(const char *key, const char *value)
{
    struct fbr_runtime *rt = fbr_rt_any();
    struct fbr_error err = {0, ""};

    if (!rt)
        return fbr_keep(-EPERM, "fiber_config_set: fiber_init() has not been called");
    if (fbr_rt_check() < 0)
        return -EPERM;
    if (!key || !value)
        return fbr_keep(-EINVAL, "fiber_config_set: needs a key and a value");
    if (fbr_config_set(rt->config, key, value, "fiber_config_set", &err) < 0)
        return fbr_keep_error(&err);
    apply_log_level(rt);
    return 0;
}

int fiber_config_get(const char *key, char *value, size_t size)
{
    struct fbr_runtime *rt = fbr_rt_any();
    const char *text;

    if (!rt)
        return fbr_keep(-EPERM, "fiber_config_get: fiber_init() has not been called");
    if (fbr_rt_check() < 0)
        return -EPERM;
    text = key && value ? fbr_config_text(rt->config, key) : NULL;
    if (!text)
        return fbr_keep(-EINVAL, "fiber_config_get: unknown key \"%.64s\"", key ? key : "");
    if (strlen(text) >= size)
        return fbr_keep(-ERANGE, "fiber_config_get: %s has %zu bytes", key, strlen(text));
    memcpy(value, text, strlen(text) + 1);
    return 0;
}

static struct fbr_child *the_child(void)
{
    return fbr_rt_any() ? fbr_rt_any()->child : NULL;
}

const char *fiber_process_self(void)
{
    return the_child() ? fbr_child_name(the_child()) : "main";
}

int fiber_process_is_child(void)
{
    return the_child() != NULL;
}

int fiber_process_work(const void **work, size_t *len)
{
    if (!the_child())
        return fbr_keep(
            -ENODATA, "fiber_process_work: this process was not started by another Fiber process");
    if (fbr_child_work(the_child(), work, len) < 0)
        return fbr_keep(-ENODATA, "fiber_process_work: this process runs a function");
    return 0;
}

/* ---- The end ---- */

static int close_engines(void *arg)
{
    struct fbr_runtime *rt = arg;

    fbr_timer_fini(&rt->keep);
    fbr_pending_end(&rt->pending);
    fbr_subjob_host_close(rt->subjob_host);
    rt->subjob_host = NULL;
    fbr_relay_close(rt->relay);
    rt->relay = NULL;
    while (rt->backends) {
        struct fbr_backend_slot *s = rt->backends;

        pthread_mutex_lock(&rt->lock);
        rt->backends = s->next;
        pthread_mutex_unlock(&rt->lock);
        s->ops->close(s->backend);
        free(s);
    }
    for (int i = 0; i < 2; i++) {
        fbr_listener_close(rt->listener[i]);
        rt->listener[i] = NULL;
    }
    return 0;
}

static void kill_at_once(void *context)
{
    struct fbr_runtime *rt = context;

    fbr_timer_fini(&rt->keep);
    fbr_process_kill_all(rt);
    pthread_mutex_lock(&rt->lock);
    rt->killed = true;
    pthread_cond_broadcast(&rt->changed);
    pthread_mutex_unlock(&rt->lock);
}

/* The program has called exit() in a callback of ours. Our thread cannot wait for itself, so it
 * only kills our processes, and the end of this process does the rest. */
static void end_at_once(struct fbr_runtime *rt)
{
    uint64_t deadline = fbr_now_ms() + END_AT_ONCE_MS;
    int rc = 0;

    if (fbr_loop_here(rt->loop))
        kill_at_once(rt);
    /* the loop may be waiting for us, so we wait for it only for a while */
    else
        rc = fbr_loop_post(rt->loop, kill_at_once, rt);
    pthread_mutex_lock(&rt->lock);
    while (!rt->killed && rc == 0)
        rc = fbr_cond_wait(&rt->changed, &rt->lock, deadline);
    pthread_mutex_unlock(&rt->lock);
    fbr_rundir_remove(&rt->dir);
}

/* Whether the calling thread must end everything. When another thread does that already, waits for
 * it: the program may be gone as soon as this call returns. */
static bool begin_end(struct fbr_runtime *rt)
{
    uint64_t deadline = fbr_now_ms() + END_OF_OTHER_MS;
    pthread_t self = pthread_self();
    bool mine = false;
    int rc = 0;

    pthread_mutex_lock(&rt->lock);
    if (rt->ends) {
        while (!rt->over && !pthread_equal(rt->ender, self) && rc == 0)
            rc = fbr_cond_wait(&rt->changed, &rt->lock, deadline);
    } else if (!rt->started) {
        rt->finished = true;
    } else if (!rt->finished) {
        rt->ends = mine = true;
        rt->ender = self;
    }
    pthread_mutex_unlock(&rt->lock);
    return mine;
}

static void finish(struct fbr_runtime *rt)
{
    pthread_mutex_lock(&rt->lock);
    rt->finished = true; /* nothing is started from now on */
    pthread_mutex_unlock(&rt->lock);
}

static void close_data_servers(struct fbr_runtime *rt)
{
    struct fbr_data_server *data_server[2];

    pthread_mutex_lock(&rt->lock);
    memcpy(data_server, rt->data_server, sizeof(data_server));
    memset(rt->data_server, 0, sizeof(rt->data_server));
    pthread_mutex_unlock(&rt->lock);
    for (int i = 0; i < 2; i++)
        fbr_data_server_close(data_server[i]);
}

void fiber_fini(void)
{
    struct fbr_runtime *rt = fbr_rt_any();

    if (!rt || fbr_rt_forked())
        return;
    if (fbr_rt_awaited(rt)) {
        bool finished = fbr_rt_finished(rt);

        finish(rt);
        if (!finished)
            end_at_once(rt);
        return;
    }
    if (!begin_end(rt))
        return;
    fbr_rt_end_parts(rt);
    finish(rt);
    fbr_process_end_all(rt);
    fbr_program_close(rt);
    fbr_loop_call(rt->loop, close_engines, rt);
    if (rt->output)
        fbr_output_stop(rt->output);
    close_data_servers(rt);
    fbr_child_close(rt->child);
    fbr_rundir_remove(&rt->dir);
    fbr_loop_stop(rt->loop); /* the loop and the output stay: earlier calls may still use them */
    fbr_wipe(rt->peer_key, sizeof(rt->peer_key));
    pthread_mutex_lock(&rt->lock);
    rt->over = true;
    pthread_cond_broadcast(&rt->changed);
    pthread_mutex_unlock(&rt->lock);
    fbr_child_closed(rt->child);
    /* The context itself stays: the program may still close its handles. */
}
