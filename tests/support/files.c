/* files.c - see files.h.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/files.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

const char *path_in(const char *dir, const char *name)
{
    static char paths[8][2 * PATH_MAX];
    static unsigned turn;

    turn = (turn + 1) % 8;
    snprintf(paths[turn], sizeof(paths[0]), "%s/%s", dir, name);
    return paths[turn];
}

void folders_make(const char *path)
{
    char folder[2 * PATH_MAX];

    for (const char *slash = path; (slash = strchr(slash + 1, '/'));) {
        snprintf(folder, sizeof(folder), "%.*s", (int)(slash - path), path);
        assert_true(mkdir(folder, 0755) == 0 || errno == EEXIST);
    }
}

void file_make(const char *path, const void *data, size_t len, mode_t mode)
{
    int fd = open(path, O_CREAT | O_TRUNC | O_WRONLY | O_CLOEXEC, 0600);

    assert_true(fd >= 0);
    assert_int_equal(write(fd, data, len), len);
    assert_int_equal(fchmod(fd, mode), 0);
    close(fd);
}

void file_expect(const char *path, const void *data, size_t len, mode_t mode)
{
    char *found = malloc(len + 1);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    struct stat st;

    assert_non_null(found);
    assert_true(fd >= 0);
    assert_int_equal(read(fd, found, len + 1), len);
    assert_memory_equal(found, data, len);
    assert_int_equal(fstat(fd, &st), 0);
    assert_int_equal(st.st_mode & 07777, mode);
    close(fd);
    free(found);
}
