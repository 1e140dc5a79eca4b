/* help_page_test.c - how a table of options becomes a page for a terminal.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "tests/cli/command_util.h"

static const struct cli_option options[] = {
    {.name = "np",
     .letter = 'n',
     .type = CLI_INT,
     .argument = "N",
     .help = "so many ranks",
     .also = "n ranks"},
    {.name = "on-failure",
     .type = CLI_WORD,
     .argument = "W",
     .words = "abort restart",
     .help = "what follows"},
    {.name = "dry-run", .type = CLI_FLAG, .words = "client server", .help = "starts nothing"},
    {.name = "restarts", .type = CLI_FLAG, .max = 9, .help = "again"},
    {.name = "an-option-of-a-long-name",
     .letter = 'a',
     .type = CLI_TEXT,
     .argument = "ARGUMENT",
     .help = "its text begins on a line of its own"},
    {.name = "secret", .type = CLI_FLAG, .help = "hidden", .hidden = true},
    {.name = "other", .type = CLI_FLAG, .help = "of others", .foreign = true},
    {.name = "nothing", .type = CLI_NOTHING, .help = "passed over"},
    {.name = "refused", .type = CLI_REFUSED, .help = "use something else", .also = "no"},
};
static const struct cli_command page = {
    .name = "try",
    .operands = "PROGRAM",
    .about = "Tries a program",
    .text = "A paragraph whose words are broken where the line ends, which is at a width.\n\n"
            "  as it is:   x\n  y\n\nThe last one.",
    .examples = "fiber try ./p\tonce\nfiber try --an-option-of-a-long-name ./p\ttwice\nfiber try",
    .exit = "0\tit went well\n1\tit did not",
    .options = options,
    .count = COUNT(options),
};

/* The page for a terminal of that width. */
static const char *shown(const struct cli_command *c, int width)
{
    static char text[1 << 16];
    FILE *out = fmemopen(text, sizeof(text), "w");

    assert_non_null(out);
    memset(text, 0, sizeof(text));
    cli_help_command(out, c, width);
    assert_int_equal(fclose(out), 0);
    return text;
}

static void a_page_has_what_people_need(void **state)
{
    assert_string_equal(
        shown(&page, 80),
        "Usage: fiber try [OPTION...] PROGRAM\n\n"
        "Tries a program.\n\n"
        "A paragraph whose words are broken where the line ends, which is at a width.\n\n"
        "  as it is:   x\n  y\n\n"
        "The last one.\n\n"
        "Options:\n"
        "  -n, --np N               so many ranks\n"
        "      --on-failure W       what follows (abort, restart)\n"
        "      --dry-run[=WORD]     starts nothing (client, server)\n"
        "      --restarts[=N]       again\n"
        "  -a, --an-option-of-a-long-name ARGUMENT\n"
        "                           its text begins on a line of its own\n\n"
        "Examples:\n"
        "  fiber try ./p                     once\n"
        "  fiber try --an-option-of-a-long-name ./p\n"
        "                                    twice\n"
        "  fiber try\n\n"
        "Exit code:\n"
        "  0         it went well\n"
        "  1         it did not\n");
}

/* But for a line that stands in the page as it is, or has one word. */
static void lines_are_no_longer_than_the_terminal(void **state)
{
    for (int width = 50; width <= 100; width++)
        for (size_t c = 0; cli_commands[c]; c++)
            for (const char *at = shown(cli_commands[c], width); *at;) {
                int n = (int)strcspn(at, "\n");

                if (n > width && strncmp(at, "  ", 2) != 0 && strncmp(at, "Usage: ", 7) != 0 &&
                    strncmp(at, cli_commands[c]->about, strlen(cli_commands[c]->about)) != 0)
                    fail_msg("%s at %d: %.*s", cli_commands[c]->name, width, n, at);
                at += n + (at[n] == '\n');
            }
}

static void words_are_broken_at_the_width(void **state)
{
    says(shown(&page, 50), "\nA paragraph whose words are broken where the line\n"
                           "ends, which is at a width.\n");
    says(shown(&page, 50), "\n                           its text begins on a\n"
                           "                           line of its own\n");
    says(shown(&page, 76),
         "\nA paragraph whose words are broken where the line ends, which is at a "
         "width.\n");
    says(shown(&page, 75),
         "\nA paragraph whose words are broken where the line ends, which is at a\n"
         "width.\n");
}

static void what_is_not_for_people_is_not_shown(void **state)
{
    static const char *const words[] = {"secret",    "hidden",    "--other",
                                        "--nothing", "--refused", "n ranks"};
    static const struct cli_option none[] = {{.name = "secret", .type = CLI_FLAG, .hidden = true}};
    static const struct cli_command bare = {
        .name = "bare", .operands = "", .about = "Does it", .options = none, .count = 1};

    for (size_t i = 0; i < COUNT(words); i++)
        if (strstr(shown(&page, 80), words[i]))
            fail_msg("%s is shown", words[i]);
    assert_string_equal(shown(&bare, 80), "Usage: fiber bare\n\nDoes it.\n");
}

static void a_width_is_within_bounds(void **state)
{
    static const struct {
        const char *columns;
        int width;
    } cases[] = {{NULL, 80}, {"60", 80}, {"10", 80}}; /* a file has no width of its own */
    int file = memfd_create("out", MFD_CLOEXEC);

    for (size_t i = 0; i < COUNT(cases); i++) {
        if (cases[i].columns)
            setenv("COLUMNS", cases[i].columns, 1);
        else
            unsetenv("COLUMNS");
        assert_int_equal(cli_width(file), cases[i].width);
    }
    unsetenv("COLUMNS");
    close(file);
}

static void other_spellings_have_a_page(void **state)
{
    const struct said *s = command("help mpirun");

    assert_int_equal(s->code, 0);
    says(s->out, "Options of other launchers that fiber run understands.\n");
    says(s->out, "      the same as --np\n");
    says(s->out, "      refused: ");
    says(s->out, "      accepted: ");
}

static void an_unknown_page_is_refused_with_a_guess(void **state)
{
    refuses("help rnu", 2, "there is no subcommand rnu; did you mean run?");
    refuses("help stop", 2, "there is no subcommand stop; did you mean kill?");
    refuses("help frobnicate", 2, "there is no subcommand frobnicate; `fiber help` lists all");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_page_has_what_people_need),
        cmocka_unit_test(lines_are_no_longer_than_the_terminal),
        cmocka_unit_test(words_are_broken_at_the_width),
        cmocka_unit_test(what_is_not_for_people_is_not_shown),
        cmocka_unit_test(a_width_is_within_bounds),
        cmocka_unit_test(other_spellings_have_a_page),
        cmocka_unit_test(an_unknown_page_is_refused_with_a_guess),
    };

    return cmocka_run_group_tests_name("help_page", tests, NULL, NULL);
}
