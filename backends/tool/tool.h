/* tool.h - runs the commands of a manager (squeue, scancel, a template's status command) and
 * collects what they say.
 *
 * They are jobs of the local backend, so nothing here blocks, but for fbr_tool_wait(), which is
 * for the end, when there is no loop any more to wait on. A tool is killed when it takes longer
 * than it may.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef FBR_TOOL_H
#define FBR_TOOL_H

#include "backends/tool/args.h"
#include "runtime/proc/backend.h"
#include "runtime/base/buf.h"

struct fbr_tools;

struct fbr_tool_result {
    int32_t code;    /* exit code, -N for signal N; FBR_EXIT_UNKNOWN: no memory for what it said */
    char *out, *err; /* texts, with NUL at their ends; the caller may write into them */
    size_t out_len;
};

struct fbr_tool {
    const struct fbr_args *words; /* the first is the command, looked for in PATH */
    char *const *env;             /* NULL: ours */
    const void *input;            /* of its standard input; NULL: /dev/null */
    size_t input_len;
    unsigned limit_ms;                                         /* 0: as long as it takes */
    void (*done)(void *user, const struct fbr_tool_result *r); /* loop thread, exactly once */
    void *user;
};

/* Loop thread, all of it. */
int fbr_tools_open(struct fbr_tools **t, const struct fbr_backend_env *env, struct fbr_error *err);
/* Kills those that run; they are not done. NULL is fine. */
void fbr_tools_close(struct fbr_tools *t);
/* The arguments are only read before the return. */
int fbr_tool_run(struct fbr_tools *t, const struct fbr_tool *tool, struct fbr_error *err);

/* Runs a command and waits for its end: 0 and *code as above. Its standard output goes into `out`,
 * and its standard error into `said`, with NUL at their ends (NULL: nowhere). -ETIMEDOUT: it took
 * longer than `ms`, and was killed. */
int fbr_tool_wait(const struct fbr_args *words, char *const *env, unsigned ms, struct fbr_buf *out,
                  struct fbr_buf *said, int32_t *code, struct fbr_error *err);

/* The file of a command, looked for in PATH when it is a bare name: a spawn does not look. */
int fbr_tool_find(const char *name, char *path, size_t size, struct fbr_error *err);
/* The file of this program, for jobs on other hosts, where /proc/self/exe is another's. `mend`:
 * what to try when it is gone. */
int fbr_tool_own_program(char *path, size_t size, const char *mend, struct fbr_error *err);
/* The last line of a text. */
void fbr_tool_last_line(const char *text, char *out, size_t size);

#endif
