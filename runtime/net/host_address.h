/* host_address.h - finds the address at which other hosts can reach this host.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <netinet/in.h>
#include <stdbool.h>

#include "runtime/base/error.h"

#define FBR_HOST_ADDRESS_MAX INET6_ADDRSTRLEN

/* Stores the address for `bind`: an address of this host is copied, the name of an interface is
 * replaced by its address. -EADDRNOTAVAIL: this host has no such address. */
int fbr_host_address_find(const char *bind, char out[FBR_HOST_ADDRESS_MAX]);
/* Stores our address on the route to `peer`, which is an address or a name, optionally with a user
 * in front ("user@host"). Sends nothing to the peer; a name is looked up, for at most `ms`
 * milliseconds. If `here` is not NULL, stores whether the peer is this host itself: the peer has an
 * address of ours, or the loopback. -ENETUNREACH; -ENOENT: no such name; -ETIMEDOUT; other errors
 * of the socket calls. */
int fbr_host_address_toward(const char *peer, unsigned ms, char out[FBR_HOST_ADDRESS_MAX],
                            bool *here);
/* Says that no such address was found, with the error of one of the calls above. `peers` reach this
 * host: "the hosts", "the node n1". Returns rc. */
int fbr_host_address_fail(struct fbr_error *err, int rc, const char *peers);

/* Stores the host of a TCP URL. False: it is another kind of URL. */
bool fbr_host_address_of_url(const char *url, char out[FBR_HOST_ADDRESS_MAX]);
