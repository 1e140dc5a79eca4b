/* bundle.c - writes a program and its libraries into one folder or archive, from which they run in
 * any image.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "backends/image/bundle.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <unistd.h>

#include "backends/image/image.h"
#include "backends/image/tar.h"
#include "runtime/base/buf.h"
#include "runtime/base/fds.h"
#include "runtime/program/elf.h"

const char *const fbr_bundle_command[] = {FBR_BUNDLE_DIR "/ld.so",
                                          "--library-path",
                                          FBR_BUNDLE_DIR "/lib",
                                          "--argv0",
                                          FBR_BUNDLE_PROGRAM,
                                          FBR_BUNDLE_PROGRAM,
                                          NULL};

/* The destination: an archive, or a folder. */
struct sink {
    int fd; /* the archive; -1: none */
    const char *dir;
};

static int put(int fd, const void *data, size_t len, struct fbr_error *err)
{
    int rc = fbr_fds_write(fd, data, len);

    return rc < 0 ? fbr_fail(err, rc, "cannot write the bundle: %s", fbr_strerror(rc)) : 0;
}

static mode_t mode_of(const char *name, char type)
{
    if (strcmp(name, "tmp/") == 0)
        return 01777;
    return type == '2' ? 0777 : 0755;
}

static int put_head(int fd, const char *name, const char *link, char type, uint64_t size,
                    struct fbr_error *err)
{
    struct fbr_buf b;
    int rc;

    fbr_buf_init(&b);
    fbr_tar_head(&b, name, link, type, mode_of(name, type), NULL, size);
    rc = b.failed ? fbr_fail(err, -ENAMETOOLONG, "%s: its name is too long for an archive", name)
                  : put(fd, b.data, b.len, err);
    fbr_buf_fini(&b);
    return rc;
}

static int copy(int to, int from, off_t size, const char *path, struct fbr_error *err)
{
    off_t at = 0;

    while (at < size) {
        ssize_t n = sendfile(to, from, &at, (size_t)(size - at));

        if (n == 0)
            return fbr_fail(err, -ESTALE, "%s became shorter while it was read", path);
        if (n < 0 && errno != EINTR)
            return fbr_fail(err, -errno, "cannot write the bundle: %s", fbr_strerror(errno));
    }
    return 0;
}

/* Makes "DIR/lib/x" from ".fiber/lib/x"; false for an entry outside .fiber, which a folder does not
 * get. */
static bool place(const struct sink *s, const char *name, char *out, size_t size)
{
    size_t n = strlen(&FBR_BUNDLE_DIR[1]);

    if (strncmp(name, &FBR_BUNDLE_DIR[1], n) != 0)
        return false;
    snprintf(out, size, "%s%s", s->dir, name + n);
    return true;
}

static int put_dir(const struct sink *s, const char *name, struct fbr_error *err)
{
    char path[PATH_MAX];

    if (s->fd >= 0)
        return put_head(s->fd, name, "", '5', 0, err);
    if (place(s, name, path, sizeof(path)) && mkdir(path, mode_of(name, '5')) < 0 &&
        errno != EEXIST)
        return fbr_fail(err, -errno, "cannot make %s: %s", path, fbr_strerror(errno));
    return 0;
}

static int put_link(const struct sink *s, const char *name, const char *target,
                    struct fbr_error *err)
{
    char path[PATH_MAX];

    if (s->fd >= 0)
        return put_head(s->fd, name, target, '2', 0, err);
    place(s, name, path, sizeof(path));
    if (symlink(target, path) < 0 && errno != EEXIST)
        return fbr_fail(err, -errno, "cannot make %s: %s", path, fbr_strerror(errno));
    return 0;
}

static int open_target(const struct sink *s, const char *name, uint64_t size, struct fbr_error *err)
{
    char path[PATH_MAX];
    int rc;

    if (s->fd >= 0) {
        rc = put_head(s->fd, name, "", '0', size, err);
        return rc < 0 ? rc : s->fd;
    }
    place(s, name, path, sizeof(path));
    rc = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0755);
    return rc < 0 ? fbr_fail(err, -errno, "cannot make %s: %s", path, fbr_strerror(errno)) : rc;
}

static int put_file(const struct sink *s, const char *name, const char *path, struct fbr_error *err)
{
    static const char zeros[FBR_TAR_BLOCK];
    int from = open(path, O_RDONLY | O_CLOEXEC), to = -1, rc;
    off_t size = from < 0 ? -1 : lseek(from, 0, SEEK_END);

    if (size < 0) {
        rc = fbr_fail(err, -errno, "cannot read %s: %s", path, fbr_strerror(errno));
        goto done;
    }
    if ((rc = to = open_target(s, name, (uint64_t)size, err)) < 0 ||
        (rc = copy(to, from, size, path, err)) < 0)
        goto done;
    if (s->fd >= 0)
        rc = put(to, zeros, (size_t)((FBR_TAR_BLOCK - size % FBR_TAR_BLOCK) % FBR_TAR_BLOCK), err);
done:
    if (to >= 0 && to != s->fd)
        close(to);
    if (from >= 0)
        close(from);
    return rc;
}

