/* service_process.h - a process that runs one service (rpc.h) for others: its start, address and
 * end.
 *
 *     parent                                           child
 *     fbr_service_process_start    -- START: fn(arg) -->        fn opens its service
 *                         <-- READY: its address --    fbr_service_process_announce
 *     fbr_service_process_end      -- CLOSE -->                 ops->on_close; fn ends the process
 *
 * SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "share/rpc.h"

#define FBR_FRAME_CLOSE (FBR_FRAME_PEER + 1) /* parent to child: end in good order */

struct fbr_service_process;

/* Returns once the child has announced its address, or with the reason why it did not. 0, or
 * kept. */
int fbr_service_process_start(struct fbr_service_process **k, fiber_process_fn fn, const void *arg,
                              size_t len, const char *prefix,
                              const struct fiber_process_options *options,
                              struct fiber_address *address);
/* How the process ended, if it has ended or ends within a moment; else "". Valid until
 * fbr_service_process_end(). */
const char *fbr_service_process_report(struct fbr_service_process *k);
int fbr_service_process_grace(struct fbr_service_process *k); /* milliseconds, as configured */
/* Asks the process to end, kills it after the configured grace, and waits for its end. NULL is
 * fine. */
void fbr_service_process_end(struct fbr_service_process *k);

/* In the child: sends the address to the parent. 0, or kept. */
int fbr_service_process_announce(struct fbr_rpc_service *s, enum fbr_kind kind);
/* Ends the child; does not return. */
void fbr_service_process_exit(int code, const char *why) __attribute__((noreturn));
