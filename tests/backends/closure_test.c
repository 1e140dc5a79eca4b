/* closure_test.c - which files a program needs: libraries as ld.so finds them, scripts, directories, links, plugins,
 * and what is refused.
 *
 * The programs are ELF files made here that say what a case needs (support/elf_file.h), in a folder of their own;
 * ld.so.conf is one of ours.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "backends/image/closure.h"
#include "tests/support/elf_file.h"
#include "tests/support/files.h"
#include "tests/support/sync.h"

static char root[128]; /* of a case's files */
static char conf[160];

static int make_root(void **state)
{
    char made[64], whole[PATH_MAX];

    temp_dir_make(made);
    if (!realpath(made, whole))
        return -1;
    snprintf(root, sizeof(root), "%.100s", whole);
    snprintf(conf, sizeof(conf), "%s/ld.so.conf", root);
    return 0;
}

static int remove_root(void **state)
{
    temp_dir_remove(root);
    return 0;
}

static const char *in_root(const char *name)
{
    static char path[8][PATH_MAX + 128];
    static unsigned turn;

    turn = (turn + 1) % 8;
    snprintf(path[turn], sizeof(path[0]), "%s%s", root, name);
    return path[turn];
}

/* The folders above it. */
static const char *ready(const char *name)
{
    const char *path = in_root(name);

    folders_make(path);
    return path;
}

static void write_elf(const char *name, const struct elf_file f)
{
    elf_file_write(ready(name), &f);
}

static void write_text(const char *name, mode_t mode, const char *text)
{
    file_make(ready(name), text, strlen(text), mode);
}

static void write_link(const char *target, const char *name)
{
    assert_int_equal(symlink(target, ready(name)), 0);
}

static struct fbr_closure *new_closure(const char *library_path)
{
    const struct fbr_closure_options o = {.library_path = library_path, .ld_so_conf = conf};
    struct fbr_closure *c;

    assert_int_equal(fbr_closure_new(&c, &o, NULL), 0);
    return c;
}

static void add(struct fbr_closure *c, const char *name)
{
    struct fbr_error err = {0, ""};

    if (fbr_closure_add(c, name[0] == '/' ? in_root(name) : name, &err) < 0)
        fail_msg("%s: %s", name, err.text);
}

static const struct fbr_file *find(struct fbr_closure *c, const char *path)
{
    const struct fbr_file *const *files;
    size_t n;

    files = fbr_closure_files(c, &n);
    assert_non_null(files);
    for (size_t i = 0; i < n; i++)
        if (!strcmp(files[i]->path, path))
            return files[i];
    return NULL;
}

static const struct fbr_file *found(struct fbr_closure *c, const char *name)
{
    const struct fbr_file *f = find(c, in_root(name));

    if (!f)
        fail_msg("%s is not there", name);
    return f;
}

static void assert_absent(struct fbr_closure *c, const char *name)
{
    if (find(c, in_root(name)))
        fail_msg("%s is there", name);
}

static void assert_holds(const char *text, const char *what)
{
    if (!strstr(text, what))
        fail_msg("\"%s\" does not say \"%s\"", text, what);
}

/* ---- Libraries ---- */

static void test_libraries_are_found_by_runpath_from_where_the_program_lies(void **state)
{
    struct fbr_closure *c = new_closure(NULL);

    write_elf("/bin/prog", (struct elf_file){.runpath = "${ORIGIN}/../lib", .needed = {"liba.so"}});
    write_elf("/lib/liba.so", (struct elf_file){.runpath = "$ORIGIN/deep", .needed = {"libb.so"}});
    write_elf("/lib/deep/libb.so", (struct elf_file){.needed = {"liba.so"}});
    write_elf("/lib/libunused.so", (struct elf_file){.soname = "libunused.so"});
    add(c, "/bin/prog");
    assert_int_equal(found(c, "/bin/prog")->mode, 0755);
    found(c, "/lib/liba.so");
    found(c, "/lib/deep/libb.so");
    assert_absent(c, "/lib/libunused.so");
    fbr_closure_free(c);
}

