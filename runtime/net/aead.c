/* aead.c - encrypts data frames with OpenSSL's AEAD ciphers.
 *
 * The cipher context keeps the expanded key; a frame only sets its nonce.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "runtime/net/aead.h"

#include <endian.h>
#include <errno.h>
#include <stdbool.h>
#include <string.h>

#include <openssl/crypto.h>
#include <openssl/err.h>
#include <openssl/evp.h>

#define NONCE_SIZE 12
#define MAX_SEALED ((uint64_t)1 << 50) /* bytes; every frame counts as at least 64 */
#define MAX_FORGED ((uint64_t)1 << 36) /* frames */

int fbr_aead_init(struct fbr_aead *s, enum fbr_aead_way way, enum fbr_aead_alg alg,
                  const uint8_t key[FBR_KEY_SIZE], const void *aad, size_t aad_len)
{
    EVP_CIPHER *cipher;
    int ok;

    memset(s, 0, sizeof(*s));
    if ((alg != FBR_AEAD_AES_256_GCM && alg != FBR_AEAD_CHACHA20_POLY1305) ||
        aad_len > FBR_AEAD_AAD_MAX)
        return -EINVAL;
    /* Fiber's own cleanup runs after the exit handlers */
    OPENSSL_init_crypto(OPENSSL_INIT_NO_ATEXIT, NULL);
    ERR_clear_error();
    cipher = EVP_CIPHER_fetch(
        NULL, alg == FBR_AEAD_AES_256_GCM ? "AES-256-GCM" : "ChaCha20-Poly1305", NULL);
    if (!cipher) {
        ERR_clear_error();
        return -ENOTSUP;
    }
    s->ctx = EVP_CIPHER_CTX_new();
    ok = s->ctx && EVP_CipherInit_ex2(s->ctx, cipher, key, NULL, way == FBR_AEAD_SEND, NULL) == 1 &&
         EVP_CIPHER_CTX_get_iv_length(s->ctx) == NONCE_SIZE;
    EVP_CIPHER_free(cipher); /* the context holds its own reference */
    if (!ok) {
        fbr_aead_fini(s);
        ERR_clear_error();
        return -ENOMEM;
    }
    s->way = way;
    s->aad_len = aad_len;
    if (aad_len > 0)
        memcpy(s->aad, aad, aad_len);
    return 0;
}

void fbr_aead_fini(struct fbr_aead *s)
{
    EVP_CIPHER_CTX_free(s->ctx); /* wipes the key */
    fbr_wipe(s, sizeof(*s));
}

/* Sets the frame's nonce, and passes the additional data and the text through the cipher. */
static bool run(struct fbr_aead *s, uint64_t counter, const void *in, size_t len, void *out)
{
    uint8_t nonce[NONCE_SIZE] = {0};
    int n;

    counter = htobe64(counter);
    memcpy(nonce + 4, &counter, sizeof(counter));
    if (EVP_CipherInit_ex2(s->ctx, NULL, NULL, nonce, -1, NULL) != 1)
        return false;
    if (s->aad_len > 0 && EVP_CipherUpdate(s->ctx, NULL, &n, s->aad, (int)s->aad_len) != 1)
        return false;
    return len == 0 || (EVP_CipherUpdate(s->ctx, out, &n, in, (int)len) == 1 && (size_t)n == len);
}

int fbr_aead_encrypt(struct fbr_aead *s, uint64_t *counter, const void *in, size_t len, void *out)
{
    uint8_t *tag = (uint8_t *)out + len;
    int n;

    if (!s->ctx || s->way != FBR_AEAD_SEND)
        return -EINVAL;
    if (len > FBR_AEAD_MAX)
        return -EMSGSIZE;
    if (s->spent >= MAX_SEALED)
        return -EKEYEXPIRED;
    s->spent += len < 64 ? 64 : len;
    *counter = ++s->counter; /* not used again, even if the code below fails */
    if (run(s, *counter, in, len, out) && EVP_CipherFinal_ex(s->ctx, tag, &n) == 1 &&
        EVP_CIPHER_CTX_ctrl(s->ctx, EVP_CTRL_AEAD_GET_TAG, FBR_AEAD_TAG, tag) == 1)
        return 0;
    ERR_clear_error();
    return -EIO;
}

int fbr_aead_decrypt(struct fbr_aead *s, uint64_t counter, const void *in, size_t len, void *out)
{
    uint8_t tag[FBR_AEAD_TAG];
    uint8_t none[1];
    int n;

    if (!s->ctx || s->way != FBR_AEAD_RECEIVE)
        return -EINVAL;
    if (len < FBR_AEAD_TAG || counter <= s->counter)
        return -EBADMSG;
    len -= FBR_AEAD_TAG;
    if (len > FBR_AEAD_MAX)
        return -EMSGSIZE;
    if (s->spent >= MAX_FORGED)
        return -EKEYEXPIRED;
    memcpy(tag, (const uint8_t *)in + len, FBR_AEAD_TAG);
    if (run(s, counter, in, len, out) &&
        EVP_CIPHER_CTX_ctrl(s->ctx, EVP_CTRL_AEAD_SET_TAG, FBR_AEAD_TAG, tag) == 1 &&
        EVP_CipherFinal_ex(s->ctx, none, &n) == 1) {
        s->counter = counter;
        return 0;
    }
    ERR_clear_error();
    if (len > 0)
        memset(out, 0, len);
    s->spent++;
    return -EBADMSG;
}
