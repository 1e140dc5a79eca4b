/* tls.h - one TLS 1.3 connection of the control channel, as a pure engine: bytes in, bytes out, no
 * descriptors.
 *
 * Both ends hold the same external pre-shared key (the ticket of random.h) and nothing else: no
 * certificates, no session tickets, no early data, no older protocol. One cipher suite,
 * TLS_AES_256_GCM_SHA384, so that there is nothing to negotiate and the key is only ever used with
 * one hash (RFC 8446, section 4.2.11: an external key belongs to one hash; any key length is good
 * for it). The key exchange is always X25519 under the key (psk_dhe_ke), so a ticket that leaks
 * later opens no recorded connection.
 *
 * The loop around it, the same on both sides:
 *
 *     rc = fbr_tls_step()       the client's first message; nothing to do yet on a server
 *     fbr_tls_pending()         ciphertext to send: after every other call, and also after one that
 *                               failed, because the alert that tells the peer why is in there
 *     rc = fbr_tls_feed(bytes)  what the peer sent, which also takes the handshake on
 *     if fbr_tls_ready():       the peer has proved that it holds the key
 *         fbr_tls_read(), fbr_tls_write()
 *
 * An error is final: close the connection. Every later call answers the same code. Before the
 * handshake is complete a peer is given FBR_TLS_HANDSHAKE_MAX bytes in all, which bounds what it
 * can make us hold; a server's caller bounds the time. After it, ciphertext is held until
 * fbr_tls_read takes it, so read after each feed.
 *
 * An unknown identity and a wrong key look the same from outside (RFC 8446, appendix E.6); the
 * server's error text tells them apart.
 *
 * Threads: one object belongs to one thread at a time; different objects may be used in parallel.
 * The first object of a process initialises OpenSSL.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef FBR_TLS_H
#define FBR_TLS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "runtime/base/random.h"
#include "runtime/base/buf.h"
#include "runtime/base/error.h"

#define FBR_TLS_IDENTITY_MAX 127 /* bytes in an identity, without the NUL */
#define FBR_TLS_HANDSHAKE_MAX \
    (16 * 1024) /* bytes that a peer may send before it is authenticated */

struct fbr_tls;

/* Finds the key of a peer that calls itself `identity` (printable ASCII without spaces, at most
 * FBR_TLS_IDENTITY_MAX bytes, and so far nothing but a claim) and writes it to psk. Returns 0, or a
 * negative errno to refuse the peer. Called within fbr_tls_step or fbr_tls_feed, at most twice per
 * connection; the last answer counts. It must not consume the ticket: only fbr_tls_ready says that
 * the peer holds it. */
typedef int fbr_tls_lookup_fn(void *user, const char *identity, uint8_t psk[FBR_KEY_SIZE]);

/* Both store a connection in *out and return 0, or return a negative errno and leave *out alone.
 * fbr_tls_free() frees the connection. The key is copied, and the copy wiped once it is no longer
 * needed. -EINVAL: the identity is not as above. */
int fbr_tls_client(struct fbr_tls **out, const char *identity, const uint8_t psk[FBR_KEY_SIZE],
                   struct fbr_error *err) __attribute__((warn_unused_result));
int fbr_tls_server(struct fbr_tls **out, fbr_tls_lookup_fn *lookup, void *user,
                   struct fbr_error *err) __attribute__((warn_unused_result));
void fbr_tls_free(struct fbr_tls *t); /* accepts NULL */

/* Takes the handshake on as far as what was fed allows. 0 (ready or not), -EACCES when the keys or
 * identities do not agree (on a client: the peer refused us, or could not prove that it has our
 * key), -EPROTO for anything that is not the protocol above, -ENOMEM (or -EPROTO, where OpenSSL
 * does not say that it was memory). */
int fbr_tls_step(struct fbr_tls *t, struct fbr_error *err) __attribute__((warn_unused_result));

/* Takes all len bytes of ciphertext that came from the peer, and steps. Errors as fbr_tls_step. */
int fbr_tls_feed(struct fbr_tls *t, const void *bytes, size_t len, struct fbr_error *err)
    __attribute__((warn_unused_result));

/* Whether the handshake is complete: the peer is authenticated and is alive now. Stays true after a
 * later error. */
bool fbr_tls_ready(const struct fbr_tls *t);

/* On a server: the peer's first message shows that it holds the key; it may still be a copy of an
 * earlier connection's. */
bool fbr_tls_proven(const struct fbr_tls *t);

/* Returns the authenticated peer's identity on a server (our own on a client); NULL before
 * fbr_tls_ready(). The text lives as long as t. */
const char *fbr_tls_identity(const struct fbr_tls *t);

/* Appends to plain what the peer sent and can be read now, perhaps nothing. 0; -EPIPE once
 * everything was read and the peer has closed; -EAGAIN before fbr_tls_ready; -EPROTO for a forged
 * or damaged record; -ENOMEM. Bytes that were appended before an error are
 * authentic. */
int fbr_tls_read(struct fbr_tls *t, struct fbr_buf *plain, struct fbr_error *err)
    __attribute__((warn_unused_result));

/* Encrypts all len bytes into what fbr_tls_pending answers. -EAGAIN before fbr_tls_ready, -EPIPE
 * after fbr_tls_close, -EPROTO, -ENOMEM. */
int fbr_tls_write(struct fbr_tls *t, const void *bytes, size_t len, struct fbr_error *err)
    __attribute__((warn_unused_result));

/* Says to the peer that nothing more will come; reading goes on. Without effect before
 * fbr_tls_ready. */
void fbr_tls_close(struct fbr_tls *t);

/* Moves the ciphertext that is to be sent to the end of cipher. 0 or -ENOMEM (cipher is as
 * before). */
int fbr_tls_pending(struct fbr_tls *t, struct fbr_buf *cipher) __attribute__((warn_unused_result));

/* outlen bytes that both ends, and nobody else, derive from this connection (RFC 8446, section
 * 7.5): the same label and context give the same bytes. 0, -EAGAIN before fbr_tls_ready, or
 * -EPROTO; out is zeros after an error. */
int fbr_tls_export(struct fbr_tls *t, const char *label, const void *context, size_t context_len,
                   void *out, size_t outlen) __attribute__((warn_unused_result));

#endif
