/* fnref_test.c - function references: what can be named, what is refused, and the bytes on the
 * wire.
 *
 * That they hold in another process, in all kinds of executables, is shown by fnref_matrix_test.sh.
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
#include <sys/auxv.h>

#include <cmocka.h>

#include "runtime/proc/fnref.h"

static int square(int x)
{
    return x * x;
}

static void (*as_plain(int (*fn)(int)))(void)
{
    return (void (*)(void))fn;
}

static void a_static_function_comes_back(void **state)
{
    struct fbr_fnref ref;
    struct fbr_error err = {0};
    void (*fn)(void);

    assert_int_equal(fbr_fnref_make(&ref, as_plain(square), &err), 0);
    assert_in_range(ref.id_len, 1, FBR_FNREF_ID_MAX);
    assert_int_equal(fbr_fnref_resolve(&ref, &fn, &err), 0);
    assert_ptr_equal(fn, as_plain(square));
    assert_int_equal(err.code, 0);
}

static void a_function_of_a_library_comes_back(void **state)
{
    struct fbr_fnref ref;
    void (*fn)(void);
    void (*want)(void) = (void (*)(void))cmocka_set_message_output;

    if (fbr_fnref_make(&ref, want, NULL) == -ENOEXEC) {
        print_message("this cmocka has no build-id\n");
        skip();
    }
    assert_int_equal(fbr_fnref_resolve(&ref, &fn, NULL), 0);
    assert_ptr_equal(fn, want);
}

static void data_stack_and_null_are_no_functions(void **state)
{
    static int data;
    struct fbr_fnref ref;
    struct fbr_error err;
    int local;

    for (int i = 0; i < 3; i++) {
        void *p = i == 0 ? (void *)&data : i == 1 ? (void *)&local : NULL;

        memset(&ref, 1, sizeof(ref));
        assert_int_equal(fbr_fnref_make(&ref, (void (*)(void))(uintptr_t)p, &err), -EFAULT);
        assert_non_null(strstr(err.text, "not a function"));
        assert_int_equal(ref.id_len, 0);
        assert_int_equal(ref.offset, 0);
    }
}

static void another_build_is_refused_with_both_ids(void **state)
{
    struct fbr_fnref ref;
    struct fbr_error err = {0};
    void (*fn)(void) = as_plain(square);
    char ours[16];

    assert_int_equal(fbr_fnref_make(&ref, as_plain(square), NULL), 0);
    snprintf(ours, sizeof(ours), "%02x%02x%02x%02x", ref.id[0], ref.id[1], ref.id[2], ref.id[3]);
    memcpy(ref.id, "\xde\xad\xbe\xef", 4);
    assert_int_equal(fbr_fnref_resolve(&ref, &fn, &err), -ESTALE);
    assert_null(fn);
    assert_non_null(strstr(err.text, "deadbeef"));
    assert_non_null(strstr(err.text, ours));
    assert_non_null(strstr(err.text, "same build"));
    assert_non_null(strstr(err.text, "if one is in an image, make the image again"));
}

static void a_prefix_of_the_id_is_another_build(void **state)
{
    struct fbr_fnref ref;
    void (*fn)(void);

    assert_int_equal(fbr_fnref_make(&ref, as_plain(square), NULL), 0);
    ref.id_len--;
    assert_int_equal(fbr_fnref_resolve(&ref, &fn, NULL), -ESTALE);
    ref.id_len = 0;
    assert_int_equal(fbr_fnref_resolve(&ref, &fn, NULL), -ESTALE);
}

static void offsets_outside_of_code_are_refused(void **state)
{
    static const uint64_t deltas[] = {1ull << 40, 1ull << 63, UINT64_MAX / 2};
    struct fbr_fnref ref, bad;
    struct fbr_error err = {0};
    void (*fn)(void);

    assert_int_equal(fbr_fnref_make(&ref, as_plain(square), NULL), 0);
    for (size_t i = 0; i < sizeof(deltas) / sizeof(deltas[0]); i++) {
        bad = ref;
        bad.offset += deltas[i];
        assert_int_equal(fbr_fnref_resolve(&bad, &fn, &err), -EFAULT);
        assert_null(fn);
        assert_non_null(strstr(err.text, "not in the code"));
    }
    bad.offset = ref.offset +
                 ((uintptr_t)&deltas[0] - (uintptr_t)square); /* read-only data of this program */
    assert_int_equal(fbr_fnref_resolve(&bad, &fn, NULL), -EFAULT);
}

