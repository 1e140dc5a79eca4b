/* bundle.c - a program and its libraries, moved together; see bundle.h.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "backends/bundle.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sendfile.h>
#include <unistd.h>

#include "backends/closure.h"
#include "backends/docker_text.h"
#include "runtime/elf.h"

#define TAR_BLOCK 512

const char *const fbr_bundle_command[] = {FBR_BUNDLE_DIR "/ld.so",
                                          "--library-path",
                                          FBR_BUNDLE_DIR "/lib",
                                          "--argv0",
                                          FBR_BUNDLE_PROGRAM,
                                          FBR_BUNDLE_PROGRAM,
                                          NULL};

static int put(int fd, const void *data, size_t len, struct fbr_error *err)
{
    const char *at = data;

    while (len) {
        ssize_t n = write(fd, at, len);

        if (n < 0 && errno != EINTR)
            return fbr_fail(err, -errno, "cannot write the bundle: %s", fbr_strerror(errno));
        at += n > 0 ? n : 0;
        len -= n > 0 ? (size_t)n : 0;
    }
    return 0;
}

static int put_head(int fd, const char *name, const char *link, char type, uint64_t size,
                    struct fbr_error *err)
{
    struct fbr_buf b;
    int rc;

    fbr_buf_init(&b);
    fbr_docker_tar_head(&b, name, link, type,
                        strcmp(name, "tmp/") == 0 ? 01777
                        : type == '2'             ? 0777
                                                  : 0755,
                        size);
    rc = b.failed ? fbr_fail(err, -ENAMETOOLONG, "%s: its name is too long for an archive", name)
                  : put(fd, b.data, b.len, err);
    fbr_buf_fini(&b);
    return rc;
}

static int put_file(int fd, const char *name, const char *path, struct fbr_error *err)
{
    static const char zeros[TAR_BLOCK];
    int from = open(path, O_RDONLY | O_CLOEXEC), rc;
    off_t size = from < 0 ? -1 : lseek(from, 0, SEEK_END), at = 0;

    if (size < 0) {
        rc = fbr_fail(err, -errno, "cannot read %s: %s", path, fbr_strerror(errno));
        if (from >= 0)
            close(from);
        return rc;
    }
    rc = put_head(fd, name, "", '0', (uint64_t)size, err);
    while (rc == 0 && at < size) {
        ssize_t n = sendfile(fd, from, &at, (size_t)(size - at));

        if (n == 0)
            rc = fbr_fail(err, -ESTALE, "%s became shorter meanwhile", path);
        else if (n < 0 && errno != EINTR)
            rc = fbr_fail(err, -errno, "cannot write the bundle: %s", fbr_strerror(errno));
    }
    close(from);
    return rc < 0 ? rc : put(fd, zeros, (size_t)((TAR_BLOCK - size % TAR_BLOCK) % TAR_BLOCK), err);
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

/* Where a file of the closure goes; false: it is left out. */
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

static int put_all(struct fbr_closure *c, const char *program, const char *interp, int fd,
                   struct fbr_error *err)
{
    /* The last one is where sockets are made, and not every image has it. */
    static const char *const dirs[] = {FBR_BUNDLE_DIR "/", FBR_BUNDLE_DIR "/lib/",
                                       FBR_BUNDLE_DIR "/bin/", FBR_BUNDLE_DIR "/fiber/", "/tmp/"};
    static const char zeros[2 * TAR_BLOCK];
    size_t n;
    const struct fbr_file *const *files = fbr_closure_files(c, &n);
    char to[PATH_MAX];
    int rc = files ? 0 : fbr_fail(err, -ENOMEM, "out of memory");

    for (size_t i = 0; rc == 0 && i < sizeof(dirs) / sizeof(dirs[0]); i++)
        rc = put_head(fd, dirs[i] + 1, "", '5', 0, err);
    for (size_t i = 0; rc == 0 && i < n; i++) {
        const struct fbr_file *f = files[i];
        const char *target = f->kind == FBR_FILE_LINK ? f->target : "";

        if (f->kind == FBR_FILE_DIRECTORY || !move(f->path, program, interp, to, sizeof(to)))
            continue;
        target = strrchr(target, '/') ? strrchr(target, '/') + 1 : target; /* all are beside it */
        if (f->kind == FBR_FILE_REGULAR)
            rc = put_file(fd, to, f->path, err);
        else if (strcmp(strrchr(f->path, '/') + 1, target) != 0)
            rc = put_head(fd, to, target, '2', 0, err);
    }
    return rc < 0 ? rc : put(fd, zeros, sizeof(zeros), err);
}

int fbr_bundle_write(const char *program, int fd, struct fbr_error *err)
{
    const struct fbr_closure_options options = {0};
    struct fbr_closure *c = NULL;
    struct fbr_elf elf = {0};
    char interp[PATH_MAX] = "", real[PATH_MAX];
    int rc = fbr_elf_open(&elf, program);

    if (rc < 0 || !elf.interp || !realpath(elf.interp, interp) || !realpath(program, real)) {
        fbr_elf_close(&elf);
        return fbr_fail(err, -ENOEXEC, "%s is no program with an interpreter of its own", program);
    }
    fbr_elf_close(&elf);
    rc = fbr_closure_new(&c, &options, err);
    if (rc == 0)
        rc = fbr_closure_add(c, real, err);
    if (rc == 0)
        rc = put_all(c, real, interp, fd, err);
    fbr_closure_free(c);
    return rc;
}
