/* import_test.c - a library calls the function that replaces one which it imports, and only that
 * library does.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>
#include <uv.h>

#include "runtime/program/import.c"

static pid_t get_seven(void)
{
    return 7;
}

static void test_a_program_calls_the_replacement(void **state)
{
    pid_t parent = getppid();

    assert_int_equal(fbr_import_replace((void *)get_seven, "getppid", (void *)get_seven), 0);
    assert_int_equal(getppid(), 7);
    assert_int_equal(uv_os_getppid(), parent); /* libuv calls the C library's */
}

static int deny_pair(int domain, int type, int protocol, int fds[2])
{
    errno = EPERM;
    return -1;
}

static void test_a_library_calls_the_replacement(void **state)
{
    uv_os_sock_t pair[2];

    assert_int_equal(uv_socketpair(SOCK_STREAM, 0, pair, 0, 0), 0);
    close(pair[0]);
    close(pair[1]);
    assert_int_equal(fbr_import_replace((void *)uv_socketpair, "socketpair", (void *)deny_pair), 0);
    assert_int_equal(uv_socketpair(SOCK_STREAM, 0, pair, 0, 0), UV_EPERM);
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0); /* called by this program */
    close(pair[0]);
    close(pair[1]);
}

static void test_a_function_that_is_not_called_cannot_be_replaced(void **state)
{
    assert_int_equal(fbr_import_replace((void *)uv_socketpair, "crypt", (void *)deny_pair),
                     -ENOENT);
    assert_int_equal(fbr_import_replace(NULL, "socketpair", (void *)deny_pair), -ENOENT);
}

/* A library whose read-only part ends within a page, as one that was linked for smaller pages. The
 * dynamic linker has left that page writable, and the library's data is in it, too. */
static void test_what_lies_behind_the_slots_stays_writable(void **state)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    struct {
        ElfW(Dyn) dynamic[5];
        ElfW(Sym) symbols[2];
        char names[8];
        ElfW(Rela) rela[1];
        void *slot;
        int data;
    } *l = mmap(NULL, page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
#define AT(member) ((uintptr_t)&l->member - (uintptr_t)l)
    const ElfW(Phdr) headers[] = {
        {.p_type = PT_LOAD, .p_memsz = page},
        {.p_type = PT_DYNAMIC, .p_vaddr = AT(dynamic), .p_memsz = sizeof(l->dynamic)},
        {.p_type = PT_GNU_RELRO, .p_memsz = AT(data)},
    };
    struct dl_phdr_info object = {.dlpi_addr = (uintptr_t)l, .dlpi_phdr = headers, .dlpi_phnum = 3};
    struct replacement r = {(uintptr_t)l, "call", (void *)get_seven, -ENOENT};
    const ElfW(Dyn) dynamic[] = {{DT_SYMTAB, {AT(symbols)}},
                                 {DT_STRTAB, {AT(names)}},
                                 {DT_RELA, {AT(rela)}},
                                 {DT_RELASZ, {sizeof(l->rela)}}};

    assert_true(l != MAP_FAILED);
    memcpy(l->dynamic, dynamic, sizeof(dynamic));
    memcpy(l->names, "\0call", 6);
    l->symbols[1].st_name = 1;
    l->rela[0].r_offset = AT(slot);
    l->rela[0].r_info = ELF64_R_INFO(1, 0);
#undef AT
    assert_int_equal(look_at(&object, sizeof(object), &r), 1);
    assert_int_equal(r.rc, 0);
    assert_ptr_equal(l->slot, get_seven);
    *(volatile int *)&l->data = 1;
    munmap(l, page);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_program_calls_the_replacement),
        cmocka_unit_test(test_a_library_calls_the_replacement),
        cmocka_unit_test(test_a_function_that_is_not_called_cannot_be_replaced),
        cmocka_unit_test(test_what_lies_behind_the_slots_stays_writable),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
