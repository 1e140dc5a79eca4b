/* screen.c - terminal modes, keys, and JSON lines.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "cli/screen.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio_ext.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

#include "cli/option.h"

static struct termios cooked;              /* the mode to restore */
static volatile sig_atomic_t is_raw;       /* the mode is changed now */
static volatile sig_atomic_t asked_to_end; /* the signal */

/* Async-signal-safe: signal handlers call it too. */
void screen_restore(void)
{
    static const char leave[] = "\033[?25h\033[?1049l";
    int saved = errno;

    if (is_raw) {
        is_raw = 0;
        tcsetattr(STDIN_FILENO, TCSANOW, &cooked);
        if (write(STDOUT_FILENO, leave, sizeof(leave) - 1) < 0)
            errno = saved;
    }
    errno = saved;
}

static void go_raw(void)
{
    static const char enter[] = "\033[?1049h\033[?25l";
    struct termios t = cooked;

    t.c_lflag &= (tcflag_t) ~(ICANON | ECHO);
    t.c_cc[VMIN] = 0;
    t.c_cc[VTIME] = 0;
    is_raw = 1;
    tcsetattr(STDIN_FILENO, TCSANOW, &t);
    if (write(STDOUT_FILENO, enter, sizeof(enter) - 1) < 0)
        asked_to_end = SIGHUP;
}

static void on_end(int sig)
{
    asked_to_end = sig;
}

static void on_stop(int sig)
{
    screen_restore();
    /* the parent's shell takes its terminal back; we continue after this line */
    raise(SIGSTOP);
    go_raw();
}

static void on_resize(int sig)
{
    (void)sig; /* the signal ends poll(): the next drawing reads the size */
}

static void on_crash(int sig)
{
    screen_restore();
    signal(sig, SIG_DFL);
    raise(sig);
}

void screen_take(void)
{
    static const struct {
        int sig;
        void (*fn)(int);
    } list[] = {{SIGINT, on_end},    {SIGTERM, on_end}, {SIGHUP, on_end},      {SIGQUIT, on_end},
                {SIGTSTP, on_stop},  {SIGPIPE, on_end}, {SIGWINCH, on_resize}, {SIGSEGV, on_crash},
                {SIGABRT, on_crash}, {SIGBUS, on_crash}};

    tcgetattr(STDIN_FILENO, &cooked);
    atexit(screen_restore);
    for (size_t i = 0; i < sizeof(list) / sizeof(list[0]); i++) {
        struct sigaction a;

        memset(&a, 0, sizeof(a));
        a.sa_handler = list[i].fn;
        /* A write that is interrupted continues, unless the signal ends the command: the reader may
         * have stopped reading. */
        a.sa_flags = list[i].fn == on_stop || list[i].fn == on_resize ? SA_RESTART : 0;
        sigaction(list[i].sig, &a, NULL);
    }
    go_raw();
}

bool screen_asked_to_end(void)
{
    return asked_to_end != 0;
}

void screen_drop_picture(void)
{
    if (!asked_to_end || asked_to_end == SIGPIPE)
        return;
    __fpurge(stdout);
    clearerr(stdout);
}

void screen_size(int *width, int *height)
{
    struct winsize w;

    *width = cli_width(STDOUT_FILENO);
    *height = 24;
    if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &w) == 0) {
        *height = w.ws_row > 0 ? w.ws_row : *height;
        *width = w.ws_col > 0 ? w.ws_col : *width;
    }
}

/* ---- Keys ---- */

static const struct {
    const char *bytes; /* after ESC; terminals send [ or, in application mode, O */
    enum cli_key key;
} sequences[] = {
    {"[A", CLI_KEY_UP},   {"[B", CLI_KEY_DOWN},     {"OA", CLI_KEY_UP},
    {"OB", CLI_KEY_DOWN}, {"[5~", CLI_KEY_PAGE_UP}, {"[6~", CLI_KEY_PAGE_DOWN},
    {"[H", CLI_KEY_HOME}, {"[F", CLI_KEY_END},      {"OH", CLI_KEY_HOME},
    {"OF", CLI_KEY_END},  {"[1~", CLI_KEY_HOME},    {"[4~", CLI_KEY_END},
};

/* A special key is ESC and some bytes, which arrive together. */
static int key_of(const char *bytes, size_t n)
{
    if (bytes[0] != 27)
        return (unsigned char)bytes[0];
    for (size_t i = 0; i < sizeof(sequences) / sizeof(sequences[0]); i++)
        if (n == strlen(sequences[i].bytes) + 1 && !memcmp(bytes + 1, sequences[i].bytes, n - 1))
            return sequences[i].key;
    return CLI_KEY_OTHER;
}

int screen_key(int timeout_ms)
{
    struct pollfd p = {.fd = STDIN_FILENO, .events = POLLIN};
    char bytes[8];
    size_t n = 0;

    if (poll(&p, 1, timeout_ms) <= 0 || read(STDIN_FILENO, bytes, 1) != 1)
        return CLI_KEY_NONE;
    n = 1;
    while (bytes[0] == 27 && n < sizeof(bytes) && read(STDIN_FILENO, bytes + n, 1) == 1) {
        char last = bytes[n++];

        if (n > 2 && ((last >= 'A' && last <= 'Z') || last == '~'))
            break;
    }
    return key_of(bytes, n);
}

/* ---- Output ---- */

int cli_column(const char *text, int columns)
{
    int at = 0;

    for (; text[at]; at++)
        if ((text[at] & 0xc0) != 0x80 && columns-- == 0) /* the first byte of a character */
            return at;
    return at + columns;
}

bool cli_is_screen(int fd)
{
    const char *term = getenv("TERM");

    return isatty(fd) && !(term && strcmp(term, "dumb") == 0);
}

int cli_print_json(FILE *out, struct fbr_json *j)
{
    char *text = fbr_json_take(j);

    if (!text)
        return cli_failed(1, "out of memory");
    cli_write(out, text, strlen(text));
    cli_write(out, "\n", 1);
    free(text);
    return 0;
}
