/* import.c - replaces a function that a loaded library calls.
 *
 * Code calls a function of another library through a slot of its own library. The dynamic linker
 * fills the slot, as an entry of the library's relocations tells: at load, or at the first call.
 * System V ABI, chapter 5, "Dynamic Linking".
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "runtime/program/import.h"

#include <errno.h>
#include <link.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#if __SIZEOF_POINTER__ == 8
#define SYMBOL(info) ELF64_R_SYM(info)
#else
#define SYMBOL(info) ELF32_R_SYM(info)
#endif

struct replacement {
    uintptr_t inside;
    const char *name;
    void *function;
    int rc;
};

struct library {
    uintptr_t base;
    const ElfW(Dyn) * dynamic;
    uintptr_t sealed, sealed_end; /* pages that the dynamic linker has made read-only */
};

static uintptr_t dynamic_value(const struct library *l, ElfW(Sxword) tag)
{
    for (const ElfW(Dyn) *d = l->dynamic; d->d_tag != DT_NULL; d++)
        if (d->d_tag == tag)
            return d->d_un.d_ptr;
    return 0;
}

/* The C library may have added the base to the addresses of the dynamic section. */
static const void *dynamic_table(const struct library *l, ElfW(Sxword) tag)
{
    uintptr_t at = dynamic_value(l, tag);

    return (const void *)(at < l->base ? at + l->base : at);
}

static uintptr_t page_of(uintptr_t at)
{
    return at & ~((uintptr_t)sysconf(_SC_PAGESIZE) - 1);
}

static int fill_slot(const struct library *l, uintptr_t slot, void *function)
{
    uintptr_t page = page_of(slot);
    size_t len = slot + sizeof(function) - page;
    bool sealed = slot >= l->sealed && slot < l->sealed_end;

    if (sealed && mprotect((void *)page, len, PROT_READ | PROT_WRITE) < 0)
        return -errno;
    __atomic_store_n((void **)slot, function, __ATOMIC_RELEASE);
    if (sealed)
        mprotect((void *)page, len, PROT_READ);
    return 0;
}

static void fill_slots(const struct library *l, const ElfW(Rela) * rela, size_t bytes,
                       struct replacement *r)
{
    const ElfW(Sym) *symbols = dynamic_table(l, DT_SYMTAB);
    const char *names = dynamic_table(l, DT_STRTAB);

    for (size_t i = 0; i < bytes / sizeof(*rela); i++) {
        size_t symbol = SYMBOL(rela[i].r_info);

        if (symbol && !strcmp(names + symbols[symbol].st_name, r->name))
            r->rc = fill_slot(l, l->base + rela[i].r_offset, r->function);
    }
}

static int look_at(struct dl_phdr_info *object, size_t size, void *arg)
{
    struct library l = {.base = object->dlpi_addr};
    struct replacement *r = arg;
    bool found = false;

    for (int i = 0; i < object->dlpi_phnum; i++) {
        const ElfW(Phdr) *p = &object->dlpi_phdr[i];
        uintptr_t from = l.base + p->p_vaddr, end = from + p->p_memsz;

        if (p->p_type == PT_LOAD)
            found |= r->inside >= from && r->inside < end;
        else if (p->p_type == PT_DYNAMIC)
            l.dynamic = (const void *)from;
        else if (p->p_type == PT_GNU_RELRO) {
            l.sealed = page_of(from);
            l.sealed_end = page_of(end); /* the rest of its last page stays writable */
        }
    }
    if (!found)
        return 0;
    if (l.dynamic) {
        fill_slots(&l, dynamic_table(&l, DT_RELA), dynamic_value(&l, DT_RELASZ), r);
        fill_slots(&l, dynamic_table(&l, DT_JMPREL), dynamic_value(&l, DT_PLTRELSZ), r);
    }
    return 1;
}

int fbr_import_replace(const void *inside, const char *name, void *function)
{
    struct replacement r = {(uintptr_t)inside, name, function, -ENOENT};

    dl_iterate_phdr(look_at, &r);
    return r.rc;
}
