/* guard.h - keeps other users away from a library's TCP listener on the loopback.
 *
 * libpmix listens on a port of 127.0.0.1 and accepts every user. It reads the first bytes of each
 * caller in the one thread that serves all ranks, for as long as they take. A guard takes over the
 * library's socket: the library gets a unix socket under the same descriptor, in a folder that only
 * our user can enter, and the guard serves the port, on the loop thread. Other users are hung up on
 * at once (loopback.h). The guard passes bytes between a rank and the library after the rank's
 * first message is whole. So neither a stranger nor half a message costs the library's thread
 * anything.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "runtime/base/error.h"
#include "runtime/net/loop.h"

struct fbr_guard;

/* Returns true if these first bytes of a caller are a whole message, which the library can read
 * without waiting. */
typedef bool fbr_guard_whole_fn(const uint8_t *bytes, size_t len);

/* `listener` belongs to the library, listens for TCP and does not block. `path` is the unix
 * socket, which fbr_guard_close() removes. Only our own user may connect. On failure the listener
 * is unchanged. */
int fbr_guard_open(struct fbr_guard **g, struct fbr_loop *loop, int listener, const char *path,
                   fbr_guard_whole_fn *whole, struct fbr_error *err);
/* Ends all connections. The library may have closed its descriptor before. NULL is fine. */
void fbr_guard_close(struct fbr_guard *g);
