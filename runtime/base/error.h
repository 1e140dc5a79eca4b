/* error.h - an error that a person may have to act on: a negative errno and a sentence.
 *
 * Functions return 0 or a negative errno. Where a person must read the reason, they also take a
 * `struct fbr_error *`, which may be NULL. The text says what failed, where and why; each caller on
 * the way up may add its own action in front ("backend local: cannot start ./x: No such file or
 * directory").
 *
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef FBR_ERROR_H
#define FBR_ERROR_H

#include <stdarg.h>

#define FBR_ERROR_TEXT 1024

struct fbr_error {
    int code; /* negative errno, 0 when nothing failed */
    char text[FBR_ERROR_TEXT];
};

/* Sets err to (code, text) and returns code, so that `return fbr_fail(err, -EINVAL, ...)` reads
 * well. */
int fbr_fail(struct fbr_error *err, int code, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
int fbr_vfail(struct fbr_error *err, int code, const char *fmt, va_list ap)
    __attribute__((format(printf, 3, 0)));

/* Puts "<fmt>: " in front of the text that err has; returns err's code (or -EIO when it has none,
 * err may be NULL). */
int fbr_wrap(struct fbr_error *err, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* "no such file or directory" for -ENOENT or ENOENT; thread-safe, static storage. */
const char *fbr_strerror(int code);

/* Keeps (code, text) for fiber_last_error() in this thread and returns code. */
int fbr_keep_error(const struct fbr_error *err);
int fbr_kept(void); /* the code of the last kept error */
int fbr_keep(int code, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

#endif