/* The library's own address of a libc function: through the symbol a non-PIE program would see its
 * own PLT entry. */
static void libc_and_the_vdso_are_refused(void **state)
{
    struct fbr_fnref ref;
    struct fbr_error err = {0};
    unsigned long vdso = getauxval(AT_SYSINFO_EHDR);

#if defined(__PIE__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
    assert_int_equal(fbr_fnref_make(&ref, (void (*)(void))system, &err), -EPERM);
    assert_non_null(strstr(err.text, "libc"));
#endif
    if (vdso)
        assert_int_equal(fbr_fnref_make(&ref, (void (*)(void))vdso, &err), -EPERM);
}

static void the_wire_form_is_length_id_offset(void **state)
{
    static const uint8_t want[] = {3, 'a', 'b', 'c', 8, 7, 6, 5, 4, 3, 2, 1};
    struct fbr_fnref ref = {.id_len = 3, .id = "abc", .offset = 0x0102030405060708}, back;
    struct fbr_buf b = {0};
    struct fbr_cur c;

    fbr_fnref_put(&b, &ref);
    assert_int_equal(b.len, sizeof(want));
    assert_memory_equal(b.data, want, sizeof(want));
    c = fbr_cur(b.data, b.len);
    fbr_fnref_get(&c, &back);
    assert_true(fbr_cur_ok(&c));
    assert_int_equal(fbr_cur_left(&c), 0);
    assert_int_equal(back.id_len, ref.id_len);
    assert_memory_equal(back.id, ref.id, sizeof(ref.id));
    assert_int_equal(back.offset, ref.offset);
    for (size_t len = 0; len < sizeof(want); len++) {
        uint8_t *part =
            malloc(len + 1); /* its own block, so that a sanitizer sees each byte too many */

        memcpy(part, want, len);
        part = realloc(part, len ? len : 1);
        c = fbr_cur(part, len);
        fbr_fnref_get(&c, &back);
        assert_false(fbr_cur_ok(&c));
        free(part);
    }
    fbr_buf_fini(&b);
}

static void an_impossible_id_length_turns_the_cursor_bad(void **state)
{
    static const int lengths[] = {0, FBR_FNREF_ID_MAX + 1, 255};
    uint8_t bytes[300] = {0};
    struct fbr_fnref ref;

    for (size_t i = 0; i < sizeof(lengths) / sizeof(lengths[0]); i++) {
        struct fbr_cur c = fbr_cur(bytes, sizeof(bytes));

        bytes[0] = (uint8_t)lengths[i];
        fbr_fnref_get(&c, &ref);
        assert_false(fbr_cur_ok(&c));
        assert_int_equal(ref.id_len, 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_static_function_comes_back),
        cmocka_unit_test(a_function_of_a_library_comes_back),
        cmocka_unit_test(data_stack_and_null_are_no_functions),
        cmocka_unit_test(another_build_is_refused_with_both_ids),
        cmocka_unit_test(a_prefix_of_the_id_is_another_build),
        cmocka_unit_test(offsets_outside_of_code_are_refused),
        cmocka_unit_test(libc_and_the_vdso_are_refused),
        cmocka_unit_test(the_wire_form_is_length_id_offset),
        cmocka_unit_test(an_impossible_id_length_turns_the_cursor_bad),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
