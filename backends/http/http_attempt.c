/* http_attempt.c - one attempt of a request by libcurl, and requests whose caller waits for the
 * answer.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "backends/http/http_priv.h"

#define TIMEOUT_MS 60000
#define CONNECT_MS 10000
#define MAX_ANSWER (64u << 20)
#define DEAD_MS 30000 /* limit for sent bytes without acknowledgement */

struct fbr_http_call *fbr_http_make(struct fbr_http *h, const struct fbr_http_request *r)
{
    struct fbr_http_call *c = calloc(1, sizeof(*c));
    void *body = r->body ? malloc(r->len + 1) : NULL;

    if (!c) {
        free(body);
        return NULL;
    }
    c->h = h;
    c->r = *r;
    c->r.body = body ? memcpy(body, r->body, r->len) : NULL;
    if (!r->timeout_ms && !r->data)
        c->r.timeout_ms = TIMEOUT_MS;
    c->until = fbr_now_ms() + r->patience_ms;
    if (asprintf(&c->url, "%s%s", h->renamed ? h->renamed : h->o->url, r->path) < 0)
        c->url = NULL;
    if (!c->url || (r->body && !body)) {
        fbr_http_free(c);
        return NULL;
    }
    return c;
}

/* ---- One attempt ---- */

static size_t on_bytes(char *data, size_t one, size_t n, void *user)
{
    struct fbr_http_call *c = user;
    long status = 0;

    if (c->state == FBR_HTTP_ENDED)
        return CURL_WRITEFUNC_ERROR;
    curl_easy_getinfo(c->easy, CURLINFO_RESPONSE_CODE, &status);
    if (c->r.data && status >= 200 && status < 300) {
        if (c->paused)
            return CURL_WRITEFUNC_PAUSE;
        c->r.data(c->r.user, data, n);
        return c->state == FBR_HTTP_ENDED ? CURL_WRITEFUNC_ERROR : n;
    }
    c->too_long = c->answer.len + n > MAX_ANSWER;
    if (c->too_long)
        return CURL_WRITEFUNC_ERROR;
    fbr_put(&c->answer, data, n);
    return c->answer.failed ? CURL_WRITEFUNC_ERROR : n;
}

/* Notes the empty line after the last header, because libcurl also takes an answer for complete
 * that ends before it. Trailers arrive here later. */
static size_t on_header(char *data, size_t one, size_t n, void *user)
{
    struct fbr_http_call *c = user;
    bool last = data[0] == '\n' || (n == 2 && data[0] == '\r');
    long status = 0;

    /* 100 Continue is followed by the headers of the answer */
    if (last || (n > 5 && memcmp(data, "HTTP/", 5) == 0))
        c->headed = last;
    if (!c->r.opened || !last || c->state == FBR_HTTP_ENDED)
        return n;
    curl_easy_getinfo(c->easy, CURLINFO_RESPONSE_CODE, &status);
    if (status >= 200 && status < 300)
        c->r.opened(c->r.user);
    return n;
}

static size_t on_body_wanted(char *data, size_t one, size_t n, void *user)
{
    const struct fbr_http_call *c = user;
    ssize_t got = c->state == FBR_HTTP_ENDED ? -1 : read(c->r.body_fd, data, one * n);

    return got < 0 ? CURL_READFUNC_ABORT : (size_t)got;
}

/* For a kept connection that turned out to be closed: libcurl starts again on another one. */
static int on_rewind(void *user, curl_off_t offset, int origin)
{
    const struct fbr_http_call *c = user;

    if (c->state == FBR_HTTP_ENDED || origin != SEEK_SET ||
        lseek(c->r.body_fd, c->body_at + offset, SEEK_SET) < 0)
        return CURL_SEEKFUNC_CANTSEEK;
    return CURL_SEEKFUNC_OK;
}

/* libcurl's own sockets would be inherited by the programs that the user's program starts. The
 * limit is there so that a dead server does not look like an idle one. */
static curl_socket_t open_socket(void *user, curlsocktype purpose, struct curl_sockaddr *to)
{
    int fd = socket(to->family, to->socktype | SOCK_CLOEXEC, to->protocol);
    unsigned dead = DEAD_MS;

    if (fd >= 0) /* fails on a unix socket */
        setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &dead, sizeof(dead));
    return fd;
}

static void set_blob(CURL *easy, CURLoption option, const char *text)
{
    struct curl_blob blob = {(void *)(uintptr_t)text, text ? strlen(text) : 0, CURL_BLOB_COPY};

    if (text)
        curl_easy_setopt(easy, option, &blob);
}

/* To libcurl, "socks5://" means that we resolve the names. A server behind the proxy often has a
 * name that is known there alone. */
