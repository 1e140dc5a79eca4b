/* function.c - rings whose ranks run a function of the program: how the function travels, and the
 * main function of such a rank.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "ring/collective.h"
#include "ring/ring_priv.h"
#include "runtime/proc/fnref.h"
#include "runtime/base/log.h"
#include "runtime/proc/entry.h"

/* The argument has: address of the group, [reference of the user's function], bytes. */
static int rank_main(const void *arg, size_t len)
{
    struct fbr_cur c = fbr_cur(arg, len);
    const char *rank = getenv("FIBER_RANK"), *size = getenv("FIBER_SIZE");
    const char *epoch = getenv("FIBER_EPOCH");
    struct fiber_address group;
    const void *address = fbr_get(&c, sizeof(group));
    struct fbr_error err = {0, ""};
    struct fbr_fnref ref;
    void (*fn)(void);
    void *copy;
    size_t n;
    int code;

    fbr_fnref_get(&c, &ref);
    n = fbr_cur_left(&c);
    copy = malloc(n + 1); /* for the alignment */
    if (!rank || !size || !epoch || !fbr_cur_ok(&c) || !copy ||
        fbr_fnref_resolve(&ref, &fn, &err) < 0) {
        free(copy);
        fbr_log_error("rank: %s", err.text[0] ? err.text : "cannot read its function and argument");
        return 125;
    }
    memcpy(copy, c.at, n);
    memcpy(&group, address, sizeof(group));
    if (fbr_collective_join((uint32_t)atoi(rank), (uint32_t)atoi(size), (uint32_t)atoi(epoch),
                            &group) < 0) {
        free(copy);
        fbr_log_error("rank: out of memory");
        return 125;
    }
    fbr_wipe(&group, sizeof(group));
    code = ((fiber_rank_fn)fn)(atoi(rank), atoi(size), copy, n);
    free(copy);
    return code;
}

struct opening {
    struct fiber_ring *ring;
    struct fbr_error *err; /* the error kept by the thread of the loop is not the caller's */
};

static int open_backend(void *arg)
{
    const struct opening *o = arg;
    struct fbr_backend_slot *slot;

    return fbr_rt_backend(o->ring->rt, o->ring->options.backend, &slot, o->err);
}

/* Opens the service for collectives. Its address depends on the backend: on the hosts that must
 * reach us. */
static int open_group(struct fiber_ring *r, struct fiber_address *address, struct fbr_error *err)
{
    struct opening opening = {r, err};
    int rc = fbr_loop_call(r->rt->loop, open_backend, &opening);

    if (rc < 0)
        return err->code ? fbr_wrap(err, "ring") : fbr_fail(err, rc, "ring: %s", fbr_strerror(rc));
    rc = fbr_collective_open(&r->collect, r->size, address);
    return rc < 0 ? fbr_fail(err, rc, "ring: %s", fiber_last_error()) : 0;
}

int fbr_ring_make_work(struct fiber_ring *r, fiber_rank_fn fn, const void *arg, size_t len,
                       struct fbr_error *err)
{
    struct fbr_buf inner = {0}, outer = {0};
    struct fiber_address group;
    struct fbr_fnref ref;
    int rc = fbr_fnref_make(&ref, (void (*)(void))fn, err);

    if (rc < 0)
        return fbr_wrap(err, "cannot send the function of the ring to other processes");
    rc = open_group(r, &group, err);
    if (rc < 0)
        return rc;
    fbr_put(&inner, &group, sizeof(group));
    fbr_fnref_put(&inner, &ref);
    fbr_put(&inner, arg, len);
    rc = inner.failed ? fbr_fail(err, -ENOMEM, "out of memory")
                      : fbr_entry_put(&outer, rank_main, inner.data, inner.len, err);
    fbr_wipe(&group, sizeof(group));
    fbr_buf_fini(&inner);
    if (rc < 0) {
        fbr_buf_fini(&outer);
        return rc;
    }
    r->work = outer.data;
    r->work_len = outer.len;
    return 0;
}
