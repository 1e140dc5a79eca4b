/* aead_fuzz.c - a link under attack: the input orders which frames are sealed, delivered, repeated
 * and damaged, and a plain model says which of them must be accepted.
 *
 * Byte 0 chooses the algorithm and the length of the additional data; then each 4 bytes are one
 * order: what to do, u16 which counter, u8 detail.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/net/aead.h"

#define TEXT 40

struct link {
    struct fbr_aead tx, rx;
    uint64_t top; /* the last counter that was accepted */
};

static void require(int ok)
{
    if (!ok)
        abort();
}

static size_t frame_make(struct link *l, uint64_t counter, size_t len, uint8_t *frame)
{
    uint64_t got;

    memset(frame, (int)counter, len);
    l->tx.counter = counter - 1;
    require(fbr_aead_encrypt(&l->tx, &got, frame, len, frame) == 0 && got == counter);
    return len + FBR_AEAD_TAG;
}

static void deliver(struct link *l, uint64_t counter, unsigned detail)
{
    uint8_t frame[TEXT + FBR_AEAD_TAG], text[TEXT];
    size_t len = detail % TEXT, size = frame_make(l, counter, len, frame);
    bool good = counter > l->top;

    require(fbr_aead_decrypt(&l->rx, counter, frame, size, text) == (good ? 0 : -EBADMSG));
    if (!good)
        return;
    for (size_t i = 0; i < len; i++)
        require(text[i] == (uint8_t)counter);
    l->top = counter;
}

static void deliver_damaged(struct link *l, uint64_t counter, unsigned detail)
{
    uint8_t frame[TEXT + FBR_AEAD_TAG];
    size_t size = frame_make(l, counter, TEXT, frame);

    frame[detail % size] ^= (uint8_t)(1 + detail % 255);
    require(fbr_aead_decrypt(&l->rx, counter, frame, size, frame) == -EBADMSG);
}

static void deliver_under_another_counter(struct link *l, uint64_t counter, unsigned detail)
{
    uint8_t frame[TEXT + FBR_AEAD_TAG];
    size_t size = frame_make(l, counter, TEXT, frame);

    require(fbr_aead_decrypt(&l->rx, counter + 1 + ((uint64_t)detail << 40), frame, size, frame) ==
            -EBADMSG);
}

static void deliver_bytes(struct link *l, uint64_t counter, const uint8_t *data, size_t size)
{
    uint8_t *copy = malloc(size ? size : 1), *out = malloc(size ? size : 1);

    require(copy && out);
    memcpy(copy, data, size);
    require(fbr_aead_decrypt(&l->rx, counter, copy, size, out) == -EBADMSG);
    free(copy);
    free(out);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct link link = {.top = 0}, *l = &link;
    uint8_t key[FBR_KEY_SIZE] = {1, 2, 3}, aad[256] = {9};
    enum fbr_aead_alg alg;

    if (size < 1)
        return 0;
    alg = data[0] & 1 ? FBR_AEAD_AES_256_GCM : FBR_AEAD_CHACHA20_POLY1305;
    require(fbr_aead_init(&l->tx, FBR_AEAD_SEND, alg, key, aad, data[0]) == 0);
    require(fbr_aead_init(&l->rx, FBR_AEAD_RECEIVE, alg, key, aad, data[0]) == 0);
    for (data++, size--; size >= 4; data += 4, size -= 4) {
        uint64_t counter = (uint64_t)(data[1] | data[2] << 8);

        switch (data[0] % 5) {
        case 0:
        case 1:
            deliver(l, counter, data[3]);
            break;
        case 2:
            deliver_damaged(l, counter, data[3]);
            break;
        case 3:
            deliver_under_another_counter(l, counter, data[3]);
            break;
        default:
            deliver_bytes(l, counter, data + 4, size - 4);
        }
    }
    fbr_aead_fini(&l->tx);
    fbr_aead_fini(&l->rx);
    return 0;
}
