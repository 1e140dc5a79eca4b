/* screen_test.c - keys as terminals send them, the size of a screen, and the terminal as it was
 * before.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "tests/cli/command_util.h"

#include <poll.h>
#include <pty.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <termios.h>

#include "cli/screen.h"
#include "tests/support/sync.h"

static int master = -1, slave = -1, saved[2];

/* Standard input and output are a terminal until stand_back(). */
static void stand_on_terminal(void)
{
    fflush(stdout);
    for (int i = 0; i < 2; i++) {
        saved[i] = dup(i);
        assert_int_equal(dup2(slave, i), i);
    }
}

static void stand_back(void)
{
    fflush(stdout);
    for (int i = 0; i < 2; i++) {
        dup2(saved[i], i);
        close(saved[i]);
    }
}

static int set_up(void **state)
{
    setenv("TERM", "xterm", 1);
    return openpty(&master, &slave, NULL, NULL, NULL);
}

static int tear_down(void **state)
{
    close(master);
    close(slave);
    return 0;
}

#define screen_test(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)

/* What has been written to the terminal so far. A terminal passes bytes on some time after write(),
 * so this reads up to a mark of its own. */
static const char *written(void)
{
    static char text[512];
    size_t len = 0;

    assert_int_equal(write(slave, "$", 1), 1);
    do {
        assert_true(len < sizeof(text));
        assert_int_equal(poll(&(struct pollfd){.fd = master, .events = POLLIN}, 1, TEST_LONG_MS),
                         1);
        assert_int_equal(read(master, text + len, 1), 1);
    } while (text[len++] != '$');
    text[len - 1] = '\0';
    return text;
}

static void assert_same(const struct termios *a, const struct termios *b)
{
    assert_int_equal(a->c_lflag, b->c_lflag);
    assert_int_equal(a->c_iflag, b->c_iflag);
    assert_int_equal(a->c_oflag, b->c_oflag);
    assert_memory_equal(a->c_cc, b->c_cc, sizeof(a->c_cc));
}

static void keys_are_what_terminals_send(void **state)
{
    static const struct {
        const char *name, *bytes;
        int key;
    } cases[] = {
        {"a character", "q", 'q'},
        {"a blank", " ", ' '},
        {"an end of line", "\n", '\n'},
        {"beyond ASCII", "\xc3", 0xc3},
        {"up", "\033[A", CLI_KEY_UP},
        {"down", "\033[B", CLI_KEY_DOWN},
        {"up in application mode", "\033OA", CLI_KEY_UP},
        {"down in application mode", "\033OB", CLI_KEY_DOWN},
        {"page up", "\033[5~", CLI_KEY_PAGE_UP},
        {"page down", "\033[6~", CLI_KEY_PAGE_DOWN},
        {"home", "\033[H", CLI_KEY_HOME},
        {"home of another terminal", "\033[1~", CLI_KEY_HOME},
        {"home in application mode", "\033OH", CLI_KEY_HOME},
        {"end", "\033[F", CLI_KEY_END},
        {"end of another terminal", "\033[4~", CLI_KEY_END},
        {"end in application mode", "\033OF", CLI_KEY_END},
        {"escape alone", "\033", CLI_KEY_OTHER},
        {"right", "\033[C", CLI_KEY_OTHER},
        {"insert", "\033[2~", CLI_KEY_OTHER},
        {"up with control", "\033[1;5A", CLI_KEY_OTHER},
        {"an F key", "\033OP", CLI_KEY_OTHER},
    };

    for (size_t i = 0; i < COUNT(cases); i++) {
        int key, then;

        stand_on_terminal();
        screen_take();
        if (write(master, cases[i].bytes, strlen(cases[i].bytes)) < 0)
            fail();
        key = screen_key(TEST_LONG_MS);
        then = screen_key(0);
        screen_restore();
        stand_back();
        if (key != cases[i].key || then != CLI_KEY_NONE)
            fail_msg("%s: %d, then %d", cases[i].name, key, then);
    }
}

static void keys_that_come_together_are_read_one_by_one(void **state)
{
    static const int want[] = {'j', CLI_KEY_DOWN, 'k', CLI_KEY_PAGE_UP, CLI_KEY_UP, 'q'};
    static const char bytes[] = "j\033[Bk\033[5~\033[Aq";
    int got[COUNT(want)];

    stand_on_terminal();
    screen_take();
    if (write(master, bytes, sizeof(bytes) - 1) < 0)
        fail();
    for (size_t i = 0; i < COUNT(want); i++)
        got[i] = screen_key(TEST_LONG_MS);
    screen_restore();
    stand_back();
    for (size_t i = 0; i < COUNT(want); i++)
        assert_int_equal(got[i], want[i]);
}

static void the_terminal_is_given_back_as_it_was(void **state)
{
    struct termios before, raw, after;

    assert_int_equal(tcgetattr(slave, &before), 0);
    stand_on_terminal();
    screen_take();
    tcgetattr(slave, &raw);
    screen_restore();
    screen_restore(); /* once is enough */
    stand_back();
    assert_int_equal(tcgetattr(slave, &after), 0);
    assert_int_equal(raw.c_lflag & (ICANON | ECHO), 0);
    assert_same(&after, &before);
    assert_string_equal(written(), "\033[?1049h\033[?25l\033[?25h\033[?1049l");
}

