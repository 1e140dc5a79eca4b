/* registry.c - the directories of this user's runs.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "runtime/inspect/registry.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "runtime/base/clock.h"
#include "runtime/base/environ.h"
#include "runtime/base/fds.h"
#include "runtime/base/random.h"
#include "runtime/net/tcp.h"
#include "runtime/proc/rundir.h"

/* Records of ended runs to keep: of each name, so that a test suite does not displace the run that
 * a user looks for; and in all. */
#define KEEP 50
#define KEEP_ALL 1000
#define NAME_CHARS 4 /* of the hash of a run's name, at the end of the name of its record */
#define YOUNG_S 60   /* a directory without a socket is just being made, unless it is old */
#define RECORD 16384 /* size of the longest file that is read */
#define ENTRY 38     /* characters of the longest name of a record */

/* ---- Directories ---- */

/* Whether only this user can enter the directory. */
static bool is_own(const struct stat *st)
{
    return S_ISDIR(st->st_mode) && st->st_uid == geteuid() && (st->st_mode & 077) == 0;
}

int fbr_registry_make_dir(const char *path, const char *advice, struct fbr_error *err)
{
    struct stat st;

    if ((mkdir(path, 0700) < 0 && errno != EEXIST) || lstat(path, &st) < 0)
        return fbr_fail(err, -errno, "cannot make %s: %s", path, fbr_strerror(errno));
    if (!is_own(&st))
        return fbr_fail(err, -EPERM, "%s is not a directory that only you can enter%s", path,
                        advice);
    return 0;
}

static int make_dir(const char *path, struct fbr_error *err)
{
    return fbr_registry_make_dir(path, "; remove it, or set XDG_RUNTIME_DIR to another one", err);
}

/* Finds the first by name of this user's directories /tmp/fiber-uUID-*. */
static bool find_substitute(char root[FBR_REGISTRY_MAX])
{
    char prefix[32], path[FBR_REGISTRY_MAX];
    const char *tmp = fbr_config_tmp();
    DIR *d = opendir(tmp);
    struct dirent *e;
    struct stat st;
    bool found = false;

    snprintf(prefix, sizeof(prefix), "fiber-u%u-", (unsigned)geteuid());
    while (d && (e = readdir(d))) {
        if (strncmp(e->d_name, prefix, strlen(prefix)) != 0 || strlen(e->d_name) > 32)
            continue;
        snprintf(path, sizeof(path), "%s/%.32s", tmp, e->d_name);
        if (lstat(path, &st) < 0 || !is_own(&st) || (found && strcmp(path, root) > 0))
            continue;
        snprintf(root, FBR_REGISTRY_MAX, "%s", path);
        found = true;
    }
    if (d)
        closedir(d);
    return found;
}

/* Finds or makes a substitute, because another user has made /tmp/fiber-UID. Processes that make
 * substitutes at the same time all use the first one. */
static int use_substitute(char root[FBR_REGISTRY_MAX], struct fbr_error *err)
{
    char made[48];

    if (find_substitute(root))
        return 0;
    snprintf(made, sizeof(made), "%s/fiber-u%u-XXXXXX", fbr_config_tmp(), (unsigned)geteuid());
    if (!mkdtemp(made))
        return fbr_fail(err, -errno, "cannot make %s: %s", made, fbr_strerror(errno));
    return find_substitute(root) ? 0 : make_dir(made, err);
}

int fbr_registry_root(char root[FBR_REGISTRY_MAX], struct fbr_error *err)
{
    const char *xdg = fbr_getenv("XDG_RUNTIME_DIR");
    struct stat st;
    int rc;

    if (xdg && xdg[0] == '/' && strlen(xdg) < FBR_REGISTRY_MAX - 48 && stat(xdg, &st) == 0 &&
        st.st_uid == geteuid() && access(xdg, W_OK | X_OK) == 0) {
        snprintf(root, FBR_REGISTRY_MAX, "%s/fiber", xdg);
        return make_dir(root, err);
    }
    snprintf(root, FBR_REGISTRY_MAX, "%s/fiber-%u", fbr_config_tmp(), (unsigned)geteuid());
    rc = make_dir(root, NULL);
    return rc < 0 ? use_substitute(root, err) : 0;
}

