/* run_image.c - the files of a command for an image that is made for it.
 *
 * In the image the files have the same paths as here (backends/image/closure.h), so the same
 * command works there. Scripts add their interpreters, and all programs add their libraries. An
 * interpreter's own library has thousands of files; their paths are written to a file in memory,
 * which image_add names.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "cli/run_image.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/interpreter.h"
#include "ring/apps.h"
#include "runtime/base/config.h"
#include "runtime/base/fds.h"
#include "runtime/program/script.h"
#include "runtime/program/spawn.h"
#include "runtime/proc/context.h"

static bool is_script(const char *path)
{
    char line[FBR_SCRIPT_LINE];
    const char *words[FBR_SCRIPT_WORDS];

    return fbr_script_first_line(path, line, words) > 0;
}

/* Makes a path absolute, as a process that starts in workdir resolves it. */
static bool from(const char *workdir, const char *path, char out[PATH_MAX])
{
    char here[PATH_MAX] = "";
    struct stat st;

    if (path[0] == '/')
        snprintf(out, PATH_MAX, "%s", path);
    else if (workdir && workdir[0] == '/')
        snprintf(out, PATH_MAX, "%.2000s/%.2000s", workdir, path);
    else if (getcwd(here, sizeof(here)))
        snprintf(out, PATH_MAX, "%.1500s/%.1000s%s%.1500s", here, workdir ? workdir : "",
                 workdir ? "/" : "", path);
    else
        return false;
    return stat(out, &st) == 0 && S_ISREG(st.st_mode);
}

static bool is_shell(const char *path)
{
    static const char *const names[] = {"sh", "bash", "dash", "ksh", "zsh", "mksh", "ash"};

    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        if (fbr_script_is_named(path, names[i]))
            return true;
    return false;
}

/* Finds the script of `bash --norc -eo pipefail x.sh`. */
static bool find_script(const char *const *command, const char *workdir, char out[PATH_MAX])
{
    size_t i = 1;

    if (!is_shell(command[0]))
        return false;
    while (command[i] && command[i][0] == '-' &&
           (command[i][1] == '-' || !strchr(command[i], 'c'))) {
        bool valued = command[i][1] != '-' && strpbrk(command[i], "oO");

        i += valued && command[i + 1] ? 2 : 1;
    }
    return command[i] && command[i][0] != '-' && from(workdir, command[i], out);
}

void run_image_files_fini(struct run_image_files *f)
{
    fbr_buf_fini(&f->words);
    fbr_buf_fini(&f->lines);
}

/* Adds a word to image_add, where blanks separate the words, and "\\ " is a blank in a word. */
static int add(struct run_image_files *f, const char *path, struct fbr_error *err)
{
    if (f->words.len)
        fbr_put_u8(&f->words, ' ');
    for (; *path; path++) {
        if (*path == ' ' || *path == '\\')
            fbr_put_u8(&f->words, '\\');
        fbr_put_u8(&f->words, (uint8_t)*path);
    }
    return f->words.failed ? fbr_fail(err, -ENOMEM, "out of memory") : 0;
}

/* Reports a program that was not found: in PATH, here, or where the ranks start. */
static int no_program(const char *name, const char *workdir, struct fbr_error *err)
{
    if (workdir && strchr(name, '/') && name[0] != '/')
        return fbr_fail(
            err, -ENOENT,
            "cannot make an image: there is no program %.512s in %.512s (--workdir); use its full "
            "path, or --image for an image that has it",
            name, workdir);
    return fbr_fail(err, -ENOENT,
                    "cannot make an image: there is no program %.512s here; use --image for an "
                    "image that has it",
                    name);
}

int run_image_add(struct run_image_files *f, const char *const *command, const char *workdir,
                  bool named, struct fbr_error *err)
{
    char program[PATH_MAX], self[PATH_MAX], script[PATH_MAX] = "";
    int rc = strchr(command[0], '/') ? (from(workdir, command[0], program) ? 0 : -ENOENT)
                                     : fbr_spawn_find(command[0], program, sizeof(program), err);
    const struct interpreter_wish wish = {program, command, workdir, named};
    bool found;

    if (rc == -ENAMETOOLONG)
        return rc;
    if (rc < 0)
        return no_program(command[0], workdir, err);
    rc = interpreter_find(&wish, self, &f->lines, err);
    found = rc > 0;
    if (rc < 0 || (found && (rc = add(f, self, err)) < 0))
        return rc;
    /* A version manager's python3 is a script that runs the real one, and works only where that
     * manager is installed. */
    if (found && !strchr(command[0], '/') && is_script(program))
        return 0;
    rc = add(f, program, err);
    if (rc < 0 || found || !find_script(command, workdir, script))
        return rc;
    return add(f, script, err);
}

static int add_program(struct run_image_files *f, const struct fiber_ring_program *p,
                       const char *workdir, bool had, struct fbr_error *err)
{
    int rc = run_image_add(f, p->command, p->workdir ? p->workdir : workdir, had, err);

    /* The user has named files, or the image in which we run may be used. */
    return rc == -ENOTSUP && (had || access("/.dockerenv", F_OK) == 0) ? 0 : rc;
}

/* Makes a file in memory, which `path` names as long as this process lives. */
static int keep_lines(const struct fbr_buf *lines, char *path, size_t size)
{
    int fd = memfd_create("fiber-image", MFD_CLOEXEC);
    int rc = fd < 0 ? -errno : fbr_fds_write(fd, lines->data, lines->len);

    if (rc < 0)
        fbr_fds_close(fd);
    snprintf(path, size, "@/proc/self/fd/%d", fd);
    return rc;
}

static bool makes_image(const struct fbr_config *c, const struct fiber_ring_options *ring)
{
    const struct fbr_backend_about *about = fbr_backend_about(fbr_config_str(c, "backend"));

    return about && about->makes_images && !ring->job.image && !*fbr_config_str(c, "image");
}

static int set_words(struct fbr_config *c, struct run_image_files *f, struct fbr_error *err)
{
    const char *had = fbr_config_str(c, "image_add");
    char lines[64] = "", *all;
    int rc = f->lines.len ? keep_lines(&f->lines, lines, sizeof(lines)) : 0;

    if (rc < 0)
        return fbr_fail(err, rc, "cannot open a file in memory: %s", fbr_strerror(rc));
    if (asprintf(&all, "%s %.*s %s", had, (int)f->words.len,
                 f->words.len ? (const char *)f->words.data : "", lines) < 0)
        return fbr_fail(err, -ENOMEM, "out of memory");
    rc = fbr_config_set(c, "image_add", all, "the files of the programs", err);
    free(all);
    return rc;
}

/* Names the files of all programs in the setting `image_add`. */
static int name_files(struct fbr_config *c, const struct fiber_ring_options *o,
                      struct run_image_files *files, struct fbr_error *err)
{
    for (int i = 0; i < fbr_ring_apps_count(o); i++) {
        struct fiber_ring_program p = fbr_ring_app(o, 1, i);
        int rc = add_program(files, &p, o->job.workdir, *fbr_config_str(c, "image_add"), err);

        if (rc < 0)
            return rc;
    }
    return files->words.len + files->lines.len ? set_words(c, files, err) : 0;
}

int run_image_prepare(const struct fiber_ring_options *ring, struct fbr_error *err)
{
    struct fbr_config *c = fbr_rt()->config;
    struct run_image_files files = {0};
    int rc = makes_image(c, ring) ? name_files(c, ring, &files, err) : 0;

    run_image_files_fini(&files);
    return rc;
}
