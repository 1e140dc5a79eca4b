/* closure.c - the set of files that programs need: paths, directories, and the other files of a
 * system.
 *
 * Every path is walked part by part. The directories and links on the way become entries of their
 * own, under their names without links. So the image can be unpacked anywhere, and no entry is ever
 * written through a link.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "backends/image/closure.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <pwd.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "backends/image/closure_priv.h"
#include "runtime/program/script.h"
#include "runtime/program/spawn.h"

#define LINKS 40 /* on the way of one path; the kernel's limit */
#define DEPTH 64 /* nesting of folders in a directory that is added */
#define NOTES 32
#define SCRIPTS 5
#define SERVICES "passwd: files\ngroup: files\nhosts: files dns\n"

/* ---- The set ---- */

static void entry_free(struct closure_entry *e)
{
    if (!e)
        return;
    free((void *)(uintptr_t)e->file.path);
    free((void *)(uintptr_t)e->file.target);
    free((void *)(uintptr_t)e->file.text);
    free(e);
}

struct closure_entry *closure_find(struct fbr_closure *c, const char *path)
{
    struct closure_entry *e;

    HASH_FIND_STR(c->entries, path, e);
    return e;
}

/* Adds a copy of the file; -ENOMEM. An existing entry stays. */
static int put(struct fbr_closure *c, const struct fbr_file *file)
{
    struct closure_entry *e = closure_find(c, file->path);

    if (e)
        return 0;
    e = calloc(1, sizeof(*e));
    if (!e)
        return -ENOMEM;
    e->file = *file;
    e->file.path = strdup(file->path);
    e->file.target = file->target ? strdup(file->target) : NULL;
    e->file.text = file->text ? strdup(file->text) : NULL;
    if (!e->file.path || (file->target && !e->file.target) || (file->text && !e->file.text)) {
        entry_free(e);
        return -ENOMEM;
    }
    HASH_ADD_KEYPTR(hh, c->entries, e->file.path, strlen(e->file.path), e);
    if (!e->hh.tbl) {
        entry_free(e);
        return -ENOMEM;
    }
    c->bytes += file->size;
    free(c->sorted);
    c->sorted = NULL;
    return 0;
}

static int put_directory(struct fbr_closure *c, const char *path, unsigned mode)
{
    const struct fbr_file file = {.path = path, .kind = FBR_FILE_DIRECTORY, .mode = mode};

    return path[0] ? put(c, &file) : 0; /* "" is the root */
}

void closure_note(struct fbr_closure *c, const char *fmt, ...)
{
    va_list ap;
    char *note;

    va_start(ap, fmt);
    if (c->notes.n < NOTES && vasprintf(&note, fmt, ap) >= 0) {
        fbr_args_add(&c->notes, note, strlen(note));
        free(note);
    }
    va_end(ap);
}

char *const *fbr_closure_notes(const struct fbr_closure *c)
{
    return c->notes.at;
}

uint64_t fbr_closure_bytes(const struct fbr_closure *c)
{
    return c->bytes;
}

int64_t fbr_file_mtime(const struct stat *st)
{
    return (int64_t)st->st_mtim.tv_sec * 1000000000 + st->st_mtim.tv_nsec;
}

void fbr_closure_measure(struct fbr_closure *c)
{
    struct closure_entry *e, *next;
    struct stat st;

    HASH_ITER(hh, c->entries, e, next) {
        struct fbr_file *f = &e->file;

        if (f->kind != FBR_FILE_REGULAR || f->text || lstat(f->path, &st) < 0 ||
            !S_ISREG(st.st_mode) || (uint64_t)st.st_size <= f->size)
            continue;
        f->size = (uint64_t)st.st_size;
        f->mtime = fbr_file_mtime(&st);
    }
}

static int by_path(const void *a, const void *b)
{
    return strcmp((*(const struct fbr_file *const *)a)->path,
                  (*(const struct fbr_file *const *)b)->path);
}

