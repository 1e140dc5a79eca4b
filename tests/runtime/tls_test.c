/* tls_test.c - the TLS engine of runtime/net/tls.h against itself, against hostile bytes and against
 * peers that OpenSSL itself makes of other protocols.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>

#include "runtime/net/tls.h"

#define WHO "job-5f1c/7/1"

static const uint8_t good_key[FBR_KEY_SIZE] = "0123456789abcdefghijklmnopqrstu";
static const uint8_t bad_key[FBR_KEY_SIZE] = "0123456789abcdefghijklmnopqrstv";

struct pair {
    struct fbr_tls *client, *server;
    struct fbr_error client_err, server_err;
    int client_rc, server_rc; /* the first error of each */
    int lookups;
};

static int lookup(void *user, const char *identity, uint8_t psk[FBR_KEY_SIZE])
{
    struct pair *p = user;

    p->lookups++;
    if (strcmp(identity, WHO) != 0)
        return -ENOENT;
    memcpy(psk, good_key, FBR_KEY_SIZE);
    return 0;
}

static void pair_open(struct pair *p, const char *identity, const uint8_t key[FBR_KEY_SIZE])
{
    memset(p, 0, sizeof(*p));
    assert_int_equal(fbr_tls_client(&p->client, identity, key, &p->client_err), 0);
    assert_int_equal(fbr_tls_server(&p->server, lookup, p, &p->server_err), 0);
    assert_int_equal(fbr_tls_step(p->client, &p->client_err), 0);
    assert_int_equal(fbr_tls_step(p->server, &p->server_err), 0);
}

static void pair_close(struct pair *p)
{
    fbr_tls_free(p->client);
    fbr_tls_free(p->server);
}

static size_t pending(struct fbr_tls *t, struct fbr_buf *out)
{
    size_t before = out->len;

    assert_int_equal(fbr_tls_pending(t, out), 0);
    return out->len - before;
}

/* Carries what `from` has to send to `to`, in pieces of `piece` bytes (0: all at once). Returns how
 * many bytes. */
static size_t carry(struct fbr_tls *from, struct fbr_tls *to, size_t piece, int *rc,
                    struct fbr_error *err)
{
    struct fbr_buf b = {0};
    size_t len, at = 0;

    len = pending(from, &b);
    while (at < len && !*rc) {
        size_t n = piece && piece < len - at ? piece : len - at;

        *rc = fbr_tls_feed(to, b.data + at, n, err);
        at += n;
    }
    fbr_buf_fini(&b);
    return len;
}

static void shake(struct pair *p, size_t piece)
{
    size_t moved;

    do {
        moved = carry(p->client, p->server, piece, &p->server_rc, &p->server_err);
        moved += carry(p->server, p->client, piece, &p->client_rc, &p->client_err);
    } while (moved > 0);
}

static void pair_ready(struct pair *p)
{
    pair_open(p, WHO, good_key);
    shake(p, 0);
    assert_int_equal(p->client_rc, 0);
    assert_int_equal(p->server_rc, 0);
    assert_true(fbr_tls_ready(p->client));
    assert_true(fbr_tls_ready(p->server));
}

static void assert_reads(struct fbr_tls *t, const void *text, size_t len)
{
    struct fbr_buf plain = {0};

    assert_int_equal(fbr_tls_read(t, &plain, NULL), 0);
    assert_int_equal(plain.len, len);
    if (len > 0)
        assert_memory_equal(plain.data, text, len);
    fbr_buf_fini(&plain);
}

static void both_ends_agree_and_talk(void **state)
{
    struct pair p;

    pair_ready(&p);
    assert_string_equal(fbr_tls_identity(p.server), WHO);
    assert_int_equal(p.lookups, 1);
    assert_int_equal(fbr_tls_write(p.client, "question", 8, NULL), 0);
    assert_int_equal(fbr_tls_write(p.server, "answer", 6, NULL), 0);
    assert_int_equal(fbr_tls_write(p.server, "", 0, NULL), 0);
    shake(&p, 0);
    assert_reads(p.server, "question", 8);
    assert_reads(p.client, "answer", 6);
    assert_reads(p.client, NULL, 0);
    pair_close(&p);
}

