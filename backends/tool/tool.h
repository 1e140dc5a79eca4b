/* tool.h - runs the commands of a manager (squeue, scancel, a template's status command) and
 * collects their output.
 *
 * The commands are jobs of the local backend, so nothing here blocks except fbr_tool_wait(), which
 * is for the end of a backend, when there is no loop to wait on. A command that takes longer than
 * its limit is killed.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "runtime/program/args.h"
#include "runtime/proc/backend.h"
#include "runtime/base/buf.h"

struct fbr_tools;

struct fbr_tool_result {
    /* exit code, -N for signal N; FBR_EXIT_UNKNOWN: no memory for the output, or the output is
     * longer than 16 MiB: `out` has its beginning */
    int32_t code;
    char *out, *err; /* NUL-terminated; the callback may change them */
    size_t out_len;
};

struct fbr_tool {
    const struct fbr_args *words; /* the first word is the command, searched in PATH */
    char *const *env;             /* NULL: our environment */
    const void *input;            /* the command's standard input; NULL: /dev/null */
    size_t input_len;
    unsigned limit_ms;                                         /* 0: no limit */
    void (*done)(void *user, const struct fbr_tool_result *r); /* loop thread, exactly once */
    void *user;
};

/* All functions: loop thread. */
int fbr_tools_open(struct fbr_tools **t, const struct fbr_backend_env *env, struct fbr_error *err);
/* Kills the commands that run; their done() is not called. NULL is allowed. */
void fbr_tools_close(struct fbr_tools *t);
/* The arguments are not used after the return. */
int fbr_tool_run(struct fbr_tools *t, const struct fbr_tool *tool, struct fbr_error *err);

/* Runs a command and waits for its end: 0, and *code as above. Its standard output is appended to
 * `out`, and its standard error to `said`, NUL-terminated (NULL: discarded). -ETIMEDOUT: it took
 * longer than `ms`, and was killed. */
int fbr_tool_wait(const struct fbr_args *words, char *const *env, unsigned ms, struct fbr_buf *out,
                  struct fbr_buf *said, int32_t *code, struct fbr_error *err);

/* Starts a command as a process of an open local backend, which sends the events of the process to
 * `user`. `in`: its standard input, which stays the caller's; -1: /dev/null. */
int fbr_tool_start(struct fbr_backend *processes, char *const *argv, char *const *env, int in,
                   void *user, void **process, struct fbr_error *err);

/* Finds the file of a command; a bare name is searched in PATH, because a spawn does not search. */
int fbr_tool_find(const char *name, char *path, size_t size, struct fbr_error *err);
/* Finds the file of this program, for jobs on other hosts, where /proc/self/exe is another program.
 * `mend`: the remedy if the file is gone. */
int fbr_tool_own_program(char *path, size_t size, const char *mend, struct fbr_error *err);
