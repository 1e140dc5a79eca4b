/* command_util.h - a subcommand, run in this process as main.c runs it: what it prints, and its
 * exit code.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

#include "cli/option.h"
#include "fiber.h"

#define COUNT(a) (sizeof(a) / sizeof((a)[0]))
#define WORDS_MAX 32

/* Until the next call. */
struct said {
    int code;
    char out[1 << 16], err[1 << 14];
};

struct caught {
    int saved[2], file[2];
};

/* From now on standard output and standard error go into files. */
static inline void catch_begin(struct caught *c)
{
    fflush(NULL);
    for (int i = 0; i < 2; i++) {
        c->saved[i] = dup(i + 1);
        c->file[i] = memfd_create("said", MFD_CLOEXEC);
        assert_true(c->saved[i] >= 0 && c->file[i] >= 0);
        assert_int_equal(dup2(c->file[i], i + 1), i + 1);
    }
}

/* They go where they went before; what came meanwhile is in `said`. */
static inline void catch_end(struct caught *c, struct said *s)
{
    char *const texts[] = {s->out, s->err};
    const size_t sizes[] = {sizeof(s->out), sizeof(s->err)};

    fflush(NULL);
    for (int i = 0; i < 2; i++) {
        ssize_t n = pread(c->file[i], texts[i], sizes[i] - 1, 0);

        dup2(c->saved[i], i + 1);
        close(c->saved[i]);
        close(c->file[i]);
        assert_true(n >= 0);
        texts[i][n] = '\0';
    }
}

/* The words of a line, apart at blanks; they live in `text`. */
static inline int words_of(const char *line, char *text, size_t size, char **words)
{
    char *save = NULL;
    int n = 0;

    assert_true(snprintf(text, size, "%s", line) < (int)size);
    for (char *w = strtok_r(text, " ", &save); w; w = strtok_r(NULL, " ", &save)) {
        assert_true(n < WORDS_MAX);
        words[n++] = w;
    }
    return n;
}

/* What "--backend local" means here, if it is not NULL: words of options know no backend of
 * tests. */
static const char *command_backend;

static inline void put_backend(const struct cli_command *c, struct cli_args *args)
{
    for (size_t i = 0; command_backend && i < c->count; i++)
        if (!strcmp(c->options[i].name, "backend") && args->values[i].text)
            args->values[i].text = command_backend;
}

/* Runs "ps --json", and returns its exit code. */
static inline int command_code(const char *line)
{
    char text[1024], *words[WORDS_MAX];
    int n = words_of(line, text, sizeof(text), words), code;
    struct fbr_error err = {0, ""};
    const struct cli_command *c;
    struct cli_args args;

    assert_true(n > 0);
    assert_int_equal(fiber_init(NULL, NULL), 0);
    c = cli_command_find(words[0]);
    assert_non_null(c);
    if (cli_parse(c, n - 1, words + 1, &args, &err) < 0)
        return cli_usage(c, &err);
    code = cli_args_configure(&args, &err) < 0 ? cli_usage(c, &err) : 0;
    put_backend(c, &args);
    if (code == 0)
        code = c->run(&args);
    cli_args_fini(&args);
    return code;
}

/* "ps --json": its exit code and what it prints. */
static inline const struct said *command(const char *line)
{
    static struct said s;
    struct caught caught;

    memset(&s, 0, sizeof(s));
    catch_begin(&caught);
    s.code = command_code(line);
    catch_end(&caught, &s);
    return &s;
}

/* The test fails, and shows what was said, unless `text` has `part` in it. */
static inline void says(const char *text, const char *part)
{
    if (!strstr(text, part))
        fail_msg("no \"%s\" in:\n%s", part, text);
}

/* That command fails with this code and this sentence, and prints nothing else. */
static inline void refuses(const char *line, int code, const char *sentence)
{
    const struct said *s = command(line);
    size_t n = strlen(sentence);

    if (s->code != code || s->out[0] || strncmp(s->err, "fiber: ", 7) != 0 ||
        strncmp(s->err + 7, sentence, n) != 0 || strcmp(s->err + 7 + n, "\n") != 0)
        fail_msg("fiber %s: code %d, output \"%s\", errors \"%s\"", line, s->code, s->out, s->err);
}
