/* logs_kept_test.c - `fiber logs`: which of the kept pieces are shown, in which order and form; and
 * the output of runs of which nothing is kept.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "tests/cli/made_run_util.h"

#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <pthread.h>
#include <pty.h>
#include <sys/stat.h>

#include "cli/logs_kept.h"
#include "fiber.h"
#include "runtime/base/environ.h"
#include "runtime/base/master_id.h"
#include "runtime/inspect/spool_record.h"
#include "tests/support/files.h"
#include "tests/support/mock.h"

#define SECOND_US 1000000ull
#define START_US (1795000000ull * SECOND_US) /* 2026-11-18T11:06:40 in UTC */

static struct made_run run;
static char root[PATH_MAX], dir[PATH_MAX];
static int lock;

/* A run of which output is kept, and that has ended. */
static int set_up(void **state)
{
    struct fbr_error err = {0, ""};

    made_set_up(state);
    fbr_environ_keep();
    made_run_init(&run, "aa11", "train", HOUR_MS);
    snprintf(root, sizeof(root), "%s/fiber/logs", made_root);
    assert_int_equal(fbr_spool_make(dir, &lock, root, &run.about, &err), 0);
    close(lock);
    lock = -1;
    return 0;
}

static int tear_down(void **state)
{
    if (lock >= 0)
        close(lock);
    made_run_close(&run);
    memset(&mock_engine, 0, sizeof(mock_engine));
    command_backend = NULL;
    return made_tear_down(state);
}

#define logs_test(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)

/* A piece of rank 0 unless it says another one, so many milliseconds after START_US. */
struct piece {
    uint32_t job, rank;
    unsigned ms;
    enum fbr_record_kind kind; /* 0: of standard output */
    const char *text;
};

/* Appends to the file of its rank, or to the older one of that rank. */
static void keep_in(const char *end, const struct piece *pieces, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        const struct piece *p = &pieces[i];
        const struct fbr_record r = {.time_us = START_US + p->ms * 1000ull,
                                     .job = p->job,
                                     .rank = p->rank,
                                     .kind = (uint8_t)(p->kind ? p->kind : FBR_RECORD_OUT),
                                     .data = p->text,
                                     .len = strlen(p->text)};
        char path[PATH_MAX + 40];
        struct fbr_buf b;
        int fd;

        snprintf(path, sizeof(path), "%s/%u.%u%s", dir, p->job, p->rank, end);
        fd = open(path, O_WRONLY | O_CREAT | O_APPEND, 0600);
        fbr_buf_init(&b);
        fbr_record_put(&b, &r);
        assert_int_equal(write(fd, b.data, b.len), b.len);
        fbr_buf_fini(&b);
        close(fd);
    }
}

static void keep(const struct piece *pieces, size_t n)
{
    keep_in("", pieces, n);
}

#define KEEP(...) \
    keep((const struct piece[]){__VA_ARGS__}, COUNT(((const struct piece[]){__VA_ARGS__})))
#define KEEP_OLD(...)                                    \
    keep_in(".old", (const struct piece[]){__VA_ARGS__}, \
            COUNT(((const struct piece[]){__VA_ARGS__})))

static void put_bytes(const char *name, const void *data, size_t len)
{
    file_make(path_in(dir, name), data, len, 0600);
}

/* The outputs of a command that ends well. */
static void shows(const char *line, const char *out, const char *errors)
{
    const struct said *s = command(line);

    if (s->code != 0 || strcmp(s->out, out) != 0 || strcmp(s->err, errors) != 0)
        fail_msg("fiber %s: %d\n%s---\n%s", line, s->code, s->out, s->err);
}

/* ---- Order and form ---- */

