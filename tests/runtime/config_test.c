/* config_test.c - configuration: precedence, types, errors that name the line and the nearest key,
 * parent to child.
 *
 * Each test runs in an empty folder of its own, with no FIBER_* or XDG_* variables and HOME in that
 * folder.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "runtime/base/config.h"
#include "runtime/base/config_value.h"

static char folder[64];

static void environment_clean(void)
{
    bool again = true;

    while (again) {
        again = false;
        for (char **e = environ; *e && !again; e++)
            if (!strncmp(*e, "FIBER_", 6) || !strncmp(*e, "XDG_", 4)) {
                char *name = strndup(*e, strcspn(*e, "="));

                unsetenv(name);
                free(name);
                again = true;
            }
    }
}

static int folder_enter(void **state)
{
    environment_clean();
    strcpy(folder, "/tmp/fiber-config-XXXXXX");
    if (!mkdtemp(folder) || chdir(folder))
        return -1;
    return setenv("HOME", folder, 1);
}

static int remove_entry(const char *path, const struct stat *st, int type, struct FTW *at)
{
    return remove(path);
}

static int folder_leave(void **state)
{
    environment_clean();
    return chdir("/") || nftw(folder, remove_entry, 8, FTW_DEPTH | FTW_PHYS);
}

static void file_write(const char *path, const char *text)
{
    FILE *f = fopen(path, "w");

    assert_non_null(f);
    assert_true(fputs(text, f) >= 0);
    assert_int_equal(fclose(f), 0);
}

static void user_file_write(const char *text)
{
    mkdir(".config", 0700);
    mkdir(".config/fiber", 0700);
    file_write(".config/fiber/fiber.conf", text);
}

static struct fbr_config *load(void)
{
    struct fbr_config *c;
    struct fbr_error err = {0};

    if (fbr_config_load(&c, &err))
        fail_msg("%s", err.text);
    return c;
}

/* Loads, expects that to fail, and returns why. */
static const char *load_fails(void)
{
    static struct fbr_error err;
    struct fbr_config *c = (void *)folder;

    assert_int_equal(fbr_config_load(&c, &err), -EINVAL);
    assert_null(c);
    return err.text;
}

static const char *parse_fails(const char *text)
{
    static struct fbr_error err;
    struct fbr_config *c = fbr_config_new();

    assert_int_equal(fbr_config_parse(c, "x.conf", text, strlen(text), &err), -EINVAL);
    fbr_config_free(c);
    return err.text;
}

static const char *set_fails(const char *key, const char *value)
{
    static struct fbr_error err;
    struct fbr_config *c = fbr_config_new();
    char *before = NULL;

    if (!strcmp(key, "heartbeat"))
        before = strdup(fbr_config_str(c, key));
    assert_int_equal(fbr_config_set(c, key, value, "code", &err), -EINVAL);
    if (before)
        assert_string_equal(fbr_config_str(c, key), before);
    free(before);
    fbr_config_free(c);
    return err.text;
}

static void without_anything_all_values_are_defaults(void **state)
{
    struct fbr_config *c = load();
    const struct fbr_config_key *keys;
    size_t n;

    assert_string_equal(fbr_config_str(c, "backend"), "auto");
    assert_int_equal(fbr_config_int(c, "backend"), 0);
    assert_int_equal(fbr_config_ms(c, "heartbeat"), 5000);
    assert_int_equal(fbr_config_int(c, "heartbeat_misses"), 3);
    assert_int_equal(fbr_config_ms(c, "start_timeout"), 60000);
    assert_false(fbr_config_bool(c, "tag_output"));
    assert_true(fbr_config_size(c, "max_message") == 4ull << 30);
    assert_string_equal(fbr_config_str(c, "run_dir"), "/tmp");
    keys = fbr_config_keys(&n);
    for (size_t i = 0; i < n; i++)
        assert_string_equal(fbr_config_origin(c, keys[i].name), "default");
    fbr_config_free(c);
}

