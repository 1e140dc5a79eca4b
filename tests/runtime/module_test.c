/* module_test.c - where modules are looked for, and whose are passed over.
 *
 * What is found depends on where a program lies, so the test copies itself into folders made for it
 * and runs the copy, `module_test open NAME`, which prints what came of it.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <setjmp.h>
#include <spawn.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "runtime/program/module.h"
#include "tests/support/files.h"
#include "tests/support/sync.h"

extern char **environ;

static char root[64]; /* of the folders that are made */

static int make_root(void **state)
{
    temp_dir_make(root);
    return 0;
}

static int remove_root(void **state)
{
    temp_dir_remove(root);
    return 0;
}

static const char *in_root(const char *name)
{
    static char path[4][2 * PATH_MAX];
    static unsigned turn;

    turn = (turn + 1) % 4;
    snprintf(path[turn], sizeof(path[0]), "%s%s", root, name);
    return path[turn];
}

/* Folders on the way are made. */
static void copy(const char *from, const char *to, mode_t mode)
{
    char bytes[65536];
    int in, out;
    ssize_t n;

    folders_make(to);
    in = open(from, O_RDONLY | O_CLOEXEC);
    out = open(to, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0700);
    assert_true(in >= 0 && out >= 0);
    while ((n = read(in, bytes, sizeof(bytes))) > 0)
        assert_int_equal(write(out, bytes, (size_t)n), n);
    assert_int_equal(n, 0);
    assert_int_equal(fchmod(out, mode), 0); /* whatever the umask is */
    close(in);
    close(out);
}

static void copy_module(const char *to, mode_t mode)
{
    char from[PATH_MAX];

    snprintf(from, sizeof(from), "%s/fiber/crypto.so", getenv("TEST_BINARY_DIR"));
    copy(from, in_root(to), mode);
}

/* What the program `path` says of a module, into `said`. */
static void run(const char *path, const char *name, char *said, size_t size)
{
    char *argv[] = {(char *)"module_test", (char *)"open", (char *)name, NULL};
    posix_spawn_file_actions_t actions;
    size_t len = 0;
    int fds[2], status;
    ssize_t n;
    pid_t pid;

    assert_int_equal(pipe2(fds, O_CLOEXEC), 0);
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, fds[1], 1);
    assert_int_equal(posix_spawn(&pid, path, &actions, NULL, argv, environ), 0);
    posix_spawn_file_actions_destroy(&actions);
    close(fds[1]);
    while (len < size - 1 && (n = read(fds[0], said + len, size - 1 - len)) > 0)
        len += (size_t)n;
    said[len] = '\0';
    close(fds[0]);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
}

static void expect(const char *program, const char *name, const char *part)
{
    char said[2048];

    run(in_root(program), name, said, sizeof(said));
    if (!strstr(said, part))
        fail_msg("%s: \"%s\" is not in \"%s\"", name, part, said);
}

static void what_is_not_there_is_said(void **state)
{
    struct fbr_error err = {0};

    assert_null(fbr_module("nothing", &err));
    assert_int_equal(err.code, -ENOENT);
    assert_non_null(strstr(err.text, "cannot load Fiber's module nothing"));
    assert_non_null(strstr(err.text, "is the installation complete?"));
    assert_null(fbr_module("crypto", &err)); /* a module of functions has no table */
    assert_int_equal(err.code, -ENOEXEC);
    assert_non_null(strstr(err.text, "has no table fbr_module_crypto"));
}

static void *open_crypto(void *arg)
{
    return fbr_module_open("crypto", NULL);
}

static void threads_get_the_same_module(void **state)
{
    pthread_t threads[4];
    void *handles[4];

    for (int i = 0; i < 4; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, open_crypto, NULL), 0);
    for (int i = 0; i < 4; i++)
        pthread_join(threads[i], &handles[i]);
    for (int i = 0; i < 4; i++) {
        assert_non_null(handles[i]);
        assert_ptr_equal(handles[i], handles[0]);
    }
}

static void modules_are_found_beside_and_above_a_program(void **state)
{
    char said[2048], *at, *end, prefix[PATH_MAX];

    copy("/proc/self/exe", in_root("/a/b/bin/prog"), 0755);
    copy_module("/a/b/bin/fiber/one.so", 0644);
    copy_module("/a/b/fiber/two.so", 0644);
    copy_module("/a/fiber/three.so", 0644);
    copy_module("/fiber/four.so", 0644);
    expect("/a/b/bin/prog", "one", "opened");
    expect("/a/b/bin/prog", "two", "opened");
    expect("/a/b/bin/prog", "three", "opened");
    expect("/a/b/bin/prog", "four", "no such file");

    /* As it was installed, under another prefix. */
    run(in_root("/a/b/bin/prog"), "five", said, sizeof(said));
    at = strstr(said, "nor in ");
    assert_non_null(at);
    end = strstr(at, "; is");
    assert_non_null(end);
    *end = '\0';
    for (end = at; (end = strstr(end, "/lib")); end++)
        at = end;
    snprintf(prefix, sizeof(prefix), "/a/b%s/five.so", at);
    copy_module(prefix, 0644);
    expect("/a/b/bin/prog", "five", "opened");
}

