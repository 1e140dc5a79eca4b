/* crypto.c - what OpenSSL does for auth.h: tickets; and how it is initialised.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <endian.h>
#include <errno.h>
#include <pthread.h>
#include <string.h>

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>

#include "runtime/auth.h"

#define PURPOSE "fiber join"

static void init(void)
{
    OPENSSL_init_crypto(OPENSSL_INIT_NO_ATEXIT, NULL);
}

void fbr_crypto_init(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;

    pthread_once(&once, init);
}

int fbr_ticket(const uint8_t key[FBR_KEY_SIZE], const char *job_uid, uint64_t process,
               uint32_t epoch, uint8_t out[FBR_KEY_SIZE])
{
    uint8_t text[sizeof(PURPOSE) - 1 + 4 + FBR_JOB_UID_MAX + 8 + 4];
    size_t uid_len = job_uid ? strlen(job_uid) : 0;
    uint32_t uid_len_le = htole32((uint32_t)uid_len), epoch_le = htole32(epoch);
    uint64_t process_le = htole64(process);
    uint8_t *at = text;
    unsigned int made = 0;

    memset(out, 0, FBR_KEY_SIZE);
    if (uid_len == 0 || uid_len > FBR_JOB_UID_MAX)
        return -EINVAL;
    at = mempcpy(at, PURPOSE, sizeof(PURPOSE) - 1);
    at = mempcpy(at, &uid_len_le, sizeof(uid_len_le));
    at = mempcpy(at, job_uid, uid_len);
    at = mempcpy(at, &process_le, sizeof(process_le));
    at = mempcpy(at, &epoch_le, sizeof(epoch_le));
    fbr_crypto_init();
    if (!HMAC(EVP_sha256(), key, FBR_KEY_SIZE, text, (size_t)(at - text), out, &made) ||
        made != FBR_KEY_SIZE) {
        fbr_wipe(out, FBR_KEY_SIZE);
        return -ENOMEM;
    }
    return 0;
}
