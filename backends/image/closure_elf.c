/* closure_elf.c - the libraries of a program, found as ld.so(8) finds them.
 *
 * A scope is the set of objects that one process would load: the program, then, breadth first, the
 * libraries that the program and its libraries need, each name once. A plugin has a scope of its
 * own. It is not known which libraries the process that loads the plugin has already loaded. So a
 * name counts as found for a plugin if any other program of the closure has brought it.
 *
 * ld.so.cache lists the contents of the directories of ld.so.conf and of the system, so these
 * directories are searched instead. If only the cache leads to a library, the image gets the cache
 * too.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <unistd.h>

#include <utlist.h>

#include "backends/image/closure_priv.h"
#include "runtime/program/elf.h"

#define INCLUDES 8 /* nesting of includes in ld.so.conf */
#define CONF_BLANKS " \t\r\f\v:,"

#if defined(__x86_64__)
#define TRIPLET "x86_64-linux-gnu"
#elif defined(__aarch64__)
#define TRIPLET "aarch64-linux-gnu"
#elif defined(__riscv)
#define TRIPLET "riscv64-linux-gnu"
#elif defined(__powerpc64__)
#define TRIPLET "powerpc64le-linux-gnu"
#elif defined(__s390x__)
#define TRIPLET "s390x-linux-gnu"
#else
#define TRIPLET "linux-gnu"
#endif

/* ---- Where the system's libraries are ---- */

static bool dirs_have(const struct fbr_closure *c, const char *dir, size_t len)
{
    for (size_t i = 0; i < c->dirs.n; i++)
        if (strlen(c->dirs.at[i]) == len && !memcmp(c->dirs.at[i], dir, len))
            return true;
    return false;
}

static int dirs_add(struct fbr_closure *c, const char *dir, size_t len)
{
    while (len > 1 && dir[len - 1] == '/')
        len--;
    return dirs_have(c, dir, len) ? 0 : fbr_args_add(&c->dirs, dir, len);
}

static int read_conf(struct fbr_closure *c, const char *path, int depth);

/* A relative pattern starts in the folder of the file `from`. */
static int include_conf(struct fbr_closure *c, const char *from, const char *word, int depth)
{
    char pattern[PATH_MAX];
    const char *slash = strrchr(from, '/');
    glob_t found;
    int rc = 0;

    snprintf(pattern, sizeof(pattern), "%.*s%s",
             word[0] == '/' || !slash ? 0 : (int)(slash + 1 - from), from, word);
    if (glob(pattern, 0, NULL, &found) != 0)
        return 0;
    for (size_t i = 0; i < found.gl_pathc && rc == 0; i++)
        rc = read_conf(c, found.gl_pathv[i], depth + 1);
    globfree(&found);
    return rc;
}

/* A file that cannot be read counts as missing, as with ldconfig. */
static int read_conf(struct fbr_closure *c, const char *path, int depth)
{
    FILE *f = depth < INCLUDES ? fopen(path, "re") : NULL;
    char *line = NULL;
    size_t size = 0;
    int rc = 0;

    while (f && rc == 0 && getline(&line, &size, f) > 0) {
        char *rest = NULL, *word;
        bool include;

        line[strcspn(line, "#\n")] = '\0';
        word = strtok_r(line, CONF_BLANKS, &rest);
        include = word && !strcmp(word, "include");
        if (word && (include || !strcmp(word, "hwcap"))) /* hwcap is obsolete, and ignored */
            word = include ? strtok_r(NULL, CONF_BLANKS, &rest) : NULL;
        for (; word && rc == 0; word = strtok_r(NULL, CONF_BLANKS, &rest))
            if (include)
                rc = include_conf(c, path, word, depth);
            else if (word[0] == '/')
                rc = dirs_add(c, word, strcspn(word, "="));
    }
    if (f && rc == 0 && !feof(f) && errno == ENOMEM)
        rc = -ENOMEM;
    free(line);
    if (f)
        fclose(f);
    return rc;
}

static const char *const system_dirs[] = {
    "/lib/" TRIPLET, "/usr/lib/" TRIPLET, "/lib64", "/usr/lib64", "/lib", "/usr/lib"};

static bool is_system(const char *dir)
{
    for (size_t i = 0; i < sizeof(system_dirs) / sizeof(system_dirs[0]); i++)
        if (!strcmp(dir, system_dirs[i]))
            return true;
    return false;
}

static int read_dirs(struct fbr_closure *c)
{
    int rc;

    if (c->dirs.n)
        return 0;
    rc = read_conf(c, c->o.ld_so_conf ? c->o.ld_so_conf : "/etc/ld.so.conf", 0);
    for (size_t i = 0; i < sizeof(system_dirs) / sizeof(system_dirs[0]) && rc == 0; i++)
        rc = dirs_add(c, system_dirs[i], strlen(system_dirs[i]));
    return rc;
}

