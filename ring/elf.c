/* elf.c - the DT_NEEDED entries of a 64-bit ELF file; see elf.h. The layout is that of elf(5).
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "ring/elf.h"

#include <elf.h>
#include <fcntl.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

struct image {
    const uint8_t *data;
    size_t len;
};

/* Copies a record out of the image; false when it is not wholly inside. */
static bool take(const struct image *i, uint64_t at, void *out, size_t size)
{
    if (at > i->len || size > i->len - at)
        return false;
    memcpy(out, i->data + at, size);
    return true;
}

bool fbr_elf_is_mpi(const char *name)
{
    static const char *const libraries[] = {"libmpi.so", "libmpich.so", "libmpi_", "libmpicxx.so",
                                            "libmpifort.so"};

    for (size_t k = 0; k < sizeof(libraries) / sizeof(libraries[0]); k++)
        if (strncmp(name, libraries[k], strlen(libraries[k])) == 0)
            return true;
    return false;
}

/* Where an address is in the file, by the program headers. */
static uint64_t file_offset(const struct image *i, const Elf64_Ehdr *h, uint64_t address)
{
    Elf64_Phdr p;

    for (unsigned k = 0; k < h->e_phnum && take(i, h->e_phoff + k * sizeof(p), &p, sizeof(p)); k++)
        if (p.p_type == PT_LOAD && address >= p.p_vaddr && address - p.p_vaddr < p.p_filesz)
            return p.p_offset + (address - p.p_vaddr);
    return UINT64_MAX;
}

static bool name_at(const struct image *i, uint64_t at)
{
    char name[64];
    size_t n;

    if (at >= i->len)
        return false;
    n = i->len - at < sizeof(name) - 1 ? i->len - at : sizeof(name) - 1;
    memcpy(name, i->data + at, n);
    name[n] = '\0';
    return fbr_elf_is_mpi(name);
}

static bool dynamic_needs_mpi(const struct image *i, const Elf64_Ehdr *h, const Elf64_Phdr *dynamic)
{
    uint64_t strings = UINT64_MAX, count = dynamic->p_filesz / sizeof(Elf64_Dyn);
    Elf64_Dyn d;

    for (uint64_t k = 0; k < count && take(i, dynamic->p_offset + k * sizeof(d), &d, sizeof(d));
         k++)
        if (d.d_tag == DT_STRTAB)
            strings = file_offset(i, h, d.d_un.d_ptr);
    if (strings == UINT64_MAX)
        return false;
    for (uint64_t k = 0; k < count && take(i, dynamic->p_offset + k * sizeof(d), &d, sizeof(d));
         k++) {
        if (d.d_tag == DT_NULL)
            return false;
        if (d.d_tag == DT_NEEDED && d.d_un.d_val < i->len && name_at(i, strings + d.d_un.d_val))
            return true;
    }
    return false;
}

bool fbr_elf_image_needs_mpi(const void *data, size_t len)
{
    const struct image i = {data, len};
    Elf64_Ehdr h;
    Elf64_Phdr p;

    if (!take(&i, 0, &h, sizeof(h)) || memcmp(h.e_ident, ELFMAG, SELFMAG) != 0 ||
        h.e_ident[EI_CLASS] != ELFCLASS64 || h.e_phentsize != sizeof(p) || h.e_phoff > len)
        return false;
    for (unsigned k = 0; k < h.e_phnum && take(&i, h.e_phoff + k * sizeof(p), &p, sizeof(p)); k++)
        if (p.p_type == PT_DYNAMIC)
            return dynamic_needs_mpi(&i, &h, &p);
    return false;
}

bool fbr_elf_needs_mpi(const char *path)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    bool needs = false;
    struct stat st;
    void *image;

    if (fd < 0)
        return false;
    if (fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && st.st_size > 0) {
        image = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
        if (image != MAP_FAILED) {
            needs = fbr_elf_image_needs_mpi(image, (size_t)st.st_size);
            munmap(image, (size_t)st.st_size);
        }
    }
    close(fd);
    return needs;
}
