/* pending.c - reports jobs that do not run yet.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "runtime/proc/pending.h"

#include <stdio.h>
#include <string.h>

#include "runtime/base/log.h"
#include "runtime/base/printable.h"

#define PATIENCE_MS 2000 /* delay of the first check, and interval of the checks */
#define SHORT_MS 1000    /* a shorter wait is not reported: the jobs may run by now */
#define CHANGED_MS 5000  /* time until the next report if something has changed */
#define AGAIN_MS 30000   /* time until the next report if nothing has changed */

void fbr_pending_add(struct fbr_pending *p, const char *text, uint64_t since)
{
    p->jobs++;
    if (!text)
        return;
    if (!p->pending++)
        fbr_printable_cut(p->text, sizeof(p->text), text);
    p->same += !fbr_pending_differ(p->text, text);
    if (!p->since || since < p->since)
        p->since = since;
}

void fbr_pending_format(const struct fbr_pending *p, char *out, size_t size)
{
    int others = p->pending - p->same;
    char line[sizeof(p->text) + 96];

    out[0] = '\0';
    if (!p->pending)
        return;
    if (others)
        snprintf(line, sizeof(line), "%d of %d jobs pending: %s; %d for other reasons", p->pending,
                 p->jobs, p->text, others);
    else
        snprintf(line, sizeof(line), "%d of %d job%s pending: %s", p->pending, p->jobs,
                 p->jobs == 1 ? "" : "s", p->text);
    fbr_printable_cut(out, size, line);
}

bool fbr_pending_differ(const char *a, const char *b)
{
    while (*a || *b) {
        a += strspn(a, "0123456789");
        b += strspn(b, "0123456789");
        if (*a != *b)
            return true;
        a += *a != '\0';
        b += *b != '\0';
    }
    return false;
}

static void look(void *arg)
{
    struct fbr_pending_watch *w = arg;
    struct fbr_pending now = {0};
    uint64_t ms = fbr_now_ms(), waited;
    char text[sizeof(w->last)];

    w->collect(w->user, &now);
    fbr_pending_format(&now, text, sizeof(text));
    if (!text[0]) {
        fbr_timer_stop(&w->timer);
        w->last[0] = '\0';
        return;
    }
    waited = ms - now.since;
    if (waited < SHORT_MS)
        return;
    if (w->last[0] && ms - w->said < (strcmp(text, w->last) != 0 ? CHANGED_MS : AGAIN_MS))
        return;
    fbr_warn("waiting for %llu s: %s", (unsigned long long)(waited / 1000), text);
    w->said = ms;
    memcpy(w->last, text, sizeof(text));
}

void fbr_pending_begin(struct fbr_pending_watch *w, struct fbr_loop *loop,
                       void (*collect)(void *user, struct fbr_pending *out), void *user)
{
    if (fbr_timer_runs(&w->timer) || w->quiet ||
        (!w->timer.uv && fbr_timer_init(&w->timer, loop, look, w) < 0))
        return;
    w->collect = collect;
    w->user = user;
    fbr_timer_start(&w->timer, PATIENCE_MS, PATIENCE_MS);
}

void fbr_pending_end(struct fbr_pending_watch *w)
{
    fbr_timer_fini(&w->timer);
    w->quiet = true;
}
