/* http.c - HTTP requests by libcurl on the loop.
 *
 * libcurl reports which sockets it waits for and when it must be called; the loop reports socket
 * events to libcurl (its "multi socket" interface). libcurl must not be called from its own
 * callbacks. So a request that a `data` callback sends, cancels or unpauses is handled after
 * libcurl has returned: reap().
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <openssl/crypto.h>
#include <utlist.h>

#include "backends/http/http_priv.h"

#define PARALLEL 16
#define PAUSE_MS 100 /* before the first repetition; doubles each time */
#define PAUSE_MAX_MS 5000

/* A socket that libcurl waits for. */
struct sock {
    uv_poll_t poll;
    struct fbr_http *h;
    curl_socket_t fd;
};

static void reap(struct fbr_http *h);

/* ---- Repeating ---- */

static bool worth_repeating(const struct fbr_http_call *c, const struct fbr_http_answer *a)
{
    if ((c->r.data && c->headed && !a->status) || c->r.body_fd > 0 || c->too_long ||
        fbr_now_ms() >= c->until)
        return false;
    return a->status == 0 || a->status == 429 || (a->status >= 502 && a->status <= 504) ||
           (a->status == 500 && !c->h->o->final_500);
}

/* Between half of the time and all of it, by the nanoseconds of the clock, so that many clients do
 * not return at the same moment. Retry-After is added. */
static uint64_t pause_of(const struct fbr_http_call *c)
{
    uint64_t ms = (uint64_t)PAUSE_MS << (c->attempts < 7 ? c->attempts - 1 : 6);
    curl_off_t asked = 0;

    if (ms > PAUSE_MAX_MS)
        ms = PAUSE_MAX_MS;
    ms = ms / 2 + fbr_now_ns() % (ms / 2 + 1);
    curl_easy_getinfo(c->easy, CURLINFO_RETRY_AFTER, &asked);
    if (asked > INT32_MAX)
        asked = INT32_MAX;
    return asked > 0 ? ms + (uint64_t)asked * 1000 : ms;
}

/* ---- The line ---- */

static void on_later(void *arg)
{
    reap(arg);
}

static void set_later(struct fbr_http *h)
{
    uint64_t now = fbr_now_ms(), ms = UINT64_MAX;
    struct fbr_http_call *c;

    DL_FOREACH(h->calls, c) {
        uint64_t left = UINT64_MAX;

        /* fbr_http_pause() or fbr_http_cancel() was called meanwhile */
        if (c->state == FBR_HTTP_ENDED || c->resume)
            left = 0;
        else if (c->state == FBR_HTTP_WAITING && c->not_before)
            left = c->not_before > now ? c->not_before - now : 0;
        ms = left < ms ? left : ms;
    }
    if (ms != UINT64_MAX)
        fbr_timer_start(&h->later, ms, 0);
}

static void end(struct fbr_http_call *c, const struct fbr_http_answer *a)
{
    struct fbr_http *h = c->h;

    if (!c->r.data && c->easy)
        h->running--;
    c->state = FBR_HTTP_ENDED;
    DL_DELETE(h->calls, c);
    h->inside++; /* requests that `done` sends now are handled below */
    c->r.done(c->r.user, a);
    h->inside--;
    fbr_http_detach(c, h->multi); /* the texts of *a were valid until here */
    fbr_http_free(c);
}

static void on_done(struct fbr_http_call *c, CURLcode code)
{
    struct fbr_http *h = c->h;
    struct fbr_http_answer a;

    fbr_http_answer(c, code, &a);
    if (!worth_repeating(c, &a) || (c->r.repeats && !c->r.repeats(c->r.user, &a))) {
        end(c, &a);
        return;
    }
    c->not_before = fbr_now_ms() + pause_of(c);
    /* one last attempt at the very end */
    if (c->not_before > c->until)
        c->not_before = c->until;
    c->state = FBR_HTTP_WAITING;
    fbr_http_detach(c, h->multi);
    if (!c->r.data)
        h->running--;
}

