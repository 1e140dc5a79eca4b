/* relay.c - passes records between the processes of a job and their one data link.
 *
 * The loop thread adds lines, and marks a line when its process has ended. The running thread does
 * everything else, and only it removes lines. The lock guards the table and the `over` of its
 * lines.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "runtime/net/relay.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#define HASH_NONFATAL_OOM 1 /* an entry that could not be added has hh.tbl NULL */
#include <uthash.h>

#include "runtime/base/fds.h"
#include "runtime/base/log.h"
#include "runtime/net/pipe_frames.h"

#define EVENTS 64
#define READS 4 /* reads from one process before the next one has its turn */
/* Bytes of short records that wait for the parent, above which the relay reads from no process. */
#define CROWDED (512 * 1024)

struct line {
    uint64_t process;
    int fd; /* -1: it is closed */
    struct fbr_pipe_frames_in in;
    struct fbr_pipe_frames_out out;
    struct fbr_pipe_frames_frame first; /* the unsent rest of the first record */
    bool greeted, writes;               /* the first record is sent; waits for room to write */
    bool paused;                        /* not read for now */
    bool over;
    UT_hash_handle hh;
};

/* A record that several processes need. */
struct kept {
    uint64_t id;
    UT_hash_handle hh;
    size_t len;
    uint8_t data[];
};

struct fbr_relay {
    int ep, wake;
    size_t limit;
    struct iovec first;
    pthread_mutex_t lock;
    struct line *lines;
    bool stop; /* under the lock */
    /* Running thread. */
    struct fbr_data_client *up;
    int failed;
    int paused; /* number of paused lines */
    bool waits; /* waits for room on the data link */
    struct line *taking;
    struct kept *kept; /* by id */
};

static int watch(struct fbr_relay *r, int op, int fd, uint32_t events, void *who)
{
    struct epoll_event e = {.events = events, .data.ptr = who};

    return epoll_ctl(r->ep, op, fd, &e) < 0 ? -errno : 0;
}

int fbr_relay_open(struct fbr_relay **out, const void *first, size_t len, size_t limit,
                   struct fbr_error *err)
{
    struct fbr_relay *r = calloc(1, sizeof(*r));
    int rc;

    if (!r)
        return fbr_fail(err, -ENOMEM, "out of memory");
    pthread_mutex_init(&r->lock, NULL);
    r->first = (struct iovec){(void *)(uintptr_t)first, len};
    r->limit = limit;
    r->ep = epoll_create1(EPOLL_CLOEXEC);
    r->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (r->ep < 0 || r->wake < 0)
        rc = -errno;
    else
        rc = watch(r, EPOLL_CTL_ADD, r->wake, EPOLLIN, NULL);
    if (rc < 0) {
        fbr_relay_close(r);
        return fbr_fail(err, rc, "cannot open a data path for its processes: %s", fbr_strerror(rc));
    }
    *out = r;
    return 0;
}

static void free_line(struct line *l)
{
    fbr_fds_close(l->fd);
    fbr_pipe_frames_in_fini(&l->in);
    fbr_pipe_frames_out_fini(&l->out);
    free(l);
}

void fbr_relay_close(struct fbr_relay *r)
{
    struct kept *k, *after;
    struct line *l, *next;

    if (!r)
        return;
    HASH_ITER(hh, r->kept, k, after) {
        HASH_DELETE(hh, r->kept, k);
        free(k);
    }
    HASH_ITER(hh, r->lines, l, next) {
        HASH_DELETE(hh, r->lines, l);
        free_line(l);
    }
    fbr_fds_close(r->ep);
    fbr_fds_close(r->wake);
    pthread_mutex_destroy(&r->lock);
    free(r);
}

/* ---- Loop thread ---- */