/* Stores "DIR/NAME", which fits: fbr_registry_root() leaves room for the longest name in it. */
static const char *join(char out[FBR_REGISTRY_MAX], const char *dir, const char *name)
{
    int len = (int)strnlen(name, ENTRY);

    snprintf(out, FBR_REGISTRY_MAX, "%.*s/%.*s", FBR_REGISTRY_MAX - 2 - len, dir, len, name);
    return out;
}

bool fbr_registry_is_run(const char *name)
{
    return strlen(name) == FBR_REGISTRY_UID && strspn(name, "0123456789abcdef") == FBR_REGISTRY_UID;
}

bool fbr_registry_is_called(const struct fbr_run_control_about *about, const char *typed)
{
    return !strcmp(about->name, typed) ||
           (strlen(typed) >= 2 && !strncmp(about->uid, typed, strlen(typed)));
}

/* ---- Files ---- */

static int write_file(const char *path, const struct fbr_buf *b, int *lock)
{
    int fd = b->failed ? -1 : open(path, O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600), rc = 0;

    if (fd < 0)
        return b->failed ? -ENOMEM : -errno;
    if (lock && flock(fd, LOCK_EX | LOCK_NB) < 0) {
        rc = -errno;
        close(fd);
        return rc;
    }
    errno = 0;
    if (ftruncate(fd, 0) < 0 || write(fd, b->data, b->len) != (ssize_t)b->len)
        rc = errno ? -errno : -ENOSPC;
    if (lock && rc == 0)
        *lock = fd;
    else if (close(fd) < 0 && rc == 0)
        rc = -errno;
    if (rc < 0)
        unlink(path);
    return rc;
}

int fbr_registry_write(const char *path, const struct fbr_run_control_about *about,
                       const struct fbr_run_facts *facts, int code, const char *report, int *lock)
{
    struct fbr_buf b = {0};
    int rc;

    fbr_run_control_put_run(&b, about, facts);
    if (report)
        fbr_run_control_put_done(&b, code, report);
    rc = write_file(path, &b, lock);
    fbr_buf_fini(&b);
    return rc;
}

/* Reads the next frame; false: it is not of that kind. */
static bool next_frame(struct fbr_cur *all, uint8_t kind, struct fbr_cur *frame)
{
    size_t used, left = fbr_cur_left(all);

    return fbr_run_control_frame(all->at, left, left, frame, &used) == 1 && fbr_get(all, used) &&
           fbr_get_u8(frame) == kind;
}

bool fbr_registry_read(const char *path, struct fbr_run_control_about *about,
                       struct fbr_run_facts *facts, int *code, char *report, size_t size)
{
    char data[RECORD];
    ssize_t n = fbr_fds_read_file(path, data, sizeof(data));
    struct fbr_cur all = fbr_cur(data, n > 0 ? (size_t)n : 0), frame;

    return next_frame(&all, FBR_RUN_CONTROL_RUN, &frame) &&
           fbr_run_control_get_run(&frame, about, facts) &&
           (!report || (next_frame(&all, FBR_RUN_CONTROL_DONE, &frame) &&
                        fbr_run_control_get_done(&frame, code, report, size)));
}

/* ---- Runs ---- */

static void sweep(const char *root);

int fbr_registry_add(const struct fbr_run_control_about *about, char dir[FBR_REGISTRY_MAX],
                     struct fbr_error *err)
{
    const struct fbr_run_facts none = {.size = about->size};
    char root[FBR_REGISTRY_MAX], path[FBR_REGISTRY_MAX], name[FBR_REGISTRY_UID + 1];
    int rc = fbr_registry_root(root, err);

