/* rank_times.h - what the ranks of ring_bench.c tell it, in a file that they map, and who started
 * them: one row for each rank.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "bench.h"

#define RANK_ROUNDS 64

struct rank_times {
    int ready;
    double in[RANK_ROUNDS], out[RANK_ROUNDS]; /* seconds of CLOCK_MONOTONIC */
};

/* All rows, or the end of the program. */
static inline struct rank_times *rank_times_map(const char *path)
{
    int fd = open(path, O_RDWR | O_CLOEXEC);
    struct rank_times *rows = MAP_FAILED;
    struct stat st;

    if (fd >= 0 && fstat(fd, &st) == 0)
        rows = mmap(NULL, (size_t)st.st_size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (rows == MAP_FAILED) {
        perror(path);
        exit(1);
    }
    close(fd);
    return rows;
}
