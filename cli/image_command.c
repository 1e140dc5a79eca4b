/* image_command.c - `fiber image`: container images of programs, without a registry and without a
 * Dockerfile.
 *
 * backends/image/image.h, in the module "cluster", decides the contents and the format of an image.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "backends/cluster.h"
#include "runtime/program/args.h"
#include "cli/run_client.h"
#include "cli/interpreter.h"
#include "cli/option.h"
#include "cli/run_env.h"
#include "cli/screen.h"
#include "runtime/base/printable.h"
#include "runtime/base/atomic_file.h"
#include "runtime/net/loop.h"
#include "runtime/proc/context.h"
#include "runtime/program/module.h"
#include "runtime/program/spawn.h"

#define COULD_NOT 1

enum {
    IMAGE_OUTPUT,
    IMAGE_ADD,
    IMAGE_ENV,
    IMAGE_WORKDIR,
    IMAGE_ENTRYPOINT,
    IMAGE_HOST,
    IMAGE_BARE,
    IMAGE_NO_PLUGINS,
    IMAGE_CLUSTER,
    IMAGE_DRY_RUN,
    IMAGE_QUIET,
    IMAGE_JSON,
    IMAGE_MPI,
    IMAGE_OPTIONS
};

struct made {
    const struct cli_args *args;
    const struct fbr_image_ops *ops;
    struct fbr_image *image;
    const char *name;     /* with its tag */
    char where[PATH_MAX]; /* a file, or the name of the engine for messages */
    uint64_t began;
    bool given_away; /* standard output receives the image */
};

/* ---- Contents ---- */

struct contents {
    struct fbr_args files, data;
};

static void add_lines(struct fbr_args *w, struct fbr_buf *lines)
{
    char *rest = NULL;

    fbr_put_u8(lines, '\0');
    w->failed |= lines->failed;
    for (char *line = w->failed ? NULL : strtok_r((char *)lines->data, "\n", &rest); line;
         line = strtok_r(NULL, "\n", &rest))
        fbr_args_addf(w, "%s", line);
}

static void add_values(struct fbr_args *w, const struct cli_value *v)
{
    for (size_t i = 0; i < v->count; i++)
        fbr_args_addf(w, "%s", v->list[i]);
}

/* Adds a script, and the files that its interpreter needs besides its libraries. */
static int add_library(struct contents *c, const char *program, bool named, struct fbr_error *err)
{
    const char *command[] = {program, NULL};
    const struct interpreter_wish wish = {.program = program, .command = command, .named = named};
    struct fbr_buf lines = {0};
    char self[PATH_MAX];
    int rc = interpreter_find(&wish, self, &lines, err);

    if (rc > 0) {
        fbr_args_addf(&c->files, "%s", self);
        add_lines(&c->data, &lines);
    }
    fbr_buf_fini(&lines);
    return rc < 0 && !(rc == -ENOTSUP && named) ? rc : 0;
}

/* Adds a program; a name without a slash is searched in PATH, as a shell does. */
static int add_program(struct contents *c, const char *program, const struct cli_args *args,
                       struct fbr_error *err)
{
    bool named = args->values[IMAGE_ADD].count > 0;
    char path[PATH_MAX];
    struct stat st;

    if (strchr(program, '/'))
        snprintf(path, sizeof(path), "%s", program);
    else if (fbr_spawn_find(program, path, sizeof(path), NULL) < 0)
        return fbr_fail(err, -ENOENT, "there is no program %.128s in PATH%s%.128s", program,
                        access(program, F_OK) == 0 ? "; did you mean ./" : "",
                        access(program, F_OK) == 0 ? program : "");
    if (stat(path, &st) == 0 && S_ISDIR(st.st_mode))
        return fbr_fail(err, -EISDIR, "%.256s is a directory, not a program; add it with --add",
                        path);
    if (!c->files.n && !args->values[IMAGE_ENTRYPOINT].count && access(path, F_OK) == 0 &&
        access(path, X_OK) < 0) /* containers could not start it */
        return fbr_fail(err, -EACCES,
                        "%.256s is not executable: use chmod +x, and begin a script with its "
                        "interpreter (#!/usr/bin/env python3); to add a file that is not a "
                        "program, use --add",
                        path);
    fbr_args_addf(&c->files, "%s", path);
    return args->values[IMAGE_NO_PLUGINS].number ? 0 : add_library(c, path, named, err);
}

/* Adds the programs, the other named files, and this command, which is the agent of rings in
 * containers. */
static int collect(struct contents *c, const struct cli_args *args, struct fbr_error *err)
{
    char self[PATH_MAX];
    int rc;

    for (int i = 2; i < args->noperands; i++)
        if ((rc = add_program(c, args->operands[i], args, err)) < 0)
            return rc;
    add_values(&c->files, &args->values[IMAGE_ADD]);
    if (args->values[IMAGE_BARE].number)
        return 0;
    rc = fbr_spawn_own_path(self, sizeof(self), err);
    if (rc < 0)
        return rc;
    fbr_args_add(&c->files, self, strlen(self));
    return 0;
}

