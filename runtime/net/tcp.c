/* tcp.c - TCP sockets: addresses, limits for unreachable peers, and users of peers; and the sockets
 * of servers, unix sockets too.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "runtime/net/tcp.h"

#include <arpa/inet.h>
#include <errno.h>
#include <linux/inet_diag.h>
#include <linux/netlink.h>
#include <linux/sock_diag.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "runtime/base/clock.h"
#include "runtime/base/config_value.h"
#include "runtime/base/error.h"
#include "runtime/base/log.h"

#define BACKLOG 4096
#define PATIENCE_MIN_MS 2000 /* acknowledgements may be late by a tenth of this */
#define PATIENCE_MAX_MS (24u * 3600 * 1000)
#define PROBES 5 /* probes of an idle connection before it ends */
#define SAY_MS 1000

static struct sockaddr_in *v4(const struct sockaddr_storage *a)
{
    return (struct sockaddr_in *)(uintptr_t)a;
}

static struct sockaddr_in6 *v6(const struct sockaddr_storage *a)
{
    return (struct sockaddr_in6 *)(uintptr_t)a;
}

int fbr_tcp_address(const char *url, struct sockaddr_storage *a, socklen_t *len)
{
    const char *host = url + 6, *colon = strrchr(url, ':');
    char text[INET6_ADDRSTRLEN + 2];
    int64_t port;

    memset(a, 0, sizeof(*a));
    if (strncmp(url, "tcp://", 6) != 0 || colon < host || colon - host >= (int)sizeof(text) ||
        !fbr_number(colon + 1, 0, UINT16_MAX, &port))
        return -EINVAL;
    snprintf(text, sizeof(text), "%.*s", (int)(colon - host), host);
    if (inet_pton(AF_INET, text, &v4(a)->sin_addr) == 1) {
        *len = sizeof(struct sockaddr_in);
        v4(a)->sin_family = AF_INET;
        v4(a)->sin_port = htons((uint16_t)port);
        return 0;
    }
    if (text[0] != '[' || text[strlen(text) - 1] != ']')
        return -EINVAL;
    text[strlen(text) - 1] = '\0';
    *len = sizeof(struct sockaddr_in6);
    v6(a)->sin6_family = AF_INET6;
    v6(a)->sin6_port = htons((uint16_t)port);
    return inet_pton(AF_INET6, text + 1, &v6(a)->sin6_addr) == 1 ? 0 : -EINVAL;
}

void fbr_tcp_url(const struct sockaddr_storage *a, char *url, size_t size)
{
    bool six = a->ss_family == AF_INET6;
    char text[INET6_ADDRSTRLEN] = "";

    inet_ntop(a->ss_family, six ? (void *)&v6(a)->sin6_addr : (void *)&v4(a)->sin_addr, text,
              sizeof(text));
    snprintf(url, size, six ? "tcp://[%s]:%d" : "tcp://%s:%d", text,
             ntohs(six ? v6(a)->sin6_port : v4(a)->sin_port));
}

/* The directory of a unix socket has mode 0700 already; a umask would affect the whole process. */
static int listen_at(const struct sockaddr *a, socklen_t len, const char *path)
{
    int on = 1, fd = socket(a->sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0), rc;

    if (fd < 0)
        return -errno;
    if (setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)) == 0 && bind(fd, a, len) == 0 &&
        (!path || chmod(path, 0600) == 0) && listen(fd, BACKLOG) == 0)
        return fd;
    rc = -errno;
    close(fd);
    return rc;
}

const char *fbr_unix_path(const char *url)
{
    struct sockaddr_un a;

    return strncmp(url, "unix:/", 6) == 0 && strlen(url + 5) < sizeof(a.sun_path) ? url + 5 : NULL;
}

int fbr_unix_listen(const char *path)
{
    struct sockaddr_un a = {.sun_family = AF_UNIX};

    if (!*path || strlen(path) >= sizeof(a.sun_path))
        return *path ? -ENAMETOOLONG : -EINVAL;
    strcpy(a.sun_path, path);
    return listen_at((struct sockaddr *)&a, sizeof(a), path);
}

int fbr_unix_connect(const char *path)
{
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    int fd, rc;

    if (strlen(path) >= sizeof(a.sun_path))
        return -ENAMETOOLONG;
    strcpy(a.sun_path, path);
    fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0 || connect(fd, (struct sockaddr *)&a, sizeof(a)) == 0)
        return fd < 0 ? -errno : fd;
    rc = -errno;
    close(fd);
    return rc;
}

