/* manager_serve.c - the process of a manager: the data server's thread queues calls, the main
 * thread runs them.
 *
 * The queue is limited by the bytes that this process may keep for others (held.h). A calling
 * process waits long before that limit when too many of its bytes are here (rpc.c). Calls of a
 * process that is gone run all the same, like calls that it made just before.
 *
 * Answers that a process does not read are kept here. When a process leaves UNREAD_MAX bytes of
 * answers unread, its calls are set aside, in their order, until it reads again; the calls of other
 * processes go on.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <utlist.h>

#include "runtime/proc/fnref.h"
#include "runtime/base/reply.h"
#include "share/service_process.h"
#include "share/manager.h"

#define KEEP_BYTES (1u << 20)  /* bytes of an answer's memory that are kept for the next answer */
#define UNREAD_MAX (64u << 20) /* bytes of answers on their way to one process */
/* between looks at whether it reads again; less than it takes to send that many bytes */
#define LOOK_MS 10

struct request {
    struct request *next, *prev;
    uint64_t peer, call;
    size_t len;
    uint8_t bytes[] __attribute__((aligned(8)));
};

/* A process that does not read its answers, and its calls. */
struct slow {
    struct slow *next, *prev;
    uint64_t peer;
    struct request *requests;
};

struct manager {
    struct fbr_rpc_service service;
    struct fiber_class cls;
    void *state;
    struct fbr_buf out; /* main thread */
    struct fbr_held *held;
    pthread_mutex_t lock; /* all below */
    pthread_cond_t changed;
    struct request *requests;
    struct slow *slow;
    uint64_t look_at; /* when to look at those again */
    bool closing;
};

/* ---- Calls come in ---- */

static void refuse(struct manager *m, uint64_t peer, uint64_t call, int code, const char *text)
{
    fbr_service_answer(&m->service, peer, call, code, text, strlen(text));
}

static void free_request(struct manager *m, struct request *r)
{
    fbr_held_release(m->held, sizeof(*r) + r->len);
    free(r);
}

static void on_call(void *user, uint64_t peer, uint64_t call, const void *bytes, size_t len)
{
    struct manager *m = user;
    struct request *r;
    bool closing;

    if (fbr_held_reserve(m->held, sizeof(*r) + len) < 0) {
        refuse(m, peer, call, -ENOBUFS,
               "the manager holds as many calls as hold_max allows; it answers too slowly");
        return;
    }
    r = malloc(sizeof(*r) + len);
    if (!r) {
        fbr_held_release(m->held, sizeof(*r) + len);
        refuse(m, peer, call, -ENOMEM, "the manager is out of memory for this call");
        return;
    }
    *r = (struct request){.peer = peer, .call = call, .len = len};
    memcpy(r->bytes, bytes, len);
    pthread_mutex_lock(&m->lock);
    closing = m->closing;
    if (!closing) {
        DL_APPEND(m->requests, r);
        pthread_cond_signal(&m->changed);
    }
    pthread_mutex_unlock(&m->lock);
    if (closing) {
        refuse(m, peer, call, -EPIPE, "the manager was closed");
        free_request(m, r);
    }
}

static void on_close(void *user)
{
    struct manager *m = user;

    pthread_mutex_lock(&m->lock);
    m->closing = true;
    pthread_cond_signal(&m->changed);
    pthread_mutex_unlock(&m->lock);
}

static const struct fbr_rpc_service_ops service_ops = {.on_call = on_call, .on_close = on_close};

/* ---- The main thread ---- */

static bool is_crowded(const struct manager *m, uint64_t peer)
{
    return fbr_object_queued(m->service.object, peer) > UNREAD_MAX;
}

/* Under the lock: the calls of processes that have read (`all`: of all) come first again. */
static void take_up(struct manager *m, bool all)
{
    struct slow *s, *next;

    m->look_at = fbr_deadline(LOOK_MS);
    DL_FOREACH_SAFE(m->slow, s, next) {
        if (!all && is_crowded(m, s->peer))
            continue;
        DL_DELETE(m->slow, s);
        DL_CONCAT(s->requests, m->requests);
        m->requests = s->requests;
        free(s);
    }
}

/* Under the lock: sets a call aside if it must wait for its process to read. Returns whether it
 * did. */
static bool set_aside(struct manager *m, struct request *r)
{
    struct slow *s;

    DL_FOREACH(m->slow, s)
        if (s->peer == r->peer)
            break;
    if (!s && (!is_crowded(m, r->peer) || !(s = calloc(1, sizeof(*s)))))
        return false;
    if (!s->requests) {
        if (!m->slow)
            m->look_at = fbr_deadline(LOOK_MS);
        s->peer = r->peer;
        DL_APPEND(m->slow, s);
    }
    DL_APPEND(s->requests, r);
    return true;
}