    if (rc < 0)
        return rc;
    sweep(root);
    snprintf(name, sizeof(name), "%.*s", FBR_REGISTRY_UID, about->uid);
    if (!fbr_registry_is_run(name))
        return fbr_fail(err, -EINVAL, "registry: '%s' is not a run's name", about->uid);
    rc = make_dir(join(dir, root, name), err);
    if (rc < 0)
        return rc;
    rc = fbr_registry_write(join(path, dir, "about"), about, &none, 0, NULL, NULL);
    if (rc < 0) {
        fbr_rundir_remove_tree(dir);
        return fbr_fail(err, rc, "%s: %s", path, fbr_strerror(rc));
    }
    return 0;
}

static int is_record(const struct dirent *e)
{
    return e->d_name[0] != '.' && strlen(e->d_name) <= ENTRY;
}

static const char *name_part(const char *record)
{
    size_t len = strlen(record);

    return len > NAME_CHARS ? record + len - NAME_CHARS : record;
}

/* Removes old records after `record` was added. */
static void prune(const char *dir, const char *record)
{
    struct dirent **all = NULL;
    int count = scandir(dir, &all, is_record, alphasort), left = count, same = 0;
    char path[FBR_REGISTRY_MAX];

    for (int i = 0; i < count; i++)
        same += !strcmp(name_part(all[i]->d_name), name_part(record));
    for (int i = 0; i < count; i++) {
        bool is_same = !strcmp(name_part(all[i]->d_name), name_part(record));

        if (left > KEEP_ALL || (is_same && same > KEEP)) {
            unlink(join(path, dir, all[i]->d_name));
            left--;
            same -= is_same;
        }
        free(all[i]);
    }
    free(all);
}

static void keep_record(const char *root, const struct fbr_run_control_about *about,
                        const struct fbr_run_facts *facts, int code, const char *report)
{
    char ended[FBR_REGISTRY_MAX], name[64], path[FBR_REGISTRY_MAX];
    struct fbr_run_facts last = *facts;

    if (make_dir(join(ended, root, "ended"), NULL) < 0)
        return;
    if (code != FBR_REGISTRY_LOST && !last.ended_ms) /* else the time of its end is unknown */
        last.ended_ms = fbr_wall_ms();
    snprintf(name, sizeof(name), "%014lld-%.*s%04x", (long long)about->started_ms, FBR_REGISTRY_UID,
             about->uid, (unsigned)fbr_hash(FBR_HASH, about->name, strlen(about->name)) & 0xffff);
    fbr_registry_write(join(path, ended, name), about, &last, code, report, NULL);
    prune(ended, name);
}

void fbr_registry_end(const char *dir, const struct fbr_run_control_about *about,
                      const struct fbr_run_facts *facts, int code, const char *report)
{
    char root[FBR_REGISTRY_MAX];
    char *slash;

    snprintf(root, sizeof(root), "%s", dir);
    slash = strrchr(root, '/');
    if (!slash)
        return;
    *slash = '\0';
    keep_record(root, about, facts, code, report);
    fbr_rundir_remove_tree(dir);
}

static bool read_about(const char *dir, struct fbr_run_control_about *about,
                       struct fbr_run_facts *facts)
{
    char path[FBR_REGISTRY_MAX];

    return fbr_registry_read(join(path, dir, "about"), about, facts, NULL, NULL, 0);
}

