/* rank_times.h - what the ranks of ring_bench.c tell it, in a file that all of them map: one row
 * for each rank.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef RANK_TIMES_H
#define RANK_TIMES_H

#define RANK_ROUNDS 64

struct rank_times {
    int ready;
    double in[RANK_ROUNDS], out[RANK_ROUNDS]; /* seconds of CLOCK_MONOTONIC */
};

#endif