/* ---- Search paths ---- */

struct object {
    struct object *next;
    const struct object *loader;
    /* path: as ld.so knows it; origin: the folder for $ORIGIN */
    char *path, *origin;
    /* name: the name by which others load it; real: its path without links */
    char *name, *real;
    char *rpath, *runpath;
    bool program;
    bool rpaths;  /* it, or one of its loaders, has a DT_RPATH that counts */
    bool skipped; /* its libraries are already in the closure */
};

struct scope {
    struct fbr_closure *c;
    struct object *objects;
    struct fbr_args names; /* names that are loaded */
    uint16_t machine;
    bool strict;
};

/* Returns the length of "$NAME" or "${NAME}" at the beginning; 0: the text does not begin with
 * it. */
static size_t token(const char *at, size_t left, const char *name)
{
    size_t n = strlen(name);

    if (left > n && !memcmp(at + 1, name, n))
        return n + 1;
    if (left > n + 2 && at[1] == '{' && !memcmp(at + 2, name, n) && at[n + 2] == '}')
        return n + 3;
    return 0;
}

/* Expands $ORIGIN, $LIB and $PLATFORM in one directory of a search path. False if the result is too
 * long. */
static bool expand(const char *dir, size_t len, const char *origin, char out[PATH_MAX])
{
    const char *platform = (const char *)(uintptr_t)getauxval(AT_PLATFORM);
    const char *lib = !access("/usr/lib/" TRIPLET, F_OK) ? "lib/" TRIPLET
                      : !access("/usr/lib64", F_OK)      ? "lib64"
                                                         : "lib";
    size_t n = 0;

    while (len > 0) {
        const char *value = dir;
        size_t used = 0, add = 1;

        if (*dir == '$' && (used = token(dir, len, "ORIGIN")))
            value = origin;
        else if (*dir == '$' && (used = token(dir, len, "LIB")))
            value = lib;
        else if (*dir == '$' && (used = token(dir, len, "PLATFORM")))
            value = platform ? platform : "";
        if (used)
            add = strlen(value);
        else
            used = 1;
        if (n + add >= PATH_MAX)
            return false;
        memcpy(out + n, value, add);
        n += add;
        dir += used;
        len -= used;
    }
    out[n] = '\0';
    return true;
}

/* Whether ld.so would load this file; if so, e is open. */
static bool fits(const struct scope *s, const char *path, struct fbr_elf *e)
{
    if (fbr_elf_open(e, path) < 0)
        return false;
    if (!s->machine || e->machine == s->machine)
        return true;
    fbr_elf_close(e);
    return false;
}

static bool in_directory(const struct scope *s, const char *dir, const char *name,
                         char out[PATH_MAX], struct fbr_elf *e)
{
    int n = snprintf(out, PATH_MAX, "%s/%s", dir, name);

    return n > 0 && n < PATH_MAX && fits(s, out, e);
}

/* Searches a search path. A directory that is not absolute depends on where the program is started,
 * which is not known; it is skipped. */
static bool in_path(const struct scope *s, const char *path, const char *origin, const char *name,
                    char out[PATH_MAX], struct fbr_elf *e)
{
    char dir[PATH_MAX];

    while (path && *path) {
        size_t n = strcspn(path, ":;");

        if (n && expand(path, n, origin, dir) && dir[0] == '/' &&
            in_directory(s, dir, name, out, e))
            return true;
        path += n + (path[n] != '\0');
    }
    return false;
}

bool fbr_path_has(const char *path, const char *dir, size_t len)
{
    for (; path && *path; path += strcspn(path, ":"), path += *path == ':')
        if (strcspn(path, ":") == len && !strncmp(path, dir, len))
            return true;
    return false;
}

int fbr_path_add(char **path, const char *dir, size_t len)
{
    char *longer;

    if (fbr_path_has(*path, dir, len))
        return 0;
    if (asprintf(&longer, "%s%s%.*s", *path ? *path : "", *path ? ":" : "", (int)len, dir) < 0)
        return -ENOMEM;
    free(*path);
    *path = longer;
    return 0;
}

/* Finds a library among those that this process has loaded, by an environment or a call that is no
 * longer known. */
static bool in_mapped(const struct scope *s, const char *name, char out[PATH_MAX],
                      struct fbr_elf *e)
{
    for (const char *const *m = s->c->o.mapped; m && *m; m++) {
        if (strcmp(strrchr(*m, '/') + 1, name) != 0 || strlen(*m) >= PATH_MAX || !fits(s, *m, e))
            continue;
        snprintf(out, PATH_MAX, "%s", *m);
        if (fbr_path_add(&s->c->mapped_path, *m, (size_t)(strrchr(*m, '/') - *m)) == 0)
            return true;
        fbr_elf_close(e);
    }
    return false;
}

