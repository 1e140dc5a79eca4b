/* config_file_test.c - `fiber config` and the user's file: what is written, what is refused and
 * changes nothing, and what is shown.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "tests/cli/made_run_util.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <sys/stat.h>

#include "cli/config_set.h"
#include "cli/text_file.h"
#include "runtime/base/config.h"
#include "tests/support/files.h"

static char file[100];
static struct fbr_error err;

static int set_up(void **state)
{
    made_set_up(state);
    snprintf(file, sizeof(file), "%s/fiber/fiber.conf", made_root);
    err = (struct fbr_error){0, ""};
    assert_int_equal(chdir(made_root), 0); /* there is no .fiberconfig */
    return 0;
}

static int tear_down(void **state)
{
    assert_int_equal(chdir("/"), 0);
    return made_tear_down(state);
}

#define config_test(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)

static void make_file(const char *text, mode_t mode)
{
    folders_make(file);
    file_make(file, text, strlen(text), mode);
}

static void file_has(const char *text, mode_t mode)
{
    file_expect(file, text, strlen(text), mode);
}

/* ---- Setting ---- */

static void the_file_and_its_folder_are_made_for_the_user_alone(void **state)
{
    char text[200];
    const struct said *s;
    struct stat st;

    s = command("config set grace 2s");
    assert_int_equal(s->code, 0);
    snprintf(text, sizeof(text), "grace = 2s, in %s\n", file);
    assert_string_equal(s->out, text);
    assert_string_equal(s->err, "");
    file_has("grace = 2s\n", 0600);
    assert_int_equal(stat(path_in(made_root, "fiber"), &st), 0);
    assert_int_equal(st.st_mode & 0777, 0700);
    assert_int_equal(dir_count(path_in(made_root, "fiber"), ""), 1); /* nothing stays beside it */
}

static void what_stands_there_stays(void **state)
{
    make_file("; mine\n\ngrace = 9s ; as long\nheartbeat=1s", 0644);
    assert_int_equal(command("config set grace 2s")->code, 0);
    file_has("; mine\n\ngrace = 2s\nheartbeat=1s\n", 0644); /* its permissions, too */
    assert_int_equal(command("config set image reg/x:1")->code, 0);
    file_has("; mine\n\ngrace = 2s\nheartbeat=1s\nimage = reg/x:1\n", 0644);
}

static void a_value_that_the_file_cannot_hold_is_refused(void **state)
{
    static const struct {
        const char *key, *value, *part;
    } cases[] = {
        {"image", "a\nb", "a file cannot hold a value with a line break"},
        {"image", " a", "or with blanks at its ends"},
        {"image", "a ", "or with blanks at its ends"},
        {"image", "a ;b", "with \" ;\""},
        {"image", "a #b", "or \" #\""},
        {"grace", "soon", "grace"},
        {"grace", "", "grace"},
        {"grace", "-1s", "grace"},
        {"frobnicate", "1", "frobnicate"},
    };
    char path[PATH_MAX];

    make_file("heartbeat = 1s\n", 0600);
    for (size_t i = 0; i < COUNT(cases); i++) {
        err = (struct fbr_error){0, ""};
        assert_true(config_set(cases[i].key, cases[i].value, path, sizeof(path), &err) < 0);
        says(err.text, cases[i].part);
        file_has("heartbeat = 1s\n", 0600);
    }
    /* no blank before the ; and # */
    assert_int_equal(config_set("image", "a;b#c", path, sizeof(path), &err), 0);
    assert_string_equal(path, file);
    file_has("heartbeat = 1s\nimage = a;b#c\n", 0600);
}

static void a_file_that_cannot_be_read_is_left_alone(void **state)
{
    static char large[TEXT_FILE_MAX + 2];
    char text[200];

    make_file("grace = soon\nheartbeat = 1s\n", 0600);
    says(command("config set heartbeat 2s")->err, "fiber.conf:1");
    file_has("grace = soon\nheartbeat = 1s\n", 0600);
    assert_int_equal(command("config set grace 2s")->code, 0); /* which mends it */
    memset(large, '\n', sizeof(large) - 1);
    make_file(large, 0600);
    snprintf(text, sizeof(text), "%s: more than 1048576 bytes", file);
    refuses("config set grace 2s", 2, text);
    assert_int_equal(unlink(file), 0);
    assert_int_equal(mkdir(file, 0700), 0);
    snprintf(text, sizeof(text), "%s: Is a directory", file);
    refuses("config set grace 2s", 2, text);
}

