/* pmix_port.c - keeps callers that say nothing from holding up libpmix's server.
 *
 * libpmix listens on a port of 127.0.0.1, which any user of this host can call, and reads the first
 * words of a new connection in the one thread that serves all ranks, for as long as they take. So
 * the kernel keeps a connection to itself until there is something to read, which costs a rank
 * nothing, since it speaks at once; and a read that does not get all that it wants ends soon.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <dirent.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/time.h>

#include "mpi_bridge/pmix_bridge.h"

#define SILENT_S 60     /* then the kernel hands it over all the same */
#define READ_US 200000L /* for the rest of what a rank sends in one piece */

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

void fbr_pmix_ports_guard(const struct fbr_pmix_ports *before)
{
    struct timeval t = {.tv_usec = READ_US}; /* connections inherit it from their listener */
    struct fbr_pmix_ports now;
    int silent = SILENT_S;

    fbr_pmix_ports_look(&now);
    for (int i = 0; i < now.n; i++) {
        if (has(before, now.fds[i]))
            continue;
        setsockopt(now.fds[i], IPPROTO_TCP, TCP_DEFER_ACCEPT, &silent, sizeof(silent));
        setsockopt(now.fds[i], SOL_SOCKET, SO_RCVTIMEO, &t, sizeof(t));
    }
}
