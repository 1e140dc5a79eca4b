/* tls.c - TLS 1.3 with an external pre-shared key over memory buffers, with OpenSSL.
 *
 * All connections share one SSL_CTX, which is built once and is then read-only: building it takes a
 * millisecond, a connection 30 us. It has no certificate, so a server can only answer with the key,
 * and a client would have to verify a certificate (without any root) to accept anything else. After
 * the handshake both sides check again that the key was used. OpenSSL does not use psk_ke unless
 * asked.
 *
 * The lookup of an unknown identity returns a random key: the handshake then fails at the same
 * point and in the same way as with a wrong key, before any public-key work.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "runtime/net/tls.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include <openssl/crypto.h>
#include <openssl/err.h>
#include <openssl/ssl.h>

/* bytes fed at a time: at most so many behind the handshake count as a part of it */
#define FEED_SLICE 1024
#define READ_CHUNK (16 * 1024)
#define KEPT_MAX (64 * 1024) /* bytes of memory that an idle connection may keep */
#define MAX_LOOKUPS 2        /* a second ClientHello, after a HelloRetryRequest, looks up again */

static const unsigned char suite[2] = {0x13, 0x02}; /* TLS_AES_256_GCM_SHA384 */

struct fbr_tls {
    SSL *ssl;
    BIO *in, *out; /* ciphertext from and to the peer; owned by ssl */
    fbr_tls_lookup_fn *lookup;
    void *user;
    size_t handshake_bytes; /* bytes fed before the peer was authenticated */
    int lookups, lookup_rc;
    int failed; /* negative errno that ended the connection */
    bool server, ready;
    char identity[FBR_TLS_IDENTITY_MAX + 1];
    uint8_t psk[FBR_KEY_SIZE]; /* the client's key, until ready */
};

static SSL_CTX *shared_ctx; /* NULL until it is built; under the lock */
static pthread_mutex_t shared_lock = PTHREAD_MUTEX_INITIALIZER;

static bool identity_ok(const unsigned char *id, size_t len)
{
    if (len == 0 || len > FBR_TLS_IDENTITY_MAX)
        return false;
    for (size_t i = 0; i < len; i++)
        if (id[i] <= ' ' || id[i] > '~')
            return false;
    return true;
}

static SSL_SESSION *psk_session(SSL *ssl, const uint8_t psk[FBR_KEY_SIZE])
{
    const SSL_CIPHER *cipher = SSL_CIPHER_find(ssl, suite);
    SSL_SESSION *session = SSL_SESSION_new();

    if (session && cipher && SSL_SESSION_set1_master_key(session, psk, FBR_KEY_SIZE) &&
        SSL_SESSION_set_cipher(session, cipher) &&
        SSL_SESSION_set_protocol_version(session, TLS1_3_VERSION))
        return session;
    SSL_SESSION_free(session);
    return NULL;
}

static int use_key(SSL *ssl, const EVP_MD *md, const unsigned char **id, size_t *id_len,
                   SSL_SESSION **session)
{
    struct fbr_tls *t = SSL_get_app_data(ssl);

    (void)md; /* there is one suite, so one hash */
    *session = psk_session(ssl, t->psk);
    *id = (const unsigned char *)t->identity;
    *id_len = strlen(t->identity);
    return *session != NULL;
}

static int find_key(SSL *ssl, const unsigned char *id, size_t id_len, SSL_SESSION **session)
{
    struct fbr_tls *t = SSL_get_app_data(ssl);
    uint8_t psk[FBR_KEY_SIZE];

    *session = NULL;
    if (t->lookups++ == MAX_LOOKUPS)
        return 0;
    t->lookup_rc = -EINVAL;
    t->identity[0] = '\0';
    if (identity_ok(id, id_len)) {
        memcpy(t->identity, id, id_len);
        t->identity[id_len] = '\0';
        t->lookup_rc = t->lookup(t->user, t->identity, psk);
    }
    if (t->lookup_rc == 0 || fbr_random(psk, sizeof(psk)) == 0)
        *session = psk_session(ssl, psk);
    fbr_wipe(psk, sizeof(psk));
    return *session != NULL;
}

