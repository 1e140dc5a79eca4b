/* host_address.c - finds the address at which other hosts can reach this host.
 *
 * The kernel reports the route when a datagram socket connects, which sends nothing.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "runtime/net/host_address.h"

#include <arpa/inet.h>
#include <errno.h>
#include <ifaddrs.h>
#include <netdb.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "runtime/base/sync.h"

#define SOME_PORT 9 /* the discard port; nothing is sent to it */

static bool to_text(const struct sockaddr *a, char out[FBR_HOST_ADDRESS_MAX])
{
    const void *bytes = NULL;

    if (a && a->sa_family == AF_INET)
        bytes = &((const struct sockaddr_in *)(const void *)a)->sin_addr;
    else if (a && a->sa_family == AF_INET6)
        bytes = &((const struct sockaddr_in6 *)(const void *)a)->sin6_addr;
    return bytes && inet_ntop(a->sa_family, bytes, out, FBR_HOST_ADDRESS_MAX);
}

int fbr_host_address_find(const char *bind, char out[FBR_HOST_ADDRESS_MAX])
{
    char text[FBR_HOST_ADDRESS_MAX];
    struct ifaddrs *all;
    int best = 0;

    if (getifaddrs(&all) < 0)
        return -errno;
    for (const struct ifaddrs *i = all; i; i = i->ifa_next) {
        int fits = 0;

        if (!to_text(i->ifa_addr, text))
            continue;
        if (strcmp(text, bind) == 0)
            fits = 3;
        else if (strcmp(i->ifa_name, bind) == 0)
            fits = i->ifa_addr->sa_family == AF_INET ? 2 : 1;
        if (fits > best) {
            best = fits;
            memcpy(out, text, sizeof(text));
        }
    }
    freeifaddrs(all);
    return best ? 0 : -EADDRNOTAVAIL;
}

/* Whether the peer is this host: the route to an address of ours starts from that address, and the
 * route to the loopback starts on the loopback. */
static bool is_here(const struct sockaddr *peer, const char *mine)
{
    char text[FBR_HOST_ADDRESS_MAX];

    return strncmp(mine, "127.", 4) == 0 || strcmp(mine, "::1") == 0 ||
           (to_text(peer, text) && strcmp(text, mine) == 0);
}

static int ask_route(const struct sockaddr *peer, socklen_t len, char out[FBR_HOST_ADDRESS_MAX],
                     bool *here)
{
    struct sockaddr_storage mine;
    socklen_t size = sizeof(mine);
    int fd = socket(peer->sa_family, SOCK_DGRAM | SOCK_CLOEXEC, 0), rc = 0;

    if (fd < 0)
        return -errno;
    if (connect(fd, peer, len) < 0 || getsockname(fd, (struct sockaddr *)&mine, &size) < 0)
        rc = -errno;
    else if (!to_text((struct sockaddr *)&mine, out))
        rc = -EAFNOSUPPORT;
    else if (here)
        *here = is_here(peer, out);
    close(fd);
    return rc;
}

/* A look-up may take as long as the resolver likes, so it runs in its own thread. The thread and
 * its caller share this struct; the last user frees it. */
struct look_up {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool done, left;
    int rc;
    struct addrinfo *found;
    char name[256];
};

static void free_look_up(struct look_up *l)
{
    if (l->found)
        freeaddrinfo(l->found);
    pthread_mutex_destroy(&l->lock);
    pthread_cond_destroy(&l->changed);
    free(l);
}

static void *look_up(void *arg)
{
    const struct addrinfo hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_DGRAM};
    struct look_up *l = arg;
    struct addrinfo *found = NULL;
    int rc = getaddrinfo(l->name, NULL, &hints, &found);
    bool left;

    pthread_mutex_lock(&l->lock);
    l->rc = rc;
    l->found = found;
    l->done = true;
    left = l->left;
    pthread_cond_signal(&l->changed);
    pthread_mutex_unlock(&l->lock);
    if (left)
        free_look_up(l);
    return NULL;
}

/* Prefers an IPv4 address that has a route, as the control channel does. */
static int ask_routes(const struct addrinfo *found, char out[FBR_HOST_ADDRESS_MAX], bool *here)
{
    int rc = -ENETUNREACH;

    for (int four = 1; four >= 0; four--)
        for (const struct addrinfo *a = found; a && rc < 0; a = a->ai_next)
            if ((a->ai_family == AF_INET) == four)
                rc = ask_route(a->ai_addr, a->ai_addrlen, out, here);
    return rc;
}

static int toward_name(const char *name, unsigned ms, char out[FBR_HOST_ADDRESS_MAX], bool *here)
{
    struct look_up *l = calloc(1, sizeof(*l));
    uint64_t deadline = fbr_deadline((int)ms);
    int rc;
    bool done;

    if (!l)
        return -ENOMEM;
    strncpy(l->name, name, sizeof(l->name) - 1);
    pthread_mutex_init(&l->lock, NULL);
    fbr_cond_init(&l->changed);
    rc = fbr_thread_start(NULL, look_up, l);
    if (rc < 0) {
        free_look_up(l);
        return rc;
    }
    pthread_mutex_lock(&l->lock);
    while (!l->done && rc == 0)
        rc = fbr_cond_wait(&l->changed, &l->lock, deadline);
    done = l->done;
    l->left = true;
    pthread_mutex_unlock(&l->lock);
    if (!done)
        return -ETIMEDOUT;
    rc = l->rc ? -ENOENT : ask_routes(l->found, out, here);
    free_look_up(l);
    return rc;
}

int fbr_host_address_toward(const char *peer, unsigned ms, char out[FBR_HOST_ADDRESS_MAX],
                            bool *here)
{
    struct sockaddr_in a4 = {.sin_family = AF_INET, .sin_port = htons(SOME_PORT)};
    struct sockaddr_in6 a6 = {.sin6_family = AF_INET6, .sin6_port = htons(SOME_PORT)};
    const char *at = strrchr(peer, '@');

    peer = at ? at + 1 : peer;
    if (inet_pton(AF_INET, peer, &a4.sin_addr) == 1)
        return ask_route((struct sockaddr *)&a4, sizeof(a4), out, here);
    if (inet_pton(AF_INET6, peer, &a6.sin6_addr) == 1)
        return ask_route((struct sockaddr *)&a6, sizeof(a6), out, here);
    return toward_name(peer, ms, out, here);
}

int fbr_host_address_fail(struct fbr_error *err, int rc, const char *peers)
{
    return fbr_fail(err, rc,
                    "cannot find the address at which %s can reach this host (%s): set bind to an "
                    "address or an interface",
                    peers, rc == -ENOENT ? "its name is not known here" : fbr_strerror(rc));
}

bool fbr_host_address_of_url(const char *url, char out[FBR_HOST_ADDRESS_MAX])
{
    bool bracket = strncmp(url, "tcp://[", 7) == 0;

    if (strncmp(url, "tcp://", 6) != 0)
        return false;
    url += bracket ? 7 : 6;
    snprintf(out, FBR_HOST_ADDRESS_MAX, "%.*s", (int)strcspn(url, bracket ? "]" : ":"), url);
    return true;
}
