/* pool.h - the data structures of a pool, shared by the files of this folder.
 *
 * One mutex (lock) guards the whole pool, the engine of dispatch.h included. It is held for a short
 * time: user functions are called without it. Threads: the program's own; the data server's, on
 * which results arrive; the loop thread, on which workers start and end and the pool's timer ticks.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#pragma once

#define HASH_NONFATAL_OOM 1 /* an entry that could not be added has hh.tbl NULL */
#include <uthash.h>

#include "runtime/base/spin.h"
#include "runtime/inspect/own_run.h"
#include "pool/autoscale.h"
#include "pool/dispatch.h"
#include "pool/pool_wire.h"
#include "runtime/proc/fnref.h"
#include "runtime/proc/process.h"
#include "runtime/base/ready.h"

/* The pool keeps this many of the newest reports, for tasks that fail because of them. */
#define FBR_DEATH_REPORTS 256
#define FBR_REPORT_NS 2000000 /* a worker sends its results at least this often, between tasks */

enum fbr_worker_state {
    FBR_WORKER_STARTING,
    FBR_WORKER_READY,
    FBR_WORKER_DRAINING,
    FBR_WORKER_STOPPING
};

/* Input that all tasks of some maps share. It stays for a while when no map uses it any more,
 * because the next map of the same function often has the same input. */
struct fbr_common {
    struct fbr_common *next, *prev; /* pool->commons, the least recently used one first */
    uint64_t id;                    /* never used again in this pool */
    int maps;                       /* maps that use it */
    size_t len;
    uint8_t data[];
};

/* A job with several workers, with the job's host process, which only starts and watches the
 * workers. */
struct fbr_pool_supervisor {
    struct fbr_pool_supervisor *next, *prev;
    struct fiber_pool *pool;
    struct fiber_process *process; /* NULL: it is gone */
    /* workers that have not ended; they point here, so this struct stays until the last one has
     * ended. After that it gets no other, and is asked to exit */
    int workers;
    bool joined, ended;
    int busy;               /* workers that had tasks when it ended */
    bool useful;            /* one of its workers was ready, so its start did not fail */
    struct fbr_buf commons; /* ids (u64) of the common inputs that it has */
};

struct fbr_pool_worker {
    struct fbr_pool_worker *next, *prev;
    struct fbr_pool_supervisor *host; /* NULL: the worker is a job of its own */
    struct fiber_pool *pool;
    struct fiber_process *process;
    uint64_t id; /* its id in the engine; 0 before it is ready */
    enum fbr_worker_state state;
    bool disrupted; /* we end it for a reason that is no task's fault */
    bool release;   /* it got the notice that all its results are taken. Data server's thread */
    uint64_t tasks; /* done */
    uint64_t busy_ns;
    uint64_t ready_ms;      /* fbr_now_ms(); 0: not yet */
    struct fbr_buf commons; /* ids (u64) of the common inputs that it has */
    struct {
        uint64_t id, at_ns;
        uint32_t count, left;
        uint64_t busy_ns;
    } sent[2]; /* batches under way, for the statistics */
};

/* A call of the program's function that waits for its turn. Each task and each map contains one, so
 * none is ever lost for lack of memory. */
struct fbr_callback {
    struct fbr_callback *next;
    struct fiber_result *r;
    struct fbr_item *item; /* for a stream: the item that contains it */
    uint64_t index;        /* progress: tasks done */
    const void *data;
    size_t len; /* progress: number of all tasks */
    int code;
    bool progress;
    bool waits; /* waits for its turn, or for the end of the call; progress: only for its turn */
};

