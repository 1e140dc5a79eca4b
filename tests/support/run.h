/* run.h - runs a program, or this one in another role, and keeps what it wrote.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <sys/types.h>

struct ran {
    int code;  /* exit code, or -signal */
    char *out; /* what it wrote on standard output, and on standard error; NUL-terminated */
    char *err;
    size_t out_len, err_len;
};

/* Runs argv with env (NAME=VALUE, NULL-terminated, may be NULL) in addition to our environment, in
 * workdir (NULL: ours). It is killed after five minutes. */
struct ran run_program(const char *const *argv, const char *const *env, const char *workdir);
/* This program with argv[1] = role and argv[2] = arg (may be NULL). */
struct ran run_self(const char *role, const char *arg, const char *const *env);
void ran_free(struct ran *r);
/* For compilers: its code; what it wrote on standard error is shown unless that is 0. */
int run_shown(const char *const *argv);

/* The same without waiting: its process id; *out, unless NULL, is the end of a pipe that its stdout
 * goes to. It is our child. */
pid_t start_self(const char *role, const char *arg, const char *const *env, int *out);
