/* text_file.c - a small file that people write, whole; see text_file.h.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "cli/text_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

int text_file_read(const char *path, char **text, size_t *len, struct fbr_error *err)
{
    char *bytes = malloc(TEXT_FILE_MAX + 1);
    int fd = bytes ? open(path, O_RDONLY | O_CLOEXEC) : -1, rc = bytes ? 0 : -ENOMEM;
    size_t got = 0;
    ssize_t n = 1;

    if (rc == 0 && fd < 0)
        rc = -errno;
    while (rc == 0 && n > 0 && got <= TEXT_FILE_MAX) {
        n = read(fd, bytes + got, TEXT_FILE_MAX + 1 - got);
        if (n < 0)
            rc = -errno;
        else
            got += (size_t)n;
    }
    if (fd >= 0)
        close(fd);
    if (rc < 0)
        fbr_fail(err, rc, "%s: %s", path, fbr_strerror(rc));
    else if (got > TEXT_FILE_MAX)
        rc = fbr_fail(err, -EFBIG, "%s: more than %u bytes", path, TEXT_FILE_MAX);
    if (rc < 0) {
        free(bytes);
        return rc;
    }
    *text = bytes;
    *len = got;
    return 0;
}
