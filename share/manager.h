/* manager.h - the argument with which a manager's process starts, and the bytes of its calls.
 *
 *     argument of the process   u32 magic, u8 functions that follow (1: open, 2: close), reference
 *                               of call, then of open and close, u64 length, argument of open
 *     request                   u32 length of method with its NUL, u32 0, method, zeros to 8, input
 *     answer                    the output; for an error, its text
 *
 * SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stddef.h>

#define FBR_MANAGER_MAGIC 0x4d414e31u /* "MAN1" */
#define FBR_MANAGER_OPEN 1
#define FBR_MANAGER_CLOSE 2

/* A fiber_process_fn: serves the manager until its parent closes it, then ends the process. */
int fbr_manager_main(const void *arg, size_t len);
