/* module.c - finds and loads the parts of Fiber that are loaded when first needed.
 *
 * All users may be able to write the folder of a program, or one or two above it (/tmp). So a
 * module is loaded only if the folder and the file belong to us, to root or to the owner of our
 * program, and if not every user can write them. The last rule does not hold if every user can
 * write the program, too, as on file systems that have no modes.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "runtime/program/module.h"

#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <unistd.h>

#include "runtime/program/spawn.h"
#include "stamp/fiber_stamp.h"

#ifndef FBR_MODULE_DIR
#define FBR_MODULE_DIR "/usr/local/lib/fiber"
#endif
#define MODULES 16 /* more than there are */

/* Each entry is written once, under the lock. Handles are never closed: a module may have left
 * threads and destructors. */
static struct {
    pthread_mutex_t lock;
    struct loaded {
        const char *name;
        void *handle;
    } loaded[MODULES];
    unsigned count;
} modules = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* The state of a search. When nothing is found, the error names the first file that was there and
 * could not be used. */
struct search {
    const char *name;
    struct fbr_module_user user; /* the program or library that this code is in */
    bool stale;                  /* the file in `why` is a module of another build */
    void *handle;
    char *program; /* NULL: the search is for a module; else the program's path goes here */
    size_t size;
    char why[FBR_ERROR_TEXT / 2];
};

bool fbr_module_is_trusted(const struct fbr_module_user *u, const struct stat *st)
{
    if (st->st_uid != 0 && st->st_uid != geteuid() && st->st_uid != u->owner)
        return false;
    return u->open || !(st->st_mode & S_IWOTH);
}

int fbr_module_search(const char *path, struct fbr_module_user *u,
                      int (*look)(void *user, const char *folder), void *user)
{
    static const char installed[] = FBR_MODULE_DIR;
    char self[PATH_MAX], folder[PATH_MAX + sizeof(installed) + 16];
    /* the installed folder without its prefix: "/lib/x86_64-linux-gnu/fiber" */
    const char *lib = NULL;
    struct stat st;
    char *slash;
    int rc;

    for (const char *at = installed; (at = strstr(at, "/lib")); at++)
        lib = at;
    *u = (struct fbr_module_user){.owner = geteuid()};
    if (stat(path, &st) == 0)
        *u = (struct fbr_module_user){.owner = st.st_uid, .open = st.st_mode & S_IWOTH};
    snprintf(self, sizeof(self), "%s", path);
    for (int up = 0; up < 3 && (slash = strrchr(self, '/')); up++) {
        *slash = '\0';
        snprintf(folder, sizeof(folder), "%s/fiber", self);
        if ((rc = look(user, folder)) != 0)
            return rc;
        snprintf(folder, sizeof(folder), "%s%s", self, lib ? lib : "/lib/fiber");
        if (up == 1 && (rc = look(user, folder)) != 0)
            return rc;
    }
    return look(user, installed);
}

/* Whether a module is of our build; no function of another build may be called. */
static bool of_our_build(struct search *s, const char *path)
{
    const char *stamp = dlsym(s->handle, "fbr_module_stamp");

    if (stamp && !strcmp(stamp, FBR_STAMP))
        return true;
    s->stale |= !s->why[0];
    if (!s->why[0])
        snprintf(s->why, sizeof(s->why),
                 "%.300s is of another build of Fiber (%.40s) than this program (" FBR_STAMP
                 "): build both from one source, and install both",
                 path, stamp ? stamp : "it does not say which");
    s->handle = NULL; /* the module stays loaded, as its libraries may not support unloading */
    return false;
}

/* Tries one folder. 1: the search is over. */
static int try_folder(void *user, const char *folder)
{
    struct search *s = user;
    char path[PATH_MAX];
    struct stat dir, file;
    int n = snprintf(path, sizeof(path), "%s/%s%s", folder, s->name, s->program ? "" : ".so");

    if ((size_t)n >= sizeof(path) || (s->program && (size_t)n >= s->size)) {
        if (!s->why[0])
            snprintf(s->why, sizeof(s->why), "the path of %s is too long: its folder is %.60s...",
                     s->name, folder);
        return 0;
    }
    if (stat(folder, &dir) || stat(path, &file) || !S_ISREG(file.st_mode))
        return 0;
    if (!fbr_module_is_trusted(&s->user, &dir) || !fbr_module_is_trusted(&s->user, &file)) {
        if (!s->why[0])
            snprintf(s->why, sizeof(s->why),
                     "%.300s is not used: it belongs to another user, or everyone can write to it",
                     path);
        return 0;
    }
    if (s->program) {
        snprintf(s->program, s->size, "%s", path);
        return 1;
    }
    s->handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (s->handle)
        return of_our_build(s, path);
    snprintf(s->why, sizeof(s->why), "%s", dlerror());
    return 1;
}

/* Finds the file of this code. dladdr() knows a program only as argv[0]. */
static bool find_self(char path[PATH_MAX])
{
    Dl_info self, program;

    if (!dladdr((void *)&modules, &self) || !self.dli_fname)
        return false;
    if (dladdr((void *)getauxval(AT_PHDR), &program) && program.dli_fbase == self.dli_fbase)
        return fbr_spawn_own_path(path, PATH_MAX, NULL) == 0;
    return realpath(self.dli_fname, path) != NULL;
}

static void search(struct search *s)
{
    char self[PATH_MAX];
    /* A program with more rights than its caller does not search near itself. */
    bool near = !getauxval(AT_SECURE) && find_self(self);

    fbr_module_search(near ? self : "", &s->user, try_folder, s);
}

static void *open_locked(const char *name, struct fbr_error *err)
{
    struct search s = {.name = name};

    for (unsigned i = 0; i < modules.count; i++)
        if (!strcmp(modules.loaded[i].name, name))
            return modules.loaded[i].handle;
    search(&s);
    if (!s.handle) {
        fbr_fail(err, s.stale ? -ESTALE : -ENOENT, "cannot load Fiber's module %s: %s%s", name,
                 s.why[0] ? s.why
                          : "there is no such file next to this program, nor in " FBR_MODULE_DIR,
                 s.stale                   ? ""
                 : strcmp(name, "cluster") ? "; is the installation complete?"
                                           : "; is the installation complete? Use `fiber image "
                                             "export ... --cluster` to make an image that has it");
        return NULL;
    }
    if (modules.count < MODULES)
        modules.loaded[modules.count++] = (struct loaded){name, s.handle};
    return s.handle;
}

void *fbr_module_open(const char *name, struct fbr_error *err)
{
    void *handle;

    pthread_mutex_lock(&modules.lock);
    handle = open_locked(name, err);
    pthread_mutex_unlock(&modules.lock);
    return handle;
}

int fbr_module_program(const char *name, char *path, size_t size, struct fbr_error *err)
{
    struct search s = {.name = name, .program = path, .size = size};

    path[0] = '\0';
    search(&s);
    if (path[0])
        return 0;
    return fbr_fail(err, -ENOENT, "%s",
                    s.why[0] ? s.why : "it is neither next to this program nor in " FBR_MODULE_DIR);
}

const void *fbr_module(const char *name, struct fbr_error *err)
{
    void *handle = fbr_module_open(name, err);
    char symbol[64];
    const void *table;

    if (!handle)
        return NULL;
    snprintf(symbol, sizeof(symbol), "fbr_module_%s", name);
    table = dlsym(handle, symbol);
    if (!table)
        fbr_fail(err, -ENOEXEC,
                 "Fiber's module %s has no table %s: it is of another version of Fiber", name,
                 symbol);
    return table;
}
