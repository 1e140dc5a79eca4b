/* tree.c - sends and receives a file or a directory in messages.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "runtime/inspect/tree.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "runtime/base/fds.h"

/* ---- Messages ---- */

bool fbr_tree_is_name(const char *name)
{
    return name[0] && !strchr(name, '/') && strcmp(name, ".") != 0 && strcmp(name, "..") != 0;
}

bool fbr_tree_stays(const char *target, unsigned depth)
{
    bool up = true; /* only ".." so far */

    if (!target[0] || target[0] == '/')
        return false;
    for (const char *at = target; *at;) {
        size_t n = strcspn(at, "/");

        if (n == 2 && !memcmp(at, "..", 2)) {
            if (!up || depth == 0)
                return false;
            depth--;
        } else if (n && !(n == 1 && at[0] == '.')) {
            up = false;
        }
        at += n + (at[n] == '/');
    }
    return true;
}

void fbr_tree_describe_left(char *out, size_t size, unsigned links, unsigned specials)
{
    char of_links[80] = "", of_specials[80] = "";

    if (links)
        snprintf(of_links, sizeof(of_links), "%u link%s that lead%s out of it", links,
                 links == 1 ? "" : "s", links == 1 ? "s" : "");
    if (specials)
        snprintf(of_specials, sizeof(of_specials), "%u that %s neither file, directory nor link",
                 specials, specials == 1 ? "is" : "are");
    snprintf(out, size, "%s%s%s%s", links || specials ? "left out: " : "", of_links,
             links && specials ? ", " : "", of_specials);
}

/* ---- Sending ---- */

int fbr_tree_open(const char *path, uint32_t *mode, char name[FBR_MSG_NAME], struct fbr_error *err)
{
    /* O_NONBLOCK: open() must not wait for the other end of a FIFO. */
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY), rc = 0;
    const char *slash;
    struct stat st;
    char *whole;

    if (fd < 0 || fstat(fd, &st) < 0)
        rc = fbr_fail(err, -errno, "%.300s: %s", path, fbr_strerror(errno));
    else if (!S_ISREG(st.st_mode) && !S_ISDIR(st.st_mode))
        rc = fbr_fail(err, -EINVAL, "%.300s is not a regular file", path);
    if (rc < 0) {
        fbr_fds_close(fd);
        return rc;
    }
    *mode = st.st_mode & 0777;
    if (S_ISREG(st.st_mode)) {
        snprintf(name, FBR_MSG_NAME, "%s", basename(path));
        return fd;
    }
    *mode |= FBR_MSG_IS_TREE;
    whole = realpath(path, NULL);
    slash = whole ? strrchr(whole, '/') : NULL;
    snprintf(name, FBR_MSG_NAME, "%s", slash && slash[1] ? slash + 1 : "files");
    free(whole);
    return fd;
}

static int send_bytes(int sock, int fd, struct fbr_error *err)
{
    char *data = malloc(FBR_MSG_MAX);
    ssize_t n = 1;
    int rc = 0;

    if (!data)
        return fbr_fail(err, -EIO, "cannot be read: %s", strerror(ENOMEM));
    while (rc == 0 && n) {
        n = read(fd, data, FBR_MSG_MAX);
        if (n >= 0)
            rc = fbr_msg_send(sock, FBR_MSG_DATA, data, (size_t)n);
        else if (errno != EINTR)
            rc = fbr_fail(err, -EIO, "cannot be read: %s", strerror(errno));
    }
    free(data);
    return rc;
}

struct sending {
    int sock;
    unsigned *left;
    struct fbr_error *err;
};

static int send_dir(struct sending *s, int fd, unsigned depth);

static int failed(struct sending *s, int rc, const char *name)
{
    return fbr_fail(s->err, rc, "%.200s cannot be read: %s", name, fbr_strerror(rc));
}

static int send_link(struct sending *s, int at, const char *name)
{
    char target[FBR_MSG_PATH];
    ssize_t n = readlinkat(at, name, target, sizeof(target));

    if (n < 0)
        return errno == ENOENT ? 0 : failed(s, -errno, name);
    if (n == sizeof(target))
        return failed(s, -ENAMETOOLONG, name);
    target[n] = '\0';
    return fbr_msg_send_item(s->sock, FBR_MSG_LINK, 0, name, target);
}

static int send_open(struct sending *s, int fd, const char *name)
{
    struct stat st;
    int rc;

    if (fstat(fd, &st) < 0)
        return failed(s, -errno, name);
    if (!S_ISREG(st.st_mode)) {
        ++*s->left;
        return 0;
    }
    rc = fbr_msg_send_item(s->sock, FBR_MSG_FILE, st.st_mode & 0777, name, "");
    return rc < 0 ? rc : send_bytes(s->sock, fd, s->err);
}

/* Opens a file once and sends it by its descriptor: its name may mean another file later. */
static int send_file(struct sending *s, int at, const char *name)
{
    int fd = openat(at, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC), rc;

    if (fd < 0)
        return errno == ENOENT ? 0 : failed(s, -errno, name);
    rc = send_open(s, fd, name);
    close(fd);
    return rc;
}

