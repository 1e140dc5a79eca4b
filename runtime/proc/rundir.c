/* rundir.c - the directories of a run on one host.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "runtime/proc/rundir.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "runtime/base/fds.h"
#include "runtime/base/random.h"
#include "runtime/base/log.h"

#define PREFIX "fiber-"
#define SHM "/dev/shm"
#define OLD_S 60

static const struct fbr_rundir none = {.lock_fd = -1, .shm_fd = -1, .held_fd = -1};

static int remove_entry(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
    remove(path); /* another process may remove it at the same time */
    return 0;
}

/* Makes several walks: other processes may add to the tree or remove it at the same time, which
 * ends a walk early. */
void fbr_rundir_remove_tree(const char *path)
{
    for (int i = 0; i < 8 && path[0] && access(path, F_OK) == 0; i++)
        nftw(path, remove_entry, 8, FTW_DEPTH | FTW_PHYS | FTW_MOUNT);
}

/* ---- Against cleaners ---- */

static int lock_dir(const char *dir, int how)
{
    int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW), rc;

    if (fd < 0)
        return -errno;
    rc = flock(fd, how | LOCK_NB) < 0 ? -errno : fd;
    if (rc < 0)
        close(fd);
    return rc;
}

int fbr_rundir_hold(const char *dir)
{
    return lock_dir(dir, LOCK_SH);
}

bool fbr_rundir_is_held(const char *dir)
{
    int fd = lock_dir(dir, LOCK_EX);

    fbr_fds_close(fd);
    return fd == -EWOULDBLOCK;
}

static int touch_entry(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
    utimensat(AT_FDCWD, path, NULL, AT_SYMLINK_NOFOLLOW);
    return 0;
}

void fbr_rundir_touch(const char *dir)
{
    nftw(dir, touch_entry, 8, FTW_PHYS | FTW_MOUNT);
}

static void shm_of(const char *root, char out[FBR_DIR_MAX])
{
    snprintf(out, FBR_DIR_MAX, SHM "/%.48s", basename(root));
}

void fbr_rundir_wreck(const char *root)
{
    char shm[FBR_DIR_MAX];

    if (!root[0])
        return;
    shm_of(root, shm);
    fbr_rundir_remove_tree(shm);
    fbr_rundir_remove_tree(root);
}

/* Whether the name is PREFIX, a process id, '-' and six characters of mkdtemp(): nothing else is
 * ours to remove. */
static bool is_ours(const char *name)
{
    size_t digits;

    if (strncmp(name, PREFIX, strlen(PREFIX)) != 0)
        return false;
    name += strlen(PREFIX);
    digits = strspn(name, "0123456789");
    return digits > 0 && name[digits] == '-' && strlen(name + digits + 1) == 6;
}

/* Whether no process has the id in the directory's name now. */
static bool is_nobodys(const char *dir)
{
    long pid = strtol(strrchr(dir, '/') + 1 + strlen(PREFIX), NULL, 10);

    return pid > 0 && (pid > INT_MAX || (kill((pid_t)pid, 0) < 0 && errno == ESRCH));
}

static bool is_old(const char *dir, const struct stat *st)
{
    return time(NULL) - st->st_mtime > OLD_S && is_nobodys(dir);
}

/* Whether a dead process left a directory without a lock file: it is not just being made. */
static bool is_left(const char *dir, const struct stat *st)
{
    return !fbr_rundir_is_held(dir) && is_old(dir, st);
}

/* Whether only we may enter this directory. One in a directory that passes its group on (g+s)
 * passes it on, too. */
static bool is_private(const char *dir, struct stat *st)
{
    return lstat(dir, st) == 0 && (st->st_mode & ~(mode_t)S_ISGID) == (S_IFDIR | 0700) &&
           st->st_uid == geteuid();
}

/* Whether the directory's master is dead. A living master holds a POSIX lock, which forked
 * processes do not share and this check does not take. A directory without a lock file is just
 * being made, unless it is old, or was `made` before this check: then another process is removing
 * it. A cleaner, too, may have removed the lock file while the run lives: the run still holds the
 * directory (fbr_rundir_hold). */
