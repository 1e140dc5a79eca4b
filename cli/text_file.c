/* text_file.c - reads small files that users write.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "cli/text_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/fds.h"

int text_file_read(const char *path, char **text, size_t *len, struct fbr_error *err)
{
    int rc = fbr_fds_read_all(open(path, O_RDONLY | O_CLOEXEC), TEXT_FILE_MAX, text, len);

    if (rc < 0)
        return rc == -EFBIG ? fbr_fail(err, rc, "%s: more than %u bytes", path, TEXT_FILE_MAX)
                            : fbr_fail(err, rc, "%s: %s", path, fbr_strerror(rc));
    if (*len >= 3 && memcmp(*text, "\xef\xbb\xbf", 3) == 0) {
        *len -= 3;
        memmove(*text, *text + 3, *len);
    }
    return 0;
}

int text_file_lines(const char *origin, const char *text, size_t len, text_file_line *fn,
                    void *user, struct fbr_error *err)
{
    unsigned number = 0;
    char where[256];

    for (size_t used; len; text += used, len -= used) {
        const char *end = memchr(text, '\n', len);
        size_t n = end ? (size_t)(end - text) : len;
        char *line;
        int rc;

        used = n + (end != NULL);
        snprintf(where, sizeof(where), "%.200s:%u", origin, ++number);
        if (memchr(text, '\0', n))
            return fbr_fail(err, -EINVAL, "%s: the line is not text", where);
        n -= n && text[n - 1] == '\r';
        /* strndup() of GCC 11's AddressSanitizer reads one byte too many */
        line = malloc(n + 1);
        if (!line)
            return fbr_fail(err, -ENOMEM, "out of memory");
        memcpy(line, text, n);
        line[n] = '\0';
        rc = fn(user, where, line, err);
        free(line);
        if (rc < 0)
            return rc;
    }
    return 0;
}

int text_file_each(const char *path, text_file_line *fn, void *user, struct fbr_error *err)
{
    char *text;
    size_t len;
    int rc = text_file_read(path, &text, &len, err);

    if (rc < 0)
        return rc;
    rc = text_file_lines(path, text, len, fn, user, err);
    free(text);
    return rc;
}