static int send_below(struct sending *s, int at, const char *name, unsigned depth)
{
    int fd, rc;
    struct stat st;

    if (depth >= FBR_TREE_DEPTH)
        return fbr_fail(s->err, -ELOOP, "%.200s: more than %d levels of directories", name,
                        FBR_TREE_DEPTH);
    fd = openat(at, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0)
        return errno == ENOENT ? 0 : failed(s, -errno, name);
    if (fstat(fd, &st) < 0) {
        close(fd);
        return failed(s, -errno, name);
    }
    rc = fbr_msg_send_item(s->sock, FBR_MSG_DIR, st.st_mode & 0777, name, "");
    if (rc < 0) {
        close(fd);
        return rc;
    }
    return send_dir(s, fd, depth);
}

static int send_one(struct sending *s, int at, const char *name, unsigned depth)
{
    struct stat st;

    if (fstatat(at, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
        return errno == ENOENT ? 0 /* it was removed meanwhile */ : failed(s, -errno, name);
    if (S_ISDIR(st.st_mode))
        return send_below(s, at, name, depth + 1);
    if (S_ISLNK(st.st_mode))
        return send_link(s, at, name);
    if (S_ISREG(st.st_mode))
        return send_file(s, at, name);
    ++*s->left;
    return 0;
}

/* Closes fd. */
static int send_dir(struct sending *s, int fd, unsigned depth)
{
    DIR *d = fdopendir(fd);
    struct dirent *e;
    int rc = 0;

    if (!d) {
        rc = failed(s, -errno, "a directory");
        close(fd);
        return rc;
    }
    while (rc == 0) {
        errno = 0;
        e = readdir(d);
        if (!e) {
            rc = errno ? failed(s, -errno, "a directory") : 0;
            break;
        }
        if (fbr_tree_is_name(e->d_name) && !fbr_atomic_in_use(fd, e->d_name))
            rc = send_one(s, fd, e->d_name, depth);
    }
    closedir(d);
    return rc < 0 ? rc : fbr_msg_send_item(s->sock, FBR_MSG_UP, 0, "", "");
}

int fbr_tree_send(int sock, int fd, uint32_t mode, unsigned *left, struct fbr_error *err)
{
    struct fbr_error why = {0, ""};
    struct sending s = {.sock = sock, .left = left, .err = &why};
    int rc;

    *left = 0;
    if (!(mode & FBR_MSG_IS_TREE)) {
        rc = send_bytes(sock, fd, err);
        close(fd);
        return rc;
    }
    rc = send_dir(&s, fd, 0);
    /* an error without a sentence is that of the other end */
    return why.code ? fbr_fail(err, -EIO, "%s", why.text) : rc;
}

/* ---- Receiving ---- */

static int recv_bytes(struct fbr_atomic *f, int sock, struct fbr_error *err)
{
    struct fbr_msg m = {.kind = 0};
    int rc;

    while ((rc = fbr_msg_expect(sock, &m, FBR_MSG_DATA, err)) == 0 && fbr_cur_left(&m.body)) {
        rc = fbr_fds_write(f->fd, m.body.at, fbr_cur_left(&m.body));
        if (rc < 0) {
            fbr_atomic_fail(f, rc, err);
            break;
        }
    }
    fbr_buf_fini(&m.bytes);
    if (rc < 0)
        fbr_atomic_drop(f);
    return rc;
}

static int abandon(struct fbr_tree *t, int rc, const char *what, struct fbr_error *err)
{
    fbr_fail(err, rc, "%.300s%s%.200s: %s", t->path, what[0] ? ": " : "", what, fbr_strerror(rc));
    fbr_tree_drop(t);
    return rc;
}

void fbr_tree_drop(struct fbr_tree *t)
{
    fbr_atomic_drop(&t->file);
    if (t->fd < 0)
        return;
    fbr_atomic_remove(t->beside);
    close(t->fd);
    t->fd = -1;
}

static bool is_empty(const char *path)
{
    DIR *d = opendir(path);
    struct dirent *e;
    bool empty = d != NULL;

    while (d && (e = readdir(d)))
        empty = empty && !fbr_tree_is_name(e->d_name);
    if (d)
        closedir(d);
    return empty;
}

int fbr_tree_begin(struct fbr_tree *t, const char *path, const char *name, uint32_t mode,
                   struct fbr_error *err)
{
    struct stat st;
    size_t n;

    memset(t, 0, sizeof(*t));
    t->fd = t->file.fd = -1;
    t->mode = mode;
    if (!(mode & FBR_MSG_IS_TREE))
        return fbr_atomic_begin(&t->file, path, fbr_tree_is_name(name) ? name : "file", err);
    if (!path[0])
        path = ".";
    if (stat(path, &st) == 0 && S_ISDIR(st.st_mode))
        snprintf(t->path, sizeof(t->path), "%s/%s", path, fbr_tree_is_name(name) ? name : "files");
    else
        snprintf(t->path, sizeof(t->path), "%s", path);
    for (n = strlen(t->path); n > 1 && t->path[n - 1] == '/'; n--) /* users type a directory so */
        t->path[n - 1] = '\0';
    if (lstat(t->path, &st) == 0 && !(S_ISDIR(st.st_mode) && is_empty(t->path)))
        return fbr_fail(
            err, -EEXIST,
            "%.300s exists, and a directory does not replace it; remove it, or use another path",
            t->path);
    t->fd = fbr_atomic_dir(t->path, t->beside, sizeof(t->beside));
    return t->fd < 0 ? abandon(t, t->fd, "", err) : 0;
}

struct receiving {
    struct fbr_tree *t;
    int sock;
    /* the top directory, and those below it down to the current one */
    int dirs[FBR_TREE_DEPTH + 1];
    uint32_t modes[FBR_TREE_DEPTH + 1];
    unsigned depth;
};

static int take_dir(struct receiving *r, const struct fbr_msg_item *e)
{
    int at = r->dirs[r->depth], fd;

    if (r->depth == FBR_TREE_DEPTH)
        return -ELOOP;
    if (mkdirat(at, e->name, 0700) < 0)
        return -errno;
    fd = openat(at, e->name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0)
        return -errno;
    r->dirs[++r->depth] = fd;
    r->modes[r->depth] = e->mode & 0777;
    return 0;
}

/* Leaves a directory and sets its permissions last, as they may forbid us to write in it. */
static int leave_dir(struct receiving *r)
{
    int fd = r->dirs[r->depth], rc = fchmod(fd, r->modes[r->depth]) < 0 ? -errno : 0;

    close(fd);
    r->depth--;
    return rc;
}

static int take_file(struct receiving *r, const struct fbr_msg_item *e, struct fbr_error *err)
{
    struct fbr_atomic f = {.fd = -1};
    int rc;

    snprintf(f.path, sizeof(f.path), "%.3000s/%s", r->t->path, e->name);
    f.fd = openat(r->dirs[r->depth], e->name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC,
                  0600);
    if (f.fd < 0)
        return -errno;
    rc = recv_bytes(&f, r->sock, err);
    if (rc < 0)
        return rc;
    rc = fchmod(f.fd, e->mode & 0777) < 0 ? -errno : 0;
    return close(f.fd) < 0 && rc == 0 ? -errno : rc;
}

static int take_link(struct receiving *r, const struct fbr_msg_item *e)
{
    if (!fbr_tree_stays(e->path, r->depth)) {
        r->t->links++;
        return 0;
    }
    return symlinkat(e->path, r->dirs[r->depth], e->name) < 0 ? -errno : 0;
}

/* Handles one entry. 1: it was the last one. An error without a sentence is an error of ours, with
 * that entry. */
static int take_one(struct receiving *r, uint8_t kind, const struct fbr_msg_item *e,
                    struct fbr_error *err)
{
    if (kind != FBR_MSG_UP && !fbr_tree_is_name(e->name))
        return fbr_msg_malformed(err);
    switch (kind) {
    case FBR_MSG_DIR:
        return take_dir(r, e);
    case FBR_MSG_FILE:
        return take_file(r, e, err);
    case FBR_MSG_LINK:
        return take_link(r, e);
    case FBR_MSG_UP:
        return r->depth ? leave_dir(r) : 1;
    default:
        return fbr_msg_malformed(err);
    }
}

int fbr_tree_recv(struct fbr_tree *t, int sock, struct fbr_error *err)
{
    struct receiving r = {.t = t, .sock = sock, .dirs = {t->fd}};
    struct fbr_msg_item e = {.name = ""};
    struct fbr_error why = {0, ""};
    struct fbr_msg m = {.kind = 0};
    int rc = 0;

    if (!(t->mode & FBR_MSG_IS_TREE))
        return recv_bytes(&t->file, sock, err);
    while (rc == 0) {
        rc = fbr_msg_recv(sock, &m, &why);
        if (rc < 0)
            break;
        rc = fbr_msg_get_item(&m.body, &e) ? take_one(&r, m.kind, &e, &why)
                                           : fbr_msg_malformed(&why);
    }
    fbr_buf_fini(&m.bytes);
    while (r.depth)
        close(r.dirs[r.depth--]);
    if (rc >= 0)
        return 0;
    if (!why.code)
        return abandon(t, rc, e.name, err);
    fbr_tree_drop(t);
    return fbr_fail(err, rc, "%s", why.text);
}

int fbr_tree_commit(struct fbr_tree *t, struct fbr_error *err)
{
    if (!(t->mode & FBR_MSG_IS_TREE))
        return fbr_atomic_commit(&t->file, t->mode, err);
    /* the rename replaces nothing, or an empty directory */
    if (fchmod(t->fd, t->mode & 0777) < 0 || rename(t->beside, t->path) < 0)
        return abandon(t, -errno, "", err);
    close(t->fd);
    t->fd = -1;
    return 0;
}
