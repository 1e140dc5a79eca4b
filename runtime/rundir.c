/* rundir.c - a run's directories on one host; see rundir.h.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "runtime/rundir.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#define PREFIX "fiber-"
#define SHM "/dev/shm"

static int remove_entry(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
    (void)st;
    (void)type;
    (void)ftw;
    remove(path); /* somebody else may be removing it too */
    return 0;
}

static void remove_tree(const char *path)
{
    if (path[0])
        nftw(path, remove_entry, 8, FTW_DEPTH | FTW_PHYS | FTW_MOUNT);
}

static void shm_of(const char *root, char out[FBR_DIR_MAX])
{
    const char *slash = strrchr(root, '/');

    snprintf(out, FBR_DIR_MAX, SHM "/%.48s", slash ? slash + 1 : root);
}

void fbr_rundir_wreck(const char *root)
{
    char shm[FBR_DIR_MAX];

    if (!root[0])
        return;
    shm_of(root, shm);
    remove_tree(shm);
    remove_tree(root);
}

/* Nobody holds the lock of a directory whose master is dead. A directory without a lock may just be in the making. */
static bool is_dead(const char *dir)
{
    char path[FBR_DIR_MAX + 300];
    struct stat st;
    int fd;
    bool dead;

    if (lstat(dir, &st) < 0 || !S_ISDIR(st.st_mode) || st.st_uid != geteuid())
        return false;
    snprintf(path, sizeof(path), "%s/lock", dir);
    fd = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0)
        return false;
    dead = flock(fd, LOCK_EX | LOCK_NB) == 0;
    close(fd);
    return dead;
}

static void sweep(const char *base)
{
    DIR *d = opendir(base);
    struct dirent *e;

    while (d && (e = readdir(d))) {
        char path[FBR_DIR_MAX + 300];

        if (strncmp(e->d_name, PREFIX, strlen(PREFIX)) != 0)
            continue;
        snprintf(path, sizeof(path), "%s/%s", base, e->d_name);
        if (strlen(path) < FBR_DIR_MAX && is_dead(path))
            fbr_rundir_wreck(path);
    }
    if (d)
        closedir(d);
}

static const char *base_dir(const char *base)
{
    const char *xdg = getenv("XDG_RUNTIME_DIR");
    struct stat st;

    if (base && base[0])
        return base;
    if (xdg && xdg[0] == '/' && strlen(xdg) < FBR_DIR_MAX - 32 && stat(xdg, &st) == 0 && st.st_uid == geteuid() &&
        access(xdg, W_OK) == 0)
        return xdg;
    return "/tmp";
}

static int take_lock(struct fbr_rundir *d)
{
    char path[FBR_DIR_MAX + 8];

    snprintf(path, sizeof(path), "%s/lock", d->root);
    d->lock_fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (d->lock_fd < 0 || flock(d->lock_fd, LOCK_EX | LOCK_NB) < 0)
        return -errno;
    return 0;
}

int fbr_rundir_create(struct fbr_rundir *d, const char *base, struct fbr_error *err)
{
    int rc;

    memset(d, 0, sizeof(*d));
    d->lock_fd = -1;
    d->master = true;
    base = base_dir(base);
    if (base[0] != '/' || strlen(base) > FBR_DIR_MAX - 32)
        return fbr_fail(err, -ENAMETOOLONG,
                        "run directory '%s': must be an absolute path of at most %d bytes, because socket names are short; "
                        "set run_dir", base, FBR_DIR_MAX - 32);
    sweep(base);
    snprintf(d->root, sizeof(d->root), "%.*s/" PREFIX "%d-XXXXXX", FBR_DIR_MAX - 32, base, (int)getpid());
    if (!mkdtemp(d->root)) { /* mode 0700 */
        rc = fbr_fail(err, -errno, "cannot make a run directory in %s: %s; set run_dir to one that can be written", base,
                      fbr_strerror(errno));
        d->root[0] = '\0';
        return rc;
    }
    snprintf(d->own, sizeof(d->own), "%s", d->root);
    shm_of(d->root, d->shm);
    rc = take_lock(d);
    return rc < 0 ? fbr_fail(err, rc, "run directory %s: %s", d->root, fbr_strerror(rc)) : 0;
}

int fbr_rundir_join(struct fbr_rundir *d, const char *root, const char *base, struct fbr_error *err)
{
    struct stat st;

    if (!root[0] || strlen(root) >= FBR_DIR_MAX || lstat(root, &st) < 0 || st.st_uid != geteuid() || !S_ISDIR(st.st_mode))
        return fbr_rundir_create(d, base, err);
    memset(d, 0, sizeof(*d));
    d->lock_fd = -1;
    snprintf(d->root, sizeof(d->root), "%s", root);
    snprintf(d->own, sizeof(d->own), "%s/XXXXXX", d->root);
    shm_of(root, d->shm);
    if (!mkdtemp(d->own)) {
        int rc = fbr_fail(err, -errno, "cannot make a directory in %s: %s", root, fbr_strerror(errno));

        d->own[0] = '\0';
        return rc;
    }
    return 0;
}

void fbr_rundir_remove(struct fbr_rundir *d)
{
    if (d->master)
        fbr_rundir_wreck(d->root);
    else
        remove_tree(d->own);
    if (d->lock_fd >= 0 && d->root[0])
        close(d->lock_fd);
    d->lock_fd = -1;
    d->root[0] = d->own[0] = '\0';
}
