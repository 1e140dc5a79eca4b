/* log.c - levelled lines on stderr; see log.h.
 *
 * No lock and no buffer that outlives a call, so a line can be written at any time, also between
 * fork and exec. The level, the name and whether a line of status stands there are the process's,
 * like stderr itself: they are the only mutable variables here.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "runtime/log.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "runtime/environ.h"

atomic_int fbr_log_threshold = FBR_LOG_WARN;
static const char *_Atomic log_name = "fiber";
static atomic_bool status_stands;

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

int fbr_log_level_named(const char *name)
{
    for (size_t i = 0; i < sizeof(levels) / sizeof(levels[0]); i++)
        if (!strcmp(name, levels[i].name))
            return (int)i;
    return -EINVAL;
}

void fbr_log_name(const char *name)
{
    atomic_store_explicit(&log_name, name, memory_order_release);
}

/* Asked for each line: stderr may be redirected at any time. */
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

/* Writes the line once; what a full or broken stderr does not take is lost. */
static void write_line(const char *line, size_t len)
{
    ssize_t n;

    do
        n = write(STDERR_FILENO, line, len);
    while (n < 0 && errno == EINTR);
}

void fbr_log_write(enum fbr_log_level level, const char *fmt, ...)
{
    int saved = errno, head, n;
    bool colour = use_colour();
    char line[FBR_LOG_LINE];
    size_t len, room;
    va_list ap;

    head = snprintf(line, 128,
                    "%.32s[%ld]: %s%s%s: ", atomic_load_explicit(&log_name, memory_order_acquire),
                    (long)getpid(), colour ? levels[level].colour : "", levels[level].name,
                    colour ? "\033[0m" : "");
    room = sizeof(line) - (size_t)head - 1; /* text and its NUL; one more byte for the newline */
    errno = saved;                          /* for %m */
    va_start(ap, fmt);
    n = vsnprintf(line + head, room, fmt, ap);
    va_end(ap);
    if (n < 0)
        line[head] = '\0';
    else if ((size_t)n >= room)
        strcpy(line + head + room - 4, "...");
    len = strlen(line + head);
    while (len && line[(size_t)head + len - 1] == '\n')
        line[(size_t)head + --len] = '\0';
    neutralise(line + head);
    line[(size_t)head + len] = '\n';
    fbr_log_status_end();
    write_line(line, (size_t)head + len + 1);
    errno = saved;
}

/* What is in the last column of some terminals stays when the line is taken away, so that one is not used. */
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
    atomic_store(&status_stands, true);
    write_line(line, len + 3);
    return true;
}

void fbr_log_status_end(void)
{
    if (atomic_exchange(&status_stands, false))
        write_line("\r\033[K", 4);
}