static void ranks_are_shown_in_the_order_of_time(void **state)
{
    KEEP({.rank = 0, .ms = 1, .text = "a\n"}, {.rank = 0, .ms = 5, .text = "e\n"},
         {.rank = 1, .ms = 2, .text = "b\n"}, {.rank = 1, .ms = 3, .text = "c\n"},
         {.rank = 12, .ms = 4, .text = "d\n"}, {.job = 3, .rank = 1, .ms = 6, .text = "f\n"});
    shows("logs train", "[0] a\n[1] b\n[1] c\n[12] d\n[0] e\n[3.1] f\n", "");
    shows("logs aa11", "[0] a\n[1] b\n[1] c\n[12] d\n[0] e\n[3.1] f\n", "");
    shows("logs train/1", "b\nc\n", "");
    shows("logs train 1", "b\nc\n", "");
    shows("logs -l train/1", "[1] b\n[1] c\n", "");
}

static void the_older_file_is_read_before_the_newer(void **state)
{
    KEEP_OLD({.ms = 1, .text = "first\n"}, {.ms = 2, .text = "sec"});
    KEEP({.ms = 3, .text = "ond\n"}, {.ms = 4, .text = "third\n"});
    shows("logs train --tag", "[0] first\n[0] second\n[0] third\n", "");
    shows("logs train/0", "first\nsecond\nthird\n", "");
}

static void errors_go_to_standard_error(void **state)
{
    KEEP({.ms = 1, .text = "out\n"}, {.ms = 2, .kind = FBR_RECORD_ERR, .text = "bad\n"},
         {.ms = 3, .text = "more\n"});
    shows("logs train/0", "out\nmore\n", "bad\n");
    shows("logs train/0 -l", "[0] out\n[0] more\n", "[0] bad\n");
}

static void pieces_become_lines(void **state)
{
    static const struct {
        const char *name;
        struct piece pieces[4];
        const char *want;
    } cases[] = {
        {"a line in parts",
         {{.ms = 1, .text = "on"}, {.ms = 2, .text = "e\ntw"}, {.ms = 3, .text = "o\n"}},
         "[0] one\n[0] two\n"},
        {"lines in a piece",
         {{.ms = 1, .text = "one\ntwo\n\nfour\n"}},
         "[0] one\n[0] two\n[0] \n[0] four\n"},
        {"a line without an end",
         {{.ms = 1, .text = "one\n"}, {.ms = 2, .text = "two"}},
         "[0] one\n[0] two\n"},
        {"a mark stands on a line of its own",
         {{.ms = 1, .text = "one\n"}, {.ms = 2, .kind = FBR_RECORD_MARK, .text = "-- lost --\n"}},
         "[0] one\n[0] -- lost --\n"},
        {"a mark without an end",
         {{.ms = 1, .text = "one"},
          {.ms = 2, .kind = FBR_RECORD_MARK, .text = "-- lost --"},
          {.ms = 3, .text = "two\n"}},
         "[0] one\n[0] -- lost --\n[0] two\n"},
        {"the last state of a progress bar",
         {{.ms = 1, .text = "\r10%\r20%"},
          {.ms = 2, .text = "\r30%\n"},
          {.ms = 3, .text = "x\r\n"}},
         "[0] 30%\n[0] x\r\n"},
        {"two streams have two lines",
         {{.ms = 1, .text = "on"},
          {.ms = 2, .kind = FBR_RECORD_ERR, .text = "bad\n"},
          {.ms = 3, .text = "e\n"}},
         "[0] one\n"},
    };
    char path[PATH_MAX + 8];

    snprintf(path, sizeof(path), "%s/0.0", dir);
    for (size_t i = 0; i < COUNT(cases); i++) {
        const struct said *s;

        for (size_t k = 0; k < 4 && cases[i].pieces[k].text; k++)
            keep(&cases[i].pieces[k], 1);
        s = command("logs train --tag");
        if (strcmp(s->out, cases[i].want) != 0)
            fail_msg("%s: %s", cases[i].name, s->out);
        assert_int_equal(unlink(path), 0);
    }
}

