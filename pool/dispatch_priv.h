/* dispatch_priv.h - the data structures of the scheduling engine, for its own files (dispatch.h has
 * what it does).
 *
 * tests/support/dispatch_check.c has the invariants.
 *
 * Tasks that came back are not copied: the batch that contained them stays, and is listed with its
 * map as a segment, a window of positions in which tasks may wait. A listed window may also cover
 * tasks that do not wait (any more), so a reader of the window looks at the states. The rule that
 * keeps this right: a waiting task is fresh (at or above the map's cursor), or in the window of a
 * segment of its kind (`again` without deaths, `suspects` with deaths).
 *
 * SPDX-License-Identifier: Apache-2.0 */
#pragma once

#define HASH_NONFATAL_OOM 1 /* an entry that could not be added has hh.tbl NULL */
/* ids are consecutive numbers */
#define HASH_FUNCTION(id, size, hash) ((hash) = (unsigned)*(const uint64_t *)(id))
#include <uthash.h>
#include <utlist.h>

#include "pool/dispatch.h"

#define NS_PER_MS UINT64_C(1000000)
#define PAGE 1024 /* tasks; no batch crosses the end of a page */
#define RATES 4

/* State of a task: waiting, held or done; how many deaths and how many lost jobs it saw,
 * FBR_DISPATCH_DEATHS of each at most. */
enum { TASK_WAITING = 0, TASK_HELD = 1, TASK_DONE = 2, TASK_WHAT = 3 };
#define TASK_DEATH 4u /* one death */
#define TASK_JOB 32u  /* one lost job */

static inline unsigned task_what(uint8_t state)
{
    return state & TASK_WHAT;
}
static inline unsigned task_deaths(uint8_t state)
{
    return state % TASK_JOB / TASK_DEATH;
}
static inline unsigned task_jobs(uint8_t state)
{
    return state / TASK_JOB;
}
static inline uint8_t task_set(uint8_t state, unsigned what)
{
    return (uint8_t)((state & ~TASK_WHAT) | what);
}

struct page {
    uint32_t size, done;
    uint8_t states[];
};

struct window {
    uint32_t at, end; /* positions in the batch */
    bool listed;
    struct batch *prev, *next;
};

enum window_kind { AGAIN, SUSPECTS, WINDOWS };

/* Lives while its worker knows it (the worker is live, or dead and not removed), or one of its
 * windows is listed. */
struct batch {
    uint64_t id, first;
    struct map *map;                /* NULL: the map is closed */
    struct dispatch_worker *worker; /* NULL: the worker has finished the batch */
    /* positions: those below `seen` are reported; the worker keeps those below `kept` */
    uint32_t kept, seen;
    bool alone;    /* its worker may hold no other batch */
    bool recalled; /* a recall was ordered and not answered */
    /* the worker has answered the recall: it has started all tasks that it holds of the batch */
    bool begun;
    bool listed; /* in d->orders */
    enum fbr_dispatch_order_kind order;
    /* when it became the first batch of its worker; FBR_DISPATCH_NEVER: not yet; for d->timed */
    uint64_t start;
    uint32_t nreports;
    uint64_t reports[FBR_DISPATCH_REPORTS];
    struct window windows[WINDOWS];
    struct batch *map_prev, *map_next;
    struct batch *worker_prev, *worker_next;
    struct batch *order_prev, *order_next;
    struct batch *timed_prev, *timed_next;
};

struct map {
    uint64_t id;
    UT_hash_handle hh;
    void *user;
    uint64_t age; /* lower: earlier */
    uint64_t total, cursor, done, waiting, suspects, held;
    uint64_t timeout_ns, task_bytes;
    uint64_t (*size_of)(void *user, uint64_t index);
    int priority, retries;
    uint32_t chunk;
    bool open, solo; /* solo: tasks are handed out alone */
    uint32_t heap;   /* its place in d->ready + 1; 0: it has none */
    float mean;      /* ns of a task; 0: unknown */
    uint32_t samples;
    struct page **pages; /* from page number `base` on; NULL: untouched, &fbr_page_done: all done */
    uint64_t base;
    uint32_t npages, cap;
    uint32_t leading; /* how many pages at the front are done */
    struct batch *batches;
    struct batch *windows[WINDOWS];
};

/* Measured times of one worker for the tasks of one map. */
struct rate {
    uint64_t map;
    float mean; /* ns of a task; 0: unknown */
    uint32_t samples;
    uint32_t answered; /* tasks of the largest batch that it finished */
};

enum place { NOWHERE, IDLE, HALF };
/* DRAINED: an order that says so is in d->drained, or was pulled. */
enum life { LIVE, DRAINING, DRAINED, DEAD };

struct dispatch_worker {
    uint64_t id;
    UT_hash_handle hh;
    void *user;
    struct batch *batches; /* oldest first. Alive: two at most, none of them complete */
    uint32_t nbatches;
    enum life life;
    bool loaded; /* in d->loaded */
    bool full;   /* counted in d->nfull */
    bool shy;    /* it was asked to return tasks; it gets no second batch until it finished one */
    enum place place;
    uint64_t tasks_left, idle_since;
    /* when its tasks were last known to make progress: results, or the start of a batch */
    uint64_t last_seen;
    double slowness;
    struct rate rates[RATES]; /* latest first */
    struct dispatch_worker *place_prev, *place_next;
    struct dispatch_worker *loaded_prev, *loaded_next;
    struct dispatch_worker *drained_prev, *drained_next;
};

