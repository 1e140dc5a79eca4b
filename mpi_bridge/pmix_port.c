/* pmix_port.c - keeps other users of this host away from the port of libpmix's server.
 *
 * libpmix listens on a port of 127.0.0.1, which any user can call, and accepts each caller. Then
 * the one thread that serves all ranks reads the caller's first message, for as long as that takes.
 * So the calls of listen() and accept() in libpmix come here: libpmix gets no connection of another
 * user, and none whose first message is not whole soon.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdint.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include "mpi_bridge/pmix_bridge.h"
#include "runtime/base/log.h"
#include "runtime/net/tcp.h"
#include "runtime/program/import.h"

#define SILENT_S 60        /* then the kernel passes a silent connection on anyway */
#define REST_US 20000L     /* time for the rest of what a rank sends in one piece */
#define SHORTAGE_US 10000L /* between tries while descriptors or memory are short */
#define FIRST_MAX 16384    /* bytes of a first message; one of libpmix has less than a thousand */

/* The kernel keeps a connection until there is something to read, which costs a rank nothing,
 * because a rank sends at once. */
static int listen_for_ranks(int fd, int backlog)
{
    int silent = SILENT_S;

    setsockopt(fd, IPPROTO_TCP, TCP_DEFER_ACCEPT, &silent, sizeof(silent));
    return listen(fd, backlog);
}

/* The head of a message, pmix_ptl_hdr_t, has been the same since PMIx 2: i32 index, u32 tag, and
 * the number of bytes that follow, all in the byte order of the machine. */
static bool sends_whole_message(int fd)
{
    struct timeval rest = {.tv_usec = REST_US}, ever = {0};
    union {
        struct {
            int32_t index;
            uint32_t tag;
            size_t len;
        } head;
        char bytes[FIRST_MAX];
    } first;
    size_t len = sizeof(first.head);
    bool whole;

    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &rest, sizeof(rest));
    whole = recv(fd, &first, len, MSG_PEEK | MSG_WAITALL) == (ssize_t)len &&
            first.head.len <= sizeof(first) - len;
    len += whole ? first.head.len : 0;
    whole = whole && recv(fd, &first, len, MSG_PEEK | MSG_WAITALL) == (ssize_t)len;
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &ever, sizeof(ever));
    return whole;
}

/* After EAGAIN libpmix waits for the next caller. After other errors it listens no more, and ranks
 * that call later would wait forever. */
static int accept_rank(int listener, struct sockaddr *address, socklen_t *len)
{
    static struct fbr_refusals refusals; /* one thread of libpmix accepts */
    int fd = accept4(listener, address, len, SOCK_CLOEXEC);

    if (fd >= 0 && (fbr_loopback_check(fd, &refusals) < 0 || !sends_whole_message(fd))) {
        close(fd);
        fd = -1;
        errno = EAGAIN;
    } else if (fd < 0 &&
               (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM)) {
        usleep(SHORTAGE_US); /* the caller is still there: libpmix tries again at once */
        errno = EAGAIN;
    }
    return fd;
}

void fbr_pmix_guard_port(void)
{
    static const struct {
        const char *name;
        void *function;
    } calls[] = {{"listen", (void *)listen_for_ranks}, {"accept", (void *)accept_rank}};

    for (size_t i = 0; i < sizeof(calls) / sizeof(calls[0]); i++) {
        int rc = fbr_import_replace((void *)PMIx_server_init, calls[i].name, calls[i].function);

        if (rc < 0)
            fbr_warn("any user of this host can disturb the start of Open MPI's ranks: %s() of "
                     "libpmix cannot be replaced: %s",
                     calls[i].name, fbr_strerror(rc));
    }
}
