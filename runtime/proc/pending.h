/* pending.h - jobs that do not run yet, in one line: "2 of 8 jobs pending: image x: pulled 12.0 of
 * 345.0 MB".
 *
 * SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "runtime/net/loop.h"

/* Zeroed at first. */
struct fbr_pending {
    /* same: pending jobs with the reason of the first one */
    int jobs, pending, same;
    /* fbr_now_ms() when the longest wait began; 0: unknown */
    uint64_t since;
    char text[400];
};

/* Adds a job. text: why it does not run yet, in its backend's words; NULL: it runs. It has waited
 * since `since` (fbr_now_ms()); 0: unknown. Pure. */
void fbr_pending_add(struct fbr_pending *p, const char *text, uint64_t since);
/* Stores the line, or "" if no job is pending. Pure. */
void fbr_pending_format(const struct fbr_pending *p, char *out, size_t size);
/* Whether two texts differ in more than their numbers. Pure. */
bool fbr_pending_differ(const char *a, const char *b);

/* Reports what jobs of this process wait for, if they wait for long: as warnings, which the log
 * shows by default. */
struct fbr_pending_watch {
    struct fbr_timer timer;
    void (*collect)(void *user, struct fbr_pending *out);
    void *user;
    bool quiet;    /* another part reports, as `fiber run` does. Set before any job is started */
    uint64_t said; /* fbr_now_ms() */
    char last[480];
};

/* Call it when a job begins to wait; `collect` adds all jobs. Loop thread, as fbr_pending_end(). */
void fbr_pending_begin(struct fbr_pending_watch *w, struct fbr_loop *loop,
                       void (*collect)(void *user, struct fbr_pending *out), void *user);
void fbr_pending_end(struct fbr_pending_watch *w);
