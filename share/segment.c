/* segment.c - fiber_shared: memory that the processes of a run on one machine share, read-only or
 * writable.
 *
 * A segment is a file in the run's directory below /dev/shm, which ends with the run (rundir.h):
 *
 *     s.NAME   the complete segment; it appears by rename and never changes
 *     b.NAME   a segment that is being built
 *     l.NAME   the lock of its builder, which removes the file when it is done, well or not; the
 *              kernel releases the lock when that process dies, and the next builder starts over
 *     w.NAME   a writable segment; it appears by link(2), zeroed, so that only one process makes it
 *     n.*      a writable segment that is being made
 *
 * All of its memory is allocated before it is filled, so that a lack of room is an error here and
 * not a SIGBUS later. If /dev/shm is too small, as in many containers, the file is in the run's
 * other directory, and its name here is a symbolic link.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "runtime/proc/context.h"

#define SHARED_NAME_MAX 200
#define SHARED_PATH_MAX (FBR_DIR_MAX + SHARED_NAME_MAX + 8)

struct fiber_shared {
    void *data;
    size_t len;
    bool built, writable;
};

/* The segments that this thread is building, the innermost first: a wait for one of them would
 * never end. */
struct building {
    const char *name;
    struct building *outer;
};

static _Thread_local struct building *building;

static bool name_is_good(const char *name)
{
    size_t n = strlen(name);

    return n > 0 && n <= SHARED_NAME_MAX &&
           strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.") == n;
}

static void path_of(char path[SHARED_PATH_MAX], const char *dir, char kind, const char *name)
{
    snprintf(path, SHARED_PATH_MAX, "%s/%c.%s", dir, kind, name);
}

/* Maps a file of s->len bytes. */
static int map_fd(struct fiber_shared *s, const char *name, int fd)
{
    int prot = s->writable ? PROT_READ | PROT_WRITE : PROT_READ;

    s->data = mmap(NULL, s->len, prot, MAP_SHARED, fd, 0);
    return s->data == MAP_FAILED ? fbr_keep(-errno, "shared memory '%s': cannot map %zu bytes: %s",
                                            name, s->len, fbr_strerror(errno))
                                 : 0;
}

/* The file to which `path` is a symbolic link; false: it is none. */
static bool link_of(const char *path, char file[SHARED_PATH_MAX])
{
    ssize_t n = readlink(path, file, SHARED_PATH_MAX - 1);

    file[n > 0 ? n : 0] = '\0';
    return n > 0;
}

/* Whether somebody has removed the file but not the link to it. */
static bool leads_nowhere(const char *path)
{
    char file[SHARED_PATH_MAX];

    return link_of(path, file) && access(file, F_OK) < 0;
}

/* Removes a segment; returns a negative errno. */
static int remove_segment(const char *path)
{
    char file[SHARED_PATH_MAX];
    bool linked = link_of(path, file);

    if (unlink(path) < 0)
        return -errno;
    if (linked)
        unlink(file);
    return 0;
}

/* Maps the existing segment; s->len is its length, or 0 for any. -ENOENT, which is not kept: there
 * is none. */
static int map_finished(struct fiber_shared *s, const char *dir, const char *name)
{
    char path[SHARED_PATH_MAX];
    struct stat st;
    int fd, rc;

    path_of(path, dir, s->writable ? 'w' : 's', name);
    fd = open(path, (s->writable ? O_RDWR : O_RDONLY) | O_CLOEXEC);
    if (fd < 0 && errno == ENOENT)
        return leads_nowhere(path)
                   ? fbr_keep(-ESTALE, "shared memory '%s': somebody has removed its file", name)
                   : -ENOENT;
    if (fd < 0)
        return fbr_keep(-errno, "shared memory: %s: %s", path, fbr_strerror(errno));
    if (fstat(fd, &st) < 0) {
        rc = fbr_keep(-errno, "shared memory: %s: %s", path, fbr_strerror(errno));
    } else if (s->len && (uint64_t)st.st_size != s->len) {
        rc = fbr_keep(-EEXIST, "shared memory '%s' exists with %llu bytes; %zu were requested",
                      name, (unsigned long long)st.st_size, s->len);
    } else {
        s->len = (size_t)st.st_size;
        rc = map_fd(s, name, fd);
    }
    close(fd);
    return rc;
}