static void test_rpath_serves_the_libraries_too_and_runpath_does_not(void **state)
{
    struct fbr_closure *c = new_closure(NULL);
    struct fbr_error err = {0, ""};

    write_elf("/old", (struct elf_file){.rpath = "$ORIGIN/lib", .needed = {"liba.so"}});
    write_elf("/new", (struct elf_file){.runpath = "$ORIGIN/lib", .needed = {"liba.so"}});
    write_elf("/lib/liba.so", (struct elf_file){.needed = {"libb.so"}});
    write_elf("/lib/libb.so", (struct elf_file){.soname = "libb.so"});
    add(c, "/old");
    found(c, "/lib/libb.so");
    fbr_closure_free(c);
    c = new_closure(NULL);
    assert_int_equal(fbr_closure_add(c, in_root("/new"), &err), -ENOENT);
    assert_holds(err.text, "/new needs the library libb.so because of ");
    fbr_closure_free(c);
}

static void test_library_path_stands_between_rpath_and_runpath(void **state)
{
    char path[PATH_MAX];
    struct fbr_closure *c;

    snprintf(path, sizeof(path), "relative::%s/env", root);
    c = new_closure(path);
    write_elf("/r", (struct elf_file){.rpath = "$ORIGIN/lib", .needed = {"liba.so"}});
    write_elf("/n", (struct elf_file){.runpath = "$ORIGIN/lib", .needed = {"libb.so"}});
    for (int i = 0; i < 2; i++) {
        write_elf(i ? "/lib/liba.so" : "/env/liba.so", (struct elf_file){.soname = "liba.so"});
        write_elf(i ? "/lib/libb.so" : "/env/libb.so", (struct elf_file){.soname = "libb.so"});
    }
    add(c, "/r");
    add(c, "/n");
    found(c, "/lib/liba.so");
    assert_absent(c, "/env/liba.so");
    found(c, "/env/libb.so");
    assert_absent(c, "/lib/libb.so");
    fbr_closure_free(c);
}

/* By an environment that is not known any more, or by hand. */
static void test_what_the_process_has_loaded_counts_where_nothing_else_is_found(void **state)
{
    char needed[PATH_MAX], other[PATH_MAX], plugin[PATH_MAX], path[PATH_MAX];
    const char *const mapped[] = {needed, other, plugin, NULL};
    const struct fbr_closure_options o = {.mapped = mapped, .ld_so_conf = conf};
    struct fbr_closure *c;

    snprintf(needed, sizeof(needed), "%s/own/liba.so", root);
    snprintf(other, sizeof(other), "%s/own/libb.so", root);
    snprintf(plugin, sizeof(plugin), "%s/plugins/libp.so", root);
    write_elf("/own/liba.so", (struct elf_file){.soname = "liba.so"});
    write_elf("/own/libb.so", (struct elf_file){.soname = "libb.so"});
    write_elf("/system/libb.so", (struct elf_file){.soname = "libb.so"});
    write_elf("/plugins/libp.so", (struct elf_file){.soname = "libp.so"});
    snprintf(path, sizeof(path), "%s/own\n%s/system\n", root, root);
    write_text("/ld.so.conf", 0644, strchr(path, '\n') + 1);
    write_elf("/p", (struct elf_file){.needed = {"liba.so", "libb.so"}});
    assert_int_equal(fbr_closure_new(&c, &o, NULL), 0);
    assert_null(fbr_closure_mapped_path(c));
    add(c, "/p");
    found(c, "/own/liba.so");
    found(c, "/system/libb.so");
    assert_absent(c, "/own/libb.so");
    assert_string_equal(fbr_closure_mapped_path(c), in_root("/own"));
    assert_absent(c, "/plugins/libp.so");
    assert_int_equal(fbr_closure_add_mapped(c, NULL), 0);
    found(c, "/plugins/libp.so");
    fbr_closure_free(c);
}

