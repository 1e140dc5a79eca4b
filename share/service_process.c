/* service_process.c - processes that run a service for others; see service_process.h.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "share/service_process.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/proc/child.h"
#include "runtime/proc/process.h"

struct fbr_service_process {
    struct fiber_process *process;
    struct fbr_runtime *rt;
    pthread_mutex_t lock; /* all below */
    pthread_cond_t changed;
    int refs; /* one for the program's handle, one for the process until it is gone */
    bool ready, ended;
    struct fiber_address address;
};

/* ---- The parent's side ---- */

static void unref(struct fbr_service_process *k)
{
    bool last;

    pthread_mutex_lock(&k->lock);
    last = --k->refs == 0;
    pthread_mutex_unlock(&k->lock);
    if (!last)
        return;
    fbr_wipe(&k->address, sizeof(k->address));
    pthread_cond_destroy(&k->changed);
    pthread_mutex_destroy(&k->lock);
    free(k);
}

static void on_frame(void *user, struct fiber_process *p, uint8_t type, struct fbr_cur *body)
{
    struct fbr_service_process *k = user;
    const void *address = type == FBR_FRAME_READY ? fbr_get(body, sizeof(k->address)) : NULL;

    if (!address)
        return;
    pthread_mutex_lock(&k->lock);
    memcpy(&k->address, address, sizeof(k->address));
    k->ready = true;
    pthread_cond_broadcast(&k->changed);
    pthread_mutex_unlock(&k->lock);
}

static void on_end(void *user, struct fiber_process *p)
{
    struct fbr_service_process *k = user;

    pthread_mutex_lock(&k->lock);
    k->ended = true;
    pthread_cond_broadcast(&k->changed);
    pthread_mutex_unlock(&k->lock);
}

static void on_gone(void *user, struct fiber_process *p)
{
    unref(user);
}

static const struct fbr_process_ops process_ops = {
    .on_frame = on_frame, .on_end = on_end, .on_gone = on_gone};

static int wait_ready(struct fbr_service_process *k, const char *prefix,
                      struct fiber_address *address)
{
    bool ready;

    pthread_mutex_lock(&k->lock);
    while (!k->ready && !k->ended)
        fbr_cond_wait(&k->changed, &k->lock, UINT64_MAX);
    ready = k->ready;
    *address = k->address;
    pthread_mutex_unlock(&k->lock);
    return ready ? 0
                 : fbr_keep(-ECHILD, "the %s did not start: %s", prefix,
                            fiber_process_report(k->process));
}

int fbr_service_process_start(struct fbr_service_process **out, fiber_process_fn fn,
                              const void *arg, size_t len, const char *prefix,
                              const struct fiber_process_options *options,
                              struct fiber_address *address)
{
    struct fbr_process_spec spec = {.fn = fn,
                                    .arg = arg,
                                    .len = len,
                                    .prefix = prefix,
                                    .options = options,
                                    .ops = &process_ops};
    struct fbr_runtime *rt = fbr_rt();
    struct fbr_service_process *k;
    int rc;

    if (!rt)
        return fbr_kept();
    if (fbr_loop_here(rt->loop))
        return fbr_keep(-EDEADLK, "a %s cannot be started in a callback", prefix);
    k = calloc(1, sizeof(*k));
    if (!k)
        return fbr_keep(-ENOMEM, "%s: out of memory", prefix);
    k->rt = rt;
    k->refs = 2;
    pthread_mutex_init(&k->lock, NULL);
    fbr_cond_init(&k->changed);
    spec.user = k;
    rc = fbr_process_start(&k->process, &spec);
    if (rc < 0) {
        unref(k);
        unref(k);
        return rc;
    }
    rc = wait_ready(k, prefix, address);
    if (rc < 0) {
        fbr_service_process_end(k);
        return rc;
    }
    *out = k;
    return 0;
}

/* Waits until the process has ended. After fiber_fini() no thread would report the end. */
static bool wait_end(struct fbr_service_process *k, uint64_t ms)
{
    uint64_t deadline = fbr_now_ms() + ms;
    bool ended;
    int rc = 0;

    pthread_mutex_lock(&k->lock);
    while (!k->ended && rc == 0)
        rc = fbr_cond_wait(&k->changed, &k->lock, deadline);
    ended = k->ended;
    pthread_mutex_unlock(&k->lock);
    return ended;
}

/* A connection may end long before the backend reports the end of its process, so we ask the
 * backend. A process that hangs up and lives is killed first. */
const char *fbr_service_process_report(struct fbr_service_process *k)
{
    uint64_t linger = (uint64_t)fbr_config_ms(k->rt->config, "linger");

    return wait_end(k, linger) ? fiber_process_report(k->process) : "";
}

int fbr_service_process_grace(struct fbr_service_process *k)
{
    return fbr_config_ms(k->rt->config, "grace");
}

void fbr_service_process_end(struct fbr_service_process *k)
{
    struct fbr_buf none = {0};

    if (!k)
        return;
    if (!fbr_rt_finished(k->rt) && !wait_end(k, 0)) {
        fbr_process_send(k->process, FBR_FRAME_CLOSE, &none);
        if (!wait_end(k, (uint64_t)fbr_service_process_grace(k))) {
            fbr_process_abandon(k->process,
                                "did not end when it was closed; killed (grace sets the time)");
            wait_end(k, (uint64_t)fbr_config_ms(k->rt->config, "linger"));
        }
    }
    fiber_process_close(k->process);
    unref(k);
}

/* ---- The child's side ---- */

static void on_parent_frame(void *user, uint8_t type, struct fbr_cur *body)
{
    struct fbr_rpc_service *s = user;

    if (type == FBR_FRAME_CLOSE)
        s->ops->on_close(s->user);
}

int fbr_service_process_announce(struct fbr_rpc_service *s, enum fbr_kind kind)
{
    struct fbr_runtime *rt = fbr_rt();
    struct fiber_address address;
    struct fbr_buf b = {0};
    int rc;

    if (!rt || !rt->child)
        return fbr_keep(-EPERM, "this process was not started by a Fiber process");
    rc = fbr_address_here(fbr_object_id(s->object), kind, 0, &address);
    if (rc < 0)
        return rc;
    fbr_child_on_frame(rt->child, on_parent_frame, s);
    fbr_put(&b, &address, sizeof(address));
    rc = fbr_child_send(rt->child, FBR_FRAME_READY, &b);
    if (b.data)
        fbr_wipe(b.data, b.len);
    fbr_buf_fini(&b);
    fbr_wipe(&address, sizeof(address));
    return rc < 0 ? fbr_keep(rc, "cannot notify the parent: %s", fbr_strerror(rc)) : 0;
}

void fbr_service_process_exit(int code, const char *why)
{
    char text[FBR_ERROR_TEXT + 16] = "";

    if (why[0])
        snprintf(text, sizeof(text), "cannot serve: %s", why);
    fbr_child_exit(fbr_rt_peek()->child, code, text);
}