static void the_table_is_consistent(void **state)
{
    size_t n;
    const struct fbr_config_key *keys = fbr_config_keys(&n);

    for (size_t i = 0; i < n; i++) {
        char env[64] = "FIBER_", *at = env + 6;
        int64_t value;

        for (const char *s = keys[i].name; *s; s++) /* the variable is the key in capitals */
            *at++ = *s >= 'a' && *s <= 'z' ? (char)(*s - 'a' + 'A') : '_';
        *at = '\0';
        assert_string_equal(keys[i].env, env);
        assert_int_equal(fbr_value_parse(&keys[i], keys[i].fallback, &value, "default", NULL), 0);
        assert_true(keys[i].help && *keys[i].help);
        assert_int_equal(keys[i].type == FBR_CONFIG_ENUM, keys[i].words != NULL);
        if (keys[i].type == FBR_CONFIG_MS || keys[i].type == FBR_CONFIG_INT)
            assert_true(keys[i].max > keys[i].min && keys[i].max <= INT32_MAX &&
                        keys[i].min >= INT32_MIN);
    }
}

static void stronger_sources_win_and_say_so(void **state)
{
    struct fbr_config *c;

    user_file_write("grace = 1s\nheartbeat = 1s\nretries = 7\nheartbeat_misses: 9\n");
    file_write(".fiberconfig", "# mine\n\ngrace = 2s\nheartbeat = 2s\nretries = 8 ; a comment\n"
                               "image = r/x:1 # ours\nbind = a#b\t# x # y\n");
    setenv("FIBER_GRACE", "3s", 1);
    setenv("FIBER_HEARTBEAT", "3s", 1);
    c = load();
    assert_int_equal(fbr_config_set(c, "grace", "4s", "--grace", NULL), 0);
    assert_int_equal(fbr_config_ms(c, "grace"), 4000);
    assert_string_equal(fbr_config_origin(c, "grace"), "--grace");
    assert_int_equal(fbr_config_ms(c, "heartbeat"), 3000);
    assert_string_equal(fbr_config_origin(c, "heartbeat"), "FIBER_HEARTBEAT");
    assert_int_equal(fbr_config_int(c, "retries"), 8);
    assert_string_equal(fbr_config_origin(c, "retries"), "./.fiberconfig:5");
    assert_string_equal(fbr_config_str(c, "image"), "r/x:1");
    assert_string_equal(fbr_config_str(c, "bind"), "a#b");
    assert_int_equal(fbr_config_int(c, "heartbeat_misses"), 9);
    assert_non_null(
        strstr(fbr_config_origin(c, "heartbeat_misses"), "/.config/fiber/fiber.conf:4"));
    fbr_config_free(c);
}

static void xdg_config_home_moves_the_user_file(void **state)
{
    struct fbr_config *c;
    char path[128];

    user_file_write("grace = 1s\n");
    mkdir("xdg", 0700);
    mkdir("xdg/fiber", 0700);
    file_write("xdg/fiber/fiber.conf", "grace = 2s\n");
    snprintf(path, sizeof(path), "%s/xdg", folder);
    setenv("XDG_CONFIG_HOME", path, 1);
    c = load();
    assert_int_equal(fbr_config_ms(c, "grace"), 2000);
    fbr_config_free(c);
    setenv("XDG_CONFIG_HOME", "relative",
           1); /* to be ignored, says the XDG base directory specification */
    c = load();
    assert_int_equal(fbr_config_ms(c, "grace"), 1000);
    fbr_config_free(c);
}

static void run_dir_follows_xdg_runtime_dir_if_it_is_there(void **state)
{
    struct fbr_config *c;
    char path[512];

    setenv("XDG_RUNTIME_DIR", folder, 1);
    c = load();
    assert_string_equal(fbr_config_str(c, "run_dir"), folder);
    assert_string_equal(fbr_config_origin(c, "run_dir"), "default");
    fbr_config_free(c);
    setenv("XDG_RUNTIME_DIR", "/nonexistent/run", 1);
    c = load();
    assert_string_equal(fbr_config_str(c, "run_dir"), "/tmp");
    fbr_config_free(c);
    snprintf(path, sizeof(path), "%s/%0*d", folder, FBR_RUN_DIR_MAX, 0);
    assert_int_equal(mkdir(path, 0700), 0);
    setenv("XDG_RUNTIME_DIR", path, 1);
    c = load();
    assert_string_equal(fbr_config_str(c, "run_dir"), "/tmp");
    fbr_config_free(c);
    assert_int_equal(rmdir(path), 0);
}