static void test_data_brings_no_interpreter_and_may_be_missing(void **state)
{
    struct fbr_closure *c = new_closure(NULL);

    write_text("/lib/cgi.py", 0755, "#!/no/such/python\n");
    write_elf("/lib/x.so", (struct elf_file){.needed = {"libnowhere.so"}});
    assert_int_equal(fbr_closure_add_data(c, in_root("/lib/cgi.py"), NULL), 0);
    assert_int_equal(fbr_closure_add_data(c, in_root("/lib/x.so"), NULL), 0);
    assert_int_equal(fbr_closure_add_data(c, in_root("/lib/nowhere"), NULL), 0);
    found(c, "/lib/cgi.py");
    found(c, "/lib/x.so");
    assert_holds(fbr_closure_notes(c)[0], "libnowhere.so, which is not on this host");
    fbr_closure_free(c);
}

/* A program of this user cannot read it either, for instance below a folder on the path of modules. */
static void test_data_that_its_user_may_not_read_is_left_out(void **state)
{
    struct fbr_closure *c = new_closure(NULL), *strict = new_closure(NULL);
    bool is_root = geteuid() == 0;
    int rc, named;

    write_text("/data/mine", 0644, "");
    write_text("/data/theirs", 0, "");
    write_text("/data/folder/theirs", 0644, "");
    assert_int_equal(chmod(in_root("/data/folder"), 0), 0);
    assert_int_equal(chmod(root, 0755), 0);
    assert_true(!is_root || seteuid(65534) == 0);
    rc = fbr_closure_add_data(c, in_root("/data"), NULL);
    named = fbr_closure_add(strict, in_root("/data"), NULL);
    assert_true(!is_root || seteuid(0) == 0);
    assert_int_equal(chmod(in_root("/data/folder"), 0755), 0);
    assert_int_equal(rc, 0);
    assert_int_equal(named, -EACCES);
    found(c, "/data/mine");
    assert_absent(c, "/data/theirs");
    assert_absent(c, "/data/folder");
    assert_non_null(fbr_closure_notes(c)[1]);
    fbr_closure_free(strict);
    fbr_closure_free(c);
}

static void test_folders_of_modules_go_without_histories(void **state)
{
    struct fbr_closure *c = new_closure(NULL);

    write_text("/project/module.py", 0644, "");
    write_text("/project/.git/config", 0644, "");
    assert_int_equal(fbr_closure_add_data(c, in_root("/project"), NULL), 0);
    found(c, "/project/module.py");
    assert_absent(c, "/project/.git");
    assert_int_equal(fbr_closure_add(c, in_root("/project"), NULL), 0);
    found(c, "/project/.git/config"); /* the user has named it */
    fbr_closure_free(c);
}

static void test_directories_of_ld_so_conf_and_the_cache_that_leads_to_them(void **state)
{
    struct fbr_closure *c = new_closure(NULL);
    char text[3 * PATH_MAX];

    write_text("/ld.so.conf", 0644, "# ours\ninclude conf.d/*.conf\n");
    snprintf(text, sizeof(text), "%s/one\n%s/two/=libc6 # and a word\n", root, root);
    write_text("/conf.d/a.conf", 0644, text);
    write_text("/conf.d/b.conf", 0644, "include b.conf\n"); /* itself */
    write_elf("/two/liba.so", (struct elf_file){.soname = "liba.so"});
    write_elf("/prog", (struct elf_file){.needed = {"liba.so"}});
    add(c, "/prog");
    found(c, "/two/liba.so");
    assert_int_equal(fbr_closure_add_system(c, NULL), 0);
    assert_int_equal(find(c, "/etc/ld.so.cache") != NULL, access("/etc/ld.so.cache", R_OK) == 0);
    fbr_closure_free(c);
}

static void test_words_of_ld_so_conf(void **state)
{
    struct fbr_closure *c = new_closure(NULL);
    struct fbr_error err = {0, ""};

    write_text("/ld.so.conf", 0644,
               "# a comment\n"
               "  /usr/local/lib # another\n"
               "include /nowhere/a.conf b/*.conf\n"
               "hwcap 1 nosegneg /hwcap\n"
               "/x:/y, /z/\t/includes=libc6\n"
               "/include include relative /x\n"
               "/last");
    write_text("/b/1.conf", 0644, "/of/b");
    write_elf("/prog", (struct elf_file){.needed = {"libgone.so"}});
    assert_int_equal(fbr_closure_add(c, in_root("/prog"), &err), -ENOENT);
    assert_holds(err.text,
                 "is not in /usr/local/lib:/of/b:/x:/y:/z:/includes:/include:/last:/lib/");
    fbr_closure_free(c);
}