static void set_proxy(const struct fbr_http *h, CURL *easy)
{
    curl_easy_setopt(easy, CURLOPT_PROXY, h->o->proxy ? h->o->proxy : "");
    curl_easy_setopt(easy, CURLOPT_NOPROXY, h->o->no_proxy ? h->o->no_proxy : "");
    if (h->o->proxy && !strncmp(h->o->proxy, "socks5://", 9)) {
        curl_easy_setopt(easy, CURLOPT_PROXY, h->o->proxy + 9);
        curl_easy_setopt(easy, CURLOPT_PROXYTYPE, (long)CURLPROXY_SOCKS5_HOSTNAME);
    }
}

static void set_server(const struct fbr_http *h, CURL *easy)
{
    curl_easy_setopt(easy, CURLOPT_NOSIGNAL, 1L);
#if LIBCURL_VERSION_NUM >= 0x075700
    /* An attempt that ends while its host's name is looked up would wait for the look-up, here on
     * the loop, and without a network that lasts a minute. Now the thread of the look-up frees what
     * it has. */
    curl_easy_setopt(easy, CURLOPT_QUICK_EXIT, 1L);
#endif
    curl_easy_setopt(easy, CURLOPT_PROTOCOLS_STR, "http,https");
    curl_easy_setopt(easy, CURLOPT_CONNECTTIMEOUT_MS, (long)CONNECT_MS);
    curl_easy_setopt(easy, CURLOPT_HTTP_VERSION,
                     h->o->http1 ? CURL_HTTP_VERSION_1_1 : CURL_HTTP_VERSION_2TLS);
    curl_easy_setopt(easy, CURLOPT_PIPEWAIT, h->o->http1 ? 0L : 1L);
    curl_easy_setopt(easy, CURLOPT_UNIX_SOCKET_PATH, h->o->socket);
    set_proxy(h, easy);
    curl_easy_setopt(easy, CURLOPT_TCP_KEEPALIVE, 1L);
    curl_easy_setopt(easy, CURLOPT_TCP_KEEPIDLE, 15L);
    curl_easy_setopt(easy, CURLOPT_TCP_KEEPINTVL, 5L);
    curl_easy_setopt(easy, CURLOPT_OPENSOCKETFUNCTION, open_socket);
    curl_easy_setopt(easy, CURLOPT_SSL_VERIFYPEER, h->o->insecure ? 0L : 1L);
    curl_easy_setopt(easy, CURLOPT_SSL_VERIFYHOST, h->o->insecure ? 0L : 2L);
    set_blob(easy, CURLOPT_CAINFO_BLOB, h->o->ca);
    set_blob(easy, CURLOPT_SSLCERT_BLOB, h->o->cert);
    set_blob(easy, CURLOPT_SSLKEY_BLOB, h->o->key);
    /* without a password libcurl 7.88 crashes at an encrypted key, and so nothing asks for one */
    curl_easy_setopt(easy, CURLOPT_KEYPASSWD, "");
    if (h->o->user) {
        curl_easy_setopt(easy, CURLOPT_USERNAME, h->o->user);
        curl_easy_setopt(easy, CURLOPT_PASSWORD, h->o->password ? h->o->password : "");
    }
}

static int add_header(struct fbr_http_call *c, const char *text)
{
    struct curl_slist *more = curl_slist_append(c->headers, text);

    if (more)
        c->headers = more;
    return more ? 0 : -ENOMEM;
}

static void drop_headers(struct fbr_http_call *c)
{
    for (struct curl_slist *at = c->headers; at; at = at->next)
        explicit_bzero(at->data, strlen(at->data));
    curl_slist_free_all(c->headers);
    c->headers = NULL;
}

static int add_token(struct fbr_http_call *c, const char *token)
{
    char *line;
    int rc;

    if (asprintf(&line, "Authorization: Bearer %s", token) < 0)
        return -ENOMEM;
    rc = add_header(c, line);
    explicit_bzero(line, strlen(line));
    free(line);
    return rc;
}

/* The token may differ each time. It is only in the headers, which libcurl does not log. */
static int set_headers(struct fbr_http_call *c)
{
    const struct fbr_http *h = c->h;
    const char *token = h->o->token ? h->o->token(h->o->token_user) : NULL;
    char text[128];

    drop_headers(c);
    snprintf(text, sizeof(text), "Content-Type: %.100s",
             c->r.type ? c->r.type : "application/json");
    if (add_header(c, text) < 0 || add_header(c, "Expect:") < 0 ||
        (token && add_token(c, token) < 0))
        return -ENOMEM;
    curl_easy_setopt(c->easy, CURLOPT_HTTPHEADER, c->headers);
    return 0;
}

