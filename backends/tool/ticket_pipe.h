/* ticket_pipe.h - delivers bytes to one reader through a pipe: the hidden way of a ticket into a
 * command's standard input.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "runtime/base/error.h"
#include "runtime/net/loop.h"

/* Returns a descriptor from which the bytes, and then the end, can be read; or a negative errno.
 * The caller closes the descriptor. is_ticket: the length (u32) comes before the bytes, which is
 * the format of a ticket in standard input (ticket.h). The internal copy is wiped and freed when
 * all is written, or when no reader is left. Loop thread. */
int fbr_ticket_pipe_send(struct fbr_loop *loop, const void *data, size_t len, bool is_ticket,
                         struct fbr_error *err);
