/* loop.h - the event loop of a process, in its own thread: control connections, timers, exits of
 * children.
 *
 * Other threads only post to the loop. Callbacks on the loop must not block, because the loop sends
 * the heartbeats. The loop thread starts child processes, because the kernel ties "die with the
 * parent" to the starting thread, and the loop thread lives as long as the process.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include <uv.h>

#include "runtime/base/clock.h"
#include "runtime/base/error.h"

struct fbr_loop;

int fbr_loop_open(struct fbr_loop **l, struct fbr_error *err);
/* Runs the posts so far, then stops the loop; handles must be closed by then. Not from the loop
 * thread. */
void fbr_loop_close(struct fbr_loop *l);
/* Stops as fbr_loop_close() does, but later posts are still allowed: they return -ESHUTDOWN. The
 * loop is never freed. */
void fbr_loop_stop(struct fbr_loop *l);

/* Loop thread: fbr_loop_close() waits until all holders have released the loop. Until then the loop
 * accepts posts. */
void fbr_loop_hold(struct fbr_loop *l);
void fbr_loop_release(struct fbr_loop *l);

uv_loop_t *fbr_loop_uv(struct fbr_loop *l);
/* A buffer of 64 KiB for one read at a time, on the loop thread; its contents are valid until the
 * next read. */
#define FBR_LOOP_SCRATCH 65536
void *fbr_loop_scratch(struct fbr_loop *l);
/* For uv_read_start(): gives each read this buffer. */
void fbr_loop_alloc(uv_handle_t *handle, size_t suggested, uv_buf_t *buf);
bool fbr_loop_here(const struct fbr_loop *l); /* whether this is the loop thread */

/* Any thread: runs fn(arg) on the loop thread, in the order of posting. After -ENOMEM or
 * -ESHUTDOWN, fn will not run. */
int fbr_loop_post(struct fbr_loop *l, void (*fn)(void *arg), void *arg);
/* A post that needs no memory: embed it in its object and set fn, arg and own. fbr_loop_post_own()
 * returns 1: it is queued now; 0: it was queued already. */
struct fbr_post {
    struct fbr_post *next;
    void (*fn)(void *arg);
    void *arg;
    /* own: the loop does not free it; queued: it has not run yet (under the loop's lock) */
    bool own, queued;
};
int fbr_loop_post_own(struct fbr_loop *l, struct fbr_post *post);
/* Runs fn(arg) on the loop thread, waits, and returns its result. On the loop thread itself, runs
 * fn at once. */
int fbr_loop_call(struct fbr_loop *l, int (*fn)(void *arg), void *arg);

/* Loop thread: writes to a stream as much as the kernel takes, and copies the rest. 0: all is
 * written. 1: done() (NULL is fine) will be called with `len`, when the rest is written, or cannot
 * be because of an error or because the stream was closed (UV_ECANCELED). Negative: the rest is
 * lost. */
int fbr_stream_write(uv_stream_t *stream, const void *data, size_t len,
                     void (*done)(void *arg, int status, size_t len), void *arg);

/* For uv_close(): free the memory of the handle, or its data. */
void fbr_free_handle(uv_handle_t *handle);
void fbr_free_data(uv_handle_t *handle);

/* A timer whose handle the loop frees safely: embed it, and stop or finish it on the loop thread.
 * When the process did not run for a while, the loop first reads what has come meanwhile: often it
 * is what the timer is there for, and stops the timer. */
struct fbr_timer {
    uv_timer_t *uv; /* owned by the loop until the close callback */
    void (*fn)(void *arg);
    void *arg;
    uint64_t late; /* on the loop's clock: from then on it is late; UINT64_MAX: the loop has read */
};

/* Does nothing to a timer that was made before. */
int fbr_timer_init(struct fbr_timer *t, struct fbr_loop *l, void (*fn)(void *arg), void *arg);
void fbr_timer_start(struct fbr_timer *t, uint64_t after_ms, uint64_t repeat_ms);
void fbr_timer_stop(struct fbr_timer *t);
bool fbr_timer_runs(const struct fbr_timer *t);
void fbr_timer_fini(struct fbr_timer *t); /* zeroed timers are fine */