/* Starts waiting requests. True: the list may have changed, and the rest was not checked. */
static bool start_next(struct fbr_http *h)
{
    static const struct fbr_http_answer none = {.body = "", .why = "out of memory"};
    uint64_t now = fbr_now_ms();
    struct fbr_http_call *c, *next;

    DL_FOREACH_SAFE(h->calls, c, next) {
        if (c->state != FBR_HTTP_WAITING || c->not_before > now)
            continue;
        c->not_before = 0; /* from now on it waits only for its turn */
        if (!c->r.data && h->running >= h->parallel)
            continue;
        if (fbr_http_begin(c, h->multi) < 0) {
            end(c, &none);
            return true; /* end() may have changed the list */
        }
        if (!c->r.data)
            h->running++;
    }
    return false;
}

/* Reports finished requests, frees cancelled requests, sends waiting requests. */
static void reap(struct fbr_http *h)
{
    struct fbr_http_call *c, *next;
    CURLMsg *m;
    bool again, blind;
    int left;

    if (h->inside)
        return;
    blind = h->blind;
    h->blind = false;
    DL_FOREACH_SAFE(h->calls, c, next) {
        if (c->state == FBR_HTTP_RUNNING && blind) {
            on_done(c, CURLE_OUT_OF_MEMORY);
        } else if (c->state == FBR_HTTP_ENDED) {
            DL_DELETE(h->calls, c);
            if (!c->r.data && c->easy)
                h->running--;
            fbr_http_detach(c, h->multi);
            fbr_http_free(c);
        } else if (c->resume && c->state == FBR_HTTP_RUNNING) {
            c->resume = false;
            h->inside++;
            curl_easy_pause(c->easy, CURLPAUSE_CONT);
            h->inside--;
        }
    }
    while ((m = curl_multi_info_read(h->multi, &left))) {
        char *private = NULL;

        if (m->msg != CURLMSG_DONE)
            continue;
        curl_easy_getinfo(m->easy_handle, CURLINFO_PRIVATE, &private);
        c = (struct fbr_http_call *)(void *)private;
        if (c->state == FBR_HTTP_RUNNING)
            on_done(c, m->data.result);
    }
    again = start_next(h);
    set_later(h);
    if (again)
        fbr_timer_start(&h->later, 0, 0);
}

/* ---- libcurl and the loop ---- */

static void act(struct fbr_http *h, curl_socket_t fd, int what)
{
    int running;

    h->inside++;
    curl_multi_socket_action(h->multi, fd, what, &running);
    h->inside--;
    reap(h);
}

static void on_timer(void *arg)
{
    act(arg, CURL_SOCKET_TIMEOUT, 0);
}

static int on_timer_wanted(CURLM *multi, long ms, void *user)
{
    struct fbr_http *h = user;

    if (ms < 0)
        fbr_timer_stop(&h->timer);
    else
        fbr_timer_start(&h->timer, (uint64_t)ms, 0);
    return 0;
}

static void on_socket(uv_poll_t *poll, int status, int events)
{
    struct sock *s = poll->data;
    int what = (events & UV_READABLE ? CURL_CSELECT_IN : 0) |
               (events & UV_WRITABLE ? CURL_CSELECT_OUT : 0);

    act(s->h, s->fd, status < 0 ? CURL_CSELECT_ERR : what);
}

static int on_socket_wanted(CURL *easy, curl_socket_t fd, int what, void *user, void *mine)
{
    struct fbr_http *h = user;
    struct sock *s = mine;

    if (what == CURL_POLL_REMOVE) {
        curl_multi_assign(h->multi, fd, NULL);
        if (s)
            uv_close((uv_handle_t *)&s->poll, fbr_free_data);
        return 0;
    }
    if (!s) {
        s = calloc(1, sizeof(*s));
        if (!s || uv_poll_init(fbr_loop_uv(h->loop), &s->poll, fd) < 0) {
            free(s);
            h->blind = true; /* libcurl does not survive an error here: reap() fails the requests */
            fbr_timer_start(&h->later, 0, 0);
            return 0;
        }
        s->h = h;
        s->fd = fd;
        s->poll.data = s;
        curl_multi_assign(h->multi, fd, s);
    }
    uv_poll_start(&s->poll,
                  (what & CURL_POLL_IN ? UV_READABLE : 0) |
                      (what & CURL_POLL_OUT ? UV_WRITABLE : 0),
                  on_socket);
    return 0;
}

/* ---- Calls ---- */

struct fbr_http_call *fbr_http_send(struct fbr_http *h, const struct fbr_http_request *r)
{
    struct fbr_http_call *c = fbr_http_make(h, r);