static void test_a_library_of_another_machine_is_passed_over(void **state)
{
    struct fbr_closure *c = new_closure(NULL);

    write_elf("/prog",
              (struct elf_file){.runpath = "$ORIGIN/a:$ORIGIN/b:$ORIGIN/c", .needed = {"libx.so"}});
    write_elf("/a/libx.so", (struct elf_file){.machine = EM_386});
    write_text("/b/libx.so", 0644, "no library");
    write_elf("/c/libx.so", (struct elf_file){.soname = "libx.so"});
    add(c, "/prog");
    found(c, "/c/libx.so");
    assert_absent(c, "/a/libx.so");
    assert_absent(c, "/b/libx.so");
    fbr_closure_free(c);
}

static void test_a_missing_library_is_told_with_who_needs_it_and_where_it_was_sought(void **state)
{
    struct fbr_closure *c = new_closure("/opt/env");
    struct fbr_error err = {0, ""};

    write_elf("/prog", (struct elf_file){.runpath = "/opt/run", .needed = {"libgone.so.7"}});
    assert_int_equal(fbr_closure_add(c, in_root("/prog"), &err), -ENOENT);
    assert_holds(err.text, "/prog needs the library libgone.so.7, which is not in ");
    assert_holds(err.text, "/opt/env, /opt/run, ");
    assert_holds(err.text, ":/usr/lib");
    assert_holds(err.text, "LD_LIBRARY_PATH");
    fbr_closure_free(c);
}

static void test_the_interpreter_is_taken_and_missed(void **state)
{
    struct fbr_closure *c = new_closure(NULL);
    struct fbr_error err = {0, ""};
    char interp[PATH_MAX + 16];

    snprintf(interp, sizeof(interp), "%s/lib64/ld.so", root);
    write_elf("/sys/ld.so", (struct elf_file){.soname = "ld.so"});
    write_link("sys", "/lib64");
    write_elf("/prog", (struct elf_file){.interp = interp, .needed = {"ld.so"}});
    write_elf("/lost", (struct elf_file){.interp = "/nowhere/ld.so"});
    add(c, "/prog");
    assert_string_equal(found(c, "/lib64")->target, "sys");
    found(c, "/sys/ld.so");
    assert_int_equal(fbr_closure_add(c, in_root("/lost"), &err), -ENOENT);
    assert_holds(err.text, "the interpreter of ");
    assert_holds(err.text, "/nowhere/ld.so");
    fbr_closure_free(c);
}

static void test_this_program_is_found_whole(void **state)
{
    struct fbr_closure *c = new_closure(getenv("LD_LIBRARY_PATH"));
    char path[PATH_MAX];
    bool libc = false;
    const struct fbr_file *const *files;
    size_t n;

    assert_non_null(realpath("/proc/self/exe", path));
    assert_int_equal(fbr_closure_add(c, "/proc/self/exe", NULL), 0);
    assert_non_null(find(c, path));
    files = fbr_closure_files(c, &n);
    for (size_t i = 0; i < n; i++) {
        libc = libc || strstr(files[i]->path, "/libc.so.6");
        assert_null(strstr(files[i]->path, "/proc"));
    }
    assert_true(libc);
    fbr_closure_free(c);
}

/* ---- Paths ---- */