static void durations_and_sizes_have_units(void **state)
{
    static const struct {
        const char *key, *text;
        uint64_t value;
    } good[] = {
        {"grace", "0ms", 0},
        {"grace", "250ms", 250},
        {"grace", "0.25s", 250},
        {"grace", "5 s", 5000},
        {"grace", "2m", 120000},
        {"grace", "1h", 3600000},
        {"grace", "0.5m", 30000},
        {"max_message", "1048576", 1 << 20},
        {"max_message", "64Ki", 1 << 16},
        {"max_message", "1.5Gi", 3ull << 29},
        {"max_message", "100K", 100000},
        {"max_message", "2M", 2000000},
        {"max_message", "1Ti", 1ull << 40},
        {"max_message", "4G", 4000000000},
    };
    struct fbr_config *c = fbr_config_new();

    for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
        bool ms = !strcmp(good[i].key, "grace");

        assert_int_equal(fbr_config_set(c, good[i].key, good[i].text, "code", NULL), 0);
        assert_true((ms ? (uint64_t)fbr_config_ms(c, good[i].key)
                        : fbr_config_size(c, good[i].key)) == good[i].value);
    }
    fbr_config_free(c);
}

static void wrong_types_are_refused_and_explained(void **state)
{
    assert_string_equal(set_fails("heartbeat", "5"),
                        "code: heartbeat is \"5\", which is not a duration: a number with "
                        "a unit, ms, s, m or h, such as 500ms or 5s");
    assert_string_equal(set_fails("heartbeat", "10ms"),
                        "code: heartbeat is 10ms, but must be from 50ms to 1h");
    assert_non_null(strstr(set_fails("heartbeat", "99999999999999999999s"), "from 50ms to 1h"));
    assert_non_null(strstr(set_fails("heartbeat", "9999999999999999h"), "from 50ms to 1h"));
    assert_non_null(strstr(set_fails("heartbeat", "50.5ms"), "not a duration"));
    assert_non_null(strstr(set_fails("heartbeat", ""), "not a duration"));
    assert_non_null(strstr(set_fails("heartbeat", "s"), "not a duration"));
    assert_non_null(strstr(set_fails("heartbeat", ".5s"), "not a duration"));
    assert_non_null(strstr(set_fails("heartbeat", "-5s"), "not a duration"));
    assert_non_null(strstr(set_fails("heartbeat", "5sec"), "not a duration"));
    assert_non_null(strstr(set_fails("max_message", "1Qi"), "not a size"));
    assert_non_null(strstr(set_fails("max_message", "1"), "from 64Ki to 1Ti"));
    assert_non_null(strstr(set_fails("retries", "two"), "not a whole number"));
    assert_non_null(strstr(set_fails("retries", "2x"), "not a whole number"));
    assert_non_null(strstr(set_fails("retries", "-"), "not a whole number"));
    assert_non_null(strstr(set_fails("retries", "99999999999999999999"), "from -1 to"));
    assert_non_null(strstr(set_fails("tag_output", "maybe"), "not true or false"));
    assert_non_null(strstr(set_fails("transport", "udp"), "one of: auto unix tcp"));
    assert_non_null(strstr(set_fails("transport", ""), "one of: auto unix tcp"));
    assert_non_null(strstr(set_fails("run_dir", ""), "must have 1 to 4096 characters"));
}

