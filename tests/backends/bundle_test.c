/* bundle_test.c - a program that was moved with its libraries runs from there, and loads nothing from elsewhere.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "backends/image/bundle.h"
#include "runtime/base/buf.h"
#include "runtime/program/subprocess.h"
#include "tests/support/elf_file.h"
#include "tests/support/files.h"
#include "tests/support/run.h"
#include "tests/support/sync.h"

static char dir[64];

/* The tree of DIR/bundle.tar below dir. */
static void extract(void)
{
    const char *argv[] = {"/bin/tar", "-C", dir, "-xpf", path_in(dir, "bundle.tar"), NULL};
    struct ran ran = run_program(argv, NULL, NULL);

    if (ran.code != 0)
        fail_msg("tar: %s%s", ran.out, ran.err);
    ran_free(&ran);
}

static void unpack(const char *program)
{
    struct fbr_error err = {0, ""};
    int fd = open(path_in(dir, "bundle.tar"), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);

    assert_true(fd >= 0);
    if (fbr_bundle_write(program, fd, &err) < 0)
        fail_msg("%s", err.text);
    close(fd);
    extract();
}

static void test_a_program_runs_where_it_was_moved_to(void **state)
{
    char ld[96], lib[96], agent[96];
    const char *argv[] = {ld, "--library-path", lib, agent, "-c", "echo moved", NULL};
    const char *list[] = {ld, "--library-path", lib, "--list", agent, NULL};
    struct ran ran;

    temp_dir_make(dir);
    unpack("/bin/sh");
    snprintf(ld, sizeof(ld), "%s/.fiber/ld.so", dir);
    snprintf(lib, sizeof(lib), "%s/.fiber/lib", dir);
    snprintf(agent, sizeof(agent), "%s" FBR_BUNDLE_PROGRAM, dir);
    ran = run_program(argv, NULL, NULL);
    assert_int_equal(ran.code, 0);
    assert_string_equal(ran.out, "moved\n");
    ran_free(&ran);
    ran = run_program(list, NULL, NULL); /* "libc.so.6 => DIR/.fiber/lib/libc.so.6 (0x...)" */
    assert_int_equal(ran.code, 0);
    for (const char *at = ran.out; (at = strstr(at, "=> ")); at++)
        if (strncmp(at + 3, lib, strlen(lib)) != 0 && strncmp(at + 3, ld, strlen(ld)) != 0)
            fail_msg("loaded from elsewhere:\n%s", ran.out);
    ran_free(&ran);
    temp_dir_remove(dir);
}

static void test_modules_lie_where_a_moved_program_looks_for_them(void **state)
{
    char path[128];

    temp_dir_make(dir);
    unpack("/proc/self/exe");
    snprintf(path, sizeof(path), "%s/.fiber/fiber/crypto.so", dir);
    if (access(path, R_OK) < 0)
        fail_msg("%s: %s", path, strerror(errno));
    temp_dir_remove(dir);
}

/* A moved program that starts a file, with what that says. */
static int act_as_parent(const char *file)
{
    char *argv[] = {(char *)"child", (char *)"child", NULL};
    const struct fbr_subprocess p = {
        .file = file, .argv = argv, .in = -1, .errors = -1, .limit_ms = 60000, .max = 65536};
    struct fbr_error err = {0, ""};
    struct fbr_buf said;
    int code = 0, rc;

    fbr_buf_init(&said);
    rc = fbr_subprocess_run(&p, &said, &code, &err);
    printf("%.*s", (int)said.len, (const char *)said.data);
    fprintf(stderr, "%s\n", err.text);
    fbr_buf_fini(&said);
    return rc < 0 || code ? 1 : 0;
}

static int act_as_child(void)
{
    char exe[PATH_MAX] = "";

    if (readlink("/proc/self/exe", exe, sizeof(exe) - 1) < 0)
        return 1;
    printf("started by %s\n", exe);
    return 0;
}

static void test_a_moved_program_starts_itself_and_its_files(void **state)
{
    char ld[96], lib[96], agent[96], said[128];
    const char *const files[] = {"/proc/self/exe", agent};
    struct ran ran;

    temp_dir_make(dir);
    unpack("/proc/self/exe");
    snprintf(ld, sizeof(ld), "%s/.fiber/ld.so", dir);
    snprintf(lib, sizeof(lib), "%s/.fiber/lib", dir);
    snprintf(agent, sizeof(agent), "%s" FBR_BUNDLE_PROGRAM, dir);
    snprintf(said, sizeof(said), "started by %s\n", ld);
    for (int i = 0; i < 2; i++) {
        ran = run_program((const char *[]){ld, "--library-path", lib, "--argv0", agent, agent,
                                           "parent", files[i], NULL},
                          NULL, NULL);
        if (ran.code != 0 || strcmp(ran.out, said) != 0)
            fail_msg("%s: code %d: %s%s", files[i], ran.code, ran.out, ran.err);
        ran_free(&ran);
    }
    temp_dir_remove(dir);
}