static int open_image(struct made *m, struct fbr_error *err)
{
    const struct cli_value *v = m->args->values;
    struct fbr_args entrypoint = {0};
    struct fbr_env env = {0};
    struct contents c = {0};
    struct fbr_image_spec spec;
    int rc;

    if ((rc = collect(&c, m->args, err)) < 0 ||
        (rc = run_env_list(&env, &v[IMAGE_ENV], "", err)) < 0)
        goto done;
    add_values(&entrypoint, &v[IMAGE_ENTRYPOINT]);
    if (c.files.failed || c.data.failed || entrypoint.failed) {
        rc = fbr_fail(err, -ENOMEM, "out of memory");
        goto done;
    }
    spec = (struct fbr_image_spec){.files = (const char *const *)c.files.at,
                                   .more = (const char *const *)c.data.at,
                                   .env = (const char *const *)env.list,
                                   .entrypoint = (const char *const *)entrypoint.at,
                                   .workdir = v[IMAGE_WORKDIR].text,
                                   .closure.no_plugins = v[IMAGE_NO_PLUGINS].number > 0,
                                   .closure.no_modules = v[IMAGE_BARE].number > 1,
                                   .closure.cluster = v[IMAGE_CLUSTER].number > 0};
    rc = m->ops->open(&m->image, &spec, err);
done:
    fbr_args_fini(&c.files);
    fbr_args_fini(&c.data);
    fbr_env_fini(&env);
    fbr_args_fini(&entrypoint);
    return rc;
}

/* ---- Output ---- */

static void put_notes(struct fbr_json *j, const struct fbr_image_facts *f)
{
    fbr_json_array(j, "notes");
    for (char *const *note = f->notes; note && *note; note++)
        fbr_json_str(j, NULL, *note);
    fbr_json_end_array(j);
}

static void put_files(struct fbr_json *j, const struct fbr_image_facts *f)
{
    static const char *const kinds[] = {
        [FBR_FILE_DIRECTORY] = "directory", [FBR_FILE_LINK] = "link", [FBR_FILE_REGULAR] = "file"};

    fbr_json_array(j, "list");
    for (size_t i = 0; i < f->files; i++) {
        const struct fbr_file *file = f->list[i];

        fbr_json_object(j);
        fbr_json_str(j, "path", file->path);
        fbr_json_str(j, "kind", kinds[file->kind]);
        fbr_json_int(j, "size", (int64_t)file->size);
        if (file->target)
            fbr_json_str(j, "target", file->target);
        fbr_json_end_object(j);
    }
    fbr_json_end_array(j);
}

static int print_json(const struct made *m, bool dry)
{
    FILE *out = m->given_away ? stderr : stdout;
    struct fbr_image_facts f;
    struct fbr_json j = {0};

    m->ops->facts(m->image, &f);
    fbr_json_object(&j);
    fbr_json_str(&j, "name", m->name);
    fbr_json_str(&j, "id", f.id);
    fbr_json_str(&j, "digest", dry ? NULL : f.digest);
    fbr_json_str(&j, "where", dry ? NULL : m->where);
    fbr_json_int(&j, "files", (int64_t)f.files);
    fbr_json_int(&j, "bytes", (int64_t)f.bytes);
    fbr_json_int(&j, "archive", (int64_t)f.archive);
    fbr_json_double(&j, "seconds", (double)(fbr_now_ms() - m->began) / 1000);
    put_notes(&j, &f);
    if (dry)
        put_files(&j, &f);
    fbr_json_end_object(&j);
    return cli_print_json(out, &j) ? COULD_NOT : 0;
}

/* Prints the result for users; names come from file systems, so they are filtered. */
static void print(const struct made *m)
{
    FILE *out = m->given_away ? stderr : stdout;
    char size[32], plain[PATH_MAX];
    struct fbr_image_facts f;

    if (m->args->values[IMAGE_QUIET].number)
        return;
    m->ops->facts(m->image, &f);
    run_client_bytes(size, f.bytes);
    fbr_printable_plain(plain, sizeof(plain), m->where);
    fprintf(out, "%s: %s, %zu files, %.2f s, in %s\n", m->name, size, f.files,
            (double)(fbr_now_ms() - m->began) / 1000, plain);
    for (char *const *note = f.notes; note && *note; note++) {
        fbr_printable_plain(plain, sizeof(plain), *note);
        fprintf(stderr, "fiber: note: %s\n", plain);
    }
}

