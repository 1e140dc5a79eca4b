/* nfs_locks.h - flock() as NFS has it: an exclusive lock needs a descriptor that is open for
 * writing. It takes the place of the C library's in the program that includes this, and is the same
 * unless `like_nfs` is set.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <sys/file.h>
#include <sys/syscall.h>
#include <unistd.h>

static bool like_nfs;

int flock(int fd, int how)
{
    if (like_nfs && (how & LOCK_EX) && (fcntl(fd, F_GETFL) & O_ACCMODE) == O_RDONLY) {
        errno = EBADF;
        return -1;
    }
    return (int)syscall(SYS_flock, fd, how);
}
