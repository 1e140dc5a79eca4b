/* interpreter.c - asks interpreters for their library, and lists a script's folder.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "cli/interpreter.h"

#include <errno.h>
#include <fts.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/doctor.h"
#include "runtime/base/config_value.h"
#include "runtime/program/script.h"

#define ANSWER_MAX (1 << 20)

struct library {
    const char *language;
    const char *ask; /* the option that takes code */
    /* Prints its own path, and the paths to add, one in a line. */
    const char *question;
};

static const struct library libraries[] = {
    {.language = "python",
     .ask = "-c",
     .question =
         "import importlib.util, os, sys, sysconfig\n"
         "real, out = os.path.realpath, [sys.executable]\n"
         "std = {real(sysconfig.get_paths()[k]) for k in ('stdlib', 'platstdlib')}\n"
         "left = ('test', 'tests', 'idlelib', 'turtledemo', 'ensurepip', 'site-packages',\n"
         "        'dist-packages')\n"
         "out.append(os.path.join(sys.prefix, 'pyvenv.cfg'))\n"
         "out += [os.path.join(s, n) for s in sorted(std) for n in sorted(os.listdir(s))\n"
         "        if n not in left and not n.startswith('config-')]\n"
         "out += [p for p in sys.path if os.path.isabs(p) and real(p) not in std]\n"
         /* of `pip install -e`, by the finder of setuptools */
         "for f in sys.meta_path:\n"
         "    for n in getattr(sys.modules.get(getattr(f, '__module__', 0)), 'MAPPING', ()):\n"
         "        s = importlib.util.find_spec(n)\n"
         "        out += s and (s.submodule_search_locations or [s.origin]) or []\n"
         "sys.stdout.buffer.write(b''.join(os.fsencode(p) + b'\\n' for p in out\n"
         "                        if os.path.exists(p) and '\\n' not in p))\n"},
    {.language = "perl",
     .ask = "-e",
     .question = "print map { \"$_\\n\" } $^X, grep { m{^/} && -d } @INC"},
};
/* Interpreters whose library cannot be found here. */
static const char *const strangers[] = {"ruby", "node",    "java",  "julia",
                                        "php",  "Rscript", "tclsh", NULL};

/* ---- Which interpreter ---- */

/* Finds the language by the name of the program, or of the target of a link: "python3.11". */
static const struct fbr_language *language_of(const char *path)
{
    const struct fbr_language *found = fbr_script_language(path);
    char *real = found ? NULL : realpath(path, NULL);

    if (real)
        found = fbr_script_language(real);
    free(real);
    return found;
}

static const struct library *library_of(const struct fbr_language *l)
{
    for (size_t i = 0; l && i < sizeof(libraries) / sizeof(libraries[0]); i++)
        if (strcmp(libraries[i].language, l->name) == 0)
            return &libraries[i];
    return NULL;
}

static bool is_stranger(const char *path)
{
    char *real = realpath(path, NULL);
    bool yes = false;

    for (const char *const *name = strangers; *name && !yes; name++)
        yes = fbr_script_is_named(path, *name) || (real && fbr_script_is_named(real, *name));
    free(real);
    return yes;
}

struct call {
    const struct library *library;
    const char *self; /* the interpreter */
    struct fbr_script script;
};

/* ---- A folder ---- */

static bool put_line(struct fbr_buf *b, const char *path)
{
    if (strchr(path, '\n'))
        return true;
    fbr_putf(b, "%s\n", path);
    return !b->failed;
}

/* Whether a folder has no modules that scripts import: histories, other environments. */
static bool is_skipped(const FTSENT *e)
{
    char mark[PATH_MAX];

    if (fbr_word_index(".git .hg .svn __pycache__ node_modules", e->fts_name) >= 0)
        return true;
    snprintf(mark, sizeof(mark), "%s/pyvenv.cfg", e->fts_path);
    return e->fts_level > 0 && access(mark, F_OK) == 0;
}

/* A link to a file counts as a file; a link to a directory does not. */
static bool is_file(const FTSENT *e, struct stat *st)
{
    return (e->fts_info == FTS_F || e->fts_info == FTS_SL) && stat(e->fts_path, st) == 0 &&
           S_ISREG(st->st_mode) && access(e->fts_path, R_OK) == 0;
}

/* Appends the folder's files as lines; -E2BIG without a message. */
static int put_folder(struct fbr_buf *b, char *folder)
{
    char *roots[] = {folder, NULL};
    FTS *tree = fts_open(roots, FTS_PHYSICAL | FTS_NOCHDIR, NULL);
    size_t had = b->len, files = 0;
    uint64_t bytes = 0;
    struct stat st;
    int rc = 0;

    if (!tree)
        return -errno;
    for (FTSENT *e; rc == 0 && (e = fts_read(tree));) {
        if (e->fts_info == FTS_D && is_skipped(e))
            fts_set(tree, e, FTS_SKIP);
        if (!is_file(e, &st))
            continue;
        bytes += (uint64_t)st.st_size;
        if (++files > INTERPRETER_FOLDER_FILES || bytes >> 20 >= INTERPRETER_FOLDER_MIB)
            rc = -E2BIG;
        else if (!put_line(b, e->fts_path))
            rc = -ENOMEM;
    }
    fts_close(tree);
    if (rc < 0)
        b->len = had;
    return rc;
}

/* A program of PATH lies next to programs that have nothing to do with it. */
static bool is_in_path(const char *folder)
{
    const char *path = getenv("PATH");
    char *dir, *real;
    bool found = false;

    while (path && *path && !found) {
        size_t n = strcspn(path, ":");

        dir = strndup(path, n);
        real = dir ? realpath(dir, NULL) : NULL;
        found = real && strcmp(real, folder) == 0;
        free(real);
        free(dir);
        path += n + (path[n] == ':');
    }
    return found;
}

