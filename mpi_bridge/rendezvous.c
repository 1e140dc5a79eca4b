/* rendezvous.c - the key-value server over HTTP at which Horovod's ranks meet.
 *
 * The parser is strict on purpose: a request line is "METHOD SP /path SP HTTP/1.x", a header line
 * is "Name: value", lines end in CR LF or LF, and nothing else is accepted. (Debian's
 * libhttp-parser is not maintained any more, and its successor is not packaged.)
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "mpi_bridge/rendezvous.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define HASH_NONFATAL_OOM 1 /* an entry that could not be added has hh.tbl NULL */
#include <uthash.h>

#include "mpi_bridge/service.h"
#include "runtime/base/buf.h"

#define ENTRY_COST 256

struct entry {
    UT_hash_handle hh;
    char *data;
    size_t len;
    bool finished; /* its rank has sent DELETE */
    char path[];   /* "SCOPE/KEY" */
};

struct fbr_service {
    const struct fbr_service_host *host;
    struct entry *entries;
    size_t memory;
};

struct fbr_service_conn {
    struct fbr_service *service;
    void *peer;
    struct fbr_buf in;
};

enum method { GET, PUT, DELETE, OTHER };

struct request {
    enum method method;
    char *path;        /* "SCOPE/KEY", within the head */
    size_t head, body; /* bytes */
    bool has_body;     /* a length was given */
    bool last;         /* hang up after the answer */
    int wrong;         /* status of the refusal; 0: none */
};

/* ---- the store ---- */

static void entry_free(struct fbr_service *s, struct entry *e)
{
    HASH_DEL(s->entries, e);
    s->memory -= ENTRY_COST + strlen(e->path) + e->len;
    free(e->data);
    free(e);
}

static struct entry *entry_find(struct fbr_service *s, const char *path)
{
    struct entry *e;

    HASH_FIND_STR(s->entries, path, e);
    return e;
}

/* Adds an empty entry. */
static struct entry *entry_add(struct fbr_service *s, const char *path)
{
    size_t len = strlen(path);
    struct entry *e = calloc(1, sizeof(*e) + len + 1);

    if (e) {
        memcpy(e->path, path, len);
        HASH_ADD_KEYPTR(hh, s->entries, e->path, len, e);
    }
    if (!e || !e->hh.tbl) {
        free(e);
        return NULL;
    }
    s->memory += ENTRY_COST + len;
    return e;
}

/* Returns 200, or 507 if it is too much. */
static int put(struct fbr_service *s, const struct request *r, const void *body)
{
    struct entry *e;
    char *copy;

    if (s->memory + ENTRY_COST + r->head + r->body > FBR_RENDEZVOUS_MEMORY_MAX)
        return 507;
    copy = malloc(r->body ? r->body : 1);
    e = copy ? entry_find(s, r->path) : NULL;
    if (copy && !e)
        e = entry_add(s, r->path);
    if (!e) {
        free(copy);
        return 507;
    }
    if (r->body)
        memcpy(copy, body, r->body);
    s->memory += r->body;
    s->memory -= e->len;
    free(e->data);
    e->data = copy;
    e->len = r->body;
    e->finished = false;
    return 200;
}

static bool ranks_meet_in(const char *path)
{
    return !strncmp(path, "global", 6) || !strncmp(path, "local_", 6) ||
           !strncmp(path, "cross_", 6);
}

/* True if the key is the number of a rank. */
static bool is_rank(const char *path)
{
    const char *key = strchr(path, '/') + 1;

    return !key[strspn(key, "0123456789")];
}

static void take_back(struct fbr_service *s, const struct request *r)
{
    size_t scope = strcspn(r->path, "/") + 1;
    struct entry *e = entry_find(s, r->path), *next;

    if (!e)
        return;
    if (!ranks_meet_in(r->path) || !is_rank(r->path)) {
        entry_free(s, e);
        return;
    }
    e->finished = true;
    HASH_ITER(hh, s->entries, e, next)
        if (!strncmp(e->path, r->path, scope) && is_rank(e->path) && !e->finished)
            return;
    HASH_ITER(hh, s->entries, e, next)
        if (!strncmp(e->path, r->path, scope))
            entry_free(s, e);
}

