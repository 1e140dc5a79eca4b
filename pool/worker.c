/* worker.c - a worker of a pool: takes batches, runs their tasks in the main thread, and sends
 * results as they come.
 *
 * Meanwhile the loop thread takes RECALL, CANCEL and STOP. Both threads use the lock of struct
 * worker, which guards the progress in the current batch: a task that was started is kept, and all
 * tasks after it may be returned.
 *
 * Results wait for other results of their batch, at most FLUSH_MS: the main thread sends them
 * between tasks, and a timer on the loop thread sends them when the next task takes long. Both hold
 * out_lock, so that messages leave in order.
 *
 * A program that exits, for example because a task calls exit(), sends the results that it has and
 * waits until the pool has taken them: results that are under way when a process ends may be lost,
 * and the pool would run these tasks again.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <utlist.h>

#include "pool/pool.h"
#include "runtime/proc/child.h"
#include "runtime/base/log.h"
#include "runtime/base/reply.h"

#define REPORT_BYTES (64 * 1024)
#define FLUSH_MS 2
#define QUICK_NS \
    50000 /* a batch this short: the next batch may come sooner than we sleep and wake */
#define AWAKE_NS 50000
#define REMEMBERED 64 /* orders about batches that have not come yet */

struct note {
    uint64_t batch;
    uint32_t pos; /* FBR_DISPATCH_ALL: return the batch; else: skip this task */
};

/* Input that all tasks of a map share. */
struct common {
    struct common *next, *prev;
    uint64_t id;
    size_t len;
    uint64_t data[];
};

struct worker {
    /* kept here because fbr_rt() returns NULL once another thread ends the program */
    struct fbr_runtime *rt;
    struct fbr_child *child;
    struct fbr_data_client *up;
    fiber_task_fn serve; /* for fiber_serve(); NULL: functions come with the tasks */
    int wake, beat_ms;
    size_t longest; /* bytes of an answer, at most */

    pthread_mutex_t lock;
    uint64_t batch;          /* the current batch, or the last one */
    uint32_t started, limit; /* of its tasks: how many were begun; how many may run */
    struct note notes[REMEMBERED];
    int n_notes;
    bool taken;
    pthread_cond_t answered; /* signals: taken */

    atomic_bool stop;
    atomic_bool cancelled;  /* the result of the running task is not wanted */
    atomic_uint ended;      /* tasks of the current batch that have run, up to `started` */
    uint64_t overdue_batch; /* of the cancelled task for which on_overdue() looks; loop thread */
    uint32_t overdue_pos;

    /* Main thread. */
    struct common *commons;
    struct fbr_buf ref_bytes; /* the last function and common input, as they came */
    const struct common *common;
    fiber_task_fn fn;
    struct fbr_error fn_error;
    struct fbr_buf answer; /* of the running task */
    uint64_t sent_at;
    uint64_t awake_until; /* 0: no message is expected at once */
    struct fbr_spin awake;

    pthread_mutex_t out_lock; /* guards all below; never taken while another lock is held */
    struct fbr_buf out;       /* the RESULTS message that is being made: head, then items */
    uint64_t out_batch, out_busy;
    uint32_t out_pos, out_count;
    bool armed;                            /* the timer will fire */
    struct fbr_timer timer, beat, overdue; /* loop thread */
};

static void send_results(struct worker *w);

/* The worker of this process, from READY until it ends in good order. It is under no lock, because
 * a thread that exits looks at it. */
static struct worker *_Atomic serving;

/* The common input of the task that the main thread runs; only that thread uses it. */
static const struct common *task_common;

/* The function for a cancel of the running task; set and called under cancel_lock. */
static pthread_mutex_t cancel_lock = PTHREAD_MUTEX_INITIALIZER;
static fiber_cancel_fn cancel_fn;
static void *cancel_user;

/* ---- Loop thread ---- */