static char *from(const char *workdir, const char *path)
{
    char *whole, *real;

    if (path[0] == '/' || !workdir)
        return realpath(path, NULL);
    if (asprintf(&whole, "%s/%s", workdir, path) < 0)
        return NULL;
    real = realpath(whole, NULL);
    free(whole);
    return real;
}

/* Adds the path as it was given, which may be a link. */
static bool put_named(struct fbr_buf *b, const char *workdir, const char *path)
{
    if (path[0] != '/' && workdir)
        fbr_putf(b, "%s/", workdir);
    return put_line(b, path);
}

/* Adds the script, if `path` names one, and the modules in its folder; cuts `path` to that
 * folder. */
static int put_modules(const struct interpreter_wish *w, const struct call *c, struct fbr_buf *b,
                       char *path)
{
    struct stat st;

    if (stat(path, &st) == 0 && S_ISREG(st.st_mode)) {
        bool put = put_line(b, path) && put_named(b, w->workdir, c->script.path);
        char *slash = strrchr(path, '/');

        slash[slash == path] = '\0';
        if (!put)
            return -ENOMEM;
    }
    return c->script.path && is_in_path(path) ? 0 : put_folder(b, path);
}

/* Adds the folder of a script's modules, or of `-m`; also a folder that is run, which has
 * __main__.py. */
static int put_script(const struct interpreter_wish *w, const struct call *c, struct fbr_buf *b,
                      struct fbr_error *err)
{
    char *folder = from(w->workdir, c->script.path ? c->script.path : ".");
    int rc;

    if (!folder) /* the interpreter reports the error in the container */
        return 0;
    rc = put_modules(w, c, b, folder);
    if (rc == -E2BIG && w->named)
        rc = 0;
    else if (rc == -E2BIG)
        fbr_fail(err, rc,
                 "the folder %.512s is too large for an automatic image (limits: %d MiB, %d "
                 "files): put %s into a folder of its own, or name the files that it needs: "
                 "FIBER_IMAGE_ADD='FILE DIR' (fiber image: -a FILE -a DIR)",
                 folder, INTERPRETER_FOLDER_MIB, INTERPRETER_FOLDER_FILES,
                 c->script.path ? basename(c->script.path) : "the module");
    else if (rc < 0)
        fbr_fail(err, rc, "%.512s: %s", folder, fbr_strerror(rc));
    free(folder);
    return rc;
}

/* ---- Asking the interpreter ---- */

static int cannot_ask(const struct call *c, const char *why, struct fbr_error *err)
{
    return fbr_fail(err, -ENOTSUP,
                    "cannot make an image of %.256s, which %s; make an image with its library: "
                    "fiber image build NAME %.256s -a DIR..., and use it: --image NAME",
                    c->self, why, c->self);
}

static int put_library(const struct call *c, char self[PATH_MAX], struct fbr_buf *lines,
                       struct fbr_error *err)
{
    const char *argv[] = {c->self, c->library->ask, c->library->question, NULL, NULL};
    char *answer = malloc(ANSWER_MAX), *rest = NULL, why[80];
    int rc;

    if (!answer)
        return fbr_fail(err, -ENOMEM, "out of memory");
    if (c->script.kept[1]) {
        argv[3] = argv[2];
        argv[2] = argv[1];
        argv[1] = c->script.kept;
    }
    rc = doctor_ask_all(argv, answer, ANSWER_MAX);
    if (rc < 0) {
        snprintf(why, sizeof(why), "does not report where its library is (%s)", fbr_strerror(rc));
        free(answer);
        return cannot_ask(c, why, err);
    }
    for (char *line = strtok_r(answer, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest)) {
        /* output of its start-up files */
        if (line[0] != '/')
            continue;
        if (!self[0])
            snprintf(self, PATH_MAX, "%s", line);
        else if (!put_line(lines, line))
            rc = fbr_fail(err, -ENOMEM, "out of memory");
    }
    free(answer);
    return rc < 0 ? rc : self[0] ? 0 : cannot_ask(c, "does not report its own path", err);
}

static bool put_resolved(struct fbr_buf *b, const char *workdir, const char *path)
{
    char *there = from(workdir, path);
    bool put = !there || put_line(b, there);

    free(there);
    return put;
}

int interpreter_find(const struct interpreter_wish *w, char self[PATH_MAX], struct fbr_buf *lines,
                     struct fbr_error *err)
{
    const struct fbr_language *l = language_of(w->program);
    struct call c = {.library = library_of(l), .self = w->program};
    const char *words[FBR_SCRIPT_WORDS + 1] = {NULL}, **command = words;
    char line[FBR_SCRIPT_LINE];
    int n = c.library ? 0 : fbr_script_first_line(w->program, line, words), rc;

    self[0] = '\0';
    if (n > 0) {
        words[n] = w->program;
        command += n > 1 && fbr_script_is_by_env(words);
        c.self = command[0];
        l = language_of(command[0]);
        c.library = library_of(l);
    }
    if (!c.library && is_stranger(w->program))
        c.self = w->program;
    if (!c.library)
        return is_stranger(c.self) ? cannot_ask(&c, "needs the files of its library", err) : 0;
    fbr_script_parse(&c.script, l, n > 0 ? command : w->command);
    rc = put_library(&c, self, lines, err);
    if (rc < 0)
        return rc;
    for (int i = 0; i < c.script.nfolders; i++)
        if (!put_resolved(lines, w->workdir, c.script.folders[i]))
            return fbr_fail(err, -ENOMEM, "out of memory");
    if (c.script.path || c.script.module)
        rc = put_script(w, &c, lines, err);
    return rc < 0 ? rc : 1;
}
