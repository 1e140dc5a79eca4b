/* option.c - parses arguments by a subcommand's table of options.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "cli/option.h"

#include <ctype.h>
#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "runtime/base/printable.h"
#include "runtime/base/config.h"
#include "runtime/base/config_value.h"
#include "runtime/proc/context.h"

/* ---- Words ---- */

void cli_guess_begin(struct cli_guess *g, const char *typed)
{
    size_t len = strlen(typed);

    *g = (struct cli_guess){.typed = typed, .limit = (len < 4 ? 1 : len < 9 ? 2 : len / 4) + 1};
}

void cli_guess_try(struct cli_guess *g, const char *word)
{
    size_t len = strlen(g->typed), n = strcspn(word, " ");
    size_t d = fbr_word_distance(g->typed, len, word, n);

    /* A prefix of the word counts as one mistake: --on-fail for --on-failure. */
    if (d > 1 && len >= 3 && n > len && !strncmp(g->typed, word, len))
        d = 1;
    if (d < g->limit) {
        g->limit = d;
        g->found = word;
    }
}

/* `problem` stands between the text and the words. */
static int bad_word(const char *said, const char *text, size_t len, const char *problem,
                    const char *words, struct fbr_error *err)
{
    struct cli_guess g;
    char typed[65];

    snprintf(typed, sizeof(typed), "%.*s", (int)(len < 64 ? len : 64), text);
    cli_guess_begin(&g, typed);
    for (const char *at = words; *at; at += *at == ' ') {
        cli_guess_try(&g, at);
        at += strcspn(at, " ");
    }
    return fbr_fail(err, -EINVAL, "%s: \"%s\" is %s: %s%s%.*s%s", said, typed, problem, words,
                    g.found ? "; did you mean " : "", g.found ? (int)strcspn(g.found, " ") : 0,
                    g.found ? g.found : "", g.found ? "?" : "");
}

int cli_bad_word(const char *said, const char *text, size_t len, const char *words,
                 struct fbr_error *err)
{
    return bad_word(said, text, len, "none of", words, err);
}

/* ---- Options by name ---- */

/* Whether `name`, which stands after one dash or two, is a spelling of the option. */
static bool is_called(const struct cli_option *o, const char *name, size_t len, bool one)
{
    const char *also = o->also;

    if (strlen(o->name) == len && !strncmp(o->name, name, len))
        return true;
    while (also && *also) {
        size_t n = strcspn(also, " ");

        if (n == len && !strncmp(also, name, n))
            return true;
        if (one && also[0] == '-' && n == len + 1 && !strncmp(also + 1, name, len))
            return true;
        also += n + (also[n] == ' ');
    }
    return false;
}

/* Finds an option; spellings with only one dash come first. */
static const struct cli_option *find_long(const struct cli_command *c, const char *name, size_t len,
                                          bool one)
{
    const struct cli_option *found = NULL;

    for (size_t i = 0; i < c->count; i++)
        if (is_called(&c->options[i], name, len, one) &&
            (!found || !is_called(&c->options[i], name, len, false)))
            found = &c->options[i];
    return found;
}

static const struct cli_option *find_letter(const struct cli_command *c, char letter)
{
    for (size_t i = 0; i < c->count; i++)
        if (c->options[i].letter == letter)
            return &c->options[i];
    return find_long(c, &letter, 1, true);
}

const struct cli_option *cli_option_find(const struct cli_command *c, const char *word, int *more)
{
    const char *name = word + strspn(word, "-");
    size_t len = strcspn(name, "=");
    bool one = name == word + 1, glued = name[len] == '=';
    const struct cli_option *o = len > one ? find_long(c, name, len, one) : NULL;

    for (const char *p = name; one && !o && *p && *p != '='; p++) {
        o = find_letter(c, *p);
        glued = p[1] != '\0';
        if (o && !o->argument && p[1] && p[1] != '=')
            o = NULL;
    }
    *more = !o || !o->argument || glued ? 0 : o->type == CLI_PAIR ? 2 : 1;
    return o;
}

static int unknown_option(const struct cli_command *c, const char *typed, size_t len,
                          struct fbr_error *err)
{
    size_t dashes = strspn(typed, "-"), n = len - dashes;
    struct cli_guess g;
    char name[64];