static void a_handshake_fed_byte_by_byte_completes(void **state)
{
    struct pair p;

    pair_open(&p, WHO, good_key);
    assert_null(fbr_tls_identity(p.server));
    shake(&p, 1);
    assert_true(fbr_tls_ready(p.client));
    assert_true(fbr_tls_ready(p.server));
    assert_int_equal(fbr_tls_write(p.server, "slow", 4, NULL), 0);
    shake(&p, 1);
    assert_reads(p.client, "slow", 4);
    pair_close(&p);
}

static void nothing_but_the_handshake_is_sent(void **state)
{
    struct fbr_buf b = {0};
    struct pair p;

    pair_ready(&p);
    assert_int_equal(pending(p.server, &b), 0); /* no session tickets */
    assert_int_equal(pending(p.client, &b), 0);
    fbr_buf_fini(&b);
    pair_close(&p);
}

static void data_behind_the_last_handshake_bytes_is_kept(void **state)
{
    size_t len = 300000;
    char *big = malloc(len);
    struct fbr_buf b = {0};
    struct pair p;

    memset(big, 'x', len);
    pair_open(&p, WHO, good_key);
    carry(p.client, p.server, 0, &p.server_rc, &p.server_err);
    carry(p.server, p.client, 0, &p.client_rc, &p.client_err);
    assert_true(fbr_tls_ready(p.client));
    assert_false(fbr_tls_ready(p.server));
    assert_int_equal(fbr_tls_write(p.client, big, len, NULL), 0);
    assert_true(pending(p.client, &b) > len);
    assert_int_equal(fbr_tls_feed(p.server, b.data, b.len, &p.server_err), 0);
    assert_true(fbr_tls_ready(p.server));
    assert_reads(p.server, big, len);
    fbr_buf_fini(&b);
    pair_close(&p);
    free(big);
}

static void long_messages_arrive_whole(void **state)
{
    size_t len = ((size_t)4 << 20) + 5;
    uint8_t *big = malloc(len);
    struct pair p;

    for (size_t i = 0; i < len; i++)
        big[i] = (uint8_t)(i % 251);
    pair_ready(&p);
    assert_int_equal(fbr_tls_write(p.server, big, len, NULL), 0);
    shake(&p, 100003);
    assert_int_equal(p.client_rc, 0);
    assert_reads(p.client, big, len);
    pair_close(&p);
    free(big);
}

static void the_exporter_is_equal_on_both_ends_only(void **state)
{
    uint8_t a[64], b[64], zeros[64] = {0};
    struct pair p, q;

    pair_ready(&p);
    pair_ready(&q);
    assert_int_equal(fbr_tls_export(p.client, "fiber data", "up", 2, a, sizeof(a)), 0);
    assert_int_equal(fbr_tls_export(p.server, "fiber data", "up", 2, b, sizeof(b)), 0);
    assert_memory_equal(a, b, sizeof(a));
    assert_memory_not_equal(a, zeros, sizeof(a));
    assert_int_equal(fbr_tls_export(p.server, "fiber data", "down", 4, b, sizeof(b)), 0);
    assert_memory_not_equal(a, b, sizeof(a));
    assert_int_equal(fbr_tls_export(p.server, "fiber else", "up", 2, b, sizeof(b)), 0);
    assert_memory_not_equal(a, b, sizeof(a));
    assert_int_equal(fbr_tls_export(p.server, "fiber data", NULL, 0, b, sizeof(b)), 0);
    assert_memory_not_equal(a, b, sizeof(a));
    assert_int_equal(fbr_tls_export(q.client, "fiber data", "up", 2, b, sizeof(b)), 0);
    assert_memory_not_equal(a, b, sizeof(a));
    pair_close(&p);
    pair_close(&q);
}

/* Runs a handshake that must fail on both ends with -EACCES. Returns what the server sent: its
 * alert. */
static struct fbr_buf refused(const char *identity, const uint8_t *key)
{
    struct fbr_buf b = {0};
    struct pair p;

