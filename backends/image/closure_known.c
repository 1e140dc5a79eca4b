/* closure_known.c - files that programs and libraries load although no file names them.
 *
 * Fiber's modules are searched where a program searches them, under the same rules about their
 * owner (runtime/program/module.h): in the image they belong to root, and would be trusted. A
 * program that has Fiber linked in is recognised by a text of module.c.
 *
 * One table has the plugins of other libraries, as patterns that start in the folder of the library
 * itself. Each of them may be missing.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <glob.h>
#include <stdio.h>
#include <string.h>

#include "backends/image/closure_priv.h"
#include "runtime/program/elf.h"
#include "runtime/program/module.h"

#define MARK "fbr_module_%s"

static const struct {
    const char *library, *pattern;
} plugins[] = {
    {"libc.so.", "libgcc_s.so.1"},     /* for the cancellation of threads, and for backtraces */
    {"libc.so.", "libnss_files.so.2"}, /* glibc before 2.34 */
    {"libc.so.", "libnss_dns.so.2"},
    {"libmpi.so.", "openmpi/mca_*"},
    {"libmpi.so.", "openmpi/lib/openmpi*"}, /* the path in Debian */
    {"libmpi.so.", "../share/openmpi"},
    {"libmpi.so.", "../../share/openmpi"},
    {"libmpi.so.", "../etc/openmpi*"},
    {"libmpi.so.", "/etc/openmpi"},
    {"libpmix.so.", "pmix/*mca_*"},
    {"libpmix.so.", "../share/pmix"},
    {"libpmix.so.", "pmix2/lib/pmix"}, /* the path in Debian */
    {"libpmix.so.", "pmix2/share/pmix"},
    {"libprrte.so.", "prte/*mca_*"},
    {"libucs.so.", "ucx/*.so*"},
    {"libucs.so.", "/etc/ucx"},
    {"libfabric.so.", "libfabric/*.so*"},
    {"libibverbs.so.", "libibverbs/*.so*"},
    {"libibverbs.so.", "/etc/libibverbs.d"},
    {"libhwloc.so.",
     /* finds the GPU that is near; the other plugins need X11 and XML */
     "hwloc/hwloc_pci.so"},
};

static int take_plugins(struct fbr_closure *c, const char *name, const char *real,
                        struct fbr_error *err)
{
    char pattern[PATH_MAX + 64];
    const char *slash = strrchr(real, '/');
    glob_t found;
    int rc = 0;

    for (size_t i = 0; i < sizeof(plugins) / sizeof(plugins[0]) && rc == 0; i++) {
        if (strncmp(name, plugins[i].library, strlen(plugins[i].library)) != 0)
            continue;
        if (plugins[i].pattern[0] == '/')
            snprintf(pattern, sizeof(pattern), "%s", plugins[i].pattern);
        else
            snprintf(pattern, sizeof(pattern), "%.*s/%s", (int)(slash - real), real,
                     plugins[i].pattern);
        if (glob(pattern, 0, NULL, &found) != 0)
            continue;
        for (size_t k = 0; k < found.gl_pathc && rc == 0; k++)
            rc = closure_take_plugin(c, found.gl_pathv[k], err);
        globfree(&found);
    }
    return rc;
}

/* ---- Fiber's modules ---- */

struct modules {
    struct fbr_closure *c;
    struct fbr_module_user user;
    struct fbr_error *err;
};

/* 1: the modules are in that folder, and were added. */
static int take_modules(void *user, const char *folder)
{
    static const char *const names[] = {"crypto.so", "pin.so", "pmix.so", "fiber-stack",
                                        "cluster.so"};
    const struct modules *m = user;
    char path[PATH_MAX + NAME_MAX];
    struct stat st;
    int rc = 0, taken = 0;

    if (stat(folder, &st) < 0 || !fbr_module_is_trusted(&m->user, &st))
        return 0;
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]) && rc == 0; i++) {
        snprintf(path, sizeof(path), "%s/%s", folder, names[i]);
        if ((!strcmp(names[i], "cluster.so") && !m->c->o.cluster) || stat(path, &st) < 0 ||
            !S_ISREG(st.st_mode) || !fbr_module_is_trusted(&m->user, &st))
            continue;
        rc = closure_take_plugin(m->c, path, m->err);
        taken = 1;
    }
    return rc < 0 ? rc : taken;
}

static int find_modules(struct fbr_closure *c, const char *real, struct fbr_error *err)
{
    struct modules m = {.c = c, .err = err};
    int rc = fbr_module_search(real, &m.user, take_modules, &m);

    if (rc == 0)
        closure_note(c, "%s uses Fiber, but its modules (fiber/crypto.so) are not beside it", real);
    return rc;
}

/* Whether the file has Fiber linked in. */
static bool holds_fiber(const char *real)
{
    struct fbr_elf e;
    bool holds;

    if (fbr_elf_open(&e, real) < 0)
        return false;
    holds = fbr_elf_holds(&e, MARK);
    fbr_elf_close(&e);
    return holds;
}

int closure_known(struct fbr_closure *c, const char *name, const char *real, bool program,
                  struct fbr_error *err)
{
    struct closure_entry *entry = closure_find(c, real);
    int rc = 0;

    if (!entry || entry->known)
        return 0;
    entry->known = true;
    if (!c->o.no_plugins && (rc = take_plugins(c, name, real, err)) < 0)
        return rc;
    if (!c->o.no_modules && (!strncmp(name, "libfiber.so", 11) || (program && holds_fiber(real))))
        rc = find_modules(c, real, err);
    return rc < 0 ? rc : 0;
}
