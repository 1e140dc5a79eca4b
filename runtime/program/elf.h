/* elf.h - reads how a 64-bit ELF file is loaded: its interpreter, libraries, search paths.
 *
 * fbr_elf_read() is pure and reads bytes in memory; fbr_elf_open() maps a file and reads that. The
 * layout is that of elf(5). Only files of this machine's byte order are read. An offset outside of
 * the file is refused, because no content of the file is trusted.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#pragma once

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
    uint64_t dynamic, count; /* offset of the dynamic table, number of its records */
    uint64_t strings;
    bool mapped;
};

/* Reads an ELF file in memory. Returns 0; -ENOEXEC: it is no 64-bit ELF file of this byte order;
 * -EBADMSG: it is damaged. `data` must stay valid as long as *e is used. */
int fbr_elf_read(struct fbr_elf *e, const void *data, size_t len);
/* Maps the file and reads it. More errors: -ENOENT, -EACCES; -ENOEXEC also for a directory or a
 * device. */
int fbr_elf_open(struct fbr_elf *e, const char *path);
void fbr_elf_close(struct fbr_elf *e);

/* Returns the next library that the file asks for (DT_NEEDED), or NULL after the last one; *at is 0
 * at first. */
const char *fbr_elf_needed(const struct fbr_elf *e, uint64_t *at);
/* Whether the file contains these bytes. */
bool fbr_elf_holds(const struct fbr_elf *e, const char *bytes);

/* Whether the file asks for an MPI library. False also if it is not an ELF file. */
bool fbr_elf_needs_mpi(const char *path);
/* Whether a name is that of an MPI library: "libmpi.so.40", for instance. Only the beginning of the
 * name counts. */
bool fbr_elf_is_mpi(const char *name);