static void print_files(const struct made *m)
{
    char plain[PATH_MAX], target[PATH_MAX];
    struct fbr_image_facts f;

    m->ops->facts(m->image, &f);
    for (size_t i = 0; i < f.files; i++) {
        const struct fbr_file *file = f.list[i];

        fbr_printable_plain(plain, sizeof(plain), file->path);
        fbr_printable_plain(target, sizeof(target), file->target ? file->target : "");
        printf("%12llu  %s%s%s\n", (unsigned long long)file->size, plain,
               file->kind == FBR_FILE_DIRECTORY ? "/"
               : file->target                   ? " -> "
                                                : "",
               target);
    }
}

/* ---- build and export ---- */

/* Readers of the file see the whole new image, or the old one. */
static int export_file(struct made *m, const char *path, struct fbr_error *err)
{
    mode_t mask = umask(0);
    struct fbr_atomic f;
    struct stat old;
    int rc;

    umask(mask);
    if (fbr_atomic_begin(&f, path, "", err) < 0)
        return fbr_wrap(err, "cannot write the image");
    rc = m->ops->write(m->image, m->args->operands[1], f.fd, err);
    if (rc < 0)
        fbr_atomic_drop(&f);
    else if (fbr_atomic_commit(&f, stat(path, &old) == 0 ? old.st_mode : 0666 & ~mask, err) < 0)
        rc = fbr_wrap(err, "cannot write the image");
    snprintf(m->where, sizeof(m->where), "%s", path);
    return rc;
}

static int export_image(struct made *m, struct fbr_error *err)
{
    const char *path = m->args->values[IMAGE_OUTPUT].text;
    int fd = STDOUT_FILENO, rc;
    struct stat st;

    m->given_away = !strcmp(path, "-");
    if (!m->given_away && (stat(path, &st) < 0 || S_ISREG(st.st_mode)))
        return export_file(m, path, err);
    snprintf(m->where, sizeof(m->where), "%s", m->given_away ? "standard output" : path);
    if (m->given_away && isatty(fd))
        return fbr_fail(err, -EINVAL,
                        "an image cannot be printed on a terminal: use -o FILE, or a pipe: fiber "
                        "image export ... -o - | docker load");
    if (!m->given_away && (fd = open(path, O_WRONLY | O_CLOEXEC)) < 0) /* a pipe or a device */
        return fbr_fail(err, -errno, "cannot write %.512s: %m", path);
    rc = m->ops->write(m->image, m->args->operands[1], fd, err);
    if (!m->given_away)
        close(fd);
    return rc;
}

static int build(struct made *m, struct fbr_error *err)
{
    return m->ops->load(m->image, m->args->operands[1], fbr_rt_any()->config, m->where, err);
}

static int make(struct made *m, bool into_engine, struct fbr_error *err)
{
    bool dry = m->args->values[IMAGE_DRY_RUN].number > 0;
    bool json = m->args->values[IMAGE_JSON].number > 0;
    int rc = open_image(m, err);

    if (!dry) /* a reader that goes away is an error with a sentence */
        signal(SIGPIPE, SIG_IGN);
    if (rc < 0 || (!dry && (into_engine ? build(m, err) : export_image(m, err)) < 0))
        return cli_failed(COULD_NOT, "image %s: %s", m->name, err->text);
    if (json)
        return print_json(m, dry);
    (dry ? print_files : print)(m);
    return 0;
}

/* Writes this program and all files that it needs into a folder (bundle.h): pods with other images
 * run it from there. */
static int unpack(const struct cli_args *args)
{
    struct fbr_error err = {0, ""};
    const struct fbr_cluster *cluster = fbr_module("cluster", &err);

    if (args->noperands != 2 || args->values[IMAGE_DRY_RUN].number) {
        fbr_fail(&err, -EINVAL, "unpack takes one folder, and has no --dry-run");
        return cli_usage(args->command, &err);
    }
    if (!cluster || cluster->bundle_into("/proc/self/exe", args->operands[1],
                                         args->values[IMAGE_CLUSTER].number > 0, &err) < 0)
        return cli_failed(COULD_NOT, "%s", err.text);
    return 0;
}

static int check(const struct cli_args *args, bool *into_engine, struct fbr_error *err)
{
    *into_engine = strcmp(args->operands[0], "build") == 0;
    if (args->noperands < 3 && !args->values[IMAGE_ADD].count)
        return fbr_fail(err, -EINVAL, "the program is missing: fiber image %s",
                        args->command->operands);
    if (*into_engine && args->values[IMAGE_OUTPUT].text)
        return fbr_fail(err, -EINVAL,
                        "--output is for fiber image export; build puts the image into the engine");
    if (!*into_engine && !args->values[IMAGE_OUTPUT].text && !args->values[IMAGE_DRY_RUN].number)
        return fbr_fail(err, -EINVAL,
                        "the output is missing: use -o FILE, or -o - for standard output");
    return 0;
}