static void answer_returned(struct worker *w, uint64_t batch, uint32_t kept)
{
    struct fbr_buf b = {0};

    fbr_put_u64(&b, batch);
    fbr_put_u32(&b, kept);
    /* memory is short; the pool waits for this message, or for our end */
    if (fbr_child_send(w->child, FBR_POOL_RETURNED, &b) < 0)
        _exit(1);
    fbr_buf_fini(&b);
}

static void remember(struct worker *w, uint64_t batch, uint32_t pos)
{
    for (int i = 0; i < w->n_notes && w->n_notes == REMEMBERED; i++)
        /* A cancelled task may run all the same; a returned one may not. */
        if (w->notes[i].pos != FBR_DISPATCH_ALL || i == REMEMBERED - 1)
            memmove(w->notes + i, w->notes + i + 1,
                    sizeof(w->notes[0]) * (size_t)(--w->n_notes - i));
    w->notes[w->n_notes++] = (struct note){batch, pos};
}

/* Under the lock: no further task of the batch begins. Returns how many have begun; -1: the batch
 * is done, and its results have answered the recall. */
static int64_t hold_back(struct worker *w, uint64_t batch)
{
    if (batch < w->batch)
        return -1;
    if (batch == w->batch)
        return w->limit = w->started;
    remember(w, batch, FBR_DISPATCH_ALL);
    return 0;
}

/* Sends the results of the batch so far first, because another worker waits for the rest. */
static void give_back(struct worker *w, uint64_t batch, int64_t kept)
{
    if (kept < 0)
        return;
    pthread_mutex_lock(&w->out_lock);
    send_results(w);
    pthread_mutex_unlock(&w->out_lock);
    answer_returned(w, batch, (uint32_t)kept);
}

static void on_recall(struct worker *w, uint64_t batch)
{
    int64_t kept;

    pthread_mutex_lock(&w->lock);
    kept = hold_back(w, batch);
    pthread_mutex_unlock(&w->lock);
    give_back(w, batch, kept);
}

int fiber_task_on_cancel(fiber_cancel_fn fn, void *user)
{
    if (fbr_rt_check() < 0)
        return -EPERM;
    pthread_mutex_lock(&cancel_lock);
    cancel_fn = fn;
    cancel_user = user;
    pthread_mutex_unlock(&cancel_lock);
    return 0;
}

/* Under the worker's lock, so that the next task does not begin meanwhile. True: the program's
 * function interrupts the task, which must end then. */
static bool interrupt(struct worker *w)
{
    bool told;

    if (atomic_load(&w->ended) == w->started)
        return false;
    pthread_mutex_lock(&cancel_lock);
    told = cancel_fn != NULL;
    if (told)
        cancel_fn(cancel_user);
    pthread_mutex_unlock(&cancel_lock);
    return told;
}

/* The grace for an interrupted task is over. If the task still runs, ends this worker. */
static void on_overdue(void *arg)
{
    struct worker *w = arg;
    bool runs;

    pthread_mutex_lock(&w->lock);
    runs = w->batch == w->overdue_batch && w->started == w->overdue_pos + 1 &&
           atomic_load(&w->ended) != w->started;
    pthread_mutex_unlock(&w->lock);
    if (!runs)
        return;
    fbr_warn("pool: a cancelled task did not stop when it was interrupted; its worker exits");
    _exit(1); /* the main thread runs the task; results of the other tasks were sent long ago */
}

/* A cancel of the whole batch is a recall, too, under one lock: otherwise a task that begins in
 * between would run on uncancelled. */
static void on_cancel(struct worker *w, uint64_t batch, uint32_t pos)
{
    bool told = false;
    int64_t kept = -1;

    pthread_mutex_lock(&w->lock);
    if (batch == w->batch && (pos == FBR_DISPATCH_ALL || pos + 1 == w->started)) {
        if (!atomic_exchange(&w->cancelled, true))
            told = interrupt(w);
        w->overdue_batch = batch;
        w->overdue_pos = w->started - 1;
    } else if (batch >= w->batch && pos != FBR_DISPATCH_ALL) {
        remember(w, batch, pos);
    }
    if (pos == FBR_DISPATCH_ALL)
        kept = hold_back(w, batch);
    pthread_mutex_unlock(&w->lock);
    if (told)
        fbr_timer_start(&w->overdue, (uint64_t)fbr_config_ms(w->rt->config, "grace"), 0);
    give_back(w, batch, kept);
}

