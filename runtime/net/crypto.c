/* crypto.c - initialises OpenSSL.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <pthread.h>

#include <openssl/crypto.h>

#include "runtime/base/auth.h"

static void init(void)
{
    OPENSSL_init_crypto(OPENSSL_INIT_NO_ATEXIT, NULL);
}

void fbr_crypto_init(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;

    pthread_once(&once, init);
}
