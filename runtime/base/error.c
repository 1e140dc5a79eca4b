/* error.c - errors that consist of a negative errno and a sentence.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "runtime/base/error.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "fiber.h"

/* the text that fiber_last_error() returns in this thread */
static _Thread_local struct fbr_error last;

__attribute__((format(printf, 3, 0))) static int vfail(struct fbr_error *err, int code,
                                                       const char *fmt, va_list ap)
{
    if (err) {
        err->code = code;
        vsnprintf(err->text, sizeof(err->text), fmt, ap);
    }
    return code;
}

int fbr_fail(struct fbr_error *err, int code, const char *fmt, ...)
{
    va_list ap;

    va_start(ap, fmt);
    vfail(err, code, fmt, ap);
    va_end(ap);
    return code;
}

int fbr_wrap(struct fbr_error *err, const char *fmt, ...)
{
    char old[FBR_ERROR_TEXT];
    va_list ap;
    size_t n;

    if (!err)
        return -EIO;
    if (!err->code)
        err->code = -EIO;
    memcpy(old, err->text, sizeof(old));
    va_start(ap, fmt);
    vsnprintf(err->text, sizeof(err->text), fmt, ap);
    va_end(ap);
    n = strlen(err->text);
    snprintf(err->text + n, sizeof(err->text) - n, ": %s", old);
    return err->code;
}

const char *fbr_strerror(int code)
{
    const char *text = strerrordesc_np(code < 0 ? -code : code);

    if (code == -EMFILE || code == EMFILE)
        return "too many open files; close some, or raise the limit (ulimit -n)";
    if (code == -EAGAIN || code == EAGAIN)
        return "Resource temporarily unavailable; is a limit of processes and threads reached "
               "(ulimit -u, pids of the container)?";
    return text ? text : "unknown error";
}

int fbr_keep_error(const struct fbr_error *err)
{
    if (err != &last)
        last = *err;
    return last.code;
}

int fbr_keep(int code, const char *fmt, ...)
{
    va_list ap;

    va_start(ap, fmt);
    vfail(&last, code, fmt, ap);
    va_end(ap);
    return code;
}

int fbr_kept(void)
{
    return last.code;
}

const char *fiber_last_error(void)
{
    return last.text;
}

const char *fiber_strerror(int code)
{
    return fbr_strerror(code);
}