const struct fbr_file *const *fbr_closure_files(struct fbr_closure *c, size_t *count)
{
    size_t n = HASH_COUNT(c->entries), i = 0;
    struct closure_entry *e, *next;

    if (!c->sorted) {
        c->sorted = calloc(n + 1, sizeof(const struct fbr_file *));
        if (!c->sorted)
            return NULL;
        HASH_ITER(hh, c->entries, e, next)
            c->sorted[i++] = &e->file;
        qsort(c->sorted, n, sizeof(const struct fbr_file *), by_path);
    }
    *count = n;
    return c->sorted;
}

int fbr_closure_new(struct fbr_closure **out, const struct fbr_closure_options *o,
                    struct fbr_error *err)
{
    struct fbr_closure *c = calloc(1, sizeof(*c));

    if (!c)
        return fbr_fail(err, -ENOMEM, "out of memory");
    c->o = *o;
    *out = c;
    return 0;
}

void fbr_closure_free(struct fbr_closure *c)
{
    struct closure_entry *e, *next;
    struct closure_name *n, *after;

    if (!c)
        return;
    HASH_ITER(hh, c->entries, e, next) {
        HASH_DEL(c->entries, e);
        entry_free(e);
    }
    HASH_ITER(hh, c->names, n, after) {
        HASH_DEL(c->names, n);
        free(n->name);
        free(n);
    }
    fbr_args_fini(&c->notes);
    free(c->sorted);
    fbr_args_fini(&c->dirs);
    free(c->mapped_path);
    free(c);
}

/* ---- Paths ---- */

struct walk {
    struct closure_at *at;
    char rest[2 * PATH_MAX];
    int links;
};

/* Follows the link `path`: its target is walked next, before the rest. */
static int follow(struct fbr_closure *c, struct walk *w, const char *path, const char *behind)
{
    const struct closure_entry *known = closure_find(c, path);
    char target[PATH_MAX], rest[sizeof(w->rest)];
    ssize_t n;
    int rc;

    if (++w->links > LINKS)
        return -ELOOP;
    if (known) {
        snprintf(target, sizeof(target), "%s", known->file.target);
    } else {
        n = readlink(path, target, sizeof(target) - 1);
        if (n < 0)
            return -errno;
        target[n] = '\0';
        rc = put(c, &(struct fbr_file){
                        .path = path, .kind = FBR_FILE_LINK, .mode = 0777, .target = target});
        if (rc < 0)
            return rc;
    }
    n = snprintf(rest, sizeof(rest), "%s/%s", target, behind);
    if (n < 0 || (size_t)n >= sizeof(rest))
        return -ENAMETOOLONG;
    memcpy(w->rest, rest, (size_t)n + 1);
    if (target[0] == '/')
        w->at->path[0] = '\0';
    return 0;
}

static int look(struct fbr_closure *c, const char *path, struct stat *st)
{
    const struct closure_entry *known = closure_find(c, path);

    if (known && known->file.kind != FBR_FILE_REGULAR) {
        memset(st, 0, sizeof(*st));
        st->st_mode = known->file.kind == FBR_FILE_LINK ? S_IFLNK : S_IFDIR;
        return 0;
    }
    return lstat(path, st) < 0 ? -errno : 0;
}

/* Walks one part of the path: `name` of `len` bytes; `behind` is the text after it. */
static int walk_part(struct fbr_closure *c, struct walk *w, const char *name, size_t len,
                     const char *behind)
{
    struct closure_at *at = w->at;
    size_t have = strlen(at->path);
    char next[PATH_MAX];
    char *slash;
    int rc;

    if (!S_ISDIR(at->st.st_mode))
        return -ENOTDIR;
    if (len == 0 || (len == 1 && name[0] == '.'))
        return 0;
    if (len == 2 && name[0] == '.' && name[1] == '.') {
        slash = strrchr(at->path, '/');
        if (slash)
            *slash = '\0';
        return 0;
    }
    if (len > NAME_MAX || have + len + 2 > PATH_MAX)
        return -ENAMETOOLONG;
    memcpy(next, at->path, have);
    next[have] = '/';
    memcpy(next + have + 1, name, len);
    next[have + 1 + len] = '\0';
    rc = look(c, next, &at->st);
    if (rc < 0)
        return rc;
    if (S_ISLNK(at->st.st_mode)) {
        at->st.st_mode = S_IFDIR; /* the type of the folder that has the link */
        rc = follow(c, w, next, behind);
        return rc < 0 ? rc : 1;
    }
    if (S_ISDIR(at->st.st_mode))
        rc = put_directory(c, next, 0755);
    memcpy(at->path, next, sizeof(next));
    return rc;
}

