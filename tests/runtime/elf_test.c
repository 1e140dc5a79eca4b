/* elf_test.c - what ELF files say about how they are loaded, and what is no such file.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <elf.h>
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "runtime/program/elf.h"
#include "tests/support/elf_file.h"

static void test_all_that_a_file_says(void **state)
{
    const struct elf_file f = {.interp = "/lib/ld.so",
                               .soname = "libx.so.1",
                               .rpath = "/a",
                               .runpath = "$ORIGIN:/b",
                               .needed = {"liba.so", "libb.so.2"},
                               .text = "a mark"};
    size_t len;
    uint8_t *data = elf_file_make(&f, &len);
    uint64_t at = 0;
    struct fbr_elf e;

    assert_int_equal(fbr_elf_read(&e, data, len), 0);
    assert_string_equal(e.interp, "/lib/ld.so");
    assert_string_equal(e.soname, "libx.so.1");
    assert_string_equal(e.rpath, "/a");
    assert_string_equal(e.runpath, "$ORIGIN:/b");
    assert_string_equal(fbr_elf_needed(&e, &at), "liba.so");
    assert_string_equal(fbr_elf_needed(&e, &at), "libb.so.2");
    assert_null(fbr_elf_needed(&e, &at));
    assert_null(fbr_elf_needed(&e, &at));
    assert_true(fbr_elf_holds(&e, "a mark"));
    assert_false(fbr_elf_holds(&e, "another mark"));
    free(data);
}

static void test_a_file_that_asks_for_nothing(void **state)
{
    const struct elf_file f = {.machine = EM_386};
    size_t len;
    uint8_t *data = elf_file_make(&f, &len);
    uint64_t at = 0;
    struct fbr_elf e;

    assert_int_equal(fbr_elf_read(&e, data, len), 0);
    assert_int_equal(e.machine, EM_386);
    assert_null(e.interp);
    assert_null(e.soname);
    assert_null(fbr_elf_needed(&e, &at));
    free(data);
}

/* Whatever is cut off is not there. */
static void test_every_cut_is_survived(void **state)
{
    const struct elf_file f = {.interp = "/lib/ld.so", .soname = "libx.so", .needed = {"liba.so"}};
    size_t len;
    uint8_t *data = elf_file_make(&f, &len);

    for (size_t n = 0; n < len; n++) {
        uint8_t *cut = malloc(n ? n : 1);
        uint64_t at = 0;
        struct fbr_elf e;
        int rc;

        assert_non_null(cut);
        memcpy(cut, data, n);
        rc = fbr_elf_read(&e, cut, n);
        assert_true(rc == 0 || rc == -ENOEXEC || rc == -EBADMSG);
        while (rc == 0 && fbr_elf_needed(&e, &at))
            continue;
        free(cut);
    }
    free(data);
}

static void test_what_is_no_program(void **state)
{
    uint8_t *data;
    struct fbr_elf e;
    size_t len;

    assert_int_equal(fbr_elf_open(&e, "/nonexistent"), -ENOENT);
    assert_int_equal(fbr_elf_open(&e, "/etc/passwd"), -ENOEXEC);
    assert_int_equal(fbr_elf_open(&e, "/dev/zero"), -ENOEXEC);
    assert_int_equal(fbr_elf_open(&e, "/"), -ENOEXEC);
    assert_int_equal(fbr_elf_read(&e, "", 0), -ENOEXEC);
    assert_int_equal(fbr_elf_read(&e, "\177ELF", 4), -ENOEXEC);
    data = elf_file_make(&(struct elf_file){.soname = "x"}, &len);
    data[EI_CLASS] = ELFCLASS32;
    assert_int_equal(fbr_elf_read(&e, data, len), -ENOEXEC);
    data[EI_CLASS] = ELFCLASS64;
    data[offsetof(Elf64_Ehdr, e_phentsize)]++;
    assert_int_equal(fbr_elf_read(&e, data, len), -EBADMSG);
    free(data);
}

static void test_this_program_is_one(void **state)
{
    struct fbr_elf e;
    uint64_t at = 0;
    bool libc = false;
    const char *name;

    assert_int_equal(fbr_elf_open(&e, "/proc/self/exe"), 0);
    assert_non_null(e.interp);
    while ((name = fbr_elf_needed(&e, &at)))
        libc = libc || strncmp(name, "libc.", 5) == 0;
    assert_true(libc);
    fbr_elf_close(&e);
    fbr_elf_close(&e);
}

/* The corpus has one that is as small as such a file can be: DT_NEEDED libmpi.so.40. */
static void test_programs_with_mpi_and_without(void **state)
{
    const char *source = getenv("TEST_SOURCE_DIR");
    char path[4096];

    snprintf(path, sizeof(path), "%s/tests/fuzz/corpus/elf/needs_mpi", source ? source : ".");
    assert_true(fbr_elf_needs_mpi(path));
    assert_false(fbr_elf_needs_mpi("/proc/self/exe"));
    assert_false(fbr_elf_needs_mpi("/nonexistent"));
    assert_false(fbr_elf_needs_mpi("/etc/passwd"));
    assert_false(fbr_elf_needs_mpi("/dev/zero"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_all_that_a_file_says),
        cmocka_unit_test(test_a_file_that_asks_for_nothing),
        cmocka_unit_test(test_every_cut_is_survived),
        cmocka_unit_test(test_what_is_no_program),
        cmocka_unit_test(test_this_program_is_one),
        cmocka_unit_test(test_programs_with_mpi_and_without),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
