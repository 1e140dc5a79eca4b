/* direct.c - streams of pipes over unix sockets; see direct.h.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "share/direct.h"

#include <endian.h>
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "runtime/base/fds.h"
#include "runtime/base/random.h"
#include "runtime/base/spin.h"
#include "runtime/base/sync.h"
#include "runtime/net/tcp.h"

#define HEAD 8
#define ROOM (64u * 1024)      /* bytes, for messages that are read together */
#define PIECE (32u * 1024)     /* bytes that one call sends */
#define SOCKET_BYTES (4 << 20) /* asked for; the kernel may grant less */
#define AWAKE_NS 50000         /* spin before a thread sleeps */
#define PATIENCE_MS 20         /* wait for a receiver that takes nothing */

struct fbr_direct {
    int refs; /* atomic */
    int fd, listening, wake;
    size_t longest;
    char path[FBR_DIRECT_PATH];
    uint8_t token[FBR_DIRECT_TOKEN];
    struct fbr_spin awake;
    bool stop, stopped, cut; /* atomic; stopped is set under tx */
    pthread_mutex_t tx;
    pthread_mutex_t rx; /* all below */
    bool over;          /* everything has been read */
    size_t at, len;     /* in `room` */
    /* has `have` of the `whole` bytes of the next message; NULL: its head has not come */
    uint8_t *message;
    size_t have, whole;
    uint8_t room[ROOM];
};

/* ---- Life ---- */

static struct fbr_direct *new_direct(size_t longest)
{
    struct fbr_direct *d = malloc(sizeof(*d));

    if (!d)
        return NULL;
    memset(d, 0, offsetof(struct fbr_direct, room));
    d->refs = 1;
    d->fd = d->listening = -1;
    d->longest = longest;
    pthread_mutex_init(&d->tx, NULL);
    pthread_mutex_init(&d->rx, NULL);
    d->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (d->wake < 0) {
        fbr_direct_unref(d);
        return NULL;
    }
    return d;
}

struct fbr_direct *fbr_direct_ref(struct fbr_direct *d)
{
    __atomic_add_fetch(&d->refs, 1, __ATOMIC_RELAXED);
    return d;
}

static void stop_listening(struct fbr_direct *d)
{
    if (d->listening < 0)
        return;
    close(d->listening);
    d->listening = -1;
    unlink(d->path);
}

void fbr_direct_unref(struct fbr_direct *d)
{
    if (!d || __atomic_sub_fetch(&d->refs, 1, __ATOMIC_ACQ_REL) > 0)
        return;
    stop_listening(d);
    if (d->fd >= 0) {
        shutdown(d->fd, SHUT_RDWR); /* a fork() child may have this socket, too */
        close(d->fd);
    }
    fbr_fds_close(d->wake);
    free(d->message);
    pthread_mutex_destroy(&d->tx);
    pthread_mutex_destroy(&d->rx);
    fbr_wipe(d->token, sizeof(d->token));
    free(d);
}

/* ---- Connecting ---- */

static void set_size(int fd)
{
    int size = SOCKET_BYTES;

    setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &size, sizeof(size)); /* as much as the kernel allows */
}

int fbr_direct_listen(struct fbr_direct **out, const char *beside, size_t longest,
                      char path[FBR_DIRECT_PATH], uint8_t token[FBR_DIRECT_TOKEN])
{
    const char *slash = strrchr(beside, '/');
    struct fbr_direct *d = new_direct(longest);
    uint64_t name;
    int rc, n;

    if (!d)
        return -ENOMEM;
    if ((rc = fbr_random(&name, sizeof(name))) < 0 ||
        (rc = fbr_random(d->token, sizeof(d->token))) < 0)
        goto fail;
    n = snprintf(d->path, sizeof(d->path), "%.*s/p%016llx", slash ? (int)(slash - beside) : 0,
                 beside, (unsigned long long)name);
    rc = n < (int)sizeof(d->path) ? fbr_unix_listen(d->path) : -ENAMETOOLONG;
    if (rc < 0)
        goto fail;
    d->listening = rc;
    memcpy(path, d->path, FBR_DIRECT_PATH);
    memcpy(token, d->token, FBR_DIRECT_TOKEN);
    *out = d;
    return 0;
fail:
    fbr_direct_unref(d);
    return rc;
}

int fbr_direct_connect(struct fbr_direct **out, const char *path,
                       const uint8_t token[FBR_DIRECT_TOKEN], size_t longest)
{
    struct fbr_direct *d = new_direct(longest);
    int rc;

    if (!d)
        return -ENOMEM;
    rc = d->fd = fbr_unix_connect(path);
    if (rc < 0)
        goto fail;
    rc = -EACCES;
    if (fbr_unix_peer(d->fd) != geteuid())
        goto fail;
    set_size(d->fd);
    rc = -EPIPE;
    if (send(d->fd, token, FBR_DIRECT_TOKEN, MSG_NOSIGNAL | MSG_DONTWAIT) != FBR_DIRECT_TOKEN)
        goto fail;
    *out = d;
    return 0;
fail:
    fbr_direct_unref(d);
    return rc;
}