/* Walks a path, and adds the directories and links on the way. Returns a negative errno without a
 * message. */
static int walk_to(struct fbr_closure *c, const char *path, struct closure_at *at)
{
    struct walk w = {.at = at};
    const char *rest = w.rest;
    int rc = 0;

    if (strlen(path) >= PATH_MAX)
        return -ENAMETOOLONG;
    memset(&at->st, 0, sizeof(at->st));
    at->st.st_mode = S_IFDIR;
    at->path[0] = '\0';
    snprintf(w.rest, sizeof(w.rest), "%s", path);
    while (*rest) {
        size_t len = strcspn(rest, "/");
        const char *behind = rest + len + (rest[len] == '/');

        rc = walk_part(c, &w, rest, len, behind);
        if (rc < 0)
            return rc;
        rest = rc ? w.rest : behind;
    }
    return 0;
}

static bool is_under(const char *path, const char *folder)
{
    size_t n = strlen(folder);

    return !strncmp(path, folder, n) && (path[n] == '\0' || path[n] == '/');
}

static bool is_kernels(const char *path)
{
    return is_under(path, "/proc") || is_under(path, "/sys") || is_under(path, "/dev");
}

/* Handles a file or directory that we may not read. A program of this user cannot read it either,
 * so data without it are whole. */
static int cannot_read(struct fbr_closure *c, const char *what, const char *path,
                       struct fbr_error *err)
{
    if (!c->as_data || errno != EACCES)
        return fbr_fail(err, -errno, "cannot read %s%.512s, which the image needs: %m", what, path);
    closure_note(c, "%s%.512s was left out: this user may not read it", what, path);
    return 0;
}

/* Adds a file at which walk_to() arrived. */
static int take_file(struct fbr_closure *c, const struct closure_at *at, struct fbr_error *err)
{
    struct fbr_file file = {.path = at->path, .kind = FBR_FILE_REGULAR};

    if (!S_ISREG(at->st.st_mode) || is_kernels(at->path))
        return fbr_fail(err, -EINVAL, "%.512s is not a regular file, and cannot be in an image",
                        at->path);
    if (!closure_find(c, at->path) && faccessat(AT_FDCWD, at->path, R_OK, AT_EACCESS) < 0)
        return cannot_read(c, "", at->path, err);
    file.mode = at->st.st_mode & 0111 ? 0755 : 0644;
    file.size = (uint64_t)at->st.st_size;
    file.mtime = fbr_file_mtime(&at->st);
    if (put(c, &file) < 0)
        return fbr_fail(err, -ENOMEM, "out of memory");
    return 0;
}

int closure_take_path(struct fbr_closure *c, const char *path, struct closure_at *at,
                      struct fbr_error *err)
{
    int rc = walk_to(c, path, at);

    if (rc < 0)
        return fbr_fail(err, rc, "%.512s: %s", path, fbr_strerror(rc));
    return take_file(c, at, err);
}

/* ---- Directories ---- */

/* Adds a file of a directory. It may need libraries if it is executable, or has the name of a
 * library. */
static int take_found(struct fbr_closure *c, const char *path, const struct closure_at *at,
                      struct fbr_error *err)
{
    const char *name = strrchr(at->path, '/');
    int rc = take_file(c, at, err);

    if (rc < 0 || !(at->st.st_mode & 0111 || (name && strstr(name, ".so"))))
        return rc;
    rc = closure_libraries(c, path, at, false, err);
    return rc == -ENOEXEC ? 0 : rc;
}