static void booleans_and_enums_are_read(void **state)
{
    static const char *const yes[] = {"true", "YES", "On", "1"}, *const no[] = {"false", "no",
                                                                                "OFF", "0"};
    struct fbr_config *c = fbr_config_new();

    for (int i = 0; i < 4; i++) {
        assert_int_equal(fbr_config_set(c, "tag_output", yes[i], "code", NULL), 0);
        assert_true(fbr_config_bool(c, "tag_output"));
        assert_int_equal(fbr_config_set(c, "tag_output", no[i], "code", NULL), 0);
        assert_false(fbr_config_bool(c, "tag_output"));
    }
    assert_int_equal(fbr_config_set(c, "log_level", "trace", "code", NULL), 0);
    assert_int_equal(fbr_config_int(c, "log_level"), 4);
    assert_int_equal(fbr_config_set(c, "retries", "-1", "code", NULL), 0);
    assert_int_equal(fbr_config_int(c, "retries"), -1);
    fbr_config_free(c);
}

static void an_unknown_key_names_file_line_and_the_nearest(void **state)
{
    assert_string_equal(parse_fails("\nbackend = local\n  hartbeat = 5s\n"),
                        "x.conf:3: unknown key \"hartbeat\"; did you mean \"heartbeat\"?");
    assert_string_equal(parse_fails("zzzzzzzzzzzz = 5s\n"),
                        "x.conf:1: unknown key \"zzzzzzzzzzzz\"");
    assert_string_equal(parse_fails("FIBER_GRACE = 5s\n"),
                        "x.conf:1: unknown key \"FIBER_GRACE\"; did you mean \"grace\"?");
    assert_string_equal(parse_fails("[pool]\nworkers = 3\n"),
                        "x.conf:2: unknown key \"pool.workers\"");
    file_write(".fiberconfig", "heartbeet = 5s");
    assert_string_equal(load_fails(),
                        "./.fiberconfig:1: unknown key \"heartbeet\"; did you mean \"heartbeat\"?");
}

static void an_unknown_variable_is_named_with_the_nearest(void **state)
{
    setenv("FIBER_HARTBEAT", "s3cret", 1);
    assert_string_equal(
        load_fails(),
        "the environment has an unknown variable FIBER_HARTBEAT; did you mean FIBER_HEARTBEAT?");
    unsetenv("FIBER_HARTBEAT");
    setenv("FIBER_HEARTBEAT", "soon", 1);
    assert_non_null(strstr(load_fails(), "FIBER_HEARTBEAT: heartbeat is \"soon\""));
}

static void internal_and_empty_variables_are_no_configuration(void **state)
{
    struct fbr_config *c;

    setenv("FIBER_TICKET", "fd:3", 1);
    setenv("FIBER_HEARTBEAT", "", 1);
    setenv("FIBERGLASS", "x", 1);
    setenv("FIBER_LOG_FILE", "stdout", 1); /* of Fiber 0.2; near to FIBER_LOG_DIR */
    c = load();
    assert_string_equal(fbr_config_origin(c, "heartbeat"), "default");
    fbr_config_free(c);
    unsetenv("FIBERGLASS");
    unsetenv("FIBER_LOG_FILE");
}

static void a_syntax_error_names_the_first_wrong_line(void **state)
{
    assert_string_equal(parse_fails("backend = local\nthis is nothing\n"),
                        "x.conf:2: neither \"key = value\" nor \"[section]\"");
    assert_string_equal(parse_fails("[open\n"),
                        "x.conf:1: neither \"key = value\" nor \"[section]\"");
    assert_string_equal(parse_fails("oops\nbackend = wrong\n"),
                        "x.conf:1: neither \"key = value\" nor \"[section]\"");
    assert_non_null(
        strstr(parse_fails("backend = wrong\noops\n"), "x.conf:1: backend is \"wrong\""));
}

static void a_line_that_is_too_long_is_an_error_not_two_lines(void **state)
{
    char text[1024];

    memset(text, 'a', sizeof(text));
    memcpy(text, "grace=1s\nbind=", 14);
    memcpy(text + 400, "\ngrace = 2s\n", 13);
    assert_string_equal(parse_fails(text), "x.conf:2: the line is too long");
}