static void on_frame(void *user, uint8_t type, struct fbr_cur *body)
{
    struct worker *w = user;
    uint64_t batch;
    uint32_t pos;

    switch (type) {
    case FBR_POOL_RECALL:
        batch = fbr_get_u64(body);
        if (fbr_cur_ok(body))
            on_recall(w, batch);
        break;
    case FBR_POOL_CANCEL:
        batch = fbr_get_u64(body);
        pos = fbr_get_u32(body);
        if (fbr_cur_ok(body))
            on_cancel(w, batch, pos);
        break;
    case FBR_POOL_STOP:
        atomic_store(&w->stop, true);
        eventfd_write(w->wake, 1);
        break;
    case FBR_POOL_TAKEN:
        pthread_mutex_lock(&w->lock);
        w->taken = true;
        pthread_cond_broadcast(&w->answered);
        pthread_mutex_unlock(&w->lock);
        break;
    default:
        break;
    }
}

/* ---- Main thread ---- */

/* Under out_lock: begins a message; its results are those from position `pos` on. */
static void begin_results(struct worker *w, uint64_t batch, uint32_t pos)
{
    fbr_buf_clear(&w->out);
    fbr_buf_extend(&w->out, FBR_RESULTS_HEAD);
    w->out_batch = batch;
    w->out_pos = pos;
    w->out_count = 0;
    w->out_busy = 0;
}

/* Under out_lock: sends the message, followed by `more`, which belongs to its last item. */
static void send_with(struct worker *w, const void *more, size_t len)
{
    struct iovec iov[2] = {{NULL, 0}, {(void *)(uintptr_t)more, len}};
    struct fbr_buf head = {.data = w->out.data, .cap = FBR_RESULTS_HEAD}; /* all of it fits */

    if (!w->out_count)
        return;
    if (w->out.failed) {
        atomic_store(&serving, NULL); /* no complete message can be sent */
        fbr_child_exit(w->child, 1, "ran out of memory for its results");
    }
    fbr_put_u32(&head, FBR_RESULTS);
    fbr_put_u32(&head, w->out_count);
    fbr_put_u64(&head, w->out_batch);
    fbr_put_u32(&head, w->out_pos);
    fbr_put_u32(&head, 0);
    fbr_put_u64(&head, w->out_busy);
    iov[0] = (struct iovec){w->out.data, w->out.len};
    /* the link broke, and the pool knows */
    if (fbr_data_client_send(w->up, iov, len ? 2 : 1) < 0)
        _exit(1);
    begin_results(w, w->out_batch, w->out_pos + w->out_count);
}

static void send_results(struct worker *w)
{
    send_with(w, NULL, 0);
}

/* Waits for a while. Returns whether the pool has confirmed that it took everything. */
static bool wait_taken(struct worker *w)
{
    uint64_t until = fbr_now_ms() + (uint64_t)w->beat_ms;
    bool taken;

    pthread_mutex_lock(&w->lock);
    while (!w->taken && fbr_cond_wait(&w->answered, &w->lock, until) == 0)
        continue;
    taken = w->taken;
    pthread_mutex_unlock(&w->lock);
    return taken;
}

/* The process exits, on any thread except Fiber's. Waits for the pool's answer, or for the end of
 * the data link; the end of the control channel ends the process. If another thread has called
 * exit(), a task that runs on meanwhile may be done again. */