static void each_line_is_ended(void **state)
{
    KEEP({.rank = 0, .ms = 1, .text = "abc0"}, {.rank = 1, .ms = 2, .text = "abc1"});
    shows("logs train", "[0] abc0\n[1] abc1\n", "");
    shows("logs train -n 1", "[1] abc1\n", "");
    shows("logs train/0", "abc0", ""); /* byte for byte */
}

/* A rank that prints a long line must not hold all of it in our memory. */
static void parts_of_a_long_line_are_lines(void **state)
{
    static char text[FBR_RECORD_MAX + 1], want[FBR_RECORD_MAX + 64], got[FBR_RECORD_MAX + 64];
    struct caught caught;
    static struct said said;
    ssize_t n;

    memset(text, 'a', FBR_RECORD_MAX);
    KEEP({.ms = 1, .text = text}, {.ms = 2, .text = "b"}, {.ms = 3, .text = "c\n"});
    catch_begin(&caught);
    said.code = command_code("logs -l train");
    fflush(stdout);
    n = pread(1, got, sizeof(got) - 1, 0);
    catch_end(&caught, &said);
    assert_int_equal(said.code, 0);
    assert_true(n > 0);
    snprintf(want, sizeof(want), "[0] %sb\n[0] c\n", text);
    assert_string_equal(got, want);
}

/* Runs a command whose standard error is a terminal, and returns the first line that it writes
 * there. */
static const char *line_on_a_terminal(const char *line, struct said *said)
{
    static char got[256];
    struct caught caught;
    int master, slave;
    size_t len = 0;

    memset(got, 0, sizeof(got));
    assert_int_equal(openpty(&master, &slave, NULL, NULL, NULL), 0);
    catch_begin(&caught);
    dup2(slave, 2);
    said->code = command_code(line);
    catch_end(&caught, said);
    while (!strchr(got, '\n')) {
        struct pollfd p = {.fd = master, .events = POLLIN};
        ssize_t n = poll(&p, 1, TEST_LONG_MS) == 1 ? read(master, got + len, 255 - len) : 0;

        assert_true(n > 0);
        len += (size_t)n;
    }
    close(slave);
    close(master);
    return got;
}

/* Standard error is a terminal here, and standard output is a file. */
static void a_terminal_gets_no_escape_sequences(void **state)
{
    static struct said said;

    KEEP({.ms = 1, .text = "\x1b[1mout\n"},
         {.ms = 2, .kind = FBR_RECORD_ERR, .text = "\x1b[2Jbad\n"});
    assert_string_equal(line_on_a_terminal("logs train/0", &said), "bad\r\n");
    assert_int_equal(said.code, 0);
    assert_string_equal(said.out, "\x1b[1mout\n");
}

static void a_time_stands_in_front_when_asked_for(void **state)
{
    KEEP({.ms = 7, .text = "one "}, {.ms = 900, .text = "line\n"}, {.ms = 61001, .text = "next\n"});
    shows("logs -t train/0", "2026-11-18T11:06:40.007 one line\n2026-11-18T11:07:41.001 next\n",
          "");
    shows("logs -t -l train/0",
          "2026-11-18T11:06:40.007 [0] one line\n2026-11-18T11:07:41.001 [0] next\n", "");
}

/* ---- What of it ---- */

