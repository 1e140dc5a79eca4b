/* tls_fuzz.c - what a stranger can send before it is authenticated: bytes to a server, or to a
 * client.
 *
 * Byte 0 chooses the side (bit 0), whether a client's own first message goes ahead with some bytes
 * changed by the input (bit 1), and the size of the pieces (the rest). The key is fixed, so the
 * corpus may hold a ClientHello that verifies; but without its private share nobody can finish that
 * handshake, so nobody may ever become ready.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/net/tls.h"

static const uint8_t key[FBR_KEY_SIZE] = "0123456789abcdefghijklmnopqrstu";

static void require(int ok)
{
    if (!ok)
        abort();
}

static int lookup(void *user, const char *identity, uint8_t psk[FBR_KEY_SIZE])
{
    require(strlen(identity) > 0 && strlen(identity) <= FBR_TLS_IDENTITY_MAX);
    if (identity[0] != 'j')
        return -ENOENT;
    memcpy(psk, key, FBR_KEY_SIZE);
    return 0;
}

/* A real first message, changed at most 8 times: {u16 position, u8 change}. Returns how much of the
 * input it took. */
static size_t first_message(struct fbr_buf *hello, const uint8_t *data, size_t size)
{
    struct fbr_tls *client;
    size_t at = 1, changes = size > 0 ? data[0] % 8 : 0;

    if (fbr_tls_client(&client, "job-5f1c/7/1", key, NULL))
        return 0;
    require(fbr_tls_step(client, NULL) == 0 && fbr_tls_pending(client, hello) == 0);
    fbr_tls_free(client);
    for (; changes > 0 && at + 3 <= size; at += 3, changes--)
        hello->data[(size_t)(data[at] | data[at + 1] << 8) % hello->len] ^= data[at + 2];
    return at < size ? at : size;
}

static void feed(struct fbr_tls *t, const uint8_t *data, size_t size, size_t piece)
{
    struct fbr_error err = {0};
    struct fbr_buf out;
    int rc = 0;

    while (size > 0 && rc == 0) {
        size_t n = size < piece ? size : piece;
        uint8_t *copy = malloc(n); /* so that a read beyond it is seen */

        require(copy != NULL);
        memcpy(copy, data, n);
        rc = fbr_tls_feed(t, copy, n, &err);
        free(copy);
        data += n;
        size -= n;
    }
    require(rc == 0 || rc == -EPROTO || rc == -EACCES);
    require(rc == 0 || (err.code == rc && err.text[0]));
    require(rc == 0 || fbr_tls_step(t, NULL) == rc);
    require(!fbr_tls_ready(t) && !fbr_tls_identity(t));
    fbr_buf_init(&out);
    require(fbr_tls_read(t, &out, NULL) == (rc ? rc : -EAGAIN) && out.len == 0);
    require(fbr_tls_pending(t, &out) == 0 && out.len < 4096);
    fbr_buf_fini(&out);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct fbr_buf bytes;
    struct fbr_tls *t;
    unsigned how;
    int rc;

    if (size < 1)
        return 0;
    how = *data++;
    size--;
    fbr_buf_init(&bytes);
    if (how & 2) {
        size_t used = first_message(&bytes, data, size);

        data += used;
        size -= used;
    }
    if (size > 0)
        fbr_put(&bytes, data, size);
    rc = how & 1 ? fbr_tls_client(&t, "job-5f1c/7/1", key, NULL)
                 : fbr_tls_server(&t, lookup, NULL, NULL);
    require(rc == 0 && fbr_tls_step(t, NULL) == 0);
    feed(t, bytes.data, bytes.len, how >> 2 ? how >> 2 : 100000);
    fbr_tls_free(t);
    fbr_buf_fini(&bytes);
    return 0;
}
