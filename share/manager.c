/* manager.c - fiber_manager and its futures, on the program's side; manager_serve.c has the process
 * of a manager.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "share/manager.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/proc/fnref.h"
#include "share/service_process.h"

struct fiber_manager {
    struct fbr_rpc *rpc;
    struct fbr_service_process *service; /* in the process that started it */
    struct fiber_address address;
};

/* ---- Handles ---- */

static int open_manager(struct fiber_manager **out, const struct fiber_address *address,
                        struct fbr_service_process *service)
{
    struct fiber_manager *m;
    struct fbr_address a;
    int rc = fbr_address_get(&a, address, FBR_KIND_MANAGER);

    if (rc < 0)
        return rc;
    m = calloc(1, sizeof(*m));
    rc = m ? fbr_rpc_open(&m->rpc, &a) : fbr_keep(-ENOMEM, "manager: out of memory");
    fbr_wipe(&a, sizeof(a));
    if (rc < 0) {
        free(m);
        return rc;
    }
    m->address = *address;
    m->service = service;
    *out = m;
    return 0;
}

static int put_function(struct fbr_buf *b, void (*fn)(void), const char *what)
{
    struct fbr_error err = {0, ""};
    struct fbr_fnref ref;

    if (!fn)
        return 0;
    if (fbr_fnref_make(&ref, fn, &err) < 0) {
        fbr_wrap(&err, "manager: its function %s cannot be sent", what);
        return fbr_keep_error(&err);
    }
    fbr_fnref_put(b, &ref);
    return 0;
}

static int put_class(struct fbr_buf *b, const struct fiber_class *cls, const void *arg, size_t len)
{
    int rc;

    fbr_put_u32(b, FBR_MANAGER_MAGIC);
    fbr_put_u8(
        b, (uint8_t)((cls->open ? FBR_MANAGER_OPEN : 0) | (cls->close ? FBR_MANAGER_CLOSE : 0)));
    if ((rc = put_function(b, (void (*)(void))cls->call, "call")) < 0 ||
        (rc = put_function(b, (void (*)(void))cls->open, "open")) < 0 ||
        (rc = put_function(b, (void (*)(void))cls->close, "close")) < 0)
        return rc;
    fbr_put_u64(b, len);
    fbr_put(b, arg, len);
    return b->failed ? fbr_keep(-ENOMEM, "manager: out of memory") : 0;
}

int fiber_manager_start(struct fiber_manager **out, const struct fiber_class *cls, const void *arg,
                        size_t len, const struct fiber_process_options *opts)
{
    struct fiber_address address;
    struct fbr_service_process *service;
    struct fbr_buf b = {0};
    int rc;

    if (!out || !cls || cls->size != sizeof(*cls) || !cls->call || (!arg && len))
        return fbr_keep(-EINVAL,
                        "fiber_manager_start: needs a pointer for the handle, a class with its "
                        "size and a call function, and an argument if len is above 0");
    if (!fbr_rt())
        return fbr_kept();
    if ((rc = put_class(&b, cls, arg, len)) < 0 ||
        (rc = fbr_service_process_start(&service, fbr_manager_main, b.data, b.len, "manager", opts,
                                        &address)) < 0)
        goto done;
    rc = open_manager(out, &address, service);
    fbr_wipe(&address, sizeof(address));
    if (rc < 0)
        fbr_service_process_end(service);
done:
    fbr_buf_fini(&b);
    return rc;
}

int fiber_manager_address(struct fiber_manager *m, struct fiber_address *address)
{
    int rc = fbr_rt_check();

    if (rc < 0)
        return rc;
    *address = m->address;
    return 0;
}

int fiber_manager_connect(struct fiber_manager **out, const struct fiber_address *address)
{
    if (!out || !address)
        return fbr_keep(-EINVAL,
                        "fiber_manager_connect: needs a pointer for the handle, and an address");
    return open_manager(out, address, NULL);
}

void fiber_manager_close(struct fiber_manager *m)
{
    if (!m || fbr_rt_check() < 0)
        return;
    if (m->service) /* calls of this process are done first */
        fbr_rpc_drain(m->rpc, fbr_service_process_grace(m->service));
    fbr_rpc_close(m->rpc);
    fbr_service_process_end(m->service);
    fbr_wipe(&m->address, sizeof(m->address));
    free(m);
}

/* ---- Calls ---- */

