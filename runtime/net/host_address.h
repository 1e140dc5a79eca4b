/* host_address.h - finds the address of this host that other hosts can call.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef FBR_HOST_ADDRESS_H
#define FBR_HOST_ADDRESS_H

#include <netinet/in.h>
#include <stdbool.h>

#include "runtime/base/error.h"

#define FBR_HOST_ADDRESS_MAX INET6_ADDRSTRLEN

/* Stores the address for `bind`: an address of this host stays, the name of an interface becomes
 * its address. -EADDRNOTAVAIL: this host has no such address. */
int fbr_host_address_find(const char *bind, char out[FBR_HOST_ADDRESS_MAX]);
/* Stores our address on the way to `peer`, which is an address or a name, perhaps with a user
 * before it ("user@host"). Sends nothing to the peer; a name is looked up, for `ms` milliseconds at
 * most. `here`, if it is not NULL, tells whether the peer is this host itself: the peer has an
 * address of ours, or the loopback. -ENETUNREACH; -ENOENT: no such name; -ETIMEDOUT... */
int fbr_host_address_toward(const char *peer, unsigned ms, char out[FBR_HOST_ADDRESS_MAX],
                            bool *here);

/* Stores the host of a URL that is called over TCP; false: another one. */
bool fbr_host_address_of_url(const char *url, char out[FBR_HOST_ADDRESS_MAX]);

#endif
