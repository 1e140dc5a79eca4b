/* spool.h - keeps what the ranks of a run print, the last of each, for `fiber logs`: a thread that
 * writes what it is given to the run's directory (spool_dir.h).
 *
 * It holds nobody up: what a disk is too slow for is left out, and a mark says how much. When it
 * cannot write, it keeps no more.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef FBR_SPOOL_H
#define FBR_SPOOL_H

#include "runtime/inspect/spool_dir.h"
#include "runtime/inspect/spool_record.h"

struct fbr_spool;

/* Settings log_dir, log_keep, log_total. *spool is NULL when nothing is to be kept. */
int fbr_spool_open(struct fbr_spool **spool, const struct fbr_config *config,
                   const struct fbr_run_control_about *about, uint32_t ranks,
                   struct fbr_error *err);
/* One thread. 0, or why nothing more is kept, once. The time is now. NULL is fine. */
int fbr_spool_add(struct fbr_spool *s, uint32_t job, uint32_t rank, enum fbr_record_kind kind,
                  const void *data, size_t len);
/* The run has ended: nothing is added any more. Returns at once. */
void fbr_spool_end(struct fbr_spool *s, const struct fbr_run_facts *facts, int code,
                   const char *report);
/* Waits until all is written, or until nothing moves for a second: then false. */
bool fbr_spool_drain(struct fbr_spool *s);
/* The same, and frees it. */
void fbr_spool_close(struct fbr_spool *s);

#endif
