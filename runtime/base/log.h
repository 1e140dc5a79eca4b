/* log.h - one line on stderr per event: "fiber[PID]: level: text", or "fiber: text" in the command
 * `fiber`. Each line of a longer text has that prefix.
 *
 * A line is one write(2) of at most FBR_LOG_LINE bytes, so lines of threads and processes that
 * share a pipe do not mix. A longer line is cut and ends in "...". Control characters become
 * spaces, so hostile text cannot control a terminal or forge a line. The level is coloured if
 * stderr is a terminal and NO_COLOR is unset or empty (https://no-color.org). errno is preserved,
 * and "%m" may be used.
 *
 * If stderr takes no line for a second (nobody reads the pipe, or Ctrl-S has stopped the terminal),
 * the line is lost, and so are the next ones, without a wait, until stderr takes lines again. The
 * next line then begins with their number.
 *
 * The macros evaluate their arguments only if the level is on; the check is one relaxed atomic
 * read. Never log keys or tickets. Any thread may call these functions, and so may a child between
 * fork and exec; a signal handler may not.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>

#define FBR_LOG_LINE 4096 /* PIPE_BUF on Linux, see pipe(7) */

/* The setting log_level has these words in the same order. */
enum fbr_log_level { FBR_LOG_ERROR, FBR_LOG_WARN, FBR_LOG_INFO, FBR_LOG_DEBUG, FBR_LOG_TRACE };

/* Sets the level up to which lines are written. It starts as FBR_LOG_WARN. */
void fbr_log_level(enum fbr_log_level level);
/* Sets the name in front of [PID], instead of "fiber". NULL: lines begin with "fiber: ", without
 * level and PID. The string is not copied, so it must stay valid for ever. */
void fbr_log_name(const char *name);

#define fbr_log(level, ...)                      \
    do {                                         \
        if (fbr_log_on(level))                   \
            fbr_log_write((level), __VA_ARGS__); \
    } while (0)
#define fbr_log_error(...) fbr_log(FBR_LOG_ERROR, __VA_ARGS__)
#define fbr_warn(...) fbr_log(FBR_LOG_WARN, __VA_ARGS__)
#define fbr_info(...) fbr_log(FBR_LOG_INFO, __VA_ARGS__)
#define fbr_debug(...) fbr_log(FBR_LOG_DEBUG, __VA_ARGS__)
#define fbr_trace(...) fbr_log(FBR_LOG_TRACE, __VA_ARGS__)

/* For the macros. */
extern atomic_int fbr_log_threshold;
static inline bool fbr_log_on(enum fbr_log_level level)
{
    return (int)level <= atomic_load_explicit(&fbr_log_threshold, memory_order_relaxed);
}
void fbr_log_write(enum fbr_log_level level, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));

/* Writes a status line on the terminal in place of the last one, cut at the right edge. "" erases
 * the status line. False: stderr is no terminal that has us in the foreground, and nothing is
 * written. */
bool fbr_log_status(const char *text);
/* Erases the status line. Call it before you write to a terminal in another way. */
void fbr_log_status_end(void);