static int take_tree(struct fbr_closure *c, const char *path, int depth, struct fbr_error *err);

static int take_member(struct fbr_closure *c, const char *path, int depth, struct fbr_error *err)
{
    struct closure_at *at;
    struct stat st;
    int rc = 0;

    /* removed meanwhile */
    if (lstat(path, &st) < 0)
        return 0;
    if (S_ISDIR(st.st_mode))
        return take_tree(c, path, depth + 1, err);
    /* sockets, pipes and devices */
    if (!S_ISREG(st.st_mode) && !S_ISLNK(st.st_mode))
        return 0;
    at = malloc(sizeof(*at));
    if (!at)
        return fbr_fail(err, -ENOMEM, "out of memory");
    /* A link to a file adds the file, a link to a directory adds the empty directory, a broken link
     * stays. */
    if (walk_to(c, path, at) == 0 && S_ISREG(at->st.st_mode) && !is_kernels(at->path))
        rc = take_found(c, path, at, err);
    free(at);
    return rc;
}

/* The folder on a path of modules may be that of a whole project. */
static bool is_history(const char *name)
{
    return !strcmp(name, ".git") || !strcmp(name, ".hg") || !strcmp(name, ".svn");
}

/* Adds a directory with its contents; `path` has no links. */
static int take_tree(struct fbr_closure *c, const char *path, int depth, struct fbr_error *err)
{
    char *member = NULL;
    struct dirent *d;
    int rc = 0;
    DIR *dir;

    if (is_kernels(path))
        return 0;
    if (depth > DEPTH)
        return fbr_fail(err, -ELOOP, "%.512s: more than %d levels of folders", path, DEPTH);
    dir = opendir(path);
    if (!dir)
        return cannot_read(c, "the directory ", path, err);
    if (put_directory(c, path, 0755) < 0)
        rc = fbr_fail(err, -ENOMEM, "out of memory");
    while (rc == 0 && (d = readdir(dir))) {
        if (!strcmp(d->d_name, ".") || !strcmp(d->d_name, "..") ||
            (c->as_data && is_history(d->d_name)))
            continue;
        if (asprintf(&member, "%s/%s", path, d->d_name) < 0) {
            rc = fbr_fail(err, -ENOMEM, "out of memory");
            break;
        }
        rc = strlen(member) < PATH_MAX ? take_member(c, member, depth, err) : 0;
        free(member);
    }
    closedir(dir);
    return rc;
}

int closure_take_plugin(struct fbr_closure *c, const char *path, struct fbr_error *err)
{
    struct closure_at at;

    if (walk_to(c, path, &at) < 0)
        return 0;
    if (S_ISDIR(at.st.st_mode))
        return take_tree(c, at.path, 0, err);
    return S_ISREG(at.st.st_mode) ? take_found(c, path, &at, err) : 0;
}

/* ---- Programs ---- */

static int add_named(struct fbr_closure *c, const char *path, int scripts, struct fbr_error *err);

/* Finds the program NAME in PATH, as env(1) does. */
static int add_by_name(struct fbr_closure *c, const char *name, const char *script, int scripts,
                       struct fbr_error *err)
{
    char path[PATH_MAX];
    int rc = fbr_spawn_find(name, path, sizeof(path), err);

    if (rc == -ENAMETOOLONG)
        return rc;
    if (rc < 0)
        return fbr_fail(err, -ENOENT, "%.512s is a script for %.64s, which is not in PATH", script,
                        name);
    return add_named(c, path, scripts, err);
}

/* For "#!/usr/bin/env -S python3 -u" both programs are added. Returns 0 also if the file is not a
 * script. */
static int add_interpreter(struct fbr_closure *c, const char *path, int scripts,
                           struct fbr_error *err)
{
    char line[FBR_SCRIPT_LINE];
    const char *words[FBR_SCRIPT_WORDS];
    int rc;

