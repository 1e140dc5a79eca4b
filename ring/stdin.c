/* stdin.c - our standard input, for one rank. A thread of its own reads it, because a read of a
 * terminal or a file may take for ever.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/stat.h>
#include <unistd.h>

#include "ring/ring_priv.h"
#include "runtime/base/fds.h"
#include "runtime/base/sync.h"

#define PIECE 65536
#define MOMENT_MS 100 /* ms between looks at a terminal that is not ours, or for memory */

struct ring_stdin {
    struct fiber_ring *ring; /* loop thread; NULL once it is closed */
    bool ended;              /* loop thread: the end of input was read */
    struct fbr_loop *loop;
    pthread_t thread;
    int stop; /* an eventfd */
    pthread_mutex_t lock;
    pthread_cond_t room;
    uint64_t unread; /* bytes that the rank has not taken; under `lock`, as all below */
    bool closed;
    int refs; /* the thread, the ring, and posts on their way */
};

struct piece {
    struct fbr_post post;
    struct ring_stdin *input;
    size_t len;
    int error; /* of the read; then len is 0 */
    uint8_t data[];
};

static void unref(struct ring_stdin *i)
{
    bool last;

    pthread_mutex_lock(&i->lock);
    last = --i->refs == 0;
    pthread_mutex_unlock(&i->lock);
    if (!last)
        return;
    close(i->stop);
    pthread_mutex_destroy(&i->lock);
    pthread_cond_destroy(&i->room);
    free(i);
}

static bool is_reader(const struct ring_job *j, uint32_t rank)
{
    return j->job.has_stdin && rank == j->job.reader;
}

/* Returns the job whose reader lives or is about to; NULL: there is none, for example between two
 * tries, or before a new agent takes the place of a lost one. */
static struct ring_job *find_job(struct fiber_ring *r)
{
    struct ring_job *j;

    DL_FOREACH(r->jobs, j)
        if (!j->over && j->job.has_stdin && j->ranks[j->job.reader].state != RANK_ENDED &&
            fbr_ring_agent_of(j, j->job.reader)->state == AGENT_READY)
            break;
    return j;
}

/* True if an error means that there is no input: a terminal that hung up, or the write-only
 * /dev/null of nohup. */
static bool is_no_input(int error)
{
    struct stat st;

    return error == EBADF || (fstat(0, &st) == 0 && S_ISCHR(st.st_mode));
}

/* Loop thread. Input without a reader is lost. */
static void send_piece(void *arg)
{
    struct piece *p = arg;
    struct fiber_ring *r = p->input->ring;
    struct ring_job *j = r ? find_job(r) : NULL;
    struct fbr_buf b = {.data = p->data, .len = p->len};

    if (r && p->len && p->data[p->len - 1] == '\n' && !r->raw && isatty(0))
        fbr_ring_typed(r);
    if (p->len == 0)
        p->input->ended = true;
    if (r && p->error && !is_no_input(p->error))
        fbr_ring_print(r, "cannot read standard input: %s", fbr_strerror(p->error));
    if (j && (p->len || j->ranks[j->job.reader].state == RANK_RUNNING))
        fbr_ring_send(fbr_ring_agent_of(j, j->job.reader), FBR_RING_STDIN, &b);
    else if (r && !j)
        fbr_ring_stdin_room(r, p->len);
    unref(p->input);
    free(p);
}

void fbr_ring_stdin_started(struct ring_job *j, uint32_t rank)
{
    const struct fbr_buf none = {0};

    if (is_reader(j, rank) && j->ring->input && j->ring->input->ended)
        fbr_ring_send(fbr_ring_agent_of(j, j->job.reader), FBR_RING_STDIN, &none);
}

void fbr_ring_stdin_rank_ended(struct ring_job *j, uint32_t rank)
{
    if (is_reader(j, rank))
        fbr_ring_stdin_room(j->ring, UINT64_MAX);
}

