/* dispatch.h - the scheduling engine: decides which worker gets which tasks of a pool, and when.
 *
 * Pure: events and the time go in, decisions come out. The engine has no descriptors, no threads,
 * no clock and no payloads. It locks nothing: the caller holds one mutex around all calls on an
 * engine; size_of is the only callback. Times are nanoseconds of any monotonic clock and never go
 * back.
 *
 *     map     n tasks, index 0 to n-1, with one priority, retries and timeout. An open map may
 *             grow.
 *     task    (map, index): waiting, held by a worker, or done. Its deaths count how many workers
 *             died while they may have been running it.
 *     worker  runs tasks one after another, in the order of its messages.
 *     batch   neighbouring tasks of one map, handed to one worker: index = first + position. A
 *             worker holds at most two: the one that it runs and the next (prefetched).
 *
 * After every event, or several, the caller pulls the decisions and arms its timer:
 *
 *     while (fbr_dispatch_next(d, now, &batch) > 0)
 *         send TASKS to batch.worker
 *     while (fbr_dispatch_order(d, now, &order) > 0)
 *         carry it out
 *     call both again at fbr_dispatch_wake(d), or before
 *
 * Duties of a worker. It reports each position of a batch exactly once, in order, also positions
 * that it skipped because they were cancelled. It may report in any number of parts (about one part
 * in two milliseconds, the last one at the end of the batch). While a task runs for long, the
 * worker should report the tasks that finished before: to the engine, tasks with unreported results
 * look like tasks that wait behind the long one or died with it. On RECALL of a batch it keeps the
 * tasks that it has started, forgets the rest and answers fbr_dispatch_returned(), at once and
 * whatever its task does; it need not answer when it has finished the batch. (Where orders may
 * overtake batches, it remembers orders about batches to come: ids increase.) It may return
 * unstarted tasks without being asked.
 *
 * Which task next. Maps of higher priority come first; at equal priority the oldest map comes
 * first, until none of its tasks waits (FIFO). So a short map waits for the maps before it and for
 * nothing else. The age of an open map is that of the last batch that was taken from it, so that an
 * endless source takes turns with the others. Within a map: suspects, then tasks that came back,
 * then fresh tasks by index.
 *
 * To which worker. Workers that hold nothing come first; of these, the one that was busy last comes
 * first (but a slow one last), so that workers that are not needed are seen to be idle. Then, so
 * that no worker waits for the caller between two tasks, a second batch goes to the worker that has
 * waited longest for one. This is done only while the task times of its running batch and of the
 * next batch are known and not long (FBR_DISPATCH_PREFETCH_NS), not behind a batch of lower
 * priority, while the worker has less than FBR_DISPATCH_TARGET_NS ahead, and while each worker that
 * could take a second batch can get a task. Tasks that are left after that wait for the first
 * worker that has nothing.
 *
 * How many. A first batch of a map has one task for each worker (or the chunk hint). Later batches
 * have about FBR_DISPATCH_TARGET_NS of work by the measured task times of that worker on that map,
 * at most four times its largest batch so far, FBR_DISPATCH_BATCH_MAX tasks and `max_bytes`, and
 * never more than 1/(2 x workers) of the waiting tasks of the map. So a slow worker gets less work
 * in proportion. Where this gives one task, of FBR_DISPATCH_PREFETCH_NS at most, two tasks go in
 * one message, if there are two for each worker that could take as many: each worker that holds
 * nothing, or, when a second batch is handed out, each that has no second batch yet.
 *
 * Stragglers. When a worker is idle and no task waits, unstarted tasks are recalled from the
 * workers that would take longest. These are workers that, by the usual times, would begin the
 * tasks later than it takes to have them back and hand them out (twice the usual lag, and
 * FBR_DISPATCH_RECALL_NS), and workers that should have begun them longer ago than results usually
 * lag, or are silent for several times longer than usual. A worker that has answered has begun all
 * tasks that it kept, and is not asked again. The recalled tasks go to the front. A worker that
 * does not answer is left to the watch on its heartbeat. The same is done when a map of higher
 * priority comes, with as many workers as the map has tasks.
 *
 * Deaths. The unreported tasks of the oldest batch of a dead worker are suspects: deaths + 1, they
 * go to the front, and from then on each is handed out alone, to a worker that holds nothing else
 * and gets nothing else. The second batch goes back without a count. A task that has seen
 * FBR_DISPATCH_DEATHS deaths fails as blamed, with the reports of these deaths; a task with more
 * deaths than retries is lost. So batch-mates of a killer are delayed, never blamed. A task with
 * retries = 0 is always handed out alone, so that no death takes another task with it, and is never
 * handed out again after a death. At most one task fails by a death. A disruption (eviction, a kill
 * because of another task) counts for no task, but a task that runs at most once is still lost. If
 * a job is lost with several busy workers, one of their tasks may be the cause: that counts for no
 * task, either, but the engine counts the lost jobs that each of these tasks has seen (lost_jobs).
 *
 * A task with a timeout is handed out alone in its batch, though another batch may be prefetched
 * behind it. Its time runs from the end of the batch before it, or from when it was handed out.
 *
 * Invariants. Each task is taken (or cancelled, or failed) once. No other worker holds a task of a
 * live worker. Results of a dead worker are taken while their task is not done, even if another
 * worker holds it by then; the second result is dropped.
 *
 * Cost. O(1) for each event, and O(log maps) when a map begins or ceases to have waiting tasks; a
 * few ns for each task of a batch. Recall looks at all workers with unstarted work, at most every
 * half millisecond and only while a worker idles. Memory: about 250 bytes a map; 1 byte a task
 * from its first handing out until its 1,024 neighbours are done (so an endless map stays small);
 * about 300 bytes a held batch. Events that must not fail allocate nothing.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct fbr_dispatch;

#define FBR_DISPATCH_BATCH_MAX 1024                /* tasks in a batch */
#define FBR_DISPATCH_BYTES_MAX ((uint64_t)4 << 20) /* usual limit of input bytes in a batch */
#define FBR_DISPATCH_TARGET_NS UINT64_C(4000000)   /* work in a batch */
/* No batch is prefetched behind longer tasks, nor are longer tasks prefetched. */
#define FBR_DISPATCH_PREFETCH_NS UINT64_C(100000000)
#define FBR_DISPATCH_RECALL_NS UINT64_C(1000000) /* unstarted work that is worth a recall */
#define FBR_DISPATCH_DEATHS 3                    /* deaths after which a task is blamed */
#define FBR_DISPATCH_REPORTS 4                   /* death reports kept for a task */
#define FBR_DISPATCH_NEVER UINT64_MAX

