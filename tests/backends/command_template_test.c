/* command_template_test.c - words, placeholders and hosts of the command backend.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "backends/command/template.h"

static struct fbr_args split(const char *text)
{
    struct fbr_args w = {0};

    assert_int_equal(fbr_args_split(&w, text, NULL), 0);
    return w;
}

/* The words with a '|' after each. */
static void assert_words(const struct fbr_args *w, const char *want)
{
    char text[1024] = "";

    for (size_t i = 0; i < w->n; i++)
        snprintf(text + strlen(text), sizeof(text) - strlen(text), "%s|", w->at[i]);
    assert_string_equal(text, want);
    if (w->n)
        assert_null(w->at[w->n]);
}

static void words_are_cut_at_blanks_and_kept_by_quotes(void **state)
{
    static const char *const cases[][2] = {
        {"", ""},
        {" \t ", ""},
        {"ssh {host}", "ssh|{host}|"},
        {"a  b\tc\n", "a|b|c|"},
        {"'a b' \"c d\" e\\ f", "a b|c d|e f|"},
        {"'' x", "|x|"},
        {"a'b c'd", "ab cd|"},
        {"'\\' \"\\\"\"", "\\|\"|"},
        {"\"a\\d \\\\ \\$\"", "a\\d \\ $|"}, /* "a\d \\ \$" */
        {"$HOME *.c ; | &", "$HOME|*.c|;|||&|"},
        {"end\\", "end\\|"},
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct fbr_args w = split(cases[i][0]);

        assert_words(&w, cases[i][1]);
        fbr_args_fini(&w);
    }
}

static void an_open_quote_is_told(void **state)
{
    struct fbr_args w = {0};
    struct fbr_error err = {0, ""};

    assert_int_equal(fbr_args_split(&w, "ssh 'h1", &err), -EINVAL);
    assert_non_null(strstr(err.text, "not closed"));
    fbr_args_fini(&w);
}

static void placeholders_are_checked(void **state)
{
    static const char *const good[] = {"ssh {host}", "x {{y} {{", "a{name}-{run}b {ids}",
                                       "{argv} {command}"};
    static const char *const bad[] = {"x {hots}", "x {", "x a{argv}", "x {command}b", "x {}"};

    for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
        struct fbr_args w = split(good[i]);

        assert_int_equal(fbr_template_check(&w, NULL), 0);
        fbr_args_fini(&w);
    }
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        struct fbr_args w = split(bad[i]);
        struct fbr_error err = {0, ""};

        assert_int_equal(fbr_template_check(&w, &err), -EINVAL);
        assert_non_null(strstr(err.text, w.at[1]));
        fbr_args_fini(&w);
    }
}

static void assert_filled(const char *text, const struct fbr_fill *f, const char *want)
{
    struct fbr_args t = split(text), out = {0};

    assert_int_equal(fbr_template_complete(&t), 0);
    assert_int_equal(fbr_template_fill(&t, f, &out, NULL), 0);
    assert_words(&out, want);
    fbr_args_fini(&t);
    fbr_args_fini(&out);
}

static void a_long_path_of_a_ticket_is_kept(void **state)
{
    char ticket[700], want[800];

    memset(ticket, 'd', sizeof(ticket));
    ticket[sizeof(ticket) - 1] = '\0';
    snprintf(want, sizeof(want), "env|FIBER_TICKET=%s|p|", ticket);
    assert_filled("{command}", &(struct fbr_fill){.program = "p", .ticket = ticket}, want);
}

static void templates_are_filled(void **state)
{
    static const char *const ids[] = {"7", "8", NULL};
    static char *env[] = {"A=b c", "no setting", "-x=y", "FIBER_TICKET=fd:9", "B=", NULL},
                *argv[] = {"-v", "it's", NULL};
    const struct fbr_fill f = {.host = "h1",
                               .name = "process-1",
                               .run = "beef",
                               .id = "7",
                               .workdir = "/my work",
                               .ticket = "fd:0",
                               .env = env,
                               .program = "/bin/prog",
                               .argv = argv,
                               .ids = ids};
    const struct fbr_fill bare = {.program = "p"}, equals = {.program = "/lr=1/p", .argv = argv};

    assert_filled("ip netns exec {host}", &f,
                  "ip|netns|exec|h1|env|-C|/my work|FIBER_TICKET=fd:0|A=b c|B=|/bin/prog|-v|it's|");
    assert_filled(
        "/usr/bin/ssh {host}", &f,
        "/usr/bin/ssh|h1|env -C '/my work' FIBER_TICKET=fd:0 'A=b c' B= /bin/prog -v 'it'\\''s'|");
    assert_filled("run --name={name}.{run} {program} {argv} {workdir}", &f,
                  "run|--name=process-1.beef|/bin/prog|-v|it's|/my work|");
    assert_filled("a {{host} {ids} --jobs={ids} {command}", &bare, "a|{host}|--jobs=|env|p|");
    assert_filled(
        "x {command}", &equals,
        "x|env|sh|-c|exec \"$0\" \"$@\"|/lr=1/p|-v|it's|"); /* env would take it for a variable */
    assert_filled("kill {id} {ids} --jobs={ids} {program}", &f, "kill|7|7|8|--jobs=7,8|/bin/prog|");
}

