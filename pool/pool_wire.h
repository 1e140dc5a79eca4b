/* pool_wire.h - the messages between a pool and its workers; docs/wire.md has them byte by byte.
 *
 * On the data link there are records whose parts are 8-byte aligned, so that inputs and results are
 * used in place:
 *
 *     COMMON   u32 5, u32 0, u64 id, bytes: input that the tasks of some batches share
 *     FORGET   u32 6, u32 0, u64 id: no more batches use this common input
 *     TASKS    u32 1, u32 count, u64 batch, u64 common input (0: none) and reference of the
 *              function (together a string padded to 8); count x (u32 length, u32 0, bytes padded
 *              to 8)
 *     ALONE    u32 3, the rest as TASKS: no batch follows before the results of this one, so the
 *              results may acknowledge the message
 *     RESULTS  u32 2, u32 count, u64 batch, u32 position of the first, u32 0, u64 busy ns;
 *              count x (i32 code, u32 length, bytes padded to 8: the result, or an error's text)
 *     LAST     u32 4, u32 0: the process exits, and waits until the pool has all its results
 *
 * On the control channel, FBR_FRAME_POOL + n: RECALL, CANCEL, STOP and TAKEN to the worker,
 * RETURNED to the pool.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "runtime/proc/context.h"

enum fbr_pool_record {
    FBR_TASKS = 1,
    FBR_RESULTS = 2,
    FBR_TASKS_ALONE = 3,
    FBR_LAST = 4,
    FBR_COMMON = 5,
    FBR_FORGET = 6
};

enum fbr_pool_frame {
    FBR_POOL_RECALL = FBR_FRAME_POOL, /* u64 batch */
    FBR_POOL_CANCEL,                  /* u64 batch, u32 position or FBR_DISPATCH_ALL */
    FBR_POOL_STOP,                    /* finish the tasks that you hold, and exit */
    FBR_POOL_RETURNED,                /* u64 batch, u32 tasks kept */
    FBR_POOL_TAKEN,                   /* all results before LAST are taken: exit */
};

#define FBR_RESULTS_HEAD 32

/* The start record of a worker: u32 magic, u8 has an initializer, [reference of the initializer],
 * u64 length, argument of the initializer. */
#define FBR_WORKER_MAGIC 0x4b525746u /* "FWRK" */
/* "FHST": this process only hosts workers (supervisor.c). After the magic comes the start record of
 * its workers. A worker of a host starts with the worker magic alone, and gets this same record
 * from its host as the first record of its data link. */
#define FBR_HOST_MAGIC 0x54534846u
#define FBR_HOST_HEAD 4 /* bytes of the magic */

/* The function of a worker's process. */
int fbr_pool_worker_main(const void *arg, size_t len);
