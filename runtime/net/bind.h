/* bind.h - which address of ours others can call.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef FBR_BIND_H
#define FBR_BIND_H

#include <netinet/in.h>
#include <stdbool.h>

#include "runtime/base/error.h"

#define FBR_BIND_MAX INET6_ADDRSTRLEN

/* An address of this host stays, the name of an interface becomes its address. -EADDRNOTAVAIL. */
int fbr_bind_find(const char *bind, char out[FBR_BIND_MAX]);
/* Our address on the way to `peer`, which is an address or a name, perhaps with a user before it
 * ("user@host"). Sends nothing to the peer; a name is looked up, for `ms` milliseconds at most.
 * `here`, if it is not NULL: whether the peer is this host itself, as an address of ours, or the loopback, tells.
 * -ENETUNREACH, -ENOENT: no such name, -ETIMEDOUT... */
int fbr_bind_toward(const char *peer, unsigned ms, char out[FBR_BIND_MAX], bool *here);

#endif