static bool find_library(const struct scope *s, const struct object *o, const char *name,
                         char out[PATH_MAX], struct fbr_elf *e)
{
    struct fbr_closure *c = s->c;

    if (strchr(name, '/'))
        return expand(name, strlen(name), o->origin, out) && out[0] == '/' && fits(s, out, e);
    for (const struct object *l = o->runpath ? NULL : o; l; l = l->loader)
        if (!l->runpath && in_path(s, l->rpath, l->origin, name, out, e))
            return true;
    if (in_path(s, c->o.library_path, s->objects->origin, name, out, e) ||
        in_path(s, o->runpath, o->origin, name, out, e))
        return true;
    for (size_t i = 0; i < c->dirs.n; i++)
        if (in_directory(s, c->dirs.at[i], name, out, e)) {
            c->needs_cache |= !is_system(c->dirs.at[i]);
            return true;
        }
    return in_mapped(s, name, out, e);
}

/* ---- What is loaded ---- */

static bool is_loaded(const struct scope *s, const char *name)
{
    for (size_t i = 0; i < s->names.n; i++)
        if (!strcmp(s->names.at[i], name))
            return true;
    return false;
}

/* Marks a name as loaded, in this scope and in the closure. */
static int loaded(struct scope *s, const char *name)
{
    struct closure_name *n;

    if (is_loaded(s, name))
        return 0;
    if (fbr_args_add(&s->names, name, strlen(name)) < 0)
        return -ENOMEM;
    HASH_FIND_STR(s->c->names, name, n);
    if (n)
        return 0;
    n = calloc(1, sizeof(*n));
    if (!n || !(n->name = strdup(name))) {
        free(n);
        return -ENOMEM;
    }
    HASH_ADD_KEYPTR(hh, s->c->names, n->name, strlen(n->name), n);
    if (n->hh.tbl)
        return 0;
    free(n->name);
    free(n);
    return -ENOMEM;
}

static void object_free(struct object *o)
{
    free(o->path);
    free(o->origin);
    free(o->name);
    free(o->real);
    free(o->rpath);
    free(o->runpath);
    free(o);
}

static void scope_fini(struct scope *s)
{
    struct object *o, *next;

    LL_FOREACH_SAFE(s->objects, o, next)
        object_free(o);
    fbr_args_fini(&s->names);
}

static int copy(char **out, const char *text)
{
    *out = text ? strdup(text) : NULL;
    return text && !*out ? -ENOMEM : 0;
}

static struct object *object_new(const struct fbr_elf *e, const char *path, const char *real)
{
    struct object *o = calloc(1, sizeof(*o));
    const char *base = strrchr(path, '/') + 1;

    if (!o)
        return NULL;
    if (copy(&o->path, path) == 0 && copy(&o->real, real) == 0 && copy(&o->origin, path) == 0 &&
        copy(&o->rpath, e->rpath) == 0 && copy(&o->runpath, e->runpath) == 0 &&
        copy(&o->name, e->soname && *e->soname ? e->soname : base) == 0) {
        strrchr(o->origin, '/')[0] = '\0';
        return o;
    }
    object_free(o);
    return NULL;
}

/* Appends an object to the loaded objects. `path` gives $ORIGIN, `real` is the path without
 * links. */
static int load(struct scope *s, const struct object *loader, const struct fbr_elf *e,
                const char *path, const char *real, struct fbr_error *err)
{
    struct closure_entry *entry = closure_find(s->c, real);
    struct object *o = object_new(e, path, real);

    if (!o)
        return fbr_fail(err, -ENOMEM, "out of memory");
    o->loader = loader;
    o->program = !loader && e->interp;
    o->rpaths = (loader && loader->rpaths) || (e->rpath && !e->runpath);
    o->skipped = entry && entry->scanned && !o->rpaths && !s->strict;
    if (entry && !o->rpaths)
        entry->scanned = true;
    LL_APPEND(s->objects, o);
    if (loaded(s, strrchr(path, '/') + 1) < 0 || loaded(s, o->name) < 0)
        return fbr_fail(err, -ENOMEM, "out of memory");
    return 0;
}

/* ---- What is missing ---- */