static void only_the_lines_that_are_wanted_are_shown(void **state)
{
    static const struct {
        const char *line, *want;
    } cases[] = {
        {"logs train -n 2 --tag", "[0] loss 3\n[1] loss 4\n"},
        {"logs train --tail 1 --tag", "[1] loss 4\n"},
        {"logs train -n 99 --tag", "[0] loss 1\n[1] step\n[0] loss 3\n[1] loss 4\n"},
        {"logs train -n 0", ""},
        {"logs train/0 -n 1", "loss 3\n"},
        {"logs train -g loss", "[0] loss 1\n[0] loss 3\n[1] loss 4\n"},
        {"logs train -g loss -n 1", "[1] loss 4\n"},
        {"logs train -g ^step$", "[1] step\n"},
        {"logs train -g [13]$", "[0] loss 1\n[0] loss 3\n"},
        {"logs train -g nothing", ""},
        {"logs train/1 --grep 4|1", "loss 4\n"},
        {"logs train --since 2026-11-18T11:06:42", "[0] loss 3\n[1] loss 4\n"},
        {"logs train/0 --since 2026-11-18T11:06:42", "loss 3\n"},
        {"logs train --since 2026-11-18T11:06", "[0] loss 1\n[1] step\n[0] loss 3\n[1] loss 4\n"},
        {"logs train --since 1h", ""},
    };

    KEEP({.rank = 0, .ms = 0, .text = "loss 1\n"}, {.rank = 1, .ms = 1000, .text = "step\n"},
         {.rank = 0, .ms = 2000, .text = "loss 3\n"}, {.rank = 1, .ms = 3000, .text = "loss 4\n"});
    for (size_t i = 0; i < COUNT(cases); i++) {
        const struct said *s = command(cases[i].line);

        if (s->code != 0 || strcmp(s->out, cases[i].want) != 0)
            fail_msg("%s: %d %s%s", cases[i].line, s->code, s->out, s->err);
    }
}

static void wishes_that_cannot_be_are_refused(void **state)
{
    KEEP({.ms = 1, .text = "one\n"});
    assert_int_equal(command("logs train -g (")->code, 2);
    says(command("logs train -g (")->err, "fiber: --grep (: ");
    refuses("logs train --since yesterday", 2,
            "--since yesterday: use a duration (10m, 2h) or a time (14:30, 2026-11-23T14:30)");
    refuses("logs train x", 1, "\"x\" is not a rank's number");
    refuses("logs train/2", 1, "there is no rank 2: the run has 2, from 0");
    assert_int_equal(command("logs train -n -1")->code, 2);
    says(command("logs other")->err, "no run of yours on this host has the name other");
    says(command("logs "
                 "0123456789012345678901234567890123456789012345678901234567890123456789"
                 "0123456789012345678901234567890123456789012345678901234567890123456789")
             ->err,
         "there is no run with such a long name");
}

static void a_rank_that_printed_nothing_is_told(void **state)
{
    KEEP({.ms = 1, .text = "one\n"});
    shows("logs train/1", "", "fiber: rank 1 of run aa11000000000000 has printed nothing\n");
    shows("logs train/1 -n 0", "", "");
    shows("logs train", "one\n", ""); /* one rank alone has no tag */
}

/* ---- The registry has gone, as when its user has logged out ---- */

static void make_kept_of(const struct made_run *made)
{
    struct fbr_error err = {0, ""};

    assert_int_equal(fbr_spool_make(dir, &lock, root, &made->about, &err), 0);
    close(lock);
    lock = -1;
}

static void make_kept(const char *id, const char *name, int64_t ago_ms)
{
    made_run_init(&run, id, name, ago_ms);
    make_kept_of(&run);
}

static void a_kept_run_is_found_by_its_name(void **state)
{
    make_kept("ee55", "program", HOUR_MS / 2);
    KEEP({.ms = 1, .text = "one\n"});
    shows("logs program", "one\n", "");
    shows("logs program/0", "one\n", "");
    fbr_spool_note_end(dir, &run.about, &run.facts, 0, "");
    shows("logs program", "one\n", "");
}

static void a_kept_run_is_found_by_its_backend(void **state)
{
    make_kept("ee55", "program", HOUR_MS / 2);
    KEEP({.ms = 1, .text = "one\n"});
    shows("logs -b local program", "one\n", "");
    shows("logs -b local ee55", "one\n", "");
    shows("logs -b local program/0", "one\n", "");
    assert_int_equal(command("logs -b slurm program")->code, 1);
    says(command("logs -b slurm program")->err, "no run of yours on this host has the name");
}

