/* http_server.c - a small HTTP server; see http_server.h.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/http_server.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define PEERS 256
#define HEAD 8192

struct http_peer {
    struct http_server *s;
    pthread_t thread;
    int fd;
    SSL *ssl;
    char head[HEAD];
    size_t have;
    bool busy; /* with a request that is not answered */
};

struct http_server {
    int fd, port;
    char path[108];
    http_answer *answer;
    void *user;
    pthread_t thread;
    pthread_mutex_t lock; /* of all below */
    struct http_peer *peers[PEERS];
    int accepted, asked, busy, most;
    bool ending;
    SSL_CTX *tls;
    X509 *ca;
    char *ca_pem, *cert_pem, *key_pem;
};

/* ---- Bytes ---- */

static ssize_t take(struct http_peer *p, void *out, size_t size)
{
    return p->ssl ? SSL_read(p->ssl, out, (int)size) : read(p->fd, out, size);
}

bool http_write(struct http_peer *p, const void *data, size_t len)
{
    const char *at = data;

    while (len) {
        ssize_t n = p->ssl ? SSL_write(p->ssl, at, (int)len) : send(p->fd, at, len, MSG_NOSIGNAL);

        if (n <= 0)
            return false;
        at += n;
        len -= (size_t)n;
    }
    return true;
}

static void begin_request(struct http_peer *p, int *number)
{
    struct http_server *s = p->s;

    pthread_mutex_lock(&s->lock);
    p->busy = true;
    s->busy++;
    s->most = s->busy > s->most ? s->busy : s->most;
    *number = ++s->asked;
    pthread_mutex_unlock(&s->lock);
}

/* Before the client has the answer: it may send its next request as soon as it has it. */
static void end_request(struct http_peer *p)
{
    pthread_mutex_lock(&p->s->lock);
    if (p->busy)
        p->s->busy--;
    p->busy = false;
    pthread_mutex_unlock(&p->s->lock);
}

bool http_say(struct http_peer *p, int status, const char *headers, const char *body)
{
    char head[1024];

    snprintf(head, sizeof(head), "HTTP/1.1 %d Said\r\nContent-Length: %zu\r\n%s\r\n", status,
             strlen(body), headers);
    end_request(p);
    return http_write(p, head, strlen(head)) && http_write(p, body, strlen(body));
}

void http_reset(struct http_peer *p)
{
    connect(p->fd, &(struct sockaddr){.sa_family = AF_UNSPEC}, sizeof(struct sockaddr));
}

void http_wait_for_end(struct http_peer *p)
{
    char rest[64];

    while (take(p, rest, sizeof(rest)) > 0)
        ;
}

/* ---- Requests ---- */

static void copy_header(const char *head, const char *name, char *out, size_t size)
{
    size_t n = strlen(name);

    out[0] = '\0';
    for (const char *at = strstr(head, "\r\n"); at; at = strstr(at + 2, "\r\n"))
        if (strncasecmp(at + 2, name, n) == 0 && at[2 + n] == ':')
            snprintf(out, size, "%.*s", (int)strcspn(at + 4 + n, "\r\n"), at + 4 + n);
}

/* Until `mark` is in what was read; how long it is with it. */
static size_t read_until(struct http_peer *p, const char *mark)
{
    for (;;) {
        const char *end;
        ssize_t n;

        p->head[p->have] = '\0';
        end = strstr(p->head, mark);
        if (end)
            return (size_t)(end - p->head) + strlen(mark);
        if (p->have + 1 >= HEAD)
            return 0;
        n = take(p, p->head + p->have, HEAD - 1 - p->have);
        if (n <= 0)
            return 0;
        p->have += (size_t)n;
    }
}

static bool read_exactly(struct http_peer *p, char *out, size_t len)
{
    size_t n = p->have < len ? p->have : len;

    memcpy(out, p->head, n);
    memmove(p->head, p->head + n, p->have - n);
    p->have -= n;
    while (n < len) {
        ssize_t got = take(p, out + n, len - n);

        if (got <= 0)
            return false;
        n += (size_t)got;
    }
    return true;
}

/* The chunks of a body whose length was not told. */
static char *read_chunks(struct http_peer *p, size_t *len)
{
    char *body = calloc(1, 1);

    *len = 0;
    for (;;) {
        size_t line = read_until(p, "\r\n"), n;
        char size[32] = "", end[2];

        if (!line || line >= sizeof(size) || !read_exactly(p, size, line))
            break;
        n = strtoul(size, NULL, 16);
        body = realloc(body, *len + n + 1);
        if (!read_exactly(p, body + *len, n) || !read_exactly(p, end, 2))
            break;
        *len += n;
        body[*len] = '\0';
        if (n == 0)
            return body;
    }
    free(body);
    return NULL;
}