static void assert_hosts(const char *text, const char *want)
{
    struct fbr_hosts h = {0};
    struct fbr_error err = {0, ""};
    char got[512] = "";

    if (fbr_hosts_parse(&h, "FILE", text, &err) < 0)
        snprintf(got, sizeof(got), "%.300s", err.text);
    for (size_t i = 0; i < h.n && !err.code; i++)
        snprintf(got + strlen(got), sizeof(got) - strlen(got), "%s/%u ", h.at[i].name,
                 h.at[i].slots);
    if (err.code)
        assert_non_null(strstr(got, want));
    else
        assert_string_equal(got, want);
    fbr_hosts_fini(&h);
}

static void hosts_are_read(void **state)
{
    assert_hosts("", "");
    assert_hosts("h1 h2:4,me@h3", "h1/0 h2/4 me@h3/0 ");
    assert_hosts("# all\nh1 slots=2 # two\n\nh2\n", "h1/2 h2/0 ");
    assert_hosts("[2001:db8::1]:3 2001:db8::2 [::1]", "2001:db8::1/3 2001:db8::2/0 ::1/0 ");
    assert_hosts("h1\nh2:0", "FILE:2: 'h2:0' is not a host");
    assert_hosts("h1\n\n-oProxyCommand=x", "FILE:3");
    assert_hosts("slots=3", "FILE:1");
    assert_hosts("h1 h2:x", "FILE:1");
    assert_hosts("[::1", "FILE:1");
    assert_hosts("h1;rm", "FILE:1");
    assert_hosts("h:99999999", "FILE:1");
}

static void hosts_take_turns_as_far_as_their_slots_go(void **state)
{
    static const char *const turns[] = {"a", "b", "c", "b", "c", "c", "a", "b", "c"};
    struct fbr_hosts h = {0};

    assert_null(fbr_hosts_pick(&h));
    assert_int_equal(fbr_hosts_parse(&h, "", "a:1 b:2 c:3", NULL), 0);
    for (size_t i = 0; i < sizeof(turns) / sizeof(turns[0]); i++) {
        struct fbr_host *host = fbr_hosts_pick(&h);

        assert_string_equal(host->name, turns[i]);
        host->used++;
    }
    h.at[1].used = 0;
    assert_string_equal(fbr_hosts_pick(&h)->name, "b");
    fbr_hosts_fini(&h);
}

static void labels_are_found_in_what_managers_list(void **state)
{
    static const char *const none[] = {"",
                                       "7",
                                       "7 other:job",
                                       "fiber:beef:h:1:a.2:w",
                                       "7 fiber:beef",
                                       "7 fiber:beef:h:1:a.2",
                                       "7 fiber:../x:h:1:a.2:w",
                                       "-x fiber:beef:h:1:a.2:w"};
    char label[FBR_LABEL_MAX], line[600], odd[300];
    struct fbr_labelled l;

    fbr_label(label, "beef", "my-host:12:0a1b.77", "a b'c\n:|");
    assert_string_equal(label, "fiber:beef:my-host:12:0a1b.77:a_b_c___");
    snprintf(line, sizeof(line), "  7_2 | PD | %s | more", label);
    assert_true(fbr_label_line(line, &l));
    assert_string_equal(l.id, "7_2");
    assert_string_equal(l.run, "beef");
    assert_string_equal(l.master, "my-host:12:0a1b.77");
    assert_string_equal(l.name, "a_b_c___");
    for (size_t i = 0; i < sizeof(none) / sizeof(none[0]); i++) {
        snprintf(line, sizeof(line), "%s", none[i]);
        if (fbr_label_line(line, &l))
            fail_msg("'%s' was taken", none[i]);
    }
    memset(odd, 'x', sizeof(odd) - 1); /* one that is too long is cut */
    odd[sizeof(odd) - 1] = '\0';
    fbr_label(label, "beef", "h:1:a.2", odd);
    assert_int_equal(strlen(label), FBR_LABEL_MAX - 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(words_are_cut_at_blanks_and_kept_by_quotes),
        cmocka_unit_test(an_open_quote_is_told),
        cmocka_unit_test(placeholders_are_checked),
        cmocka_unit_test(templates_are_filled),
        cmocka_unit_test(a_long_path_of_a_ticket_is_kept),
        cmocka_unit_test(labels_are_found_in_what_managers_list),
        cmocka_unit_test(hosts_are_read),
        cmocka_unit_test(hosts_take_turns_as_far_as_their_slots_go),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
