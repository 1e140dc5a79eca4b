/* delays.c - puts off calls now and then, in every process that preloads it; see run.
 *
 * One call in LATE_ONE_IN is put off by up to LATE_MOST_US: those where a thread lets go of the processor on a busy
 * machine, before it takes a lock, after it has left one, and before it reads, writes or waits.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static uint64_t setting(const char *name, uint64_t otherwise)
{
    const char *text = getenv(name);
    uint64_t value = text ? strtoull(text, NULL, 10) : 0;

    return value ? value : otherwise;
}

static uint64_t one_in, most_us;

__attribute__((constructor)) static void read_settings(void)
{
    one_in = setting("LATE_ONE_IN", 1000);
    most_us = setting("LATE_MOST_US", 15000);
}

/* Numbers of its own for each thread (PCG's generator, O'Neill 2014, without its output function). */
static uint64_t next_number(void)
{
    static _Thread_local uint64_t state;

    if (!state) {
        struct timespec now;

        clock_gettime(CLOCK_MONOTONIC, &now);
        state = (uint64_t)now.tv_nsec * 2654435761u + ((uint64_t)syscall(SYS_gettid) << 20);
    }
    state = state * 6364136223846793005u + 1442695040888963407u;
    return state >> 33;
}

/* By a system call: the library's function may be wrapped itself. */
static void delay(void)
{
    if (one_in && next_number() % one_in == 0) {
        uint64_t us = next_number() % most_us;
        struct timespec t = {(time_t)(us / 1000000), (long)(us % 1000000) * 1000};

        syscall(SYS_nanosleep, &t, NULL);
    }
}

/* The function that would have been called. */
#define REAL(name)                          \
    static __typeof__(&name) _Atomic real_; \
    __typeof__(&name) real = real_;         \
    if (!real)                              \
    real_ = real = (__typeof__(&name))dlsym(RTLD_NEXT, #name)

int pthread_mutex_lock(pthread_mutex_t *m)
{
    REAL(pthread_mutex_lock);
    delay();
    return real(m);
}

int pthread_mutex_unlock(pthread_mutex_t *m)
{
    REAL(pthread_mutex_unlock);
    int rc = real(m);

    delay();
    return rc;
}

ssize_t read(int fd, void *to, size_t n)
{
    REAL(read);
    delay();
    return real(fd, to, n);
}

ssize_t write(int fd, const void *from, size_t n)
{
    REAL(write);
    delay();
    return real(fd, from, n);
}

ssize_t recvmsg(int fd, struct msghdr *m, int flags)
{
    REAL(recvmsg);
    delay();
    return real(fd, m, flags);
}

ssize_t sendmsg(int fd, const struct msghdr *m, int flags)
{
    REAL(sendmsg);
    delay();
    return real(fd, m, flags);
}

int epoll_pwait(int fd, struct epoll_event *events, int n, int timeout, const sigset_t *mask)
{
    REAL(epoll_pwait);
    delay();
    return real(fd, events, n, timeout, mask);
}

int epoll_wait(int fd, struct epoll_event *events, int n, int timeout)
{
    REAL(epoll_wait);
    delay();
    return real(fd, events, n, timeout);
}

int poll(struct pollfd *fds, nfds_t n, int timeout)
{
    REAL(poll);
    delay();
    return real(fds, n, timeout);
}