/* ---- HTTP ---- */

static const char *status_text(int status)
{
    switch (status) {
    case 200:
        return "OK";
    case 400:
        return "Bad Request";
    case 404:
        return "Not Found";
    case 411:
        return "Length Required";
    case 413:
        return "Payload Too Large";
    case 431:
        return "Request Header Fields Too Large";
    case 501:
        return "Unsupported";
    default:
        return "Insufficient Storage";
    }
}

static void answer(const struct fbr_service_conn *c, int status, const void *body, size_t len,
                   bool last)
{
    const struct fbr_service_host *host = c->service->host;
    char head[160];
    int n = snprintf(head, sizeof(head), "HTTP/1.1 %d %s\r\nContent-Length: %zu\r\n%s\r\n", status,
                     status_text(status), len, last ? "Connection: close\r\n" : "");

    host->send(c->peer, head, (size_t)n);
    if (len)
        host->send(c->peer, body, len);
}

/* Returns the length of the head with its empty line; 0: the empty line has not come. */
static size_t head_length(const char *data, size_t len)
{
    const char *at = data, *end = data + len, *newline;

    while ((newline = memchr(at, '\n', (size_t)(end - at)))) {
        if (newline == at || (newline == at + 1 && *at == '\r'))
            return (size_t)(newline + 1 - data);
        at = newline + 1;
    }
    return 0;
}

static enum method method_of(const char *word)
{
    return !strcmp(word, "GET")      ? GET
           : !strcmp(word, "PUT")    ? PUT
           : !strcmp(word, "DELETE") ? DELETE
                                     : OTHER;
}

/* "PUT /scope/key HTTP/1.1" */
static int parse_first(char *line, struct request *r)
{
    char *path = strchr(line, ' '), *version = path ? strchr(path + 1, ' ') : NULL, *slash;

    if (!version)
        return 400;
    *path++ = *version++ = 0;
    r->method = method_of(line);
    if (r->method == OTHER)
        return 501;
    if (strcmp(version, "HTTP/1.0") != 0 && strcmp(version, "HTTP/1.1") != 0)
        return 400;
    r->last = version[7] == '0';
    slash = *path == '/' ? strchr(path + 1, '/') : NULL;
    if (!slash || slash == path + 1 || !slash[1])
        return 400;
    for (const char *c = path; *c; c++)
        if (*c < '!' || *c > '~')
            return 400;
    r->path = path + 1;
    return 0;
}

static int parse_length(const char *text, struct request *r)
{
    size_t n = 0;

    if (r->has_body || !*text || strlen(text) > 12 || strspn(text, "0123456789") != strlen(text))
        return 400;
    for (; *text; text++)
        n = n * 10 + (size_t)(*text - '0');
    if (n > FBR_RENDEZVOUS_BODY_MAX)
        return 413;
    r->has_body = true;
    r->body = n;
    return 0;
}

static int parse_header(char *line, struct request *r)
{
    char *colon = strchr(line, ':'), *value;

    if (!colon || colon == line || strcspn(line, " \t") < (size_t)(colon - line))
        return 400;
    *colon = 0;
    value = colon + 1 + strspn(colon + 1, " \t");
    for (size_t n = strlen(value); n && (value[n - 1] == ' ' || value[n - 1] == '\t'); n--)
        value[n - 1] = 0;
    if (!strcasecmp(line, "Content-Length"))
        return parse_length(value, r);
    if (!strcasecmp(line, "Transfer-Encoding") || !strcasecmp(line, "Expect"))
        return 501;
    if (!strcasecmp(line, "Connection") && !strcasecmp(value, "close"))
        r->last = true;
    if (!strcasecmp(line, "Connection") && !strcasecmp(value, "keep-alive"))
        r->last = false;
    return 0;
}

