/* spool.h - keeps the last output of each rank of a run, for `fiber logs`.
 *
 * A thread writes the output to the run's directory (spool_dir.h). It delays no caller: output for
 * which the disk is too slow is left out, and a mark gives the number of bytes. After a failed
 * write it keeps no more.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "runtime/inspect/spool_dir.h"
#include "runtime/inspect/spool_record.h"

struct fbr_spool;

/* Opens a spool by the settings log_dir, log_keep and log_total. *spool is NULL if log_keep is
 * 0. */
int fbr_spool_open(struct fbr_spool **spool, const struct fbr_config *config,
                   const struct fbr_run_control_about *about, uint32_t ranks,
                   struct fbr_error *err);
/* Adds output of a rank, with the current time. Returns 0, or once the error (-ENOSPC, -EDQUOT,
 * -EIO) after which nothing more is kept. One thread. NULL is fine. */
int fbr_spool_add(struct fbr_spool *s, uint32_t job, uint32_t rank, enum fbr_record_kind kind,
                  const void *data, size_t len);
/* Notes the end of the run: nothing is added any more. Returns at once. */
void fbr_spool_end(struct fbr_spool *s, const struct fbr_run_facts *facts, int code,
                   const char *report);
/* Waits until everything is written. False: nothing was written for three seconds. */
bool fbr_spool_drain(struct fbr_spool *s);
/* The same, and frees the spool. A thread that hangs in a write frees it later. */
void fbr_spool_close(struct fbr_spool *s);