/* The other process has connected and sent the token before it answered. When there is no free
 * descriptor now, the data that it sends waits. Under rx. */
int fbr_direct_open(struct fbr_direct *d)
{
    uint8_t token[FBR_DIRECT_TOKEN];
    int fd = accept4(d->listening, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK), rc = 0;

    if (fd < 0)
        return errno == EAGAIN ? -EPIPE : -errno;
    if (fbr_unix_peer(fd) != geteuid() ||
        recv(fd, token, sizeof(token), 0) != (ssize_t)sizeof(token) ||
        !fbr_same(token, d->token, sizeof(token)))
        rc = -EPIPE;
    fbr_wipe(token, sizeof(token));
    if (rc < 0) {
        close(fd);
        return rc;
    }
    set_size(fd);
    stop_listening(d);
    __atomic_store_n(&d->fd, fd, __ATOMIC_RELEASE);
    if (__atomic_load_n(&d->cut, __ATOMIC_ACQUIRE))
        shutdown(fd, SHUT_RDWR);
    return 0;
}

/* ---- Sending ---- */

static int lock_until(pthread_mutex_t *lock, uint64_t deadline)
{
    const struct timespec t = {.tv_sec = (time_t)(deadline / 1000),
                               .tv_nsec = (long)(deadline % 1000) * 1000000};

    if (pthread_mutex_trylock(lock) == 0)
        return 0;
    if (deadline == UINT64_MAX)
        return -pthread_mutex_lock(lock);
    return -pthread_mutex_clocklock(lock, CLOCK_MONOTONIC, &t);
}

/* Waits until there is room; false: the receiver takes nothing. */
static bool wait_room(struct fbr_direct *d, uint64_t deadline)
{
    struct pollfd p = {.fd = d->fd, .events = POLLOUT};
    int ms = fbr_ms_until(deadline);

    return poll(&p, 1, ms < 0 || ms > PATIENCE_MS ? PATIENCE_MS : ms) > 0;
}

/* Sends the next piece. The receiver copies this piece while we copy the one after it. */
static ssize_t send_piece(struct fbr_direct *d, struct iovec *iov, size_t count)
{
    struct msghdr m = {.msg_iov = iov, .msg_iovlen = count};
    size_t last = iov[count - 1].iov_len;
    ssize_t n;

    if (last > PIECE)
        iov[count - 1].iov_len = PIECE;
    n = sendmsg(d->fd, &m, MSG_NOSIGNAL | MSG_DONTWAIT);
    iov[count - 1].iov_len = last;
    return n;
}

/* Under tx. False: not all of the message could be sent. */
static bool send_all(struct fbr_direct *d, const void *data, size_t len, uint64_t deadline)
{
    uint64_t head = htole64(len), until = 0;
    struct iovec parts[2] = {{&head, HEAD}, {(void *)(uintptr_t)data, len}}, *iov = parts;
    size_t count = 2;

    while (count) {
        ssize_t n = send_piece(d, iov, count);

        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && errno != EAGAIN)
            return false;
        if (n < 0) {
            until = until ? until : fbr_now_ns() + AWAKE_NS;
            if (!fbr_spin_yield(&d->awake, until) && !wait_room(d, deadline))
                return false;
            continue;
        }
        until = 0;
        for (; count && (size_t)n >= iov->iov_len; count--)
            n -= (ssize_t)(iov++)->iov_len;
        if (count) {
            iov->iov_base = (uint8_t *)iov->iov_base + n;
            iov->iov_len -= (size_t)n;
        }
    }
    return true;
}

/* Under tx. */
static void end_sending(struct fbr_direct *d)
{
    if (!d->stopped && d->fd >= 0)
        shutdown(d->fd, SHUT_WR);
    __atomic_store_n(&d->stopped, true, __ATOMIC_RELEASE);
}

/* Releases tx. A thread that sets `stop` while we hold tx leaves it to us to end sending. */
static void unlock_tx(struct fbr_direct *d)
{
    do {
        if (__atomic_load_n(&d->stop, __ATOMIC_SEQ_CST))
            end_sending(d);
        pthread_mutex_unlock(&d->tx);
    } while (__atomic_load_n(&d->stop, __ATOMIC_SEQ_CST) && !fbr_direct_stopped(d) &&
             pthread_mutex_trylock(&d->tx) == 0);
}

int fbr_direct_send(struct fbr_direct *d, const void *data, size_t len, uint64_t deadline)
{
    int rc;

    if (fbr_direct_stopped(d))
        return -EAGAIN;
    if (lock_until(&d->tx, deadline) < 0)
        return -ETIMEDOUT;
    rc = d->stopped || __atomic_load_n(&d->stop, __ATOMIC_SEQ_CST) ||
                 !send_all(d, data, len, deadline)
             ? -EAGAIN
             : 0;
    if (rc < 0)
        end_sending(d);
    unlock_tx(d);
    return rc;
}

