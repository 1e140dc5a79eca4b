/* option_test.c - arguments as people write them, and as they write them wrongly.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "cli/option.h"

enum {
    A_COUNT,
    A_NAME,
    A_TIME,
    A_SIZE,
    A_WORD,
    A_LIST,
    A_PAIR,
    A_FLAG,
    A_VERBOSE,
    A_MODE,
    A_NOTHING,
    A_SKIP,
    A_HOST,
    A_FOREIGN,
    A_OPTIONS
};

static const struct cli_option options[A_OPTIONS] = {
    [A_COUNT] = {.name = "np",
                 .letter = 'n',
                 .type = CLI_INT,
                 .argument = "N",
                 .min = 1,
                 .max = 100,
                 .also = "n ranks"},
    [A_NAME] = {.name = "bind-to", .letter = 0, .type = CLI_TEXT, .argument = "X"},
    [A_TIME] = {.name = "timeout", .letter = 0, .type = CLI_MS, .argument = "T"},
    [A_SIZE] = {.name = "mem", .letter = 0, .type = CLI_SIZE, .argument = "S"},
    [A_WORD] = {.name = "on-failure",
                .letter = 0,
                .type = CLI_WORD,
                .argument = "W",
                .words = "abort restart shrink"},
    [A_LIST] = {.name = "env", .letter = 'x', .type = CLI_LIST, .argument = "V"},
    [A_PAIR] = {.name = "mca", .letter = 0, .type = CLI_PAIR, .argument = "K V"},
    [A_FLAG] = {.name = "tag", .letter = 'l', .type = CLI_FLAG, .also = "tag-output"},
    [A_VERBOSE] = {.name = "verbose", .letter = 'v', .type = CLI_FLAG},
    [A_MODE] = {.name = "dry-run", .type = CLI_FLAG, .words = "client server"},
    [A_NOTHING] = {.name = "allow-run-as-root", .letter = 0, .type = CLI_NOTHING},
    [A_SKIP] = {.name = "mpi", .letter = 0, .type = CLI_NOTHING, .argument = "X"},
    [A_HOST] = {.name = "host",
                .letter = 'H',
                .type = CLI_REFUSED,
                .argument = "HOSTS",
                .also = "hostfile f",
                .help = "use something else"},
    [A_FOREIGN] = {.name = "time", .type = CLI_TEXT, .argument = "T", .foreign = true},
};

static const struct cli_command stops = {.name = "try",
                                         .operands = "PROGRAM",
                                         .kind = CLI_PROGRAM,
                                         .options = options,
                                         .count = A_OPTIONS,
                                         .least = 1,
                                         .most = -1,
                                         .stops = true};
static const struct cli_command two = {.name = "try",
                                       .operands = "ONE [TWO]",
                                       .options = options,
                                       .count = A_OPTIONS,
                                       .least = 1,
                                       .most = 2};

#define MAX_ARGUMENTS 16

/* Splits at blanks and parses; the words live until the next call. */
static int parse(const struct cli_command *c, const char *line, struct cli_args *args,
                 struct fbr_error *err)
{
    static char text[512];
    char *argv[MAX_ARGUMENTS], *save = NULL;
    int argc = 0;

    snprintf(text, sizeof(text), "%s", line);
    for (char *word = strtok_r(text, " ", &save); word && argc < MAX_ARGUMENTS;
         word = strtok_r(NULL, " ", &save))
        argv[argc++] = word;
    memset(err, 0, sizeof(*err));
    return cli_parse(c, argc, argv, args, err);
}

static void refused(const struct cli_command *c, const char *line, const char *text)
{
    struct cli_args args;
    struct fbr_error err;

    assert_int_equal(parse(c, line, &args, &err), -22);
    assert_string_equal(err.text, text);
}