static bool is_without_master(const char *dir, bool made)
{
    struct flock held = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    char path[FBR_DIR_MAX + 300];
    struct stat st;
    int fd;
    bool dead;

    if (!is_private(dir, &st))
        return false;
    snprintf(path, sizeof(path), "%s/lock", dir);
    fd = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0)
        return errno == ENOENT && (made ? !fbr_rundir_is_held(dir) : is_left(dir, &st));
    dead = fcntl(fd, F_GETLK, &held) == 0 && held.l_type == F_UNLCK;
    close(fd);
    return dead;
}

static bool is_dead(const char *dir)
{
    return is_without_master(dir, false);
}

/* Whether an open file is still the one with that name. */
static bool is_there(int fd, const char *path)
{
    struct stat held, there;

    return fstat(fd, &held) == 0 && lstat(path, &there) == 0 && held.st_ino == there.st_ino;
}

/* Takes the lock of a directory that no process holds, so that no process can enter it. False: a
 * process of the run lives, or another process was faster. *fd is -1 if there is no lock file. */
static bool seize(const char *root, int *fd)
{
    struct flock alone = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    char path[FBR_DIR_MAX + 308];
    struct stat there;

    *fd = -1;
    if (!is_dead(root))
        return false;
    snprintf(path, sizeof(path), "%s/lock", root);
    *fd = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
    if (*fd < 0) /* it may have been removed and be just being made again since is_dead() */
        return errno == ENOENT && lstat(root, &there) == 0 && is_left(root, &there);
    if (fcntl(*fd, F_SETLK, &alone) == 0 && is_there(*fd, path))
        return true;
    close(*fd);
    *fd = -1;
    return false;
}

/* Renames a directory, because its name may be used again meanwhile, and then removes it. The
 * caller alone holds its lock. */
static void clear_away(const char *root)
{
    char gone[FBR_DIR_MAX], shm[FBR_DIR_MAX], shm_gone[FBR_DIR_MAX];
    const char *slash = strrchr(root, '/');

    snprintf(gone, sizeof(gone), "%.*s/" PREFIX "%d-XXXXXX", (int)(slash - root), root,
             (int)getpid());
    if (!mkdtemp(gone)) { /* for instance, a full disk */
        fbr_rundir_wreck(root);
        return;
    }
    shm_of(root, shm);
    shm_of(gone, shm_gone);
    rename(shm, shm_gone); /* first: once the name is free, another process may make these again */
    rename(root, gone);    /* replaces the empty one */
    fbr_rundir_wreck(gone);
}

static void clear_away_dead(const char *root)
{
    int fd;

    if (!seize(root, &fd))
        return;
    clear_away(root);
    fbr_fds_close(fd);
}

/* Several processes may call this at once: no process uses a dead master's name again, and the name
 * of a shared directory only under its lock. A process that makes its own directory below `root`
 * meanwhile keeps that directory, without a lock. */
bool fbr_rundir_wreck_dead(const char *root, bool shared)
{
    if (!root[0] || (!shared && !is_without_master(root, true)))
        return false;
    if (shared)
        clear_away_dead(root);
    else
        fbr_rundir_wreck(root);
    return access(root, F_OK) < 0;
}

/* ---- Segments ---- */

bool fbr_rundir_owner(const char *text, size_t len, struct fbr_rundir_owner *o)
{
    const char *space = memchr(text, ' ', len), *root = space ? space + 1 : NULL;
    size_t master_len = space ? (size_t)(space - text) : 0, root_len = len - master_len - 1;

    if (!master_len || master_len >= FBR_MASTER_ID_MAX || root_len >= FBR_DIR_MAX || !root_len ||
        root[0] != '/' || memchr(text, 0, len))
        return false;
    memset(o, 0, sizeof(*o));
    memcpy(o->master, text, master_len);
    memcpy(o->root, root, root_len);
    return true;
}

/* Opens the file that names the owner of these segments: returns its descriptor, or negative. */
static int open_owner(const char *shm, struct fbr_rundir_owner *o)
{
    char path[FBR_DIR_MAX + 308], text[FBR_MASTER_ID_MAX + FBR_DIR_MAX + 2];
    ssize_t n;
    int fd;

    snprintf(path, sizeof(path), "%s/run", shm);
    fd = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0)
        return -errno;
    n = pread(fd, text, sizeof(text), 0);
    if (n > 0 && fbr_rundir_owner(text, (size_t)n, o))
        return fd;
    close(fd);
    return -ENOENT; /* its writer died meanwhile */
}

