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
#include <stdbool.h>

#include "fiber.h"

#define REFUSALS_MAX 5000 /* no call asks that often: it would go on for ever */

static __thread unsigned refuse_at, asked; /* 0: none is refused */

static bool refuse(void)
{
    return refuse_at && ++asked == refuse_at;
}

#include "tests/support/wrapped_malloc.h"

static inline void begin_refusing(unsigned k)
{
    asked = 0;
    refuse_at = k;
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