static void test_links_stay_links_and_what_they_lead_to_comes_along(void **state)
{
    struct fbr_closure *c = new_closure(NULL);
    const struct fbr_file *const *files;
    size_t n;

    write_text("/data/v2/x.txt", 0640, "x");
    write_link("v2", "/data/now");
    write_link(in_root("/data/now/../now/x.txt"), "/x");
    add(c, "/x");
    assert_int_equal(found(c, "/x")->kind, FBR_FILE_LINK);
    assert_int_equal(found(c, "/data/now")->kind, FBR_FILE_LINK);
    assert_int_equal(found(c, "/data/v2/x.txt")->kind, FBR_FILE_REGULAR);
    assert_int_equal(found(c, "/data/v2/x.txt")->mode, 0644);
    assert_int_equal(fbr_closure_bytes(c), 1);
    files = fbr_closure_files(c, &n);
    for (size_t i = 0; i + 1 < n; i++)
        assert_true(strcmp(files[i]->path, files[i + 1]->path) < 0);
    fbr_closure_free(c);
}

static void test_links_in_a_circle_end(void **state)
{
    struct fbr_closure *c = new_closure(NULL);
    struct fbr_error err = {0, ""};

    write_link("b", "/a");
    write_link("a", "/b");
    assert_int_equal(fbr_closure_add(c, in_root("/a"), &err), -ELOOP);
    assert_int_equal(fbr_closure_add(c, in_root("/none"), &err), -ENOENT);
    write_text("/file", 0644, "");
    assert_int_equal(fbr_closure_add(c, in_root("/file/x"), &err), -ENOTDIR);
    fbr_closure_free(c);
}

static void test_what_cannot_be_in_an_image(void **state)
{
    static const char *const refused[] = {"/", "/proc", "/dev/null", "/dev", "/sys/kernel"};
    struct fbr_closure *c = new_closure(NULL);
    struct fbr_error err = {0, ""};

    for (size_t i = 0; i < sizeof(refused) / sizeof(refused[0]); i++) {
        assert_int_equal(fbr_closure_add(c, refused[i], &err), -EINVAL);
        assert_holds(err.text, "image");
    }
    fbr_closure_free(c);
}

static void test_a_directory_is_taken_with_what_its_programs_need(void **state)
{
    struct fbr_closure *c = new_closure(NULL);

    write_text("/d/data", 0600, "data");
    write_elf("/d/sub/plugin.so", (struct elf_file){.runpath = "$ORIGIN/../../lib",
                                                    .needed = {"liba.so", "libgone.so"}});
    write_elf("/lib/liba.so", (struct elf_file){.soname = "liba.so"});
    write_text("/elsewhere/file", 0644, "x");
    write_link("../elsewhere/file", "/d/file");
    write_link("../elsewhere", "/d/folder");
    write_link("nowhere", "/d/broken");
    assert_int_equal(mkfifo(in_root("/d/fifo"), 0600), 0);
    add(c, "/d");
    assert_int_equal(found(c, "/d/data")->mode, 0644);
    found(c, "/d/sub/plugin.so");
    found(c, "/lib/liba.so");
    found(c, "/elsewhere/file");
    assert_string_equal(found(c, "/d/folder")->target, "../elsewhere");
    assert_string_equal(found(c, "/d/broken")->target, "nowhere");
    assert_absent(c, "/d/fifo");
    assert_holds(fbr_closure_notes(c)[0], "/d/sub/plugin.so needs the library libgone.so");
    assert_null(fbr_closure_notes(c)[1]);
    fbr_closure_free(c);
}

/* What loads a plugin has loaded that library before. */
static void test_a_plugin_may_need_what_another_program_brought(void **state)
{
    struct fbr_closure *c = new_closure(NULL);

    write_elf("/prog", (struct elf_file){.runpath = "$ORIGIN/lib", .needed = {"liba.so.1"}});
    write_elf("/lib/liba.so.1", (struct elf_file){.soname = "liba.so.1"});
    write_elf("/d/plugin.so", (struct elf_file){.needed = {"liba.so.1"}});
    add(c, "/prog");
    add(c, "/d");
    assert_null(fbr_closure_notes(c));
    fbr_closure_free(c);
}

/* ---- Scripts ---- */