static void on_exit_of_process(struct fbr_runtime *rt)
{
    static const uint32_t last[2] = {FBR_LAST, 0};
    const struct iovec iov = {(void *)(uintptr_t)last, sizeof(last)};
    struct worker *w = atomic_exchange(&serving, NULL);
    struct pollfd room = {.events = POLLIN};
    bool local;
    int rc;

    if (!w)
        return;
    local = fbr_data_client_is_local(w->up); /* its host takes all that it sends, or ends it */
    if (!local)
        fbr_data_client_never_wait(w->up);
    pthread_mutex_lock(&w->out_lock);
    send_results(w);
    rc = local ? fbr_data_client_send(w->up, &iov, 1) : fbr_data_client_post(w->up, &iov, 1, false);
    pthread_mutex_unlock(&w->out_lock);
    while (rc >= 0 && !fbr_data_client_lost(w->up)) {
        if (rc == 0 && wait_taken(w))
            break;
        if (rc > 0) {
            room.fd = fbr_data_client_room_fd(w->up);
            poll(&room, 1, w->beat_ms);
        }
        rc = local ? 0 : fbr_data_client_flush(w->up);
    }
}

/* On the loop thread: the main thread has been running a task for a while. */
static void on_flush(void *arg)
{
    struct worker *w = arg;

    pthread_mutex_lock(&w->out_lock);
    w->armed = false;
    send_results(w);
    pthread_mutex_unlock(&w->out_lock);
}

static void arm(void *arg)
{
    struct worker *w = arg;

    fbr_timer_start(&w->timer, FLUSH_MS, 0);
}

/* A child that the task has forked ends here if it returns, too, with code 1 if it failed: without
 * our threads it would wait for ever, and after daemon() nobody would end it. */
static int run_task(struct worker *w, const void *in, size_t len, struct fiber_reply *reply)
{
    int code;

    if (!w->fn)
        return fiber_reply_fail(reply, w->fn_error.code, "%s", w->fn_error.text);
    code = w->fn(in, len, reply);
    if (fbr_rt_forked())
        _exit(code != 0);
    return code;
}

/* Appends the answer of the task that has run. */
static void keep_answer(struct worker *w, int code, uint64_t busy, bool last)
{
    size_t len = w->answer.len;
    bool arm_now = false;

    pthread_mutex_lock(&w->out_lock);
    fbr_put_u32(&w->out, (uint32_t)code);
    fbr_put_u32(&w->out, (uint32_t)len);
    w->out_count++;
    w->out_busy += busy;
    if (len >= REPORT_BYTES) { /* sent without a copy */
        fbr_put_pad8(&w->answer, len);
        send_with(w, w->answer.data, w->answer.len);
    } else {
        fbr_put(&w->out, w->answer.data, len);
        fbr_put_pad8(&w->out, len);
        if (last || w->out.len >= REPORT_BYTES || fbr_now_ns() - w->sent_at >= FBR_REPORT_NS)
            send_results(w);
        else if (!w->armed)
            arm_now = w->armed = true;
    }
    if (!w->out_count)
        w->sent_at = fbr_now_ns();
    pthread_mutex_unlock(&w->out_lock);
    if (arm_now && fbr_loop_post(w->rt->loop, arm, w) < 0) {
        pthread_mutex_lock(&w->out_lock);
        w->armed = false; /* memory is short; the next answer tries again */
        pthread_mutex_unlock(&w->out_lock);
    }
}

static int one_task(struct worker *w, const void *in, size_t len, bool skip)
{
    struct fiber_reply reply;
    int code;

    if (w->answer.cap > (1u << 20))
        fbr_buf_fini(&w->answer);
    fbr_buf_clear(&w->answer);
    fbr_reply_init(&reply, &w->answer, &w->cancelled);
    code = skip ? fiber_reply_fail(&reply, -ECANCELED, "cancelled") : run_task(w, in, len, &reply);
    atomic_store_explicit(&w->ended, w->started, memory_order_release);
    code = fbr_reply_end(&reply, code);
    if (w->answer.len > UINT32_MAX - 64 || w->answer.len > w->longest)
        code = fiber_reply_fail(&reply, -EMSGSIZE,
                                "the result of %zu bytes is longer than max_message, or 4 GiB",
                                w->answer.len);
    return code;
}

