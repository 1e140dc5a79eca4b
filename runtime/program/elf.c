/* elf.c - reads how a 64-bit ELF file is loaded.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "runtime/program/elf.h"

#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "runtime/base/environ.h"

#define TEXT_MAX 65536 /* a search path may name many directories */

/* Copies a record out of the file; false if the record is not wholly inside the file. */
static bool take(const struct fbr_elf *e, uint64_t at, void *out, size_t size)
{
    if (at > e->len || size > e->len - at)
        return false;
    memcpy(out, e->data + at, size);
    return true;
}

/* Returns the string at this offset; NULL if it does not end inside the file. */
static const char *text_at(const struct fbr_elf *e, uint64_t at)
{
    size_t most;

    if (at >= e->len)
        return NULL;
    most = e->len - at < TEXT_MAX ? e->len - at : TEXT_MAX;
    return memchr(e->data + at, '\0', most) ? (const char *)e->data + at : NULL;
}

static bool segment(const struct fbr_elf *e, const Elf64_Ehdr *h, unsigned k, Elf64_Phdr *p)
{
    return k < h->e_phnum && take(e, h->e_phoff + k * sizeof(*p), p, sizeof(*p));
}

/* Returns the file offset of an address, by the program headers; UINT64_MAX: it is not in the
 * file. */
static uint64_t file_offset(const struct fbr_elf *e, const Elf64_Ehdr *h, uint64_t address)
{
    Elf64_Phdr p;

    for (unsigned k = 0; segment(e, h, k, &p); k++)
        if (p.p_type == PT_LOAD && address >= p.p_vaddr && address - p.p_vaddr < p.p_filesz)
            return p.p_offset + (address - p.p_vaddr);
    return UINT64_MAX;
}

/* Reads the next record of the dynamic table; false after the last one. */
static bool next_dynamic(const struct fbr_elf *e, uint64_t *at, Elf64_Dyn *d)
{
    if (*at >= e->count || !take(e, e->dynamic + *at * sizeof(*d), d, sizeof(*d)) ||
        d->d_tag == DT_NULL)
        return false;
    ++*at;
    return true;
}

static const char *dynamic_text(const struct fbr_elf *e, const Elf64_Dyn *d)
{
    return d->d_un.d_val < e->len ? text_at(e, e->strings + d->d_un.d_val) : NULL;
}

static int read_dynamic(struct fbr_elf *e, const Elf64_Ehdr *h, const Elf64_Phdr *p)
{
    uint64_t at = 0;
    Elf64_Dyn d;

    e->dynamic = p->p_offset;
    e->count = p->p_filesz / sizeof(d);
    e->strings = UINT64_MAX;
    while (next_dynamic(e, &at, &d))
        if (d.d_tag == DT_STRTAB)
            e->strings = file_offset(e, h, d.d_un.d_ptr);
    if (e->strings >= e->len)
        return -EBADMSG;
    for (at = 0; next_dynamic(e, &at, &d);) {
        if (d.d_tag == DT_SONAME)
            e->soname = dynamic_text(e, &d);
        else if (d.d_tag == DT_RPATH)
            e->rpath = dynamic_text(e, &d);
        else if (d.d_tag == DT_RUNPATH)
            e->runpath = dynamic_text(e, &d);
    }
    return 0;
}

int fbr_elf_read(struct fbr_elf *e, const void *data, size_t len)
{
    Elf64_Ehdr h;
    Elf64_Phdr p;
    int rc;

    memset(e, 0, sizeof(*e));
    e->data = data;
    e->len = len;
    if (!take(e, 0, &h, sizeof(h)) || memcmp(h.e_ident, ELFMAG, SELFMAG) != 0 ||
        h.e_ident[EI_CLASS] != ELFCLASS64 || h.e_ident[EI_DATA] != ELFDATA2LSB)
        return -ENOEXEC;
    e->machine = h.e_machine;
    if (h.e_phnum && (h.e_phentsize != sizeof(p) || h.e_phoff > len))
        return -EBADMSG;
    for (unsigned k = 0; segment(e, &h, k, &p); k++) {
        if (p.p_type == PT_INTERP)
            e->interp = text_at(e, p.p_offset);
        else if (p.p_type == PT_DYNAMIC && p.p_filesz && (rc = read_dynamic(e, &h, &p)) < 0)
            return rc;
    }
    return 0;
}

int fbr_elf_open(struct fbr_elf *e, const char *path)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK), rc = -ENOEXEC;
    void *data = MAP_FAILED;
    struct stat st;

    memset(e, 0, sizeof(*e));
    if (fd < 0)
        return -errno;
    if (fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && st.st_size > 0) {
        data = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
        rc = data == MAP_FAILED ? -errno : fbr_elf_read(e, data, (size_t)st.st_size);
    }
    close(fd);
    if (rc < 0) {
        if (data != MAP_FAILED)
            munmap(data, (size_t)st.st_size);
        memset(e, 0, sizeof(*e));
        return rc;
    }
    e->mapped = true;
    return 0;
}

void fbr_elf_close(struct fbr_elf *e)
{
    if (e->mapped)
        munmap((void *)(uintptr_t)e->data, e->len);
    memset(e, 0, sizeof(*e));
}

const char *fbr_elf_needed(const struct fbr_elf *e, uint64_t *at)
{
    const char *name;
    Elf64_Dyn d;

    while (next_dynamic(e, at, &d))
        if (d.d_tag == DT_NEEDED && (name = dynamic_text(e, &d)) && name[0])
            return name;
    return NULL;
}

bool fbr_elf_holds(const struct fbr_elf *e, const char *bytes)
{
    return e->len && memmem(e->data, e->len, bytes, strlen(bytes)) != NULL;
}

bool fbr_elf_is_mpi(const char *name)
{
    static const char *const libraries[] = {"libmpi.so",    "libmpich.so",   "libmpi_",
                                            "libmpicxx.so", "libmpifort.so", NULL};

    return fbr_strings_begin(name, libraries);
}

bool fbr_elf_needs_mpi(const char *path)
{
    struct fbr_elf e;
    bool needs = false;
    const char *name;
    uint64_t at = 0;

    if (fbr_elf_open(&e, path) < 0)
        return false;
    while (!needs && (name = fbr_elf_needed(&e, &at)))
        needs = fbr_elf_is_mpi(name);
    fbr_elf_close(&e);
    return needs;
}