static void what_others_could_have_put_there_is_passed_over(void **state)
{
    copy("/proc/self/exe", in_root("/open/bin/prog"), 0755);
    copy_module("/open/fiber/file.so", 0646);
    copy_module("/open/bin/fiber/folder.so", 0644);
    expect("/open/bin/prog", "file", "is not used");
    expect("/open/bin/prog", "folder", "opened");
    assert_int_equal(chmod(in_root("/open/bin/fiber"), 0777), 0);
    expect("/open/bin/prog", "folder", "is not used");
    /* Where everybody can write the program itself, that is no news. */
    assert_int_equal(chmod(in_root("/open/bin/prog"), 0757), 0);
    expect("/open/bin/prog", "folder", "opened");
    assert_int_equal(chmod(in_root("/open/bin/prog"), 0755), 0);
    if (geteuid()) {
        print_message("only root can give files away\n");
        return;
    }
    copy_module("/open/fiber/theirs.so", 0644);
    assert_int_equal(chown(in_root("/open/fiber/theirs.so"), 65534, 65534), 0);
    expect("/open/bin/prog", "theirs", "is not used");
    assert_int_equal(chown(in_root("/open/bin/prog"), 65534, 65534),
                     0); /* they own the program too */
    expect("/open/bin/prog", "theirs", "opened");
}

static void what_is_no_library_is_said(void **state)
{
    FILE *f;

    copy("/proc/self/exe", in_root("/bad/prog"), 0755);
    copy_module("/bad/fiber/good.so", 0644);
    f = fopen(in_root("/bad/fiber/text.so"), "w");
    assert_non_null(f);
    fputs("text", f);
    fclose(f);
    assert_int_equal(chmod(in_root("/bad/fiber/text.so"), 0644), 0);
    expect("/bad/prog", "text", "file too short");
}

/* The stamp in that file, changed by one character. */
static void change_stamp(const char *path, const char *stamp)
{
    int fd = open(path, O_RDWR | O_CLOEXEC);
    struct stat st;
    char *bytes, *at = NULL;

    assert_true(fd >= 0 && fstat(fd, &st) == 0);
    bytes = mmap(NULL, (size_t)st.st_size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    assert_ptr_not_equal(bytes, MAP_FAILED);
    at = memmem(bytes, (size_t)st.st_size, stamp, strlen(stamp) + 1);
    assert_non_null(at);
    at[strlen(stamp) - 1] ^= 1;
    munmap(bytes, (size_t)st.st_size);
    close(fd);
}

static void what_is_of_another_build_is_passed_over(void **state)
{
    const char *stamp = dlsym(fbr_module_open("crypto", NULL), "fbr_module_stamp");
    char from[PATH_MAX];

    assert_non_null(stamp);
    copy("/proc/self/exe", in_root("/build/bin/prog"), 0755);
    copy_module("/build/bin/fiber/module.so", 0644);
    change_stamp(in_root("/build/bin/fiber/module.so"), stamp);
    expect("/build/bin/prog", "module", "/build/bin/fiber/module.so is of another build of Fiber");
    expect("/build/bin/prog", "module", stamp); /* what it should be */
    expect("/build/bin/prog", "module", "build both from one source");
    copy_module("/build/fiber/module.so", 0644);
    change_stamp(in_root("/build/fiber/module.so"), stamp);
    expect("/build/bin/prog", "module",
           "and install both\n"); /* two are no reason for more advice */
    copy_module("/fiber/module.so", 0644);
    expect("/build/bin/prog", "module", "opened");

    snprintf(from, sizeof(from), "%s/libfiber.so", getenv("TEST_BINARY_DIR"));
    copy(from, in_root("/build/bin/fiber/old.so"), 0644);
    expect("/build/bin/prog", "old", "it does not say which");
}

static int print_module(const char *name)
{
    struct fbr_error err = {0};

    if (fbr_module_open(name, &err))
        puts("opened");
    else
        puts(err.text);
    return 0;
}

/* Built without libdw there is none, but none was looked for where it would not fit. */
static void a_path_that_does_not_fit_is_no_path(void **state)
{
    struct fbr_error err = {0};
    char path[16];

    assert_int_equal(fbr_module_program("fiber-stack", path, sizeof(path), &err), -ENOENT);
    assert_string_equal(path, "");
    assert_non_null(strstr(err.text, "too long"));
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_not_there_is_said),
        cmocka_unit_test(a_path_that_does_not_fit_is_no_path),
        cmocka_unit_test(threads_get_the_same_module),
        cmocka_unit_test(modules_are_found_beside_and_above_a_program),
        cmocka_unit_test(what_others_could_have_put_there_is_passed_over),
        cmocka_unit_test(what_is_no_library_is_said),
        cmocka_unit_test(what_is_of_another_build_is_passed_over),
    };

    if (argc == 3 && !strcmp(argv[1], "open"))
        return print_module(argv[2]);
    return cmocka_run_group_tests(tests, make_root, remove_root);
}
