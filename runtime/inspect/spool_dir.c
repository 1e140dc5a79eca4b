/* spool_dir.c - the directories of kept output.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "runtime/inspect/spool_dir.h"

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

#include "runtime/base/environ.h"
#include "runtime/base/fds.h"
#include "runtime/inspect/registry.h"
#include "runtime/proc/rundir.h"

/* ---- Names ---- */

static int join(char out[PATH_MAX], const char *dir, const char *name)
{
    int n = snprintf(out, PATH_MAX, "%s/%s", dir, name);

    return n < PATH_MAX ? 0 : -ENAMETOOLONG;
}

int fbr_spool_root(char root[PATH_MAX], const struct fbr_config *config, struct fbr_error *err)
{
    const char *set = fbr_config_str(config, "log_dir");
    const char *state = fbr_getenv("XDG_STATE_HOME"), *home = fbr_getenv("HOME");
    int n;

    if (*set)
        n = snprintf(root, PATH_MAX, "%s", set);
    else if (state && *state == '/')
        n = snprintf(root, PATH_MAX, "%s/fiber/logs", state);
    else if (home && *home == '/' && home[1])
        n = snprintf(root, PATH_MAX, "%s/.local/state/fiber/logs", home);
    else
        n = snprintf(root, PATH_MAX, "/var/tmp/fiber-%u", (unsigned)geteuid());
    return n < PATH_MAX - 64 ? 0 : fbr_fail(err, -ENAMETOOLONG, "log_dir: the path is too long");
}

/* ---- Making ---- */

int fbr_spool_root_make(const char *root, struct fbr_error *err)
{
    int rc = fbr_rundir_parents(root, 0700);

    return rc < 0 ? fbr_fail(err, rc, "cannot make %s: %s", root, fbr_strerror(rc))
                  : fbr_registry_make_dir(root, "", err);
}

int fbr_spool_make(char dir[PATH_MAX], int *lock, const char *root,
                   const struct fbr_run_control_about *about, struct fbr_error *err)
{
    const struct fbr_run_facts none = {.size = about->size};
    char name[FBR_REGISTRY_UID + 1], path[PATH_MAX];
    int rc = fbr_spool_root_make(root, err);

    if (rc < 0)
        return rc;
    snprintf(name, sizeof(name), "%.*s", FBR_REGISTRY_UID, about->uid);
    if (!fbr_registry_is_run(name) || join(dir, root, name) < 0)
        return fbr_fail(err, -EINVAL, "'%s' is not a run's name", about->uid);
    rc = fbr_registry_make_dir(dir, "", err);
    if (rc < 0)
        return rc;
    rc = join(path, dir, "about") < 0 ? -ENAMETOOLONG
                                      : fbr_registry_write(path, about, &none, 0, NULL, lock);
    return rc < 0 ? fbr_fail(err, rc, "%s: %s", dir, fbr_strerror(rc)) : 0;
}

void fbr_spool_note_end(const char *dir, const struct fbr_run_control_about *about,
                        const struct fbr_run_facts *facts, int code, const char *report)
{
    char path[PATH_MAX];

    if (join(path, dir, "end") == 0)
        fbr_registry_write(path, about, facts, code, report, NULL);
}

/* ---- Looking ---- */

static bool is_locked(const char *path)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    bool locked = fd >= 0 && flock(fd, LOCK_SH | LOCK_NB) < 0;

    fbr_fds_close(fd);
    return locked;
}

bool fbr_spool_look(struct fbr_spool_run *run, const char *root, const char *uid)
{
    char name[FBR_REGISTRY_UID + 1], path[PATH_MAX];

    memset(run, 0, sizeof(*run));
    snprintf(name, sizeof(name), "%.*s", FBR_REGISTRY_UID, uid);
    if (!fbr_registry_is_run(name) || join(run->dir, root, name) < 0 ||
        join(path, run->dir, "about") < 0)
        return false;
    if (!fbr_registry_read(path, &run->about, &run->facts, NULL, NULL, 0))
        return false;
    run->writes = is_locked(path);
    run->ended = join(path, run->dir, "end") == 0 &&
                 fbr_registry_read(path, &run->about, &run->facts, &run->code, run->report,
                                   sizeof(run->report));
    return true;
}