static void a_younger_kept_run_of_another_backend_is_passed_over(void **state)
{
    make_kept("ee55", "program", HOUR_MS / 2);
    KEEP({.ms = 1, .text = "one\n"});
    made_run_init(&run, "ff66", "program", HOUR_MS / 4);
    snprintf(run.about.backend, sizeof(run.about.backend), "slurm");
    make_kept_of(&run);
    KEEP({.ms = 1, .text = "two\n"});
    shows("logs program", "two\n", "");
    shows("logs -b local program", "one\n", "");
    shows("logs -b slurm program", "two\n", "");
}

static void a_kept_run_is_shown_while_its_engine_does_not_answer(void **state)
{
    made_run_init(&run, "ee55", "program", HOUR_MS / 2);
    snprintf(run.about.backend, sizeof(run.about.backend), "mock");
    make_kept_of(&run);
    KEEP({.ms = 1, .text = "one\n"});
    command_backend = "mock";
    mock_engine.silent = 1;
    shows("logs -b local program", "one\n", "");
    shows("logs -b local ee55", "one\n", "");
    refuses("logs -b local ff66", 1, "backend mock: the mock engine does not answer, as ordered");
}

static void a_kept_run_of_a_named_backend_is_shown(void **state)
{
    made_run_begin(&run);
    KEEP({.ms = 1, .text = "one\n"});
    shows("logs -b local train/0", "one\n", "");
}

static void the_youngest_kept_run_is_the_last(void **state)
{
    make_kept("ee55", "young", HOUR_MS / 2);
    KEEP({.ms = 1, .text = "one\n"});
    make_kept("0055", "old", HOUR_MS * 2);
    shows("logs", "one\n", "fiber: logs of run ee550000, young\n");
}

/* ---- What is broken ---- */

static void a_record_that_is_not_whole_is_the_end(void **state)
{
    char path[PATH_MAX + 8];
    struct stat st;

    snprintf(path, sizeof(path), "%s/0.0", dir);
    KEEP({.ms = 1, .text = "one\n"}, {.ms = 2, .text = "two\n"});
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(truncate(path, st.st_size - 1), 0);
    shows("logs train/0", "one\n", "");
    assert_int_equal(truncate(path, 3), 0);
    shows("logs train/0", "", "");
    put_bytes("0.1", "", 0);
    shows("logs train", "", "");
}

static void garbage_hides_its_file_alone(void **state)
{
    put_bytes("0.0", "\xff\xff\xff\xff garbage that is no record", 30);
    KEEP({.rank = 1, .ms = 2, .text = "two\n"});
    put_bytes("notes.txt", "x", 1); /* what is no rank's */
    put_bytes("0.2.tmp", "x", 1);
    shows("logs train", "[1] two\n", "");
}

static void a_broken_older_file_does_not_hide_the_newer(void **state)
{
    put_bytes("0.0.old", "\xff\xff\xff\xff garbage that is no record", 30);
    KEEP({.ms = 2, .text = "two\n"});
    shows("logs train/0", "two\n", "");
}

/* ---- A reader that is slower than the run ---- */

#define MUCH 300000 /* bytes; a pipe holds fewer */
#define LATE_US 50000

/* What happens while the command waits for its reader. */
struct pause {
    int fd; /* the reader's end of the command's standard output */
    bool overtakes;
    bool failed;
    struct fbr_buf got;
};

static int64_t changed_us(const char *name)
{
    struct stat st;

    if (stat(path_in(dir, name), &st) < 0)
        return -1;
    return (int64_t)st.st_ctim.tv_sec * 1000000 + st.st_ctim.tv_nsec / 1000;
}

/* The newer file of rank 0 becomes its older one. */
static bool rotate(const char *text)
{
    char newer[PATH_MAX + 8], older[PATH_MAX + 8];

    snprintf(newer, sizeof(newer), "%s/0.0", dir);
    snprintf(older, sizeof(older), "%s/0.0.old", dir);
    if (rename(newer, older) < 0)
        return false;
    KEEP({.ms = 3, .text = text});
    return true;
}