    snprintf(name, sizeof(name), "%.*s", (int)(n < 60 ? n : 60), typed + dashes);
    cli_guess_begin(&g, name);
    for (const struct cli_option *o = c->options; o < c->options + c->count; o++)
        if (!o->hidden && o->type != CLI_REFUSED)
            cli_guess_try(&g, o->name);
    return fbr_fail(err, -EINVAL, "there is no option %.*s%s%s%s", (int)len, typed,
                    g.found ? "; did you mean --" : "", g.found ? g.found : "", g.found ? "?" : "");
}

/* ---- Values ---- */

static int take_number(const struct cli_option *o, const char *said, const char *text,
                       struct cli_value *v, struct fbr_error *err)
{
    struct fbr_config_key key = {.min = o->min, .max = o->max};
    char seconds[32];

    if (!o->min && !o->max)
        key.max = o->type == CLI_SIZE ? INT64_MAX : INT32_MAX;
    key.type = o->type == CLI_INT  ? FBR_CONFIG_INT
               : o->type == CLI_MS ? FBR_CONFIG_MS
                                   : FBR_CONFIG_SIZE;
    if (o->type == CLI_MS && *text && text[strspn(text, "0123456789.")] == '\0' &&
        strlen(text) < 30) {
        snprintf(seconds, sizeof(seconds), "%ss", text);
        text = seconds;
    } else if (o->type == CLI_SIZE && strlen(text) > 2 && strlen(text) < 30 &&
               isalpha((unsigned char)text[strlen(text) - 2]) &&
               text[strlen(text) - 1] == 'B') { /* accepts 8GiB */
        snprintf(seconds, sizeof(seconds), "%.*s", (int)strlen(text) - 1, text);
        text = seconds;
    }
    return fbr_value_parse(&key, text, &v->number, said, err);
}

static int take_word(const struct cli_option *o, const char *said, const char *text,
                     struct cli_value *v, struct fbr_error *err)
{
    int index = fbr_word_index(o->words, text);

    if (index < 0)
        return cli_bad_word(said, text, strlen(text), o->words, err);
    v->number = index;
    return 0;
}

static int take_int(const struct cli_option *o, const char *said, const char *text,
                    struct cli_value *v, struct fbr_error *err)
{
    int rc;

    if (o->words && fbr_word_index(o->words, text) >= 0)
        return take_word(o, said, text, v, err);
    if (o->words && isalpha((unsigned char)text[0]))
        return bad_word(said, text, strlen(text), "neither a number nor one of", o->words, err);
    rc = take_number(o, said, text, v, err);
    if (rc < 0 && o->hint && text[strspn(text, "0123456789")] == ':')
        fbr_fail(err, rc, "%s: \"%.64s\" is not a whole number: %s", said, text, o->hint);
    return rc;
}

static int list_add(struct cli_value *v, const char *said, const char *text, struct fbr_error *err)
{
    char *option = strdup(said);

    if (!option || !fbr_grow(&v->list, v->count, sizeof(*v->list)) ||
        !fbr_grow(&v->said, v->count, sizeof(*v->said))) {
        free(option);
        return fbr_fail(err, -ENOMEM, "out of memory");
    }
    v->list[v->count] = text;
    v->said[v->count++] = option;
    return 0;
}

static int take(const struct cli_option *o, const char *said, const char *text, struct cli_value *v,
                struct fbr_error *err)
{
    v->text = text;
    switch (o->type) {
    case CLI_INT:
        return take_int(o, said, text, v, err);
    case CLI_MS:
    case CLI_SIZE:
        return take_number(o, said, text, v, err);
    case CLI_WORD:
        return take_word(o, said, text, v, err);
    case CLI_LIST:
    case CLI_PAIR:
        return list_add(v, said, text, err);
    default:
        return 0;
    }
}

static int take_flag_value(const struct cli_option *o, const char *said, const char *text,
                           struct cli_value *v, struct fbr_error *err)
{
    struct cli_option number = *o;
    struct cli_value word;