static SSL_CTX *ctx_new(void)
{
    SSL_CTX *ctx;

    /* Fiber's own cleanup runs after the exit handlers */
    OPENSSL_init_crypto(OPENSSL_INIT_NO_ATEXIT, NULL);
    ctx = SSL_CTX_new(TLS_method());
    if (!ctx)
        return NULL;
    SSL_CTX_clear_options(ctx, SSL_OP_ENABLE_MIDDLEBOX_COMPAT | SSL_OP_ALLOW_NO_DHE_KEX);
    SSL_CTX_set_options(ctx, SSL_OP_NO_TICKET | SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION);
    SSL_CTX_set_mode(ctx, SSL_MODE_RELEASE_BUFFERS); /* thousands of connections may be idle */
    SSL_CTX_set_session_cache_mode(ctx, SSL_SESS_CACHE_OFF);
    SSL_CTX_set_verify(ctx, SSL_VERIFY_NONE, NULL);
    SSL_CTX_set_quiet_shutdown(ctx, 0);
    SSL_CTX_set_psk_use_session_callback(ctx, use_key);
    SSL_CTX_set_psk_find_session_callback(ctx, find_key);
    if (SSL_CTX_set_min_proto_version(ctx, TLS1_3_VERSION) &&
        SSL_CTX_set_max_proto_version(ctx, TLS1_3_VERSION) &&
        SSL_CTX_set_ciphersuites(ctx, "TLS_AES_256_GCM_SHA384") &&
        SSL_CTX_set1_groups_list(ctx, "X25519") && SSL_CTX_set_num_tickets(ctx, 0) &&
        SSL_CTX_set_max_early_data(ctx, 0) && SSL_CTX_set_recv_max_early_data(ctx, 0))
        return ctx;
    SSL_CTX_free(ctx);
    return NULL;
}

/* Empties this thread's error queue of OpenSSL. Returns whether an error was a lack of memory. */
static bool drain_errors(void)
{
    bool memory = false;
    unsigned long code;

    while ((code = ERR_get_error()) != 0)
        memory = memory || ERR_GET_REASON(code) == ERR_R_MALLOC_FAILURE;
    return memory;
}

static SSL_CTX *ctx_get(struct fbr_error *err)
{
    SSL_CTX *ctx;

    pthread_mutex_lock(&shared_lock);
    ERR_clear_error();
    if (!shared_ctx)
        shared_ctx = ctx_new();
    ctx = shared_ctx;
    pthread_mutex_unlock(&shared_lock);
    if (ctx)
        return ctx;
    if (drain_errors())
        fbr_fail(err, -ENOMEM, "tls: out of memory");
    else
        fbr_fail(err, -ENOTSUP, "tls: OpenSSL offers no TLS 1.3 with AES-256-GCM and X25519 here");
    return NULL;
}

/* Whether a handshake failed because of an identity or key, and not because of the protocol. */
static bool is_refusal(const struct fbr_tls *t, unsigned long code)
{
    int reason = ERR_GET_REASON(code);

    /* The numbers of reasons are different in each library. */
    if (t->ready || ERR_GET_LIB(code) != ERR_LIB_SSL)
        return false;
    if (t->server)
        return reason == SSL_R_BINDER_DOES_NOT_VERIFY;
    /* These are alerts that a server sends to a client whose key it does not accept. */
    switch (reason - SSL_AD_REASON_OFFSET) {
    case SSL_AD_HANDSHAKE_FAILURE:
    case SSL_AD_ILLEGAL_PARAMETER:
    case SSL_AD_ACCESS_DENIED:
    case SSL_AD_DECRYPT_ERROR:
    case SSL_AD_UNKNOWN_PSK_IDENTITY:
        return true;
    default:
        return reason == SSL_R_CERTIFICATE_VERIFY_FAILED;
    }
}

/* Turns OpenSSL's error queue of this thread into the final error of t. */
static int fail(struct fbr_tls *t, const char *doing, struct fbr_error *err)
{
    unsigned long first = ERR_peek_error(); /* the cause; later errors are its consequences */
    const char *why = first ? ERR_reason_error_string(first) : NULL;

    if (!why)
        why = "no reason given";
    if (drain_errors()) {
        t->failed = -ENOMEM;
        return fbr_fail(err, t->failed, "tls: out of memory while %s", doing);
    }
    if (is_refusal(t, first)) {
        t->failed = -EACCES;
        return fbr_fail(err, t->failed,
                        "tls: the peer does not accept '%s' or does not hold its key (%s)",
                        t->identity, why);
    }
    t->failed = -EPROTO;
    return fbr_fail(err, t->failed, "tls: %s failed: %s", doing, why);
}