void fbr_spool_each(const char *root, void (*found)(void *user, const struct fbr_spool_run *run),
                    void *user)
{
    DIR *d = opendir(root);
    struct fbr_spool_run *one = malloc(sizeof(*one));
    struct dirent *e;

    while (d && one && (e = readdir(d)))
        if (fbr_registry_is_run(e->d_name) && fbr_spool_look(one, root, e->d_name))
            found(user, one);
    if (d)
        closedir(d);
    free(one);
}

struct search {
    const char *typed, *backend;
    struct fbr_spool_run *youngest;
    bool found;
};

static void on_run(void *user, const struct fbr_spool_run *run)
{
    struct search *s = user;

    if ((s->typed && !fbr_registry_is_called(&run->about, s->typed)) ||
        (s->backend && strcmp(run->about.backend, s->backend) != 0) ||
        (s->found && run->about.started_ms < s->youngest->about.started_ms))
        return;
    *s->youngest = *run;
    s->found = true;
}

int fbr_spool_find(struct fbr_spool_run *run, const char *root, const char *typed,
                   const char *backend)
{
    struct search s = {typed, backend, run, false};

    fbr_spool_each(root, on_run, &s);
    return s.found ? 0 : -ENOENT;
}

/* ---- Removing ---- */

struct kept {
    char name[FBR_REGISTRY_UID + 1];
    time_t last; /* last change of the directory */
    uint64_t bytes;
};

static int by_age(const void *a, const void *b)
{
    const struct kept *x = a, *y = b;

    return x->last < y->last ? -1 : x->last > y->last;
}

static uint64_t size_of(const char *dir)
{
    DIR *d = opendir(dir);
    uint64_t bytes = 0;
    char path[PATH_MAX];
    struct dirent *e;
    struct stat st;

    while (d && (e = readdir(d))) {
        if (e->d_name[0] == '.' || join(path, dir, e->d_name) < 0)
            continue;
        if (lstat(path, &st) == 0)
            bytes += (uint64_t)st.st_blocks * 512;
    }
    if (d)
        closedir(d);
    return bytes;
}

/* Removes a run, if `wanted` agrees. False: the run is still being written, or is just being
 * made. */
static bool remove_run(const char *root, const struct kept *k,
                       bool (*wanted)(void *user, const char *dir), void *user)
{
    char dir[PATH_MAX], path[PATH_MAX];
    bool mine;
    int fd;

    if (join(dir, root, k->name) < 0 || join(path, dir, "about") < 0)
        return false;
    /* NFS locks only a file that is open for writing */
    fd = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    mine =
        fd >= 0 ? flock(fd, LOCK_EX | LOCK_NB) == 0 : errno == ENOENT && time(NULL) - k->last > 60;
    if (mine && (!wanted || wanted(user, dir)))
        fbr_rundir_remove_tree(dir);
    fbr_fds_close(fd);
    return mine;
}

static size_t list(const char *root, bool sizes, struct kept **out)
{
    DIR *d = opendir(root);
    size_t count = 0;
    char path[PATH_MAX];
    struct dirent *e;
    struct stat st;

    *out = NULL;
    while (d && (e = readdir(d))) {
        if (!fbr_registry_is_run(e->d_name) || join(path, root, e->d_name) < 0 ||
            lstat(path, &st) < 0)
            continue;
        if (!fbr_grow(out, count, sizeof(**out)))
            break;
        (*out)[count] = (struct kept){.last = st.st_mtime, .bytes = sizes ? size_of(path) : 0};
        memcpy((*out)[count++].name, e->d_name, FBR_REGISTRY_UID + 1);
    }
    if (d)
        closedir(d);
    if (count)
        qsort(*out, count, sizeof(**out), by_age);
    return count;
}

void fbr_spool_prune(const char *root, uint64_t total, bool (*remove)(void *user, const char *dir),
                     void *user)
{
    time_t oldest = time(NULL) - FBR_SPOOL_DAYS * 24 * 3600;
    struct kept *runs;
    size_t count = list(root, total > 0, &runs), left = count;
    uint64_t bytes = 0;

    for (size_t i = 0; i < count; i++)
        bytes += runs[i].bytes;
    for (size_t i = 0; i < count; i++) {
        if (left <= FBR_SPOOL_RUNS && bytes <= total && runs[i].last >= oldest)
            break;
        if (remove_run(root, &runs[i], remove, user)) {
            left--;
            bytes -= runs[i].bytes;
        }
    }
    free(runs);
}