static void set_request(struct fbr_http_call *c)
{
    CURL *easy = c->easy;

    curl_easy_setopt(easy, CURLOPT_URL, c->url);
    curl_easy_setopt(easy, CURLOPT_PRIVATE, c);
    curl_easy_setopt(easy, CURLOPT_ERRORBUFFER, c->why);
    curl_easy_setopt(easy, CURLOPT_WRITEFUNCTION, on_bytes);
    curl_easy_setopt(easy, CURLOPT_WRITEDATA, c);
    curl_easy_setopt(easy, CURLOPT_TIMEOUT_MS, (long)c->r.timeout_ms);
    curl_easy_setopt(easy, CURLOPT_HEADERFUNCTION, on_header);
    curl_easy_setopt(easy, CURLOPT_HEADERDATA, c);
    if (!c->r.data)
        curl_easy_setopt(easy, CURLOPT_ACCEPT_ENCODING, "");
    if (c->r.body_fd > 0) {
        off_t at = lseek(c->r.body_fd, 0, SEEK_CUR);
        struct stat st;

        curl_easy_setopt(easy, CURLOPT_UPLOAD, 1L);
        curl_easy_setopt(easy, CURLOPT_READFUNCTION, on_body_wanted);
        curl_easy_setopt(easy, CURLOPT_READDATA, c);
        curl_easy_setopt(easy, CURLOPT_SEEKFUNCTION, on_rewind);
        curl_easy_setopt(easy, CURLOPT_SEEKDATA, c);
        c->body_at = at > 0 ? at : 0;
        if (at >= 0 && fstat(c->r.body_fd, &st) == 0 && S_ISREG(st.st_mode))
            curl_easy_setopt(easy, CURLOPT_INFILESIZE_LARGE, (curl_off_t)(st.st_size - at));
    } else if (c->r.body || strcmp(c->r.method, "GET") != 0) {
        curl_easy_setopt(easy, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)c->r.len);
        curl_easy_setopt(easy, CURLOPT_POSTFIELDS, c->r.body ? c->r.body : "");
    }
    if (strcmp(c->r.method, "HEAD") == 0)
        curl_easy_setopt(easy, CURLOPT_NOBODY, 1L);
    curl_easy_setopt(easy, CURLOPT_CUSTOMREQUEST, c->r.method);
}

int fbr_http_begin(struct fbr_http_call *c, CURLM *multi)
{
    int rc;

    fbr_buf_fini(&c->answer);
    c->why[0] = '\0';
    c->too_long = c->headed = false;
    c->easy = curl_easy_init();
    if (!c->easy)
        return -ENOMEM;
    rc = set_headers(c); /* first: with a new token may come another certificate */
    set_server(c->h, c->easy);
    set_request(c);
    if (c->h->o->server_name)
        curl_easy_setopt(c->easy, CURLOPT_CONNECT_TO, &c->h->connect_to_list);
    if (rc < 0 || curl_multi_add_handle(multi, c->easy) != CURLM_OK) {
        curl_easy_cleanup(c->easy);
        c->easy = NULL;
        return -ENOMEM;
    }
    c->attempts++;
    c->state = FBR_HTTP_RUNNING;
    return 0;
}

static void count(struct fbr_http_call *c)
{
    struct fbr_http_stats *s = &c->h->stats;
    curl_off_t up = 0, down = 0;
    long head_up = 0, head_down = 0;

    curl_easy_getinfo(c->easy, CURLINFO_SIZE_UPLOAD_T, &up);
    curl_easy_getinfo(c->easy, CURLINFO_SIZE_DOWNLOAD_T, &down);
    curl_easy_getinfo(c->easy, CURLINFO_REQUEST_SIZE, &head_up);
    curl_easy_getinfo(c->easy, CURLINFO_HEADER_SIZE, &head_down);
    s->requests++;
    s->repeats += c->attempts > 1;
    s->sent += (uint64_t)up + (uint64_t)head_up;
    s->received += (uint64_t)down + (uint64_t)head_down;
}

void fbr_http_detach(struct fbr_http_call *c, CURLM *multi)
{
    if (!c->easy)
        return;
    count(c);
    curl_multi_remove_handle(multi, c->easy);
    curl_easy_cleanup(c->easy);
    c->easy = NULL;
}

void fbr_http_free(struct fbr_http_call *c)
{
    drop_headers(c);
    fbr_buf_fini(&c->answer);
    if (c->r.body)
        explicit_bzero((void *)(uintptr_t)c->r.body, c->r.len);
    free((void *)(uintptr_t)c->r.body);
    free(c->url);
    free(c);
}

/* With TLS 1.3 the server checks our certificate when the handshake already looks complete to us:
 * its alert is a read error, and may be lost if the connection ends at once. */
static enum fbr_http_tls tls_of(CURL *easy, CURLcode code, const char *why)
{
    curl_off_t shaken = 0;