/* max_bytes: input bytes in a batch of more than one task. NULL when memory is short. */
struct fbr_dispatch *fbr_dispatch_open(uint64_t max_bytes);
void fbr_dispatch_close(struct fbr_dispatch *d); /* NULL is fine */

/* ---- maps ---- */

/* Ids of maps, workers and batches are never 0 and never used twice. A call with the id of a map or
 * worker that is gone does nothing, or returns -ENOENT. */
struct fbr_dispatch_map {
    void *user;     /* returned with each decision about this map */
    uint64_t tasks; /* how many; 0 is fine */
    bool open;      /* may grow */
    int priority;   /* higher first */
    /* how often a task is run again after deaths; 0: at most once; -1: no limit except blame */
    int retries;
    uint64_t timeout_ns; /* 0: none */
    uint32_t chunk;      /* a hint for the first batches; 0: none */
    /* time of a task as known from an earlier map of the same function; 0: unknown */
    uint64_t expect_ns;
    uint64_t task_bytes; /* of each input; 0: ask size_of, or unknown when that is NULL */
    uint64_t (*size_of)(void *user, uint64_t index); /* called within fbr_dispatch_next() */
};

/* 0 and the id; -ENOMEM. */
int fbr_dispatch_map_add(struct fbr_dispatch *d, const struct fbr_dispatch_map *map, uint64_t *id);
/* Adds tasks to an open map, behind the others. -ENOENT; -EINVAL: it is not open. */
int fbr_dispatch_map_grow(struct fbr_dispatch *d, uint64_t map, uint64_t tasks);
/* Forgets the map, finished or not: the caller fails the tasks that are not done. Each worker that
 * holds tasks of the map gets an order CANCEL; results of these tasks are dropped. */
