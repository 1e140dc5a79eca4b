/* bundle.c - writes a program and its libraries into one folder or archive, from which they run in
 * any image.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "backends/image/bundle.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include <archive.h>

#include "backends/image/image_priv.h"
#include "runtime/program/elf.h"

const char *const fbr_bundle_command[] = {FBR_BUNDLE_DIR "/ld.so",
                                          "--library-path",
                                          FBR_BUNDLE_DIR "/lib",
                                          "--argv0",
                                          FBR_BUNDLE_PROGRAM,
                                          FBR_BUNDLE_PROGRAM,
                                          NULL};

/* The destination: an archive that has `dir`, or the folder `dir`. */
struct sink {
    struct archive *a;
    const char *dir;
    bool is_folder;
};

/* `fd`: the archive; -1: a folder. NULL without memory. */
static struct archive *sink_new(int fd)
{
    struct archive *a = fd < 0 ? archive_write_disk_new() : archive_write_new();

    /* Otherwise libarchive removes a file that stands where a folder must be. */
    if (a && (fd < 0 ? archive_write_disk_set_options(a, ARCHIVE_EXTRACT_NO_AUTODIR) == ARCHIVE_OK
                     : archive_write_set_format_ustar(a) == ARCHIVE_OK &&
                           archive_write_add_filter_none(a) == ARCHIVE_OK &&
                           archive_write_open_fd(a, fd) == ARCHIVE_OK))
        return a;
    archive_write_free(a);
    return NULL;
}

/* In a folder, libarchive would replace a file that has the name. */
static int put_folder(const struct sink *s, const char *name, unsigned mode, struct fbr_error *err)
{
    const struct fbr_file folder = {.kind = FBR_FILE_DIRECTORY, .mode = mode};

    if (!s->is_folder)
        return image_put_file(s->a, name, &folder, err);
    if (mkdir(name, mode) < 0 && errno != EEXIST)
        return fbr_fail(err, -errno, "cannot make %s: %s", name, fbr_strerror(errno));
    return 0;
}

static bool is_library(const char *path)
{
    const char *name = strrchr(path, '/') + 1;

    return strstr(name, ".so") && !strstr(path, "/pmix/") && !strstr(path, "/openmpi/");
}

/* Finds the place of a file of the closure; false: the file is left out. */
static bool place(const char *path, const char *program, const char *interp, const char *dir,
                  char *to, size_t size)
{
    const char *name = strrchr(path, '/') + 1;

    if (strcmp(path, program) == 0)
        snprintf(to, size, "%s%s", dir, &FBR_BUNDLE_PROGRAM[strlen(FBR_BUNDLE_DIR)]);
    else if (strcmp(path, interp) == 0)
        snprintf(to, size, "%s/ld.so", dir);
    else if (image_is_module(path))
        snprintf(to, size, "%s/fiber/%s", dir, name);
    else if (is_library(path))
        snprintf(to, size, "%s/lib/%s", dir, name);
    else
        return false;
    return true;
}

static int put_all(struct fbr_closure *c, const char *program, const char *interp,
                   const struct sink *s, struct fbr_error *err)
{
    static const char *const folders[] = {"", "/lib", "/bin", "/fiber"};
    size_t n;
    const struct fbr_file *const *files = fbr_closure_files(c, &n);
    char to[PATH_MAX];
    int rc = files ? 0 : fbr_fail(err, -ENOMEM, "out of memory");

    for (size_t i = 0; rc == 0 && i < sizeof(folders) / sizeof(folders[0]); i++) {
        snprintf(to, sizeof(to), "%s%s", s->dir, folders[i]);
        rc = put_folder(s, to, 0755, err);
    }
    for (size_t i = 0; rc == 0 && i < n; i++) {
        struct fbr_file f = *files[i];
        struct stat st;

        if (f.kind == FBR_FILE_DIRECTORY || !place(f.path, program, interp, s->dir, to, sizeof(to)))
            continue;
        if (f.kind == FBR_FILE_REGULAR) { /* as it is now: it may have been installed anew */
            if (lstat(f.path, &st) == 0) {
                f.size = (uint64_t)st.st_size;
                f.mtime = fbr_file_mtime(&st);
            }
            f.mode = 0755;
        } else /* all links point into their own folder */
            f.target = strrchr(f.target, '/') ? strrchr(f.target, '/') + 1 : f.target;
        if (f.kind == FBR_FILE_REGULAR || strcmp(strrchr(f.path, '/') + 1, f.target) != 0)
            rc = image_put_file(s->a, to, &f, err);
    }
    return rc;
}

/* Writes the bundle into the archive `fd`, or (-1) into the folder `dir`. */
static int make(const char *program, int fd, const char *dir, bool cluster, struct fbr_error *err)
{
    struct fbr_args mapped = {0};
    char *library_path = NULL;
    struct fbr_closure_options options = {.cluster = cluster};
    struct sink s = {.dir = dir, .is_folder = fd < 0};
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
    fbr_image_mapped(&mapped);
    options.mapped = (const char *const *)mapped.at;
    if ((rc = fbr_closure_new(&c, &options, err)) < 0 || (rc = fbr_closure_add(c, real, err)) < 0)
        goto done;
    s.a = sink_new(fd);
    rc = s.a ? put_all(c, real, interp, &s, err) : fbr_fail(err, -ENOMEM, "out of memory");
    if (rc == 0 && fd >= 0) /* sockets are made in /tmp, which not every image has */
        rc = put_folder(&s, "tmp", 01777, err);
    if (rc == 0 && archive_write_close(s.a) != ARCHIVE_OK)
        rc = image_tar_failed(s.a, dir, err);
done:
    archive_write_free(s.a);
    fbr_closure_free(c);
    fbr_args_fini(&mapped);
    free(library_path);
    return rc;
}

int fbr_bundle_write(const char *program, int fd, struct fbr_error *err)
{
    return make(program, fd, &FBR_BUNDLE_DIR[1], false, err);
}

int fbr_bundle_into(const char *program, const char *dir, bool cluster, struct fbr_error *err)
{
    return make(program, -1, dir, cluster, err);
}
