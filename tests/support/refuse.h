/* refuse.h - memory that is short at one moment of a call, for tests that are linked with
 * -Wl,--wrap of malloc and its like.
 *
 * Each call is made again and again, and the k-th request for memory of the calling thread is
 * refused, for k = 1, 2, ... until the call gets by without that request. To be included by one
 * file of a program.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef TEST_REFUSE_H
#define TEST_REFUSE_H

#include <errno.h>
#include <stdbool.h>
#include <stddef.h>

#include "fiber.h"

#define REFUSALS_MAX 5000 /* no call asks that often: it would go on for ever */

void *__real_malloc(size_t n);
void *__real_calloc(size_t n, size_t size);
void *__real_realloc(void *p, size_t n);
char *__real_strdup(const char *s);
void *__wrap_malloc(size_t n);
void *__wrap_calloc(size_t n, size_t size);
void *__wrap_realloc(void *p, size_t n);
char *__wrap_strdup(const char *s);

static __thread unsigned refuse_at, asked; /* 0: none is refused */

static bool refuse(void)
{
    return refuse_at && ++asked == refuse_at;
}

void *__wrap_malloc(size_t n)
{
    return refuse() ? NULL : __real_malloc(n);
}

void *__wrap_calloc(size_t n, size_t size)
{
    return refuse() ? NULL : __real_calloc(n, size);
}

void *__wrap_realloc(void *p, size_t n)
{
    return refuse() ? NULL : __real_realloc(p, n);
}

char *__wrap_strdup(const char *s)
{
    return refuse() ? NULL : __real_strdup(s);
}

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

#endif
