/* ticket_pipe.h - bytes for one reader, by a pipe: how a ticket gets into a command's standard
 * input, seen by nobody.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef FBR_TICKET_PIPE_H
#define FBR_TICKET_PIPE_H

#include <stddef.h>

#include "runtime/base/error.h"
#include "runtime/net/loop.h"

/* A descriptor from which the bytes can be read, then the end; or a negative errno. The caller
 * closes it. The copy that is kept until then is wiped, and goes when all is written or nobody
 * can read it any more. Loop thread. */
int fbr_ticket_pipe_send(struct fbr_loop *loop, const void *data, size_t len,
                         struct fbr_error *err);
/* The same with the length before it (u32), as a ticket stands in standard input (ticket.h). */
int fbr_ticket_pipe_ticket(struct fbr_loop *loop, const void *ticket, size_t len,
                           struct fbr_error *err);

#endif