/* Begins the next task. False: the rest of the batch was returned. Sets *skip for a cancelled
 * task. */
static bool begin_task(struct worker *w, uint32_t pos, bool *skip)
{
    bool go;

    *skip = false;
    pthread_mutex_lock(&w->lock);
    go = pos < w->limit;
    if (go) {
        w->started = pos + 1;
        atomic_store_explicit(&w->cancelled, false, memory_order_relaxed);
        for (int i = 0; i < w->n_notes; i++)
            *skip |= w->notes[i].batch == w->batch && w->notes[i].pos == pos;
    }
    pthread_mutex_unlock(&w->lock);
    return go;
}

static void begin_batch(struct worker *w, uint64_t batch, uint32_t count)
{
    int kept = 0;

    pthread_mutex_lock(&w->lock);
    w->batch = batch;
    w->started = 0;
    atomic_store(&w->ended, 0);
    w->limit = count;
    for (int i = 0; i < w->n_notes; i++) {
        /* it was returned before it came */
        if (w->notes[i].batch == batch && w->notes[i].pos == FBR_DISPATCH_ALL)
            w->limit = 0;
        if (w->notes[i].batch >= batch)
            w->notes[kept++] = w->notes[i];
    }
    w->n_notes = kept;
    pthread_mutex_unlock(&w->lock);
}

static struct common *find_common(struct worker *w, uint64_t id)
{
    struct common *c;

    DL_FOREACH(w->commons, c)
        if (c->id == id)
            return c;
    return NULL;
}

/* Looks up the function and the common input that a batch names; most batches name the same as the
 * last batch. */
static void look_up(struct worker *w, const void *ref, size_t len)
{
    struct fbr_cur c = fbr_cur(ref, len);
    struct fbr_fnref r;
    void (*fn)(void) = NULL;

    if (w->ref_bytes.len == len && memcmp(w->ref_bytes.data, ref, len) == 0)
        return;
    fbr_buf_clear(&w->ref_bytes);
    fbr_put(&w->ref_bytes, ref, len);
    w->common = find_common(w, fbr_get_u64(&c)); /* NULL for 0: there is none */
    if (w->serve) {
        w->fn = w->serve;
        return;
    }
    fbr_fnref_get(&c, &r);
    if (!fbr_cur_ok(&c))
        fbr_fail(&w->fn_error, -EBADMSG, "the pool's message cannot be read");
    else
        fbr_fnref_resolve(&r, &fn, &w->fn_error);
    w->fn = (fiber_task_fn)fn;
}

static void on_tasks(struct worker *w, struct fbr_cur *c)
{
    uint32_t count = fbr_get_u32(c);
    uint64_t batch = fbr_get_u64(c);
    size_t ref_len;
    const void *ref = fbr_get_bytes(c, &ref_len);
    uint64_t before;

    fbr_get(c, fbr_pad8(4 + ref_len));
    if (!fbr_cur_ok(c))
        return;
    look_up(w, ref, ref_len);
    begin_batch(w, batch, count);
    pthread_mutex_lock(&w->out_lock);
    begin_results(w, batch, 0);
    pthread_mutex_unlock(&w->out_lock);
    task_common = w->common;
    before = w->sent_at = fbr_now_ns();
    for (uint32_t pos = 0; pos < count; pos++) {
        size_t len = fbr_get_u32(c);
        const void *in;
        uint64_t now;
        bool skip;
        int code;

        fbr_get_u32(c);
        in = fbr_get(c, len);
        fbr_get(c, fbr_pad8(len));
        if (!fbr_cur_ok(c) || !begin_task(w, pos, &skip))
            break;
        code = one_task(w, in, len, skip);
        now = fbr_now_ns();
        keep_answer(w, code, now - before, pos + 1 == count);
        before = now;
    }
    task_common = NULL;
    pthread_mutex_lock(&w->out_lock);
    send_results(w);
    pthread_mutex_unlock(&w->out_lock);
}

