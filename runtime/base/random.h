/* random.h - random bytes, functions that compare and wipe secrets, and a hash of other bytes.
 *
 * No function needs OpenSSL, which takes 1.4 ms or more to load, once per process. So a process on
 * a unix socket starts without that cost. Any thread may call these functions at any time.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define FBR_KEY_SIZE 32 /* secrets of tickets, pre-shared keys and data-frame keys */

/* Fills out with n bytes from the kernel's generator. Waits until the generator is seeded. 0 or a
 * negative errno; do not use the bytes after an error. */
int fbr_random(void *out, size_t n) __attribute__((warn_unused_result));

/* Writes a random id of 32 hexadecimal digits. */
int fbr_random_id(char out[33]) __attribute__((warn_unused_result));

/* Returns the hash (FNV-1a) of the bytes behind those of `hash`, the same on all hosts. */
#define FBR_HASH 0xcbf29ce484222325u /* of no bytes */
static inline uint64_t fbr_hash(uint64_t hash, const void *data, size_t len)
{
    const uint8_t *at = data;

    for (size_t i = 0; i < len; i++)
        hash = (hash ^ at[i]) * 0x100000001b3u;
    return hash;
}

/* Overwrites a secret with zeros; the compiler cannot optimise this away. p may be NULL if n is
 * 0. */
void fbr_wipe(void *p, size_t n);

/* Whether two secrets of n bytes are equal. The time that it takes does not depend on their
 * contents. */
bool fbr_same(const void *a, const void *b, size_t n);