    pair_open(&p, identity, key);
    carry(p.client, p.server, 0, &p.server_rc, &p.server_err);
    assert_int_equal(p.server_rc, -EACCES);
    assert_non_null(strstr(p.server_err.text, "does not hold its key"));
    assert_true(pending(p.server, &b) > 0);
    assert_int_equal(fbr_tls_feed(p.client, b.data, b.len, &p.client_err), -EACCES);
    assert_non_null(strstr(p.client_err.text, identity));
    assert_false(fbr_tls_ready(p.client));
    assert_false(fbr_tls_ready(p.server));
    assert_null(fbr_tls_identity(p.server));
    assert_int_equal(fbr_tls_step(p.server, NULL), -EACCES);
    assert_int_equal(fbr_tls_feed(p.server, "x", 1, NULL), -EACCES);
    assert_int_equal(fbr_tls_read(p.server, &b, NULL), -EACCES);
    assert_int_equal(fbr_tls_write(p.server, "x", 1, NULL), -EACCES);
    pair_close(&p);
    return b;
}

static void wrong_keys_and_unknown_identities_are_refused_alike(void **state)
{
    struct fbr_buf a = refused(WHO, bad_key);
    struct fbr_buf b = refused("job-5f1c/8/1", good_key);

    assert_int_equal(a.len, b.len);
    assert_memory_equal(a.data, b.data, a.len);
    fbr_buf_fini(&a);
    fbr_buf_fini(&b);
}

static void an_identity_is_short_and_printable(void **state)
{
    char identity[FBR_TLS_IDENTITY_MAX + 2];
    struct fbr_tls *t = NULL;

    memset(identity, 'i', sizeof(identity));
    identity[FBR_TLS_IDENTITY_MAX + 1] = '\0';
    assert_int_equal(fbr_tls_client(&t, identity, good_key, NULL), -EINVAL);
    assert_int_equal(fbr_tls_client(&t, "", good_key, NULL), -EINVAL);
    assert_int_equal(fbr_tls_client(&t, NULL, good_key, NULL), -EINVAL);
    assert_int_equal(fbr_tls_client(&t, "a b", good_key, NULL), -EINVAL);
    assert_int_equal(fbr_tls_client(&t, "\033[2J", good_key, NULL), -EINVAL);
    assert_null(t);
    identity[FBR_TLS_IDENTITY_MAX] = '\0';
    assert_int_equal(fbr_tls_client(&t, identity, good_key, NULL), 0);
    fbr_tls_free(t);
    fbr_tls_free(NULL);
}

static void nothing_is_read_written_or_exported_before_authentication(void **state)
{
    struct fbr_buf b = {0};
    struct pair p;

    pair_open(&p, WHO, good_key);
    assert_int_equal(fbr_tls_read(p.client, &b, NULL), -EAGAIN);
    assert_int_equal(fbr_tls_write(p.client, "x", 1, NULL), -EAGAIN);
    assert_int_equal(fbr_tls_export(p.client, "l", NULL, 0, &(uint8_t){0}, 1), -EAGAIN);
    carry(p.client, p.server, 0, &p.server_rc, &p.server_err);
    assert_int_equal(fbr_tls_read(p.server, &b, NULL), -EAGAIN);
    assert_int_equal(fbr_tls_write(p.server, "x", 1, NULL), -EAGAIN);
    assert_int_equal(fbr_tls_export(p.server, "l", NULL, 0, &(uint8_t){0}, 1), -EAGAIN);
    shake(&p, 0);
    assert_true(fbr_tls_ready(p.client) && fbr_tls_ready(p.server));
    fbr_buf_fini(&b);
    pair_close(&p);
}

static void a_flipped_bit_in_a_record_ends_the_connection(void **state)
{
    for (size_t at = 0; at < 4 + 5 + 1 + 16; at++) {
        struct fbr_buf b = {0}, plain = {0};
        struct pair p;
        int rc;

        pair_ready(&p);
        assert_int_equal(fbr_tls_write(p.client, "text", 4, NULL), 0);
        assert_int_equal(pending(p.client, &b), 4 + 5 + 1 + 16);
        b.data[at] ^= 1;
        assert_int_equal(fbr_tls_feed(p.server, b.data, b.len, NULL), 0);
        rc = fbr_tls_read(p.server, &plain, &p.server_err);
        for (int i = 0; i < 20 && rc == 0;
             i++) { /* its length has grown: it is waited for, and then fails */
            assert_int_equal(fbr_tls_feed(p.server, b.data, b.len, NULL), 0);
            rc = fbr_tls_read(p.server, &plain, &p.server_err);
        }
        assert_int_equal(rc, -EPROTO);
        assert_int_equal(plain.len, 0);
        assert_int_equal(fbr_tls_read(p.server, &plain, NULL), -EPROTO);
        fbr_buf_fini(&b);
        fbr_buf_fini(&plain);
        pair_close(&p);
    }
}

