/* sanitized.h - SANITIZED is 1 where a sanitizer makes programs slow and large, so that figures mean nothing.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#pragma once

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define SANITIZED 1
#endif
#endif
#ifndef SANITIZED
#define SANITIZED 0
#endif

/* The part of n bytes or tasks that a test handles: less under ThreadSanitizer, which looks at each byte. */
#ifdef __SANITIZE_THREAD__
#define SOME_OF(n) ((n) / 4)
#else
#define SOME_OF(n) (n)
#endif
