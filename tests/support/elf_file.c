/* elf_file.c - writes ELF files for tests; see elf_file.h.
 *
 * One segment, whose addresses are the offsets in the file: the dynamic table, then the strings.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/elf_file.h"

#include <elf.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#if defined(__x86_64__)
#define MACHINE EM_X86_64
#elif defined(__aarch64__)
#define MACHINE EM_AARCH64
#elif defined(__riscv)
#define MACHINE EM_RISCV
#elif defined(__s390x__)
#define MACHINE EM_S390
#else
#define MACHINE EM_PPC64
#endif

#define SIZE 8192
#define TABLE 256    /* where the dynamic table begins */
#define STRINGS 1024 /* where the strings begin */

struct maker {
    uint8_t *data;
    size_t strings;
    unsigned records;
};

static uint64_t put_string(struct maker *m, const char *text)
{
    uint64_t at = m->strings - STRINGS;

    assert_true(m->strings + strlen(text) + 1 <= SIZE);
    memcpy(m->data + m->strings, text, strlen(text) + 1);
    m->strings += strlen(text) + 1;
    return at;
}

static void put_record(struct maker *m, int64_t tag, uint64_t value)
{
    Elf64_Dyn d = {.d_tag = tag};

    d.d_un.d_val = value;
    memcpy(m->data + TABLE + m->records++ * sizeof(d), &d, sizeof(d));
}

static void put_text(struct maker *m, int64_t tag, const char *text)
{
    if (text)
        put_record(m, tag, put_string(m, text));
}

uint8_t *elf_file_make(const struct elf_file *f, size_t *len)
{
    struct maker m = {.data = calloc(1, SIZE), .strings = STRINGS};
    Elf64_Phdr p[3];
    Elf64_Ehdr h;

    assert_non_null(m.data);
    put_string(&m, "");
    put_record(&m, DT_STRTAB, STRINGS);
    for (size_t i = 0; i < 8 && f->needed[i]; i++)
        put_text(&m, DT_NEEDED, f->needed[i]);
    put_text(&m, DT_SONAME, f->soname);
    put_text(&m, DT_RPATH, f->rpath);
    put_text(&m, DT_RUNPATH, f->runpath);
    put_record(&m, DT_NULL, 0);
    memset(p, 0, sizeof(p));
    if (f->text)
        put_string(&m, f->text);
    if (f->interp) {
        p[2].p_type = PT_INTERP;
        p[2].p_offset = p[2].p_vaddr = STRINGS + put_string(&m, f->interp);
        p[2].p_filesz = strlen(f->interp) + 1;
    }
    p[0].p_type = PT_LOAD;
    p[0].p_filesz = p[0].p_memsz = m.strings;
    p[1].p_type = PT_DYNAMIC;
    p[1].p_offset = p[1].p_vaddr = TABLE;
    p[1].p_filesz = m.records * sizeof(Elf64_Dyn);
    memset(&h, 0, sizeof(h));
    memcpy(h.e_ident, ELFMAG, SELFMAG);
    h.e_ident[EI_CLASS] = ELFCLASS64;
    h.e_ident[EI_DATA] = __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__ ? ELFDATA2LSB : ELFDATA2MSB;
    h.e_type = ET_DYN;
    h.e_machine = f->machine ? f->machine : MACHINE;
    h.e_phoff = sizeof(h);
    h.e_phentsize = sizeof(p[0]);
    h.e_phnum = 3;
    memcpy(m.data, &h, sizeof(h));
    memcpy(m.data + sizeof(h), p, sizeof(p));
    *len = m.strings;
    return m.data;
}

void elf_file_write(const char *path, const struct elf_file *f)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0755);
    size_t len;
    uint8_t *data = elf_file_make(f, &len);

    assert_true(fd >= 0);
    assert_int_equal(write(fd, data, len), len);
    close(fd);
    free(data);
}