static char *read_body(struct http_peer *p, const char *length, const char *encoding, size_t *len)
{
    char *body;

    if (strcmp(encoding, "chunked") == 0)
        return read_chunks(p, len);
    *len = strtoul(length, NULL, 10);
    body = calloc(1, *len + 1);
    if (body && read_exactly(p, body, *len))
        return body;
    free(body);
    return NULL;
}

static bool serve_one(struct http_peer *p)
{
    struct http_asked q = {0};
    char head[HEAD], length[32], encoding[32], *body;
    size_t n = read_until(p, "\r\n\r\n");
    bool on;

    if (!n || !read_exactly(p, head, n))
        return false;
    head[n - 1] = '\0';
    sscanf(head, "%15s %511s", q.method, q.path);
    copy_header(head, "Authorization", q.authorization, sizeof(q.authorization));
    copy_header(head, "Content-Type", q.type, sizeof(q.type));
    copy_header(head, "Content-Length", length, sizeof(length));
    copy_header(head, "Transfer-Encoding", encoding, sizeof(encoding));
    body = read_body(p, length, encoding, &q.len);
    if (!body)
        return false;
    q.body = body;
    q.certified = p->ssl && SSL_get0_peer_certificate(p->ssl);
    begin_request(p, &q.number);
    on = p->s->answer(p, &q, p->s->user);
    end_request(p);
    free(body);
    return on;
}

static void *serve(void *arg)
{
    struct http_peer *p = arg;

    if (p->s->tls) {
        p->ssl = SSL_new(p->s->tls);
        SSL_set_fd(p->ssl, p->fd);
    }
    if (!p->ssl || SSL_accept(p->ssl) == 1)
        while (serve_one(p))
            ;
    if (p->ssl)
        SSL_shutdown(p->ssl);
    shutdown(p->fd, SHUT_RDWR);
    return NULL;
}

/* ---- Connections ---- */

static void *take_connections(void *arg)
{
    struct http_server *s = arg;
    int fd;

    while ((fd = accept4(s->fd, NULL, NULL, SOCK_CLOEXEC)) >= 0) {
        struct http_peer *p = calloc(1, sizeof(*p));

        p->s = s;
        p->fd = fd;
        pthread_mutex_lock(&s->lock);
        if (s->ending || s->accepted == PEERS || pthread_create(&p->thread, NULL, serve, p) != 0) {
            close(fd);
            free(p);
        } else {
            s->peers[s->accepted++] = p;
        }
        pthread_mutex_unlock(&s->lock);
    }
    return NULL;
}