static void a_replayed_record_ends_the_connection(void **state)
{
    struct fbr_buf b = {0}, plain = {0};
    struct pair p;

    pair_ready(&p);
    assert_int_equal(fbr_tls_write(p.client, "once", 4, NULL), 0);
    pending(p.client, &b);
    assert_int_equal(fbr_tls_feed(p.server, b.data, b.len, NULL), 0);
    assert_reads(p.server, "once", 4);
    assert_int_equal(fbr_tls_feed(p.server, b.data, b.len, NULL), 0);
    assert_int_equal(fbr_tls_read(p.server, &plain, NULL), -EPROTO);
    assert_int_equal(plain.len, 0);
    fbr_buf_fini(&b);
    fbr_buf_fini(&plain);
    pair_close(&p);
}

/* Whatever byte is changed on the way, the two ends never both become ready; but for the minor
 * version in the header of the two plaintext records, which means nothing and must be ignored (RFC
 * 8446, section 5.1). */
static void a_flipped_bit_in_the_handshake_is_never_accepted(void **state)
{
    bool more = true;

    for (size_t at = 0; more; at++) {
        bool matters = true;
        size_t seen = 0;
        struct pair p;

        more = false;
        pair_open(&p, WHO, good_key);
        for (int flight = 0; flight < 3; flight++) {
            struct fbr_tls *from = flight == 1 ? p.server : p.client,
                           *to = flight == 1 ? p.client : p.server;
            struct fbr_buf b = {0};

            pending(from, &b);
            if (at >= seen && at < seen + b.len) {
                b.data[at - seen] ^= (uint8_t)(1 << at % 8);
                more = true;
                matters = flight == 2 || at - seen != 2;
            }
            seen += b.len;
            (void)!fbr_tls_feed(to, b.data, b.len, NULL);
            fbr_buf_fini(&b);
        }
        assert_int_equal(fbr_tls_ready(p.server) && fbr_tls_ready(p.client), !more || !matters);
        assert_true(more || at > 400);
        pair_close(&p);
    }
}

static void a_recorded_client_is_refused_later(void **state)
{
    struct fbr_buf first = {0}, last = {0};
    struct pair p, q;

    pair_open(&p, WHO, good_key);
    pending(p.client, &first);
    assert_int_equal(fbr_tls_feed(p.server, first.data, first.len, NULL), 0);
    carry(p.server, p.client, 0, &p.client_rc, &p.client_err);
    pending(p.client, &last);
    assert_int_equal(fbr_tls_feed(p.server, last.data, last.len, NULL), 0);
    assert_true(fbr_tls_ready(p.server));
    pair_open(&q, WHO, good_key);
    assert_int_equal(fbr_tls_feed(q.server, first.data, first.len, NULL), 0);
    assert_int_equal(fbr_tls_feed(q.server, last.data, last.len, &q.server_err), -EPROTO);
    assert_false(fbr_tls_ready(q.server));
    fbr_buf_fini(&first);
    fbr_buf_fini(&last);
    pair_close(&p);
    pair_close(&q);
}

/* Feeds the bytes to a fresh server and a fresh client: an error with a sentence, or the wait for
 * more. */
static int server_refuses(const void *bytes, size_t len)
{
    struct pair p;

    pair_open(&p, WHO, good_key);
    p.server_rc = fbr_tls_feed(p.server, bytes, len, &p.server_err);
    p.client_rc = fbr_tls_feed(p.client, bytes, len, &p.client_err);
    assert_true(p.server_rc == 0 || p.server_rc == -EPROTO);
    assert_true(p.client_rc == 0 || p.client_rc == -EPROTO || p.client_rc == -EACCES);
    assert_true(p.server_rc == 0 || p.server_err.text[0]);
    assert_false(fbr_tls_ready(p.server) || fbr_tls_ready(p.client));
    assert_int_equal(p.lookups, 0);
    pair_close(&p);
    return p.server_rc;
}

