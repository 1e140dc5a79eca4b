/* log.h - one line on stderr per event: "fiber[PID]: level: text", or "fiber: text" in the command
 * `fiber`. Each line of a longer text has that prefix.
 *
 * A line is one write(2) of at most FBR_LOG_LINE bytes, so lines of threads and processes that
 * share a pipe do not mix; a longer one ends in "...". Control characters become spaces: hostile
 * text cannot steer a terminal or fake a line. The level is coloured if stderr is a terminal and
 * NO_COLOR is unset or empty (https://no-color.org). errno is preserved, and "%m" may be used.
 *
 * The macros evaluate their arguments only if the level is on; the check is one relaxed atomic
 * read. Never log keys or tickets. Any thread may call everything here, a fork child too; not for
 * signal handlers.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef FBR_LOG_H
#define FBR_LOG_H

#include <stdatomic.h>
#include <stdbool.h>

#define FBR_LOG_LINE 4096 /* PIPE_BUF on Linux, see pipe(7) */

enum fbr_log_level { FBR_LOG_ERROR, FBR_LOG_WARN, FBR_LOG_INFO, FBR_LOG_DEBUG, FBR_LOG_TRACE };

/* Lines up to this level are written. FBR_LOG_WARN until it is set. */
void fbr_log_level(enum fbr_log_level level);
/* The level of that name ("error", "warn", ...), or -EINVAL. */
int fbr_log_level_named(const char *name);
/* Sets the name in front of [PID], instead of "fiber"; NULL: lines are "fiber: text". The string is
 * kept, not copied, and must live for ever. */
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

/* Writes a status line on the terminal, in place of the last one, cut at the right edge. "" erases
 * it. False: stderr is not a terminal with us in the foreground, and nothing is written. */
bool fbr_log_status(const char *text);
/* Erases the status line, for a caller that is about to write to a terminal by itself. */
void fbr_log_status_end(void);

#endif