/* Cuts the head, which ends in an empty line, into its parts. Stops at the first error. */
static struct request parse_head(char *head, size_t len)
{
    struct request r = {.head = len};
    char *line = head, *newline;

    if (strlen(head) != len) { /* the caller put a NUL at its end */
        r.wrong = 400;
        return r;
    }
    for (int n = 0;
         !r.wrong && (newline = strchr(line, '\n')) && *line != '\n' && strncmp(line, "\r\n", 2);
         n++) {
        *newline = 0;
        if (newline > line && newline[-1] == '\r')
            newline[-1] = 0;
        r.wrong = n ? parse_header(line, &r) : parse_first(line, &r);
        line = newline + 1;
    }
    if (!r.wrong && !r.path)
        r.wrong = 400;
    if (!r.wrong && r.method == PUT && !r.has_body)
        r.wrong = 411;
    return r;
}

static void run(const struct fbr_service_conn *c, const struct request *r, const void *body)
{
    struct fbr_service *s = c->service;
    struct entry *e;

    switch (r->method) {
    case GET:
        e = entry_find(s, r->path);
        answer(c, e ? 200 : 404, e ? e->data : NULL, e ? e->len : 0, r->last);
        break;
    case PUT:
        answer(c, put(s, r, body), NULL, 0, r->last);
        break;
    default:
        take_back(s, r);
        answer(c, 200, NULL, 0, r->last);
    }
}

/* Runs the next request. Returns 1; 0: more bytes are needed; -1: hang up. */
static int run_one(struct fbr_service_conn *c)
{
    size_t head = head_length((char *)c->in.data, c->in.len);
    char copy[FBR_RENDEZVOUS_HEAD_MAX + 1];
    struct request r;

    if (head > FBR_RENDEZVOUS_HEAD_MAX || (!head && c->in.len > FBR_RENDEZVOUS_HEAD_MAX)) {
        answer(c, 431, NULL, 0, true);
        return -1;
    }
    if (!head)
        return 0;
    memcpy(copy, c->in.data, head);
    copy[head] = 0;
    r = parse_head(copy, head);
    if (r.wrong) {
        answer(c, r.wrong, NULL, 0, true);
        return -1;
    }
    if (c->in.len - head < r.body)
        return 0;
    run(c, &r, c->in.data + head);
    fbr_buf_consume(&c->in, head + r.body);
    return r.last ? -1 : 1;
}

/* ---- the table ---- */

static struct fbr_service *rendezvous_open(const struct fbr_service_host *host)
{
    struct fbr_service *s = calloc(1, sizeof(*s));

    if (s)
        s->host = host;
    return s;
}

static struct fbr_service_conn *rendezvous_opened(struct fbr_service *s, void *peer)
{
    struct fbr_service_conn *c = calloc(1, sizeof(*c));

    if (c)
        *c = (struct fbr_service_conn){.service = s, .peer = peer};
    return c;
}

static void rendezvous_closed(struct fbr_service_conn *c)
{
    fbr_buf_fini(&c->in);
    free(c);
}

static void rendezvous_bytes(struct fbr_service_conn *c, const void *data, size_t len)
{
    int rc = 1;

    fbr_put(&c->in, data, len);
    if (c->in.failed)
        rc = -1;
    while (rc > 0 && c->in.len)
        rc = run_one(c);
    if (rc < 0) {
        c->service->host->hang_up(c->peer);
        rendezvous_closed(c);
    }
}

static void rendezvous_close(struct fbr_service *s)
{
    while (s->entries)
        entry_free(s, s->entries);
    free(s);
}

const struct fbr_service_ops fbr_service_rendezvous = {
    .name = "rendezvous",
    .open = rendezvous_open,
    .opened = rendezvous_opened,
    .bytes = rendezvous_bytes,
    .closed = rendezvous_closed,
    .close = rendezvous_close,
};