static int again(const struct fbr_tls *t, struct fbr_error *err)
{
    if (t->failed)
        return fbr_fail(err, t->failed, "tls: the connection has failed before");
    return 0;
}

static int not_ready(const struct fbr_tls *t, struct fbr_error *err)
{
    int rc = again(t, err);

    if (!rc && !t->ready)
        rc = fbr_fail(err, -EAGAIN, "tls: the handshake is not complete");
    return rc;
}

static int tls_new(struct fbr_tls **out, bool server, struct fbr_error *err)
{
    struct fbr_error why = {0};
    SSL_CTX *ctx = ctx_get(&why);
    struct fbr_tls *t;

    if (!ctx)
        return fbr_fail(err, why.code, "%s", why.text);
    t = calloc(1, sizeof(*t));
    if (!t)
        return fbr_fail(err, -ENOMEM, "tls: out of memory");
    t->server = server;
    t->ssl = SSL_new(ctx);
    t->in = BIO_new(BIO_s_mem());
    t->out = BIO_new(BIO_s_mem());
    if (!t->ssl || !t->in || !t->out || !SSL_set_app_data(t->ssl, t)) {
        BIO_free(t->in);
        BIO_free(t->out);
        SSL_free(t->ssl);
        free(t);
        ERR_clear_error();
        return fbr_fail(err, -ENOMEM, "tls: out of memory");
    }
    SSL_set_bio(t->ssl, t->in, t->out);
    if (server) {
        SSL_set_accept_state(t->ssl);
    } else {
        /* There is no root, so no certificate is ever accepted. */
        SSL_set_verify(t->ssl, SSL_VERIFY_PEER, NULL);
        SSL_set_connect_state(t->ssl);
    }
    *out = t;
    return 0;
}

int fbr_tls_client(struct fbr_tls **out, const char *identity, const uint8_t psk[FBR_KEY_SIZE],
                   struct fbr_error *err)
{
    struct fbr_tls *t;
    int rc;

    if (!identity || !identity_ok((const unsigned char *)identity, strlen(identity)))
        return fbr_fail(err, -EINVAL, "tls: an identity is 1 to %d printable characters",
                        FBR_TLS_IDENTITY_MAX);
    rc = tls_new(&t, false, err);
    if (rc)
        return rc;
    strcpy(t->identity, identity);
    memcpy(t->psk, psk, FBR_KEY_SIZE);
    *out = t;
    return 0;
}

int fbr_tls_server(struct fbr_tls **out, fbr_tls_lookup_fn *lookup, void *user,
                   struct fbr_error *err)
{
    struct fbr_tls *t;
    int rc = tls_new(&t, true, err);

    if (rc)
        return rc;
    t->lookup = lookup;
    t->user = user;
    *out = t;
    return 0;
}

void fbr_tls_free(struct fbr_tls *t)
{
    if (!t)
        return;
    SSL_free(t->ssl);
    fbr_wipe(t, sizeof(*t));
    free(t);
}

int fbr_tls_step(struct fbr_tls *t, struct fbr_error *err)
{
    int rc = again(t, err);

    if (rc || t->ready)
        return rc;
    ERR_clear_error();
    rc = SSL_do_handshake(t->ssl);
    if (rc != 1)
        return SSL_get_error(t->ssl, rc) == SSL_ERROR_WANT_READ ? 0 : fail(t, "the handshake", err);
    if (!SSL_session_reused(t->ssl) || SSL_version(t->ssl) != TLS1_3_VERSION ||
        (t->server && t->lookup_rc)) {
        t->failed = -EACCES;
        return fbr_fail(err, t->failed, "tls: the peer was not authenticated by the key");
    }
    fbr_wipe(t->psk, sizeof(t->psk));
    t->ready = true;
    return 0;
}

