/* elf_fuzz.c - files that say they are ELF programs.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <stddef.h>
#include <stdint.h>

#include "ring/elf.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    fbr_elf_image_needs_mpi(data, size);
    return 0;
}
