/* batch_dir.c - the folder of batch jobs, which the nodes share.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "backends/slurm/batch_dir.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "runtime/base/fds.h"
#include "runtime/base/log.h"
#include "runtime/base/master_id.h"

#define PREFIX "slurm-"

/* ---- Making and sweeping ---- */

/* The subfolders belong to jobs that started jobs. The file "master" is removed last: by it the
 * folder is found again if something stays in it. */
int fbr_slurm_dir_remove(const char *path, struct fbr_error *err)
{
    DIR *dir = opendir(path);
    struct dirent *e;
    bool stays = false;

    while (dir && (e = readdir(dir))) {
        char inner[PATH_MAX];

        if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0 ||
            strcmp(e->d_name, "master") == 0 || unlinkat(dirfd(dir), e->d_name, 0) == 0)
            continue;
        stays |= strncmp(e->d_name, PREFIX, strlen(PREFIX)) != 0 ||
                 snprintf(inner, sizeof(inner), "%s/%s", path, e->d_name) >= (int)sizeof(inner) ||
                 fbr_slurm_dir_remove(inner, NULL) < 0;
    }
    if (dir && !stays)
        unlinkat(dirfd(dir), "master", 0);
    if (dir)
        closedir(dir);
    if (rmdir(path) == 0 || errno == ENOENT)
        return 0;
    return fbr_fail(err, -errno, "cannot remove %s: %s", path, fbr_strerror(errno));
}

/* Whether the file belongs to a master that is certainly gone. */
static bool is_dead(const char *path)
{
    char name[PATH_MAX], master[FBR_MASTER_ID_MAX] = "";
    struct stat st;
    int fd;
    bool dead;

    snprintf(name, sizeof(name), "%.4000s/master", path);
    fd = open(name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (fd < 0)
        return false;
    dead = fstat(fd, &st) == 0 && st.st_uid == geteuid() &&
           read(fd, master, sizeof(master) - 1) > 0 &&
           fbr_master_id_state(master) == FBR_MASTER_ID_DEAD;
    close(fd);
    return dead;
}

void fbr_slurm_dir_sweep(const char *base, fbr_slurm_dir_dead *dead, void *user)
{
    DIR *dir = opendir(base);
    struct dirent *e;

    while (dir && (e = readdir(dir))) {
        const char *tag = e->d_name + strlen(PREFIX);
        char path[PATH_MAX];

        if (strncmp(e->d_name, PREFIX, strlen(PREFIX)) != 0 || strlen(tag) >= FBR_SLURM_TAG)
            continue;
        snprintf(path, sizeof(path), "%.3800s/%.255s", base, e->d_name);
        if (is_dead(path))
            dead(user, path, tag);
    }
    if (dir)
        closedir(dir);
}

/* `what`: "", or "a folder in ". */
static int cannot_make(const char *what, const char *base, int rc, struct fbr_error *err)
{
    return fbr_fail(err, rc, "cannot make %s%s (slurm_dir, which the nodes must share): %s", what,
                    base, fbr_strerror(rc));
}

int fbr_slurm_dir_check(const char *base, struct fbr_error *err)
{
    char parent[PATH_MAX];
    struct stat st;

    if (stat(base, &st) == 0 && !S_ISDIR(st.st_mode))
        return cannot_make("a folder in ", base, -ENOTDIR, err);
    if (access(base, W_OK | X_OK) == 0)
        return 0;
    if (errno != ENOENT)
        return cannot_make("a folder in ", base, -errno, err);
    snprintf(parent, sizeof(parent), "%s", base);
    return access(dirname(parent), W_OK | X_OK) == 0 ? 0 : cannot_make("", base, -errno, err);
}

int fbr_slurm_dir_open(struct fbr_slurm_dir *d, const char *base, fbr_slurm_dir_dead *dead,
                       void *user, struct fbr_error *err)
{
    char name[PATH_MAX], master[FBR_MASTER_ID_MAX];
    int rc;

    if (strlen(base) > 2048)
        return fbr_fail(err, -ENAMETOOLONG, "slurm_dir is too long");
    if (mkdir(base, 0700) < 0 && errno != EEXIST)
        return cannot_make("", base, -errno, err);
    fbr_slurm_dir_sweep(base, dead, user);
    snprintf(d->path, sizeof(d->path), "%s/" PREFIX "XXXXXX", base);
    if (!mkdtemp(d->path)) {
        rc = -errno;
        d->path[0] = '\0';
        return cannot_make("a folder in ", base, rc, err);
    }
    snprintf(d->tag, sizeof(d->tag), "%.6s", d->path + strlen(d->path) - 6);
    snprintf(name, sizeof(name), "%s/master", d->path);
    fbr_master_id_self(master);
    rc = fbr_slurm_dir_write(name, master, strlen(master), err);
    if (rc < 0)
        fbr_slurm_dir_close(d);
    return rc;
}

void fbr_slurm_dir_close(struct fbr_slurm_dir *d)
{
    struct fbr_error err = {0, ""};

    if (!d->path[0])
        return;
    if (fbr_slurm_dir_remove(d->path, &err) < 0)
        fbr_info("slurm: %s", err.text);
    d->path[0] = '\0';
}

int fbr_slurm_dir_write(const char *path, const void *data, size_t len, struct fbr_error *err)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600), rc;
    struct rlimit most;

    if (fd < 0)
        return fbr_fail(err, -errno, "cannot write %s: %s", path, fbr_strerror(errno));
    if (getrlimit(RLIMIT_FSIZE, &most) == 0 && len > most.rlim_cur)
        rc = -EFBIG; /* the kernel would send SIGXFSZ, too, which ends the program */
    else
        rc = fbr_fds_write(fd, data, len);
    /* a remote file system reports errors here */
    if (close(fd) < 0 && rc == 0)
        rc = -errno;
    if (rc < 0)
        unlink(path);
    return rc < 0 ? fbr_fail(err, rc, "cannot write %s: %s", path, fbr_strerror(rc)) : 0;
}

