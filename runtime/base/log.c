/* log.c - log lines with levels on stderr.
 *
 * There is no lock, and no buffer outlives a call, so a line can be written at any time, also
 * between fork and exec. The level, the name, the flag of the status line and the count of lost
 * lines belong to the process, like stderr itself: they are the only mutable variables here.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "runtime/base/log.h"

#include <errno.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "runtime/base/clock.h"
#include "runtime/base/environ.h"

#define PATIENCE_MS 1000

atomic_int fbr_log_threshold = FBR_LOG_WARN;
static const char *_Atomic log_name = "fiber";
static atomic_bool status_stands;
static atomic_uint lost_lines; /* since stderr last took one */

static const struct {
    const char *name, *colour;
} levels[] = {
    [FBR_LOG_ERROR] = {"error", "\033[1;31m"}, [FBR_LOG_WARN] = {"warn", "\033[33m"},
    [FBR_LOG_INFO] = {"info", "\033[32m"},     [FBR_LOG_DEBUG] = {"debug", "\033[36m"},
    [FBR_LOG_TRACE] = {"trace", "\033[2m"},
};

void fbr_log_level(enum fbr_log_level level)
{
    atomic_store_explicit(&fbr_log_threshold, (int)level, memory_order_relaxed);
}

void fbr_log_name(const char *name)
{
    atomic_store_explicit(&log_name, name, memory_order_release);
}

/* Called for each line, because stderr may be redirected at any time. */
static bool use_colour(void)
{
    const char *no, *kind;

    if (!isatty(STDERR_FILENO))
        return false;
    no = fbr_getenv("NO_COLOR");
    kind = fbr_getenv("TERM");
    return (!no || !*no) && !(kind && strcmp(kind, "dumb") == 0);
}

static void neutralise(char *s)
{
    for (; *s; s++)
        if ((unsigned char)*s < ' ' || *s == 0x7f)
            *s = ' ';
}

/* Whether stderr takes a line now, or within the time. A pipe that nobody reads and a stopped
 * terminal do not: the loop thread must not wait for them in write(2). */
static bool stderr_takes(unsigned wait_ms)
{
    struct pollfd p = {.fd = STDERR_FILENO, .events = POLLOUT};
    uint64_t now = fbr_now_ms(), end = now + wait_ms;
    int n;

    while ((n = poll(&p, 1, (int)(end - now))) < 0 && errno == EINTR)
        if ((now = fbr_now_ms()) > end)
            now = end;
    return n != 0; /* after another error the write shows what is wrong */
}

/* Writes the line once. Bytes that a full or broken stderr does not take are lost. */
static void write_line(const char *line, size_t len)
{
    TEMP_FAILURE_RETRY(write(STDERR_FILENO, line, len));
}

/* Formats the beginning of each line: "fiber[4711]: warn: ". */
static size_t make_head(enum fbr_log_level level, char *head, size_t size)
{
    const char *name = atomic_load_explicit(&log_name, memory_order_acquire);
    bool colour = use_colour();
    int n = name ? snprintf(head, size, "%.32s[%ld]: %s%s%s: ", name, (long)getpid(),
                            colour ? levels[level].colour : "", levels[level].name,
                            colour ? "\033[0m" : "")
                 : snprintf(head, size, "fiber: ");

    return (size_t)n;
}

/* Appends the next line of a text, with its head. Cuts the line where there is no room. */
static size_t put_line(char *line, size_t at, const char *head, size_t head_len, const char *text,
                       size_t len)
{
    size_t room;

    if (at + head_len + 4 >= FBR_LOG_LINE)
        return at;
    memcpy(line + at, head, head_len);
    at += head_len;
    room = FBR_LOG_LINE - 1 - at;
    memcpy(line + at, text, len < room ? len : room);
    if (len > room)
        memcpy(line + at + room - 3, "...", 3);
    line[at + (len < room ? len : room)] = '\0';
    neutralise(line + at);
    at += len < room ? len : room;
    line[at++] = '\n';
    return at;
}

/* Begins a line with the news that lines before it were lost. */
static size_t put_lost(char *line, const char *head, size_t head_len, unsigned lost)
{
    char text[96];
    int len = snprintf(text, sizeof(text), "lines lost here because stderr took none: %u", lost);

    return put_line(line, 0, head, head_len, text, (size_t)len);
}

void fbr_log_write(enum fbr_log_level level, const char *fmt, ...)
{
    char head[128], text[FBR_LOG_LINE], line[FBR_LOG_LINE + 1];
    int saved = errno;
    size_t head_len = make_head(level, head, sizeof(head)), len, at = 0;
    unsigned lost = atomic_load(&lost_lines);
    const char *next = text;
    va_list ap;

    errno = saved; /* for "%m" in the text */
    va_start(ap, fmt);
    if (vsnprintf(text, sizeof(text), fmt, ap) < 0)
        text[0] = '\0';
    va_end(ap);
    len = strlen(text);
    while (len && text[len - 1] == '\n')
        text[--len] = '\0';
    if (lost)
        at = put_lost(line, head, head_len, lost);
    do {
        size_t n = strcspn(next, "\n");

        at = put_line(line, at, head, head_len, next, n);
        next += n;
    } while (*next++);
    if (stderr_takes(lost ? 0 : PATIENCE_MS)) {
        atomic_compare_exchange_strong(&lost_lines, &lost, 0);
        fbr_log_status_end();
        write_line(line, at);
    } else {
        atomic_fetch_add(&lost_lines, 1);
    }
    errno = saved;
}

/* Leaves the last column free: some terminals keep the character in that column when the line is
 * erased. */
bool fbr_log_status(const char *text)
{
    const char *kind = fbr_getenv("TERM");
    struct winsize size = {0};
    char line[512];
    size_t len;
    int room;

    if (!text[0]) {
        fbr_log_status_end();
        return true;
    }
    if (tcgetpgrp(STDERR_FILENO) != getpgrp() || (kind && strcmp(kind, "dumb") == 0))
        return false;
    ioctl(STDERR_FILENO, TIOCGWINSZ, &size);
    room = size.ws_col > 1 ? size.ws_col - 1 : 79;
    snprintf(line, sizeof(line), "\r%.*s", room < 480 ? room : 480, text);
    neutralise(line + 1);
    len = strlen(line);
    memcpy(line + len, "\033[K", 4);
    if (!stderr_takes(0))
        return true;
    atomic_store(&status_stands, true);
    write_line(line, len + 3);
    return true;
}

void fbr_log_status_end(void)
{
    if (atomic_exchange(&status_stands, false) && stderr_takes(0))
        write_line("\r\033[K", 4);
}