static struct request *next_request(struct manager *m)
{
    struct request *r = NULL;

    pthread_mutex_lock(&m->lock);
    while (!r && !m->closing) {
        if (m->slow && fbr_now_ms() >= m->look_at)
            take_up(m, false);
        r = m->requests;
        if (!r) {
            fbr_cond_wait(&m->changed, &m->lock, m->slow ? m->look_at : UINT64_MAX);
            continue;
        }
        DL_DELETE(m->requests, r);
        if (set_aside(m, r))
            r = NULL;
    }
    pthread_mutex_unlock(&m->lock);
    return r;
}

static void run(struct manager *m, const struct request *r)
{
    struct fbr_cur c = fbr_cur(r->bytes, r->len);
    size_t n = fbr_get_u32(&c);
    const char *method;
    struct fiber_reply reply;
    int code;

    fbr_get_u32(&c);
    method = fbr_get(&c, n);
    fbr_get(&c, fbr_pad8(n));
    if (!fbr_cur_ok(&c) || n == 0 || strnlen(method, n) != n - 1) {
        refuse(m, r->peer, r->call, -EBADMSG, "the call cannot be read");
        return;
    }
    fbr_buf_clear(&m->out);
    fbr_reply_init(&reply, &m->out, NULL);
    code = m->cls.call(m->state, method, c.at, fbr_cur_left(&c), &reply);
    code = fbr_reply_end(&reply, code);
    fbr_service_answer(&m->service, r->peer, r->call, code, m->out.data, m->out.len);
    if (m->out.cap > KEEP_BYTES)
        fbr_buf_fini(&m->out);
}

/* No caller waits for these calls: the service is closed. */
static void drop_rest(struct manager *m)
{
    take_up(m, true);
    while (m->requests) {
        struct request *r = m->requests;

        DL_DELETE(m->requests, r);
        free_request(m, r);
    }
}

static void resolve(struct fbr_cur *c, void (**fn)(void))
{
    struct fbr_error err = {0, ""};
    struct fbr_fnref ref;

    fbr_fnref_get(c, &ref);
    if (fbr_cur_ok(c) && fbr_fnref_resolve(&ref, fn, &err) < 0)
        fbr_service_process_exit(1, err.text);
}

/* Makes the state. The argument is copied to an aligned place. */
static void open_state(struct manager *m, struct fbr_cur *c)
{
    size_t len = fbr_get_u64(c);
    const void *arg = fbr_get(c, len);
    struct fbr_error err = {0, ""};
    void *copy;
    int rc;

    if (!fbr_cur_ok(c))
        fbr_service_process_exit(1, "this process was not started as a manager");
    if (!m->cls.open)
        return;
    copy = malloc(len + 1);
    if (!copy)
        fbr_service_process_exit(1, "out of memory");
    if (len)
        memcpy(copy, arg, len);
    rc = m->cls.open(&m->state, copy, len);
    free(copy);
    if (rc != 0) {
        fbr_fail(&err, rc, "its class did not open: open returned %d", rc);
        fbr_service_process_exit(1, err.text);
    }
}

static void read_class(struct manager *m, const void *arg, size_t len)
{
    struct fbr_cur c = fbr_cur(arg, len);
    uint32_t magic = fbr_get_u32(&c);
    unsigned functions = fbr_get_u8(&c);

    if (magic != FBR_MANAGER_MAGIC)
        fbr_service_process_exit(1, "this process was not started as a manager");
    resolve(&c, (void (**)(void)) & m->cls.call);
    if (functions & FBR_MANAGER_OPEN)
        resolve(&c, (void (**)(void)) & m->cls.open);
    if (functions & FBR_MANAGER_CLOSE)
        resolve(&c, (void (**)(void)) & m->cls.close);
    open_state(m, &c);
}

int fbr_manager_main(const void *arg, size_t len)
{
    struct manager m = {.service = {.ops = &service_ops, .user = &m}};
    struct request *r;

    pthread_mutex_init(&m.lock, NULL);
    fbr_cond_init(&m.changed);
    m.held = fbr_rt() ? &fbr_rt()->held : NULL;
    read_class(&m, arg, len);
    if (fbr_service_open(&m.service) < 0 ||
        fbr_service_process_announce(&m.service, FBR_KIND_MANAGER) < 0)
        fbr_service_process_exit(1, fiber_last_error());
    while ((r = next_request(&m))) {
        run(&m, r);
        free_request(&m, r);
    }
    fbr_service_close(&m.service);
    drop_rest(&m);
    if (m.cls.close)
        m.cls.close(m.state);
    fbr_buf_fini(&m.out);
    fbr_service_process_exit(0, "");
}
