/* segment.c - fiber_shared: memory that the processes of a run on one host share, read-only.
 *
 * A segment is a file in the run's directory below /dev/shm, which ends with the run (rundir.h):
 *
 *     s.NAME   the segment, complete; it appears there by rename and never changes
 *     b.NAME   in the making
 *     l.NAME   the lock of whoever builds it; the kernel frees it when that process dies, and the
 *              next one starts over
 *
 * All of its memory is allocated before it is filled, so that a full /dev/shm is an error here and
 * not a SIGBUS later.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "runtime/runtime.h"

#define SHARED_NAME_MAX 200
#define SHARED_PATH_MAX (FBR_DIR_MAX + SHARED_NAME_MAX + 8)

struct fiber_shared {
    void *data;
    size_t len;
    bool built;
};

/* The segments that this thread is building, the innermost first: to wait for one of them would be
 * for ever. */
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

/* Maps the finished segment. -ENOENT, which is not kept: there is none. */
static int map_finished(struct fiber_shared *s, const char *dir, const char *name)
{
    char path[SHARED_PATH_MAX];
    struct stat st;
    int fd, rc = 0;

    path_of(path, dir, 's', name);
    fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0)
        return errno == ENOENT
                   ? -ENOENT
                   : fbr_keep(-errno, "shared memory: %s: %s", path, fbr_strerror(errno));
    if (fstat(fd, &st) < 0)
        rc = fbr_keep(-errno, "shared memory: %s: %s", path, fbr_strerror(errno));
    else if ((uint64_t)st.st_size != s->len)
        rc = fbr_keep(-EEXIST, "shared memory '%s' exists with %llu bytes; %zu were asked for",
                      name, (unsigned long long)st.st_size, s->len);
    if (rc == 0) {
        s->data = mmap(NULL, s->len, PROT_READ, MAP_SHARED, fd, 0);
        if (s->data == MAP_FAILED)
            rc = fbr_keep(-errno, "shared memory '%s': cannot map %zu bytes: %s", name, s->len,
                          fbr_strerror(errno));
    }
    close(fd);
    return rc;
}

/* A file of len zeroed bytes that has all of its memory. */
static int make_file(const char *path, const char *name, size_t len)
{
    int fd, rc;

    unlink(path); /* of a builder that died */
    fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd < 0)
        return fbr_keep(-errno, "shared memory: %s: %s", path, fbr_strerror(errno));
    do
        rc = posix_fallocate(fd, 0, (off_t)len);
    while (rc == EINTR);
    if (rc == 0)
        return fd;
    close(fd);
    unlink(path);
    return fbr_keep(-rc, "shared memory '%s': no room for %zu bytes in %s: %s", name, len, path,
                    fbr_strerror(rc));
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

/* Under the segment's lock: makes it, and leaves it mapped. */
static int make_segment(struct fiber_shared *s, const char *dir, const char *name,
                        fiber_shared_fn build, void *user)
{
    char path[SHARED_PATH_MAX], final[SHARED_PATH_MAX];
    int fd, rc;

    path_of(path, dir, 'b', name);
    path_of(final, dir, 's', name);
    fd = make_file(path, name, s->len);
    if (fd < 0)
        return fd;
    s->data = mmap(NULL, s->len, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (s->data == MAP_FAILED)
        rc = fbr_keep(-errno, "shared memory '%s': cannot map %zu bytes: %s", name, s->len,
                      fbr_strerror(errno));
    else
        rc = run_builder(s, name, build, user);
    if (rc == 0 && (mprotect(s->data, s->len, PROT_READ) < 0 || fchmod(fd, 0400) < 0 ||
                    rename(path, final) < 0))
        rc = fbr_keep(-errno, "shared memory '%s': %s: %s", name, path, fbr_strerror(errno));
    close(fd);
    s->built = rc == 0;
    if (rc == 0)
        return 0;
    unlink(path);
    if (s->data != MAP_FAILED)
        munmap(s->data, s->len);
    return rc;
}

/* Waits for the lock, then maps what another one built meanwhile, or builds. */
static int build_or_wait(struct fiber_shared *s, const char *dir, const char *name,
                         fiber_shared_fn build, void *user)
{
    char path[SHARED_PATH_MAX];
    int fd, rc;

    for (struct building *b = building; b; b = b->outer)
        if (strcmp(b->name, name) == 0)
            return fbr_keep(-EDEADLK, "shared memory '%s': its own builder asks for it", name);
    path_of(path, dir, 'l', name);
    fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0)
        return fbr_keep(-errno, "shared memory: %s: %s", path, fbr_strerror(errno));
    do
        rc = flock(fd, LOCK_EX) < 0 ? -errno : 0;
    while (rc == -EINTR);
    if (rc < 0)
        fbr_keep(rc, "shared memory: %s: %s", path, fbr_strerror(rc));
    if (rc == 0)
        rc = map_finished(s, dir, name);
    if (rc == -ENOENT)
        rc = make_segment(s, dir, name, build, user);
    close(fd);
    return rc;
}

int fiber_shared_open(struct fiber_shared **out, const char *name, size_t len,
                      fiber_shared_fn build, void *user)
{
    struct fbr_runtime *rt = fbr_rt();
    struct fbr_error err = {0, ""};
    struct fiber_shared *s;
    int rc;

    if (!rt)
        return fbr_kept();
    if (!out || !build || !len || len > PTRDIFF_MAX)
        return fbr_keep(
            -EINVAL,
            "fiber_shared_open: needs a place for the handle, a length above 0, and a builder");
    *out = NULL;
    if (!name || !name_is_good(name))
        return fbr_keep(
            -EINVAL,
            "shared memory '%.64s': a name has 1 to %d of the characters a-z A-Z 0-9 - _ .",
            name ? name : "", SHARED_NAME_MAX);
    rc = fbr_rundir_shm(&rt->dir, &err);
    if (rc < 0)
        return fbr_keep(rc, "shared memory: %s", err.text);
    s = calloc(1, sizeof(*s));
    if (!s)
        return fbr_keep(-ENOMEM, "shared memory: out of memory");
    s->len = len;
    rc = map_finished(s, rt->dir.shm, name);
    if (rc == -ENOENT)
        rc = build_or_wait(s, rt->dir.shm, name, build, user);
    if (rc != 0) {
        free(s);
        return rc;
    }
    *out = s;
    return 0;
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
