/* exec.h - a command that runs next to a process of a run, for `fiber exec`.
 *
 * The target process starts the command as a child, in its own working directory and with its own
 * environment, and passes on (message.h) the command's output, standard input and end:
 *
 *     EXEC    u8 1: DATA comes for standard input, i32 rank or -1, u16 n, n str: the command
 *     DATA    from the client: standard input; none: its end; at most FBR_EXEC_WINDOW bytes that
 *             are not TAKEN. To the client: standard output
 *     DONE    the exit code; 128 + N: killed by signal N; 126 and a sentence: the command cannot be
 *             started; 127: it does not exist
 *
 * FIBER_PID in the command's environment is the pid of the rank, or of the worker. When the client
 * hangs up, the command's process group gets SIGTERM, and SIGKILL at most FBR_EXEC_GRACE_MS later.
 * Processes that the command leaves in the background stay until the job ends.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "runtime/inspect/message.h"

#define FBR_EXEC_WINDOW 65536u
#define FBR_EXEC_GRACE_MS 2000
#define FBR_EXEC_CANNOT 126 /* exit codes, as shells have them */
#define FBR_EXEC_NONE 127

struct fbr_exec_request {
    bool input;
    int32_t rank;
    char **argv; /* NULL-terminated */
};

/* argv has at least one word. A command of more than FBR_MSG_MAX bytes cannot be sent. */
void fbr_exec_put(struct fbr_buf *b, bool input, int32_t rank, char *const *argv);
/* Returns 0, -EBADMSG or -ENOMEM. In each case, free r->argv with fbr_list_free(). */
int fbr_exec_get(struct fbr_cur *c, struct fbr_exec_request *r);

/* Runs the command to its end. Returns its exit code, with a sentence if it was not started; or
 * -errno and a sentence. -ECONNRESET: the client is gone. For a thread of its own, which has
 * signals blocked. */
int fbr_exec_serve(int sock, const struct fbr_exec_request *r, struct fbr_error *err);

/* exec_server.c: serves any client of a process (message.h) at this socket, then closes the socket:
 * the body of the thread of fbr_exec_server_start() (child.h). For tests. */
void fbr_exec_server_serve(int sock);
