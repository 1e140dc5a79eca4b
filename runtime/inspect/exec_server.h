/* exec_server.h - serves an exec client of a process (tunnel.h) in a thread, by messages
 * (message.h).
 *
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef FBR_EXEC_SERVER_H
#define FBR_EXEC_SERVER_H

/* Serves the client at this socket, then closes the socket: the body of the thread of
 * fbr_exec_server_start() (child.h). For tests. */
void fbr_exec_server_serve(int sock);

#endif