struct fiber_pool {
    struct fiber_pool *next, *prev; /* rt->pools, under pool.c's list_lock */
    struct fbr_runtime *rt;
    pthread_mutex_t lock;
    pthread_cond_t changed; /* signals: drained, or a worker ended */
    int refs; /* the program, workers, hosts, results, a post to the timer, calls that wait */
    struct fbr_dispatch *dispatch;
    struct fbr_pool_worker *workers;
    int n_workers; /* in the list */
    struct fbr_pool_supervisor *hosts;
    int n_hosts; /* in the list */
    int workers_per_job;
    bool apart; /* new jobs hold one worker each: a task may be one that ends its job */
    struct fbr_autoscale size; /* how many workers are wanted; min == max: a fixed number */
    int cpus;                  /* processors that this process may use */
    bool closing, closed;      /* its end has begun; its end is over */
    int end_code;              /* the error of calls that come too late, and the reason */
    const char *end_why;
    /* How to start a worker; the pool owns the strings. */
    struct fiber_process_options start;
    struct fbr_buf strings;
    /* environment of all its processes, as it was when the pool was opened */
    char **env;
    struct fbr_buf work;        /* the start record of a worker */
    struct fbr_buf host_work;   /* the start record of a host, which passes it on to its workers */
    char backend[32], name[64]; /* name: for listings; "" for the program's name */
    bool serve;
    uint64_t tasks_per_child;
    bool short_of_memory; /* tasks wait only because memory is short; the timer tries again */
    /* Workers. */
    int failed_starts;       /* failures in a row; pauses grow with this number */
    int unstarted;           /* failures in a row, also across maps that failed: for messages */
    int failed_alone;        /* failures in a row, with no worker at work since the first of them */
    uint64_t alone_since_ms; /* time of the first of them */
    uint64_t not_before_ms;  /* no start before this time: backing off */
    /* missing workers are started at this time; UINT64_MAX: none are missing */
    uint64_t start_at_ms;
    /* workers could not be started: maps failed with `why`; the next map tries again */
    bool broken;
    char why[3328];
    struct fbr_timer timer; /* loop thread */
    uint64_t timer_at_ms;   /* when the timer fires; UINT64_MAX: it is not armed */
    /* sets the timer; needs no memory, because the timer is what tries again after a shortage */
    struct fbr_post armer;
    struct fbr_own_run *run; /* loop thread; NULL: the pool has none */
    struct fbr_spool *kept;  /* the output of its workers, for the thread that ends the pool */
    /* Maps. */
    struct fiber_result *results; /* results that are not done */
    uint64_t end_by_ms; /* when the first of them may reach its time limit; UINT64_MAX: none */
    uint64_t undone;    /* tasks */
    /* results whose waiting threads must wake; fbr_pool_leave() wakes them, without the lock */
    struct fiber_result *wakes;
    /* Results of streams, in the order in which they came, for fiber_pool_take(). */
    struct fbr_item *done;
    size_t n_done;    /* atomic: takers read it without the lock */
    int takers;       /* threads that wait for them at `taken` */
    bool wake_takers; /* fbr_pool_leave() wakes them */
    bool quick;       /* the newest results came from short tasks. Atomic */
    pthread_cond_t taken;
    struct fbr_ready takable; /* there are results, or the pool is closed */
    struct fbr_common *commons;
    uint64_t common_count;
    struct fbr_callback *callbacks, **callbacks_last;
    bool calling; /* a thread, `caller`, runs the callbacks */
    pthread_t caller;
    struct fbr_buf message; /* the TASKS message that is being made */
    struct fbr_pace {       /* how long tasks of recent functions took, for their next maps */
        uint8_t ref[64];
        size_t ref_len;
        uint64_t mean_ns;
    } paces[8];
    unsigned next_pace;
    struct fbr_spin awake; /* for threads that wait for a quick map; any thread */
    /* Deaths. */
    uint64_t next_report;
    char *reports[FBR_DEATH_REPORTS];
    struct fiber_pool_stats stats;
};

/* The results of one map. */
enum fbr_result_kind { FBR_RESULT_ARRAY, FBR_RESULT_BYTES, FBR_RESULT_STREAM };
enum { FBR_ARRAY_DONE = 1, FBR_ARRAY_FAILED };

struct fbr_slot {
    int32_t code;
    bool done;
    uint32_t len;
    void *data; /* result, or error text with a NUL; owned */
};

/* One task of a map over a lazy source, or of a stream. */
struct fbr_item {
    struct fiber_result *r; /* for a stream */
    uint64_t index;
    struct fiber_bytes in;
    struct fbr_slot slot;
    struct fbr_callback callback;
    bool handed_out;              /* the iterator has a copy; the item is freed with its callback */
    struct fbr_item *next, *prev; /* in `ready`; for a stream, in the pool's `done` */
    UT_hash_handle hh;
};