void fbr_dispatch_map_close(struct fbr_dispatch *d, uint64_t map);
/* Mean time of its tasks so far, for the expect_ns of another map; 0: not known. */
uint64_t fbr_dispatch_map_mean(const struct fbr_dispatch *d, uint64_t map);

/* ---- workers ---- */

/* Adds a worker that is ready for tasks, for max_tasks of them (0: no limit); after these it is
 * drained. 0 and the id; -ENOMEM. */
int fbr_dispatch_worker_add(struct fbr_dispatch *d, uint64_t now, void *user, uint64_t max_tasks,
                            uint64_t *id);
/* The worker gets no more tasks and returns those that it has not started. When it holds none, one
 * order DRAINED reports that. */
void fbr_dispatch_worker_drain(struct fbr_dispatch *d, uint64_t worker);

enum fbr_dispatch_why {
    FBR_DISPATCH_BLAMED = 1, /* it saw FBR_DISPATCH_DEATHS deaths */
    FBR_DISPATCH_LOST,       /* no retries are left */
};

struct fbr_dispatch_failure {
    uint64_t map, index;
    void *map_user;
    enum fbr_dispatch_why why;
    uint32_t deaths;
    /* how many of `report` are set: the first FBR_DISPATCH_REPORTS deaths, oldest first */
    uint32_t reports;
    uint64_t report[FBR_DISPATCH_REPORTS];
};

#define FBR_DISPATCH_DISRUPTION 1 /* the death is not the fault of the task that ran */
#define FBR_DISPATCH_JOB 2        /* a job was lost, and several of its workers held tasks */

/* The worker died, or must be treated as dead (fenced). `report` is the caller's name for this
 * death; `flags` is 0 or one of these. 1: a task failed, it is done and *failure describes it; 0:
 * none failed. The worker stays known, for late results, until worker_remove. Repeats do
 * nothing. */
int fbr_dispatch_worker_dead(struct fbr_dispatch *d, uint64_t now, uint64_t worker, uint64_t report,
                             unsigned flags, struct fbr_dispatch_failure *failure);
/* Forgets a worker that is dead, or drained and empty; no message can come from it any more. A
 * worker that is neither is treated as disrupted first; only then may a task fail (one that runs at
 * most once, so it is lost): 1 and *failure. */
int fbr_dispatch_worker_remove(struct fbr_dispatch *d, uint64_t now, uint64_t worker,
                               struct fbr_dispatch_failure *failure);

/* The time from which on the worker holds nothing; FBR_DISPATCH_NEVER: it holds tasks. */
uint64_t fbr_dispatch_worker_idle_since(const struct fbr_dispatch *d, uint64_t worker);

/* ---- decisions ---- */

struct fbr_dispatch_batch {
    uint64_t id; /* increasing */
    uint64_t worker, map;
    void *worker_user, *map_user;
    uint64_t first; /* index of its first task; the others follow without gaps */
    uint32_t count;
};

/* 1: send *out; the worker holds it from now on. 0: there is nothing (more) to send. -ENOMEM:
 * nothing has changed. */
int fbr_dispatch_next(struct fbr_dispatch *d, uint64_t now, struct fbr_dispatch_batch *out);
enum fbr_dispatch_order_kind {
    /* ask the worker to return the tasks of `batch` that it has not started */
    FBR_DISPATCH_RECALL = 1,
    /* Notify the worker that the result of `pos` in `batch` is not wanted. FBR_DISPATCH_ALL: no
     * result of the batch is wanted, and the worker returns the tasks that it has not started, as
     * for RECALL. */
    FBR_DISPATCH_CANCEL,
    /* The task at `pos` (`map`, `index`) ran too long and is done: fail it, kill the worker and
     * report its death as a disruption. */
    FBR_DISPATCH_TIMEOUT,
    FBR_DISPATCH_DRAINED, /* the draining worker holds nothing: stop it, and worker_remove */
};

