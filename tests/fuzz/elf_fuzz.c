/* elf_fuzz.c - files that say they are ELF programs.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/program/elf.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(const char *text, const uint8_t *data, size_t size)
{
    if (text &&
        ((const uint8_t *)text < data || (const uint8_t *)text + strlen(text) >= data + size))
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct fbr_elf e;
    const char *name;
    uint64_t at = 0, names = 0;

    if (fbr_elf_read(&e, data, size) < 0)
        return 0;
    check(e.interp, data, size);
    check(e.soname, data, size);
    check(e.rpath, data, size);
    check(e.runpath, data, size);
    while ((name = fbr_elf_needed(&e, &at)) && names++ < size)
        check(name, data, size);
    if (names > size)
        abort();
    return 0;
}
