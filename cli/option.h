/* option.h - the one table of a subcommand's options, for parsing, help, man page and completion.
 *
 * A subcommand is one file that ends in its const struct cli_command. Its options stand in an array
 * that an enum indexes, so that `args->values[RUN_GRACE]` is the value that was given. The
 * spellings of mpirun and its like stand in the same table: `also` names other spellings, options
 * of type CLI_REFUSED are answered with a sentence. A spelling that begins with a dash ("-env") is
 * meant with one dash only.
 *
 * Every long name may also be written with one dash (-bind-to core), as mpirun's may; `--name
 * value`, `--name=value`, `-n 4` and `-n4` mean the same.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef CLI_OPTION_H
#define CLI_OPTION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "runtime/base/error.h"

enum cli_type {
    /* no argument; `number` counts how often it was given, `text` is "". With `words`: one of them
     * may stand behind =, in `text`; with `max`: a number, also in `number` */
    CLI_FLAG,
    CLI_INT,  /* min to max */
    CLI_MS,   /* a duration: 5s, 2m; a bare number is seconds. In ms */
    CLI_SIZE, /* 512Mi, 8Gi; in bytes */
    CLI_WORD, /* one of `words` */
    CLI_TEXT, /* anything */
    CLI_DIR,  /* a directory; only completion cares */
    CLI_LIST, /* text; may be given again and again */
    CLI_PAIR, /* two arguments, kept as two entries of the list */
    /* accepted and means nothing here; `argument` NULL or what is passed over; one of `words` may
     * follow, or stand behind =, in `text` */
    CLI_NOTHING,
    CLI_REFUSED, /* `help` is the sentence that says what to use instead */
};

struct cli_option {
    const char *name; /* "bind-to" */
    char letter;      /* 'n', or 0 */
    enum cli_type type;
    const char *argument; /* "N", for people; NULL when it takes none */
    /* of CLI_WORD, CLI_FLAG and CLI_NOTHING, separated by single spaces; of CLI_INT those that are
     * taken for a number: only `text` has them */
    const char *words;
    const char *hidden_words; /* that are taken too, but not shown: as others spell them */
    const char *help;         /* a sentence or two, without a period at the end */
    /* the configuration's key that it sets, or NULL: flag, environment, files in this order */
    const char *config;
    const char *also; /* other spellings, separated by spaces */
    int64_t min, max; /* of CLI_INT; both 0: any that is not negative */
    const char *hint; /* NULL; of CLI_INT: said in addition of a value that is not a number */
    bool hidden;      /* not in help, man page and completion */
    bool foreign;     /* for those who know other launchers: shown among their spellings only */
};

struct cli_value {
    const char *text; /* as it was given last; NULL: not at all */
    int64_t
        /* of CLI_INT, CLI_MS, CLI_SIZE; of CLI_FLAG the count; of CLI_WORD the index, hidden ones
         * behind */
        number;
    const char **list; /* of CLI_LIST and CLI_PAIR */
    size_t count;
};

struct cli_command;

struct cli_args {
    const struct cli_command *command;
    struct cli_value *values; /* by the index of the option */
    char **operands;          /* what is not an option, NULL-terminated */
    int noperands;
    bool help;    /* --help was given: nothing else was checked */
    bool version; /* the same of --version */
};

enum cli_operand {
    CLI_NONE,
    CLI_PROGRAM,
    CLI_RUN,
    CLI_RUN_SIGNAL,
    CLI_COMMAND,
    CLI_SHELL,
    CLI_KEY,
    CLI_IMAGE, /* build|export, a name, programs */
    CLI_FILES
};

struct cli_command {
    const char *name;
    const char *operands;  /* "PROGRAM [ARGUMENT...]" */
    enum cli_operand kind; /* for completion */
    const char *about;     /* one line, no period */
    /* paragraphs, separated by empty lines; a line that begins with two blanks is as it is */
    const char *text;
    const char *examples; /* lines "command\twhat it does" */
    const char *exit;     /* its exit codes: lines "code\twhat"; NULL: 0, 1 and 2 */
    const struct cli_option *options;
    size_t count;
    int least, most;                         /* operands; most -1: any number */
    bool stops;                              /* what follows the first operand belongs to it */
    int (*run)(const struct cli_args *args); /* answers the exit code */
};

/* argv[0] is the first behind the subcommand. -EINVAL and a sentence for what was wrong. On success
 * free with cli_args_fini(). */
int cli_parse(const struct cli_command *command, int argc, char **argv, struct cli_args *args,
              struct fbr_error *err);
void cli_args_fini(struct cli_args *args);
/* Calls set() with each setting that an option was given for; a negative answer ends it. */
int cli_args_settings(const struct cli_args *args,
                      int (*set)(void *user, const char *key, const char *value,
                                 struct fbr_error *err),
                      void *user, struct fbr_error *err);
/* Gives them to the configuration of this process. */
int cli_args_configure(const struct cli_args *args, struct fbr_error *err);

/* The word that is nearest to what was typed, or NULL if none is near; next() answers the
 * candidates one by one. */
const char *cli_nearest(const char *typed, const char *(*next)(void *user), void *user);
/* -EINVAL: what stands behind the option `said` is none of the words, which blanks separate. */
int cli_bad_word(const char *said, const char *text, size_t len, const char *words,
                 struct fbr_error *err);

/* help.c: pages */
void cli_help_short(FILE *out, int width);
void cli_help_command(FILE *out, const struct cli_command *command, int width);
int cli_width(int fd); /* of the terminal there, 80 when it is none */

/* commands.c: all, in the order of the help; NULL at its end */
extern const struct cli_command *const cli_commands[];
const struct cli_command *cli_command_find(const char *name);
const char *cli_command_nearest(const char *typed);

/* "fiber: <text>" on standard error; answers 2. */
int cli_usage(const struct cli_command *command, const struct fbr_error *err);
/* The same without the hint to the help; answers code. */
int cli_failed(int code, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

#endif
