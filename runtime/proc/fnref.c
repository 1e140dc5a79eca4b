/* fnref.c - translates a function pointer to (build-id, offset) and back, by dl_iterate_phdr(3).
 *
 * Errors are written after the walk, not during it: the loader's lock is held while a callback
 * runs.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "runtime/proc/fnref.h"

#include <elf.h>
#include <errno.h>
#include <link.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "runtime/base/environ.h"

#define SHORT_ID 12 /* characters of a build-id that a message shows */

struct module {
    const uint8_t *id; /* in the module's own memory, NULL: no build-id */
    size_t id_len;
    const char *path; /* "": the program; NULL: no module was found */
};

struct search {
    const struct fbr_fnref *want; /* resolve: the reference */
    uintptr_t addr;               /* make: the function */
    struct module first, hit;     /* the program; the module that was found */
    uintptr_t bias;               /* load bias of the found module */
    bool in_text;
};

/* An offset below the segment wraps round to a huge number. */
static bool text_contains(const struct dl_phdr_info *info, uint64_t offset)
{
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *p = &info->dlpi_phdr[i];

        if (p->p_type == PT_LOAD && p->p_flags & PF_X && offset - p->p_vaddr < p->p_memsz)
            return true;
    }
    return false;
}

/* Reads a field of a note and the padding after it, which the last field of a segment may lack. */
static const uint8_t *note_field(struct fbr_cur *c, const uint8_t *start, size_t len, size_t align)
{
    const uint8_t *field = fbr_get(c, len);
    size_t pad = -(size_t)(c->at - start) & (align - 1);

    fbr_get(c, pad < fbr_cur_left(c) ? pad : fbr_cur_left(c));
    return field;
}

/* Finds NT_GNU_BUILD_ID among the notes of one segment; layout: elf(5), "Notes (Nhdr)". */
static const uint8_t *notes_find_id(struct fbr_cur c, size_t align, size_t *len)
{
    const uint8_t *start = c.at;

    while (fbr_cur_left(&c) >= sizeof(ElfW(Nhdr))) {
        ElfW(Nhdr) note; /* in the machine's byte order */
        const uint8_t *name, *desc;

        memcpy(&note, fbr_get(&c, sizeof(note)), sizeof(note));
        name = note_field(&c, start, note.n_namesz, align);
        desc = note_field(&c, start, note.n_descsz, align);
        if (!fbr_cur_ok(&c))
            break;
        if (note.n_type == NT_GNU_BUILD_ID && note.n_namesz == 4 && !memcmp(name, "GNU", 4)) {
            *len = note.n_descsz;
            return desc;
        }
    }
    return NULL;
}

static struct module module_read(const struct dl_phdr_info *info)
{
    struct module m = {.path = info->dlpi_name ? info->dlpi_name : ""};

    for (int i = 0; i < info->dlpi_phnum && !m.id; i++) {
        const ElfW(Phdr) *p = &info->dlpi_phdr[i];
        const void *notes = (const void *)(info->dlpi_addr + p->p_vaddr);

        if (p->p_type == PT_NOTE)
            m.id = notes_find_id(fbr_cur(notes, p->p_memsz), p->p_align == 8 ? 8 : 4, &m.id_len);
    }
    return m;
}

static const char *module_name(const struct module *m)
{
    return *m->path ? basename(m->path) : "the program";
}

static bool module_is_system(const struct module *m)
{
    static const char *const prefixes[] = {"libc.so", "ld-linux",   "ld-musl",
                                           "ld64.so", "linux-vdso", NULL};

    return *m->path && fbr_strings_begin(module_name(m), prefixes);
}

static int make_visit(struct dl_phdr_info *info, size_t size, void *arg)
{
    struct search *s = arg;

    if (!text_contains(info, s->addr - info->dlpi_addr))
        return 0;
    s->hit = module_read(info);
    s->bias = info->dlpi_addr;
    return 1;
}