/* ---- Common input ---- */

const void *fiber_task_common(size_t *len, uint64_t *id)
{
    const struct common *c = task_common;

    if (len)
        *len = c ? c->len : 0;
    if (id)
        *id = c ? c->id : 0;
    return c ? c->data : NULL;
}

static void drop_common(struct worker *w, struct common *c)
{
    if (w->common == c) {
        w->common = NULL;
        fbr_buf_clear(&w->ref_bytes);
    }
    DL_DELETE(w->commons, c);
    free(c);
}

static void on_common(struct worker *w, struct fbr_cur *c)
{
    size_t len;
    struct common *common;
    uint64_t id;

    fbr_get_u32(c);
    id = fbr_get_u64(c);
    if (!fbr_cur_ok(c))
        return;
    len = fbr_cur_left(c);
    common = malloc(sizeof(*common) + len);
    if (!common) {
        atomic_store(&serving, NULL);
        fbr_child_exit(w->child, 1, "ran out of memory for the common input of a map");
    }
    common->id = id;
    common->len = len;
    if (len)
        memcpy(common->data, c->at, len);
    DL_PREPEND(w->commons, common);
}

/* No more batches use this common input. */
static void on_forget(struct worker *w, struct fbr_cur *c)
{
    struct common *common;

    fbr_get_u32(c);
    common = find_common(w, fbr_get_u64(c));
    if (common)
        drop_common(w, common);
}

static void on_record(void *user, const void *record, size_t len)
{
    struct worker *w = user;
    struct fbr_cur c = fbr_cur(record, len);

    uint32_t kind = fbr_get_u32(&c);
    uint64_t begin = fbr_now_ns(), now;

    /* the next batch may come while we work on this one */
    if (kind == FBR_TASKS)
        fbr_data_client_ack(w->up);
    if (kind == FBR_COMMON)
        on_common(w, &c);
    else if (kind == FBR_FORGET)
        on_forget(w, &c);
    else if (kind == FBR_TASKS || kind == FBR_TASKS_ALONE)
        on_tasks(w, &c);
    else
        return;
    now = fbr_now_ns();
    /* The program waits for the answer, and perhaps sends another batch. */
    w->awake_until = kind == FBR_TASKS_ALONE && now - begin < QUICK_NS ? now + AWAKE_NS : 0;
}

/* Spins for a message. Returns whether one came before it was time to sleep. */
static bool stay_awake(struct worker *w, struct pollfd p[2])
{
    uint64_t now;
    bool came = false;

    while (w->awake_until && !came) {
        came = poll(p, 2, 0) > 0;
        now = fbr_now_ns();
        if (now >= w->awake_until || (!came && !fbr_spin_yield(&w->awake, now)))
            w->awake_until = 0;
    }
    return came;
}

static void serve(struct worker *w)
{
    struct pollfd p[2] = {{.fd = fbr_data_client_fd(w->up), .events = POLLIN},
                          {.fd = w->wake, .events = POLLIN}};

    while (!atomic_load(&w->stop)) {
        int rc = fbr_data_client_recv(w->up, on_record, w);

        if (rc == 0 && !stay_awake(w, p) && poll(p, 2, w->beat_ms) == 0)
            rc = fbr_data_client_lost(w->up) ? -EPIPE : fbr_data_client_beat(w->up, false);
        if (rc < 0) {
            atomic_store(&serving, NULL);
            fbr_child_exit(w->child, 1, "lost its data link");
        }
    }
}

/* On the loop thread: the main thread may be running a task. */
static void on_beat(void *arg)
{
    struct worker *w = arg;

    fbr_data_client_beat(w->up, true);
}