static void *pause_main(void *arg)
{
    struct pause *p = arg;
    struct pollfd in = {.fd = p->fd, .events = POLLIN};
    char data[4096];
    int64_t began;
    ssize_t n;

    /* Now the command shows the older file, and cannot go on. */
    p->failed = poll(&in, 1, TEST_LONG_MS) != 1 || !rotate("last\n");
    began = changed_us("0.0.old");
    while (p->overtakes && !p->failed && changed_us("0.0.old") < began + LATE_US)
        p->failed = !rotate("last\n");
    while ((n = read(p->fd, data, sizeof(data))) > 0)
        fbr_put(&p->got, data, (size_t)n);
    return NULL;
}

/* `fiber logs train/0`, whose reader pauses; what it shows after the first MUCH bytes. */
static const char *shown_after_pause(struct pause *p, struct said *said)
{
    static char text[MUCH + 1];
    struct caught caught;
    pthread_t thread;
    int ends[2];

    memset(text, 'x', MUCH - 1);
    text[MUCH - 1] = '\n';
    KEEP_OLD({.ms = 1, .text = text});
    KEEP({.ms = 2, .text = "second\n"});
    assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
    assert_true(fcntl(ends[1], F_SETPIPE_SZ, 65536) > 0);
    p->fd = ends[0];
    assert_int_equal(pthread_create(&thread, NULL, pause_main, p), 0);
    catch_begin(&caught);
    dup2(ends[1], 1);
    close(ends[1]);
    said->code = command_code("logs train/0");
    catch_end(&caught, said);
    pthread_join(thread, NULL);
    close(ends[0]);
    fbr_put_u8(&p->got, 0);
    assert_false(p->failed);
    assert_true(p->got.len > MUCH);
    assert_memory_equal(p->got.data, text, MUCH);
    return (const char *)p->got.data + MUCH;
}

static void a_slow_reader_sees_the_file_that_became_the_older(void **state)
{
    static struct said said;
    struct pause p = {.overtakes = false};

    assert_string_equal(shown_after_pause(&p, &said), "second\nlast\n");
    assert_string_equal(said.err, "");
    assert_int_equal(said.code, 0);
    fbr_buf_fini(&p.got);
}

static void lines_that_a_slow_reader_misses_are_told(void **state)
{
    static struct said said;
    struct pause p = {.overtakes = true};

    assert_string_equal(shown_after_pause(&p, &said), "last\nlast\n");
    assert_string_equal(said.err, "fiber: lines of rank 0 are missing here: newer lines took their "
                                  "place before they were shown (see log_keep)\n");
    assert_int_equal(said.code, 0);
    fbr_buf_fini(&p.got);
}

/* ---- Following ---- */

static void what_is_followed_ends_with_the_run(void **state)
{
    KEEP({.rank = 0, .ms = 1, .text = "one\n"}, {.rank = 1, .ms = 2, .text = "no end"});
    shows("logs -f train", "[0] one\n[1] no end\n", "");
    /* a line that goes on may become the last one */
    shows("logs -f -n 1 train", "[0] one\n[1] no end\n", "");
    shows("logs -f -n 0 train", "[1] no end\n", "");
    fbr_spool_note_end(dir, &run.about, &run.facts, 3, "rank 1 failed");
    shows("logs -f train/0", "one\n", "fiber: run aa11000000000000 has ended with code 3\n");
    fbr_spool_note_end(dir, &run.about, &run.facts, 0, "");
    shows("logs -f train/0", "one\n", "");
}

/* ---- Nothing is kept ---- */

#define UNKEPT \
    "--tail, --since, --grep and --timestamp apply to kept output only; see `fiber logs --help`"

/* A run of another name, which the spool knows nothing of. */
static void begin_other(void)
{
    made_run_init(&run, "bb22", "other", HOUR_MS);
    made_run_begin(&run);
}