/* Allocates the memory of a file; returns an errno. Above RLIMIT_FSIZE the kernel would send
 * SIGXFSZ, which ends the program. Signals are blocked meanwhile, except those that people send to
 * end a program. On many kernels a signal makes the call start again from nothing, so the timer of
 * a profiler would keep a long call from ever ending. */
static int allocate(int fd, size_t len)
{
    static const int sent[] = {SIGHUP, SIGINT, SIGQUIT, SIGTERM};
    struct rlimit most;
    sigset_t others, old;
    int rc;

    if (getrlimit(RLIMIT_FSIZE, &most) == 0 && len > most.rlim_cur)
        return EFBIG;
    sigfillset(&others);
    for (size_t i = 0; i < sizeof(sent) / sizeof(sent[0]); i++)
        sigdelset(&others, sent[i]);
    pthread_sigmask(SIG_BLOCK, &others, &old);
    do
        rc = posix_fallocate(fd, 0, (off_t)len);
    while (rc == EINTR);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    return rc;
}

/* Makes a file of `len` zeroed bytes in the directory `root`, and the link `path` to it: a
 * descriptor, or a negative errno. An allocation that fails may fill a disk for a while, so it is
 * not tried without need. */
static int make_linked(const char *root, const char *path, size_t len)
{
    char file[FBR_DIR_MAX + 16];
    struct statvfs fs;
    int fd, rc;

    if (statvfs(root, &fs) < 0)
        return -errno;
    if (len / fs.f_frsize >= fs.f_bavail)
        return -ENOSPC;
    snprintf(file, sizeof(file), "%s/shm.XXXXXX", root);
    fd = mkostemp(file, O_CLOEXEC);
    if (fd < 0)
        return -errno;
    rc = allocate(fd, len);
    if (!rc && symlink(file, path) == 0)
        return fd;
    rc = rc ? -rc : -errno;
    close(fd);
    unlink(file);
    return rc;
}

/* Gives a new file `len` zeroed bytes, with all of their memory, and returns its descriptor. On
 * failure closes and removes the file. */
static int fill_file(int fd, const char *path, const char *name, size_t len)
{
    const char *root = fbr_rt_any()->dir.root; /* the context may have ended by now */
    int rc;

    if (fd < 0)
        return fbr_keep(-errno, "shared memory: %s: %s", path, fbr_strerror(errno));
    rc = allocate(fd, len);
    if (!rc)
        return fd;
    close(fd);
    unlink(path);
    fd = rc == ENOSPC ? make_linked(root, path, len) : -rc;
    return fd >= 0
               ? fd
               : fbr_keep(fd, "shared memory '%s': no room for %zu bytes in %s%s%s: %s%s", name,
                          len, path, rc == ENOSPC ? ", and none in " : "", rc == ENOSPC ? root : "",
                          fbr_strerror(fd), rc == EFBIG ? " (the limit is ulimit -f)" : "");
}

static int run_builder(struct fiber_shared *s, const char *name, fiber_shared_fn build, void *user)
{
    struct building here = {name, building};
    int rc;

    building = &here;
    rc = build(s->data, s->len, user);
    building = here.outer;
    return rc == 0 ? 0
                   : fbr_keep(rc > 0 ? -EIO : rc, "shared memory '%s': its builder returned %d",
                              name, rc);
}

/* Under the segment's lock: makes the segment and leaves it mapped. */
static int make_segment(struct fiber_shared *s, const char *dir, const char *name,
                        fiber_shared_fn build, void *user)
{
    char path[SHARED_PATH_MAX], final[SHARED_PATH_MAX];
    int fd, rc;

    path_of(path, dir, 'b', name);
    path_of(final, dir, 's', name);
    remove_segment(path); /* left by a builder that died */
    fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    fd = fill_file(fd, path, name, s->len);
    if (fd < 0)
        return fd;
    s->writable = true; /* until it is built */
    rc = map_fd(s, name, fd);
    s->writable = false;
    if (rc < 0)
        goto fail_file;
    rc = run_builder(s, name, build, user);
    if (rc < 0)
        goto fail;
    if (mprotect(s->data, s->len, PROT_READ) < 0 || fchmod(fd, 0400) < 0 ||
        rename(path, final) < 0) {
        rc = fbr_keep(-errno, "shared memory '%s': %s: %s", name, path, fbr_strerror(errno));
        goto fail;
    }
    close(fd);
    s->built = true;
    return 0;
fail:
    munmap(s->data, s->len);
fail_file:
    close(fd);
    remove_segment(path);
    return rc;
}