static void test_what_is_no_program_is_refused(void **state)
{
    struct fbr_error err = {0, ""};

    assert_int_equal(fbr_bundle_write("/etc/passwd", 1, &err), -ENOEXEC);
    assert_non_null(strstr(err.text, "/etc/passwd"));
    assert_int_equal(fbr_bundle_write("/nowhere", 1, &err), -ENOEXEC);
}

static void test_a_full_disk_is_told(void **state)
{
    int fd = open("/dev/full", O_WRONLY | O_CLOEXEC);
    struct fbr_error err = {0, ""};

    assert_true(fd >= 0);
    assert_int_equal(fbr_bundle_write("/bin/sh", fd, &err), -ENOSPC);
    assert_non_null(strstr(err.text, ": No space left on device"));
    close(fd);
}

static void test_a_file_that_cannot_be_written_is_named(void **state)
{
    const struct rlimit small = {.rlim_cur = 4096, .rlim_max = RLIM_INFINITY};
    struct fbr_error err = {0, ""};
    struct rlimit before;

    temp_dir_make(dir);
    signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    assert_int_equal(fbr_bundle_into("/bin/sh", dir, false, &err), -EFBIG);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    if (!strstr(err.text, dir)) /* and not the file that is copied */
        fail_msg("%s", err.text);
    temp_dir_remove(dir);
}

static void test_no_file_is_replaced_by_a_folder(void **state)
{
    struct fbr_error err = {0, ""};
    const char *file, *lib;

    temp_dir_make(dir);
    file = path_in(dir, "file");
    lib = path_in(dir, "lib");
    file_make(file, "mine", 4, 0600);
    assert_int_equal(fbr_bundle_into("/bin/sh", file, false, &err), -ENOTDIR);
    assert_non_null(strstr(err.text, "/file/lib: Not a directory"));
    file_make(lib, "mine", 4, 0600);
    assert_int_equal(fbr_bundle_into("/bin/sh", dir, false, &err), -ENOTDIR);
    file_expect(file, "mine", 4, 0600);
    file_expect(lib, "mine", 4, 0600);
    temp_dir_remove(dir);
}

static void *write_bundle(void *fd)
{
    struct fbr_error err = {0, ""};
    int *out = fd, rc = fbr_bundle_write(path_in(dir, "from/prog"), *out, &err);

    close(*out);
    return rc < 0 ? strdup(err.text) : NULL;
}

/* The writer waits for the reader of a pipe while the last library is installed anew. */
static void test_a_file_that_becomes_longer_meanwhile_is_taken_whole(void **state)
{
    static char first[1 << 20], longer[5000];
    char block[4096], interp[96];
    void *why = NULL;
    pthread_t writer;
    int ends[2], tar;
    ssize_t n;

    temp_dir_make(dir);
    snprintf(interp, sizeof(interp), "%s/from/ld.so", dir);
    folders_make(interp);
    elf_file_write(interp, &(struct elf_file){.soname = "ld.so"});
    elf_file_write(path_in(dir, "from/liba.so"), &(struct elf_file){.soname = "liba.so"});
    elf_file_write(path_in(dir, "from/libb.so"), &(struct elf_file){.soname = "libb.so"});
    elf_file_write(path_in(dir, "from/prog"), &(struct elf_file){.interp = interp,
                                                                 .runpath = "$ORIGIN",
                                                                 .needed = {"liba.so", "libb.so"}});
    tar = open(path_in(dir, "from/liba.so"), O_WRONLY | O_APPEND | O_CLOEXEC);
    assert_int_equal(write(tar, first, sizeof(first)), sizeof(first));
    close(tar);
    assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
    assert_int_equal(pthread_create(&writer, NULL, write_bundle, &ends[1]), 0);
    n = read(ends[0], block, sizeof(block));
    assert_true(n > 0);
    memset(longer, 'x', sizeof(longer));
    file_make(path_in(dir, "from/libb.so"), longer, sizeof(longer), 0755);
    tar = open(path_in(dir, "bundle.tar"), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    for (; n > 0; n = read(ends[0], block, sizeof(block)))
        assert_int_equal(write(tar, block, (size_t)n), n);
    close(tar);
    close(ends[0]);
    assert_int_equal(pthread_join(writer, &why), 0);
    if (why)
        fail_msg("%s", (char *)why);
    extract();
    file_expect(path_in(dir, ".fiber/lib/libb.so"), longer, sizeof(longer), 0755);
    temp_dir_remove(dir);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_program_runs_where_it_was_moved_to),
        cmocka_unit_test(test_modules_lie_where_a_moved_program_looks_for_them),
        cmocka_unit_test(test_a_moved_program_starts_itself_and_its_files),
        cmocka_unit_test(test_what_is_no_program_is_refused),
        cmocka_unit_test(test_a_full_disk_is_told),
        cmocka_unit_test(test_a_file_that_cannot_be_written_is_named),
        cmocka_unit_test(test_no_file_is_replaced_by_a_folder),
        cmocka_unit_test(test_a_file_that_becomes_longer_meanwhile_is_taken_whole),
    };

    if (argc == 3 && strcmp(argv[1], "parent") == 0)
        return act_as_parent(argv[2]);
    if (argc == 2 && strcmp(argv[1], "child") == 0)
        return act_as_child();

    return cmocka_run_group_tests(tests, NULL, NULL);
}
