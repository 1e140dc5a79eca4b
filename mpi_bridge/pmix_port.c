/* pmix_port.c - keeps other users of this host away from the ports of libpmix's server.
 *
 * libpmix listens on a port of 127.0.0.1, which any user can call, and reads the first bytes of a
 * new connection in the one thread that serves all ranks. guard.h keeps strangers away. A port that
 * cannot be guarded gives each caller a short time. A port of PMIx 5 and later cannot be guarded:
 * its event loop would go on watching the socket that it had at first.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <dirent.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>

#include "mpi_bridge/guard.h"
#include "mpi_bridge/pmix_bridge.h"
#include "runtime/base/log.h"

#define FIRST_WITH_EVENTS 5
#define SILENT_S 60    /* then the kernel passes the connection on anyway */
#define READ_US 20000L /* time for the rest of what a rank sends in one piece */

static bool listens(int fd)
{
    struct sockaddr_storage a;
    socklen_t len = sizeof(a), size = sizeof(int);
    int on = 0;

    return getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &on, &size) == 0 && on &&
           getsockname(fd, (struct sockaddr *)&a, &len) == 0 &&
           (a.ss_family == AF_INET || a.ss_family == AF_INET6);
}

void fbr_pmix_ports_look(struct fbr_pmix_ports *p)
{
    DIR *d = opendir("/proc/self/fd");
    struct dirent *e;

    p->n = 0;
    while (d && (e = readdir(d)) && p->n < FBR_PMIX_PORTS) {
        int fd = e->d_name[0] == '.' ? -1 : atoi(e->d_name);

        if (fd >= 0 && listens(fd))
            p->fds[p->n++] = fd;
    }
    if (d)
        closedir(d);
}

static bool has(const struct fbr_pmix_ports *p, int fd)
{
    for (int i = 0; i < p->n; i++)
        if (p->fds[i] == fd)
            return true;
    return false;
}

/* Used without a guard. The kernel keeps a connection until there is something to read, which
 * costs a rank nothing, because a rank sends at once. A read that does not get everything ends
 * soon. */
static void set_patience(int fd)
{
    struct timeval t = {.tv_usec = READ_US}; /* connections inherit it from their listener */
    int silent = SILENT_S;

    setsockopt(fd, IPPROTO_TCP, TCP_DEFER_ACCEPT, &silent, sizeof(silent));
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &t, sizeof(t));
}

/* The head of a message, pmix_ptl_hdr_t, has been the same since PMIx 2: i32 index, u32 tag, and
 * the number of bytes that follow, all in the byte order of the machine. */
static bool is_whole(const uint8_t *bytes, size_t len)
{
    struct {
        int32_t index;
        uint32_t tag;
        size_t len;
    } head;

    if (len < sizeof(head))
        return false;
    memcpy(&head, bytes, sizeof(head));
    return len - sizeof(head) >= head.len;
}

void fbr_pmix_ports_guard(struct fbr_bridge *b, const struct fbr_pmix_ports *before)
{
    struct fbr_pmix_ports now;

    fbr_pmix_ports_look(&now);
    for (int i = 0; i < now.n; i++) {
        struct fbr_error err = {0, ""};
        struct fbr_guard *g;
        char path[4096];

        if (has(before, now.fds[i]))
            continue;
        snprintf(path, sizeof(path), "%s/pmix.%d", b->host->dir, b->n_guards);
        if (strtol(b->version, NULL, 10) < FIRST_WITH_EVENTS && b->n_guards < FBR_PMIX_GUARDS &&
            fbr_guard_open(&g, b->host->loop, now.fds[i], path, is_whole, &err) == 0) {
            b->guards[b->n_guards++] = g;
            continue;
        }
        fbr_debug("cannot protect a port of PMIx: %s", err.text);
        set_patience(now.fds[i]);
    }
}

void fbr_pmix_ports_release(struct fbr_bridge *b)
{
    while (b->n_guards)
        fbr_guard_close(b->guards[--b->n_guards]);
}
