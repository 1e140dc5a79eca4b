/* visitor.h - what visitors of a process get (visit.h): a thread that does as they ask (message.h).
 *
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef FBR_VISITOR_H
#define FBR_VISITOR_H

/* What the thread of fbr_visitor_start() (child.h) does: serves at this socket, then closes it. For tests. */
void fbr_visitor_serve(int sock);

#endif