static bool is_below(const char *root, const char *base)
{
    size_t n = strlen(base);

    return strncmp(root, base, n) == 0 && root[n] == '/' && !strchr(root + n + 1, '/');
}

/* Whether the run of these segments is certainly dead, and had its directory in `base` (NULL:
 * anywhere). *fd: their file `run`, or negative. */
static bool shm_is_dead(const char *shm, const char *base, int *fd)
{
    struct flock any = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    char self[FBR_MASTER_ID_MAX];
    struct fbr_rundir_owner o;
    struct stat st;

    *fd = -1;
    if (!is_private(shm, &st))
        return false;
    *fd = open_owner(shm, &o);
    if (*fd < 0)
        return *fd == -ENOENT && !base && is_old(shm, &st);
    fbr_master_id_self(self);
    if (strcmp(o.master, self) == 0 || (base && !is_below(o.root, base)))
        return false;
    if (lstat(o.root, &st) == 0 || errno != ENOENT)
        return is_dead(o.root);
    if (strcmp(o.master, "-") == 0)
        return fcntl(*fd, F_OFD_GETLK, &any) == 0 && any.l_type == F_UNLCK;
    return fbr_master_id_state(o.master) == FBR_MASTER_ID_DEAD;
}

/* Removes segments. The same run may use the name again, so a rename frees the name at once, under
 * a lock that keeps processes of the run away until then. */
static void clear_away_shm(const char *shm, int fd)
{
    struct flock alone = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    char gone[] = SHM "/" PREFIX "0123456789-XXXXXX";

    if (fd >= 0 && fcntl(fd, F_OFD_SETLK, &alone) < 0)
        return;
    snprintf(gone, sizeof(gone), SHM "/" PREFIX "%d-XXXXXX", (int)getpid());
    if (mkdtemp(gone)) {
        rename(shm, gone);
        shm = gone;
    }
    fbr_rundir_remove_tree(shm);
}

static void sweep_shm(const char *base, bool (*found)(void *user, const char *root), void *user)
{
    DIR *d = opendir(SHM);
    struct dirent *e;

    while (d && (e = readdir(d))) {
        char path[FBR_DIR_MAX + 300];
        int fd = -1;

        if (!is_ours(e->d_name))
            continue;
        snprintf(path, sizeof(path), SHM "/%s", e->d_name);
        if (shm_is_dead(path, base, &fd) && (!found || found(user, path)))
            clear_away_shm(path, fd);
        fbr_fds_close(fd);
    }
    if (d)
        closedir(d);
}

/* Stores the master's name: our own, "-" for a master on another host, else the one in the run's
 * lock file. */
static int master_of(const struct fbr_rundir *d, char out[FBR_MASTER_ID_MAX])
{
    char path[FBR_DIR_MAX + 8];
    ssize_t n;

    if (d->master)
        fbr_master_id_self(out);
    else
        snprintf(out, FBR_MASTER_ID_MAX, "-");
    if (d->master || d->shared)
        return 0;
    snprintf(path, sizeof(path), "%s/lock", d->root);
    n = fbr_fds_read_file(path, out, FBR_MASTER_ID_MAX);
    return n > 0 ? 0 : n < 0 ? (int)n : -ENOENT;
}

/* Makes the directory of segments with its file `run`, which is locked if the run is shared;
 * renames the directory to its final name last. */
static int make_shm(struct fbr_rundir *d)
{
    struct flock ours = {.l_type = F_RDLCK, .l_whence = SEEK_SET};
    char made[] = SHM "/" PREFIX "0123456789-XXXXXX", path[sizeof(made) + 8];
    char master[FBR_MASTER_ID_MAX], text[FBR_MASTER_ID_MAX + FBR_DIR_MAX + 2];
    int rc = master_of(d, master), fd, n;

    if (rc < 0)
        return rc;
    n = snprintf(text, sizeof(text), "%s %s", master, d->root);
    snprintf(made, sizeof(made), SHM "/" PREFIX "%d-XXXXXX", (int)getpid());
    if (!mkdtemp(made))
        return -errno;
    snprintf(path, sizeof(path), "%s/run", made);
    errno = 0;
    fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd < 0 || (d->shared && fcntl(fd, F_OFD_SETLK, &ours) < 0) ||
        write(fd, text, (size_t)n) != n || rename(made, d->shm) < 0) {
        rc = errno ? -errno : -EIO;
        fbr_rundir_remove_tree(made);
        fbr_fds_close(fd);
        return rc == -ENOTEMPTY || rc == -EEXIST ? 0 : rc; /* another process was faster */
    }
    if (d->shared)
        d->shm_fd = fd;
    else
        close(fd);
    return 0;
}

