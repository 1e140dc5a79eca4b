/* logs_kept.h - reads and shows the kept output of a run (runtime/inspect/spool_dir.h), for `fiber
 * logs`.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "runtime/inspect/spool_dir.h"

struct logs_wish {
    int rank; /* -1: all */
    bool follow, tag, timestamp;
    int64_t tail;     /* lines; -1: all */
    int64_t since_us; /* microseconds since the epoch; 0: the beginning */
    const char *grep; /* an extended regular expression; NULL: none */
};

/* Finds the directory of kept output. */
bool logs_root(char root[PATH_MAX]);
/* Returns the exit code. */
int logs_kept(struct fbr_spool_run *run, const char *root, const struct logs_wish *wish);
/* Parses "10m", "2h" (before now), "14:30", "14:30:05" (today), "2026-11-23", "2026-11-23T14:30" to
 * microseconds since the epoch. -EINVAL and a message. */
int logs_since(const char *text, int64_t now_us, int64_t *us, struct fbr_error *err);