int fbr_relay_add(struct fbr_relay *r, uint64_t process, int *end, struct fbr_error *err)
{
    struct line *l = calloc(1, sizeof(*l));
    int pair[2], rc;

    if (!l)
        return fbr_fail(err, -ENOMEM, "out of memory");
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) < 0) {
        free(l);
        return fbr_fail(err, -errno, "cannot make sockets for its data path: %s",
                        fbr_strerror(-errno));
    }
    *l =
        (struct line){.process = process, .fd = pair[0], .writes = true, .in = {.limit = r->limit}};
    fbr_pipe_frames_frame(&l->first, &r->first, 1);
    if (fcntl(l->fd, F_SETFL, O_NONBLOCK) < 0) {
        rc = -errno;
        goto fail;
    }
    pthread_mutex_lock(&r->lock);
    HASH_ADD(hh, r->lines, process, sizeof(l->process), l);
    rc = l->hh.tbl ? watch(r, EPOLL_CTL_ADD, l->fd, EPOLLIN | EPOLLOUT, l) : -ENOMEM;
    if (rc < 0 && l->hh.tbl)
        HASH_DELETE(hh, r->lines, l);
    pthread_mutex_unlock(&r->lock);
    if (rc < 0)
        goto fail;
    *end = pair[1];
    return 0;
fail:
    free_line(l);
    close(pair[1]);
    return fbr_fail(err, rc, "cannot open a data path for it: %s", fbr_strerror(rc));
}

void fbr_relay_end(struct fbr_relay *r, uint64_t process)
{
    struct line *l;

    pthread_mutex_lock(&r->lock);
    HASH_FIND(hh, r->lines, &process, sizeof(process), l);
    if (l)
        l->over = true;
    pthread_mutex_unlock(&r->lock);
    if (l)
        eventfd_write(r->wake, 1);
}

void fbr_relay_stop(struct fbr_relay *r)
{
    pthread_mutex_lock(&r->lock);
    r->stop = true;
    pthread_mutex_unlock(&r->lock);
    eventfd_write(r->wake, 1);
}

/* ---- Running thread ---- */

static void watch_line(struct fbr_relay *r, struct line *l)
{
    watch(r, EPOLL_CTL_MOD, l->fd, (l->paused ? 0 : EPOLLIN) | (l->writes ? EPOLLOUT : 0), l);
}

static void post(struct fbr_relay *r, uint64_t process, const void *record, size_t len)
{
    const struct iovec iov = {(void *)(uintptr_t)record, len};
    int rc = fbr_data_client_post_to(r->up, process, &iov, 1);

    if (rc < 0 && r->failed == 0)
        r->failed = rc;
}

/* Posts a record from a process. An empty record from a process means nothing, and is dropped. */
static void on_up(void *user, const void *record, size_t len)
{
    struct fbr_relay *r = user;

    if (len)
        post(r, r->taking->process, record, len);
}

/* Reads from a process. 0: nothing more for now. 1: there may be more. Negative: end the line. */
static int read_once(struct fbr_relay *r, struct line *l)
{
    size_t room;
    void *to = fbr_pipe_frames_room(&l->in, &room);
    ssize_t n = to ? recv(l->fd, to, room, 0) : -1;

    if (!to)
        return -ENOMEM;
    if (n < 0)
        return errno == EINTR ? 1 : errno == EAGAIN ? 0 : -errno;
    if (n == 0)
        return -EPIPE;
    r->taking = l;
    if (fbr_pipe_frames_took(&l->in, (size_t)n, on_up, r) < 0)
        return -EMSGSIZE;
    return (size_t)n == room;
}

/* Ends a line: passes on all records that the process has sent, then an empty record. */
static void end_line(struct fbr_relay *r, struct line *l)
{
    while (read_once(r, l) > 0)
        continue;
    post(r, l->process, NULL, 0);
    r->paused -= l->paused;
    pthread_mutex_lock(&r->lock);
    HASH_DELETE(hh, r->lines, l);
    pthread_mutex_unlock(&r->lock);
    /* Closing alone is not enough: a child that is being started may have a copy of the
     * descriptor. */
    watch(r, EPOLL_CTL_DEL, l->fd, 0, NULL);
    free_line(l);
}

