/* option.h - the table of a subcommand's options, used for parsing, help, man page and completion.
 *
 * A subcommand is one file that ends in its const struct cli_command. Its options stand in an array
 * with an enum as its index, so `args->values[RUN_GRACE]` is the given value. The spellings of
 * mpirun and similar launchers stand in the same table: `also` has other spellings, and options of
 * type CLI_REFUSED are answered with an explanation. A spelling that begins with a dash ("-env") is
 * accepted only with one dash.
 *
 * Every long name may also be written with one dash (-bind-to core), as in mpirun; `--name value`,
 * `--name=value`, `-n 4` and `-n4` mean the same.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "runtime/base/error.h"

enum cli_type {
    /* no argument; `number` counts how often it was given, `text` is "". With `words`: one of them
     * may follow an '=', and is then in `text`; with `max`: a number, also in `number` */
    CLI_FLAG,
    CLI_INT,  /* min to max */
    CLI_MS,   /* a duration: 5s, 2m; a bare number means seconds. In ms */
    CLI_SIZE, /* 512Mi, 8Gi; in bytes */
    CLI_WORD, /* one of `words` */
    CLI_TEXT, /* anything */
    CLI_DIR,  /* a directory; the type matters only for completion */
    CLI_LIST, /* text; may be given several times */
    CLI_PAIR, /* two arguments, kept as two entries of the list */
    /* accepted, and has no effect here; `argument`: NULL, or the argument that is skipped */
    CLI_NOTHING,
    CLI_REFUSED, /* `help` explains what to use instead */
};

struct cli_option {
    const char *name; /* "bind-to" */
    char letter;      /* 'n', or 0 */
    enum cli_type type;
    const char *argument; /* "N", for users; NULL if it takes none */
    /* for CLI_WORD and CLI_FLAG, separated by single spaces; for CLI_INT: words that are accepted
     * for a number; only `text` has them */
    const char *words;
    const char *help; /* one or two sentences, without a period at the end */
    /* the configuration key that it sets, or NULL; the flag wins over the environment, and that
     * over files */
    const char *config;
    const char *also; /* other spellings, separated by spaces */
    int64_t min, max; /* for CLI_INT; both 0: any number that is not negative */
    /* for CLI_INT: added to the message about a range, "MIN:MAX", as torchrun has it; or NULL */
    const char *hint;
    bool hidden; /* not in help, man page and completion */
    /* for users of other launchers: shown only among the spellings of others */
    bool foreign;
};

struct cli_value {
    const char *text; /* the last one given; NULL: not given */
    /* for CLI_INT, CLI_MS, CLI_SIZE: the value; for CLI_FLAG: the count; for CLI_WORD: the index */
    int64_t number;
    const char **list; /* of CLI_LIST and CLI_PAIR */
    char **said;       /* for each word of list: its option as it was typed, "-x" or "--export" */
    size_t count;
};

struct cli_command;

struct cli_args {
    const struct cli_command *command;
    struct cli_value *values; /* indexed by option */
    char **operands;          /* arguments that are not options, NULL-terminated */
    int noperands;
    bool help;    /* --help was given: nothing else was checked */
    bool version; /* the same for --version */
};

enum cli_operand { CLI_NONE, CLI_PROGRAM, CLI_RUN, CLI_COMMAND, CLI_KEY, CLI_FILES };

struct cli_command {
    const char *name;
    const char *operands; /* "PROGRAM [ARGUMENT...]" */
    const char *words; /* of which the first operand is one, separated by single blanks; or NULL */
    enum cli_operand kind; /* for completion: the other operands */
    const char *about;     /* one line, no period */
    /* paragraphs, separated by empty lines; a line that begins with two blanks is kept as it is */
    const char *text;
    const char *examples; /* lines "command\twhat it does" */
    const char *exit;     /* exit codes: lines "code\tmeaning"; NULL: 0, 1 and 2 */
    const struct cli_option *options;
    size_t count;
    int least, most;                         /* number of operands; most -1: any number */
    bool stops;                              /* all words after the first operand belong to it */
    int (*run)(const struct cli_args *args); /* returns the exit code */
};

/* Parses arguments; argv[0] is the first one after the subcommand. -EINVAL and a message. On
 * success free with cli_args_fini(). */
int cli_parse(const struct cli_command *command, int argc, char **argv, struct cli_args *args,
              struct fbr_error *err);
void cli_args_fini(struct cli_args *args);
/* Returns the option that a word of a command line is, or the last of several letters; NULL: there
 * is none. *more: the number of the option's values that follow as words. */
const struct cli_option *cli_option_find(const struct cli_command *c, const char *word, int *more);
/* Sets what the given options set in the configuration of this process. */
int cli_args_configure(const struct cli_args *args, struct fbr_error *err);

/* Guesses which word was meant by the typed one. */
struct cli_guess {
    const char *typed;
    const char *found; /* the nearest of the words that were tried; NULL: none is near */
    size_t limit;      /* a nearer word differs by less */
};
void cli_guess_begin(struct cli_guess *g, const char *typed);
/* `word` ends with its text, or at a blank. */
void cli_guess_try(struct cli_guess *g, const char *word);
/* -EINVAL: the value of the option `said` is none of `words`, which blanks separate. */
int cli_bad_word(const char *said, const char *text, size_t len, const char *words,
                 struct fbr_error *err);

/* help.c: pages */
void cli_help_short(FILE *out, int width);
void cli_help_command(FILE *out, const struct cli_command *command, int width);
extern const char cli_launchers[]; /* other launchers, whose options Fiber understands */
int cli_width(int fd);             /* of the terminal there; 80 if there is none */

/* commands.c: all commands, in the order of the help; NULL-terminated */
extern const struct cli_command *const cli_commands[];
const struct cli_command *cli_command_find(const char *name);
const char *cli_command_nearest(const char *typed);

/* completion.c: answers `fiber __complete` with the n words of a command line, at least one. */
void cli_complete(FILE *out, int n, char **words);

/* Prints "fiber: <text>" on standard error; returns 2. */
int cli_usage(const struct cli_command *command, const struct fbr_error *err);
/* The same without the hint to the help; returns `code`. */
int cli_failed(int code, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* Flushes standard output and standard error. Ends this process if that fails: with a message,
 * unless the reader of a pipe has gone. */
void cli_flush(void);
/* Writes to one of the two; ends this process in the same way if that fails. */
void cli_write(FILE *out, const void *data, size_t len);
