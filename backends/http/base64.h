/* base64.h - base64 (RFC 4648, the standard alphabet with padding).
 *
 * SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stddef.h>

/* Decodes; blanks are ignored. Returns fresh memory with a NUL after the data; NULL: not base64, or
 * no memory. */
char *fbr_base64_decode(const char *text, size_t *len);
char *fbr_base64_encode(const void *data, size_t len);