static void a_line_of_196_bytes_is_read(void **state)
{
    struct fbr_config *c = fbr_config_new();
    char text[256];

    memset(text, 'a', sizeof(text));
    memcpy(text, "bind=", 5);
    strcpy(text + 196, "\n");
    assert_int_equal(fbr_config_parse(c, "x", text, 197, NULL), 0);
    assert_int_equal(strlen(fbr_config_str(c, "bind")), 191);
    fbr_config_free(c);
}

static void keys_may_stand_in_section_default(void **state)
{
    static const char text[] = "grace = 1s\n[default]\nlinger = 2s\n";
    struct fbr_config *c = fbr_config_new();

    assert_int_equal(fbr_config_parse(c, "x", text, sizeof(text) - 1, NULL), 0);
    assert_int_equal(fbr_config_ms(c, "grace"), 1000);
    assert_int_equal(fbr_config_ms(c, "linger"), 2000);
    fbr_config_free(c);
    assert_non_null(strstr(parse_fails("[other]\ngrace = 1s\n"), "other.grace"));
}

static void nul_bytes_are_refused(void **state)
{
    struct fbr_config *c = fbr_config_new();
    struct fbr_error err;

    assert_int_equal(fbr_config_parse(c, "x", "grace = 1s\0\n", 12, &err), -EINVAL);
    assert_string_equal(err.text, "x:1: the line is not text");
    assert_int_equal(fbr_config_parse(c, "x", "", 0, &err), 0);
    fbr_config_free(c);
}

static void odd_but_valid_files_are_read(void **state)
{
    static const char text[] = "\xef\xbb\xbf; with a byte order mark\r\ngrace = 1s\r\n\theartbeat "
                               "= 2s\r\n   \r\nretries=5";
    struct fbr_config *c = fbr_config_new();
    struct fbr_error err = {0};

    if (fbr_config_parse(c, "x", text, sizeof(text) - 1, &err))
        fail_msg("%s", err.text);
    assert_int_equal(fbr_config_ms(c, "grace"), 1000);
    assert_int_equal(fbr_config_ms(c, "heartbeat"), 2000);
    assert_int_equal(fbr_config_int(c, "retries"), 5);
    assert_string_equal(fbr_config_origin(c, "heartbeat"), "x:3");
    fbr_config_free(c);
}

/* Loads with stderr in a file and returns what was logged. */
static const char *load_warning(void)
{
    static char text[512];
    int copy = dup(STDERR_FILENO), fd = open("log", O_RDWR | O_CREAT | O_TRUNC, 0600);
    ssize_t n;

    dup2(fd, STDERR_FILENO);
    fbr_config_free(load());
    dup2(copy, STDERR_FILENO);
    n = pread(fd, text, sizeof(text) - 1, 0);
    text[n > 0 ? n : 0] = '\0';
    close(copy);
    close(fd);
    return text;
}

static void keys_of_the_first_fiber_are_passed_over(void **state)
{
    struct fbr_config *c;

    file_write(".fiberconfig", "[default]\nlog_level=Warning\ncpu_per_job=2\nlog_file=stdout\n");
    assert_non_null(strstr(load_warning(), "./.fiberconfig:4: log_file is a setting of Fiber 0.2"));
    assert_null(strstr(load_warning(), "cpu_per_job")); /* the Python package reads it */
    c = load();
    assert_string_equal(fbr_config_text(c, "log_level"), "warn");
    assert_string_equal(fbr_config_origin(c, "log_level"), "./.fiberconfig:2");
    fbr_config_free(c);
    unlink(".fiberconfig");
}

static void what_cannot_be_read_is_a_warning(void **state)
{
    assert_string_equal(load_warning(), "");
    assert_int_equal(mkdir(".fiberconfig", 0700), 0);
    assert_non_null(
        strstr(load_warning(), "warn: ./.fiberconfig is ignored: it is not a regular file"));
    rmdir(".fiberconfig");
    assert_int_equal(mkfifo(".fiberconfig", 0600), 0);
    assert_non_null(strstr(load_warning(), "it is not a regular file"));
    unlink(".fiberconfig");
    assert_int_equal(symlink(".fiberconfig", ".fiberconfig"), 0);
    assert_non_null(strstr(load_warning(), "is ignored: Too many levels of symbolic links"));
}

