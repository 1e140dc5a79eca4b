/* guard.h - stands in front of a library's TCP listener on the loopback: no other user reaches it.
 *
 * libpmix listens on a port of 127.0.0.1, accepts everybody and reads the first words of each
 * caller in the one thread that serves all ranks, for as long as they take. A guard takes the
 * library's socket over: the library finds a unix socket under the same descriptor, in a folder
 * that only our user can enter, and a thread of ours serves the port. It asks the kernel who calls,
 * hangs up on other users at once, and passes bytes on between a rank and the library from when the
 * rank's first message is whole. So neither a stranger nor half a message costs the library's
 * thread anything.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef FBR_GUARD_H
#define FBR_GUARD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "runtime/base/error.h"

struct fbr_guard;

/* Whether these first bytes of a caller are a whole message, which the library can read without
 * waiting. The guard's thread. */
typedef bool fbr_guard_whole_fn(const uint8_t *bytes, size_t len);

/* `listener` is the library's, listens for TCP and does not block; `path` is of the unix socket,
 * and is removed again. Only `uid` and our own user may call. On failure the listener is as it
 * was. */
int fbr_guard_open(struct fbr_guard **g, int listener, const char *path, uid_t uid,
                   fbr_guard_whole_fn *whole, struct fbr_error *err);
/* Connections of other users that were refused; any thread. */
uint64_t fbr_guard_refused(const struct fbr_guard *g);
/* Ends all connections; the library may have closed its descriptor before. NULL is fine. */
void fbr_guard_close(struct fbr_guard *g);

#endif
