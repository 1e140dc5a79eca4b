/* store.c - fiber_store on the program's side: each call is a request to the process of the store
 * (store_serve.c).
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "share/service_process.h"
#include "share/store_wire.h"

struct fiber_store {
    struct fbr_rpc *rpc;
    struct fbr_service_process *service; /* in the process that started it */
    struct fiber_address address;
};

/* ---- Handles ---- */

static int open_store(struct fiber_store **out, const struct fiber_address *address,
                      struct fbr_service_process *service)
{
    struct fiber_store *s;
    struct fbr_address a;
    int rc = fbr_address_get(&a, address, FBR_KIND_STORE);

    if (rc < 0)
        return rc;
    s = calloc(1, sizeof(*s));
    rc = s ? fbr_rpc_open(&s->rpc, &a) : fbr_keep(-ENOMEM, "store: out of memory");
    fbr_wipe(&a, sizeof(a));
    if (rc < 0) {
        free(s);
        return rc;
    }
    s->address = *address;
    s->service = service;
    *out = s;
    return 0;
}

int fiber_store_start(struct fiber_store **out, const struct fiber_process_options *opts)
{
    struct fiber_address address;
    struct fbr_service_process *service;
    int rc;

    if (!out)
        return fbr_keep(-EINVAL, "fiber_store_start: needs a pointer for the handle");
    rc = fbr_service_process_start(&service, fbr_store_main, NULL, 0, "store", opts, &address);
    if (rc < 0)
        return rc;
    rc = open_store(out, &address, service);
    fbr_wipe(&address, sizeof(address));
    if (rc < 0)
        fbr_service_process_end(service);
    return rc;
}

int fiber_store_address(struct fiber_store *s, struct fiber_address *address)
{
    int rc = fbr_rt_check();

    if (rc < 0)
        return rc;
    *address = s->address;
    return 0;
}

int fiber_store_connect(struct fiber_store **out, const struct fiber_address *address)
{
    if (!out || !address)
        return fbr_keep(-EINVAL,
                        "fiber_store_connect: needs a pointer for the handle, and an address");
    return open_store(out, address, NULL);
}

void fiber_store_close(struct fiber_store *s)
{
    if (!s || fbr_rt_check() < 0)
        return;
    fbr_rpc_close(s->rpc);
    fbr_service_process_end(s->service);
    fbr_wipe(&s->address, sizeof(s->address));
    free(s);
}

/* ---- Requests ---- */

static const char *sentence(int code)
{
    switch (code) {
    case -ETIMEDOUT:
        return "the timeout expired";
    case -EPIPE:
        return "the store is gone";
    case -ENOENT:
        return "it does not exist";
    case -ESTALE:
        return "it has another value";
    case -EOWNERDEAD:
        return "this process holds it now; its last holder died while it held it";
    case -EPERM:
        return "this process does not hold it";
    case -ECONNABORTED:
        return "another process at the barrier died or gave up";
    case -ENOSPC:
        return "the store holds as much as hold_max allows; delete something, or set hold_max "
               "higher";
    case -EMSGSIZE:
        return "it is too long; max_message sets the limit, at most 4 GiB";
    case -ERANGE:
        return "the counter would overflow";
    case -EINVAL: /* all other requests are checked before they are sent */
        return "another caller waits there for another number of parties";
    default:
        return fbr_strerror(code);
    }
}

static int explain(struct fiber_store *s, int code, bool lost, const char *what, const char *name)
{
    const char *report = lost && s->service ? fbr_service_process_report(s->service) : "";

    return fbr_keep(code, "store: %s '%s': %s%s%s", what, name ? name : "", sentence(code),
                    *report ? ": " : "", report);
}

/* Sends the request and waits for its one answer. When the time is over, asks the store to answer
 * at once: it may have served the request already, and then the caller gets what it asked for. */
static int exchange(struct fiber_store *s, const struct fbr_store_ask *ask, int timeout_ms,
                    struct fiber_bytes *out, bool *lost)
{
    struct fiber_future *f;
    struct fbr_buf b = {0};
    struct iovec iov;
    int rc;

    rc = fbr_store_ask_put(&b, ask);
    iov = (struct iovec){b.data, b.len};
    if (rc == 0)
        rc = fbr_rpc_call(s->rpc, &iov, 1, UINT64_MAX, &f);
    fbr_buf_fini(&b);
    if (rc < 0) {
        *lost = rc == -EPIPE;
        return rc;
    }
    rc = fbr_future_wait(f, ask->wait ? fbr_deadline(timeout_ms) : UINT64_MAX);
    if (rc == -ETIMEDOUT) {
        fbr_future_cancel(f);
        fbr_future_wait(f, UINT64_MAX);
    }
    rc = fbr_future_code(f, lost);
    if (out)
        fbr_future_take(f, out);
    fbr_future_close(f);
    return rc;
}