static void a_run_of_which_nothing_is_kept_tells_where_its_output_is(void **state)
{
    char text[PATH_MAX + 300];

    begin_other();
    snprintf(text, sizeof(text),
             "run bb22000000000000: its output is not kept in %s, and goes to where the run was "
             "started; for `fiber logs`, start it with log_keep=16Mi (FIBER_LOG_KEEP) and this "
             "log_dir",
             root);
    refuses("logs -f other", 1, text);
    made_run_end(&run, 1, "rank 0 ended with code 1");
    assert_int_equal(command("logs other -n 1")->code, 1);
    says(command("logs other -n 1")->err, "has ended, and its output is not kept");
}

static void a_run_that_has_ended_without_output_tells_how(void **state)
{
    char text[PATH_MAX + 300];

    begin_other();
    made_run_end(&run, 1, "rank 0 ended with code 1\n");
    snprintf(text, sizeof(text),
             "run bb22000000000000 has ended, and its output is not kept in %s: only the last 200 "
             "runs of 14 days are kept, within the limits log_keep and log_total; use fiber run "
             "--output DIR to keep it permanently. Its report:\n"
             "rank 0 ended with code 1",
             root);
    refuses("logs other", 1, text);
    made_run_init(&run, "cc33", "pool", HOUR_MS);
    made_run_pool(&run);
    made_run_begin(&run);
    made_run_end(&run, 0, "");
    snprintf(text, sizeof(text),
             "run cc33000000000000 has ended, and its output is not kept in %s: only the last 200 "
             "runs of 14 days are kept, within the limits log_keep and log_total",
             root);
    refuses("logs pool", 1, text);
}

static void a_run_that_keeps_nothing_tells_so(void **state)
{
    made_run_init(&run, "bb22", "other", HOUR_MS);
    run.about.unkept = true;
    made_run_begin(&run);
    refuses("logs other", 1,
            "run bb22000000000000: its output is not kept, because it was started with log_keep=0 "
            "(FIBER_LOG_KEEP); it goes to where the run was started");
    made_run_end(&run, 0, "");
    refuses("logs other", 1,
            "run bb22000000000000 has ended, and its output is not kept, because it was started "
            "with log_keep=0 (FIBER_LOG_KEEP); use fiber run --output DIR to keep it permanently");
}

static void the_files_of_output_are_named(void **state)
{
    made_run_init(&run, "bb22", "other", HOUR_MS);
    snprintf(run.about.output_dir, sizeof(run.about.output_dir), "/nowhere/%%h");
    made_run_begin(&run);
    says(command("logs other")->err,
         "and this log_dir; the files of its --output are in /nowhere/%h\n");
    made_run_end(&run, 0, "");
    says(command("logs other/0")->err, "log_total; the files of its --output are in /nowhere/%h\n");
}

/* ---- A run that only an engine knows ---- */

static void jobs_of_an_engine_are_read_one_after_the_other(void **state)
{
    static const struct mock_piece pieces[] = {
        {"id-1", 1, "one ", 0},
        {"id-1", 2, "bad\n", 0},
        {"id-2", 1, "two\n", 0},
        {"id-1", 1, "line\n", 0},
        {"id-1", 1, "end", 0},
        {"id-2", 1, "more\n", 1},
        {"id-3", 0, "the log is gone", 0},
    };
    char dead[FBR_MASTER_ID_MAX];
    struct fbr_orphan jobs[] = {
        {.run = "2222bbbb", .id = "id-1", .name = "worker-1", .master = dead},
        {.run = "2222bbbb", .id = "id-2", .name = "worker-2", .master = dead},
        {.run = "2222bbbb", .id = "secret", .name = "", .master = dead},
        {.run = "3333cccc", .id = "id-3", .name = "worker-3", .master = dead},
    };

    fbr_master_id_self(dead);
    strcpy(strrchr(dead, '.'), ".1");
    mock_engine = (struct mock_engine){
        .jobs = jobs, .njobs = COUNT(jobs), .pieces = pieces, .npieces = COUNT(pieces)};
    command_backend = "mock";
    shows("logs -b local 2222", "one line\nend\ntwo\n", "bad\n");
    shows("logs -b local -l 2222", "[worker-1] one line\n[worker-1] end\n[worker-2] two\n",
          "[worker-1] bad\n");
    shows("logs -b local 2222 worker-2", "two\n", "");
    shows("logs -b local -f 2222 worker-2", "two\nmore\n", "");
    refuses("logs -b local 2222 worker-3", 1,
            "run 2222bbbb has no job worker-3; it has worker-1, worker-2");
    refuses("logs -b local 2222/3", 1, "run 2222bbbb has no job 3; it has worker-1, worker-2");
    refuses("logs -b local 2222 -g one", 2, UNKEPT);
    refuses("logs -b local 3333", 1, "mock job worker-3: the log is gone");
    mock_engine.stuck = "id-2";
    assert_int_equal(command("logs -b local 2222")->code, 1);
    says(command("logs -b local 2222")->err, "fiber: mock job worker-2: the engine went away\n");
    says(command("logs -b local 2222")->out, "two\n");
}