uid_t fbr_unix_peer(int fd)
{
    struct ucred who;
    socklen_t len = sizeof(who);

    return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &who, &len) == 0 ? who.uid : (uid_t)-1;
}

int fbr_tcp_listen(const char *url, char *actual, size_t size)
{
    struct sockaddr_storage a;
    socklen_t len;
    int fd = fbr_tcp_address(url, &a, &len);

    if (fd < 0 || (fd = listen_at((struct sockaddr *)&a, len, NULL)) < 0)
        return fd;
    getsockname(fd, (struct sockaddr *)&a, &len);
    fbr_tcp_url(&a, actual, size);
    return fd;
}

static bool is_loopback(const struct sockaddr_storage *a)
{
    if (a->ss_family == AF_INET)
        return ntohl(v4(a)->sin_addr.s_addr) >> 24 == 127;
    return a->ss_family == AF_INET6 && IN6_IS_ADDR_LOOPBACK(&v6(a)->sin6_addr);
}

void fbr_tcp_host(const struct sockaddr_storage *a, uint8_t host[16])
{
    memset(host, 0, 16);
    if (a->ss_family == AF_INET)
        memcpy(host, &v4(a)->sin_addr, sizeof(struct in_addr));
    else if (a->ss_family == AF_INET6)
        memcpy(host, &v6(a)->sin6_addr, sizeof(struct in6_addr));
}

/* TCP_USER_TIMEOUT ends a connection that has unacknowledged bytes, and one whose keepalive probes
 * get no answer. The number of probes matters only without it. */
void fbr_tcp_patience(int fd, uint64_t ms)
{
    int on = 1, timeout, every;

    ms = ms < PATIENCE_MIN_MS ? PATIENCE_MIN_MS : ms > PATIENCE_MAX_MS ? PATIENCE_MAX_MS : ms;
    timeout = (int)ms;
    every = (int)(ms / 1000 / PROBES);
    every = every < 1 ? 1 : every;
    setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof(on));
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &every, sizeof(every));
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &every, sizeof(every));
    setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &timeout, sizeof(timeout));
}

/* ---- The user at the other end ---- */

/* One end of a connection, in the form that the kernel uses. */
struct end {
    sa_family_t family;
    in_port_t port; /* in network byte order */
    uint32_t words[4];
};

static struct end end_of(const struct sockaddr_storage *a)
{
    struct end e = {.family = a->ss_family};

    if (e.family == AF_INET6) {
        e.port = v6(a)->sin6_port;
        memcpy(e.words, &v6(a)->sin6_addr, sizeof(e.words));
    } else {
        e.port = v4(a)->sin_port;
        e.words[0] = v4(a)->sin_addr.s_addr;
    }
    return e;
}

/* A closed socket has no inode any more, and in TIME_WAIT it has no user either: the kernel then
 * reports user 0, regardless of the real user. */
static int owner_is(uid_t *uid, uid_t found, unsigned long inode)
{
    if (!inode)
        return -ENOTCONN;
    *uid = found;
    return 0;
}

/* Asks the kernel for the socket from `from` to `to`: one look-up, regardless of the number of
 * connections. A client that uses an IPv6 socket, as torch does, is also found by its IPv4
 * address. */
static int ask_diag(const struct end *from, const struct end *to, uid_t *uid)
{
    struct {
        struct nlmsghdr head;
        struct inet_diag_req_v2 ask;
    } q = {
        .head = {.nlmsg_len = sizeof(q),
                 .nlmsg_type = SOCK_DIAG_BY_FAMILY,
                 .nlmsg_flags = NLM_F_REQUEST},
        .ask = {.sdiag_family = (uint8_t)from->family,
                .sdiag_protocol = IPPROTO_TCP,
                .idiag_states = UINT32_MAX,
                .id = {.idiag_sport = from->port,
                       .idiag_dport = to->port,
                       .idiag_cookie = {INET_DIAG_NOCOOKIE, INET_DIAG_NOCOOKIE}}},
    };
    union {
        struct nlmsghdr head;
        char room[4096];
    } a;
    int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_SOCK_DIAG), rc = -EPROTO;
    const struct inet_diag_msg *found = NLMSG_DATA(&a.head);
    ssize_t got;

    if (fd < 0)
        return -errno;
    memcpy(q.ask.id.idiag_src, from->words, sizeof(from->words));
    memcpy(q.ask.id.idiag_dst, to->words, sizeof(to->words));
    if (send(fd, &q, sizeof(q), 0) < 0) {
        rc = -errno;
        close(fd);
        return rc;
    }
    got = recv(fd, &a, sizeof(a), MSG_DONTWAIT); /* the answer has arrived when send() returns */
    if (got >= (ssize_t)NLMSG_LENGTH(sizeof(struct inet_diag_msg)) &&
        a.head.nlmsg_type == SOCK_DIAG_BY_FAMILY)
        rc = owner_is(uid, found->idiag_uid, found->idiag_inode);
    close(fd);
    return rc;
}