/* Opens a builder's lock and waits for it: a descriptor, or a negative errno. */
static int lock_builder(const char *path, bool create)
{
    struct stat st = {.st_nlink = 0};
    int fd, rc;

    for (;;) {
        fd = open(path, O_RDWR | (create ? O_CREAT : 0) | O_CLOEXEC | O_NOFOLLOW, 0600);
        if (fd < 0)
            return -errno;
        do
            rc = flock(fd, LOCK_EX) < 0 ? -errno : 0;
        while (rc == -EINTR);
        if (rc == 0 && fstat(fd, &st) < 0)
            rc = -errno;
        if (rc == 0 && st.st_nlink)
            return fd;
        close(fd);
        if (rc < 0)
            return rc;
        /* the process that had the lock has removed the file: another file is the lock now */
    }
}

/* Waits for the lock, then maps the segment that another process built meanwhile, or builds it.
 * `build` NULL: -ENOENT, not kept. */
static int build_or_wait(struct fiber_shared *s, const char *dir, const char *name,
                         fiber_shared_fn build, void *user)
{
    char path[SHARED_PATH_MAX];
    int fd, rc;

    for (struct building *b = building; b; b = b->outer)
        if (strcmp(b->name, name) == 0)
            return fbr_keep(-EDEADLK, "shared memory '%s': its own builder opens it", name);
    path_of(path, dir, 'l', name);
    fd = lock_builder(path, build != NULL);
    if (fd < 0 && (fd != -ENOENT || build))
        return fbr_keep(fd, "shared memory: %s: %s", path, fbr_strerror(fd));
    rc = map_finished(s, dir, name);
    if (fd < 0)
        return rc;
    if (rc == -ENOENT && build)
        rc = make_segment(s, dir, name, build, user);
    unlink(path); /* while it is locked */
    close(fd);
    return rc;
}

/* Makes a writable segment and maps it. -EEXIST, which is not kept: another process was faster. */
static int make_writable(struct fiber_shared *s, const char *dir, const char *name)
{
    char path[SHARED_PATH_MAX], final[SHARED_PATH_MAX];
    int fd, rc;

    path_of(path, dir, 'n', "XXXXXX");
    path_of(final, dir, 'w', name);
    fd = fill_file(mkostemp(path, O_CLOEXEC), path, name, s->len);
    if (fd < 0)
        return fd;
    rc = map_fd(s, name, fd);
    close(fd);
    if (rc < 0)
        goto fail;
    if (link(path, final) == 0) {
        unlink(path);
        s->built = true;
        return 0;
    }
    rc = errno == EEXIST ? -EEXIST
                         : fbr_keep(-errno, "shared memory: %s: %s", final, fbr_strerror(errno));
    munmap(s->data, s->len);
fail:
    remove_segment(path);
    return rc;
}

/* Another process may make or delete the segment at any time. */
static int map_or_make(struct fiber_shared *s, const char *dir, const char *name, unsigned flags)
{
    int rc;

    do {
        rc = flags & FIBER_SHARED_EXCLUSIVE ? -ENOENT : map_finished(s, dir, name);
        if (rc == -ENOENT && flags)
            rc = make_writable(s, dir, name);
        else
            break;
    } while (rc == -EEXIST && !(flags & FIBER_SHARED_EXCLUSIVE));
    return rc == -EEXIST && flags & FIBER_SHARED_EXCLUSIVE
               ? fbr_keep(rc, "shared memory '%s' exists already", name)
               : rc;
}

static int check_name(const char *name)
{
    return name && name_is_good(name)
               ? 0
               : fbr_keep(-EINVAL,
                          "shared memory '%.64s': a name has 1 to %d of the characters a-z A-Z 0-9 "
                          "- _ .",
                          name ? name : "", SHARED_NAME_MAX);
}

