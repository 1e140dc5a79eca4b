/* anchor.c - notes on this host of the first Secrets of runs.
 *
 * A directory that belongs to another user, or that another user may write to, is not used.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "backends/kubernetes/anchor.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "runtime/base/environ.h"

#define TEXT_MAX 1024

static int make_dir(const char *path)
{
    struct stat st;

    if (mkdir(path, 0700) < 0 && errno != EEXIST)
        return -errno;
    if (lstat(path, &st) < 0)
        return -errno;
    return S_ISDIR(st.st_mode) && st.st_uid == geteuid() && !(st.st_mode & 022) ? 0 : -EPERM;
}

/* Opens the registry's directory (runtime/inspect/registry.h) and our directory in it: a
 * descriptor, or -errno. */
static int open_dir(bool make)
{
    const char *xdg = fbr_getenv("XDG_RUNTIME_DIR");
    char path[PATH_MAX];
    int n, rc, fd;

    if (xdg && xdg[0] == '/' && strlen(xdg) < 256 && access(xdg, W_OK | X_OK) == 0)
        n = snprintf(path, sizeof(path), "%s/fiber", xdg);
    else
        n = snprintf(path, sizeof(path), "/tmp/fiber-%u", (unsigned)geteuid());
    for (int i = 0; i < 2; i++) {
        struct stat st;

        rc = make ? make_dir(path) : lstat(path, &st) < 0 ? -errno : make_dir(path);
        if (rc < 0)
            return rc;
        if (i == 0)
            snprintf(path + n, sizeof(path) - (size_t)n, "/kubernetes");
    }
    fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
    return fd < 0 ? -errno : fd;
}

static bool is_name(const char *text)
{
    size_t n = strspn(text, "abcdefghijklmnopqrstuvwxyz0123456789-.");

    return n > 0 && n < 64 && !text[n] && !strncmp(text, "fiber-", 6);
}

int fbr_kube_anchor_note(const struct fbr_kube_anchor *a)
{
    int dir = is_name(a->name) ? open_dir(true) : -EINVAL, fd, rc = 0;
    char text[TEXT_MAX];
    int n =
        snprintf(text, sizeof(text), "%s\n%s\n%s\n%s\n", a->server, a->space, a->run, a->master);

    if (dir < 0)
        return dir;
    fd = openat(dir, a->name, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0 || write(fd, text, (size_t)n) != n)
        rc = fd < 0 || errno ? -errno : -EIO;
    if (fd >= 0)
        close(fd);
    if (rc < 0)
        unlinkat(dir, a->name, 0);
    close(dir);
    return rc;
}

void fbr_kube_anchor_forget(const char *name)
{
    int dir = is_name(name) ? open_dir(false) : -EINVAL;

    if (dir < 0)
        return;
    unlinkat(dir, name, 0);
    close(dir);
}

/* Copies one line of at most size - 1 bytes. Returns the text after it, or NULL. */
static const char *take_line(const char *text, char *out, size_t size)
{
    const char *end = text ? strchr(text, '\n') : NULL;

    if (!end || end == text || (size_t)(end - text) >= size)
        return NULL;
    memcpy(out, text, (size_t)(end - text));
    out[end - text] = '\0';
    return end + 1;
}

static bool read_note(int dir, const char *name, struct fbr_kube_anchor *a)
{
    int fd = is_name(name) ? openat(dir, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC) : -1;
    char text[TEXT_MAX];
    const char *at = text;
    struct stat st = {0};
    ssize_t len = fd < 0 ? -1 : read(fd, text, sizeof(text) - 1);

    if (fd >= 0) {
        fstat(fd, &st);
        close(fd);
    }
    if (len <= 0)
        return false;
    text[len] = '\0';
    memset(a, 0, sizeof(*a));
    snprintf(a->name, sizeof(a->name), "%.63s", name);
    a->since_ms = (int64_t)st.st_mtime * 1000;
    at = take_line(at, a->server, sizeof(a->server));
    at = take_line(at, a->space, sizeof(a->space));
    at = take_line(at, a->run, sizeof(a->run));
    at = take_line(at, a->master, sizeof(a->master));
    return at && !*at;
}

void fbr_kube_anchor_each(const char *server, const char *space,
                          void (*found)(void *user, const struct fbr_kube_anchor *a), void *user)
{
    struct fbr_kube_anchor a;
    struct dirent *e;
    int fd = open_dir(false);
    DIR *dir = fd < 0 ? NULL : fdopendir(fd);

    if (!dir && fd >= 0)
        close(fd);
    while (dir && (e = readdir(dir)))
        if (read_note(fd, e->d_name, &a) && !strcmp(a.server, server) && !strcmp(a.space, space))
            found(user, &a);
    if (dir)
        closedir(dir);
}