static bool is_module(const char *path)
{
    const char *name = strrchr(path, '/');

    return name && name - path >= 6 && strncmp(name - 6, "/fiber", 6) == 0;
}

static bool is_library(const char *path)
{
    const char *name = strrchr(path, '/') + 1;

    return strstr(name, ".so") && !strstr(path, "/pmix/") && !strstr(path, "/openmpi/");
}

/* Finds the place of a file of the closure; false: the file is left out. */
static bool move(const char *path, const char *program, const char *interp, char *to, size_t size)
{
    const char *name = strrchr(path, '/') + 1;

    if (strcmp(path, program) == 0)
        snprintf(to, size, "%s", &FBR_BUNDLE_PROGRAM[1]);
    else if (strcmp(path, interp) == 0)
        snprintf(to, size, "%s/ld.so", &FBR_BUNDLE_DIR[1]);
    else if (is_module(path))
        snprintf(to, size, "%s/fiber/%s", &FBR_BUNDLE_DIR[1], name);
    else if (is_library(path))
        snprintf(to, size, "%s/lib/%s", &FBR_BUNDLE_DIR[1], name);
    else
        return false;
    return true;
}

static int put_all(struct fbr_closure *c, const char *program, const char *interp,
                   const struct sink *s, struct fbr_error *err)
{
    /* Sockets are made in /tmp, which not every image has. */
    static const char *const dirs[] = {FBR_BUNDLE_DIR "/", FBR_BUNDLE_DIR "/lib/",
                                       FBR_BUNDLE_DIR "/bin/", FBR_BUNDLE_DIR "/fiber/", "/tmp/"};
    static const char zeros[2 * FBR_TAR_BLOCK];
    size_t n;
    const struct fbr_file *const *files = fbr_closure_files(c, &n);
    char to[PATH_MAX];
    int rc = files ? 0 : fbr_fail(err, -ENOMEM, "out of memory");

    for (size_t i = 0; rc == 0 && i < sizeof(dirs) / sizeof(dirs[0]); i++)
        rc = put_dir(s, dirs[i] + 1, err);
    for (size_t i = 0; rc == 0 && i < n; i++) {
        const struct fbr_file *f = files[i];
        const char *target = f->kind == FBR_FILE_LINK ? f->target : "";

        if (f->kind == FBR_FILE_DIRECTORY || !move(f->path, program, interp, to, sizeof(to)))
            continue;
        /* all links point into their own folder */
        target = strrchr(target, '/') ? strrchr(target, '/') + 1 : target;
        if (f->kind == FBR_FILE_REGULAR)
            rc = put_file(s, to, f->path, err);
        else if (strcmp(strrchr(f->path, '/') + 1, target) != 0)
            rc = put_link(s, to, target, err);
    }
    return rc < 0 || s->fd < 0 ? rc : put(s->fd, zeros, sizeof(zeros), err);
}

static int make(const char *program, const struct sink *s, bool cluster, struct fbr_error *err)
{
    char **mapped = NULL, *library_path = NULL;
    struct fbr_closure_options options = {.cluster = cluster};
    struct fbr_closure *c = NULL;
    struct fbr_elf elf = {0};
    char interp[PATH_MAX] = "", real[PATH_MAX];
    int rc = fbr_elf_open(&elf, program);

    if (rc < 0 || !elf.interp || !realpath(elf.interp, interp) || !realpath(program, real)) {
        fbr_elf_close(&elf);
        return fbr_fail(err, -ENOEXEC, "%s is not a program with an interpreter of its own",
                        program);
    }
    fbr_elf_close(&elf);
    options.library_path = library_path = fbr_image_library_path();
    mapped = fbr_image_mapped();
    options.mapped = (const char *const *)mapped;
    if ((rc = fbr_closure_new(&c, &options, err)) < 0 || (rc = fbr_closure_add(c, real, err)) < 0)
        goto done;
    rc = put_all(c, real, interp, s, err);
done:
    fbr_closure_free(c);
    fbr_list_free(mapped);
    free(library_path);
    return rc;
}

int fbr_bundle_write(const char *program, int fd, struct fbr_error *err)
{
    return make(program, &(struct sink){.fd = fd}, false, err);
}

int fbr_bundle_into(const char *program, const char *dir, bool cluster, struct fbr_error *err)
{
    return make(program, &(struct sink){.fd = -1, .dir = dir}, cluster, err);
}
