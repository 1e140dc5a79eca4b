/* tar.c - writes the headers of tar entries.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "backends/image/tar.h"

#include <stdio.h>
#include <string.h>

void fbr_tar_head(struct fbr_buf *out, const char *name, const char *link, char type, unsigned mode,
                  const struct fbr_tar_owner *owner, size_t size)
{
    char h[FBR_TAR_BLOCK] = {0};
    unsigned sum = 0;

    out->failed |= strlen(name) >= 100 || strlen(link) >= 100;
    snprintf(h, 100, "%s", name);
    snprintf(h + 157, 100, "%s", link);
    snprintf(h + 100, 8, "%07o", mode);
    snprintf(h + 108, 8, "%07o", owner ? owner->uid : 0);
    snprintf(h + 116, 8, "%07o", owner ? owner->gid : 0);
    snprintf(h + 124, 12, "%011zo", size);
    snprintf(h + 136, 12, "%011o", 0);
    memset(h + 148, ' ', 8); /* the checksum is computed with blanks in its place */
    h[156] = type;
    memcpy(h + 257, "ustar\00000", 8);
    for (size_t i = 0; i < FBR_TAR_BLOCK; i++)
        sum += (unsigned char)h[i];
    snprintf(h + 148, 8, "%06o", sum);
    fbr_put(out, h, FBR_TAR_BLOCK);
}
