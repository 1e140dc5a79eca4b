/* random.h - random bytes, and secrets that are compared and wiped.
 *
 * None needs OpenSSL (1.4 ms or more, once per process), so a process on a unix socket starts
 * without that cost. All functions may be called from any thread at any time.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef FBR_AUTH_H
#define FBR_AUTH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define FBR_KEY_SIZE 32 /* secrets of tickets, pre-shared keys and data-frame keys */

/* Fills out with n bytes from the kernel's generator; waits until the generator was seeded. 0 or a
 * negative errno; do not use the bytes after an error. */
int fbr_random(void *out, size_t n) __attribute__((warn_unused_result));

/* Overwrites a secret in a way that the compiler keeps. p may be NULL when n is 0. */
void fbr_wipe(void *p, size_t n);

/* Whether two secrets of n bytes are equal, in a time that does not depend on their contents. */
bool fbr_same(const void *a, const void *b, size_t n);

#endif
