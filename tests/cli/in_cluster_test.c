/* in_cluster_test.c - what `fiber run --in-cluster` says to the master that it starts, and how it
 * shows the output.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <pty.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "cli/in_cluster.h"
#include "tests/support/sync.h"

/* The words that the master gets for a command line, with blanks between them. */
static void told(const char *line, char *out, size_t size)
{
    char text[512], *argv[24], *save = NULL, **words;
    struct fbr_error err = {0, ""};
    struct run_options spec;
    struct cli_args args;
    int argc = 0;

    snprintf(text, sizeof(text), "%s", line);
    for (char *word = strtok_r(text, " ", &save); word && argc < 24;
         word = strtok_r(NULL, " ", &save))
        argv[argc++] = word;
    assert_int_equal(cli_parse(cli_command_find("run"), argc, argv, &args, &err), 0);
    assert_int_equal(run_options_make(&spec, &args, &err), 0);
    assert_int_equal(run_apps_whole(&spec.programs, &args, &err), 0);
    words = in_cluster_words(&spec, &args);
    assert_non_null(words);
    out[0] = '\0';
    for (size_t i = 0; words[i]; i++)
        snprintf(out + strlen(out), size - strlen(out), "%s%s", i ? " " : "", words[i]);
    fbr_list_free(words);
    run_options_fini(&spec);
    cli_args_fini(&args);
}

static void the_master_is_told_the_same_options(void **state)
{
    static const char *const cases[][2] = {
        {"--in-cluster p", "fiber run -- p"},
        {"-n 4 -N 2 --in-cluster p -x A", "fiber run --np=4 --per-node=2 -- p -x A"},
        {"-in-cluster -vv --timeout 90 p", "fiber run --timeout=90 --verbose --verbose -- p"},
        {"--in-cluster -bind-to socket -l p", "fiber run --bind-to=socket --tag -- p"},
        {"--in-cluster --image a:1 p", "fiber run --image=a:1 -- p"},
        {"--in-cluster --allow-run-as-root --mpi pmix p", "fiber run -- p"},
    };
    char words[512];

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        told(cases[i][0], words, sizeof(words));
        assert_string_equal(words, cases[i][1]);
    }
}

static void where_it_runs_is_not_said_again(void **state)
{
    char words[512];

    told("--in-cluster -b kubernetes --namespace team -n 2 p", words, sizeof(words));
    assert_string_equal(words, "fiber run --np=2 -- p");
}

/* Every user who may look at a process sees its arguments. */
static void values_of_variables_are_in_no_argument(void **state)
{
    char words[512];

    setenv("HERE", "secret", 1);
    told("--in-cluster -x A=secret -x HERE --genv B secret --mca btl secret p", words,
         sizeof(words));
    assert_string_equal(words, "fiber run --env=A --env=HERE --env=OMPI_MCA_btl --env=B -- p");
}

/* The master starts in the working directory of its image, which is another one. */
static void programs_of_this_folder_are_named_whole(void **state)
{
    char dir[64], here[4096], words[512], want[512];

    assert_non_null(getcwd(here, sizeof(here)));
    temp_dir_make(dir);
    assert_int_equal(chdir(dir), 0);
    assert_int_equal(mkdir("sub", 0755), 0);
    close(open("a", O_CREAT | O_WRONLY, 0755));
    close(open("sub/b", O_CREAT | O_WRONLY, 0755));
    close(open("data", O_CREAT | O_WRONLY, 0644));
    told("--in-cluster -n 1 ./a ./a : -n 2 sub/../sub/b", words, sizeof(words));
    snprintf(want, sizeof(want), "fiber run --np=1 -- %s/a ./a : -n 2 %s/sub/b", dir, dir);
    assert_string_equal(words, want);
    told("--in-cluster ./a x", words, sizeof(words));
    snprintf(want, sizeof(want), "fiber run -- %s/a x", dir);
    assert_string_equal(words, want);
    told("--in-cluster --workdir /app ./a", words, sizeof(words));
    assert_string_equal(words, "fiber run --workdir=/app -- ./a");
    told("--in-cluster ./data", words, sizeof(words));
    assert_string_equal(words, "fiber run -- ./data");
    told("--in-cluster a", words, sizeof(words));
    assert_string_equal(words, "fiber run -- a");
    assert_int_equal(chdir(here), 0);
    temp_dir_remove(dir);
}

/* Writes a sequence in two parts to standard output, which is `fd` meanwhile. */
static void print_to(int fd)
{
    struct fbr_printable_filter filter = {.plain = false};
    static const atomic_bool stopped;
    int saved = dup(STDOUT_FILENO);

    fflush(stdout);
    assert_int_equal(dup2(fd, STDOUT_FILENO), STDOUT_FILENO);
    assert_true(in_cluster_print(&filter, &stopped, "\x1b[", 2));
    assert_true(in_cluster_print(&filter, &stopped, "2Jrank \x1b[1m0", 12));
    dup2(saved, STDOUT_FILENO);
    close(saved);
}

static void a_terminal_gets_no_escape_sequences(void **state)
{
    static const char bytes[] = "\x1b[2Jrank \x1b[1m0", safe[] = "rank \x1b[1m0";
    int ends[2], master, slave;
    char got[64];

    assert_int_equal(pipe(ends), 0);
    print_to(ends[1]);
    assert_int_equal(read(ends[0], got, sizeof(got)), sizeof(bytes) - 1);
    assert_memory_equal(got, bytes, sizeof(bytes) - 1);
    assert_int_equal(openpty(&master, &slave, NULL, NULL, NULL), 0);
    print_to(slave);
    assert_int_equal(read(master, got, sizeof(got)), sizeof(safe) - 1);
    assert_memory_equal(got, safe, sizeof(safe) - 1);
    close(ends[0]);
    close(ends[1]);
    close(master);
    close(slave);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_master_is_told_the_same_options),
        cmocka_unit_test(where_it_runs_is_not_said_again),
        cmocka_unit_test(programs_of_this_folder_are_named_whole),
        cmocka_unit_test(values_of_variables_are_in_no_argument),
        cmocka_unit_test(a_terminal_gets_no_escape_sequences),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