static void a_terminal_gets_no_escape_sequences_of_jobs(void **state)
{
    static const struct mock_piece pieces[] = {{"id-1", 1, "\x1b[2Jout\n", 0},
                                               {"id-1", 2, "\x1b[2Jbad\n", 0}};
    struct fbr_orphan job = {.run = "2222bbbb", .id = "id-1", .name = "worker-1", .master = ""};
    static struct said said;

    mock_engine =
        (struct mock_engine){.jobs = &job, .njobs = 1, .pieces = pieces, .npieces = COUNT(pieces)};
    command_backend = "mock";
    assert_string_equal(line_on_a_terminal("logs -b local 2222", &said), "bad\r\n");
    assert_string_equal(said.out, "\x1b[2Jout\n");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        logs_test(ranks_are_shown_in_the_order_of_time),
        logs_test(the_older_file_is_read_before_the_newer),
        logs_test(errors_go_to_standard_error),
        logs_test(pieces_become_lines),
        logs_test(each_line_is_ended),
        logs_test(parts_of_a_long_line_are_lines),
        logs_test(a_terminal_gets_no_escape_sequences),
        logs_test(a_time_stands_in_front_when_asked_for),
        logs_test(only_the_lines_that_are_wanted_are_shown),
        logs_test(wishes_that_cannot_be_are_refused),
        logs_test(a_rank_that_printed_nothing_is_told),
        logs_test(a_kept_run_is_found_by_its_name),
        logs_test(a_kept_run_is_found_by_its_backend),
        logs_test(a_younger_kept_run_of_another_backend_is_passed_over),
        logs_test(a_kept_run_is_shown_while_its_engine_does_not_answer),
        logs_test(a_kept_run_of_a_named_backend_is_shown),
        logs_test(the_youngest_kept_run_is_the_last),
        logs_test(a_record_that_is_not_whole_is_the_end),
        logs_test(garbage_hides_its_file_alone),
        logs_test(a_broken_older_file_does_not_hide_the_newer),
        logs_test(a_slow_reader_sees_the_file_that_became_the_older),
        logs_test(lines_that_a_slow_reader_misses_are_told),
        logs_test(what_is_followed_ends_with_the_run),
        logs_test(a_run_of_which_nothing_is_kept_tells_where_its_output_is),
        logs_test(a_run_that_has_ended_without_output_tells_how),
        logs_test(a_run_that_keeps_nothing_tells_so),
        logs_test(the_files_of_output_are_named),
        logs_test(jobs_of_an_engine_are_read_one_after_the_other),
        logs_test(a_terminal_gets_no_escape_sequences_of_jobs),
    };

    setenv("TZ", "UTC", 1);
    tzset();
    if (fiber_init(NULL, NULL) < 0)
        return 1;
    return cmocka_run_group_tests_name("logs_kept", tests, NULL, NULL);
}