static void where_no_file_can_be_it_is_told(void **state)
{
    char text[200];

    file_make(path_in(made_root, "plain"), "x", 1, 0600);
    setenv("XDG_CONFIG_HOME", path_in(made_root, "plain"), 1);
    snprintf(text, sizeof(text),
             "cannot make the folder of %s/plain/fiber/fiber.conf: Not a directory", made_root);
    refuses("config set grace 2s", 2, text);
    unsetenv("XDG_CONFIG_HOME");
    unsetenv("HOME");
    refuses("config set grace 2s", 2,
            "cannot write settings: neither HOME nor XDG_CONFIG_HOME is set");
}

static void what_wins_over_the_file_is_told(void **state)
{
    const struct said *s;

    setenv("FIBER_GRACE", "3s", 1);
    s = command("config set grace 4s");
    assert_int_equal(s->code, 0);
    assert_string_equal(s->err, "fiber: the value here is still 3s, from FIBER_GRACE, which "
                                "overrides the file\n");
    setenv("FIBER_GRACE", "4s", 1);
    assert_string_equal(command("config set grace 4s")->err, "");
    unsetenv("FIBER_GRACE");
}

/* ---- Showing ---- */

static void one_setting_is_shown_with_what_it_is_for(void **state)
{
    char text[200];
    const struct said *s;

    make_file("# none\ngrace = 7s\n", 0600);
    s = command("config show grace");
    assert_int_equal(s->code, 0);
    snprintf(text, sizeof(text), "grace = 7s\n  from %s:2; default ", file);
    assert_memory_equal(s->out, text, strlen(text));
    says(s->out, "; FIBER_GRACE; ");
    s = command("config show image");
    says(s->out, "image = \n  from default; default empty; FIBER_IMAGE; ");
    s = command("config show grace --json");
    says(s->out, "[{\"key\":\"grace\",\"value\":\"7s\",\"origin\":\"");
    assert_null(strstr(s->out, "\"key\":\"image\""));
}

static void all_settings_are_a_table(void **state)
{
    const struct said *s = command("config");
    size_t lines = 0, keys;

    assert_memory_equal(s->out, "KEY ", 4);
    says(s->out, "VALUE            ORIGIN\n");
    for (const char *at = s->out; (at = strchr(at, '\n')); at++)
        lines++;
    fbr_config_keys(&keys);
    assert_int_equal(lines, keys + 1);
    says(s->out, "\ngrace ");
    says(s->out, "\nkubernetes_user "); /* of backends, too */
}

static void mistakes_are_answered_with_the_right_words(void **state)
{
    static const struct {
        const char *line, *part;
    } cases[] = {
        {"config get grace", "config: \"get\" is none of: show set; did you mean set?"},
        {"config set grace", "set needs a KEY and a VALUE"},
        {"config set", "set needs a KEY and a VALUE"},
        {"config show grace 2s",
         "show takes at most one KEY; to set it, use `fiber config set KEY VALUE`"},
        {"config show grase", "there is no setting grase; did you mean grace?"},
        {"config set grase 2s", "there is no setting grase; did you mean grace?"},
        {"config show qqqqqqqqqqqq", "there is no setting qqqqqqqqqqqq\n"},
    };

    for (size_t i = 0; i < COUNT(cases); i++) {
        const struct said *s = command(cases[i].line);

        assert_int_equal(s->code, 2);
        assert_string_equal(s->out, "");
        says(s->err, cases[i].part);
    }
    assert_int_equal(access(file, F_OK), -1);
}

/* ---- Small files ---- */

static void a_small_file_is_read_whole(void **state)
{
    static char large[TEXT_FILE_MAX];
    char *text = NULL;
    size_t len = 0;

    memset(large, 'x', sizeof(large));
    file_make(path_in(made_root, "large"), large, sizeof(large), 0600);
    assert_int_equal(text_file_read(path_in(made_root, "large"), &text, &len, &err), 0);
    assert_int_equal(len, sizeof(large));
    free(text);
    file_make(path_in(made_root, "empty"), "", 0, 0600);
    assert_int_equal(text_file_read(path_in(made_root, "empty"), &text, &len, &err), 0);
    assert_int_equal(len, 0);
    free(text);
    text = NULL;
    assert_int_equal(text_file_read("/nowhere/file", &text, &len, &err), -ENOENT);
    assert_string_equal(err.text, "/nowhere/file: No such file or directory");
    assert_null(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        config_test(the_file_and_its_folder_are_made_for_the_user_alone),
        config_test(what_stands_there_stays),
        config_test(a_value_that_the_file_cannot_hold_is_refused),
        config_test(a_file_that_cannot_be_read_is_left_alone),
        config_test(where_no_file_can_be_it_is_told),
        config_test(what_wins_over_the_file_is_told),
        config_test(one_setting_is_shown_with_what_it_is_for),
        config_test(all_settings_are_a_table),
        config_test(mistakes_are_answered_with_the_right_words),
        config_test(a_small_file_is_read_whole),
    };

    return cmocka_run_group_tests_name("config_file", tests, NULL, NULL);
}
