/* visitor.h - serves a caller of a process (visit.h) in a thread, by messages (message.h).
 *
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef FBR_VISITOR_H
#define FBR_VISITOR_H

/* Serves at this socket, then closes it: the body of the thread of fbr_visitor_start() (child.h).
 * For tests. */
void fbr_visitor_serve(int sock);

#endif