static void numbers_are_written_in_many_ways(void **state)
{
    static const char *const ways[] = {
        "-n 4 p",  "-n4 p",      "-n=4 p",      "-np 4 p",     "--np 4 p", "--np=4 p", "-np=4 p",
        "--n 4 p", "-ranks 4 p", "--ranks=4 p", "-n 2 -n 4 p", "-l -n4 p", "-ln4 p"};

    for (size_t i = 0; i < sizeof(ways) / sizeof(ways[0]); i++) {
        struct cli_args args;
        struct fbr_error err;

        assert_int_equal(parse(&stops, ways[i], &args, &err), 0);
        assert_int_equal(args.values[A_COUNT].number, 4);
        assert_int_equal(args.noperands, 1);
        assert_string_equal(args.operands[0], "p");
        cli_args_fini(&args);
    }
}

static void durations_sizes_and_words_have_values(void **state)
{
    static const struct {
        const char *line;
        int option;
        int64_t value;
    } cases[] = {
        {"--timeout 90 p", A_TIME, 90000},     {"--timeout 1.5s p", A_TIME, 1500},
        {"--timeout=2m p", A_TIME, 120000},    {"--mem 8Gi p", A_SIZE, 8LL << 30},
        {"--mem 8GiB p", A_SIZE, 8LL << 30},   {"--mem 100 p", A_SIZE, 100},
        {"--on-failure restart p", A_WORD, 1}, {"-vv -v p", A_VERBOSE, 3},
        {"-tag-output p", A_FLAG, 1},
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct cli_args args;
        struct fbr_error err;

        assert_int_equal(parse(&stops, cases[i].line, &args, &err), 0);
        assert_int_equal(args.values[cases[i].option].number, cases[i].value);
        cli_args_fini(&args);
    }
}

static void lists_and_pairs_are_kept_in_order(void **state)
{
    struct cli_args args;
    struct fbr_error err;

    assert_int_equal(parse(&stops, "-x A=1 --env B -xC --mca pml ob1 -mca=btl self p", &args, &err),
                     0);
    assert_int_equal(args.values[A_LIST].count, 3);
    assert_string_equal(args.values[A_LIST].list[0], "A=1");
    assert_string_equal(args.values[A_LIST].list[2], "C");
    assert_string_equal(args.values[A_LIST].said[1], "--env");
    assert_string_equal(args.values[A_LIST].said[2], "-x");
    assert_int_equal(args.values[A_PAIR].count, 4);
    assert_string_equal(args.values[A_PAIR].list[1], "ob1");
    assert_string_equal(args.values[A_PAIR].list[2], "btl");
    cli_args_fini(&args);
}

static void what_follows_the_program_is_the_programs(void **state)
{
    struct cli_args args;
    struct fbr_error err;

    assert_int_equal(parse(&stops, "-l p -n 8 --help -- x", &args, &err), 0);
    assert_int_equal(args.noperands, 6);
    assert_string_equal(args.operands[1], "-n");
    assert_null(args.operands[6]);
    assert_null(args.values[A_COUNT].text);
    assert_false(args.help);
    cli_args_fini(&args);
    assert_int_equal(parse(&stops, "-n 2 -- -p -l", &args, &err), 0);
    assert_string_equal(args.operands[0], "-p");
    assert_int_equal(args.noperands, 2);
    cli_args_fini(&args);
}

static void other_commands_take_options_anywhere(void **state)
{
    struct cli_args args;
    struct fbr_error err;

    assert_int_equal(parse(&two, "one -n 3 two -l", &args, &err), 0);
    assert_int_equal(args.noperands, 2);
    assert_int_equal(args.values[A_FLAG].number, 1);
    cli_args_fini(&args);
    refused(&two, "a b c", "\"c\" is one argument too many");
    refused(&two, "", "an argument is missing: fiber try ONE [TWO]");
    refused(&stops, "-n 2", "the program is missing: fiber try PROGRAM");
}

static void what_means_nothing_is_passed_over(void **state)
{
    struct cli_args args;
    struct fbr_error err;

    assert_int_equal(parse(&stops, "--allow-run-as-root --mpi pmix -mpi=pmi2 p", &args, &err), 0);
    assert_int_equal(args.noperands, 1);
    cli_args_fini(&args);
}

