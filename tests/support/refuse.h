/* refuse.h - memory that is short at one moment of a call, for tests that are linked with
 * -Wl,--wrap of malloc and its like.
 *
 * Each call is made again and again, and the k-th request for memory of the calling thread is
 * refused, for k = 1, 2, ... until the call gets by without that request. To be included by one
 * file of a program.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <errno.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "fiber.h"

#define REFUSALS_MAX 5000 /* no call asks that often: it would go on for ever */

static __thread unsigned refuse_at, asked; /* 0: none is refused */
/* the same for all threads together, except those that have called begin_refusing_others() */
static atomic_uint others_refuse_at, others_asked;
static __thread bool apart;

static bool refuse(void)
{
    unsigned at = atomic_load(&others_refuse_at);

    if (refuse_at)
        return ++asked == refuse_at;
    return at && !apart && atomic_fetch_add(&others_asked, 1) + 1 == at;
}

#include "tests/support/wrapped_malloc.h"

static inline void begin_refusing(unsigned k)
{
    asked = 0;
    refuse_at = k;
}

/* The k-th request of the other threads is refused, until end_refusing_others(). */
static inline void begin_refusing_others(unsigned k)
{
    apart = true;
    atomic_store(&others_asked, 0);
    atomic_store(&others_refuse_at, k);
}

/* Answers whether there was a k-th request. */
static inline bool end_refusing_others(unsigned k)
{
    atomic_store(&others_refuse_at, 0);
    return atomic_load(&others_asked) >= k;
}

/* Ends it, rc being what the calls came to: -ENOMEM, or -EPIPE where the connection was what lacked
 * memory, each with a sentence. True while there may be a next request to refuse. */
static inline bool end_refusing(unsigned k, int rc)
{
    refuse_at = 0;
    if (rc < 0 && rc != -ENOMEM && rc != -EPIPE)
        fail_msg("with request %u refused: %d (%s)", k, rc, fiber_last_error());
    if (rc < 0)
        assert_true(fiber_last_error()[0] != '\0');
    assert_true(k < REFUSALS_MAX);
    if (asked < k)
        assert_int_equal(rc, 0);
    return asked >= k;
}