static void a_fiberconfig_that_others_may_write_is_ignored(void **state)
{
    file_write(".fiberconfig", "backend = wrong\n");
    assert_int_equal(chmod(".fiberconfig", 0666), 0);
    assert_non_null(strstr(load_warning(), "everyone may write it"));
    chmod(".fiberconfig", 0644);
    if (geteuid() != 0) {
        print_message("only root can make a file of another user\n");
        return;
    }
    assert_int_equal(chown(".fiberconfig", 12345, 12345), 0);
    assert_non_null(strstr(load_warning(), "belongs to another user"));
}

static void a_huge_file_is_refused(void **state)
{
    file_write(".fiberconfig", "grace = 1s\n");
    assert_int_equal(truncate(".fiberconfig", 8 << 20), 0);
    assert_non_null(strstr(load_fails(), "more than 1048576 bytes"));
}

static void a_child_gets_what_is_not_default(void **state)
{
    struct fbr_config *parent = fbr_config_new(), *child = fbr_config_new();
    struct fbr_buf b = {0};
    struct fbr_cur cur;

    fbr_config_put(parent, &b);
    assert_int_equal(b.len, 2);
    fbr_buf_clear(&b);
    fbr_config_set(parent, "heartbeat", "200ms", "--heartbeat", NULL);
    fbr_config_set(parent, "bind", "", "code", NULL); /* the default's value, but given */
    fbr_config_put(parent, &b);
    cur = fbr_cur(b.data, b.len);
    assert_int_equal(fbr_config_get(child, &cur, NULL), 0);
    assert_int_equal(fbr_cur_left(&cur), 0);
    assert_int_equal(fbr_config_ms(child, "heartbeat"), 200);
    assert_string_equal(fbr_config_origin(child, "heartbeat"), "parent");
    assert_string_equal(fbr_config_origin(child, "bind"), "parent");
    assert_string_equal(fbr_config_origin(child, "grace"), "default");
    for (size_t len = 0; len < b.len; len++) {
        cur = fbr_cur(b.data, len);
        assert_int_equal(fbr_config_get(child, &cur, NULL), -EBADMSG);
    }
    fbr_buf_fini(&b);
    fbr_config_free(parent);
    fbr_config_free(child);
}

static void a_parent_with_other_keys_is_refused(void **state)
{
    struct fbr_config *c = fbr_config_new();
    struct fbr_error err;
    struct fbr_buf b = {0};
    struct fbr_cur cur;

    fbr_put_u16(&b, 1);
    fbr_put_str(&b, "warp");
    fbr_put_str(&b, "9");
    cur = fbr_cur(b.data, b.len);
    assert_int_equal(fbr_config_get(c, &cur, &err), -EINVAL);
    assert_non_null(strstr(err.text, "parent: unknown key \"warp\""));
    fbr_buf_fini(&b);
    fbr_config_free(c);
}

static void what_was_read_stays_when_it_is_set_anew(void **state)
{
    struct fbr_config *c = fbr_config_new();
    const char *first, *origin, *again;

    assert_int_equal(fbr_config_set(c, "image", "the first of some images", "a test", NULL), 0);
    first = fbr_config_str(c, "image");
    origin = fbr_config_origin(c, "image");
    assert_int_equal(fbr_config_set(c, "image", "another", "another test", NULL), 0);
    assert_string_equal(fbr_config_str(c, "image"), "another");
    assert_string_equal(first, "the first of some images");
    assert_string_equal(origin, "a test");
    assert_int_equal(fbr_config_set(c, "image", "the first of some images", "a test", NULL), 0);
    again = fbr_config_str(c, "image");
    assert_ptr_equal(again, first); /* who goes to and fro does not fill the memory */
    fbr_config_free(c);
}

static void *set_a_thousand_times(void *arg)
{
    char text[32];

    for (int i = 0; i < 1000; i++) {
        snprintf(text, sizeof(text), "%d ms", 100 + i);
        fbr_config_set(arg, "grace", i % 2 ? "1s" : "2s", "a test", NULL);
        fbr_config_set(arg, "image", text, "a test", NULL);
    }
    return NULL;
}