static void a_flag_may_have_a_word_behind_it(void **state)
{
    static const struct {
        const char *line, *text;
    } cases[] = {{"--dry-run p", ""},
                 {"--dry-run=server p", "server"},
                 {"-dry-run=client p", "client"},
                 {"--dry-run server", ""}}; /* a program of that name */

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct cli_args args;
        struct fbr_error err;

        assert_int_equal(parse(&stops, cases[i].line, &args, &err), 0);
        assert_int_equal(args.values[A_MODE].number, 1);
        assert_string_equal(args.values[A_MODE].text, cases[i].text);
        cli_args_fini(&args);
    }
    refused(&stops, "--dry-run=serve p",
            "--dry-run: \"serve\" is none of: client server; did you mean server?");
    refused(&stops, "--dry-run= p", "--dry-run: \"\" is none of: client server");
    refused(&stops, "--tag=x p", "--tag takes no value, but has \"x\"");
}

static void help_ends_the_checks(void **state)
{
    static const char *const ways[] = {"--help", "-h", "-help", "-n 3 --help", "-lh"};

    for (size_t i = 0; i < sizeof(ways) / sizeof(ways[0]); i++) {
        struct cli_args args;
        struct fbr_error err;

        assert_int_equal(parse(&stops, ways[i], &args, &err), 0);
        assert_true(args.help);
        cli_args_fini(&args);
    }
}

static void mistakes_are_told_with_what_to_try(void **state)
{
    refused(&stops, "--timout 3 p", "there is no option --timout; did you mean --timeout?");
    refused(&stops, "-bind-two core p", "there is no option -bind-two; did you mean --bind-to?");
    refused(&stops, "--on-fail restart p",
            "there is no option --on-fail; did you mean --on-failure?");
    refused(&stops, "--bnid-too x p", "there is no option --bnid-too; did you mean --bind-to?");
    refused(&stops, "--timout=3 p", "there is no option --timout; did you mean --timeout?");
    refused(&stops, "--tim 5 p", "there is no option --tim; did you mean --timeout?");
    refused(&stops, "--tiem 5 p", "there is no option --tiem; did you mean --time?");
    refused(&stops, "--quite-unlike p", "there is no option --quite-unlike");
    refused(&stops, "--on-failure restrat p",
            "--on-failure: \"restrat\" is none of: abort restart shrink; did you mean restart?");
    refused(&stops, "--on-failure explode p",
            "--on-failure: \"explode\" is none of: abort restart shrink");
    refused(&stops, "--tag=1 p", "--tag takes no value, but has \"1\"");
    refused(&stops, "-n", "-n needs a value");
    refused(&stops, "--mca pml", "--mca needs two values");
    refused(&stops, "-lq p", "there is no option -q (in -lq)");
    refused(&stops, "-H a,b p", "-H: use something else");
    refused(&stops, "--hostfile x p", "--hostfile: use something else");
    refused(&stops, "-f x p", "-f: use something else");
}

static void numbers_out_of_bounds_are_refused(void **state)
{
    static const char *const wrong[] = {"-n 0 p",         "-n 101 p",
                                        "-n -1 p",        "-n x p",
                                        "-n 4x p",        "-n 99999999999999999999 p",
                                        "--timeout 5x p", "--timeout -1 p",
                                        "--mem much p",   "--mem 8B p"};

    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        struct cli_args args;
        struct fbr_error err;

        assert_int_equal(parse(&stops, wrong[i], &args, &err), -22);
        assert_true(err.text[0] == '-');
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(numbers_are_written_in_many_ways),
        cmocka_unit_test(durations_sizes_and_words_have_values),
        cmocka_unit_test(lists_and_pairs_are_kept_in_order),
        cmocka_unit_test(what_follows_the_program_is_the_programs),
        cmocka_unit_test(other_commands_take_options_anywhere),
        cmocka_unit_test(what_means_nothing_is_passed_over),
        cmocka_unit_test(a_flag_may_have_a_word_behind_it),
        cmocka_unit_test(help_ends_the_checks),
        cmocka_unit_test(mistakes_are_told_with_what_to_try),
        cmocka_unit_test(numbers_out_of_bounds_are_refused),
    };

    return cmocka_run_group_tests_name("option", tests, NULL, NULL);
}