/* The directory of this run's segments, in *dir. */
static int find_dir(const char **dir)
{
    struct fbr_runtime *rt = fbr_rt();
    struct fbr_error err = {0, ""};
    int rc;

    if (!rt)
        return fbr_kept();
    rc = fbr_rundir_shm(&rt->dir, &err);
    *dir = rt->dir.shm;
    return rc < 0 ? fbr_keep(rc, "shared memory: %s", err.text) : 0;
}

/* A new handle for a segment of that name; NULL: kept. */
static struct fiber_shared *new_shared(const char *name, size_t len, const char **dir)
{
    struct fiber_shared *s;

    if (check_name(name) < 0 || find_dir(dir) < 0)
        return NULL;
    s = calloc(1, sizeof(*s));
    if (!s)
        fbr_keep(-ENOMEM, "shared memory: out of memory");
    else
        s->len = len;
    return s;
}

/* Hands over the result of an open that ended with rc. `makes`: the open makes a segment that it
 * does not find, so every error is kept. */
static int hand_over(struct fiber_shared *s, const char *name, bool makes, int rc,
                     struct fiber_shared **out)
{
    if (rc < 0) {
        free(s);
        return rc == -ENOENT && !makes
                   ? fbr_keep(rc, "there is no shared memory '%s' on this host", name)
                   : rc;
    }
    *out = s;
    return 0;
}

int fiber_shared_open(struct fiber_shared **out, const char *name, size_t len,
                      fiber_shared_fn build, void *user)
{
    struct fiber_shared *s;
    const char *dir;
    int rc;

    if (!out || (build && !len) || len > PTRDIFF_MAX)
        return fbr_keep(-EINVAL, "fiber_shared_open: needs a pointer for the handle, and a length "
                                 "above 0 if there is a builder");
    *out = NULL;
    s = new_shared(name, len, &dir);
    if (!s)
        return fbr_kept();
    rc = map_finished(s, dir, name);
    if (rc == -ENOENT)
        rc = build_or_wait(s, dir, name, build, user);
    return hand_over(s, name, build != NULL, rc, out);
}

int fiber_shared_open_writable(struct fiber_shared **out, const char *name, size_t len,
                               unsigned flags)
{
    struct fiber_shared *s;
    const char *dir;

    if (!out || (flags && !len) || len > PTRDIFF_MAX ||
        (flags & ~(FIBER_SHARED_CREATE | FIBER_SHARED_EXCLUSIVE)))
        return fbr_keep(-EINVAL, "fiber_shared_open_writable: needs a pointer for the handle, "
                                 "valid flags, and a length above 0 to create the memory");
    *out = NULL;
    s = new_shared(name, len, &dir);
    if (!s)
        return fbr_kept();
    s->writable = true;
    return hand_over(s, name, flags != 0, map_or_make(s, dir, name, flags), out);
}

int fiber_shared_delete(const char *name)
{
    char path[SHARED_PATH_MAX];
    bool found = false;
    const char *dir = "";
    int rc;

    if ((rc = check_name(name)) < 0 || (rc = find_dir(&dir)) < 0)
        return rc;
    for (const char *kind = "sw"; *kind; kind++) {
        path_of(path, dir, *kind, name);
        rc = remove_segment(path);
        if (rc < 0 && rc != -ENOENT)
            return fbr_keep(rc, "shared memory: %s: %s", path, fbr_strerror(rc));
        found |= rc == 0;
    }
    return found ? 0 : fbr_keep(-ENOENT, "there is no shared memory '%s' on this host", name);
}

void *fiber_shared_memory(struct fiber_shared *s)
{
    if (s->writable)
        return s->data;
    fbr_keep(-EPERM, "this shared memory is read-only");
    return NULL;
}

const void *fiber_shared_data(struct fiber_shared *s)
{
    return s->data;
}

size_t fiber_shared_len(struct fiber_shared *s)
{
    return s->len;
}

int fiber_shared_built(struct fiber_shared *s)
{
    return s->built;
}

void fiber_shared_close(struct fiber_shared *s)
{
    if (!s)
        return;
    munmap(s->data, s->len);
    free(s);
}
