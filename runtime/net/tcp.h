/* tcp.h - TCP sockets: addresses in URLs, how long an unreachable peer is waited for, and which user
 * is at the other end of a connection within this host.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef FBR_TCP_H
#define FBR_TCP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/types.h>

/* The address in "tcp://address:port" or "tcp://[address]:port". -EINVAL: there is none. */
int fbr_tcp_address(const char *url, struct sockaddr_storage *address, socklen_t *len);
void fbr_tcp_url(const struct sockaddr_storage *address, char *url, size_t size);
bool fbr_tcp_is_loopback(const struct sockaddr_storage *address);

/* The kernel ends a connection, be it idle or not, whose other end has answered nothing for so long;
 * at least two seconds. While it is idle its packets keep the state of firewalls on the way. */
void fbr_tcp_patience(int fd, uint64_t ms);

/* Finds in the kernel's own list which user owns the other end of fd, a TCP connection within this
 * host. -ENOENT: not found. -ENOTCONN: the other end is closed already, and nothing tells whose it
 * was: what it sent must not be read. */
int fbr_loopback_owner(int fd, uid_t *uid);

#endif