/* Writes as much as there is room for. Negative: the process does not read any more. */
static int write_some(struct line *l)
{
    const void *bytes;
    size_t len;

    while (!l->greeted) {
        struct msghdr m = {.msg_iov = l->first.iov, .msg_iovlen = (size_t)l->first.n};
        ssize_t n = sendmsg(l->fd, &m, MSG_NOSIGNAL);

        if (n < 0)
            return errno == EAGAIN || errno == EINTR ? 0 : -errno;
        l->greeted = fbr_pipe_frames_sent(&l->first, (size_t)n);
    }
    while ((len = fbr_pipe_frames_waiting(&l->out, &bytes)) > 0) {
        ssize_t n = send(l->fd, bytes, len, MSG_NOSIGNAL);

        if (n < 0)
            return errno == EAGAIN || errno == EINTR ? 0 : -errno;
        fbr_pipe_frames_drop(&l->out, (size_t)n);
    }
    l->writes = false;
    return 0;
}

/* Passes a record down to a process of this job. The process may have ended. */
static void pass_down(struct fbr_relay *r, uint64_t process, const void *record, size_t len)
{
    const struct iovec iov = {(void *)(uintptr_t)record, len};
    struct fbr_pipe_frames_frame f;
    struct line *l;

    pthread_mutex_lock(&r->lock);
    HASH_FIND(hh, r->lines, &process, sizeof(process), l);
    pthread_mutex_unlock(&r->lock);
    if (!l)
        return;
    fbr_pipe_frames_frame(&f, &iov, 1);
    if (!l->writes) {
        struct msghdr m = {.msg_iov = f.iov, .msg_iovlen = (size_t)f.n};
        ssize_t n = sendmsg(l->fd, &m, MSG_NOSIGNAL);

        if (n >= 0 && fbr_pipe_frames_sent(&f, (size_t)n))
            return;
        /* The process has ended, or the kernel lacks memory: the next event of its socket ends the
         * line, after all that it has sent. */
        if (n < 0 && errno != EAGAIN && errno != EINTR) {
            shutdown(l->fd, SHUT_RDWR);
            return;
        }
        l->writes = true;
        watch_line(r, l);
    }
    if (fbr_pipe_frames_keep(&l->out, &f) == 0)
        return;
    fbr_warn("relay: out of memory for a message to a process; its connection is closed");
    end_line(r, l); /* the process sees the end of its socket */
}

static void keep(struct fbr_relay *r, uint64_t id, struct fbr_cur *c)
{
    size_t len = fbr_cur_left(c);
    struct kept *k = malloc(sizeof(*k) + len);

    if (!k) {
        r->failed = -ENOMEM;
        return;
    }
    k->id = id;
    k->len = len;
    memcpy(k->data, c->at, len);
    HASH_ADD(hh, r->kept, id, sizeof(k->id), k);
    if (k->hh.tbl)
        return;
    free(k);
    r->failed = -ENOMEM;
}

static void on_order(struct fbr_relay *r, struct fbr_cur c)
{
    uint32_t order = fbr_get_u32(&c);
    uint64_t id, process;
    struct kept *k;

    fbr_get_u32(&c);
    id = fbr_get_u64(&c);
    HASH_FIND(hh, r->kept, &id, sizeof(id), k);
    if (order == FBR_RELAY_KEEP && fbr_cur_ok(&c) && !k)
        keep(r, id, &c);
    if (order == FBR_RELAY_GIVE && k) {
        process = fbr_get_u64(&c);
        pass_down(r, process, k->data, k->len);
    }
    if (order == FBR_RELAY_DROP && k) {
        HASH_DELETE(hh, r->kept, k);
        free(k);
    }
}

static void on_down(void *user, const void *record, size_t len)
{
    struct fbr_relay *r = user;
    uint64_t process = fbr_data_client_stream(r->up);

    if (r->failed) /* later records may need one that could not be kept */
        return;
    if (process)
        pass_down(r, process, record, len);
    else
        on_order(r, fbr_cur(record, len));
}

static void pause_line(struct fbr_relay *r, struct line *l, bool pause)
{
    if (l->paused == pause)
        return;
    l->paused = pause;
    r->paused += pause ? 1 : -1;
    watch_line(r, l);
}

