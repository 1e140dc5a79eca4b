/* mock.h - what the backend "mock" has of runs whose master is gone: jobs, images, output. A test of
 * what sweeps, lists and shows such things sets it; at first there is nothing.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "runtime/proc/backend.h"

/* A part of the output of the job `id`. stream 0: nothing can be read, for the reason in `text`. */
struct mock_piece {
    const char *id;
    int stream;
    const char *text;
    int follow; /* comes only for those who follow */
};

struct mock_engine {
    const struct fbr_orphan *jobs;
    size_t njobs;
    const struct fbr_swept *things;
    size_t nthings;
    const struct mock_piece *pieces;
    size_t npieces;
    int silent;        /* the list fails */
    const char *stuck; /* the job that cannot be removed, and whose output ends early; NULL: none */
    /* what it was asked for */
    char removed[200];
    int64_t before_ms;
    int dry;
};

extern struct mock_engine mock_engine;