static void test_a_script_takes_its_interpreters(void **state)
{
    struct fbr_closure *c = new_closure(NULL);
    char text[2 * PATH_MAX], path[PATH_MAX + 8];
    const char *before = getenv("PATH");
    char *kept = strdup(before ? before : "");
    struct fbr_error err = {0, ""};

    snprintf(text, sizeof(text), "#! %s/bin/env -S A=b lang -u\n", root);
    write_text("/script", 0755, text);
    snprintf(text, sizeof(text), "#!%s/bin/real\n", root);
    write_text("/bin/lang", 0755, text);
    write_elf("/bin/env", (struct elf_file){.soname = "env"});
    write_elf("/bin/real", (struct elf_file){.soname = "real"});
    snprintf(path, sizeof(path), "%s/bin", root);
    setenv("PATH", path, 1);
    add(c, "/script");
    found(c, "/bin/env");
    found(c, "/bin/lang");
    found(c, "/bin/real");
    snprintf(text, sizeof(text), "#!%s/bin/env -Sother -u\n", root);
    write_text("/joined", 0755, text);
    write_elf("/bin/other", (struct elf_file){.soname = "other"});
    add(c, "/joined");
    found(c, "/bin/other");
    write_text("/lost", 0755, "#!/nowhere/sh\n");
    assert_int_equal(fbr_closure_add(c, in_root("/lost"), &err), -ENOENT);
    assert_holds(err.text, "is a script for /nowhere/sh");
    snprintf(text, sizeof(text), "#!%s/bin/env nolang\n", root);
    write_text("/lost", 0755, text);
    assert_int_equal(fbr_closure_add(c, in_root("/lost"), &err), -ENOENT);
    assert_holds(err.text, "is a script for nolang, which is not in PATH");
    write_text("/lost", 0755, "#!/usr/\n");
    assert_int_equal(fbr_closure_add(c, in_root("/lost"), &err), -EISDIR);
    setenv("PATH", kept, 1);
    free(kept);
    fbr_closure_free(c);
}

static void test_a_script_that_is_its_own_interpreter_ends(void **state)
{
    struct fbr_closure *c = new_closure(NULL);
    char text[PATH_MAX + 16];

    snprintf(text, sizeof(text), "#!%s/self\n", root);
    write_text("/self", 0755, text);
    add(c, "/self");
    fbr_closure_free(c);
}

/* ---- What is loaded without being asked for ---- */

static void test_fibers_modules_come_with_its_library(void **state)
{
    struct fbr_closure *c = new_closure(NULL);
    struct fbr_closure_options o = {.cluster = true, .ld_so_conf = "/nonexistent"};

    write_elf("/bin/prog",
              (struct elf_file){.runpath = "$ORIGIN/../lib", .needed = {"libfiber.so.0"}});
    write_elf("/lib/libfiber.so.0", (struct elf_file){.soname = "libfiber.so.0"});
    write_elf("/lib/fiber/crypto.so",
              (struct elf_file){.runpath = "$ORIGIN", .needed = {"libz.so"}});
    write_elf("/lib/fiber/libz.so", (struct elf_file){.soname = "libz.so"});
    write_elf("/lib/fiber/pmix.so", (struct elf_file){.needed = {"libgone.so"}});
    write_elf("/lib/fiber/cluster.so", (struct elf_file){.soname = "cluster.so"});
    write_elf("/lib/fiber/other.so", (struct elf_file){.soname = "other.so"});
    add(c, "/bin/prog");
    found(c, "/lib/fiber/crypto.so");
    found(c, "/lib/fiber/libz.so");
    found(c, "/lib/fiber/pmix.so");
    assert_absent(c, "/lib/fiber/cluster.so");
    assert_absent(c, "/lib/fiber/other.so");
    assert_holds(fbr_closure_notes(c)[0], "pmix.so needs the library libgone.so");
    fbr_closure_free(c);
    assert_int_equal(fbr_closure_new(&c, &o, NULL), 0);
    add(c, "/bin/prog");
    found(c, "/lib/fiber/cluster.so");
    fbr_closure_free(c);
}

