/* error.h - an error that a person may have to act on: a negative errno and a sentence.
 *
 * Functions return 0 or a negative errno. Where a person must read the reason, they also take a
 * `struct fbr_error *`, which may be NULL. The text says what failed, where and why. A caller may
 * put its own action in front of the text ("backend local: cannot start ./x: No such file or
 * directory").
 *
 * SPDX-License-Identifier: Apache-2.0 */
#pragma once

#define FBR_ERROR_TEXT 1024

struct fbr_error {
    int code; /* negative errno, 0 when nothing failed */
    char text[FBR_ERROR_TEXT];
};

/* Sets err to (code, text) and returns code: `return fbr_fail(err, -EINVAL, ...)`. */
int fbr_fail(struct fbr_error *err, int code, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

/* Puts "<fmt>: " in front of the text of err. Returns the code of err, or -EIO if err is NULL or
 * has no code. */
int fbr_wrap(struct fbr_error *err, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* Returns the text of -ENOENT or ENOENT: "No such file or directory". The string is static. Any
 * thread. */
const char *fbr_strerror(int code);

/* Keeps (code, text) for fiber_last_error() in this thread and returns code. */
int fbr_keep_error(const struct fbr_error *err);
int fbr_kept(void); /* the code of the last kept error */
int fbr_keep(int code, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
