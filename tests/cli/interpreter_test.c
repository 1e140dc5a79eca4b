/* interpreter_test.c - which programs are interpreters, and what goes into an image with them. The
 * interpreters are scripts of ours, which tell how they were asked.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "cli/interpreter.h"
#include "tests/support/files.h"
#include "tests/support/sync.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

/* It writes its first word to `asked` beside it, and tells of one library. */
static const char interpreter[] = "#!/bin/sh\n"
                                  "here=${0%/*}\n"
                                  "echo \"$1\" >\"$here/asked\"\n"
                                  "echo \"$here/real\"\n"
                                  "echo /the/library\n";
static const char compiled[] = "\177ELF";

static char dir[64];

static void put(const char *name, const char *text, mode_t mode)
{
    const char *path = path_in(dir, name);

    folders_make(path);
    file_make(path, text, strlen(text), mode);
}

/* What interpreter_find() returns for that command in `dir`; its lines, each with '\n' around. */
static int find(const char *const *command, bool named, char *lines, size_t size)
{
    const char *program = command[0][0] == '/' ? command[0] : path_in(dir, command[0]);
    const struct interpreter_wish w = {
        .program = program, .command = command, .workdir = dir, .named = named};
    struct fbr_error err = {0, ""};
    struct fbr_buf found = {0};
    char self[PATH_MAX];
    int rc = interpreter_find(&w, self, &found, &err);

    snprintf(lines, size, "\n%.*s", (int)found.len, (const char *)found.data);
    fbr_buf_fini(&found);
    assert_int_equal(rc < 0, err.text[0] != '\0');
    if (rc == 1)
        assert_string_equal(self, path_in(dir, "real"));
    return rc;
}

#define FIND(lines, ...) find((const char *const[]){__VA_ARGS__, NULL}, false, lines, sizeof(lines))

/* Whether dir/name is one of them. */
static bool has_line(const char *lines, const char *name)
{
    char line[PATH_MAX];

    snprintf(line, sizeof(line), "\n%s\n", name[0] == '/' ? name : path_in(dir, name));
    return strstr(lines, line) != NULL;
}

static void programs_that_are_only_named_like_one_are_left_alone(void **state)
{
    static const char *const names[] = {
        "python_train", "pythonic.sh", "python3_train", "python3.sh", "perlmutter",
        "node_bench",   "nodes",       "javelin",       "julia-set",  "php-like"};
    char lines[4096];

    for (size_t i = 0; i < COUNT(names); i++) {
        put(names[i], interpreter, 0755);
        assert_int_equal(FIND(lines, names[i], "-c"), 0);
        assert_string_equal(lines, "\n");
    }
    assert_int_equal(access(path_in(dir, "asked"), F_OK), -1); /* none was run */
}

static void interpreters_have_versions_in_their_names(void **state)
{
    static const char *const names[] = {"python",      "python3",    "python3.13t",
                                        "python3-dbg", "perl5.36.0", "perl5.36-x86_64-linux-gnu",
                                        "perl"};
    static const char *const strangers[] = {"ruby3.1", "node", "node18", "julia-1.9", "php8.2"};
    char lines[4096];

    for (size_t i = 0; i < COUNT(names); i++) {
        put(names[i], interpreter, 0755);
        assert_int_equal(FIND(lines, names[i]), 1);
        assert_true(has_line(lines, "/the/library"));
        assert_int_equal(unlink(path_in(dir, "asked")), 0);
    }
    for (size_t i = 0; i < COUNT(strangers); i++) {
        put(strangers[i], compiled, 0755);
        assert_int_equal(FIND(lines, strangers[i]), -ENOTSUP);
    }
}

static void a_link_is_what_it_leads_to(void **state)
{
    char lines[4096];

    assert_int_equal(symlink("python3", path_in(dir, "snake")), 0);
    assert_int_equal(symlink("node", path_in(dir, "nodejs")), 0);
    assert_int_equal(FIND(lines, "snake"), 1);
    assert_int_equal(FIND(lines, "nodejs"), -ENOTSUP);
}

static void scripts_bring_their_folder(void **state)
{
    char text[300], lines[8192];

    snprintf(text, sizeof(text), "#!%s -u\n", path_in(dir, "python3"));
    put("job/run", text, 0755);
    put("job/module.py", "", 0644);
    put("job/deep/part.py", "", 0644);
    put("job/.git/config", "", 0644);
    put("job/__pycache__/module.pyc", "", 0644);
    put("job/venv/pyvenv.cfg", "", 0644);
    put("job/plain", "#!/bin/sh\n", 0755);
    assert_int_equal(FIND(lines, "job/run"), 1);
    assert_true(has_line(lines, "job/run"));
    assert_true(has_line(lines, "job/module.py"));
    assert_true(has_line(lines, "job/deep/part.py"));
    assert_false(has_line(lines, "job/.git/config"));
    assert_false(has_line(lines, "job/__pycache__/module.pyc"));
    assert_false(has_line(lines, "job/venv/pyvenv.cfg"));
    assert_int_equal(FIND(lines, "job/plain"), 0);
}

