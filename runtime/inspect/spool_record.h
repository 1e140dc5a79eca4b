/* spool_record.h - a record of kept output: one piece of what a rank has printed.
 *
 * u32 length of the rest, u64 time (microseconds since the epoch), u32 job (0: the run's own; else
 * a spawned one), u32 rank, u8 kind, bytes. Little endian, as on the wire. A file may end within a
 * record: the record is being written, or its writer was killed.
 *
 * Pure; any thread.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "runtime/base/buf.h"

#define FBR_RECORD_MAX (1u << 20) /* bytes of a piece */
#define FBR_RECORD_HEAD 21        /* bytes of a record before the piece */

enum fbr_record_kind {
    FBR_RECORD_OUT = 1,
    FBR_RECORD_ERR,
    FBR_RECORD_MARK /* a line of Fiber's own */
};

struct fbr_record {
    uint64_t time_us;
    uint32_t job, rank;
    uint8_t kind;
    const void *data; /* points into the bytes that were read */
    size_t len;       /* at most FBR_RECORD_MAX */
};

void fbr_record_put(struct fbr_buf *b, const struct fbr_record *r);
/* Reads the first record of these bytes. 1: *used is its size; 0: it is incomplete; -EBADMSG: it is
 * malformed. */
int fbr_record_get(const void *data, size_t len, struct fbr_record *r, size_t *used);
