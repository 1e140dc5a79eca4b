/* fds.c - counts free file descriptors and reserves some; reads files, and writes all of some data
 * to a descriptor.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "runtime/base/fds.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include "runtime/base/sync.h"

#define AT_ONCE 256
#define SHORT 4
#define MAX_FILE (8u << 20)
#define WRITER_S 2 /* for which a FIFO may have no writer */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int promised; /* under lock */
static unsigned long before;

void fbr_fds_raise(void)
{
    struct rlimit r;

    if (getrlimit(RLIMIT_NOFILE, &r) < 0 || r.rlim_cur >= r.rlim_max)
        return;
    before = r.rlim_cur;
    r.rlim_cur = r.rlim_max;
    if (setrlimit(RLIMIT_NOFILE, &r) < 0)
        before = 0;
}

unsigned long fbr_fds_before(void)
{
    return before;
}

static int limit(void)
{
    struct rlimit r;

    if (getrlimit(RLIMIT_NOFILE, &r) < 0 || r.rlim_cur > INT_MAX)
        return INT_MAX;
    return (int)r.rlim_cur;
}

/* Counts the free numbers below the limit, up to `want`. Starts with the high numbers: usually all
 * of them are free, and one call is enough. */
static int count_free(int want)
{
    struct pollfd p[AT_ONCE];
    int top = limit(), found = 0;

    while (top > 0 && found < want) {
        int n = top < AT_ONCE ? top : AT_ONCE;

        if (n > want - found)
            n = want - found;
        for (int i = 0; i < n; i++)
            p[i] = (struct pollfd){.fd = top - 1 - i};
        /* out of memory: other calls will fail first */
        if (poll(p, (nfds_t)n, 0) < 0)
            return want;
        for (int i = 0; i < n; i++)
            found += (p[i].revents & POLLNVAL) != 0;
        top -= n;
    }
    return found;
}

int fbr_fds_take(int now, int later, const char *what, struct fbr_error *err)
{
    int need, found, others;

    pthread_mutex_lock(&lock);
    others = promised;
    need = now + later + others;
    found = count_free(need);
    if (found >= need)
        promised += later;
    pthread_mutex_unlock(&lock);
    if (found >= need)
        return 0;
    return fbr_fail(err, -EMFILE,
                    "%s: needs %d file descriptors, but only %d of the %d of this process are "
                    "free%s; close some, or raise the limit (ulimit -n)",
                    what, now + later, found > others ? found - others : 0, limit(),
                    others ? " and not reserved for starting processes" : "");
}

void fbr_fds_release(int later)
{
    pthread_mutex_lock(&lock);
    promised -= later;
    pthread_mutex_unlock(&lock);
}

int fbr_fds_need(int now, const char *what, struct fbr_error *err)
{
    return fbr_fds_take(now, 0, what, err);
}

bool fbr_fds_short(char *text, unsigned size)
{
    int found = count_free(SHORT);

    if (found >= SHORT)
        return false;
    snprintf(text, size,
             "this process has %d of its %d file descriptors free; raise the limit (ulimit -n)",
             found, limit());
    return true;
}

ssize_t fbr_fds_read_file(const char *path, char *out, size_t size)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NOFOLLOW | O_NONBLOCK);
    ssize_t len = 0, n = fd < 0 ? -1 : 1;

    while (fd >= 0 && (size_t)len + 1 < size && n > 0) {
        n = read(fd, out + len, size - 1 - (size_t)len);
        len += n > 0 ? n : 0;
    }
    if (n < 0 && len == 0)
        len = -errno;
    fbr_fds_close(fd);
    out[len > 0 ? len : 0] = '\0';
    return len;
}

int fbr_fds_read_all(int fd, size_t max, char **text, size_t *len)
{
    char *data = fd < 0 ? NULL : malloc(max + 1), *fit;
    int rc = fd < 0 ? -errno : data ? 0 : -ENOMEM;
    struct pollfd p = {.fd = fd, .events = POLLIN};
    size_t got = 0;
    ssize_t n = 1;

    while (rc == 0 && n != 0) {
        n = read(fd, data + got, max + 1 - got);
        if (n < 0 && errno == EAGAIN)
            poll(&p, 1, -1);
        else if (n < 0 && errno != EINTR)
            rc = -errno;
        got += n > 0 ? (size_t)n : 0;
        if (got > max)
            rc = -EFBIG;
    }
    fbr_fds_close(fd);
    if (rc < 0) {
        free(data);
        return rc;
    }
    data[got] = '\0';
    fit = realloc(data, got + 1);
    *text = fit ? fit : data;
    *len = got;
    return 0;
}

/* Waits a while for the first writer of a FIFO that was opened with O_NONBLOCK. False: there was
 * none, or it has written nothing yet. */
static bool wait_for_writer(int fd)
{
    struct pollfd p = {.fd = fd, .events = POLLIN};
    uint64_t until = fbr_now_ms() + WRITER_S * 1000;
    struct stat st;
    int n;

    if (fstat(fd, &st) < 0 || !S_ISFIFO(st.st_mode))
        return true;
    n = TEMP_FAILURE_RETRY(poll(&p, 1, fbr_ms_until(until)));
    return n > 0;
}

char *fbr_fds_slurp(const char *path, size_t *len, struct fbr_error *err)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK), rc;
    bool is_written = fd < 0 || wait_for_writer(fd);
    size_t have;
    char *text;

    rc = fbr_fds_read_all(fd, MAX_FILE, &text, &have);
    if (rc < 0) {
        fbr_fail(err, rc, "cannot read %s: %s", path, fbr_strerror(rc));
        return NULL;
    }
    if (!is_written && have == 0) {
        fbr_fail(err, -ENXIO, "cannot read %s: it is a FIFO, and nothing writes to it", path);
        free(text);
        return NULL;
    }
    if (len)
        *len = have;
    return text;
}

int fbr_fds_write(int fd, const void *data, size_t len)
{
    struct pollfd p = {.fd = fd, .events = POLLOUT};

    for (const char *at = data, *end = at + len; at < end;) {
        ssize_t n = write(fd, at, (size_t)(end - at));

        if (n >= 0)
            at += n;
        else if (errno == EAGAIN)
            poll(&p, 1, -1);
        else if (errno != EINTR)
            return -errno;
    }
    return 0;
}