static int open_timer(void *arg)
{
    struct worker *w = arg;
    int rc;

    if ((rc = fbr_timer_init(&w->timer, w->rt->loop, on_flush, w)) < 0 ||
        (rc = fbr_timer_init(&w->overdue, w->rt->loop, on_overdue, w)) < 0)
        return rc;
    return fbr_timer_init(&w->beat, w->rt->loop, on_beat, w);
}

static int start_beat(void *arg)
{
    struct worker *w = arg;

    fbr_timer_start(&w->beat, (uint64_t)w->beat_ms / 2, (uint64_t)w->beat_ms / 2);
    return 0;
}

static int close_timer(void *arg)
{
    struct worker *w = arg;

    fbr_timer_fini(&w->timer);
    fbr_timer_fini(&w->beat);
    fbr_timer_fini(&w->overdue);
    return 0;
}

static int open_worker(struct worker *w, fiber_task_fn fn)
{
    struct fbr_error err = {0, ""};
    struct fbr_runtime *rt = fbr_rt();

    memset(w, 0, sizeof(*w));
    if (!rt || !rt->child)
        return fbr_keep(-EPERM, "this process is not a pool worker");
    w->rt = rt;
    w->child = rt->child;
    w->serve = fn;
    w->beat_ms = fbr_config_ms(rt->config, "heartbeat");
    w->longest = fbr_config_size(rt->config, "max_message");
    w->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    pthread_mutex_init(&w->lock, NULL);
    pthread_mutex_init(&w->out_lock, NULL);
    fbr_cond_init(&w->answered);
    if (w->wake < 0)
        return fbr_keep(-errno, "worker: %s", fbr_strerror(errno));
    if (fbr_loop_call(rt->loop, open_timer, w) < 0)
        return fbr_keep(-ENOMEM, "worker: out of memory");
    if (fbr_child_data_client(w->child, &w->up, &err) < 0) {
        close(w->wake);
        return fbr_keep_error(&err);
    }
    fbr_data_client_no_streams(w->up);
    if (!fbr_data_client_is_local(w->up))
        w->beat_ms = fbr_data_client_beat_ms(w->up);
    fbr_loop_call(rt->loop, start_beat, w);
    return 0;
}

static void close_worker(struct worker *w)
{
    fbr_loop_call(w->rt->loop, close_timer, w);
    fbr_data_client_close(w->up);
    close(w->wake);
    fbr_buf_fini(&w->out);
    fbr_buf_fini(&w->answer);
    fbr_buf_fini(&w->ref_bytes);
    while (w->commons)
        drop_common(w, w->commons);
    pthread_cond_destroy(&w->answered);
    pthread_mutex_destroy(&w->lock);
}

/* Runs the initializer, if there is one. A nonzero result ends the worker. */
static int run_init(const void *arg, size_t len, bool functions)
{
    struct fbr_cur c = fbr_cur(arg, len);
    struct fbr_error err = {0, ""};
    struct fbr_fnref ref;
    void (*fn)(void);
    uint32_t magic = fbr_get_u32(&c);
    int has_init = fbr_get_u8(&c), rc;
    const void *init_arg, *aligned;
    size_t init_len;
    void *copy;

    if (has_init)
        fbr_fnref_get(&c, &ref);
    init_len = fbr_get_u64(&c);
    init_arg = fbr_get(&c, init_len);
    if (!fbr_cur_ok(&c) || magic != FBR_WORKER_MAGIC)
        return fbr_keep(-EBADMSG, "this process was not started as a pool worker");
    if (!has_init || !functions)
        return 0;
    rc = fbr_fnref_resolve(&ref, &fn, &err);
    if (rc < 0)
        return fbr_keep_error(&err);
    copy = malloc(init_len + 1);
    if (copy && init_len)
        memcpy(copy, init_arg, init_len);
    aligned = copy;
    rc = copy ? ((fiber_pool_init_fn)fn)(aligned, init_len) : -ENOMEM;
    free(copy);
    return rc == 0 ? 0 : fbr_keep(rc, "its initializer returned %d", rc);
}

