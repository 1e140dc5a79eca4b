/* elf.h - reads how a 64-bit ELF file is loaded: its interpreter, libraries, search paths.
 *
 * A pure reader over bytes, and the same for a file, which is mapped. The layout is that of elf(5).
 * Only files of this machine's byte order are read. Nothing of the file is trusted: offsets outside
 * of the file are refused.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef FBR_ELF_H
#define FBR_ELF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct fbr_elf {
    uint16_t machine; /* EM_X86_64 and so on */
    /* NULL: the file has none. They point into the file, where they end in a NUL. */
    const char *interp, *soname, *rpath, *runpath;
    /* private */
    const uint8_t *data;
    size_t len;
    uint64_t dynamic, count; /* where the table is, its records */
    uint64_t strings;
    bool mapped;
};

/* Reads an ELF file in memory: 0; -ENOEXEC: not such a file; -EBADMSG: a damaged one. `data` must
 * stay valid as long as e is used. */
int fbr_elf_read(struct fbr_elf *e, const void *data, size_t len);
/* Maps the file and reads it. More errors: -ENOENT, -EACCES; -ENOEXEC also for a directory or a
 * device. */
int fbr_elf_open(struct fbr_elf *e, const char *path);
void fbr_elf_close(struct fbr_elf *e);

/* Returns the next library that the file asks for (DT_NEEDED), NULL behind the last; *at begins at
 * 0. */
const char *fbr_elf_needed(const struct fbr_elf *e, uint64_t *at);
/* Whether these bytes stand in the file. */
bool fbr_elf_holds(const struct fbr_elf *e, const char *bytes);

/* Whether the libraries that the file asks for include an MPI's. False: it is not an ELF file. */
bool fbr_elf_needs_mpi(const char *path);
/* Whether a library of this name ("libmpi.so.40", with or without more behind it) is an MPI's. */
bool fbr_elf_is_mpi(const char *name);

#endif
