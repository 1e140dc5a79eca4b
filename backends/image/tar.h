/* tar.h - entries of an archive in the format that POSIX calls ustar; pure.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef FBR_TAR_H
#define FBR_TAR_H

#include <stddef.h>

#include "runtime/base/buf.h"

/* Entries and their bytes are padded with zeros to it; two blocks of zeros end the archive. */
#define FBR_TAR_BLOCK 512

struct fbr_tar_owner {
    unsigned uid, gid;
};

/* Adds the header of an entry: type '0' is a file, '2' a link, '5' a directory. owner NULL: root.
 * out->failed when a name is too long for it. */
void fbr_tar_head(struct fbr_buf *out, const char *name, const char *link, char type, unsigned mode,
                  const struct fbr_tar_owner *owner, size_t size);

#endif