struct order {
    int rc;
    bool came;
    struct fbr_buf rest;
};

/* The start record for all workers of our host, after the host's magic. Tasks come only after we
 * have reported READY. */
static void on_order(void *user, const void *record, size_t len)
{
    struct order *o = user;

    o->came = true;
    if (len < FBR_HOST_HEAD) {
        o->rc = -EBADMSG;
        return;
    }
    fbr_put(&o->rest, (const uint8_t *)record + FBR_HOST_HEAD, len - FBR_HOST_HEAD);
    o->rc = o->rest.failed ? -ENOMEM : 0;
}

/* Runs the initializer from our host. If the host ends meanwhile, we end with it and do not wait in
 * vain. */
static int run_init_of_host(struct worker *w, bool functions)
{
    struct pollfd p = {.fd = fbr_data_client_fd(w->up), .events = POLLIN};
    struct order o = {0};
    int rc = 0;

    while (rc >= 0 && !o.came) {
        rc = fbr_data_client_recv(w->up, on_order, &o);
        if (rc == 0 && !o.came)
            poll(&p, 1, -1);
    }
    rc = rc < 0 ? rc : o.rc;
    rc = rc < 0 ? fbr_keep(rc, "its host sent no valid start record: %s", fbr_strerror(rc))
                : run_init(o.rest.data, o.rest.len, functions);
    fbr_buf_fini(&o.rest);
    return rc;
}

static int prepare(struct worker *w, fiber_task_fn fn, const void *arg, size_t len)
{
    bool of_host = len == FBR_HOST_HEAD;
    int rc = of_host ? 0 : run_init(arg, len, fn == NULL);

    if (rc != 0)
        return rc;
    rc = open_worker(w, fn);
    if (rc != 0 || !of_host)
        return rc;
    rc = run_init_of_host(w, fn == NULL);
    if (rc != 0)
        close_worker(w);
    return rc;
}

static int work(fiber_task_fn fn, const void *arg, size_t len)
{
    struct fbr_runtime *rt = fbr_rt();
    struct worker w;
    int rc = rt ? prepare(&w, fn, arg, len) : fbr_kept();
    struct fbr_buf none = {0};

    if (rc != 0)
        return rc;
    fbr_child_on_frame(w.child, on_frame, &w);
    if (fbr_child_send(w.child, FBR_FRAME_READY, &none) < 0)
        fbr_child_exit(w.child, 1, "ran out of memory");
    fbr_rt_at_end(rt, FBR_END_REPORT, on_exit_of_process);
    atomic_store(&serving, &w);
    serve(&w);
    /* another thread has called exit(), and uses `w` */
    while (!atomic_exchange(&serving, NULL))
        pause();
    fbr_child_on_frame(w.child, NULL, NULL);
    close_worker(&w);
    return 0;
}

int fbr_pool_worker_main(const void *arg, size_t len)
{
    char why[256];

    if (work(NULL, arg, len) != 0) {
        snprintf(why, sizeof(why), "gave up: %.240s", fiber_last_error());
        fbr_child_exit(fbr_rt_peek()->child, 1, why);
    }
    return 0;
}

int fiber_serve(fiber_task_fn fn)
{
    const void *arg;
    size_t len;
    struct fbr_cur c;

    if (fbr_rt_check() < 0)
        return -EPERM;
    if (!fn)
        return fbr_keep(-EINVAL, "fiber_serve: needs a function");
    if (fiber_process_work(&arg, &len) < 0)
        return fbr_keep(-ENODATA,
                        "fiber_serve: this process was not started by a pool with options.serve");
    c = fbr_cur(arg, len);
    if (fbr_get_u32(&c) == FBR_HOST_MAGIC)
        return fbr_pool_supervisor_main(arg, len);
    return work(fn, arg, len);
}
