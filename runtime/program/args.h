/* args.h - the words of a command, and other lists of texts: splits a line of text into words, and
 * joins words into a line for a shell; pure.
 *
 * A line is cut at blanks; '...', "..." and a backslash keep blanks together, as in a shell.
 * Nothing else of a shell is supported: no variables, no globs, no pipes.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "runtime/base/buf.h"
#include "runtime/base/error.h"

struct fbr_args {
    char **at; /* NULL-terminated; NULL if there are no words */
    size_t n;
    bool failed; /* a word could not be added: out of memory */
};

/* Adds the words of `text`. -EINVAL: a quote is not closed. */
int fbr_args_split(struct fbr_args *w, const char *text, struct fbr_error *err);
int fbr_args_add(struct fbr_args *w, const char *word, size_t len);
/* Adds the text as one word. */
int fbr_args_addf(struct fbr_args *w, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* Adds each text of a NULL-terminated list, which may be NULL. -ENOMEM. */
int fbr_args_add_all(struct fbr_args *w, char *const *list);
/* Adds the program that env(1) is to start. */
int fbr_args_add_program(struct fbr_args *w, const char *file);
/* Writes one word, quoted for a POSIX shell if it must be. */
void fbr_args_quote(struct fbr_buf *line, const char *word);
/* Joins the words into one line for a POSIX shell, without a newline. */
void fbr_args_line(const struct fbr_args *w, struct fbr_buf *line);
/* Returns the words as a list for fbr_list_free(), and empties w. NULL: out of memory, now or when
 * a word was added. */
char **fbr_args_take(struct fbr_args *w);
void fbr_args_fini(struct fbr_args *w);