static void any_thread_reads_and_sets_at_any_time(void **state)
{
    struct fbr_config *c = fbr_config_new();
    pthread_t setters[2];

    fbr_config_set(c, "grace", "1s", "a test", NULL);
    for (int i = 0; i < 2; i++)
        assert_int_equal(pthread_create(&setters[i], NULL, set_a_thousand_times, c), 0);
    for (int i = 0; i < 1000; i++) {
        int ms = fbr_config_ms(c, "grace");
        struct fbr_cur cur;
        struct fbr_buf b = {0};

        assert_true(ms == 1000 || ms == 2000);
        assert_in_range(strlen(fbr_config_str(c, "image")), 0, 7);
        fbr_config_put(c, &b);
        cur = fbr_cur(b.data, b.len);
        for (int left = fbr_get_u16(&cur); left > 0; left--) {
            fbr_get_str(&cur, (char[64]){0}, 64);
            fbr_get_str(&cur, (char[64]){0}, 64);
        }
        assert_true(fbr_cur_ok(&cur) && fbr_cur_left(&cur) == 0);
        fbr_buf_fini(&b);
    }
    for (int i = 0; i < 2; i++)
        pthread_join(setters[i], NULL);
    assert_string_equal(fbr_config_str(c, "image"), "1099 ms");
    fbr_config_free(c);
}

static void distances_count_mistakes(void **state)
{
    assert_int_equal(fbr_word_distance("kitten", 6, "sitting", 7), 3);
    assert_int_equal(fbr_word_distance("", 0, "abc", 3), 3);
    assert_int_equal(fbr_word_distance("ABC", 3, "abc", 3), 0);
    assert_int_equal(fbr_word_distance("grace", 5, "gracee", 6), 1);
    assert_int_equal(fbr_word_distance("tiem", 4, "time", 4), 1);
    assert_int_equal(fbr_word_distance("HSot", 4, "host", 4), 1);
    assert_int_equal(fbr_word_distance("gpusp-er-rakn", 13, "gpus-per-rank", 13), 2);
    assert_int_equal(fbr_word_distance("ca", 2, "abc", 3), 3);
    assert_true(fbr_word_distance(NULL, 65, "", 0) == SIZE_MAX);
}

#define config_test(f) cmocka_unit_test_setup_teardown(f, folder_enter, folder_leave)

int main(void)
{
    const struct CMUnitTest tests[] = {
        config_test(without_anything_all_values_are_defaults),
        config_test(the_table_is_consistent),
        config_test(stronger_sources_win_and_say_so),
        config_test(xdg_config_home_moves_the_user_file),
        config_test(run_dir_follows_xdg_runtime_dir_if_it_is_there),
        config_test(durations_and_sizes_have_units),
        config_test(wrong_types_are_refused_and_explained),
        config_test(booleans_and_enums_are_read),
        config_test(an_unknown_key_names_file_line_and_the_nearest),
        config_test(an_unknown_variable_is_named_with_the_nearest),
        config_test(internal_and_empty_variables_are_no_configuration),
        config_test(a_syntax_error_names_the_first_wrong_line),
        config_test(a_line_that_is_too_long_is_an_error_not_two_lines),
        config_test(a_line_of_196_bytes_is_read),
        config_test(keys_may_stand_in_section_default),
        config_test(nul_bytes_are_refused),
        config_test(odd_but_valid_files_are_read),
        config_test(keys_of_the_first_fiber_are_passed_over),
        config_test(what_cannot_be_read_is_a_warning),
        config_test(a_fiberconfig_that_others_may_write_is_ignored),
        config_test(a_huge_file_is_refused),
        config_test(a_child_gets_what_is_not_default),
        config_test(a_parent_with_other_keys_is_refused),
        config_test(what_was_read_stays_when_it_is_set_anew),
        config_test(any_thread_reads_and_sets_at_any_time),
        config_test(distances_count_mistakes),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