static void a_size_is_the_terminals_or_80_by_24(void **state)
{
    static const struct {
        struct winsize set;
        int width, height;
    } cases[] = {
        {{.ws_row = 50, .ws_col = 132}, 132, 50},
        {{.ws_row = 0, .ws_col = 0}, 80, 24}, /* a serial line */
        {{.ws_row = 5, .ws_col = 0}, 80, 5},
    };
    int width, height, file;

    unsetenv("COLUMNS");
    for (size_t i = 0; i < COUNT(cases); i++) {
        assert_int_equal(ioctl(slave, TIOCSWINSZ, &cases[i].set), 0);
        stand_on_terminal();
        screen_size(&width, &height);
        stand_back();
        assert_int_equal(width, cases[i].width);
        assert_int_equal(height, cases[i].height);
    }
    close(slave);
    file = slave = memfd_create("out", MFD_CLOEXEC);
    assert_true(file >= 0);
    stand_on_terminal();
    screen_size(&width, &height);
    stand_back();
    assert_int_equal(width, 80);
    assert_int_equal(height, 24);
}

static void a_dumb_terminal_is_no_screen(void **state)
{
    static const struct {
        const char *term;
        bool is_screen;
    } cases[] = {{"xterm", true}, {"dumb", false}, {"", true}, {"dumber", true}, {NULL, true}};

    for (size_t i = 0; i < COUNT(cases); i++) {
        if (cases[i].term)
            setenv("TERM", cases[i].term, 1);
        else
            unsetenv("TERM");
        assert_int_equal(cli_is_screen(slave), cases[i].is_screen);
    }
    slave = (close(slave), memfd_create("out", MFD_CLOEXEC));
    assert_false(cli_is_screen(slave));
}

/* ---- Signals ---- */

/* In a child with that terminal: a signal comes, and then what? */
static int end_by(int sig, bool crash)
{
    int status;
    pid_t pid;

    fflush(NULL);
    pid = fork();
    if (pid == 0) {
        dup2(slave, 0);
        dup2(slave, 1);
        screen_take();
        printf("half a picture");
        raise(sig);
        if (!screen_asked_to_end())
            _exit(crash ? 2 : 1);
        screen_drop_picture();
        exit(0); /* which gives the terminal back */
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    return WIFSIGNALED(status) ? -WTERMSIG(status) : WEXITSTATUS(status);
}

static void a_signal_asks_for_the_end_and_the_picture_is_dropped(void **state)
{
    static const int signals[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT};

    for (size_t i = 0; i < COUNT(signals); i++) {
        assert_int_equal(end_by(signals[i], false), 0);
        assert_string_equal(written(), "\033[?1049h\033[?25l\033[?25h\033[?1049l");
    }
    assert_int_equal(end_by(SIGWINCH, false), 1); /* that is no end */
}

static void a_crash_gives_the_terminal_back_first(void **state)
{
    static const int signals[] = {SIGABRT, SIGBUS, SIGSEGV};
    struct termios before, after;

    assert_int_equal(tcgetattr(slave, &before), 0);
    for (size_t i = 0; i < COUNT(signals); i++) {
        assert_int_equal(end_by(signals[i], true), -signals[i]);
        assert_string_equal(written(), "\033[?1049h\033[?25l\033[?25h\033[?1049l");
        assert_int_equal(tcgetattr(slave, &after), 0);
        assert_same(&after, &before);
    }
}

/* ---- JSON ---- */

static void json_is_one_line(void **state)
{
    struct said s;
    struct caught caught;
    struct fbr_json j = {0};
    int code;

    fbr_json_object(&j);
    fbr_json_str(&j, "a", "x\ny");
    fbr_json_end_object(&j);
    catch_begin(&caught);
    code = cli_print_json(stdout, &j);
    catch_end(&caught, &s);
    assert_int_equal(code, 0);
    assert_string_equal(s.out, "{\"a\":\"x\\ny\"}\n");
    j.text.failed = true; /* memory was short */
    catch_begin(&caught);
    code = cli_print_json(stdout, &j);
    catch_end(&caught, &s);
    assert_int_equal(code, 1);
    assert_string_equal(s.out, "");
    assert_string_equal(s.err, "fiber: out of memory\n");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        screen_test(keys_are_what_terminals_send),
        screen_test(keys_that_come_together_are_read_one_by_one),
        screen_test(the_terminal_is_given_back_as_it_was),
        screen_test(a_size_is_the_terminals_or_80_by_24),
        screen_test(a_dumb_terminal_is_no_screen),
        screen_test(a_signal_asks_for_the_end_and_the_picture_is_dropped),
        screen_test(a_crash_gives_the_terminal_back_first),
        cmocka_unit_test(json_is_one_line),
    };

    return cmocka_run_group_tests_name("screen", tests, NULL, NULL);
}