struct fiber_stream {
    struct fiber_result *r;
};

struct fiber_result {
    struct fiber_result *next, *prev; /* pool->results */
    struct fiber_pool *pool;
    int refs; /* one for the program's handle, one for the running map */
    enum fbr_result_kind kind;
    uint64_t map;    /* its id in the engine; 0 when it is done */
    uint8_t ref[64]; /* the function and the common input, as they are sent */
    size_t ref_len;
    struct fbr_common *common;  /* NULL: none, or the map is over */
    uint64_t n, done;           /* STREAM: n grows */
    bool open;                  /* STREAM: more may come */
    bool put;                   /* STREAM: made by fiber_stream_open(), */
    struct fiber_stream stream; /* whose handle this is */
    bool dropped;               /* put: closed, so its results are dropped */
    uint64_t untaken;           /* put: items in the pool's `done` */
    void *user;                 /* put: for the taker */
    const uint8_t *in;          /* ARRAY */
    size_t in_size, out_size;
    uint8_t *out;
    const struct fiber_bytes *bytes; /* BYTES */
    struct fiber_bytes own;          /* apply: our copy */
    struct fbr_slot *slots;          /* BYTES; ARRAY: of errors, from the first one on */
    /* ARRAY, BYTES: one for each task; NULL: no function is called */
    struct fbr_callback *each;
    struct fbr_callback progress;
    struct fbr_item *items; /* STREAM: taken from the source and not handed out yet, by index */
    /* STREAM: of these, the ones that are done, in the order in which they came */
    struct fbr_item *ready;
    char *why;      /* the error text of tasks that have no text of their own */
    int end_code;   /* the code of these tasks */
    uint8_t *flags; /* ARRAY: 0, FBR_ARRAY_DONE or _FAILED */
    uint64_t first_error;
    int first_code;
    struct fiber_map_options opts;
    pthread_cond_t changed;
    struct fbr_ready over; /* all tasks are done, and no callback waits */
    /* threads that wait for all tasks; waiting_task: threads that wait for one task */
    int waiting;
    int waiting_task;
    bool quick;  /* it should be done in less time than a thread needs to sleep and wake */
    bool waking; /* in pool->wakes */
    struct fiber_result *next_wake;
    int callbacks;      /* callbacks that have not returned */
    uint64_t end_by_ms; /* opts.map_timeout_ms; UINT64_MAX: never */
};

/* ---- Under the lock, unless a comment says otherwise ---- */

void fbr_pool_unref(struct fiber_pool *p); /* takes the lock itself */

/* workers.c */
/* starts or drains workers until there are as many as are wanted */
void fbr_workers_adjust(struct fiber_pool *p);
/* not under the lock: ends all workers and waits for their end */
void fbr_workers_close(struct fiber_pool *p);
void fbr_workers_stop(struct fbr_pool_worker *w); /* the worker is drained */
bool fbr_workers_is_busy(const struct fbr_pool_worker *w);
int fbr_workers_open(struct fiber_pool *p);        /* not under the lock */
void fbr_workers_ready(struct fbr_pool_worker *w); /* takes the lock itself */
/* sets the timer to the time at which the engine or the workers need it */
void fbr_workers_arm(struct fiber_pool *p);
/* A worker, or a host, ended before it was of use: tries again later, or gives up. `process` NULL:
 * there is none. */
void fbr_workers_failed_start(struct fiber_pool *p, struct fiber_process *process,
                              const char *report);
void fbr_workers_retry(struct fiber_pool *p); /* for a new map: a pool that gave up tries again */

/* pool_control.c, on the loop thread, not under the lock */
void fbr_pool_control_open(struct fiber_pool *p); /* a pool without control goes on */
void fbr_pool_control_close(struct fiber_pool *p);
/* Keeps the output of a process of the pool for `fiber logs`. */
void fbr_pool_control_keep(struct fiber_pool *p, struct fiber_process *process, int stream,
                           const void *data, size_t len);

