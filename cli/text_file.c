/* text_file.c - reads small files that users write.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "cli/text_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Reads at most TEXT_FILE_MAX + 1 bytes; returns their number, or a negative errno. */
static ssize_t read_file(const char *path, char *bytes)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n, got = 0;

    if (fd < 0)
        return -errno;
    do {
        n = read(fd, bytes + got, TEXT_FILE_MAX + 1 - (size_t)got);
        got = n < 0 ? -errno : got + n;
    } while (n > 0 && got <= (ssize_t)TEXT_FILE_MAX);
    close(fd);
    return got;
}

int text_file_read(const char *path, char **text, size_t *len, struct fbr_error *err)
{
    char *bytes = malloc(TEXT_FILE_MAX + 1);
    ssize_t n = bytes ? read_file(path, bytes) : -ENOMEM;

    if (n < 0 || n > (ssize_t)TEXT_FILE_MAX) {
        free(bytes);
        return n < 0 ? fbr_fail(err, (int)n, "%s: %s", path, fbr_strerror((int)n))
                     : fbr_fail(err, -EFBIG, "%s: more than %u bytes", path, TEXT_FILE_MAX);
    }
    if (n >= 3 && memcmp(bytes, "\xef\xbb\xbf", 3) == 0) {
        n -= 3;
        memmove(bytes, bytes + 3, (size_t)n);
    }
    *text = bytes;
    *len = (size_t)n;
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

/* ---- Variables ---- */

struct variables {
    int (*pair)(void *user, const char *name, const char *value);
    void *user;
};

static int give_pair(void *user, const char *where, char *line, struct fbr_error *err)
{
    struct variables *v = user;
    char *equals;

    line += strspn(line, " \t");
    if (!*line || *line == '#')
        return 0;
    equals = strchr(line, '=');
    if (equals)
        *equals = '\0';
    if (!*line || strpbrk(line, " \t"))
        return fbr_fail(err, -EINVAL, "%s: \"%.64s\" is not the name of a variable; use NAME=VALUE",
                        where, line);
    return v->pair(v->user, line, equals ? equals + 1 : NULL);
}

int env_file_parse(const char *origin, const char *text, size_t len,
                   int (*pair)(void *user, const char *name, const char *value), void *user,
                   struct fbr_error *err)
{
    struct variables v = {pair, user};

    return text_file_lines(origin, text, len, give_pair, &v, err);
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