/* True if a read failed because another process group had the foreground of our terminal: SIGTTIN
 * is blocked here. It may be ours by now, or later (fg). A terminal that hung up has no foreground
 * group. */
static bool was_in_background(int error)
{
    return error == EIO && tcgetpgrp(0) >= 0;
}

/* Waits until the terminal may be ours, or memory may be there. False: stop reading. */
static bool wait_a_moment(struct ring_stdin *i)
{
    struct pollfd p = {.fd = i->stop, .events = POLLIN};

    return poll(&p, 1, MOMENT_MS) <= 0;
}

/* Called without the lock. False: stop reading. */
static bool wait_for_input(struct ring_stdin *i)
{
    struct pollfd p[2] = {{.fd = 0, .events = POLLIN}, {.fd = i->stop, .events = POLLIN}};

    pthread_mutex_lock(&i->lock);
    while (i->unread >= FBR_RING_STDIN_WINDOW && !i->closed)
        pthread_cond_wait(&i->room, &i->lock);
    pthread_mutex_unlock(&i->lock);
    while (poll(p, 2, -1) < 0 && errno == EINTR)
        continue;
    return !p[1].revents;
}

static void *input_main(void *arg)
{
    struct ring_stdin *i = arg;
    ssize_t n = 1;
    bool closed;

    pthread_setname_np(pthread_self(), "fbr-input");
    while (n > 0 && wait_for_input(i)) {
        struct piece *p = malloc(sizeof(*p) + PIECE);

        if (!p && wait_a_moment(i)) /* without an end of input, the rank would wait for ever */
            continue;
        if (!p)
            break;
        do
            n = read(0, p->data, PIECE);
        while (n < 0 && (errno == EINTR || (was_in_background(errno) && wait_a_moment(i))));
        p->post = (struct fbr_post){.fn = send_piece, .arg = p, .own = true};
        p->input = i;
        p->len = n > 0 ? (size_t)n : 0; /* an error counts as the end of input */
        p->error = n < 0 ? errno : 0;
        pthread_mutex_lock(&i->lock);
        i->unread += p->len;
        i->refs++;
        closed = i->closed;
        pthread_mutex_unlock(&i->lock);
        if (closed || fbr_loop_post_own(i->loop, &p->post) < 0) {
            unref(i);
            free(p);
            break;
        }
    }
    unref(i);
    return NULL;
}

int fbr_ring_stdin_open(struct fiber_ring *r, struct fbr_error *err)
{
    struct ring_stdin *i = calloc(1, sizeof(*i));
    int rc;

    if (!i)
        return fbr_fail(err, -ENOMEM, "out of memory");
    i->ring = r;
    i->loop = r->rt->loop;
    i->refs = 2;
    i->stop = eventfd(0, EFD_CLOEXEC);
    pthread_mutex_init(&i->lock, NULL);
    pthread_cond_init(&i->room, NULL);
    rc = i->stop < 0 ? -errno : fbr_thread_start(&i->thread, input_main, i);
    if (rc < 0) {
        fbr_fds_close(i->stop);
        free(i);
        return fbr_fail(err, rc, "cannot read standard input: %s", fbr_strerror(rc));
    }
    r->input = i;
    return 0;
}

void fbr_ring_stdin_room(struct fiber_ring *r, uint64_t bytes)
{
    struct ring_stdin *i = r->input;

    if (!i)
        return;
    pthread_mutex_lock(&i->lock);
    i->unread -= bytes < i->unread ? bytes : i->unread;
    pthread_cond_signal(&i->room);
    pthread_mutex_unlock(&i->lock);
}

/* The thread may be in a read that does not return (on a terminal that hung up), so it is
 * detached and not joined. */
void fbr_ring_stdin_close(struct ring_stdin *i)
{
    if (!i)
        return;
    i->ring = NULL;
    pthread_mutex_lock(&i->lock);
    i->closed = true;
    pthread_cond_signal(&i->room);
    pthread_mutex_unlock(&i->lock);
    eventfd_write(i->stop, 1);
    pthread_detach(i->thread);
    unref(i);
}