/* supervisor.c */
/* A host with room, or a new one; counts the worker. NULL: the reason is kept. */
struct fbr_pool_supervisor *fbr_pool_supervisor_get(struct fiber_pool *p);
void fbr_pool_supervisor_put(struct fbr_pool_supervisor *h); /* one of its workers has ended */
/* workers of a stopped host can be killed only with the host */
void fbr_pool_supervisor_kill_all(struct fiber_pool *p);
void fbr_pool_supervisor_close_all(struct fiber_pool *p);
/* Waits for as long as *n, the number of workers or of hosts, decreases. Under the lock. */
void fbr_pool_wait_dwindle(struct fiber_pool *p, const int *n, uint64_t ms);
int fbr_pool_supervisor_main(const void *arg, size_t len); /* the main function of a host */

/* send.c: carries out the engine's decisions, all that there are or this one. */
void fbr_pool_pump(struct fiber_pool *p);
void fbr_pool_carry_out(const struct fbr_dispatch_order *o);

/* stream.c */
/* The items become tasks of a map that grows and leave the list: all, or none (-ENOMEM, kept). */
int fbr_stream_add(struct fiber_result *r, struct fbr_item **list, size_t n);
void fbr_stream_deliver(struct fiber_result *r, struct fbr_item *item); /* the item is done */
void fbr_stream_shut(struct fiber_pool *p);                             /* the pool is closing */

/* common.c */
/* The common input with these bytes, new or known, counted for one map; NULL: no memory. Takes the
 * lock itself. */
struct fbr_common *fbr_common_get(struct fiber_pool *p, const void *data, size_t len);
void fbr_common_put(struct fiber_pool *p, struct fbr_common *c); /* a map is over. NULL is fine */
/* Sends the common input to the worker, if the worker does not have it yet: 0, -ENOMEM, -EPIPE. */
int fbr_common_send(struct fbr_pool_worker *w, const struct fbr_common *c);
void fbr_common_free_all(struct fiber_pool *p);

/* collect.c */
extern const struct fbr_link_ops fbr_pool_link_ops;
/* Kills a worker or host with a broken data link. */
void fbr_pool_link_broken(struct fiber_process *process, int why);
/* not under the lock; user: the worker */
void fbr_pool_on_frame(void *user, struct fiber_process *process, uint8_t type,
                       struct fbr_cur *body);

/* map.c: checks that inputs can be sent: 0, or -EMSGSIZE or -EINVAL, kept */
int fbr_pool_check_length(const struct fiber_pool *p, size_t len);
int fbr_pool_check_inputs(const struct fiber_pool *p, const struct fiber_bytes *in, size_t n);

/* result.c */
/* with a copy of the input; NULL: no memory */
struct fbr_item *fbr_item_new(const struct fiber_bytes *in);
void fbr_item_free(struct fbr_item *item);
void fbr_result_deliver(struct fiber_result *r, uint64_t index, int32_t code, const void *data,
                        size_t len);
void fbr_result_failed(struct fiber_result *r, uint64_t index, int32_t code, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));
void fbr_result_task_failure(struct fiber_pool *p, const struct fbr_dispatch_failure *f);
void fbr_result_input(const struct fiber_result *r, uint64_t index, const void **data, size_t *len);
bool fbr_result_is_done(const struct fiber_result *r, uint64_t i); /* not of a stream */
/* of a task that is done: 0 and its result, or its code and text; not of a stream */
int fbr_result_read(const struct fiber_result *r, uint64_t i, const void **data, size_t *len);
void fbr_result_end_late(struct fiber_pool *p); /* ends maps whose time is over */
void fbr_result_end_all(struct fiber_pool *p, int32_t code, const char *why);
/* after the results of a message were delivered: wakes and reports */
void fbr_result_messages_end(struct fiber_result *r);
int fbr_result_new(struct fiber_pool *p, fiber_task_fn fn, const struct fiber_map_options *opts,
                   struct fiber_result **out);
/* takes the lock itself; on failure frees r */
int fbr_result_begin(struct fiber_result *r, bool open);
/* The end of each event: carries out the engine's decisions, wakes threads, calls the callbacks
 * that wait, and releases the lock. */
void fbr_pool_leave(struct fiber_pool *p);
/* whether this thread is in a callback; then nothing may wait for callbacks */
bool fbr_pool_in_callback(const struct fiber_pool *p);