    v->text = text;
    if (o->words) /* --dry-run=server: `number` stays the count */
        return take_word(o, said, text, &word, err);
    if (!o->max)
        return fbr_fail(err, -EINVAL, "%s takes no value, but has \"%.64s\"", said, text);
    number.type = CLI_INT;
    return take_number(&number, said, text, v, err);
}

/* ---- Arguments ---- */

struct reader {
    const struct cli_command *command;
    struct cli_args *args;
    int argc;
    char **argv;
    int at; /* index of the next argument */
    struct fbr_error *err;
};

/* Reads the option `o`, written as `said`; `glued` is the text after '=' or the letter, NULL for
 * none. */
static int read_option(struct reader *r, const struct cli_option *o, const char *said,
                       const char *glued)
{
    struct cli_value *v = &r->args->values[o - r->command->options];
    int more = o->type == CLI_PAIR ? 2 : 1, rc;

    if (o->type == CLI_REFUSED)
        return fbr_fail(r->err, -EINVAL, "%s: %s", said, o->help);
    if (!o->argument) {
        v->number++;
        v->text = "";
        if (glued)
            return take_flag_value(o, said, glued, v, r->err);
        return 0;
    }
    for (int i = 0; i < more; i++) {
        const char *text = i == 0 && glued ? glued : r->at < r->argc ? r->argv[r->at++] : NULL;

        if (!text)
            return fbr_fail(r->err, -EINVAL, "%s needs %s", said,
                            more == 2 ? "two values" : "a value");
        rc = take(o, said, text, v, r->err);
        if (rc < 0)
            return rc;
    }
    return 0;
}

/* Returns 1 if help was requested. */
static int read_long(struct reader *r, const char *arg)
{
    const char *name = arg + strspn(arg, "-");
    size_t len = strcspn(name, "="), typed = len + (size_t)(name - arg);
    const struct cli_option *o = find_long(r->command, name, len, name == arg + 1);
    char said[64];

    snprintf(said, sizeof(said), "%.*s", (int)(typed < 60 ? typed : 60), arg);
    if (o && o->type == CLI_PAIR && r->at < r->argc && strchr(r->argv[r->at], '='))
        o = find_long(r->command, name, len, false); /* -env A=B */
    if (o)
        return read_option(r, o, said, name[len] == '=' ? name + len + 1 : NULL);
    if (len == 4 && !strncmp(name, "help", 4))
        return 1;
    if (len == 7 && !strncmp(name, "version", 7)) {
        r->args->version = true;
        return 1;
    }
    return unknown_option(r->command, arg, typed, r->err);
}

/* Reads -n 4, -n4, -qv, and mpirun's -np 4 and -bind-to core. */
static int read_short(struct reader *r, const char *arg)
{
    size_t len = strcspn(arg + 1, "=");
    int rc;

    if (!strncmp(arg, "-version", 9))
        return read_long(r, arg);
    if (len > 1 && (find_long(r->command, arg + 1, len, true) || !strncmp(arg, "-help", 6)))
        return read_long(r, arg);
    for (const char *p = arg + 1; *p; p++) {
        const struct cli_option *o = find_letter(r->command, *p);
        char said[3] = {'-', *p, '\0'};

        r->args->version = !o && *p == 'V';
        if (!o && strchr("hV", *p))
            return 1;
        if (!o && p > arg + 1)
            return fbr_fail(r->err, -EINVAL, "there is no option -%c (in %.64s)", *p, arg);
        if (!o)
            return unknown_option(r->command, arg, strlen(arg) < 60 ? strlen(arg) : 60, r->err);
        if (o->argument || (o->type == CLI_FLAG && o->max && p[1])) /* -K1 */
            return read_option(r, o, said, p[1] ? p + 1 + (p[1] == '=') : NULL);
        rc = read_option(r, o, said, NULL);
        if (rc < 0)
            return rc;
    }
    return 0;
}

static int check_operands(const struct cli_args *args, struct fbr_error *err)
{
    const struct cli_command *c = args->command;
    const char *first = args->operands[0];

    if (c->words && first && fbr_word_index(c->words, first) < 0)
        return cli_bad_word(c->name, first, strlen(first), c->words, err);
    if (args->noperands < c->least)
        return fbr_fail(err, -EINVAL, "%s is missing: fiber %s %s",
                        c->kind == CLI_PROGRAM && !c->words ? "the program" : "an argument",
                        c->name, c->operands);
    if (c->most >= 0 && args->noperands > c->most)
        return fbr_fail(err, -EINVAL, "\"%.64s\" is one argument too many",
                        args->operands[c->most]);
    return 0;
}

