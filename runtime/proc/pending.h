/* pending.h - jobs that do not run yet, in one line: "2 of 8 jobs pending: image x: pulled 12.0 of
 * 345.0 MB".
 *
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef FBR_PENDING_H
#define FBR_PENDING_H

#include <stdbool.h>
#include <stddef.h>

#include "runtime/net/loop.h"

/* Begins as zeros. */
struct fbr_pending {
    int jobs, pending, same; /* same: pending jobs that wait for the same as the first */
    /* fbr_now_ms() when the longest wait began; 0: unknown */
    uint64_t since;
    char text[400];
};

/* text: why the job does not run yet, in its backend's words; NULL: the job runs. Pure. */
void fbr_pending_add(struct fbr_pending *p, const char *text);
/* Adds a job that has waited since then. Pure. */
void fbr_pending_add_since(struct fbr_pending *p, const char *text, uint64_t since);
/* "" when none is pending. Pure. */
void fbr_pending_format(const struct fbr_pending *p, char *out, size_t size);
/* Whether two texts differ in more than their numbers. Pure. */
bool fbr_pending_differ(const char *a, const char *b);

/* Tells people what jobs of this process wait for, once the wait has lasted: as warnings, which the
 * log shows by default. */
struct fbr_pending_watch {
    struct fbr_timer timer;
    void (*collect)(void *user, struct fbr_pending *out);
    void *user;
    bool quiet;    /* another part reports, as `fiber run` does. Set before any job is started */
    uint64_t said; /* fbr_now_ms() */
    char last[480];
};

/* A job has begun to wait; `collect` adds all jobs. Loop thread, as the next. */
void fbr_pending_begin(struct fbr_pending_watch *w, struct fbr_loop *loop,
                       void (*collect)(void *user, struct fbr_pending *out), void *user);
void fbr_pending_end(struct fbr_pending_watch *w);

#endif
