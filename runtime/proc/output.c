/* output.c - writes whole lines of jobs to our own stdout and stderr.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "runtime/proc/output.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "runtime/base/log.h"
#include "runtime/base/sync.h"

#define FULL (4u << 20)
#define CLOSE_MS 1000
/* bytes of one write(), so that a slow reader differs from a stopped one */
#define WRITE_MAX (64u << 10)

struct chunk {
    struct chunk *next;
    int fd;
    bool last; /* an empty chunk: close the descriptor */
    bool ours; /* nobody else reports its loss */
    size_t len;
    char data[];
};

struct fbr_output {
    struct fbr_loop *loop;
    void (*on_room)(void *user);
    void *user;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t work, changed;
    struct chunk *first, **last; /* under lock, as all below */
    size_t queued;
    uint64_t added, done; /* chunks */
    bool full, stop, given_up;
    int waiting;
    struct fbr_post roomy;
    uint64_t written, seen;                      /* `written` is atomic */
    struct fbr_screen screens[2], *screen_of[2]; /* loop thread */
    /* atomic, of standard output [1], standard error [2] and other files [0] */
    int errors[3];      /* the last errno */
    unsigned losses[3]; /* chunks that were not written, or in part */
};

/* The reader has closed, or a disk is full, or memory is short; fbr_output_error() reports it. */
static void lose(struct fbr_output *o, int fd, bool ours, int why)
{
    int of = fd <= 2 ? fd : 0;

    __atomic_store_n(&o->errors[of], why, __ATOMIC_RELAXED);
    if (__atomic_add_fetch(&o->losses[of], 1, __ATOMIC_RELAXED) == 1 && ours && fd == 1 &&
        why != EPIPE && why != EBADF)
        fbr_warn("output of processes is lost: standard output: %s", fbr_strerror(why));
}

static void write_chunk(struct fbr_output *o, const struct chunk *c)
{
    size_t at = 0;

    if (c->fd <= 2)
        fbr_log_status_end();
    while (at < c->len) {
        size_t left = c->len - at;
        ssize_t n = write(c->fd, c->data + at, left < WRITE_MAX ? left : WRITE_MAX);

        if (n > 0) {
            at += (size_t)n;
            __atomic_add_fetch(&o->written, (uint64_t)n, __ATOMIC_RELAXED);
        } else if (n < 0 && errno == EAGAIN) { /* another process made our stdout non-blocking */
            struct pollfd p = {.fd = c->fd, .events = POLLOUT};

            poll(&p, 1, 1000);
        } else if (n < 0 && errno != EINTR) {
            lose(o, c->fd, c->ours, errno);
            return;
        }
    }
}

static void open_screens(struct fbr_output *o);

static void room(void *arg)
{
    struct fbr_output *o = arg;

    o->on_room(o->user);
}

static void *writer_main(void *arg)
{
    struct fbr_output *o = arg;

    pthread_setname_np(pthread_self(), "fbr-output");
    pthread_mutex_lock(&o->lock);
    while (!o->stop || o->first) {
        struct chunk *c = o->first;

        if (!c) {
            pthread_cond_wait(&o->work, &o->lock);
            continue;
        }
        o->first = c->next;
        if (!o->first)
            o->last = &o->first;
        pthread_mutex_unlock(&o->lock);
        write_chunk(o, c);
        if (c->last)
            close(c->fd);
        pthread_mutex_lock(&o->lock);
        o->done++;
        o->queued -= c->len;
        free(c);
        if (o->full && o->queued < FULL / 2) {
            o->full = false;
            if (!o->stop) /* the loop ends before a stuck writer does */
                fbr_loop_post_own(o->loop, &o->roomy);
        }
        if (o->waiting)
            pthread_cond_broadcast(&o->changed);
    }
    pthread_mutex_unlock(&o->lock);
    return NULL;
}

int fbr_output_open(struct fbr_output **out, struct fbr_loop *loop, void (*on_room)(void *),
                    void *user)
{
    struct fbr_output *o = calloc(1, sizeof(*o));
    int rc;

    if (!o)
        return -ENOMEM;
    o->loop = loop;
    o->on_room = on_room;
    o->user = user;
    o->last = &o->first;
    open_screens(o);
    o->roomy = (struct fbr_post){.fn = room, .arg = o, .own = true};
    pthread_mutex_init(&o->lock, NULL);
    pthread_cond_init(&o->work, NULL);
    fbr_cond_init(&o->changed);
    rc = fbr_thread_start(&o->thread, writer_main, o);
    if (rc < 0) {
        free(o);
        return rc;
    }
    *out = o;
    return 0;
}

/* Call it under the lock. Waits until that many chunks are written, at most `ms`. */
static bool wait_done(struct fbr_output *o, uint64_t chunks, int ms)
{
    uint64_t deadline = fbr_deadline(ms);

    o->waiting++;
    while (o->done < chunks && !o->given_up)
        if (fbr_cond_wait(&o->changed, &o->lock, deadline) < 0)
            break;
    o->waiting--;
    return o->done >= chunks;
}

/* Whether something was written since the last call. */
static bool moves(struct fbr_output *o)
{
    uint64_t now = __atomic_load_n(&o->written, __ATOMIC_RELAXED), before = o->seen;

    o->seen = now;
    return now != before;
}