static int start_call(struct fiber_manager *m, const char *method, const void *in, size_t len,
                      uint64_t deadline, struct fiber_future **f)
{
    size_t n = strlen(method) + 1;
    const uint32_t head[2] = {(uint32_t)n, 0};
    const struct iovec iov[4] = {{(void *)(uintptr_t)head, sizeof(head)},
                                 {(void *)(uintptr_t)method, n},
                                 {(void *)(uintptr_t)fbr_zeros, fbr_pad8(n)},
                                 {(void *)(uintptr_t)in, len}};

    return fbr_rpc_call(m->rpc, iov, 4, deadline, f);
}

static int check_call(const char *method, const void *in, size_t len)
{
    if (!method || (!in && len))
        return fbr_keep(-EINVAL,
                        "manager: a call needs a method, and an argument if len is above 0");
    return fbr_rt_check();
}

static int explain(struct fiber_manager *m, int rc, const char *method)
{
    const char *report;

    switch (rc) {
    case -EPIPE:
        report = m && m->service ? fbr_service_process_report(m->service) : "";
        return fbr_keep(rc, "manager: %s: the manager is gone%s%s", method, *report ? ": " : "",
                        report);
    case -ETIMEDOUT:
        return fbr_keep(rc, "manager: %s: no answer within the timeout", method);
    case -EMSGSIZE:
        return fbr_keep(rc, "manager: %s: the call is too long; max_message sets the limit",
                        method);
    case -EDEADLK:
        return fbr_keep(rc, "manager: %s: a method waits for its own manager", method);
    default:
        return fbr_keep(rc, "manager: %s: %s", method, fbr_strerror(rc));
    }
}

/* Returns the result of an answered or lost call. m may be NULL; *out is always set, and `out` may
 * not be NULL. */
static int finish(struct fiber_manager *m, struct fiber_future *f, const char *method,
                  struct fiber_bytes *out)
{
    bool lost;
    int code = fbr_future_code(f, &lost);

    if (lost)
        return explain(m, -EPIPE, method);
    if (code != 0)
        return fbr_keep(code, "%s", fbr_future_text(f));
    if (fbr_future_take(f, out) < 0)
        return fbr_keep(-ENODATA, "the answer was taken already");
    return 0;
}

int fiber_manager_call(struct fiber_manager *m, const char *method, const void *in, size_t len,
                       struct fiber_bytes *out, int timeout_ms)
{
    uint64_t deadline = fbr_deadline(timeout_ms);
    struct fiber_bytes bytes = {NULL, 0};
    struct fiber_future *f;
    int rc = check_call(method, in, len);

    if (out)
        *out = bytes;
    if (rc < 0)
        return rc;
    rc = start_call(m, method, in, len, deadline, &f);
    if (rc < 0)
        return explain(m, rc, method);
    rc = fbr_future_wait(f, deadline);
    rc = rc < 0 ? explain(m, rc, method) : finish(m, f, method, &bytes);
    fbr_future_close(f);
    if (out)
        *out = bytes;
    else
        fiber_bytes_free(&bytes);
    return rc;
}

int fiber_manager_call_async(struct fiber_manager *m, const char *method, const void *in,
                             size_t len, struct fiber_future **future)
{
    int rc = check_call(method, in, len);

    if (rc < 0)
        return rc;
    if (!future)
        return fbr_keep(-EINVAL, "fiber_manager_call_async: needs a pointer for the future");
    rc = start_call(m, method, in, len, UINT64_MAX, future);
    return rc < 0 ? explain(m, rc, method) : 0;
}

int fiber_future_wait(struct fiber_future *f, int timeout_ms)
{
    int rc = fbr_rt_check();

    if (rc < 0)
        return rc;
    rc = fbr_future_wait(f, fbr_deadline(timeout_ms));
    return rc < 0 ? explain(NULL, rc, "a future") : 0;
}

int fiber_future_fd(struct fiber_future *f)
{
    int rc = fbr_rt_check();

    return rc < 0 ? rc : fbr_future_fd(f);
}

int fiber_future_get(struct fiber_future *f, struct fiber_bytes *out, int timeout_ms)
{
    struct fiber_bytes bytes = {NULL, 0};
    int rc = fiber_future_wait(f, timeout_ms);

    if (rc == 0)
        rc = finish(NULL, f, "a future", &bytes);
    if (out)
        *out = bytes;
    else
        fiber_bytes_free(&bytes);
    return rc;
}

void fiber_future_close(struct fiber_future *f)
{
    if (f && fbr_rt_check() == 0)
        fbr_future_close(f);
}
