/* image_plan.c - the plan of an image: its files, its environment, and an id that distinguishes two
 * plans.
 *
 * The id is made from the paths, sizes and times of the files, not from their bytes, so it is as
 * cheap as finding the files. It names the images that are made automatically: an image that an
 * engine already has need not be made again.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "backends/image/image_priv.h"
#include "runtime/base/buf.h"
#include "runtime/base/environ.h"

#define ID_FORMAT 2 /* increased when the same plan makes another image */
#define LIBRARY_PATH "LD_LIBRARY_PATH"
#define DEFAULT_PATH "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin"

static const char *variable(const char *const *env, const char *name)
{
    return fbr_environ_value((char *const *)(uintptr_t)env, name);
}

/* ---- What runs ---- */

static bool is_program(const char *path)
{
    struct stat st;

    return stat(path, &st) == 0 && S_ISREG(st.st_mode) && (st.st_mode & 0111);
}

/* The first program runs by default; *path gets the folders of all programs. */
static int set_programs(struct fbr_image *i, const struct fbr_image_spec *spec, char **path)
{
    bool entry = spec->entrypoint && spec->entrypoint[0];
    int rc = 0;

    for (size_t k = 0; spec->files && spec->files[k] && rc == 0; k++) {
        char *file = fbr_path_absolute(spec->files[k], NULL);
        size_t len;
        bool program;

        if (!file)
            return -ENOMEM;
        len = (size_t)(strrchr(file, '/') - file);
        program = is_program(file);
        if (program && !i->cmd.n && !entry)
            rc = fbr_args_addf(&i->cmd, "%s", file);
        if (program && rc == 0 && len && !memchr(file, ':', len) &&
            !fbr_path_has(DEFAULT_PATH, file, len))
            rc = fbr_path_add(path, file, len);
        free(file);
    }
    return rc;
}

/* Sets the caller's variables, and the directories of libraries that only this process can find. */
static int set_env(struct fbr_image *i, const struct fbr_image_spec *spec)
{
    const char *given = variable(spec->env, LIBRARY_PATH), *found;

    found = fbr_closure_mapped_path(i->closure);
    for (size_t k = 0; spec->env && spec->env[k]; k++)
        if ((!found || strncmp(spec->env[k], LIBRARY_PATH "=", sizeof(LIBRARY_PATH)) != 0) &&
            fbr_args_addf(&i->env, "%s", spec->env[k]) < 0)
            return -ENOMEM;
    return found ? fbr_args_addf(&i->env, LIBRARY_PATH "=%s%s%s", given ? given : "",
                                 given && *given ? ":" : "", found)
                 : 0;
}

static int set_words(struct fbr_image *i, const struct fbr_image_spec *spec, struct fbr_error *err)
{
    char *path = NULL;
    int rc = set_programs(i, spec, &path);

    if (rc == 0 && !variable(spec->env, "PATH"))
        rc = fbr_args_addf(&i->env, "PATH=%s%s" DEFAULT_PATH, path ? path : "", path ? ":" : "");
    free(path);
    if (rc < 0 || set_env(i, spec) < 0 ||
        fbr_args_add_all(&i->entrypoint, (char *const *)(uintptr_t)spec->entrypoint) < 0 ||
        (spec->workdir && !(i->workdir = strdup(spec->workdir))))
        return fbr_fail(err, -ENOMEM, "out of memory");
    return 0;
}

static int check_words(const struct fbr_image_spec *spec, struct fbr_error *err)
{
    for (size_t k = 0; spec->env && spec->env[k]; k++)
        if (!strchr(spec->env[k], '=') || spec->env[k][0] == '=')
            return fbr_fail(err, -EINVAL, "\"%.64s\" sets no variable; write NAME=VALUE",
                            spec->env[k]);
    if (spec->workdir && spec->workdir[0] != '/')
        return fbr_fail(err, -EINVAL, "the working directory \"%.128s\" is not an absolute path",
                        spec->workdir);
    return 0;
}

/* ---- The id ---- */