/* `out` may be NULL; otherwise *out is always set. */
static int request(struct fiber_store *s, const char *what, struct fbr_store_ask ask,
                   int timeout_ms, struct fiber_bytes *out)
{
    bool lost = false;
    int rc = fbr_rt_check();

    if (out)
        *out = (struct fiber_bytes){NULL, 0};
    if (rc < 0)
        return rc;
    if (!ask.name && ask.op != FBR_STORE_KEYS)
        return fbr_keep(-EINVAL, "store: %s: needs a name", what);
    if (ask.name_len > FBR_STORE_NAME_MAX)
        return fbr_keep(-EINVAL, "store: %s '%.64s...': a name has at most %d bytes", what,
                        ask.name, FBR_STORE_NAME_MAX);
    ask.wait = timeout_ms != 0;
    rc = exchange(s, &ask, timeout_ms, out, &lost);
    return rc == 0 ? 0 : explain(s, rc, lost, what, ask.name);
}

/* A request whose answer is bytes for the caller, or nothing. */
static int ask_bytes(struct fiber_store *s, const char *what, struct fbr_store_ask ask,
                     int timeout_ms, struct fiber_bytes *out)
{
    int rc = request(s, what, ask, timeout_ms, out);

    if (rc < 0 && rc != -ESTALE)
        fiber_bytes_free(out);
    return rc;
}

/* A request whose answer is a number. */
static int ask_number(struct fiber_store *s, const char *what, struct fbr_store_ask ask,
                      int timeout_ms, uint64_t *number)
{
    struct fiber_bytes bytes;
    struct fbr_cur c;
    int rc = request(s, what, ask, timeout_ms, &bytes);

    if (rc < 0)
        goto done;
    c = fbr_cur(bytes.data, bytes.len);
    *number = ask.op == FBR_STORE_BARRIER ? fbr_get_u32(&c) : fbr_get_u64(&c);
    if (!fbr_cur_ok(&c))
        rc = fbr_keep(-EBADMSG, "store: %s: the answer of the store cannot be read", what);
done:
    fiber_bytes_free(&bytes);
    return rc;
}

/* ---- Dictionary and counters ---- */

static int no_bytes(const char *what)
{
    return fbr_keep(-EINVAL,
                    "store: %s: a length above 0 needs data, and an answer needs a pointer", what);
}

int fiber_store_set(struct fiber_store *s, const char *key, const void *value, size_t len)
{
    struct fbr_store_ask ask = fbr_store_ask(FBR_STORE_SET, key);

    if (!value && len)
        return no_bytes("set");
    ask.value = value;
    ask.value_len = len;
    return ask_bytes(s, "set", ask, -1, NULL);
}

int fiber_store_get(struct fiber_store *s, const char *key, struct fiber_bytes *value,
                    int timeout_ms)
{
    if (!value)
        return no_bytes("get");
    return ask_bytes(s, "get", fbr_store_ask(FBR_STORE_GET, key), timeout_ms, value);
}

/* Reads the answer of SWAP with -ESTALE: u8 1 and the value, or u8 0. */
static int read_found(struct fiber_bytes *found)
{
    const uint8_t *data = found->data;

    if (!found->len)
        return -EBADMSG;
    if (data[0]) {
        memmove(found->data, data + 1, --found->len);
        return 0;
    }
    fiber_bytes_free(found);
    return 0;
}

int fiber_store_swap(struct fiber_store *s, const char *key, const void *expect, size_t expect_len,
                     const void *value, size_t len, struct fiber_bytes *found)
{
    struct fbr_store_ask ask = fbr_store_ask(FBR_STORE_SWAP, key);
    struct fiber_bytes bytes;
    int rc;

    if ((!expect && expect_len) || (!value && len))
        return no_bytes("swap");
    ask.expect = expect;
    ask.expect_len = expect_len;
    ask.value = value;
    ask.value_len = len;
    if (found)
        *found = (struct fiber_bytes){NULL, 0};
    rc = ask_bytes(s, "swap", ask, -1, &bytes);
    if (rc == -ESTALE && found && read_found(&bytes) == 0)
        *found = bytes;
    else
        fiber_bytes_free(&bytes);
    return rc;
}

int fiber_store_delete(struct fiber_store *s, const char *key)
{
    return ask_bytes(s, "delete", fbr_store_ask(FBR_STORE_DELETE, key), -1, NULL);
}

int fiber_store_keys(struct fiber_store *s, const char *prefix, struct fiber_bytes *keys)
{
    if (!keys)
        return no_bytes("keys");
    return ask_bytes(s, "keys", fbr_store_ask(FBR_STORE_KEYS, prefix), -1, keys);
}

int fiber_store_add(struct fiber_store *s, const char *counter, int64_t delta, int64_t *value)
{
    struct fbr_store_ask ask = fbr_store_ask(FBR_STORE_ADD, counter);
    uint64_t sum = 0;
    int rc;

    ask.number = delta;
    rc = ask_number(s, "add", ask, -1, &sum);
    if (rc == 0 && value)
        *value = (int64_t)sum;
    return rc;
}