void fbr_registry_stopping(const char *dir)
{
    char path[FBR_REGISTRY_MAX];

    fbr_fds_close(open(join(path, dir, "stopped"), O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
}

/* Removes a run whose launcher is dead, so that nothing listens at its socket. */
static void sweep_run(const char *dir)
{
    struct fbr_run_control_about about;
    struct fbr_run_facts facts;
    char path[FBR_REGISTRY_MAX];
    struct stat st;

    if (!read_about(dir, &about, &facts)) {
        fbr_rundir_remove_tree(dir);
    } else if (stat(join(path, dir, "stopped"), &st) == 0) {
        facts.ended_ms = (int64_t)st.st_mtim.tv_sec * 1000 + st.st_mtim.tv_nsec / 1000000;
        fbr_registry_end(dir, &about, &facts, 128 + SIGTERM, "ended after `fiber kill`");
    } else {
        fbr_registry_end(dir, &about, &facts, FBR_REGISTRY_LOST, "its launcher was killed");
    }
}

/* Whether the launcher that listens at the other end is dead: processes that it forked may live on,
 * and have its socket. */
static bool is_dead(int fd)
{
    struct ucred who;
    socklen_t len = sizeof(who);

    /* pid 0: it is of another pid namespace */
    return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &who, &len) == 0 && who.pid > 0 &&
           kill(who.pid, 0) < 0 && errno == ESRCH;
}

/* Returns a connected socket, or -errno. -ECONNREFUSED: the run is dead; -EAGAIN: it lives, but too
 * many callers wait, because it is stopped, for instance. */
static int call(const char *dir)
{
    char path[FBR_REGISTRY_MAX];
    struct stat st;
    int fd = fbr_unix_connect(join(path, dir, "control"));

    if (fd == -ENOENT && lstat(dir, &st) == 0 && time(NULL) - st.st_mtime > YOUNG_S)
        return -ECONNREFUSED;
    if (fd < 0 || !is_dead(fd))
        return fd;
    close(fd);
    return -ECONNREFUSED;
}

/* Removes dead runs. A living run holds its directory, so it is not called. */
static void sweep(const char *root)
{
    DIR *d = opendir(root);
    struct dirent *e;

    while (d && (e = readdir(d))) {
        char dir[FBR_REGISTRY_MAX];
        int fd;

        if (!fbr_registry_is_run(e->d_name) || fbr_rundir_is_held(join(dir, root, e->d_name)))
            continue;
        fd = call(dir);
        if (fd == -ECONNREFUSED)
            sweep_run(dir);
        fbr_fds_close(fd);
    }
    if (d)
        closedir(d);
}

int fbr_registry_call(const char *uid)
{
    char root[FBR_REGISTRY_MAX], dir[FBR_REGISTRY_MAX];
    int rc = fbr_registry_root(root, NULL);

    if (rc < 0)
        return rc;
    snprintf(dir, sizeof(dir), "%.80s/%.16s", root, uid);
    return call(dir);
}

static void visit(const char *dir,
                  void (*found)(void *user, int fd, const struct fbr_run_control_about *about),
                  void *user)
{
    struct fbr_run_control_about about;
    struct fbr_run_facts facts;
    int fd = call(dir);

    if (fd == -ECONNREFUSED)
        sweep_run(dir);
    if (fd < 0 && fd != -EAGAIN)
        return;
    if (read_about(dir, &about, &facts))
        found(user, fd < 0 ? -1 : fd, &about);
    else
        fbr_fds_close(fd);
}

int fbr_registry_each(void (*found)(void *user, int fd, const struct fbr_run_control_about *about),
                      void *user, struct fbr_error *err)
{
    char root[FBR_REGISTRY_MAX], dir[FBR_REGISTRY_MAX];
    int rc = fbr_registry_root(root, err);
    struct dirent *e;
    DIR *d;

    if (rc < 0)
        return rc;
    d = opendir(root);
    if (!d)
        return fbr_fail(err, -errno, "%s: %s", root, fbr_strerror(errno));
    while ((e = readdir(d)))
        if (fbr_registry_is_run(e->d_name))
            visit(join(dir, root, e->d_name), found, user);
    closedir(d);
    return 0;
}

int fbr_registry_ended(void (*found)(void *user, const struct fbr_run_control_about *about,
                                     const struct fbr_run_facts *facts, int code,
                                     const char *report),
                       void *user, struct fbr_error *err)
{
    char root[FBR_REGISTRY_MAX], ended[FBR_REGISTRY_MAX], path[FBR_REGISTRY_MAX], report[4096];
    struct dirent **all = NULL;
    int rc = fbr_registry_root(root, err), count, code;

    if (rc < 0)
        return rc;
    count = scandir(join(ended, root, "ended"), &all, is_record, alphasort);
    for (int i = 0; i < count; i++) {
        struct fbr_run_control_about about;
        struct fbr_run_facts facts;

        if (fbr_registry_read(join(path, ended, all[i]->d_name), &about, &facts, &code, report,
                              sizeof(report)))
            found(user, &about, &facts, code, report);
        free(all[i]);
    }
    free(all);
    return 0;
}
