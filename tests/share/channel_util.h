/* channel_util.h - what the tests of queues and pipes share: children that check, and how to wait
 * for them.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "fiber.h"
#include "tests/support/children.h"

#define LONG_MS 300000 /* more than anything here takes; who waits so long has hung */
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
#define SLOWNESS 4 /* how much less is done of what takes long */
#else
#define SLOWNESS 1
#endif
#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

/* In a child: says what was wrong, and ends it. */
#define CHECK(what)                                                                \
    do {                                                                           \
        if (!(what)) {                                                             \
            fprintf(stderr, "%s:%d: %s: not so (%s)\n", __func__, __LINE__, #what, \
                    fiber_last_error());                                           \
            _exit(99);                                                             \
        }                                                                          \
    } while (0)

static inline void must(int rc)
{
    if (rc < 0)
        fail_msg("%s", fiber_last_error());
}

static inline uint64_t now_ms(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

static inline struct fiber_process *start(fiber_process_fn fn, const void *arg, size_t len)
{
    struct fiber_process *p;

    must(fiber_process_start(&p, fn, arg, len, NULL));
    return p;
}

/* Waits for a child, which must end with success. */
static inline void join(struct fiber_process *p)
{
    int code = -1;

    assert_int_equal(fiber_process_join(p, LONG_MS), 0);
    assert_int_equal(fiber_process_exitcode(p, &code), 0);
    if (code != 0)
        fail_msg("%s", fiber_process_report(p));
    fiber_process_close(p);
}

static inline void kill_and_join(struct fiber_process *p)
{
    must(fiber_process_kill(p));
    assert_int_equal(fiber_process_join(p, LONG_MS), 0);
    fiber_process_close(p);
}

/* Many children end without closing what they opened. That is not a leak. */
static inline void keep(const void *handle)
{
    static const void *volatile kept[4096];
    static atomic_uint next;

    kept[atomic_fetch_add(&next, 1) % COUNT(kept)] = handle;
}

static inline struct fiber_queue *open_queue(size_t bound, struct fiber_address *address)
{
    struct fiber_queue *q;

    must(fiber_queue_open(&q, bound));
    must(fiber_queue_address(q, address));
    keep(q);
    return q;
}

static inline struct fiber_queue *connect_queue(const struct fiber_address *address)
{
    struct fiber_queue *q;

    CHECK(fiber_queue_connect(&q, address) == 0);
    keep(q);
    return q;
}

static inline int put_number(struct fiber_queue *q, uint64_t n)
{
    return fiber_queue_put(q, &n, sizeof(n), LONG_MS);
}

/* A message that is a number, or UINT64_MAX and the error. */
static inline uint64_t get_number(struct fiber_queue *q, int timeout_ms, int *rc)
{
    struct fiber_bytes b;
    uint64_t n = UINT64_MAX;

    *rc = fiber_queue_get(q, &b, timeout_ms);
    if (*rc == 0 && b.len == sizeof(n))
        memcpy(&n, b.data, sizeof(n));
    fiber_bytes_free(&b);
    return n;
}

static inline void expect_number(struct fiber_queue *q, uint64_t n)
{
    int rc;

    assert_int_equal(get_number(q, LONG_MS, &rc), n);
}

/* xorshift64* (Vigna, "An experimental exploration of Marsaglia's xorshift generators, scrambled",
 * 2016). */
static inline uint64_t next_random(uint64_t *state)
{
    *state ^= *state >> 12;
    *state ^= *state << 25;
    *state ^= *state >> 27;
    return *state * 2685821657736338717u;
}

/* Whether this thread of this process sleeps, as it does while it waits. */
static inline bool sleeps(pid_t tid)
{
    char path[48], text[128] = "";
    const char *name_end;
    FILE *f;

    snprintf(path, sizeof(path), "/proc/self/task/%d/stat", (int)tid);
    f = fopen(path, "r");
    if (!f)
        return false;
    (void)!fgets(text, sizeof(text), f);
    fclose(f);
    name_end = strrchr(text, ')');
    return name_end && name_end[1] == ' ' && name_end[2] == 'S';
}

/* How many descriptors this process has. */
static inline int count_fds(void)
{
    int n = 0;

    for (int fd = 0; fd < 4096; fd++)
        n += lseek(fd, 0, SEEK_CUR) >= 0 || errno != EBADF;
    return n;
}