/* Opens a file of a run whose master is on another host, and holds a read lock on it, together with
 * the other processes of the run. Returns the descriptor; -EAGAIN: the file is just being made or
 * removed. */
static int share_file(const char *path, int flags, int how)
{
    struct flock ours = {.l_type = F_RDLCK, .l_whence = SEEK_SET};
    int fd = open(path, flags | O_RDWR | O_CLOEXEC | O_NOFOLLOW, 0600), rc = 0;

    if (fd < 0)
        return errno == ENOENT ? -EAGAIN : -errno;
    if (fcntl(fd, how, &ours) < 0)
        rc = errno == EACCES ? -EAGAIN : -errno;
    else if (!is_there(fd, path))
        rc = -EAGAIN;
    if (rc == 0)
        return fd;
    close(fd);
    return rc;
}

static int hold_shm(struct fbr_rundir *d)
{
    char path[FBR_DIR_MAX + 8];

    snprintf(path, sizeof(path), "%s/run", d->shm);
    if (d->shm_fd >= 0 && is_there(d->shm_fd, path))
        return 0;
    fbr_fds_close(d->shm_fd);
    d->shm_fd = share_file(path, 0, F_OFD_SETLK);
    return d->shm_fd < 0 ? d->shm_fd : 0;
}

static int need_shm(struct fbr_rundir *d)
{
    struct stat st;
    int rc;

    if (lstat(d->shm, &st) < 0 && (rc = errno == ENOENT ? make_shm(d) : -errno) < 0)
        return rc;
    if (lstat(d->shm, &st) < 0)
        return errno == ENOENT ? -EAGAIN : -errno;
    if (!S_ISDIR(st.st_mode) || st.st_uid != geteuid() || (st.st_mode & 077))
        return -EPERM;
    return d->shared ? hold_shm(d) : 0;
}

/* Another process may be just making or removing the same. */
static int try_again(int (*make)(struct fbr_rundir *d), struct fbr_rundir *d)
{
    const struct timespec nap = {.tv_nsec = 1000000};
    int rc;

    for (int i = 0; (rc = make(d)) == -EAGAIN && i < 1000; i++)
        nanosleep(&nap, NULL);
    return rc;
}

int fbr_rundir_shm(struct fbr_rundir *d, struct fbr_error *err)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    int rc;

    pthread_mutex_lock(&lock);
    rc = try_again(need_shm, d);
    pthread_mutex_unlock(&lock);
    if (rc == -EPERM)
        return fbr_fail(err, rc, "%s is not a directory that only this user may enter", d->shm);
    if (rc == -ENOENT && access(d->root, F_OK) < 0)
        return fbr_fail(err, rc, "the run's directory %s was removed", d->root);
    return rc < 0 ? fbr_fail(err, rc, "cannot make %s: %s", d->shm, fbr_strerror(rc)) : 0;
}

void fbr_rundir_shm_leave(const struct fbr_rundir *d)
{
    char path[FBR_DIR_MAX + 8];
    struct dirent *e;
    DIR *dir;
    int n = 0;

    /* the segments are removed together with that directory */
    if (access(d->root, F_OK) == 0)
        return;
    dir = opendir(d->shm);
    while (dir && (e = readdir(dir)))
        n += strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0;
    if (dir)
        closedir(dir);
    snprintf(path, sizeof(path), "%s/run", d->shm);
    if (n == 1)
        unlink(path);
    if (n <= 1)
        rmdir(d->shm);
}

/* ---- Sweeping ---- */

void fbr_rundir_sweep(const char *base, bool (*found)(void *user, const char *root), void *user)
{
    DIR *d = opendir(base);
    struct dirent *e;

    while (d && (e = readdir(d))) {
        char path[FBR_DIR_MAX + 300];

        if (!is_ours(e->d_name))
            continue;
        snprintf(path, sizeof(path), "%s/%s", base, e->d_name);
        if (strlen(path) < FBR_DIR_MAX && is_dead(path) && (!found || found(user, path)))
            clear_away_dead(path);
    }
    if (d)
        closedir(d);
    sweep_shm(found ? base : NULL, found, user);
}