/* Call it under the lock. Waits until that many chunks are written, unless nothing is written for
 * CLOSE_MS. */
static bool wait_while_it_moves(struct fbr_output *o, uint64_t chunks)
{
    bool stuck;

    do
        stuck = !wait_done(o, chunks, CLOSE_MS);
    while (stuck && !o->given_up && moves(o));
    return !stuck;
}

void fbr_output_stop(struct fbr_output *o)
{
    bool stuck;

    pthread_mutex_lock(&o->lock);
    o->stop = true;
    pthread_cond_signal(&o->work);
    stuck = !wait_while_it_moves(o, o->added);
    pthread_mutex_unlock(&o->lock);
    /* A reader that does not read must not delay our exit; the thread ends with the process. */
    if (stuck)
        pthread_detach(o->thread);
    else
        pthread_join(o->thread, NULL);
}

static bool enqueue(struct fbr_output *o, struct chunk *c)
{
    bool full;

    pthread_mutex_lock(&o->lock);
    *o->last = c;
    o->last = &c->next;
    o->queued += c->len;
    o->added++;
    if (o->queued > FULL)
        o->full = true;
    full = o->full;
    pthread_cond_signal(&o->work);
    pthread_mutex_unlock(&o->lock);
    return full;
}

static bool add(struct fbr_output *o, int fd, const void *data, size_t len, bool ours)
{
    struct chunk *c = malloc(sizeof(*c) + len);

    if (!c) { /* the output is lost rather than the job */
        lose(o, fd, ours, ENOMEM);
        return false;
    }
    *c = (struct chunk){.fd = fd, .len = len, .ours = ours};
    memcpy(c->data, data, len);
    return enqueue(o, c);
}

bool fbr_output_add(struct fbr_output *o, int fd, const void *data, size_t len)
{
    return add(o, fd, data, len, false);
}

bool fbr_output_finish(struct fbr_output *o, int fd)
{
    struct chunk *c = malloc(sizeof(*c));

    if (!c)
        return false;
    *c = (struct chunk){.fd = fd, .last = true};
    enqueue(o, c);
    return true;
}

void fbr_output_drain(struct fbr_output *o)
{
    pthread_mutex_lock(&o->lock);
    wait_while_it_moves(o, o->added);
    pthread_mutex_unlock(&o->lock);
}

bool fbr_output_wait(struct fbr_output *o, int ms, bool *moved)
{
    bool done;

    pthread_mutex_lock(&o->lock);
    done = wait_done(o, o->added, ms);
    *moved = moves(o);
    pthread_mutex_unlock(&o->lock);
    return done;
}

void fbr_output_give_up(struct fbr_output *o)
{
    pthread_mutex_lock(&o->lock);
    o->given_up = true;
    pthread_cond_broadcast(&o->changed);
    pthread_mutex_unlock(&o->lock);
}

int fbr_output_error(const struct fbr_output *o, int fd)
{
    return __atomic_load_n(&o->errors[fd], __ATOMIC_RELAXED);
}

unsigned fbr_output_losses(const struct fbr_output *o, int fd)
{
    return __atomic_load_n(&o->losses[fd], __ATOMIC_RELAXED);
}

/* ---- Jobs ---- */

struct fbr_screen *fbr_output_screen(struct fbr_output *o, int fd)
{
    return o->screen_of[fd - 1];
}

static bool is_same(int a, int b)
{
    struct stat x, y;

    return fstat(a, &x) == 0 && fstat(b, &y) == 0 && x.st_dev == y.st_dev && x.st_ino == y.st_ino;
}

static void open_screens(struct fbr_output *o)
{
    for (int i = 0; i < 2; i++)
        o->screens[i].terminal = isatty(i + 1);
    o->screen_of[0] = &o->screens[0];
    o->screen_of[1] = is_same(1, 2) ? &o->screens[0] : &o->screens[1];
}

void fbr_lines_init(struct fbr_lines *l, struct fbr_output *o, int fd, const char *tag)
{
    memset(l, 0, sizeof(*l));
    l->output = o;
    l->fd = fd;
    l->stream.who = l;
    if (tag)
        snprintf(l->tag, sizeof(l->tag), "[%s] ", tag);
}

void fbr_lines_fini(struct fbr_lines *l)
{
    if (l->output)
        fbr_line_fini(&l->stream, fbr_output_screen(l->output, l->fd));
}

static bool pass_on(struct fbr_lines *l, struct fbr_buf *out)
{
    bool full = out->len && !out->failed && add(l->output, l->fd, out->data, out->len, true);

    if (out->failed)
        lose(l->output, l->fd, true, ENOMEM);
    fbr_buf_fini(out);
    return full;
}

bool fbr_lines_add(struct fbr_lines *l, const void *data, size_t len)
{
    struct fbr_buf out = {0};

    fbr_line_add(&l->stream, fbr_output_screen(l->output, l->fd), l->tag, data, len, &out);
    return pass_on(l, &out);
}

void fbr_lines_end(struct fbr_lines *l)
{
    struct fbr_screen *screen = fbr_output_screen(l->output, l->fd);
    struct fbr_buf out = {0};

    fbr_line_end(&l->stream, screen, l->tag, &out);
    if (screen->owner == l)
        fbr_screen_break(screen, &out);
    pass_on(l, &out);
}