/* ---- Lists ---- */

int fiber_store_push(struct fiber_store *s, const char *list, const void *value, size_t len)
{
    struct fbr_store_ask ask = fbr_store_ask(FBR_STORE_PUSH, list);

    if (!value && len)
        return no_bytes("push");
    ask.value = value;
    ask.value_len = len;
    return ask_bytes(s, "push", ask, -1, NULL);
}

int fiber_store_pop(struct fiber_store *s, const char *list, struct fiber_bytes *value,
                    int timeout_ms)
{
    if (!value)
        return no_bytes("pop");
    return ask_bytes(s, "pop", fbr_store_ask(FBR_STORE_POP, list), timeout_ms, value);
}

int fiber_store_at(struct fiber_store *s, const char *list, size_t i, struct fiber_bytes *value)
{
    struct fbr_store_ask ask = fbr_store_ask(FBR_STORE_AT, list);

    if (!value)
        return no_bytes("at");
    ask.number = (int64_t)i;
    return ask_bytes(s, "at", ask, -1, value);
}

int fiber_store_length(struct fiber_store *s, const char *list, size_t *length)
{
    uint64_t n = 0;
    int rc;

    if (!length)
        return no_bytes("length");
    rc = ask_number(s, "length", fbr_store_ask(FBR_STORE_LENGTH, list), -1, &n);
    *length = (size_t)n;
    return rc;
}

/* ---- Locks, semaphores, events, barriers ---- */

/* Describes this process, as the holder of a lock, to processes that wait for the lock. */
static void describe_self(char *who, size_t size)
{
    char host[48] = "";

    gethostname(host, sizeof(host) - 1);
    snprintf(who, size, "%.32s (pid %d on %s)", fiber_process_self(), (int)getpid(), host);
}

int fiber_store_lock(struct fiber_store *s, const char *name, int timeout_ms)
{
    struct fbr_store_ask ask = fbr_store_ask(FBR_STORE_LOCK, name);
    struct fiber_bytes holder;
    char who[96];
    int rc;

    describe_self(who, sizeof(who));
    ask.value = who;
    ask.value_len = strlen(who);
    rc = request(s, "lock", ask, timeout_ms, &holder);
    if (rc == -ETIMEDOUT && holder.len)
        fbr_keep(rc, "store: lock '%s' is held by %.*s; not free within %d ms", name,
                 (int)holder.len, (const char *)holder.data, timeout_ms);
    fiber_bytes_free(&holder);
    return rc;
}

int fiber_store_unlock(struct fiber_store *s, const char *name)
{
    return ask_bytes(s, "unlock", fbr_store_ask(FBR_STORE_UNLOCK, name), -1, NULL);
}

int fiber_store_acquire(struct fiber_store *s, const char *semaphore, int64_t initial,
                        int timeout_ms)
{
    struct fbr_store_ask ask = fbr_store_ask(FBR_STORE_ACQUIRE, semaphore);

    if (initial < 1)
        return fbr_keep(-EINVAL,
                        "store: acquire '%s': a semaphore starts at 1 or more, not at %lld",
                        semaphore, (long long)initial);
    ask.number = initial;
    return ask_bytes(s, "acquire", ask, timeout_ms, NULL);
}

int fiber_store_release(struct fiber_store *s, const char *semaphore)
{
    return ask_bytes(s, "release", fbr_store_ask(FBR_STORE_RELEASE, semaphore), -1, NULL);
}

int fiber_store_event_set(struct fiber_store *s, const char *event)
{
    return ask_bytes(s, "event", fbr_store_ask(FBR_STORE_EVENT_SET, event), -1, NULL);
}

int fiber_store_event_clear(struct fiber_store *s, const char *event)
{
    return ask_bytes(s, "event", fbr_store_ask(FBR_STORE_EVENT_CLEAR, event), -1, NULL);
}

int fiber_store_event_wait(struct fiber_store *s, const char *event, int timeout_ms)
{
    return ask_bytes(s, "event", fbr_store_ask(FBR_STORE_EVENT_WAIT, event), timeout_ms, NULL);
}

int fiber_store_barrier(struct fiber_store *s, const char *name, int parties, int *index,
                        int timeout_ms)
{
    struct fbr_store_ask ask = fbr_store_ask(FBR_STORE_BARRIER, name);
    uint64_t i = 0;
    int rc;

    if (parties < 1)
        return fbr_keep(-EINVAL, "store: barrier '%s': needs at least one party, not %d", name,
                        parties);
    ask.number = parties;
    rc = ask_number(s, "barrier", ask, timeout_ms, &i);
    if (rc == 0 && index)
        *index = (int)i;
    return rc;
}
