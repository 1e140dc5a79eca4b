/* cli_option_fuzz.c - arguments of `fiber run`, one a line: parsed by its table and made options of
 * a ring of. They end in a sentence, or in something that can be started. The last one is completed,
 * too.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "cli/option.c"
#include "cli/run_env.c"
#include "cli/run_hosts.c"
#include "cli/run_apps.c"
#include "cli/run_options.c"
#include "cli/completion.c"

/* Files are not for a fuzzer to open; env_file_fuzz.c has what is in them. */
#define text_file_each unused_text_file_each
#define text_file_read unused_text_file_read
#include "cli/text_file.c"
#undef text_file_each
#undef text_file_read

#define ARGUMENTS 64
int text_file_each(const char *path, text_file_line *fn, void *user, struct fbr_error *err)
{
    char line[] = "NAME=value";

    if (!path[0])
        return fbr_fail(err, -ENOENT, "no file");
    return fn(user, path, line, err);
}

int text_file_read(const char *path, char **text, size_t *len, struct fbr_error *err)
{
    *text = strdup(path);
    *len = strlen(path);
    return *text ? 0 : fbr_fail(err, -ENOMEM, "out of memory");
}

static const struct cli_command command = {.name = "run",
                                           .operands = "PROGRAM",
                                           .kind = CLI_PROGRAM,
                                           .options = run_option_table,
                                           .count = RUN_OPTIONS,
                                           .least = 1,
                                           .most = -1,
                                           .stops = true};

const struct cli_command *const cli_commands[] = {&command, NULL};

const struct cli_command *cli_command_find(const char *name)
{
    return strcmp(name, command.name) ? NULL : &command;
}

int run_client_list(struct run_client **runs, size_t *count, bool ended, const char *kept,
                    struct fbr_error *err)
{
    *runs = NULL;
    *count = 0;
    return 0;
}

void run_client_list_free(struct run_client *runs, size_t count)
{
}

/* A line is a candidate, which begins with the word, or the only order for the shell. */
static void check_completion(int argc, char **argv)
{
    char *words[ARGUMENTS + 2] = {"fiber", "run"}, *text = NULL, *word;
    size_t len = 0;
    FILE *out = open_memstream(&text, &len);

    if (!out)
        return;
    memcpy(words + 2, argv, (size_t)argc * sizeof(*argv));
    cli_complete(out, argc + 2, words);
    fclose(out);
    word = words[argc + 1];
    for (char *line = text; *line; line = strchr(line, '\n') + 1)
        if (line[0] == ':' ? line != text : !is_split(word) && strncmp(line, word, strlen(word)))
            abort();
    free(text);
}

/* The programs of a run make its ranks; each has a command. */
static void check_programs(const struct run_options *s)
{
    int ranks = 0;

    for (int i = 0; i < s->ring.nprograms; i++) {
        if (s->ring.programs[i].count < 1 || !s->ring.programs[i].command[0])
            abort();
        ranks += s->ring.programs[i].count;
    }
    if (s->ring.nprograms == 1 ||
        (s->ring.nprograms ? ranks != s->size || s->ring.job.command : !s->ring.job.command[0]))
        abort();
}

static void check(const struct run_options *s)
{
    check_programs(s);
    if (s->size < 1 || s->ring.per_node < 0 || s->ring.nodes < 0 || s->ring.cpus_per_rank < 0 ||
        s->ring.timeout_ms < 0 || s->ring.gpus_per_rank < 0 || s->ring.max_restarts < 0)
        abort();
    for (int i = 0, left = s->size; s->ring.slots && i < s->ring.nodes; i++) {
        left -= s->ring.slots[i];
        if (s->ring.slots[i] < 1 || left < 0 || (i + 1 == s->ring.nodes && left))
            abort();
    }
    for (size_t i = 0; i < s->env.count; i++)
        if (!strchr(s->env.list[i], '=') || s->env.list[i][0] == '=')
            abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text = malloc(size + 1), *argv[ARGUMENTS], *at = text;
    struct fbr_error err = {0, ""};
    struct cli_args args;
    struct run_options spec;
    int argc = 0;

    if (!text)
        return 0;
    if (size)
        memcpy(text, data, size);
    text[size] = '\0';
    while (at && argc < ARGUMENTS)
        argv[argc++] = strsep(&at, "\n");
    check_completion(argc, argv);
    if (cli_parse(&command, argc, argv, &args, &err) == 0) {
        bool checked = !args.help && !args.version;

        if (checked && run_options_make(&spec, &args, &err) == 0) {
            check(&spec);
            run_options_fini(&spec);
        } else if (checked && !err.text[0]) {
            abort();
        }
        cli_args_fini(&args);
    } else if (!err.text[0]) {
        abort();
    }
    free(text);
    return 0;
}