struct fbr_dispatch {
    uint64_t max_bytes; /* input bytes in a batch of more than one task */
    struct fbr_dispatch_stats stats;
    struct map *maps; /* by id, like the workers */
    struct dispatch_worker *workers;
    uint64_t count; /* of maps and workers that ever were */
    uint64_t batch_count, age;
    struct map **ready; /* heap of the maps with waiting tasks */
    uint32_t nready, ready_cap;
    /* by place: the workers that get the next first batch, the next second batch */
    struct dispatch_worker *idle, *half;
    struct dispatch_worker *loaded;  /* workers with unstarted tasks that may be recalled */
    struct dispatch_worker *drained; /* workers for which an order DRAINED waits */
    uint32_t nhalf;                  /* how many are in `half` */
    uint32_t takers;                 /* workers that are neither dead nor draining */
    uint32_t nfull;                  /* how many of these hold two batches */
    struct batch *orders, *timed;
    uint64_t timeout_at; /* at or before the first timeout of `timed` */
    uint64_t recall_at;  /* do not look for stragglers before this time */
    uint64_t lag;        /* ns that results come later than the times of their tasks; a mean */
    int lowest;          /* the lowest priority of a map so far */
    bool outranked;      /* tasks came that rank before tasks that a worker holds */
};

/* dispatch.c */
struct dispatch_worker *fbr_dispatch_worker_find(const struct fbr_dispatch *d, uint64_t id);
struct batch *fbr_dispatch_batch_find(const struct dispatch_worker *w, uint64_t id);
/* Puts the worker into the lists to which it belongs. Called after each change of its batches. */
void fbr_dispatch_place(struct fbr_dispatch *d, uint64_t now, struct dispatch_worker *w);

/* dispatch_task.c: maps */
extern struct page fbr_page_done;
struct page *fbr_task_page(const struct map *m, uint64_t index);
/* The states from `index` to the end of its page; NULL: untouched, or all done. */
uint8_t *fbr_task_states(const struct map *m, uint64_t index);
/* The same, and makes the page if it was untouched, so that NULL means all done. 0 or -ENOMEM. */
int fbr_task_touch(struct map *m, uint64_t index, uint8_t **states);
/* n tasks of the page of `index` are done now; the page is freed if these were its last ones. */
void fbr_task_retire(struct fbr_dispatch *d, struct map *m, uint64_t index, uint32_t n);
/* Ends one task, waiting or held, whose state is at *state. */
void fbr_task_end(struct fbr_dispatch *d, struct map *m, uint64_t index, uint8_t *state);
void fbr_task_pages_free(struct map *m);
/* Counts `n` tasks of m, of which `suspects` are suspects, as waiting now, or as not waiting any
 * more (negative); m enters or leaves the heap. */
void fbr_map_wait(struct fbr_dispatch *d, struct map *m, int64_t n, int64_t suspects);
int fbr_map_reserve(struct fbr_dispatch *d); /* room in the heap for all maps and one more */
/* gives m the age of a map that is added now */
void fbr_map_renew(struct fbr_dispatch *d, struct map *m);

/* dispatch_task.c: batches */
/* Frees b if nothing refers to it any more. */
void fbr_batch_put(struct batch *b);
/* The batch's worker has finished it (complete, or the worker is removed). May free it. */
void fbr_batch_leave(struct fbr_dispatch *d, uint64_t now, struct batch *b);
/* The held tasks at positions [at, end) wait again; they saw a TASK_DEATH, a TASK_JOB, or nothing
 * (0). Returns how many tasks these are. */
uint32_t fbr_batch_requeue(struct fbr_dispatch *d, struct batch *b, uint32_t at, uint32_t end,
                           unsigned saw);
/* The next tasks of m: the first index, the largest number of them (one page, one segment), and the
 * segment from which they come (NULL: fresh). */
struct found {
    uint64_t first;
    uint32_t most;
    uint8_t *states;
    struct batch *from;
    enum window_kind kind;
};
int fbr_task_find(struct map *m, struct found *f); /* m must have waiting tasks. 0 or -ENOMEM */
/* how many of the n tasks can go into one batch */
uint32_t fbr_task_run(const struct found *f, uint32_t n);
/* may free f->from */
void fbr_task_hold(struct fbr_dispatch *d, struct map *m, const struct found *f, uint32_t n);

/* dispatch_report.c: times */
struct rate *fbr_rate_find(struct dispatch_worker *w, uint64_t map);
struct rate *fbr_rate_touch(struct dispatch_worker *w, uint64_t map); /* makes it the latest */
/* ns of a task; 0: unknown */
uint64_t fbr_rate_estimate(struct dispatch_worker *w, const struct map *m);

/* dispatch_order.c */
void fbr_order_push(struct fbr_dispatch *d, struct batch *b, enum fbr_dispatch_order_kind kind);
void fbr_order_drop(struct fbr_dispatch *d, struct batch *b);
void fbr_timed_start(struct fbr_dispatch *d, uint64_t now, struct batch *b);
void fbr_timed_drop(struct fbr_dispatch *d, struct batch *b);
/* the batch that the worker can return tasks of; NULL: none */
struct batch *fbr_order_recallable(const struct dispatch_worker *w);
