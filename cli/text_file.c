/* text_file.c - small files that people write; see text_file.h.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "cli/text_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
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

/* ---- Variables ---- */

/* One line without its end, which may be written to. */
static int give_pair(const char *origin, unsigned number, char *line,
                     int (*pair)(void *user, const char *name, const char *value), void *user,
                     struct fbr_error *err)
{
    char *equals;

    line += strspn(line, " \t");
    if (!*line || *line == '#')
        return 0;
    equals = strchr(line, '=');
    if (equals)
        *equals = '\0';
    if (!*line || strpbrk(line, " \t"))
        return fbr_fail(err, -EINVAL,
                        "%s:%u: \"%.64s\" is not the name of a variable; write NAME=VALUE", origin,
                        number, line);
    return pair(user, line, equals ? equals + 1 : NULL);
}

int env_file_parse(const char *origin, const char *text, size_t len,
                   int (*pair)(void *user, const char *name, const char *value), void *user,
                   struct fbr_error *err)
{
    unsigned number = 0;
    int rc = 0;

    while (len && rc >= 0) {
        const char *end = memchr(text, '\n', len);
        size_t n = end ? (size_t)(end - text) : len, used = n + (end != NULL);
        char *line;

        number++;
        if (memchr(text, '\0', n))
            return fbr_fail(err, -EINVAL, "%s:%u: the line is not text", origin, number);
        n -= n && text[n - 1] == '\r';
        line = malloc(n + 1);
        if (!line)
            return fbr_fail(err, -ENOMEM, "%s: out of memory", origin);
        memcpy(line, text, n);
        line[n] = '\0';
        rc = give_pair(origin, number, line, pair, user, err);
        free(line);
        text += used;
        len -= used;
    }
    return rc;
}

int env_file_read(const char *path, int (*pair)(void *user, const char *name, const char *value),
                  void *user, struct fbr_error *err)
{
    char *text;
    size_t len;
    int rc = text_file_read(path, &text, &len, err);

    if (rc < 0)
        return rc;
    rc = env_file_parse(path, text, len, pair, user, err);
    free(text);
    return rc;
}