#define FBR_DISPATCH_ALL UINT32_MAX

struct fbr_dispatch_order {
    enum fbr_dispatch_order_kind kind;
    uint64_t worker, batch, map, index; /* 0 where it has no meaning; map 0: closed */
    void *worker_user, *map_user;       /* map_user NULL: closed */
    uint32_t pos;
};

/* 1: carry out *out. 0: there is nothing (more) to do. */
int fbr_dispatch_order(struct fbr_dispatch *d, uint64_t now, struct fbr_dispatch_order *out);
/* The time at which time alone may lead to a decision; FBR_DISPATCH_NEVER. The time may be early,
 * and then moves on. Valid after next and order returned 0. */
uint64_t fbr_dispatch_wake(const struct fbr_dispatch *d);

/* ---- messages of workers ---- */

struct fbr_dispatch_taken {
    uint64_t map;   /* 0: closed, nothing was taken */
    void *map_user; /* NULL: closed */
    uint64_t first; /* index of the first of the n results; the others follow */
    uint32_t taken; /* how many results to deliver */
};

/* One message of a worker: the results (or user errors) of the tasks at positions pos, pos + 1, ...
 * pos + n - 1 of a batch, for which it was busy_ns in the task function. take[i] becomes true if
 * result i must be delivered: that task is done now. It becomes false if the result must be dropped
 * (done before, cancelled, map closed). `take` has room for n; n may be 0. 0; -ENOENT: no such
 * batch (its worker was removed), all n results are counted as dropped; -EPROTO: not the next
 * position, or more results than the batch has: nothing has changed, the worker is broken. */
int fbr_dispatch_results(struct fbr_dispatch *d, uint64_t now, uint64_t worker, uint64_t batch,
                         uint32_t pos, uint32_t n, uint64_t busy_ns, bool *take,
                         struct fbr_dispatch_taken *out);

/* The worker keeps the first `kept` tasks of the batch; it has not started the rest and will not.
 * May come before or after the results of the tasks that it keeps. 0; -ENOENT: the worker has
 * finished the batch, or is dead, there is nothing to do; -EPROTO: fewer tasks than it has
 * reported, or more than it holds; nothing has changed. */
int fbr_dispatch_returned(struct fbr_dispatch *d, uint64_t now, uint64_t worker, uint64_t batch,
                          uint32_t kept);

/* Cancels one task (or fails it, for a reason of the caller): it is done. 0: it waited; 1: a worker
 * holds it, *order (CANCEL) names the worker to notify now; its result will be dropped. -EALREADY:
 * it was done before. -ENOENT: no such task. -ENOMEM: nothing has changed. O(batches of the map)
 * for a held task. */
int fbr_dispatch_task_cancel(struct fbr_dispatch *d, uint64_t map, uint64_t index,
                             struct fbr_dispatch_order *order);
struct fbr_dispatch_stats {
    uint32_t maps, workers; /* now; workers: alive, draining ones included */
    uint32_t idle;          /* workers that hold nothing */
    uint64_t waiting, held; /* tasks now */
    uint64_t done;          /* taken, cancelled, failed */
    uint64_t batches;       /* handed out */
    uint64_t requeued;      /* tasks that went back after deaths */
    uint64_t dropped;       /* results that were not taken */
    uint64_t late;          /* results of dead workers that were taken */
    uint64_t recalls;       /* orders RECALL */
    uint64_t returned;      /* tasks that workers returned */
    uint64_t deaths;        /* of workers, disruptions included */
    uint32_t lost_jobs;     /* the most that one task has seen, FBR_DISPATCH_DEATHS at most */
};

const struct fbr_dispatch_stats *fbr_dispatch_stats(const struct fbr_dispatch *d);
/* Tasks that workers hold and others could have: the number that recalls would bring back.
 * O(workers). */
uint64_t fbr_dispatch_ahead(const struct fbr_dispatch *d, uint64_t now);
