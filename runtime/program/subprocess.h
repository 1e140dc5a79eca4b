/* subprocess.h - runs a program to its end and collects its output.
 *
 * For programs that answer a question: helpers of registries, plugins of Kubernetes, fiber-stack,
 * the programs that `fiber doctor` asks. Each call blocks, so only a thread that may wait may call
 * it, never the loop thread.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdatomic.h>

#include "runtime/base/buf.h"
#include "runtime/base/error.h"

struct fbr_subprocess {
    const char *file; /* path; no search */
    char *const *argv;
    char *const *env;        /* NULL: fbr_environ() */
    int in, errors;          /* its standard input and error; -1: /dev/null */
    struct fbr_buf *said;    /* collects its standard error, in place of `errors`; NULL: not */
    unsigned limit_ms;       /* time limit of the whole run */
    size_t max;              /* bytes of each output */
    const atomic_bool *stop; /* true: give up; NULL: never */
};

/* Returns 0 when the program has ended: *code is its exit code, or minus the signal that killed
 * it, and its output is appended to `out` (NULL: discarded). -ETIMEDOUT, -ECANCELED (stop),
 * -EFBIG, -ENOMEM: the program was killed with its process group, `out` has the output so far,
 * and *err has no sentence. Other errors, with a sentence: the program was not started. If
 * another part of this process has waited for the program, *code is 0. */
int fbr_subprocess_run(const struct fbr_subprocess *p, struct fbr_buf *out, int *code,
                       struct fbr_error *err);