static void put_places(const struct scope *s, const struct object *o, char *out, size_t size)
{
    size_t n = 0;

    out[0] = '\0';
    if (!o->runpath && o->rpath)
        n += (size_t)snprintf(out, size, "%s, ", o->rpath);
    if (n < size && s->c->o.library_path)
        n += (size_t)snprintf(out + n, size - n, "%s, ", s->c->o.library_path);
    if (n < size && o->runpath && o->runpath[strspn(o->runpath, ":")])
        n += (size_t)snprintf(out + n, size - n, "%s, ", o->runpath);
    for (size_t i = 0; i < s->c->dirs.n && n < size; i++)
        n += (size_t)snprintf(out + n, size - n, "%s%s", i ? ":" : "", s->c->dirs.at[i]);
}

static int missing(const struct scope *s, const struct object *o, const char *name,
                   struct fbr_error *err)
{
    const struct closure_name *elsewhere;
    char places[512];

    HASH_FIND_STR(s->c->names, name, elsewhere);
    if (elsewhere && !s->strict)
        return 0;
    if (!s->strict) {
        closure_note(s->c, "%s needs the library %s, which is not on this host", o->path, name);
        return 0;
    }
    put_places(s, o, places, sizeof(places));
    return fbr_fail(err, -ENOENT,
                    "%.200s needs the library %.100s%s%.150s, which is not in %s; install it, or "
                    "name its directory in LD_LIBRARY_PATH (fiber image: -e LD_LIBRARY_PATH)",
                    s->objects->path, name, o == s->objects ? "" : " because of ",
                    o == s->objects ? "" : o->path, places);
}

/* Loads all libraries that o needs. */
static int load_needed(struct scope *s, const struct object *o, struct fbr_error *err)
{
    char path[PATH_MAX];
    struct fbr_elf e, found;
    struct closure_at at;
    const char *name;
    uint64_t next = 0;
    int rc = fbr_elf_open(&e, o->path);

    if (rc < 0)
        return fbr_fail(err, rc, "%.512s: %s", o->path, fbr_strerror(rc));
    while (rc == 0 && (name = fbr_elf_needed(&e, &next))) {
        if (is_loaded(s, name))
            continue;
        if (!find_library(s, o, name, path, &found)) {
            rc = missing(s, o, name, err);
            continue;
        }
        rc = closure_take_path(s->c, path, &at, err);
        if (rc == 0)
            rc = loaded(s, name) < 0 ? fbr_fail(err, -ENOMEM, "out of memory")
                                     : load(s, o, &found, path, at.path, err);
        fbr_elf_close(&found);
    }
    fbr_elf_close(&e);
    return rc;
}

static int load_interpreter(struct scope *s, const struct fbr_elf *e, const char *path,
                            struct fbr_error *err)
{
    struct closure_at at;
    int rc;

    if (!e->interp || !e->interp[0])
        return 0;
    rc = e->interp[0] == '/' ? closure_take_path(s->c, e->interp, &at, err)
                             : fbr_fail(err, -ENOENT, "%.256s: no such file", e->interp);
    if (rc < 0 && s->strict)
        return fbr_wrap(err, "the interpreter of %.256s", path);
    return rc < 0 ? 0 : loaded(s, strrchr(e->interp, '/') + 1);
}

int closure_libraries(struct fbr_closure *c, const char *path, const struct closure_at *at,
                      bool strict, struct fbr_error *err)
{
    struct scope s = {.c = c, .strict = strict};
    struct fbr_elf e;
    int rc = fbr_elf_open(&e, at->path);

    if (rc == -EBADMSG && strict)
        return fbr_fail(err, rc, "%.512s is a damaged program or library", path);
    if (rc < 0)
        return -ENOEXEC;
    s.machine = e.machine;
    if (read_dirs(c) < 0)
        rc = fbr_fail(err, -ENOMEM, "out of memory");
    else if ((rc = load_interpreter(&s, &e, path, err)) == 0)
        /* for a program, $ORIGIN is the folder of its real path */
        rc = load(&s, NULL, &e, e.interp ? at->path : path, at->path, err);
    fbr_elf_close(&e);
    for (const struct object *o = s.objects; o && rc == 0; o = o->next)
        if (!o->skipped)
            rc = load_needed(&s, o, err);
    for (const struct object *o = s.objects; o && rc == 0; o = o->next)
        rc = closure_known(c, o->name, o->real, o->program, err);
    scope_fini(&s);
    return rc;
}

int fbr_closure_add_mapped(struct fbr_closure *c, struct fbr_error *err)
{
    int rc = read_dirs(c);

    if (rc < 0)
        return fbr_fail(err, rc, "%s", fbr_strerror(rc));
    for (const char *const *m = c->o.mapped; m && *m && rc == 0; m++)
        if (!dirs_have(c, *m, (size_t)(strrchr(*m, '/') - *m)))
            rc = closure_take_plugin(c, *m, err);
    return rc;
}

const char *fbr_closure_mapped_path(const struct fbr_closure *c)
{
    return c->mapped_path;
}