static void test_fibers_modules_come_with_a_program_that_has_it_linked_in(void **state)
{
    struct fbr_closure *c = new_closure(NULL);
    char interp[PATH_MAX + 16];

    snprintf(interp, sizeof(interp), "%s/ld.so", root);
    write_elf("/ld.so", (struct elf_file){.soname = "ld.so"});
    write_elf("/bin/prog", (struct elf_file){.interp = interp, .text = "fbr_module_%s"});
    write_elf("/other/prog", (struct elf_file){.interp = interp, .text = "something else"});
    write_elf("/fiber/crypto.so", (struct elf_file){.soname = "crypto.so"});
    write_elf("/other/fiber/crypto.so", (struct elf_file){.soname = "crypto.so"});
    add(c, "/bin/prog");
    add(c, "/other/prog");
    found(c, "/fiber/crypto.so");
    assert_absent(c, "/other/fiber/crypto.so");
    fbr_closure_free(c);
}

/* In the image it would belong to root, and be trusted. */
static void test_a_module_that_everybody_can_write_is_left_out(void **state)
{
    struct fbr_closure *c = new_closure(NULL);

    write_elf("/libfiber.so.0", (struct elf_file){.soname = "libfiber.so.0"});
    write_elf("/fiber/crypto.so", (struct elf_file){.soname = "crypto.so"});
    assert_int_equal(chmod(in_root("/fiber/crypto.so"), 0777), 0);
    add(c, "/libfiber.so.0");
    assert_absent(c, "/fiber/crypto.so");
    if (access(TEST_MODULE_DIR, F_OK) < 0) /* else those that are installed are taken */
        assert_holds(fbr_closure_notes(c)[0], "its modules");
    fbr_closure_free(c);
}

static void test_plugins_come_with_the_library_that_loads_them(void **state)
{
    struct fbr_closure *c = new_closure(NULL);
    struct fbr_closure_options o = {.no_plugins = true, .ld_so_conf = "/nonexistent"};

    write_elf("/bin/prog",
              (struct elf_file){.runpath = "$ORIGIN/../lib", .needed = {"libmpi.so.40"}});
    write_elf("/lib/libmpi.so.40.1", (struct elf_file){.soname = "libmpi.so.40"});
    write_link("libmpi.so.40.1", "/lib/libmpi.so.40");
    write_elf("/lib/openmpi/mca_btl_x.so",
              (struct elf_file){.runpath = "$ORIGIN/..", .needed = {"libfabric.so.1"}});
    write_elf("/lib/libfabric.so.1", (struct elf_file){.soname = "libfabric.so.1"});
    write_elf("/lib/libfabric/libprov.so", (struct elf_file){.soname = "libprov.so"});
    write_text("/share/openmpi/help.txt", 0644, "help");
    add(c, "/bin/prog");
    found(c, "/lib/openmpi/mca_btl_x.so");
    found(c, "/lib/libfabric.so.1");
    found(c, "/lib/libfabric/libprov.so");
    found(c, "/share/openmpi/help.txt");
    fbr_closure_free(c);
    assert_int_equal(fbr_closure_new(&c, &o, NULL), 0);
    add(c, "/bin/prog");
    found(c, "/lib/libmpi.so.40.1");
    assert_absent(c, "/lib/openmpi/mca_btl_x.so");
    fbr_closure_free(c);
}

/* ---- The system ---- */

static void test_a_system_has_places_and_people(void **state)
{
    struct fbr_closure *c = new_closure(NULL);
    char us[64];

    snprintf(us, sizeof(us), ":x:%u:%u:", geteuid(), getegid());
    assert_int_equal(fbr_closure_add_system(c, NULL), 0);
    assert_int_equal(find(c, "/tmp")->mode, 01777);
    assert_int_equal(find(c, "/var/tmp")->mode, 01777);
    assert_int_equal(find(c, "/proc")->kind, FBR_FILE_DIRECTORY);
    assert_holds(find(c, "/etc/passwd")->text, "root:x:0:0:");
    assert_holds(find(c, "/etc/passwd")->text, us);
    assert_holds(find(c, "/etc/nsswitch.conf")->text, "hosts: files dns");
    assert_null(find(c, "/etc/ld.so.cache"));
    fbr_closure_free(c);
}