static int parse(struct reader *r)
{
    bool options = true;

    while (r->at < r->argc) {
        char *arg = r->argv[r->at++];
        int rc = 0;

        if (options && !strcmp(arg, "--")) {
            options = false;
            continue;
        }
        if (options && arg[0] == '-' && arg[1] == '-')
            rc = read_long(r, arg);
        else if (options && arg[0] == '-' && arg[1])
            rc = read_short(r, arg);
        else
            r->args->operands[r->args->noperands++] = arg;
        if (rc == 1)
            r->args->help = !r->args->version;
        if (rc != 0)
            return rc < 0 ? rc : 0;
        if (r->command->stops && r->args->noperands)
            options = false;
    }
    return check_operands(r->args, r->err);
}

int cli_parse(const struct cli_command *command, int argc, char **argv, struct cli_args *args,
              struct fbr_error *err)
{
    struct reader r = {command, args, argc, argv, 0, err};
    int rc;

    memset(args, 0, sizeof(*args));
    args->command = command;
    args->values = calloc(command->count + 1, sizeof(*args->values));
    args->operands = calloc((size_t)argc + 1, sizeof(*args->operands));
    rc = args->values && args->operands ? parse(&r) : fbr_fail(err, -ENOMEM, "out of memory");
    if (rc < 0)
        cli_args_fini(args);
    return rc;
}

void cli_args_fini(struct cli_args *args)
{
    for (size_t i = 0; args->values && i < args->command->count; i++) {
        for (size_t k = 0; k < args->values[i].count; k++)
            free(args->values[i].said[k]);
        free(args->values[i].said);
        free(args->values[i].list);
    }
    free(args->values);
    free(args->operands);
    args->values = NULL;
    args->operands = NULL;
}

/* A bare number of an option means seconds; the configuration takes none. */
int cli_args_configure(const struct cli_args *args, struct fbr_error *err)
{
    int rc = 0;

    for (size_t i = 0; i < args->command->count && rc == 0; i++) {
        const struct cli_option *o = &args->command->options[i];
        const struct cli_value *v = &args->values[i];
        char text[64], origin[64];

        if (!o->config || !v->text)
            continue;
        snprintf(text, sizeof(text), "%lldms", (long long)v->number);
        snprintf(origin, sizeof(origin), "--%s", o->name);
        rc = fbr_config_set(fbr_rt_any()->config, o->config, o->type == CLI_MS ? text : v->text,
                            origin, err);
    }
    return rc;
}

/* The text may come from the network, or be the name of a file: it must not control the
 * terminal. */
int cli_failed(int code, const char *fmt, ...)
{
    struct fbr_printable_filter filter = {.plain = true};
    struct fbr_buf plain = {0};
    char *text = NULL;
    va_list ap;
    int n;

    va_start(ap, fmt);
    n = vasprintf(&text, fmt, ap);
    va_end(ap);
    if (n > 0)
        fbr_printable_filter(&filter, text, (size_t)n, &plain);
    fprintf(stderr, "fiber: %.*s\n", (int)plain.len, plain.len ? (const char *)plain.data : "");
    fbr_buf_fini(&plain);
    if (n >= 0)
        free(text);
    return code;
}

int cli_usage(const struct cli_command *command, const struct fbr_error *err)
{
    cli_failed(2, "%s", err->text);
    fprintf(stderr, "Try `fiber help %s`.\n", command->name);
    return 2;
}

/* Ends this process after a failed write, which has set errno. */
static void output_lost(void)
{
    if (errno != EPIPE)
        cli_failed(1, "cannot write standard output: %m");
    _exit(1);
}

void cli_write(FILE *out, const void *data, size_t len)
{
    if (fwrite(data, 1, len, out) != len)
        output_lost();
}

void cli_flush(void)
{
    if (fflush(stdout) != 0)
        output_lost();
    if (fflush(stderr) != 0)
        _exit(1);
}
