/* elf.h - whether a program is linked with an MPI library.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef FBR_ELF_H
#define FBR_ELF_H

#include <stdbool.h>
#include <stddef.h>

/* The libraries that the ELF file asks for (DT_NEEDED) include an MPI's. False for what is no ELF
 * file. */
bool fbr_elf_needs_mpi(const char *path);
/* Whether a library of this name ("libmpi.so.40", with or without more behind it) is an MPI's. */
bool fbr_elf_is_mpi(const char *name);
/* The same for a file in memory: for tests and the fuzzer. */
bool fbr_elf_image_needs_mpi(const void *image, size_t len);

#endif