static void other_protocols_are_refused_at_once(void **state)
{
    static const char http[] = "GET / HTTP/1.1\r\nHost: x\r\n\r\n",
                      ssh[] = "SSH-2.0-OpenSSH_9.2p1\r\n",
                      unknown_message[] = "\x16\x03\x01\x00\x04....",
                      ssl2[] = "\x80\x0c\x01\x03\x01.........",
                      alert[] = "\x15\x03\x03\x00\x02\x02\x28",
                      data[] = "\x17\x03\x03\x00\x10................",
                      huge_record[] = "\x16\x03\x01\xff\xff\x01\xff\xff\xff";

    assert_int_equal(server_refuses(http, sizeof(http) - 1), -EPROTO);
    assert_int_equal(server_refuses(ssh, sizeof(ssh) - 1), -EPROTO);
    assert_int_equal(server_refuses(unknown_message, sizeof(unknown_message) - 1), -EPROTO);
    assert_int_equal(server_refuses(ssl2, sizeof(ssl2) - 1), -EPROTO);
    assert_int_equal(server_refuses(alert, sizeof(alert) - 1), -EPROTO);
    assert_int_equal(server_refuses(data, sizeof(data) - 1), -EPROTO);
    assert_int_equal(server_refuses(huge_record, sizeof(huge_record) - 1), -EPROTO);
}

static void garbage_is_a_clean_error(void **state)
{
    unsigned seed = 99;

    for (int i = 0; i < 300; i++) {
        uint8_t noise[200];

        for (size_t k = 0; k < sizeof(noise); k++)
            noise[k] = (uint8_t)rand_r(&seed);
        if (i % 2) { /* looks like a handshake record */
            noise[0] = 0x16;
            noise[1] = 0x03;
            noise[3] = 0;
        }
        server_refuses(noise, sizeof(noise));
    }
}

/* A ClientHello that claims to be 100,000 bytes long, in records as large as they may be. */
static void a_peer_cannot_make_us_hold_much_before_it_is_authenticated(void **state)
{
    uint8_t record[5 + 2000] = {0x16, 3, 1, 2000 >> 8, 2000 & 255, 0x01, 0x01, 0x86, 0xa0, 3, 3};
    struct pair p;
    size_t fed = 0;

    pair_open(&p, WHO, good_key);
    while (p.server_rc == 0 && fed < (1 << 20)) {
        p.server_rc = fbr_tls_feed(p.server, record, sizeof(record), &p.server_err);
        fed += sizeof(record);
    }
    assert_int_equal(p.server_rc, -EPROTO);
    assert_in_range(fed, FBR_TLS_HANDSHAKE_MAX, FBR_TLS_HANDSHAKE_MAX + sizeof(record));
    assert_non_null(strstr(p.server_err.text, "handshake is not complete"));
    pair_close(&p);
}

/* --- a ClientHello that is changed and signed anew: RFC 8446, sections 4.2.11.2 and 7.1 --- */

#define HASH 48 /* SHA-384 */

static void hmac(const uint8_t *key, size_t key_len, const void *data, size_t len,
                 uint8_t out[HASH])
{
    unsigned n = HASH;

    assert_non_null(HMAC(EVP_sha384(), key, (int)key_len, data, len, out, &n));
}

static void expand_label(const uint8_t secret[HASH], const char *label, const uint8_t *context,
                         size_t context_len, uint8_t out[HASH])
{
    uint8_t info[128] = {0, HASH};
    size_t n = 3;

    info[2] = (uint8_t)(6 + strlen(label));
    n += (size_t)sprintf((char *)info + n, "tls13 %s", label);
    info[n++] = (uint8_t)context_len;
    if (context_len > 0)
        memcpy(info + n, context, context_len);
    n += context_len;
    info[n++] = 1;
    hmac(secret, HASH, info, n, out);
}

/* Replaces the one binder, the last 48 bytes of the hello, by the one that fits the rest under
 * good_key. */
static void sign(struct fbr_buf *hello)
{
    uint8_t zeros[HASH] = {0}, early[HASH], binder_key[HASH], finished[HASH], digest[HASH];
    size_t cut = hello->len - HASH - 3; /* without the list of binders and its two lengths */

    hmac(zeros, HASH, good_key, FBR_KEY_SIZE, early);
    assert_int_equal(EVP_Digest("", 0, digest, NULL, EVP_sha384(), NULL), 1);
    expand_label(early, "ext binder", digest, HASH, binder_key);
    expand_label(binder_key, "finished", NULL, 0, finished);
    assert_int_equal(EVP_Digest(hello->data + 5, cut - 5, digest, NULL, EVP_sha384(), NULL), 1);
    hmac(finished, HASH, digest, HASH, hello->data + hello->len - HASH);
}