static void put_list(struct fbr_buf *b, const struct fbr_args *list)
{
    for (size_t k = 0; k < list->n; k++)
        fbr_put_str(b, list->at[k]);
    fbr_put_u32(b, UINT32_MAX);
}

static int make_id(struct fbr_image *i, struct fbr_error *err)
{
    const struct fbr_file *const *files;
    char digest[IMAGE_DIGEST];
    struct fbr_buf b = {0};
    size_t n;
    int rc;

    files = fbr_closure_files(i->closure, &n);
    if (!files)
        return fbr_fail(err, -ENOMEM, "out of memory");
    fbr_put_u32(&b, ID_FORMAT);
    for (size_t k = 0; k < n; k++) {
        fbr_put_str(&b, files[k]->path);
        fbr_put_u32(&b, files[k]->kind);
        fbr_put_u32(&b, files[k]->mode);
        fbr_put_str(&b, files[k]->target);
        fbr_put_str(&b, files[k]->text);
        fbr_put_u64(&b, files[k]->size);
        fbr_put_u64(&b, (uint64_t)files[k]->mtime);
    }
    put_list(&b, &i->env);
    put_list(&b, &i->entrypoint);
    put_list(&b, &i->cmd);
    fbr_put_str(&b, i->workdir);
    rc = b.failed ? fbr_fail(err, -ENOMEM, "out of memory")
                  : image_digest(b.data, b.len, digest, err);
    fbr_buf_fini(&b);
    if (rc < 0)
        return rc;
    snprintf(i->id, sizeof(i->id), "%.*s", FBR_IMAGE_ID, strchr(digest, ':') + 1);
    return 0;
}

/* ---- Opening ---- */

static int collect(struct fbr_image *i, const struct fbr_image_spec *spec, struct fbr_error *err)
{
    struct fbr_closure_options o = spec->closure;
    int rc;

    o.library_path = variable(spec->env, LIBRARY_PATH);
    if ((rc = fbr_closure_new(&i->closure, &o, err)) < 0)
        return rc;
    for (size_t k = 0; spec->files && spec->files[k]; k++)
        if ((rc = fbr_closure_add(i->closure, spec->files[k], err)) < 0)
            return rc;
    for (size_t k = 0; spec->more && spec->more[k]; k++)
        if ((rc = fbr_closure_add_data(i->closure, spec->more[k], err)) < 0)
            return rc;
    if ((rc = fbr_closure_add_mapped(i->closure, err)) < 0 ||
        (rc = fbr_closure_add_system(i->closure, err)) < 0)
        return rc;
    for (size_t k = 0; spec->directories && spec->directories[k]; k++)
        if ((rc = fbr_closure_add_directory(i->closure, spec->directories[k], 01777, err)) < 0)
            return rc;
    return spec->workdir ? fbr_closure_add_directory(i->closure, spec->workdir, 01777, err) : 0;
}

int fbr_image_open(struct fbr_image **out, const struct fbr_image_spec *spec, struct fbr_error *err)
{
    struct fbr_image *i = calloc(1, sizeof(*i));
    int rc;

    if (!i)
        return fbr_fail(err, -ENOMEM, "out of memory");
    if ((rc = check_words(spec, err)) < 0 || (rc = collect(i, spec, err)) < 0 ||
        (rc = set_words(i, spec, err)) < 0 || (rc = make_id(i, err)) < 0) {
        fbr_image_close(i);
        return rc;
    }
    *out = i;
    return 0;
}

void fbr_image_close(struct fbr_image *i)
{
    if (!i)
        return;
    fbr_closure_free(i->closure);
    fbr_args_fini(&i->env);
    fbr_args_fini(&i->entrypoint);
    fbr_args_fini(&i->cmd);
    free(i->workdir);
    free(i);
}

void fbr_image_facts(const struct fbr_image *i, struct fbr_image_facts *out)
{
    memset(out, 0, sizeof(*out));
    out->id = i->id;
    out->digest = i->digest;
    out->archive = i->archive;
    out->bytes = fbr_closure_bytes(i->closure);
    out->list = fbr_closure_files(i->closure, &out->files);
    out->notes = fbr_closure_notes(i->closure);
}