/* Passes n bytes to OpenSSL's reader. A memory BIO takes all or nothing. */
static int take(struct fbr_tls *t, const uint8_t *at, size_t n, struct fbr_error *err)
{
    size_t done;

    ERR_clear_error();
    if (BIO_write_ex(t->in, at, n, &done) && done == n)
        return 0;
    ERR_clear_error();
    t->failed = -ENOMEM;
    return fbr_fail(err, t->failed, "tls: out of memory for %zu bytes from the peer", n);
}

int fbr_tls_feed(struct fbr_tls *t, const void *bytes, size_t len, struct fbr_error *err)
{
    const uint8_t *at = bytes;
    int rc = again(t, err);

    while (!rc && len > 0 && !t->ready) {
        size_t n = len < FEED_SLICE ? len : FEED_SLICE;

        if (t->handshake_bytes + n > FBR_TLS_HANDSHAKE_MAX) {
            t->failed = -EPROTO;
            return fbr_fail(err, t->failed,
                            "tls: %d bytes from the peer and the handshake is not complete",
                            FBR_TLS_HANDSHAKE_MAX);
        }
        t->handshake_bytes += n;
        rc = take(t, at, n, err);
        if (!rc)
            rc = fbr_tls_step(t, err);
        at += n;
        len -= n;
    }
    return rc || len == 0 ? rc : take(t, at, len, err);
}

bool fbr_tls_ready(const struct fbr_tls *t)
{
    return t->ready;
}

bool fbr_tls_proven(const struct fbr_tls *t)
{
    return !t->failed && t->lookups && !t->lookup_rc && SSL_session_reused(t->ssl);
}

const char *fbr_tls_identity(const struct fbr_tls *t)
{
    return t->ready ? t->identity : NULL;
}

int fbr_tls_read(struct fbr_tls *t, struct fbr_buf *plain, struct fbr_error *err)
{
    size_t n;
    int rc = not_ready(t, err);

    if (rc)
        return rc;
    for (;;) {
        void *at = fbr_buf_reserve(plain, READ_CHUNK);

        if (!at) /* not final: the unread bytes are still there */
            return fbr_fail(err, -ENOMEM, "tls: out of memory while reading");
        ERR_clear_error();
        rc = SSL_read_ex(t->ssl, at, READ_CHUNK, &n);
        if (rc != 1)
            break;
        plain->len += n;
    }
    return SSL_get_error(t->ssl, rc) == SSL_ERROR_WANT_READ ? 0 : fail(t, "reading", err);
}

int fbr_tls_write(struct fbr_tls *t, const void *bytes, size_t len, struct fbr_error *err)
{
    size_t done = 0;
    int rc = not_ready(t, err);

    if (rc)
        return rc;
    ERR_clear_error();
    if (len > 0 && (SSL_write_ex(t->ssl, bytes, len, &done) != 1 || done != len))
        return fail(t, "writing", err);
    return 0;
}

/* Replaces a buffer that a long message has enlarged. */
static void renew_out(struct fbr_tls *t)
{
    BIO *fresh = BIO_new(BIO_s_mem());

    if (!fresh) {
        ERR_clear_error();
        return;
    }
    t->out = fresh;
    SSL_set0_wbio(t->ssl, fresh);
}

int fbr_tls_pending(struct fbr_tls *t, struct fbr_buf *cipher)
{
    size_t len = BIO_ctrl_pending(t->out), done;
    void *at = fbr_buf_reserve(cipher, len);

    if (!at)
        return -ENOMEM;
    /* Not BIO_reset(), which would wipe all bytes ever written. */
    if (!len || !BIO_read_ex(t->out, at, len, &done))
        return 0;
    cipher->len += done;
    if (len > KEPT_MAX)
        renew_out(t);
    return 0;
}

int fbr_tls_export(struct fbr_tls *t, const char *label, const void *context, size_t context_len,
                   void *out, size_t outlen)
{
    int rc = not_ready(t, NULL);

    memset(out, 0, outlen);
    if (rc)
        return rc;
    ERR_clear_error();
    if (SSL_export_keying_material(t->ssl, out, outlen, label, strlen(label), context, context_len,
                                   1) == 1)
        return 0;
    ERR_clear_error();
    fbr_wipe(out, outlen);
    return -EPROTO;
}