static void env_is_passed_over(void **state)
{
    static const char *const firsts[] = {
        "#!/usr/bin/env python3\n", "#!/usr/bin/env -S python3 -u\n",
        "#!/usr/bin/env -S A=1 python3\n", "#! /usr/bin/env -Spython3 -u\n",
        "#!/usr/bin/env -SA=1 python3\n"};
    char lines[8192];

    for (size_t i = 0; i < COUNT(firsts); i++) {
        put("job/env", firsts[i], 0755);
        assert_int_equal(FIND(lines, "job/env"), 1);
        assert_true(has_line(lines, "job/module.py"));
    }
}

static void options_are_no_script(void **state)
{
    char lines[8192];

    assert_int_equal(FIND(lines, "python3", "-W", "error", "-X", "dev", "job/module.py"), 1);
    assert_true(has_line(lines, "job/deep/part.py"));
    assert_int_equal(FIND(lines, "python3", "-c", "job/module.py"), 1);
    assert_false(has_line(lines, "job/module.py"));
    assert_int_equal(FIND(lines, "python3", "--", "job/module.py"), 1);
    assert_true(has_line(lines, "job/module.py"));
    assert_int_equal(FIND(lines, "python3", "-"), 1);
    assert_false(has_line(lines, "job/module.py"));
    assert_int_equal(FIND(lines, "perl", "-I", "job/deep", "-Ijob", "-e", "1"), 1);
    assert_true(has_line(lines, "job/deep"));
    assert_true(has_line(lines, "job"));
    assert_false(has_line(lines, "job/module.py"));
}

static void packages_that_pip_left_where_they_are_go_along(void **state)
{
    static const char finder[] =
        "import importlib.util, sys\n"
        "MAPPING = {'left_package': '%s', 'left_missing': '/nowhere'}\n"
        "class Finder:\n"
        "    @classmethod\n"
        "    def find_spec(cls, name, path=None, target=None):\n"
        "        if name == 'left_package':\n"
        "            place = MAPPING[name] + '/__init__.py'\n"
        "            return importlib.util.spec_from_file_location(name, place)\n"
        "sys.meta_path.append(Finder)\n";
    const char *const command[] = {"/usr/bin/python3", "-c", "1", NULL};
    const struct interpreter_wish w = {.program = command[0], .command = command, .workdir = dir};
    struct fbr_error err = {0, ""};
    struct fbr_buf found = {0};
    char self[PATH_MAX], text[1024], lines[65536];

    if (access(command[0], X_OK) < 0) {
        print_message("skipped: there is no %s\n", command[0]);
        skip();
    }
    put("project/left_package/__init__.py", "", 0644);
    snprintf(text, sizeof(text), finder, path_in(dir, "project/left_package"));
    put("site/sitecustomize.py", text, 0644);
    assert_int_equal(setenv("PYTHONPATH", path_in(dir, "site"), 1), 0);
    if (interpreter_find(&w, self, &found, &err) != 1)
        fail_msg("%s", err.text);
    unsetenv("PYTHONPATH");
    snprintf(lines, sizeof(lines), "\n%.*s", (int)found.len, (const char *)found.data);
    fbr_buf_fini(&found);
    assert_true(has_line(lines, "site"));
    assert_true(has_line(lines, "project/left_package"));
}

static void a_folder_that_is_too_large_is_refused_unless_files_are_named(void **state)
{
    const char *const command[] = {"python3", "big/run.py", NULL};
    char lines[8192];

    put("big/run.py", "", 0644);
    put("big/data", "", 0644);
    assert_int_equal(truncate(path_in(dir, "big/data"), (off_t)INTERPRETER_FOLDER_MIB << 20), 0);
    assert_int_equal(find(command, false, lines, sizeof(lines)), -E2BIG);
    assert_int_equal(find(command, true, lines, sizeof(lines)), 1);
    assert_true(has_line(lines, "big/run.py"));
    assert_false(has_line(lines, "big/data"));
}

static int set_up(void **state)
{
    char path[300];

    temp_dir_make(dir);
    snprintf(path, sizeof(path), "%s:/usr/bin:/bin", dir);
    return setenv("PATH", path, 1);
}

static int tear_down(void **state)
{
    temp_dir_remove(dir);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(programs_that_are_only_named_like_one_are_left_alone),
        cmocka_unit_test(interpreters_have_versions_in_their_names),
        cmocka_unit_test(a_link_is_what_it_leads_to),
        cmocka_unit_test(scripts_bring_their_folder),
        cmocka_unit_test(env_is_passed_over),
        cmocka_unit_test(options_are_no_script),
        cmocka_unit_test(packages_that_pip_left_where_they_are_go_along),
        cmocka_unit_test(a_folder_that_is_too_large_is_refused_unless_files_are_named),
    };

    return cmocka_run_group_tests(tests, set_up, tear_down);
}
