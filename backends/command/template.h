/* template.h - the words of a command with placeholders, and the hosts for the command; pure.
 *
 * A template is written as one line, which is cut into words (runtime/program/args.h). Its words
 * may contain
 *
 *     {host} {name} {run} {id} {workdir} {program}    text, anywhere in a word
 *     {label}            text too: fiber:RUN:MASTER:NAME, which in a list of jobs names the run and
 *                        the master of a job
 *     {argv}             a word of its own: the program's arguments, one word each
 *     {command}          a word of its own: env -C WORKDIR FIBER_TICKET=... NAME=VALUE... PROGRAM
 *                        ARGUMENT...
 *     {shell_command}    the same as one word, quoted for a POSIX shell, for commands that join
 *                        their words, as ssh does
 *     {ids}              a word of its own: all ids; or, within a word, the ids with commas between
 *                        them
 *     {{                 a brace
 *
 * SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "runtime/program/args.h"
#include "runtime/base/error.h"

struct fbr_fill {
    const char *host, *name, *run, *id, *workdir;
    const char *label;
    const char *ticket;     /* value of FIBER_TICKET; NULL: the job gets no ticket */
    char *const *env;       /* variables to add; may be NULL */
    const char *program;    /* NULL: there is no program to start */
    char *const *argv;      /* arguments without argv[0]; may be NULL */
    const char *const *ids; /* NULL-terminated; may be NULL */
};

/* Checks that all placeholders are known. Else -EINVAL, with the word and the known
 * placeholders. */
int fbr_template_check(const struct fbr_args *t, struct fbr_error *err);
/* Whether the template has this placeholder, for instance "{host}". */
bool fbr_template_has(const struct fbr_args *t, const char *placeholder);
/* Completes a command that names neither program nor command: {command} becomes its last words; for
 * ssh and rsh {shell_command}. */
int fbr_template_complete(struct fbr_args *t);
int fbr_template_fill(const struct fbr_args *t, const struct fbr_fill *f, struct fbr_args *out,
                      struct fbr_error *err);

#define FBR_LABEL_MAX 256

/* Makes a job's label; each character of `name` that is not a letter, a digit or one of "._-"
 * becomes '_'. */
void fbr_label(char out[FBR_LABEL_MAX], const char *run, const char *master, const char *name);
/* The parts of a line "ID ... LABEL". fbr_label_line() cuts the line up; false: the line has no
 * label. */
struct fbr_labelled {
    const char *id, *run, *master, *name;
};
bool fbr_label_line(char *line, struct fbr_labelled *job);

struct fbr_host {
    char *name;
    unsigned slots, used; /* slots 0: any number */
};

struct fbr_hosts {
    struct fbr_host *at;
    size_t n, next;
};

/* Cuts up NAME, NAME:SLOTS, [ADDRESS] or [ADDRESS]:SLOTS; *slots is 0 if the word has none.
 * -EINVAL: the word is none of these, or looks like an option. */
int fbr_host_split(const char *word, size_t len, const char **name, size_t *n, unsigned *slots);
/* Adds hosts, separated by blanks, commas or newlines. Each is NAME, NAME:SLOTS, [ADDRESS] or
 * [ADDRESS]:SLOTS; "slots=N" after a name means the same as :SLOTS; # begins a comment. -EINVAL,
 * with `origin`:LINE. */
int fbr_hosts_parse(struct fbr_hosts *h, const char *origin, const char *text,
                    struct fbr_error *err);
/* Returns the next host in turn that has a free slot; if none has one, the next host in turn. NULL:
 * there are no hosts. */
struct fbr_host *fbr_hosts_pick(struct fbr_hosts *h);
void fbr_hosts_fini(struct fbr_hosts *h);
