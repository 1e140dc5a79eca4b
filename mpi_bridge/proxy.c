/* proxy.c - carries connections of local ranks to a service of the launcher.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "mpi_bridge/proxy.h"

#include <errno.h>
#include <stdlib.h>

#include <utlist.h>

#include "mpi_bridge/loopback.h"
#include "runtime/base/log.h"

struct client {
    struct fbr_lo_proxy *proxy;
    struct fbr_lo_link *link;
    uint64_t stream;
    /* the service has hung up: there is no stream, and queued bytes are still written */
    bool hung_up;
    struct client *prev, *next;
};

struct fbr_lo_proxy {
    const struct fbr_bridge_host *host;
    uint32_t job;
    const char *service;
    struct fbr_lo_listener *listener;
    struct client *clients;
    struct fbr_lo_proxy *prev, *next;
};

static void client_free(struct client *c)
{
    const struct fbr_bridge_host *host = c->proxy->host;

    if (!c->hung_up)
        host->stream_close(host->user, c->stream);
    fbr_lo_link_close(c->link);
    DL_DELETE(c->proxy->clients, c);
    free(c);
}

static void on_bytes(void *user, const void *data, size_t len)
{
    struct client *c = user;
    const struct fbr_bridge_host *host = c->proxy->host;

    if (!c->hung_up && host->stream_send(host->user, c->stream, data, len) < 0)
        client_free(c);
}

static void on_gone(void *user)
{
    client_free(user);
}

static const struct fbr_lo_link_ops link_ops = {on_bytes, on_gone};

static void on_data(void *arg, const void *data, size_t len)
{
    struct client *c = arg;

    if (len) {
        fbr_lo_link_send(c->link, data, len);
    } else {
        c->hung_up = true;
        fbr_lo_link_finish(c->link);
    }
}

static void on_link(void *user, struct fbr_lo_link *link)
{
    struct fbr_lo_proxy *p = user;
    struct client *c = calloc(1, sizeof(*c));
    int rc = -ENOMEM;

    if (c)
        rc = p->host->stream_open(p->host->user, p->job, p->service, on_data, c, &c->stream);
    if (rc < 0) {
        fbr_warn("%s: cannot forward a connection of a rank to the launcher: %s", p->service,
                 fbr_strerror(rc));
        free(c);
        fbr_lo_link_close(link);
        return;
    }
    c->proxy = p;
    c->link = link;
    DL_APPEND(p->clients, c);
    fbr_lo_link_start(link, &link_ops, c);
}

static struct fbr_lo_proxy *proxy_find(struct fbr_bridge *b, uint32_t job)
{
    struct fbr_lo_proxy *p;

    DL_FOREACH(b->proxies, p)
        if (p->job == job)
            break;
    return p;
}

static void proxy_close(struct fbr_bridge *b, struct fbr_lo_proxy *p)
{
    DL_DELETE(b->proxies, p);
    fbr_lo_listener_close(p->listener);
    while (p->clients)
        client_free(p->clients);
    free(p);
}

int fbr_lo_proxy_port(struct fbr_bridge *b, const struct fbr_bridge_job *job, const char *service,
                      uint16_t *port, struct fbr_error *err)
{
    struct fbr_lo_proxy *p = proxy_find(b, job->id);

    if (!p) {
        p = calloc(1, sizeof(*p));
        if (!p)
            return fbr_fail(err, -ENOMEM, "%s: out of memory", service);
        *p = (struct fbr_lo_proxy){.host = b->host, .job = job->id, .service = service};
        if (fbr_lo_listener_open(&p->listener, b->host->loop, on_link, p, err) < 0) {
            free(p);
            return fbr_wrap(err, "%s", service);
        }
        DL_APPEND(b->proxies, p);
    }
    *port = fbr_lo_listener_port(p->listener);
    return 0;
}

/* ---- the common part of the tables ---- */

int fbr_lo_proxy_bridge_open(struct fbr_bridge **out, const struct fbr_bridge_host *host,
                             struct fbr_error *err)
{
    struct fbr_bridge *b = calloc(1, sizeof(*b));

    if (!b)
        return fbr_fail(err, -ENOMEM, "out of memory");
    b->host = host;
    *out = b;
    return 0;
}

void fbr_lo_proxy_bridge_job_end(struct fbr_bridge *b, const struct fbr_bridge_job *job)
{
    struct fbr_lo_proxy *p = proxy_find(b, job->id);

    if (p)
        proxy_close(b, p);
}

void fbr_lo_proxy_bridge_close(struct fbr_bridge *b)
{
    while (b->proxies)
        proxy_close(b, b->proxies);
    free(b);
}