/* ---- Reading ---- */

struct fbr_slurm_reads *fbr_slurm_reads_new(size_t n)
{
    struct fbr_slurm_reads *r = calloc(1, sizeof(*r) + n * sizeof(r->at[0]));

    if (r)
        r->n = n;
    return r;
}

/* Opens the file anew each time: only then does a network file system check whether the file has
 * grown. */
static void read_one(struct fbr_slurm_read *r)
{
    int fd = open(r->path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    struct stat st;
    ssize_t n;

    if (fd < 0) { /* with any other error there is nothing to read */
        r->unread = errno == EMFILE || errno == ENFILE || errno == ENOMEM;
        return;
    }
    if (fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && st.st_size > (off_t)r->offset) {
        r->data = malloc(FBR_SLURM_READ);
        r->unread = !r->data;
    }
    n = r->data ? pread(fd, r->data, FBR_SLURM_READ, (off_t)r->offset) : 0;
    r->len = n > 0 ? (size_t)n : 0;
    close(fd);
}

static void *read_all(void *arg)
{
    struct fbr_slurm_reads *r = arg;

    for (size_t i = 0; i < r->n; i++)
        read_one(&r->at[i]);
    fbr_loop_post_own(r->loop, &r->post); /* the post keeps the record until it has run */
    return NULL;
}

static void on_read(void *arg)
{
    struct fbr_slurm_reads *r = arg;

    if (r->running)
        pthread_join(r->thread, NULL);
    if (r->done)
        r->done(r->user, r);
    for (size_t i = 0; i < r->n; i++)
        free(r->at[i].data);
    fbr_loop_release(r->loop);
    free(r);
}

void fbr_slurm_reads_start(struct fbr_slurm_reads *r, struct fbr_loop *loop)
{
    r->loop = loop;
    r->post = (struct fbr_post){.fn = on_read, .arg = r, .own = true};
    fbr_loop_hold(loop);
    r->running = pthread_create(&r->thread, NULL, read_all, r) == 0;
    for (size_t i = 0; !r->running && i < r->n; i++)
        r->at[i].unread = true;
    if (!r->running)
        fbr_loop_post_own(loop, &r->post);
}