static int listen_at(struct http_server *s, const char *path)
{
    struct sockaddr_un un = {.sun_family = AF_UNIX};
    struct sockaddr_in in = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof(in);

    s->fd = socket(path ? AF_UNIX : AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (path) {
        snprintf(s->path, sizeof(s->path), "%s", path);
        snprintf(un.sun_path, sizeof(un.sun_path), "%s", path);
        unlink(path);
    }
    if (bind(s->fd, path ? (void *)&un : (void *)&in, path ? sizeof(un) : sizeof(in)) < 0 ||
        listen(s->fd, 128) < 0)
        return -1;
    if (!path && getsockname(s->fd, (void *)&in, &len) == 0)
        s->port = ntohs(in.sin_port);
    return 0;
}

/* ---- Certificates ---- */

static char *to_pem(X509 *cert, EVP_PKEY *key)
{
    BIO *bio = BIO_new(BIO_s_mem());
    char *data, *text;
    long n;

    if (cert)
        PEM_write_bio_X509(bio, cert);
    else
        PEM_write_bio_PrivateKey(bio, key, NULL, NULL, 0, NULL, NULL);
    n = BIO_get_mem_data(bio, &data);
    text = calloc(1, (size_t)n + 1);
    if (text)
        memcpy(text, data, (size_t)n);
    BIO_free(bio);
    return text;
}

static void extend(X509 *cert, int what, const char *value)
{
    X509_EXTENSION *e = X509V3_EXT_conf_nid(NULL, NULL, what, value);

    X509_add_ext(cert, e, -1);
    X509_EXTENSION_free(e);
}

static X509 *make_cert(const char *who, long serial, EVP_PKEY *key, X509 *by, EVP_PKEY *by_key)
{
    X509 *cert = X509_new();
    X509_NAME *name = X509_get_subject_name(cert);
    char alt[64];

    X509_set_version(cert, 2);
    ASN1_INTEGER_set(X509_get_serialNumber(cert), serial);
    X509_gmtime_adj(X509_getm_notBefore(cert), -60);
    X509_gmtime_adj(X509_getm_notAfter(cert), 3600);
    X509_NAME_add_entry_by_txt(name, "CN", MBSTRING_ASC, (const unsigned char *)who, -1, -1, 0);
    X509_set_issuer_name(cert, by ? X509_get_subject_name(by) : name);
    X509_set_pubkey(cert, key);
    snprintf(alt, sizeof(alt), "DNS:%s", who);
    extend(cert, by ? NID_subject_alt_name : NID_basic_constraints, by ? alt : "critical,CA:TRUE");
    X509_sign(cert, by_key, EVP_sha256());
    return cert;
}

static void set_tls(struct http_server *s)
{
    EVP_PKEY *ca_key = EVP_EC_gen("P-256"), *key = EVP_EC_gen("P-256"), *mine = EVP_EC_gen("P-256");
    X509 *cert, *client;

    s->ca = make_cert("authority", 1, ca_key, NULL, ca_key);
    cert = make_cert("engine.test", 2, key, s->ca, ca_key);
    client = make_cert("client", 3, mine, s->ca, ca_key);
    s->ca_pem = to_pem(s->ca, NULL);
    s->cert_pem = to_pem(client, NULL);
    s->key_pem = to_pem(NULL, mine);
    s->tls = SSL_CTX_new(TLS_server_method());
    SSL_CTX_use_certificate(s->tls, cert);
    SSL_CTX_use_PrivateKey(s->tls, key);
    X509_STORE_add_cert(SSL_CTX_get_cert_store(s->tls), s->ca);
    SSL_CTX_set_verify(s->tls, SSL_VERIFY_PEER, NULL);
    X509_free(cert);
    X509_free(client);
    EVP_PKEY_free(ca_key);
    EVP_PKEY_free(key);
    EVP_PKEY_free(mine);
}

/* ---- The server ---- */

struct http_server *http_server_open(const char *path, bool tls, http_answer *answer, void *user)
{
    struct http_server *s = calloc(1, sizeof(*s));

    signal(SIGPIPE, SIG_IGN); /* of SSL_write() */
    s->answer = answer;
    s->user = user;
    pthread_mutex_init(&s->lock, NULL);
    if (tls)
        set_tls(s);
    if (listen_at(s, path) < 0 || pthread_create(&s->thread, NULL, take_connections, s) != 0)
        abort();
    return s;
}

void http_server_close(struct http_server *s)
{
    pthread_mutex_lock(&s->lock);
    s->ending = true;
    pthread_mutex_unlock(&s->lock);
    shutdown(s->fd, SHUT_RDWR);
    pthread_join(s->thread, NULL);
    close(s->fd);
    for (int i = 0; i < s->accepted; i++)
        shutdown(s->peers[i]->fd, SHUT_RDWR);
    for (int i = 0; i < s->accepted; i++) {
        pthread_join(s->peers[i]->thread, NULL);
        SSL_free(s->peers[i]->ssl);
        close(s->peers[i]->fd);
        free(s->peers[i]);
    }
    if (s->path[0])
        unlink(s->path);
    SSL_CTX_free(s->tls);
    X509_free(s->ca);
    free(s->ca_pem);
    free(s->cert_pem);
    free(s->key_pem);
    pthread_mutex_destroy(&s->lock);
    free(s);
}

static int look(struct http_server *s, const int *at)
{
    int n;

    pthread_mutex_lock(&s->lock);
    n = *at;
    pthread_mutex_unlock(&s->lock);
    return n;
}

int http_server_port(const struct http_server *s)
{
    return s->port;
}
int http_server_asked(struct http_server *s)
{
    return look(s, &s->asked);
}
int http_server_most(struct http_server *s)
{
    return look(s, &s->most);
}
int http_server_accepted(struct http_server *s)
{
    return look(s, &s->accepted);
}
const char *http_server_ca(const struct http_server *s)
{
    return s->ca_pem;
}
const char *http_server_cert(const struct http_server *s)
{
    return s->cert_pem;
}
const char *http_server_key(const struct http_server *s)
{
    return s->key_pem;
}