static int server_takes(struct fbr_buf *hello, struct fbr_error *err)
{
    struct pair p;
    int rc;

    pair_open(&p, WHO, good_key);
    rc = fbr_tls_feed(p.server, hello->data, hello->len, err);
    assert_false(fbr_tls_ready(p.server));
    pair_close(&p);
    return rc;
}

static void a_client_that_wants_no_key_exchange_is_refused(void **state)
{
    static const uint8_t dhe_only[] = {0, 45, 0, 2, 1, 1}; /* psk_key_exchange_modes: psk_dhe_ke */
    struct fbr_buf hello = {0};
    struct fbr_error err;
    struct pair p;
    uint8_t *mode;

    pair_open(&p, WHO, good_key);
    pending(p.client, &hello);
    mode = memmem(hello.data, hello.len, dhe_only, sizeof(dhe_only));
    assert_non_null(mode);

    memset(hello.data + hello.len - HASH, 0, HASH);
    assert_int_equal(server_takes(&hello, &err), -EACCES);
    sign(&hello); /* proof that the signature made here is right */
    assert_int_equal(server_takes(&hello, &err), 0);
    mode[5] = 0; /* psk_ke */
    sign(&hello);
    assert_int_equal(server_takes(&hello, &err), -EPROTO);
    fbr_buf_fini(&hello);
    pair_close(&p);
}

/* --- peers that OpenSSL makes --- */

static unsigned old_client_key(SSL *ssl, const char *hint, char *identity, unsigned identity_size,
                               uint8_t *psk, unsigned psk_size)
{
    assert_true(psk_size >= FBR_KEY_SIZE);
    snprintf(identity, identity_size, "%s", WHO);
    memcpy(psk, good_key, FBR_KEY_SIZE);
    return FBR_KEY_SIZE;
}

static SSL *peer_open(SSL_CTX *ctx, bool client)
{
    SSL *ssl = SSL_new(ctx);

    assert_non_null(ssl);
    SSL_set_bio(ssl, BIO_new(BIO_s_mem()), BIO_new(BIO_s_mem()));
    if (client)
        SSL_set_connect_state(ssl);
    else
        SSL_set_accept_state(ssl);
    return ssl;
}

/* Lets the two talk until both are silent. Returns t's first error. */
static int peer_shake(SSL *peer, struct fbr_tls *t, struct fbr_error *err)
{
    int rc = fbr_tls_step(t, err);

    for (int round = 0; round < 5; round++) {
        struct fbr_buf b = {0};
        char *out;
        long len;

        if (pending(t, &b) > 0)
            assert_int_equal(BIO_write(SSL_get_rbio(peer), b.data, (int)b.len), (int)b.len);
        fbr_buf_fini(&b);
        SSL_do_handshake(peer);
        len = BIO_get_mem_data(SSL_get_wbio(peer), &out);
        if (rc == 0)
            rc = fbr_tls_feed(t, out, (size_t)len, err);
        BIO_reset(SSL_get_wbio(peer));
    }
    ERR_clear_error();
    return rc;
}

static int server_meets(SSL_CTX *ctx, struct fbr_error *err)
{
    SSL *peer = peer_open(ctx, true);
    struct pair p;
    int rc;

    SSL_CTX_free(ctx);
    pair_open(&p, WHO, good_key);
    rc = peer_shake(peer, p.server, err);
    assert_false(fbr_tls_ready(p.server));
    assert_false(SSL_is_init_finished(peer));
    SSL_free(peer);
    pair_close(&p);
    return rc;
}

static void a_client_of_tls_1_2_is_refused(void **state)
{
    SSL_CTX *ctx = SSL_CTX_new(TLS_client_method());
    struct fbr_error err;

    assert_int_equal(SSL_CTX_set_max_proto_version(ctx, TLS1_2_VERSION), 1);
    assert_int_equal(SSL_CTX_set_cipher_list(ctx, "PSK"), 1);
    SSL_CTX_set_psk_client_callback(ctx, old_client_key);
    assert_int_equal(server_meets(ctx, &err), -EPROTO);
    assert_non_null(strstr(err.text, "unsupported protocol"));
}