static int resolve_visit(struct dl_phdr_info *info, size_t size, void *arg)
{
    struct search *s = arg;
    struct module m = module_read(info);

    if (!s->first.path) /* the program comes first, says dl_iterate_phdr(3) */
        s->first = m;
    if (!m.id_len || m.id_len != s->want->id_len || memcmp(m.id, s->want->id, m.id_len))
        return 0;
    s->hit = m;
    s->bias = info->dlpi_addr;
    s->in_text = text_contains(info, s->want->offset);
    return 1;
}

static const char *id_shorten(const uint8_t *id, size_t len, char out[SHORT_ID + 1])
{
    snprintf(out, SHORT_ID + 1, "%s", len ? "" : "(none)");
    for (size_t i = 0; i < len && i < SHORT_ID / 2; i++)
        snprintf(out + 2 * i, 3, "%02x", id[i]);
    return out;
}

int fbr_fnref_make(struct fbr_fnref *ref, void (*fn)(void), struct fbr_error *err)
{
    struct search s = {.addr = (uintptr_t)fn};

    memset(ref, 0, sizeof(*ref));
    dl_iterate_phdr(make_visit, &s);
    if (!s.hit.path)
        return fbr_fail(err, -EFAULT,
                        "%p is not a function of the program or of a library (a nested function?)",
                        (void *)s.addr);
    if (module_is_system(&s.hit))
        return fbr_fail(err, -EPERM, "the function is in %s; wrap it in a function of your own",
                        module_name(&s.hit));
    if (!s.hit.id_len || s.hit.id_len > FBR_FNREF_ID_MAX)
        return fbr_fail(err, -ENOEXEC, "%s has %s build-id: link it with -Wl,--build-id",
                        module_name(&s.hit), s.hit.id_len ? "too long a" : "no");
    ref->id_len = (uint8_t)s.hit.id_len;
    memcpy(ref->id, s.hit.id, s.hit.id_len);
    ref->offset = s.addr - s.bias;
    return 0;
}

int fbr_fnref_resolve(const struct fbr_fnref *ref, void (**fn)(void), struct fbr_error *err)
{
    struct search s = {.want = ref};
    char theirs[SHORT_ID + 1], ours[SHORT_ID + 1];

    *fn = NULL;
    dl_iterate_phdr(resolve_visit, &s);
    if (!s.hit.path)
        return fbr_fail(
            err, -ESTALE,
            "the function is from build %s, and this program is build %s: both programs must be "
            "the same build, with the same libraries loaded; if one is in an image, make the image "
            "again",
            id_shorten(ref->id, ref->id_len, theirs), id_shorten(s.first.id, s.first.id_len, ours));
    if (module_is_system(&s.hit))
        return fbr_fail(err, -EPERM, "the function is in %s, not in the program's own code",
                        module_name(&s.hit));
    if (!s.in_text)
        return fbr_fail(err, -EFAULT, "offset %#llx is not in the code of %s",
                        (unsigned long long)ref->offset, module_name(&s.hit));
    *fn = (void (*)(void))(s.bias + (uintptr_t)ref->offset);
    return 0;
}

void fbr_fnref_put(struct fbr_buf *b, const struct fbr_fnref *ref)
{
    fbr_put_u8(b, ref->id_len);
    fbr_put(b, ref->id, ref->id_len);
    fbr_put_u64(b, ref->offset);
}

void fbr_fnref_get(struct fbr_cur *c, struct fbr_fnref *ref)
{
    size_t len = fbr_get_u8(c);
    const void *id = len && len <= sizeof(ref->id) ? fbr_get(c, len) : NULL;

    memset(ref, 0, sizeof(*ref));
    if (!id) {
        c->bad = true;
        return;
    }
    ref->id_len = (uint8_t)len;
    memcpy(ref->id, id, len);
    ref->offset = fbr_get_u64(c);
}
