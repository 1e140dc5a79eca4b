/* auth.h - random bytes, secrets that are wiped, and the ticket that a process joins its job with.
 *
 * Nothing here but fbr_ticket initialises OpenSSL (1.4 ms or more, once per process): what a worker
 * on a unix socket needs costs it no start-up time. All functions may be called from any thread at
 * any time.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef FBR_AUTH_H
#define FBR_AUTH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define FBR_KEY_SIZE 32     /* job keys, tickets, pre-shared keys and data-frame keys */
#define FBR_JOB_UID_MAX 255 /* bytes in a job's uid, without the NUL */

/* Initialises OpenSSL (once), so that it does not clean up after itself at exit(): our own end
 * comes later. Before its first use in each file that uses it. */
void fbr_crypto_init(void);

/* Fills out with n bytes from the kernel's generator, waiting until it was seeded. 0 or a negative
 * errno; the bytes are not to be used after an error. */
int fbr_random(void *out, size_t n) __attribute__((warn_unused_result));

/* Overwrites a secret in a way that the compiler keeps. p may be NULL when n is 0. */
void fbr_wipe(void *p, size_t n);

/* Whether two secrets of n bytes are equal, in a time that does not depend on their contents. */
bool fbr_same(const void *a, const void *b, size_t n);

/* The ticket of one incarnation of one process: HMAC-SHA256 under the job key of
 *
 *     "fiber join"  10 bytes     the purpose
 *     job uid       u32 length, then the bytes
 *     process       u64          the process id within the run
 *     epoch         u32          its incarnation
 *
 * (integers little endian), so that no two different inputs give the same bytes. Returns 0, -EINVAL
 * for a uid that is NULL, empty or over FBR_JOB_UID_MAX, or -ENOMEM; out is zeros after an
 * error. */
int fbr_ticket(const uint8_t key[FBR_KEY_SIZE], const char *job_uid, uint64_t process,
               uint32_t epoch, uint8_t out[FBR_KEY_SIZE]) __attribute__((warn_unused_result));

#endif