static void a_client_with_another_suite_is_refused(void **state)
{
    SSL_CTX *ctx = SSL_CTX_new(TLS_client_method());
    struct fbr_error err;

    assert_int_equal(SSL_CTX_set_min_proto_version(ctx, TLS1_3_VERSION), 1);
    assert_int_equal(SSL_CTX_set_ciphersuites(ctx, "TLS_AES_128_GCM_SHA256"), 1);
    SSL_CTX_set_psk_client_callback(ctx, old_client_key); /* in TLS 1.3 this is a key for SHA-256 */
    assert_int_equal(server_meets(ctx, &err), -EPROTO);
}

static X509 *self_signed(EVP_PKEY *key)
{
    X509 *cert = X509_new();
    X509_NAME *name = X509_get_subject_name(cert);

    X509_set_version(cert, 2);
    ASN1_INTEGER_set(X509_get_serialNumber(cert), 1);
    X509_gmtime_adj(X509_getm_notBefore(cert), -60);
    X509_gmtime_adj(X509_getm_notAfter(cert), 3600);
    X509_NAME_add_entry_by_txt(name, "CN", MBSTRING_ASC, (const uint8_t *)"master", -1, -1, 0);
    X509_set_issuer_name(cert, name);
    X509_set_pubkey(cert, key);
    assert_true(X509_sign(cert, key, EVP_sha256()) > 0);
    return cert;
}

static void a_server_with_a_certificate_instead_of_the_key_is_refused(void **state)
{
    SSL_CTX *ctx = SSL_CTX_new(TLS_server_method());
    EVP_PKEY *key = EVP_EC_gen("P-256");
    X509 *cert = self_signed(key);
    struct fbr_error err;
    struct pair p;
    SSL *peer;

    assert_int_equal(SSL_CTX_use_certificate(ctx, cert), 1);
    assert_int_equal(SSL_CTX_use_PrivateKey(ctx, key), 1);
    peer = peer_open(ctx, false);
    pair_open(&p, WHO, good_key);
    assert_int_equal(peer_shake(peer, p.client, &err), -EACCES);
    assert_non_null(strstr(err.text, "certificate"));
    assert_false(fbr_tls_ready(p.client));
    SSL_free(peer);
    pair_close(&p);
    X509_free(cert);
    EVP_PKEY_free(key);
    SSL_CTX_free(ctx);
}

static void *shake_often(void *arg)
{
    for (int i = 0; i < 25; i++) {
        struct pair p;

        pair_ready(&p);
        pair_close(&p);
    }
    return NULL;
}

static void connections_of_several_threads_do_not_meet(void **state)
{
    pthread_t threads[4];

    for (size_t i = 0; i < 4; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, shake_often, NULL), 0);
    for (size_t i = 0; i < 4; i++)
        pthread_join(threads[i], NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(
            /* first: the shared context is made there */
            connections_of_several_threads_do_not_meet),
        cmocka_unit_test(both_ends_agree_and_talk),
        cmocka_unit_test(a_handshake_fed_byte_by_byte_completes),
        cmocka_unit_test(nothing_but_the_handshake_is_sent),
        cmocka_unit_test(data_behind_the_last_handshake_bytes_is_kept),
        cmocka_unit_test(long_messages_arrive_whole),
        cmocka_unit_test(the_exporter_is_equal_on_both_ends_only),
        cmocka_unit_test(wrong_keys_and_unknown_identities_are_refused_alike),
        cmocka_unit_test(an_identity_is_short_and_printable),
        cmocka_unit_test(nothing_is_read_written_or_exported_before_authentication),
        cmocka_unit_test(a_flipped_bit_in_a_record_ends_the_connection),
        cmocka_unit_test(a_replayed_record_ends_the_connection),
        cmocka_unit_test(a_flipped_bit_in_the_handshake_is_never_accepted),
        cmocka_unit_test(a_recorded_client_is_refused_later),
        cmocka_unit_test(other_protocols_are_refused_at_once),
        cmocka_unit_test(garbage_is_a_clean_error),
        cmocka_unit_test(a_peer_cannot_make_us_hold_much_before_it_is_authenticated),
        cmocka_unit_test(a_client_that_wants_no_key_exchange_is_refused),
        cmocka_unit_test(a_client_of_tls_1_2_is_refused),
        cmocka_unit_test(a_client_with_another_suite_is_refused),
        cmocka_unit_test(a_server_with_a_certificate_instead_of_the_key_is_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