/* Takes the lock before the file gets its name, so that no process finds the file without a
 * lock. */
static int take_lock(struct fbr_rundir *d)
{
    struct flock mine = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    char path[FBR_DIR_MAX + 8], made[FBR_DIR_MAX + 8], self[FBR_MASTER_ID_MAX];
    size_t len;

    fbr_master_id_self(self);
    len = strlen(self);
    snprintf(path, sizeof(path), "%s/lock", d->root);
    snprintf(made, sizeof(made), "%s/new", d->root);
    d->lock_fd = open(made, O_RDWR | O_CREAT | O_CLOEXEC, 0600); /* maybe of a failed attempt */
    if (d->lock_fd < 0 || fcntl(d->lock_fd, F_SETLK, &mine) < 0)
        return -errno;
    if (write(d->lock_fd, self, len) < 0) /* a full disk: its children can have no segments */
        fbr_debug("%s: %m", made);
    if (rename(made, path) < 0)
        return -errno;
    return 0;
}

int fbr_rundir_create(struct fbr_rundir *d, const char *base, struct fbr_error *err)
{
    if (base[0] == '/' && strlen(base) <= FBR_RUN_DIR_MAX)
        fbr_rundir_sweep(base, NULL, NULL);
    return fbr_rundir_make(d, base, err);
}

int fbr_rundir_make(struct fbr_rundir *d, const char *base, struct fbr_error *err)
{
    int rc;

    *d = none;
    d->master = true;
    if (base[0] != '/' || strlen(base) > FBR_RUN_DIR_MAX)
        return fbr_fail(
            err, -ENAMETOOLONG,
            "run directory '%s': must be an absolute path of at most %d bytes, because socket "
            "names are short; "
            "set run_dir",
            base, FBR_RUN_DIR_MAX);
    snprintf(d->root, sizeof(d->root), "%.*s/" PREFIX "%d-XXXXXX", FBR_RUN_DIR_MAX, base,
             (int)getpid());
    if (!mkdtemp(d->root)) { /* mode 0700 */
        rc = fbr_fail(
            err, -errno,
            "cannot make a run directory in %s: %s; set run_dir to one that can be written", base,
            fbr_strerror(errno));
        d->root[0] = '\0';
        return rc;
    }
    snprintf(d->own, sizeof(d->own), "%s", d->root);
    shm_of(d->root, d->shm);
    d->held_fd = fbr_rundir_hold(d->root);
    rc = take_lock(d);
    if (rc < 0) {
        fbr_fail(err, rc, "run directory %s: %s; set run_dir to one that can be written", d->root,
                 fbr_strerror(rc));
        fbr_rundir_remove(d);
    }
    return rc;
}

int fbr_rundir_join(struct fbr_rundir *d, const char *root, const char *base, struct fbr_error *err)
{
    char path[FBR_DIR_MAX + 8];
    struct stat st;

    if (!root[0] || strlen(root) >= FBR_DIR_MAX || lstat(root, &st) < 0 || st.st_uid != geteuid() ||
        !S_ISDIR(st.st_mode))
        return fbr_rundir_create(d, base, err);
    *d = none;
    snprintf(d->root, sizeof(d->root), "%s", root);
    shm_of(root, d->shm);
    snprintf(path, sizeof(path), "%s/lock", root);
    d->joined_shared = lstat(path, &st) == 0 && st.st_size == 0; /* it names no master */
    return 0;
}

/* Holds the lock together with the other processes of the run. A new file is locked before it gets
 * its name: another process takes a file without a lock for a dead run's, and removes the
 * directory, which may be in use when the file is one that a cleaner has removed. */
static int share_lock(struct fbr_rundir *d)
{
    char path[FBR_DIR_MAX + 8], made[FBR_DIR_MAX + 24];
    struct stat there;
    bool named;

    if (mkdir(d->root, 0700) < 0 && errno != EEXIST)
        return -errno;
    if (lstat(d->root, &there) < 0)
        return -EAGAIN;
    if (!S_ISDIR(there.st_mode) || there.st_uid != geteuid())
        return -EPERM;
    snprintf(path, sizeof(path), "%s/lock", d->root);
    snprintf(made, sizeof(made), "%s/new-%d", d->root, (int)getpid());
    d->lock_fd = share_file(made, O_CREAT | O_EXCL, F_SETLK);
    named = d->lock_fd >= 0 && link(made, path) == 0;
    unlink(made);
    if (!named) { /* it is there already, or links are not possible here */
        fbr_fds_close(d->lock_fd);
        d->lock_fd = share_file(path, O_CREAT, F_SETLK);
    }
    return d->lock_fd < 0 ? d->lock_fd : 0;
}

