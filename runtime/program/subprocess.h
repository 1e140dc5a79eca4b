/* subprocess.h - runs a program to its end and collects its output.
 *
 * For programs that answer a question: helpers of registries, plugins of Kubernetes, fiber-stack,
 * the programs that `fiber doctor` asks. Each call blocks, so it is for threads that may wait,
 * never for the loop's.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef FBR_SUBPROCESS_H
#define FBR_SUBPROCESS_H

#include <stdatomic.h>
#include <stddef.h>

#include "runtime/base/buf.h"
#include "runtime/base/error.h"

struct fbr_subprocess {
    const char *file; /* path; no search */
    char *const *argv;
    char *const *env;        /* NULL: fbr_environ() */
    int in, errors;          /* its standard input and error; -1: /dev/null */
    unsigned limit_ms;       /* until it has ended */
    size_t max;              /* bytes of output */
    const atomic_bool *stop; /* true: give up; NULL: never */
};

/* 0: it has ended; its exit code, or minus the signal that killed it, is in *code, and its output
 * behind what `out` had. -ETIMEDOUT, -ECANCELED (stop), -EFBIG, -ENOMEM: it was killed with its
 * process group, and `out` has what had come; no sentence. Other errors of fbr_spawn(), with one:
 * it was not started. If the program itself has waited for it, *code is 0. */
int fbr_subprocess_run(const struct fbr_subprocess *p, struct fbr_buf *out, int *code,
                       struct fbr_error *err);

#endif
