/* fds.h - file descriptors: raises their limit, checks that enough of them are free, reads files,
 * and writes all of some data to one.
 *
 * libuv and nanomsg abort the process in some places when they get no descriptor, and a failed open
 * in the middle of a join looks like a broken connection. So callers check before they open
 * descriptors, and each start of a process reserves the descriptors that it will need later in this
 * process. The program itself may open descriptors meanwhile, so some must stay free.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>
#include <unistd.h>

#include "runtime/base/error.h"

/* Raises the soft limit of this process to the hard limit, because each child needs several
 * descriptors. */
void fbr_fds_raise(void);
/* Returns the soft limit before fbr_fds_raise(). Programs that we start get this limit, because
 * some of them pass descriptors to select(). 0: the limit was not raised. */
unsigned long fbr_fds_before(void);

/* Closes a descriptor; a negative one is none. Returns -1, for the variable that had it. */
static inline int fbr_fds_close(int fd)
{
    if (fd >= 0)
        close(fd);
    return -1;
}

/* Checks that `now` descriptors are free, and `later` more, and reserves the `later` ones until
 * fbr_fds_release(). -EMFILE and a sentence: too few are free. Any thread. */
int fbr_fds_take(int now, int later, const char *what, struct fbr_error *err);
void fbr_fds_release(int later);
/* Checks only, and reserves none. */
int fbr_fds_need(int now, const char *what, struct fbr_error *err);
/* Whether so few descriptors are free that this may explain a failure. If so, fills in a sentence
 * about it. */
bool fbr_fds_short(char *text, unsigned size);

/* Reads a small file, such as one of /proc, and adds a NUL; a file that does not fit is cut.
 * Follows no link. Returns its length; -errno: `out` is "". */
ssize_t fbr_fds_read_file(const char *path, char *out, size_t size);
/* Reads an open file to its end, into new memory with a NUL behind the text, and closes it. fd: the
 * result of open(); if that is negative, errno is the error. The caller frees *text. -EFBIG: the
 * file has more than `max` bytes. On failure *text does not change. */
int fbr_fds_read_all(int fd, size_t max, char **text, size_t *len);
/* Returns the contents of a file of at most 8 MiB, NUL-terminated, for free(); *len, if `len` is
 * not NULL, is their length. NULL, and a sentence with the path; also if it is a FIFO that gets no
 * writer within two seconds. */
char *fbr_fds_slurp(const char *path, size_t *len, struct fbr_error *err);
/* Writes all of the data, and waits where the descriptor takes no more for now. 0 or -errno. */
int fbr_fds_write(int fd, const void *data, size_t len);