static void test_what_lies_in_roots_home_is_for_whoever_runs_the_image(void **state)
{
    struct fbr_closure *c = new_closure(NULL);

    assert_int_equal(fbr_closure_add_system(c, NULL), 0);
    assert_int_equal(find(c, "/root")->mode, 0700);
    fbr_closure_free(c);
    c = new_closure(NULL);
    assert_int_equal(fbr_closure_add_directory(c, "/root", 0700, NULL), 0);
    assert_int_equal(fbr_closure_add_system(c, NULL), 0);
    assert_int_equal(find(c, "/root")->mode, 0755);
    fbr_closure_free(c);
}

static void test_a_directory_is_made_with_those_above_it(void **state)
{
    struct fbr_closure *c = new_closure(NULL);
    struct fbr_error err = {0, ""};

    write_text("/file", 0644, "");
    write_link("real", "/link");
    write_text("/real/x", 0644, "");
    add(c, "/file");
    assert_int_equal(fbr_closure_add_directory(c, "/new/deep//", 01777, &err), 0);
    assert_int_equal(find(c, "/new")->mode, 0755);
    assert_int_equal(find(c, "/new/deep")->mode, 01777);
    assert_int_equal(fbr_closure_add_directory(c, in_root("/link/in"), 0755, &err), 0);
    assert_int_equal(found(c, "/real/in")->kind, FBR_FILE_DIRECTORY);
    assert_int_equal(fbr_closure_add_directory(c, "/", 01777, &err), 0);
    assert_null(find(c, "/"));
    assert_null(find(c, ""));
    assert_int_equal(fbr_closure_add_directory(c, "/..data/...", 0755, &err), 0);
    assert_non_null(find(c, "/..data/..."));
    assert_int_equal(fbr_closure_add_directory(c, in_root("/file/x"), 0755, &err), -ENOTDIR);
    assert_int_equal(fbr_closure_add_directory(c, "here", 0755, &err), -EINVAL);
    assert_int_equal(fbr_closure_add_directory(c, "/a/../b", 0755, &err), -EINVAL);
    assert_int_equal(fbr_closure_add_directory(c, "/a/..", 0755, &err), -EINVAL);
    fbr_closure_free(c);
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, make_root, remove_root)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(test_libraries_are_found_by_runpath_from_where_the_program_lies),
        CASE(test_rpath_serves_the_libraries_too_and_runpath_does_not),
        CASE(test_library_path_stands_between_rpath_and_runpath),
        CASE(test_what_the_process_has_loaded_counts_where_nothing_else_is_found),
        CASE(test_data_brings_no_interpreter_and_may_be_missing),
        CASE(test_data_that_its_user_may_not_read_is_left_out),
        CASE(test_folders_of_modules_go_without_histories),
        CASE(test_directories_of_ld_so_conf_and_the_cache_that_leads_to_them),
        CASE(test_words_of_ld_so_conf),
        CASE(test_a_library_of_another_machine_is_passed_over),
        CASE(test_a_missing_library_is_told_with_who_needs_it_and_where_it_was_sought),
        CASE(test_the_interpreter_is_taken_and_missed),
        CASE(test_this_program_is_found_whole),
        CASE(test_links_stay_links_and_what_they_lead_to_comes_along),
        CASE(test_links_in_a_circle_end),
        CASE(test_what_cannot_be_in_an_image),
        CASE(test_a_directory_is_taken_with_what_its_programs_need),
        CASE(test_a_plugin_may_need_what_another_program_brought),
        CASE(test_a_script_takes_its_interpreters),
        CASE(test_a_script_that_is_its_own_interpreter_ends),
        CASE(test_fibers_modules_come_with_its_library),
        CASE(test_fibers_modules_come_with_a_program_that_has_it_linked_in),
        CASE(test_a_module_that_everybody_can_write_is_left_out),
        CASE(test_plugins_come_with_the_library_that_loads_them),
        CASE(test_a_system_has_places_and_people),
        CASE(test_what_lies_in_roots_home_is_for_whoever_runs_the_image),
        CASE(test_a_directory_is_made_with_those_above_it),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
