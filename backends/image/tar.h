/* tar.h - entries of an archive in POSIX ustar format; pure.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef FBR_TAR_H
#define FBR_TAR_H

#include <stddef.h>

#include "runtime/base/buf.h"

/* Headers and contents are padded with zeros to this size; two blocks of zeros end the archive. */
#define FBR_TAR_BLOCK 512

struct fbr_tar_owner {
    unsigned uid, gid;
};

/* Adds the header of an entry: type '0' is a file, '2' a link, '5' a directory. owner NULL: root.
 * Sets out->failed if a name is too long. */
void fbr_tar_head(struct fbr_buf *out, const char *name, const char *link, char type, unsigned mode,
                  const struct fbr_tar_owner *owner, size_t size);

#endif
