/* base64.h - bytes as text (RFC 4648, the standard alphabet with its padding).
 *
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef FBR_BASE64_H
#define FBR_BASE64_H

#include <stddef.h>

/* Blanks are passed over. Fresh memory with a NUL behind it; NULL: no base64, or no memory. */
char *fbr_base64_decode(const char *text, size_t *len);
char *fbr_base64_encode(const void *data, size_t len);

#endif