    if (!fbr_script_first_line(path, line, words) || words[0][0] != '/')
        return 0;
    rc = add_named(c, words[0], scripts, err);
    if (rc < 0)
        return fbr_wrap(err, "%.256s is a script for %.128s", path, words[0]);
    if (!fbr_script_is_by_env(words))
        return 0;
    return words[1][0] == '/' ? add_named(c, words[1], scripts, err)
                              : add_by_name(c, words[1], path, scripts, err);
}

/* scripts: how many more scripts may be interpreters of each other; the kernel has a limit too. */
static int add_named(struct fbr_closure *c, const char *path, int scripts, struct fbr_error *err)
{
    struct closure_at at;
    int rc = walk_to(c, path, &at);

    if (rc < 0)
        return fbr_fail(err, rc, "%.512s: %s", path, fbr_strerror(rc));
    if (S_ISDIR(at.st.st_mode) && (!at.path[0] || is_kernels(at.path)))
        return fbr_fail(err, -EINVAL,
                        "%.512s cannot be in an image: name the files in it that are needed",
                        at.path[0] ? at.path : "/");
    if (S_ISDIR(at.st.st_mode) && scripts < SCRIPTS)
        return fbr_fail(err, -EISDIR, "%.512s is a directory, not a program", path);
    if (S_ISDIR(at.st.st_mode))
        return take_tree(c, at.path, 0, err);
    rc = take_file(c, &at, err);
    if (rc < 0)
        return rc;
    rc = closure_libraries(c, path, &at, true, err);
    if (rc != -ENOEXEC)
        return rc;
    return scripts ? add_interpreter(c, at.path, scripts - 1, err) : 0;
}

char *fbr_path_absolute(const char *path, struct fbr_error *err)
{
    char here[PATH_MAX], *whole = NULL;

    while (!strncmp(path, "./", 2))
        path += 2 + strspn(path + 2, "/");
    if (is_under(path, "/proc")) /* /proc/self/exe: the file itself, not the link */
        whole = realpath(path, NULL);
    else if (path[0] != '/' && !getcwd(here, sizeof(here)))
        fbr_fail(err, -errno, "%.512s: cannot find the current directory: %m", path);
    else if (asprintf(&whole, "%s%s%s", path[0] == '/' ? "" : here, path[0] == '/' ? "" : "/",
                      path) < 0)
        whole = NULL;
    if (!whole)
        fbr_fail(err, -ENOENT, "%.512s: %m", path);
    return whole;
}

int fbr_closure_add(struct fbr_closure *c, const char *path, struct fbr_error *err)
{
    char *whole = fbr_path_absolute(path, err);
    int rc = whole ? add_named(c, whole, SCRIPTS, err) : -ENOENT;

    free(whole);
    return rc;
}

int fbr_closure_add_data(struct fbr_closure *c, const char *path, struct fbr_error *err)
{
    char *whole = fbr_path_absolute(path, err);
    int rc;

    c->as_data = true;
    rc = whole ? closure_take_plugin(c, whole, err) : -ENOENT;
    c->as_data = false;
    free(whole);
    return rc;
}

/* ---- The system ---- */

int fbr_closure_add_directory(struct fbr_closure *c, const char *path, unsigned mode,
                              struct fbr_error *err)
{
    char part[PATH_MAX + NAME_MAX + 2];
    struct closure_at at;
    struct closure_entry *e = NULL;
    char above[PATH_MAX] = "";
    int rc = 0;

    if (path[0] != '/' || strlen(path) >= sizeof(above))
        return fbr_fail(err, -EINVAL, "%.512s is not an absolute path", path);
    for (const char *name = path; *name && rc == 0; name += strcspn(name, "/")) {
        name += strspn(name, "/");
        if (!*name)
            break;
        if (!strncmp(name, "..", 2) && strcspn(name, "/") == 2)
            return fbr_fail(err, -EINVAL, "%.512s: use a path without \"..\"", path);
        snprintf(part, sizeof(part), "%s/%.*s", above, (int)strcspn(name, "/"), name);
        /* a link on this machine (usr-merged, for instance) counts */
        if (walk_to(c, part, &at) == 0)
            snprintf(part, sizeof(part), "%s", at.path);
        if (strlen(part) >= sizeof(above))
            return fbr_fail(err, -ENAMETOOLONG, "%.512s: the path is too long", path);
        memcpy(above, part, strlen(part) + 1);
        rc = put_directory(c, above, 0755);
        e = closure_find(c, above);
        if (e && e->file.kind != FBR_FILE_DIRECTORY)
            return fbr_fail(err, -ENOTDIR, "%.512s is not a directory in the image", above);
    }
    if (e)
        e->file.mode = mode;
    return rc < 0 ? fbr_fail(err, rc, "%s", fbr_strerror(rc)) : 0;
}

