/* sync.c - waiting for other processes by events; see sync.h.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/sync.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static void die(const char *what)
{
    perror(what);
    abort();
}

static int64_t now_ms(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

void gate_open(struct gate *g)
{
    static int count;
    int rc;

    do { /* one who had our pid may have been killed, and have left his */
        snprintf(g->path, sizeof(g->path), "/tmp/fbrtest-gate-%d-%d", (int)getpid(),
                 __atomic_add_fetch(&count, 1, __ATOMIC_RELAXED));
        rc = mkfifo(g->path, 0600);
    } while (rc < 0 && errno == EEXIST);
    if (rc < 0)
        die(g->path);
    g->fd = open(g->path, O_RDWR | O_NONBLOCK | O_CLOEXEC); /* for writing too: it never ends */
    if (g->fd < 0)
        die(g->path);
}

void gate_close(struct gate *g)
{
    close(g->fd);
    unlink(g->path);
}

int gate_notify(const char *path, const void *data, size_t len)
{
    int fd = open(path, O_WRONLY | O_CLOEXEC), rc = 0;

    if (fd < 0 || write(fd, data, len) != (ssize_t)len)
        rc = -errno;
    if (fd >= 0)
        close(fd);
    return rc;
}

int gate_wait(struct gate *g, void *data, size_t len)
{
    int64_t deadline = now_ms() + TEST_LONG_MS;
    char *at = data;

    while (len) {
        struct pollfd p = {.fd = g->fd, .events = POLLIN};
        ssize_t n = read(g->fd, at, len);

        if (n > 0) {
            at += n;
            len -= (size_t)n;
        } else if (now_ms() >= deadline || poll(&p, 1, (int)(deadline - now_ms())) == 0) {
            return -ETIMEDOUT;
        }
    }
    return 0;
}

int gate_listen(const char *path)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    char byte;
    ssize_t n = fd < 0 ? -1 : read(fd, &byte, 1);

    if (fd >= 0)
        close(fd);
    return n == 1 ? 0 : -EIO;
}

int pid_open(pid_t pid)
{
    int fd = (int)syscall(SYS_pidfd_open, pid, 0);

    if (fd < 0 && errno != ESRCH)
        die("pidfd_open");
    return fd;
}

int pids_gone(int *pidfds, size_t n, int timeout_ms)
{
    int64_t deadline = now_ms() + timeout_ms;
    int alive = 0;

    for (size_t i = 0; i < n; i++) {
        struct pollfd p = {.fd = pidfds[i], .events = POLLIN};
        int64_t left = deadline - now_ms();

        if (pidfds[i] < 0)
            continue;
        if (poll(&p, 1, left > 0 ? (int)left : 0) == 0)
            alive++;
        close(pidfds[i]);
    }
    return alive;
}

void let_time_pass(int ms)
{
    poll(NULL, 0, ms);
}

void temp_dir_make(char path[64])
{
    strcpy(path, "/tmp/fbrtest-XXXXXX");
    if (!mkdtemp(path))
        die(path);
}

static int open_up(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
    return type == FTW_D ? chmod(path, 0700) : 0;
}

static int remove_entry(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
    return remove(path);
}

void temp_dir_remove(const char *path)
{
    nftw(path, open_up, 8, FTW_PHYS);
    nftw(path, remove_entry, 8, FTW_DEPTH | FTW_PHYS);
}

int dir_count(const char *path, const char *prefix)
{
    DIR *d = opendir(path);
    struct dirent *e;
    int n = 0;

    if (!d)
        return -1;
    while ((e = readdir(d)))
        if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0 &&
            strncmp(e->d_name, prefix, strlen(prefix)) == 0)
            n++;
    closedir(d);
    return n;
}
