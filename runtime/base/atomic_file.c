/* atomic_file.c - temporary files next to their final path, renamed into place when complete.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "runtime/base/atomic_file.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "runtime/base/fds.h"

#define DAY_S (24 * 3600)
#define DEPTH 80 /* depth of nested directories: more than tree.h ever makes */
#define TRIES 100
#define BOOT 8 /* digits of the boot id */

/* ---- Removing ---- */

static void remove_at(int at, const char *name, unsigned depth);

/* Removes the contents of a directory. Closes fd. */
static void remove_inside(int fd, unsigned depth)
{
    DIR *d = fdopendir(fd);
    struct dirent *e;

    if (!d) {
        close(fd);
        return;
    }
    while ((e = readdir(d)))
        if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0 && depth < DEPTH)
            remove_at(fd, e->d_name, depth + 1);
    closedir(d);
}

/* Makes a directory writable for us. Works on its descriptor, because another process may put a
 * link in its place meanwhile. */
static void open_up(int at, const char *name)
{
    int fd = openat(at, name, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    char self[32];

    if (fd < 0)
        return;
    snprintf(self, sizeof(self), "/proc/self/fd/%d", fd);
    chmod(self, 0700);
    close(fd);
}

static void remove_at(int at, const char *name, unsigned depth)
{
    struct stat st;
    int fd;

    if (unlinkat(at, name, 0) == 0 || fstatat(at, name, &st, AT_SYMLINK_NOFOLLOW) < 0 ||
        !S_ISDIR(st.st_mode))
        return;
    open_up(at, name);
    fd = openat(at, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd >= 0)
        remove_inside(fd, depth);
    unlinkat(at, name, AT_REMOVEDIR);
}

void fbr_atomic_remove(const char *name)
{
    remove_at(AT_FDCWD, name, 0);
}

/* ---- Names ---- */

/* Stores the folder of path, without a slash at its end, except for "/". */
static int folder_of(const char *path, char *folder, size_t size)
{
    const char *slash = strrchr(path, '/');
    int n;

    if (!slash)
        n = snprintf(folder, size, ".");
    else
        n = snprintf(folder, size, "%.*s", slash == path ? 1 : (int)(slash - path), path);
    return n < 0 || (size_t)n >= size ? -ENAMETOOLONG : 0;
}

/* Stores the boot id, or "" if it cannot be read. */
static void boot_of_ours(char boot[BOOT + 1])
{
    if (fbr_fds_read_file("/proc/sys/kernel/random/boot_id", boot, BOOT + 1) != BOOT)
        boot[0] = '\0';
}

static int name_beside(const char *path, const char *end, char *name, size_t size)
{
    char folder[PATH_MAX + NAME_MAX], boot[BOOT + 1];
    int rc = folder_of(path, folder, sizeof(folder)), n;

    if (rc < 0)
        return rc;
    boot_of_ours(boot);
    n = snprintf(name, size, "%s/" FBR_ATOMIC_PREFIX "%s-%s", folder, boot[0] ? boot : "unknown",
                 end);
    return n < 0 || (size_t)n >= size ? -ENAMETOOLONG : 0;
}

/* ---- Files that other processes left behind ---- */

static int lock(int fd, int how)
{
    int rc;

    rc = TEMP_FAILURE_RETRY(flock(fd, how));
    return rc < 0 ? -errno : 0;
}

/* Whether a temporary file may be removed if it has no lock. */
static bool is_old(const struct stat *st, const char *name, const char *boot)
{
    const char *of = name + sizeof(FBR_ATOMIC_PREFIX) - 1;

    if (boot[0] && !strncmp(of, boot, BOOT) && of[BOOT] == '-')
        return true;
    return time(NULL) - st->st_mtime > DAY_S;
}

#define OLD_FLAGS (O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC)

/* Locks an old file. NFS locks only a file that is open for writing. Others are not opened so: the
 * owner of a file could not execute it meanwhile. */
static int lock_old(int *fd, int at, const char *name, struct stat *st)
{
    int rc = lock(*fd, LOCK_EX | LOCK_NB), again;

    if (rc != -EBADF || !S_ISREG(st->st_mode))
        return rc;
    again = openat(at, name, O_RDWR | OLD_FLAGS);
    if (again < 0)
        return -errno;
    close(*fd);
    *fd = again;
    return fstat(again, st) < 0 ? -errno : lock(again, LOCK_EX | LOCK_NB);
}

/* Removes a temporary file that no process writes: the file has no lock, and is still in its place
 * once we have the lock. */
static void sweep_one(int at, const char *name, const char *boot)
{
    int fd = openat(at, name, O_RDONLY | OLD_FLAGS);
    struct stat st, now;

    if (fd < 0)
        return;
    if (fstat(fd, &st) == 0 && st.st_uid == geteuid() &&
        (S_ISDIR(st.st_mode) || S_ISREG(st.st_mode)) && is_old(&st, name, boot) &&
        lock_old(&fd, at, name, &st) == 0 && fstatat(at, name, &now, AT_SYMLINK_NOFOLLOW) == 0 &&
        st.st_ino == now.st_ino && st.st_dev == now.st_dev)
        remove_at(at, name, 0);
    close(fd);
}

static void sweep(const char *path)
{
    char folder[PATH_MAX + NAME_MAX], boot[BOOT + 1];
    DIR *d = folder_of(path, folder, sizeof(folder)) == 0 ? opendir(folder) : NULL;
    struct dirent *e;

    boot_of_ours(boot);
    while (d && (e = readdir(d)))
        if (!strncmp(e->d_name, FBR_ATOMIC_PREFIX, sizeof(FBR_ATOMIC_PREFIX) - 1))
            sweep_one(dirfd(d), e->d_name, boot);
    if (d)
        closedir(d);
}

bool fbr_atomic_in_use(int at, const char *name)
{
    bool used;
    int fd;

    if (strncmp(name, FBR_ATOMIC_PREFIX, sizeof(FBR_ATOMIC_PREFIX) - 1) != 0)
        return false;
    fd = openat(at, name, O_RDONLY | OLD_FLAGS);
    if (fd < 0)
        return false;
    used = lock(fd, LOCK_SH | LOCK_NB) == -EWOULDBLOCK;
    close(fd);
    return used;
}

/* ---- Making ---- */

/* Locks a new temporary file. False: another process removed the file before the lock. */
static bool hold(int fd, const char *name)
{
    struct stat now, st;

    if (lock(fd, LOCK_EX | LOCK_NB) == -EWOULDBLOCK)
        return false;
    /* Other errors mean that there are no locks; then no process removes temporary files. */
    return fstat(fd, &st) == 0 && lstat(name, &now) == 0 && st.st_ino == now.st_ino &&
           st.st_dev == now.st_dev;
}

static int make(const char *path, char *name, size_t size, bool dir)
{
    int rc, fd;

    sweep(path);
    for (int i = 0; i < TRIES; i++) {
        rc = name_beside(path, "XXXXXX", name, size);
        if (rc < 0)
            return rc;
        if (!dir)
            fd = mkostemp(name, O_CLOEXEC);
        else if (!mkdtemp(name))
            return -errno;
        else
            fd = open(name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        if (fd >= 0 && hold(fd, name))
            return fd;
        rc = fd < 0 ? -errno : -EAGAIN;
        fbr_fds_close(fd);
        if (rc != -EAGAIN && rc != -ENOENT) {
            if (dir)
                rmdir(name);
            return rc;
        }
        /* The folder does not exist. */
        if (rc == -ENOENT && !dir)
            return rc;
    }
    return -EBUSY;
}

int fbr_atomic_dir(const char *path, char *name, size_t size)
{
    return make(path, name, size, true);
}

/* Opens a file that has no name until name_it() gives it one. -EOPNOTSUPP: the file system does not
 * support such files. */
static int open_nameless(const char *path)
{
    char folder[PATH_MAX + NAME_MAX];
    int rc = folder_of(path, folder, sizeof(folder)), fd;

    if (rc < 0)
        return rc;
    sweep(path);
    fd = open(folder, O_TMPFILE | O_WRONLY | O_CLOEXEC, 0600);
    if (fd < 0)
        return errno == EISDIR || errno == EINVAL ? -EOPNOTSUPP : -errno;
    lock(fd, LOCK_EX | LOCK_NB);
    return fd;
}

static int name_it(struct fbr_atomic *f)
{
    char self[32], end[32];
    int rc;

    snprintf(self, sizeof(self), "/proc/self/fd/%d", f->fd);
    for (int i = 0; i < TRIES; i++) {
        snprintf(end, sizeof(end), "%d-%d", (int)getpid(), i);
        rc = name_beside(f->path, end, f->beside, sizeof(f->beside));
        if (rc < 0 || linkat(AT_FDCWD, self, AT_FDCWD, f->beside, AT_SYMLINK_FOLLOW) == 0)
            return rc;
        if (errno != EEXIST)
            break;
    }
    return -errno;
}

/* ---- Files ---- */

int fbr_atomic_fail(struct fbr_atomic *f, int rc, struct fbr_error *err)
{
    fbr_fail(err, rc, "%.300s: %s", f->path, fbr_strerror(rc));
    fbr_atomic_drop(f);
    return rc;
}

/* Puts the target of a link, which is made if it does not exist, in place of the link. Only the
 * kernel follows it: it refuses links of other users in /tmp (protected_symlinks). */
static int follow_link(char *path, size_t size)
{
    char self[32];
    struct stat st;
    ssize_t n;
    int fd;

    if (lstat(path, &st) < 0 || !S_ISLNK(st.st_mode))
        return 0;
    fd = open(path, O_WRONLY | O_CREAT | O_NONBLOCK | O_CLOEXEC, 0600);
    if (fd < 0)
        return -errno;
    snprintf(self, sizeof(self), "/proc/self/fd/%d", fd);
    n = readlink(self, path, size - 1);
    path[n > 0 ? n : 0] = '\0';
    close(fd);
    return n > 0 ? 0 : -ENOENT;
}

int fbr_atomic_begin(struct fbr_atomic *f, const char *path, const char *name,
                     struct fbr_error *err)
{
    struct stat st;
    int n;

    memset(f, 0, sizeof(*f));
    f->fd = -1;
    if (!path[0])
        path = ".";
    if (stat(path, &st) == 0 && S_ISDIR(st.st_mode))
        n = snprintf(f->path, sizeof(f->path), "%s/%s", path, name);
    else if (path[strlen(path) - 1] == '/')
        return fbr_fail(err, -ENOENT, "%.300s: no such directory", path);
    else
        n = snprintf(f->path, sizeof(f->path), "%s", path);
    if (n >= (int)sizeof(f->path))
        return fbr_fail(err, -ENAMETOOLONG, "%.300s...: the name is too long", path);
    if (stat(f->path, &st) == 0 && !S_ISREG(st.st_mode))
        return fbr_fail(err, -EEXIST, "%.300s exists, and is not a regular file", f->path);
    f->fd = follow_link(f->path, sizeof(f->path));
    if (f->fd == 0)
        f->fd = open_nameless(f->path);
    if (f->fd == -EOPNOTSUPP) {
        f->fd = make(f->path, f->beside, sizeof(f->beside), false);
        f->named = f->fd >= 0;
    }
    return f->fd < 0 ? fbr_atomic_fail(f, f->fd, err) : 0;
}

/* A quota or a file server may report that the file is not whole only when it is closed. */
static int close_copy(int fd)
{
    int copy = fcntl(fd, F_DUPFD_CLOEXEC, 0);

    return copy < 0 || close(copy) < 0 ? -1 : 0;
}

int fbr_atomic_commit(struct fbr_atomic *f, unsigned mode, struct fbr_error *err)
{
    int rc;

    if (fchmod(f->fd, mode & 0777) < 0 || close_copy(f->fd) < 0)
        return fbr_atomic_fail(f, -errno, err);
    if (!f->named) { /* a temporary name first: only a rename replaces an existing file */
        rc = name_it(f);
        if (rc < 0)
            return fbr_atomic_fail(f, rc, err);
        f->named = true;
    }
    if (rename(f->beside, f->path) < 0)
        return fbr_atomic_fail(f, -errno, err);
    f->named = false;
    fbr_atomic_drop(f);
    return 0;
}

void fbr_atomic_drop(struct fbr_atomic *f)
{
    if (f->named)
        unlink(f->beside);
    f->fd = fbr_fds_close(f->fd);
    f->named = false;
}