void fbr_direct_stop(struct fbr_direct *d)
{
    __atomic_store_n(&d->stop, true, __ATOMIC_SEQ_CST);
    if (pthread_mutex_trylock(&d->tx) == 0)
        unlock_tx(d);
}

bool fbr_direct_stopped(const struct fbr_direct *d)
{
    return __atomic_load_n(&d->stopped, __ATOMIC_ACQUIRE);
}

/* ---- Receiving ---- */

int fbr_direct_lock(struct fbr_direct *d, uint64_t deadline)
{
    return lock_until(&d->rx, deadline) < 0 ? -ETIMEDOUT : 0;
}

void fbr_direct_unlock(struct fbr_direct *d)
{
    pthread_mutex_unlock(&d->rx);
}

/* Begins the next message if its head is here, and copies the part of it that is here. 1: the
 * message is whole. */
static int parse(struct fbr_direct *d)
{
    uint64_t whole;
    size_t n;

    if (!d->message) {
        if (d->len - d->at < HEAD)
            return 0;
        memcpy(&whole, d->room + d->at, HEAD);
        whole = le64toh(whole);
        if (whole > d->longest)
            return -EMSGSIZE;
        d->message = malloc(whole ? whole : 1);
        if (!d->message)
            return -ENOMEM;
        d->whole = whole;
        d->have = 0;
        d->at += HEAD;
    }
    n = d->whole - d->have < d->len - d->at ? d->whole - d->have : d->len - d->at;
    memcpy(d->message + d->have, d->room + d->at, n);
    d->have += n;
    d->at += n;
    return d->have == d->whole;
}

/* Reads the available bytes, first into the current message, as far as they belong to it. */
static int read_some(struct fbr_direct *d)
{
    ssize_t n;

    memmove(d->room, d->room + d->at, d->len - d->at);
    d->len -= d->at;
    d->at = 0;
    if (d->message) {
        struct iovec iov[2] = {{d->message + d->have, d->whole - d->have}, {d->room, ROOM}};
        struct msghdr m = {.msg_iov = iov, .msg_iovlen = 2};

        /* `room` is empty, because the message is not whole */
        n = recvmsg(d->fd, &m, MSG_DONTWAIT);
        if (n > 0) {
            size_t of_message = (size_t)n < iov[0].iov_len ? (size_t)n : iov[0].iov_len;

            d->have += of_message;
            d->len = (size_t)n - of_message;
        }
    } else {
        n = recv(d->fd, d->room + d->len, ROOM - d->len, MSG_DONTWAIT);
        if (n > 0)
            d->len += (size_t)n;
    }
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return -EAGAIN;
    return n > 0 ? 0 : -EPIPE;
}

int fbr_direct_take(struct fbr_direct *d, struct fiber_bytes *out)
{
    int rc = 0, whole;

    if (d->fd < 0 && !d->over)
        rc = fbr_direct_open(d);
    if (rc < 0 && rc != -EPIPE)
        return rc;
    while ((whole = parse(d)) == 0 && rc == 0 && !d->over)
        rc = read_some(d);
    if (whole == 1) {
        if (!out)
            return 0;
        *out = (struct fiber_bytes){d->message, d->whole};
        d->message = NULL;
        return 0;
    }
    if (whole == -ENOMEM || rc == -EAGAIN)
        return whole < 0 ? whole : rc;
    d->over = true; /* a partial message was sent another way, or its sender is dead */
    free(d->message);
    d->message = NULL;
    d->at = d->len = 0;
    return -EPIPE;
}

void fbr_direct_put_back(struct fbr_direct *d, const struct fiber_bytes *message)
{
    d->message = message->data;
    d->have = d->whole = message->len;
}

void fbr_direct_sleep(struct fbr_direct *d, uint64_t deadline)
{
    struct pollfd p[2] = {{.fd = d->fd, .events = POLLIN}, {.fd = d->wake, .events = POLLIN}};
    uint64_t until = fbr_now_ns() + AWAKE_NS;
    int ms = fbr_ms_until(deadline), there;
    eventfd_t count;

    while (!(there = poll(p, 2, 0)) && ms && fbr_spin_yield(&d->awake, until))
        ;
    if (!there)
        poll(p, 2, ms);
    if (p[1].revents)
        eventfd_read(d->wake, &count);
}

void fbr_direct_wake(struct fbr_direct *d)
{
    eventfd_write(d->wake, 1);
}

void fbr_direct_shut(struct fbr_direct *d)
{
    if (d->fd < 0)
        fbr_direct_open(d);
    if (d->fd < 0)
        d->over = true;
    else
        shutdown(d->fd, SHUT_RD);
}

void fbr_direct_cut(struct fbr_direct *d)
{
    int fd;

    __atomic_store_n(&d->cut, true, __ATOMIC_SEQ_CST);
    fd = __atomic_load_n(&d->fd, __ATOMIC_ACQUIRE);
    if (fd >= 0)
        shutdown(fd, SHUT_RDWR);
    fbr_direct_wake(d);
}