static int run_image(const struct cli_args *args)
{
    char tagged[FBR_IMAGE_NAME_MAX], whole[FBR_IMAGE_NAME_MAX];
    struct made m = {.args = args, .name = tagged, .began = fbr_now_ms()};
    struct fbr_error err = {0, ""};
    const struct fbr_cluster *cluster;
    bool into_engine;
    int code;

    if (strcmp(args->operands[0], "unpack") == 0)
        return unpack(args);
    if (check(args, &into_engine, &err) < 0)
        return cli_usage(args->command, &err);
    cluster = fbr_module("cluster", &err);
    if (!cluster)
        return cli_failed(COULD_NOT, "%s", err.text);
    m.ops = cluster->image;
    if (m.ops->name(args->operands[1], tagged, whole, &err) < 0)
        return cli_usage(args->command, &err);
    code = make(&m, into_engine, &err);
    m.ops->close(m.image);
    return code;
}

static const struct cli_option options[IMAGE_OPTIONS] = {
    [IMAGE_OUTPUT] = {"output", 'o', CLI_TEXT, "FILE",
                      .help = "export: the file to write, - for standard output"},
    [IMAGE_ADD] = {"add", 'a', CLI_LIST, "PATH",
                   .help = "adds this file or directory, at the same path; may be repeated"},
    [IMAGE_ENV] = {"env", 'e', CLI_LIST, "K[=V]", .also = "x",
                   .help = "sets a variable in containers; without =V, to its value here; may be "
                           "repeated"},
    [IMAGE_WORKDIR] = {"workdir", 'w', CLI_TEXT, "DIR", .also = "wd wdir",
                       .help = "the working directory in containers; created if it does not exist"},
    [IMAGE_ENTRYPOINT] = {"entrypoint", 0, CLI_LIST, "WORD",
                          .help = "one word of the command that containers run instead of the "
                                  "first program; may be repeated"},
    [IMAGE_HOST] = {"host", 'H', CLI_TEXT, "URL", .config = "docker_host",
                    .help = "build: the engine; the default is docker_host, DOCKER_HOST, docker's "
                            "context, or the usual socket"},
    [IMAGE_BARE] = {"bare", 0, CLI_FLAG,
                    .help = "omits the command fiber, which rings need in containers; twice: omits "
                            "Fiber's modules, too"},
    [IMAGE_NO_PLUGINS] = {"no-plugins", 0, CLI_FLAG,
                          .help = "omits what programs load at run time: plugins of Open MPI, "
                                  "PMIx, UCX, libfabric; the library of Python and Perl"},
    [IMAGE_CLUSTER] = {"cluster", 0, CLI_FLAG,
                       .help = "adds what a master in a container needs to use engines and "
                               "clusters"},
    [IMAGE_DRY_RUN] = {"dry-run", 'n', CLI_FLAG, .help = "lists the files only"},
    [IMAGE_QUIET] = {"quiet", 'q', CLI_FLAG, .help = "prints nothing on success"},
    [IMAGE_JSON] = {"json", 0, CLI_FLAG, .help = "prints the result as a JSON object"},
    [IMAGE_MPI] = {"mpi", 0, CLI_NOTHING, .hidden = true,
                   .help = "plugins of an MPI come with its library"},
};

const struct cli_command cli_image = {
    .name = "image",
    .operands = "build|export NAME[:TAG] [PROGRAM...] | unpack DIR",
    .words = "build export unpack",
    .kind = CLI_FILES,
    .about = "Makes a container image of programs, without a registry or a Dockerfile",
    .text =
        "build puts it into the Docker engine, export writes it to a file that `docker load`, "
        "`podman load` and `ctr images import` read. unpack writes the command fiber and what it "
        "needs into a folder; it is for kubernetes_agent_image.\n\n"
        "The image has the programs, the libraries that they need, the plugins that those load, "
        "and the command fiber, each at the same path as here; also /etc/passwd, /etc/group and "
        "empty /tmp, /dev, /proc and /sys. For Python and Perl, and scripts of them, it also has "
        "their library, the packages that they find, and the folder of the script. It has no "
        "shell, and no files that a program opens itself: add data with --add. Everybody may read "
        "what is in an image. The same files give the same image.",
    .examples = "fiber image build train:1 ./train\tan image of it in the engine\n"
                "fiber image build py:1 ./train.py\tPython, its packages, and this folder\n"
                "fiber image export train:1 ./train -o train.tar\ta file for another machine\n"
                "fiber image export train:1 ./train -o - | docker load\tthe same, without a file\n"
                "fiber image export train:1 ./train -n\tshow what would be in it",
    .exit = "0\tthe image was made\n1\tthe image could not be made\n2\tthe options are wrong",
    .options = options,
    .count = IMAGE_OPTIONS,
    .least = 2,
    .most = -1,
    .run = run_image,
};
