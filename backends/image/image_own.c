/* image_own.c - the image of this program, for which the user has named no files.
 *
 * The loader found the libraries by this process's LD_LIBRARY_PATH, so the image has the same
 * LD_LIBRARY_PATH. The libraries that the process has loaded are used where the search finds
 * nothing: they were loaded through another environment, or by hand. Fiber's modules are added with
 * Fiber (closure_known.c); a loaded module is no reason to add files that only a master needs.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <limits.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "backends/image/image_priv.h"
#include "runtime/base/buf.h"
#include "runtime/base/config_value.h"
#include "runtime/base/environ.h"
#include "runtime/program/spawn.h"

/* A relative directory starts at the working directory, and an empty word means the working
 * directory. */
char *fbr_image_library_path(void)
{
    const char *path = fbr_getenv("LD_LIBRARY_PATH");
    char here[PATH_MAX];
    struct fbr_buf whole = {0};

    if (!path || !*path || !getcwd(here, sizeof(here)))
        return NULL;
    for (const char *at = path, *end; at; at = *end ? end + 1 : NULL) {
        int len = (int)strcspn(at, ":;");
        bool absolute = *at == '/';

        end = at + len;
        fbr_putf(&whole, "%s%s%s%.*s", whole.len ? ":" : "", absolute ? "" : here,
                 absolute || !len ? "" : "/", len, at);
    }
    return fbr_buf_text(&whole);
}

bool image_is_module(const char *path)
{
    const char *slash = strrchr(path, '/');

    return slash - path >= 6 && strncmp(slash - 6, "/fiber", 6) == 0;
}

static int add_mapped(struct dl_phdr_info *info, size_t size, void *user)
{
    const char *path = info->dlpi_name;

    if (path && path[0] == '/' && !image_is_module(path))
        return fbr_args_addf(user, "%s", path);
    return 0;
}

void fbr_image_mapped(struct fbr_args *list)
{
    dl_iterate_phdr(add_mapped, list);
}

/* Adds the lines of a file. */
static int add_lines(struct fbr_args *list, const char *path, struct fbr_error *err)
{
    FILE *f = fopen(path, "re");
    char *line = NULL;
    size_t size = 0;
    int rc = 0;

    if (!f)
        return fbr_fail(err, -errno, "image_add: cannot read %.512s: %m", path);
    while (rc == 0 && getline(&line, &size, f) > 0) {
        line[strcspn(line, "\n")] = '\0';
        if (line[0])
            rc = fbr_args_addf(list, "%s", line);
    }
    free(line);
    fclose(f);
    return rc < 0 ? fbr_fail(err, rc, "out of memory") : 0;
}

struct lists {
    struct fbr_args files, more, env, mapped;
};

static int add_words(struct lists *l, const struct fbr_config *config, struct fbr_error *err)
{
    char *words = strdup(fbr_config_str(config, "image_add")), *rest = words, *w;
    int rc = words ? 0 : fbr_fail(err, -ENOMEM, "out of memory");

    while (rc == 0 && (w = fbr_value_word(&rest)))
        if (w[0] == '@')
            rc = add_lines(&l->more, w + 1, err);
        else if (fbr_args_addf(&l->files, "%s", w) < 0)
            rc = fbr_fail(err, -ENOMEM, "out of memory");
    free(words);
    return rc;
}

static int add_variable(struct fbr_args *list, const char *name, const char *value)
{
    return value && *value ? fbr_args_addf(list, "%s=%s", name, value) : 0;
}

/* Adds the variables by which interpreters find their modules, and the loader's path. */
static int add_env(struct lists *l)
{
    static const char *const names[] = {"PYTHONPATH", "PERL5LIB"};
    char *path = fbr_image_library_path();
    int rc = add_variable(&l->env, "LD_LIBRARY_PATH", path);

    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]) && rc == 0; i++)
        rc = add_variable(&l->env, names[i], fbr_getenv(names[i]));
    free(path);
    return rc;
}

static int fill_lists(struct lists *l, const struct fbr_config *config, struct fbr_error *err)
{
    char program[PATH_MAX];
    int rc = fbr_spawn_own_path(program, sizeof(program), err);

    if (rc < 0)
        return rc;
    if (fbr_args_addf(&l->files, "%s", program) < 0 || add_env(l) < 0)
        return fbr_fail(err, -ENOMEM, "out of memory");
    return add_words(l, config, err);
}

int fbr_image_open_own(struct fbr_image **out, const struct fbr_config *config,
                       struct fbr_error *err)
{
    struct lists l = {0};
    char here[PATH_MAX];
    const char *directories[] = {getcwd(here, sizeof(here)), NULL};
    int rc = fill_lists(&l, config, err);

    fbr_image_mapped(&l.mapped);
    if (rc == 0) {
        const struct fbr_image_spec spec = {.files = (const char *const *)l.files.at,
                                            .more = (const char *const *)l.more.at,
                                            .env = (const char *const *)l.env.at,
                                            .closure.mapped = (const char *const *)l.mapped.at,
                                            .directories = directories};

        rc = fbr_image_open(out, &spec, err);
    }
    fbr_args_fini(&l.files);
    fbr_args_fini(&l.more);
    fbr_args_fini(&l.env);
    fbr_args_fini(&l.mapped);
    return rc;
}
