/* visitor.h - what visitors of a process get (visit.h): a thread that does as they ask, copy.h has what.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef FBR_VISITOR_H
#define FBR_VISITOR_H

#include "runtime/base/error.h"

/* Starts a thread that serves at this socket and closes it; it takes the socket over on success. Any thread. */
int fbr_visitor_start(int sock, struct fbr_error *err);

/* What that thread does. For tests. */
void fbr_visitor_serve(int sock);

#endif
