/* random.c - random bytes, and functions that compare and wipe secrets.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "runtime/base/random.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>

int fbr_random(void *out, size_t n)
{
    uint8_t *at = out;

    while (n > 0) {
        ssize_t got = getrandom(at, n, 0);

        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            return got < 0 ? -errno : -EIO;
        at += got;
        n -= (size_t)got;
    }
    return 0;
}

int fbr_random_id(char out[33])
{
    unsigned long long bits[2];
    int rc = fbr_random(bits, sizeof(bits));

    if (rc == 0)
        snprintf(out, 33, "%016llx%016llx", bits[0], bits[1]);
    return rc;
}

void fbr_wipe(void *p, size_t n)
{
    if (n > 0)
        explicit_bzero(p, n);
}

bool fbr_same(const void *a, const void *b, size_t n)
{
    const volatile uint8_t *x = a, *y = b;
    uint8_t differ = 0;

    for (size_t i = 0; i < n; i++)
        differ |= x[i] ^ y[i];
    return differ == 0;
}
