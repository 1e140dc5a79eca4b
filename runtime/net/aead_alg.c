/* aead_alg.c - decides which of two AEAD algorithms is fast on this processor.
 *
 * Every child calls this, even a child on a unix socket, which encrypts nothing. So this file is
 * not part of the module that loads OpenSSL (crypto_lazy.c).
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "runtime/net/aead.h"

#ifdef __aarch64__
#include <sys/auxv.h>
#endif

enum fbr_aead_alg fbr_aead_preferred(void)
{
    bool fast = false;

#if defined(__x86_64__) || defined(__i386__)
    __builtin_cpu_init();
    fast = __builtin_cpu_supports("aes") && __builtin_cpu_supports("pclmul");
#elif defined(__aarch64__)
    fast = (getauxval(AT_HWCAP) & 0x18) == 0x18; /* HWCAP_AES and HWCAP_PMULL, Linux asm/hwcap.h */
#elif defined(__powerpc64__)
    fast = __builtin_cpu_supports("vcrypto");
#endif
    return fast ? FBR_AEAD_AES_256_GCM : FBR_AEAD_CHACHA20_POLY1305;
}