    if (!c)
        return NULL;
    if (r->urgent)
        DL_PREPEND(h->calls, c);
    else
        DL_APPEND(h->calls, c);
    fbr_timer_start(&h->later, 0, 0);
    return c;
}

void fbr_http_cancel(struct fbr_http_call *call)
{
    if (!call)
        return;
    call->state = FBR_HTTP_ENDED;
    fbr_timer_start(&call->h->later, 0, 0);
}

bool fbr_http_sent(const struct fbr_http_call *call)
{
    return call->attempts > 0;
}

void fbr_http_pause(struct fbr_http_call *call, bool paused)
{
    if (call->paused == paused)
        return;
    call->paused = paused; /* on_bytes() checks `paused`, now or when the stream has begun */
    call->resume = !paused && call->state == FBR_HTTP_RUNNING;
    if (call->resume) /* later, because libcurl passes on buffered data at once */
        fbr_timer_start(&call->h->later, 0, 0);
}

/* ---- The client ---- */

/* A program that leaves Fiber's cleanup to exit() closes backends in an exit handler; OpenSSL's own
 * cleanup at exit would run before that handler. */
static void init_once(void)
{
    OPENSSL_init_crypto(OPENSSL_INIT_NO_ATEXIT, NULL);
    curl_global_init(CURL_GLOBAL_DEFAULT);
}

/* For a name of the server that differs from the address: the URL gets the name, and libcurl is
 * given the address to connect to. */
static int rename_server(struct fbr_http *h, const char *url)
{
    const char *host = strstr(url, "://"), *end, *bracket, *port;

    host = host ? host + 3 : url;
    end = host + strcspn(host, "/");
    bracket = host[0] == '[' ? memchr(host, ']', (size_t)(end - host)) : NULL;
    port = memchr(bracket ? bracket : host, ':', (size_t)(end - (bracket ? bracket : host)));
    snprintf(h->connect_to, sizeof(h->connect_to), "::%.*s%s", (int)(end - host), host,
             port ? "" : ":443");
    if (asprintf(&h->renamed, "%.*s%s:443%s", (int)(host - url), url, h->o->server_name, end) < 0)
        return -ENOMEM;
    h->connect_to_list.data = h->connect_to;
    return 0;
}

static void free_client(struct fbr_http *h)
{
    free(h->renamed);
    fbr_timer_fini(&h->timer);
    fbr_timer_fini(&h->later);
    curl_multi_cleanup(h->multi);
    free(h);
}

int fbr_http_open(struct fbr_http **out, struct fbr_loop *loop, const struct fbr_http_options *o,
                  struct fbr_error *err)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    struct fbr_http *h = calloc(1, sizeof(*h));

    if (!h)
        return fbr_fail(err, -ENOMEM, "out of memory");
    pthread_once(&once, init_once);
    h->loop = loop;
    h->o = o;
    h->parallel = o->parallel ? o->parallel : PARALLEL;
    h->multi = curl_multi_init();
    if (!h->multi || fbr_timer_init(&h->timer, loop, on_timer, h) < 0 ||
        fbr_timer_init(&h->later, loop, on_later, h) < 0 ||
        (o->server_name && rename_server(h, o->url) < 0)) {
        free_client(h);
        return fbr_fail(err, -ENOMEM, "out of memory");
    }
    curl_multi_setopt(h->multi, CURLMOPT_SOCKETFUNCTION, on_socket_wanted);
    curl_multi_setopt(h->multi, CURLMOPT_SOCKETDATA, h);
    curl_multi_setopt(h->multi, CURLMOPT_TIMERFUNCTION, on_timer_wanted);
    curl_multi_setopt(h->multi, CURLMOPT_TIMERDATA, h);
    curl_multi_setopt(h->multi, CURLMOPT_MAXCONNECTS, (long)h->parallel);
    *out = h;
    return 0;
}

void fbr_http_close(struct fbr_http *h)
{
    struct fbr_http_call *c, *next;

    if (!h)
        return;
    h->inside++;
    DL_FOREACH_SAFE(h->calls, c, next) {
        c->state = FBR_HTTP_ENDED;
        fbr_http_detach(c, h->multi);
        fbr_http_free(c);
    }
    free_client(h);
}

void fbr_http_stats(const struct fbr_http *h, struct fbr_http_stats *out)
{
    *out = h->stats;
}
