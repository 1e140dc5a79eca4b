/* elf_file.h - writes ELF files that say what a test wants them to say, and hold nothing else.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stddef.h>
#include <stdint.h>

struct elf_file {
    const char *interp, *soname, *rpath, *runpath; /* NULL: none */
    const char *needed[8];                         /* up to the first NULL */
    const char *text;                              /* stands in it; NULL */
    uint16_t machine;                              /* 0: this one's */
};

/* The bytes, for free(). */
uint8_t *elf_file_make(const struct elf_file *f, size_t *len);
/* As a file that may be run. */
void elf_file_write(const char *path, const struct elf_file *f);
