/* tcp.h - TCP sockets: addresses in URLs, limits for unreachable peers, and the user at the other
 * end of a local connection; and the sockets of servers, unix sockets too.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/types.h>

/* Reads the address in "tcp://address:port" or "tcp://[address]:port". -EINVAL: there is none. */
int fbr_tcp_address(const char *url, struct sockaddr_storage *address, socklen_t *len);
void fbr_tcp_url(const struct sockaddr_storage *address, char *url, size_t size);
/* Stores the address of the host, without the port; zeros for another family. */
void fbr_tcp_host(const struct sockaddr_storage *address, uint8_t host[16]);

/* The path in "unix:/path", which fits a socket; NULL: another url. */
const char *fbr_unix_path(const char *url);
/* Connects to a unix socket: a descriptor that does not block, or a negative errno. -EAGAIN: too
 * many callers wait there. */
int fbr_unix_connect(const char *path);
/* Returns the user at the other end of a unix socket, as the kernel reports it (SO_PEERCRED). -1,
 * which is nobody's: it is unknown. */
uid_t fbr_unix_peer(int fd);
/* Open a socket that listens and does not block: the descriptor, or a negative errno. The file of a
 * unix socket gets mode 0600; the caller removes it. */
int fbr_unix_listen(const char *path);
/* `actual`: the url with the actual port; may be `url`. */
int fbr_tcp_listen(const char *url, char *actual, size_t size);

/* Sets how long the other end of a connection, idle or not, may answer nothing before the kernel
 * ends the connection; at least two seconds. On an idle connection, the kernel's probes keep the
 * state of firewalls on the path. */
void fbr_tcp_patience(int fd, uint64_t ms);

/* Finds in the kernel's list which user owns the other end of fd, a TCP connection within this
 * host. -ENOENT: not found. -ENOTCONN: the other end is closed already, and its user is unknown, so
 * do not read its bytes. */
int fbr_loopback_owner(int fd, uid_t *uid);
/* The refusals of a loopback listener; zeros at first. */
struct fbr_refusals {
    uint64_t said_ms; /* when one was last reported; `unsaid` came after it */
    unsigned unsaid;
};
/* Checks the user at the other end of fd, an accepted connection within this host. 0: our own.
 * -EPERM: another user, which it reports unless r is NULL; or an error of fbr_loopback_owner(),
 * after which the call must be refused, too. */
int fbr_loopback_check(int fd, struct fbr_refusals *r);
/* The same, without a report, for a caller that may be on another host: 0 then, too. */
int fbr_tcp_check_owner(int fd, const struct sockaddr_storage *from);