/* Formats an address as in /proc/net/tcp and tcp6: its 32 bit words in hex, then the port. */
static void print_end(char out[48], const struct end *e, bool six)
{
    const uint32_t *w = e->words;

    if (e->family == AF_INET6)
        snprintf(out, 48, "%08X%08X%08X%08X:%04X", w[0], w[1], w[2], w[3], ntohs(e->port));
    else
        snprintf(out, 48, "%s%08X:%04X", six ? "0000000000000000FFFF0000" : "", w[0],
                 ntohs(e->port));
}

/* Finds the owner without netlink: reads the list of all connections. */
static int ask_proc(const char *path, bool six, const struct end *from, const struct end *to,
                    uid_t *uid)
{
    char local[48], remote[48], line[512], a[64], b[64];
    FILE *f = fopen(path, "re");
    unsigned long inode;
    unsigned found;
    int rc = -ENOENT;

    if (!f)
        return -errno;
    print_end(local, from, six);
    print_end(remote, to, six);
    while (rc == -ENOENT && fgets(line, sizeof(line), f))
        if (sscanf(line, " %*[^:]: %63s %63s %*x %*s %*s %*s %u %*d %lu", a, b, &found, &inode) ==
                4 &&
            !strcmp(a, local) && !strcmp(b, remote))
            rc = owner_is(uid, found, inode);
    fclose(f);
    return rc;
}

int fbr_loopback_owner(int fd, uid_t *uid)
{
    struct sockaddr_storage here = {0}, there = {0};
    socklen_t here_len = sizeof(here), there_len = sizeof(there);
    struct end from, to;
    int rc;

    if (getsockname(fd, (struct sockaddr *)&here, &here_len) < 0 ||
        getpeername(fd, (struct sockaddr *)&there, &there_len) < 0)
        return -errno;
    if (here.ss_family != there.ss_family ||
        (here.ss_family != AF_INET && here.ss_family != AF_INET6))
        return -EAFNOSUPPORT;
    from = end_of(&there);
    to = end_of(&here);
    rc = ask_diag(&from, &to, uid);
    if (rc < 0 && rc != -ENOTCONN && here.ss_family == AF_INET)
        rc = ask_proc("/proc/self/net/tcp", false, &from, &to, uid);
    if (rc < 0 && rc != -ENOTCONN)
        rc = ask_proc("/proc/self/net/tcp6", true, &from, &to, uid);
    return rc;
}

/* Reports at most one line a second: any user of the host can be refused thousands of times a
 * second. */
static void report_refused(int fd, uid_t uid, struct fbr_refusals *r)
{
    struct sockaddr_storage here = {0};
    socklen_t len = sizeof(here);
    uint64_t now = fbr_now_ms();
    char url[64], more[48] = "";

    if (r->said_ms && now - r->said_ms < SAY_MS) {
        r->unsaid++;
        return;
    }
    if (r->unsaid)
        snprintf(more, sizeof(more), " (%u earlier refusals not shown)", r->unsaid);
    getsockname(fd, (struct sockaddr *)&here, &len);
    fbr_tcp_url(&here, url, sizeof(url));
    fbr_warn("refused a connection to %s from user %u: only user %u may use it%s",
             url + strlen("tcp://"), (unsigned)uid, (unsigned)geteuid(), more);
    *r = (struct fbr_refusals){.said_ms = now};
}

int fbr_loopback_check(int fd, struct fbr_refusals *r)
{
    uid_t uid = 0;
    int rc = fbr_loopback_owner(fd, &uid);

    if (rc < 0) {
        fbr_debug("refused a connection of this host: cannot find its owner: %s", fbr_strerror(rc));
    } else if (uid != geteuid()) {
        rc = -EPERM;
        if (r)
            report_refused(fd, uid, r);
    }
    return rc;
}

int fbr_tcp_check_owner(int fd, const struct sockaddr_storage *from)
{
    return is_loopback(from) ? fbr_loopback_check(fd, NULL) : 0;
}
