/* tls.h - one TLS 1.3 connection of the control channel, as a pure engine: bytes in, bytes out, no
 * descriptors.
 *
 * Both ends hold the same external pre-shared key (the secret of a ticket) and nothing else: no
 * certificates, no session tickets, no early data, no older protocol. There is one cipher suite,
 * TLS_AES_256_GCM_SHA384, so nothing is negotiated and the key is used with only one hash (RFC
 * 8446, section 4.2.11: an external key belongs to one hash, and may have any length). The key
 * exchange always includes X25519 (psk_dhe_ke), so a ticket that leaks later does not reveal a
 * recorded connection.
 *
 * The loop around the engine is the same on both sides:
 *
 *     rc = fbr_tls_step()       the client's first message; nothing to do yet on a server
 *     fbr_tls_pending()         ciphertext to send: after every other call, also after one that
 *                               failed, because the ciphertext has the alert for the peer
 *     rc = fbr_tls_feed(bytes)  takes the bytes of the peer, and continues the handshake
 *     if fbr_tls_ready():       the peer has proved that it holds the key
 *         fbr_tls_read(), fbr_tls_write()
 *
 * An error is final: close the connection. Every later call returns the same code. Before the
 * handshake is complete, a peer may send at most FBR_TLS_HANDSHAKE_MAX bytes, which limits the
 * memory that it can make us use; the caller on a server limits the time. After the handshake,
 * ciphertext is kept until fbr_tls_read takes it, so read after each feed.
 *
 * An unknown identity and a wrong key look the same from outside (RFC 8446, appendix E.6).
 *
 * Threads: one object belongs to one thread at a time; different objects may be used in parallel.
 * The first object of a process initialises OpenSSL.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "runtime/base/random.h"
#include "runtime/base/buf.h"
#include "runtime/base/error.h"

#define FBR_TLS_IDENTITY_MAX 127 /* bytes of an identity, without the NUL */
/* bytes that a peer may send before it is authenticated */
#define FBR_TLS_HANDSHAKE_MAX (16 * 1024)

struct fbr_tls;

/* Finds the key of the peer that claims to be `identity` (printable ASCII without spaces, at most
 * FBR_TLS_IDENTITY_MAX bytes; not yet authenticated) and writes the key to psk. Returns 0, or a
 * negative errno to refuse the peer. Called within fbr_tls_step or fbr_tls_feed, at most twice per
 * connection; the last result counts. The function must not consume the ticket: only fbr_tls_ready
 * shows that the peer holds it. */
typedef int fbr_tls_lookup_fn(void *user, const char *identity, uint8_t psk[FBR_KEY_SIZE]);

/* Both store a connection in *out and return 0, or return a negative errno and do not change *out.
 * fbr_tls_free() frees the connection. The key is copied, and the copy is wiped when it is no
 * longer needed. -EINVAL: the identity does not follow the rules above. */
int fbr_tls_client(struct fbr_tls **out, const char *identity, const uint8_t psk[FBR_KEY_SIZE],
                   struct fbr_error *err) __attribute__((warn_unused_result));
int fbr_tls_server(struct fbr_tls **out, fbr_tls_lookup_fn *lookup, void *user,
                   struct fbr_error *err) __attribute__((warn_unused_result));
void fbr_tls_free(struct fbr_tls *t); /* accepts NULL */

/* Continues the handshake as far as the bytes so far allow. Returns 0 (ready or not); -EACCES if
 * the keys or identities do not match (on a client: the peer refused us, or could not prove that it
 * has our key); -EPROTO for anything else that does not follow the protocol above; -ENOMEM (or
 * -EPROTO, if OpenSSL does not report that it was out of memory). */
int fbr_tls_step(struct fbr_tls *t, struct fbr_error *err) __attribute__((warn_unused_result));

/* Takes all len bytes of ciphertext that arrived from the peer, and steps. Errors as for
 * fbr_tls_step. */
int fbr_tls_feed(struct fbr_tls *t, const void *bytes, size_t len, struct fbr_error *err)
    __attribute__((warn_unused_result));

/* Whether the handshake is complete: the peer is authenticated and is alive now. Stays true after a
 * later error. */
bool fbr_tls_ready(const struct fbr_tls *t);

/* On a server: whether the peer's first message shows that it holds the key. The message may still
 * be a copy from an earlier connection. */
bool fbr_tls_proven(const struct fbr_tls *t);

/* Returns the authenticated identity of the peer on a server (our own on a client); NULL before
 * fbr_tls_ready(). The text lives as long as t. */
const char *fbr_tls_identity(const struct fbr_tls *t);

/* Appends to plain all bytes from the peer that can be read now, perhaps none. Returns 0; -EAGAIN
 * before fbr_tls_ready; -EPROTO for a forged or damaged record, or for the alert by which a peer
 * could close, which ours do not send; -ENOMEM. Bytes that were appended before an error are
 * authentic. */
int fbr_tls_read(struct fbr_tls *t, struct fbr_buf *plain, struct fbr_error *err)
    __attribute__((warn_unused_result));

/* Encrypts all len bytes; fbr_tls_pending returns the ciphertext. -EAGAIN before fbr_tls_ready,
 * -EPROTO, -ENOMEM. */
int fbr_tls_write(struct fbr_tls *t, const void *bytes, size_t len, struct fbr_error *err)
    __attribute__((warn_unused_result));

/* Moves the ciphertext that must be sent to the end of cipher. Returns 0 or -ENOMEM (cipher is
 * unchanged). */
int fbr_tls_pending(struct fbr_tls *t, struct fbr_buf *cipher) __attribute__((warn_unused_result));

/* Derives outlen bytes from this connection that only its two ends know (RFC 8446, section 7.5):
 * the same label and context give the same bytes. Returns 0, -EAGAIN before fbr_tls_ready, or
 * -EPROTO; out is zeros after an error. */
int fbr_tls_export(struct fbr_tls *t, const char *label, const void *context, size_t context_len,
                   void *out, size_t outlen) __attribute__((warn_unused_result));
