/* run_image.c - what of a command goes into an image that is made for it; see run_image.h.
 *
 * The image has the files at the paths where they are here (backends/closure.h), so the same command means the same
 * there. Scripts take their interpreters along, and all programs their libraries; but an interpreter whose own library
 * is a tree of files, as Python's is, would not start with that.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "cli/run_image.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "ring/programs.h"
#include "runtime/config.h"
#include "runtime/spawn.h"

static const char *base_of(const char *path)
{
    const char *slash = strrchr(path, '/');

    return slash ? slash + 1 : path;
}

/* By the beginning of its name: "python3.11". */
static bool is_one_of(const char *path, const char *const *names)
{
    for (; *names; names++)
        if (!strncmp(base_of(path), *names, strlen(*names)))
            return true;
    return false;
}

static bool is_file(const char *path)
{
    struct stat st;

    return stat(path, &st) == 0 && S_ISREG(st.st_mode);
}

/* As a process that starts in workdir means it. */
static bool from(const char *workdir, const char *path, char out[PATH_MAX])
{
    char here[PATH_MAX] = "";

    if (path[0] == '/')
        snprintf(out, PATH_MAX, "%s", path);
    else if (workdir && workdir[0] == '/')
        snprintf(out, PATH_MAX, "%.2000s/%.2000s", workdir, path);
    else if (getcwd(here, sizeof(here)))
        snprintf(out, PATH_MAX, "%.1500s/%.1000s%s%.1500s", here, workdir ? workdir : "",
                 workdir ? "/" : "", path);
    else
        return false;
    return is_file(out);
}

/* "#!/usr/bin/env python3" names one too. */
static bool needs_more(const char *path)
{
    static const char *const names[] = {"python", "perl", "ruby",    "node",  "java",
                                        "julia",  "php",  "Rscript", "tclsh", NULL};
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    char line[256], *rest = NULL, *real = realpath(path, NULL);
    bool yes = is_one_of(path, names) || (real && is_one_of(real, names));
    ssize_t n = fd < 0 ? -1 : read(fd, line, sizeof(line) - 1);

    if (fd >= 0)
        close(fd);
    free(real);
    line[n > 0 ? n : 0] = '\0';
    line[strcspn(line, "\n")] = '\0';
    if (!strncmp(line, "#!", 2))
        for (char *w = strtok_r(line + 2, " \t", &rest); w && !yes;
             w = strtok_r(NULL, " \t", &rest))
            yes = is_one_of(w, names);
    return yes;
}

/* The script of `bash -e x.sh`. */
static bool find_script(const char *const *command, const char *workdir, char out[PATH_MAX])
{
    static const char *const shells[] = {"sh", "bash", "dash", "ksh", "zsh", "mksh", "ash", NULL};
    size_t i = 1;

    if (!is_one_of(command[0], shells))
        return false;
    while (command[i] && command[i][0] == '-' && !strchr(command[i], 'c'))
        i++;
    return command[i] && command[i][0] != '-' && from(workdir, command[i], out);
}

int run_image_files(const char *const *command, const char *workdir, char *out, size_t size,
                    struct fbr_error *err)
{
    char program[PATH_MAX], script[PATH_MAX] = "";
    int rc = strchr(command[0], '/') ? (from(workdir, command[0], program) ? 0 : -ENOENT)
                                     : fbr_spawn_find(command[0], program, sizeof(program), err);

    if (rc == -ENAMETOOLONG)
        return rc;
    if (rc < 0)
        return fbr_fail(err, -ENOENT,
                        "there is no program %.512s here to make an image of; --image names one "
                        "that has it",
                        command[0]);
    if (needs_more(program))
        return fbr_fail(err, -ENOTSUP,
                        "%.512s needs more than its libraries, so no image is made of it: --image "
                        "names one that has it (fiber help image tells how one is made)",
                        command[0]);
    if (!find_script(command, workdir, script))
        script[0] = '\0';
    if (strpbrk(program, " \t") || strpbrk(script, " \t"))
        return fbr_fail(err, -ENOTSUP,
                        "%.512s: no image is made of a path with blanks; --image names one that "
                        "has it",
                        strpbrk(program, " \t") ? program : script);
    snprintf(out, size, "%s%s%s", program, script[0] ? " " : "", script);
    return 0;
}

/* Adds what one program needs to the words in *all. */
static int add_program(char **all, const struct fiber_ring_program *p, const char *workdir,
                       bool had, struct fbr_error *err)
{
    char files[2 * PATH_MAX + 2], *more;
    int rc =
        run_image_files(p->command, p->workdir ? p->workdir : workdir, files, sizeof(files), err);

    /* Somebody has thought of it, or the image that we run in may be taken. */
    if (rc < 0)
        return rc == -ENOTSUP && (had || access("/.dockerenv", F_OK) == 0) ? 0 : rc;
    if (asprintf(&more, "%s%s%s", *all, **all ? " " : "", files) < 0)
        return fbr_fail(err, -ENOMEM, "out of memory");
    free(*all);
    *all = more;
    return 0;
}

/* What image_add is to be; NULL and rc 0: there is nothing to do. */
static char *words(const struct fbr_config *c, const struct run_image_wish *w, int *rc,
                   struct fbr_error *err)
{
    const char *backend = w->backend ? w->backend : fbr_config_str(c, "backend");
    const char *had = fbr_config_str(c, "image_add");
    const struct fiber_ring_options *o = w->ring;
    char *all;

    if (strcmp(backend, "docker") != 0 || o->job.image || *fbr_config_str(c, "image"))
        return NULL;
    all = strdup(had);
    *rc = all ? 0 : fbr_fail(err, -ENOMEM, "out of memory");
    for (int i = 0; *rc == 0 && i < fbr_ring_programs_count(o); i++) {
        struct fiber_ring_program p = fbr_ring_program(o, 1, i);

        *rc = add_program(&all, &p, o->job.workdir, *had, err);
    }
    if (*rc == 0 && strcmp(all, had) != 0)
        return all;
    free(all);
    return NULL;
}

int run_image_prepare(const struct run_image_wish *w, struct fbr_error *err)
{
    struct fbr_config *c;
    int rc = fbr_config_load(&c, err);
    char *all;

    if (rc < 0)
        return rc;
    all = words(c, w, &rc, err);
    if (all && fiber_config_set("image_add", all) < 0)
        rc = fbr_fail(err, -EINVAL, "%s", fiber_last_error());
    free(all);
    fbr_config_free(c);
    return rc;
}