    if (code == CURLE_PEER_FAILED_VERIFICATION || code == CURLE_SSL_ISSUER_ERROR ||
        code == CURLE_SSL_CACERT_BADFILE)
        return FBR_HTTP_THEIRS;
    if (code == CURLE_SSL_CERTPROBLEM)
        return FBR_HTTP_OURS;
    if (code == CURLE_SSL_CONNECT_ERROR)
        return strstr(why, "wrong version number") ? FBR_HTTP_NO_TLS
               : strstr(why, "alert")              ? FBR_HTTP_OURS
                                                   : FBR_HTTP_NO_MATTER;
    if (code == CURLE_OPERATION_TIMEDOUT || code == CURLE_COULDNT_CONNECT)
        return FBR_HTTP_NO_MATTER;
    curl_easy_getinfo(easy, CURLINFO_APPCONNECT_TIME_T, &shaken);
    return shaken > 0 ? FBR_HTTP_OURS : FBR_HTTP_NO_MATTER;
}

void fbr_http_answer(struct fbr_http_call *c, CURLcode code, struct fbr_http_answer *a)
{
    long status = 0;

    curl_easy_getinfo(c->easy, CURLINFO_RESPONSE_CODE, &status);
    fbr_put_u8(&c->answer, 0);
    *a = (struct fbr_http_answer){.body = "", .why = ""};
    if (c->too_long)
        a->why = "the answer is longer than 64 MiB";
    else if (c->answer.failed)
        a->why = "out of memory";
    else if (code != CURLE_OK)
        a->why = c->why[0] ? c->why : curl_easy_strerror(code);
    else if (!c->headed)
        a->why = "the answer ended within its headers";
    else
        a->status = (int)status;
    if (code != CURLE_OK && !c->headed) /* with headers, both ends have accepted certificates */
        a->tls = tls_of(c->easy, code, a->why);
    if (c->answer.failed)
        return;
    a->body = (const char *)c->answer.data;
    a->len = c->answer.len - 1;
}

char *fbr_http_path(const char *a, const char *b, const char *c, const char *format, ...)
{
    char *rest = NULL, *path = NULL;
    va_list ap;
    int n;

    va_start(ap, format);
    n = vasprintf(&rest, format, ap);
    va_end(ap);
    if (n < 0)
        return NULL;
    if (asprintf(&path, "%s%s%s%s", a, b, c, rest) < 0)
        path = NULL;
    free(rest);
    return path;
}

char *fbr_http_escape(const char *text)
{
    return curl_easy_escape(NULL, text, 0);
}

/* ---- Now ---- */

static void now_done(CURLM *multi, size_t *left, size_t *running)
{
    CURLMsg *m;
    int rest;

    while ((m = curl_multi_info_read(multi, &rest))) {
        struct fbr_http_answer a;
        char *private = NULL;
        struct fbr_http_call *c;
        CURLcode code = m->data.result;

        if (m->msg != CURLMSG_DONE)
            continue;
        curl_easy_getinfo(m->easy_handle, CURLINFO_PRIVATE, &private);
        c = (struct fbr_http_call *)(void *)private;
        fbr_http_answer(c, code, &a);
        c->r.done(c->r.user, &a);
        fbr_http_detach(c, multi);
        c->state = FBR_HTTP_ENDED;
        --*left;
        --*running;
    }
}

void fbr_http_now(struct fbr_http *h, const struct fbr_http_request *r, size_t n, uint64_t ms)
{
    static const struct fbr_http_answer late = {.body = "", .why = "no answer in time"};
    struct fbr_http_call **calls = calloc(n ? n : 1, sizeof(struct fbr_http_call *));
    CURLM *multi = curl_multi_init();
    uint64_t until = fbr_now_ms() + ms, now;
    size_t left = n, running = 0, next = 0;
    int still;

    for (size_t i = 0; calls && i < n; i++)
        calls[i] = fbr_http_make(h, &r[i]);
    while (calls && multi && left && (now = fbr_now_ms()) < until) {
        while (next < n && running < h->parallel) {
            struct fbr_http_call *c = calls[next++];

            if (c && fbr_http_begin(c, multi) == 0)
                running++;
            else
                left--;
        }
        curl_multi_perform(multi, &still);
        now_done(multi, &left, &running);
        if (running)
            curl_multi_poll(multi, NULL, 0, (int)(until - now), NULL);
    }
    for (size_t i = 0; i < n; i++) {
        struct fbr_http_call *c = calls ? calls[i] : NULL;

        if (!c || c->state != FBR_HTTP_ENDED)
            r[i].done(r[i].user, &late);
        if (c) {
            fbr_http_detach(c, multi);
            fbr_http_free(c);
        }
    }
    free(calls);
    curl_multi_cleanup(multi);
}