static void on_line(struct fbr_relay *r, struct line *l, uint32_t events)
{
    int more = (events & (EPOLLIN | EPOLLHUP | EPOLLERR)) != 0;

    if (events & EPOLLOUT) {
        if (write_some(l) < 0)
            goto over;
        if (!l->writes)
            watch_line(r, l);
    }
    for (int i = 0; i < READS && more; i++) {
        more = read_once(r, l);
        if (more < 0)
            goto over;
        if (fbr_data_client_crowded(r->up, l->process, CROWDED))
            pause_line(r, l, true);
        if (l->paused)
            break;
    }
    return;
over:
    end_line(r, l);
}

static void resume(struct fbr_relay *r)
{
    struct line *l, *next;

    pthread_mutex_lock(&r->lock);
    HASH_ITER(hh, r->lines, l, next)
        if (l->paused && !fbr_data_client_crowded(r->up, l->process, CROWDED))
            pause_line(r, l, false);
    pthread_mutex_unlock(&r->lock);
}

/* Handles the requests of the loop thread. True: stop. */
static bool on_wake(struct fbr_relay *r)
{
    struct line *l, *next, *found;
    bool stop;
    eventfd_t n;

    eventfd_read(r->wake, &n);
    pthread_mutex_lock(&r->lock);
    stop = r->stop;
    do {
        found = NULL;
        HASH_ITER(hh, r->lines, l, next)
            if (l->over)
                found = l;
        if (found) {
            pthread_mutex_unlock(&r->lock);
            end_line(r, found);
            pthread_mutex_lock(&r->lock);
        }
    } while (found);
    pthread_mutex_unlock(&r->lock);
    return stop;
}

/* Sends all posted records together. If there is no room, watches for room. */
static int send_up(struct fbr_relay *r)
{
    int rc = fbr_data_client_flush(r->up), room = fbr_data_client_room_fd(r->up);

    if (rc < 0)
        return rc;
    if (r->waits != (rc > 0)) {
        r->waits = rc > 0;
        rc = watch(r, r->waits ? EPOLL_CTL_ADD : EPOLL_CTL_DEL, room, EPOLLIN, &r->waits);
    }
    return rc < 0 ? rc : 0;
}

/* Waits for events and handles them. 1: stop. */
static int turn(struct fbr_relay *r, int beat_ms)
{
    struct epoll_event e[EVENTS];
    int n = epoll_wait(r->ep, e, EVENTS, beat_ms), rc = 1;
    bool woken = false, came = false;

    if (n < 0 && errno != EINTR)
        return -errno;
    if (n == 0 && (fbr_data_client_lost(r->up) || fbr_data_client_beat(r->up, false) < 0))
        return -EPIPE;
    for (int i = 0; i < n; i++) {
        if (e[i].data.ptr == NULL)
            woken = true;
        else if (e[i].data.ptr == r->up)
            came = true;
        else if (e[i].data.ptr != &r->waits)
            on_line(r, e[i].data.ptr, e[i].events);
    }
    /* After the events, because these calls may remove lines that an event names. */
    if (woken && on_wake(r))
        return 1;
    while (came && rc > 0)
        rc = fbr_data_client_recv(r->up, on_down, r);
    if (rc < 0 || (rc = r->failed) < 0 || (rc = send_up(r)) < 0)
        return rc;
    if (r->paused)
        resume(r);
    return 0;
}

int fbr_relay_run(struct fbr_relay *r, struct fbr_data_client *up, int beat_ms)
{
    int rc;

    r->up = up;
    fbr_data_client_never_wait(up);
    rc = watch(r, EPOLL_CTL_ADD, fbr_data_client_fd(up), EPOLLIN, up);
    while (rc == 0)
        rc = turn(r, beat_ms);
    watch(r, EPOLL_CTL_DEL, fbr_data_client_fd(up), 0, NULL);
    if (r->waits)
        watch(r, EPOLL_CTL_DEL, fbr_data_client_room_fd(up), 0, NULL);
    return rc > 0 ? 0 : rc;
}