int fbr_rundir_share(struct fbr_rundir *d, const char *run_uid, const char *base,
                     struct fbr_error *err)
{
    uint64_t run = fbr_hash(FBR_HASH, run_uid, strlen(run_uid)), host;
    char name[256] = "";
    int rc;

    *d = none;
    d->shared = true;
    /* fbr_rundir_create() reports what is wrong with base */
    if (base[0] != '/' || strlen(base) > FBR_RUN_DIR_MAX)
        return fbr_rundir_create(d, base, err);
    fbr_rundir_sweep(base, NULL, NULL);
    /* hosts may share their directory for temporary files */
    gethostname(name, sizeof(name) - 1);
    host = fbr_hash(run, name, strlen(name));
    host = fbr_hash(host, base, strlen(base)); /* another base has its own in SHM, too */
    snprintf(d->root, sizeof(d->root), "%.*s/" PREFIX "%u-%06x", FBR_RUN_DIR_MAX, base,
             (uint32_t)run, (uint32_t)host & 0xffffff);
    rc = try_again(share_lock, d);
    shm_of(d->root, d->shm);
    if (rc < 0) {
        fbr_fail(err, rc, "run directory %s: %s; set run_dir to one that can be written", d->root,
                 fbr_strerror(rc));
        d->root[0] = '\0';
    } else {
        d->held_fd = fbr_rundir_hold(d->root);
        fbr_rundir_shm(d, NULL); /* all processes of the run hold it; later users get the error */
    }
    return rc;
}

int fbr_rundir_own(struct fbr_rundir *d, struct fbr_error *err)
{
    char own[sizeof(d->own)];

    if (d->own[0])
        return 0;
    snprintf(own, sizeof(own), "%s/XXXXXX", d->root);
    if (!mkdtemp(own))
        return fbr_fail(err, -errno, "cannot make a directory in %s: %s", d->root,
                        fbr_strerror(errno));
    memcpy(d->own, own, sizeof(own));
    return 0;
}

void fbr_rundir_keep(struct fbr_rundir *d)
{
    char path[FBR_DIR_MAX + 8];
    int rc = 0;

    if (!d->root[0] || !(d->master || d->shared) || access(d->root, F_OK) < 0)
        return;
    snprintf(path, sizeof(path), "%s/lock", d->root);
    /* a cleaner held the directory at the last attempt */
    if (d->held_fd < 0)
        d->held_fd = fbr_rundir_hold(d->root);
    if (d->lock_fd < 0 || !is_there(d->lock_fd, path)) {
        d->lock_fd = fbr_fds_close(d->lock_fd);
        rc = d->master ? take_lock(d) : share_lock(d);
    }
    if (rc < 0)
        fbr_debug("run directory %s: its lock is gone, and cannot be made again yet: %s", d->root,
                  fbr_strerror(rc));
    fbr_rundir_touch(d->root);
}

/* The last process that shares the directory removes it: the one that releases the lock and then
 * finds it free. */
void fbr_rundir_remove(struct fbr_rundir *d)
{
    const int fds[] = {d->shm_fd, d->lock_fd, d->held_fd};

    if (!d->root[0])
        return;
    fbr_rundir_remove_tree(d->own);
    if (d->master)
        fbr_rundir_wreck(d->root);
    for (size_t i = 0; i < sizeof(fds) / sizeof(fds[0]); i++)
        fbr_fds_close(fds[i]);
    if (d->shared)
        clear_away_dead(d->root);
    d->lock_fd = d->shm_fd = d->held_fd = -1;
    d->root[0] = d->own[0] = '\0';
}

int fbr_rundir_parents(const char *path, unsigned mode)
{
    char dir[PATH_MAX];

    if (snprintf(dir, sizeof(dir), "%s", path) >= (int)sizeof(dir))
        return -ENAMETOOLONG;
    for (char *at = dir; at[0] && (at = strchr(at + 1, '/')); *at = '/') {
        *at = '\0';
        if (mkdir(dir, mode) < 0 && errno != EEXIST)
            return -errno;
    }
    return 0;
}