static int put_text(struct fbr_closure *c, const char *path, const char *text)
{
    const struct fbr_file file = {
        .path = path, .kind = FBR_FILE_REGULAR, .mode = 0644, .text = text, .size = strlen(text)};

    return put(c, &file);
}

/* Open MPI, Python and other programs look up their own user. */
static int put_users(struct fbr_closure *c)
{
    char buffer[4096], users[8192], groups[8192];
    struct passwd user, *u = NULL;
    struct group group, *g = NULL;
    uid_t uid = geteuid();
    gid_t gid = getegid();
    int rc;

    if (uid) /* u stays NULL if the look-up fails */
        getpwuid_r(uid, &user, buffer, sizeof(buffer), &u);
    snprintf(users, sizeof(users),
             "root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/:"
             "/usr/sbin/nologin\n");
    if (uid && uid != 65534)
        snprintf(users + strlen(users), sizeof(users) - strlen(users),
                 "%s:x:%u:%u:%s:/tmp:/bin/sh\n", u ? u->pw_name : "user", uid, gid,
                 u ? u->pw_name : "user");
    if (gid)
        getgrgid_r(gid, &group, buffer, sizeof(buffer), &g);
    snprintf(groups, sizeof(groups), "root:x:0:\nnogroup:x:65534:\n");
    if (gid && gid != 65534)
        snprintf(groups + strlen(groups), sizeof(groups) - strlen(groups), "%s:x:%u:\n",
                 g ? g->gr_name : "group", gid);
    rc = put_text(c, "/etc/passwd", users);
    return rc < 0 ? rc : put_text(c, "/etc/group", groups);
}

int fbr_closure_add_system(struct fbr_closure *c, struct fbr_error *err)
{
    static const struct {
        const char *path;
        unsigned mode;
    } made[] = {{"/dev", 0755},  {"/etc", 0755}, {"/proc", 0555},
                {"/root", 0700}, {"/run", 0755}, {"/sys", 0555},
                {"/tmp", 01777}, {"/var", 0755}, {"/var/tmp", 01777}};
    static const char *const merged[] = {"/bin", "/lib", "/lib64", "/sbin"};
    struct closure_entry *e;
    struct closure_at at;
    int rc = 0;

    /* a name that does not exist here is not needed */
    for (size_t i = 0; i < sizeof(merged) / sizeof(merged[0]); i++)
        walk_to(c, merged[i], &at);
    for (size_t i = 0; i < sizeof(made) / sizeof(made[0]) && rc == 0; i++) {
        /* The user in the container may be another one, and must be able to read the file. */
        unsigned mode = made[i].mode | (closure_find(c, made[i].path) ? 0055 : 0);

        rc = put_directory(c, made[i].path, mode);
        e = closure_find(c, made[i].path);
        if (e && e->file.kind == FBR_FILE_DIRECTORY)
            e->file.mode = mode;
    }
    if (rc < 0)
        return fbr_fail(err, rc, "%s", fbr_strerror(rc));
    if (c->needs_cache && walk_to(c, "/etc/ld.so.cache", &at) == 0)
        rc = take_file(c, &at, err);
    if (rc < 0)
        return rc;
    if ((rc = put_text(c, "/etc/nsswitch.conf", SERVICES)) < 0 || (rc = put_users(c)) < 0)
        return fbr_fail(err, rc, "%s", fbr_strerror(rc));
    return 0;
}
