/* template.h - the words of a command with placeholders, and the hosts that it is for; pure.
 *
 * A template is written as one line, which is cut into words (backends/tool/args.h). In its words
 * stand
 *
 *     {host} {name} {run} {id} {workdir} {program}    text, anywhere in a word
 *     {label}            the same: fiber:RUN:MASTER:NAME, by which a list of jobs says whose they
 *                        are
 *     {argv}             a word of its own: the program's arguments, one word each
 *     {command}          a word of its own: env -C WORKDIR FIBER_TICKET=... NAME=VALUE... PROGRAM
 *                        ARGUMENT...
 *     {shell_command}    the same as one word, quoted for a POSIX shell, for what joins its words
 *                        as ssh does
 *     {ids}              a word of its own: all ids; or, within a word, the ids with commas between
 *                        them
 *     {{                 a brace
 *
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef FBR_COMMAND_TEMPLATE_H
#define FBR_COMMAND_TEMPLATE_H

#include <stdbool.h>
#include <stddef.h>

#include "backends/tool/args.h"
#include "runtime/base/error.h"

struct fbr_fill {
    const char *host, *name, *run, *id, *workdir;
    const char *label;
    const char *ticket;     /* what FIBER_TICKET says; NULL: it gets none */
    char *const *env;       /* added; may be NULL */
    const char *program;    /* NULL: there is none to start */
    char *const *argv;      /* its arguments, without its name; may be NULL */
    const char *const *ids; /* NULL-terminated; may be NULL */
};

/* Knows all placeholders? -EINVAL with the word and what there is. */
int fbr_template_check(const struct fbr_args *t, struct fbr_error *err);
/* Has one of these, "{host}"? */
bool fbr_template_has(const struct fbr_args *t, const char *placeholder);
/* A command that names neither program nor command gets {command} as its last words; ssh and rsh
 * {shell_command}. */
int fbr_template_complete(struct fbr_args *t);
int fbr_template_fill(const struct fbr_args *t, const struct fbr_fill *f, struct fbr_args *out,
                      struct fbr_error *err);

#define FBR_LABEL_MAX 256

/* A job's label; what is not a letter of a name becomes '_'. */
void fbr_label(char out[FBR_LABEL_MAX], const char *run, const char *master, const char *name);
/* The parts of a line "ID ... LABEL", which is cut up. False: there is no label in it. */
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

/* Cuts up NAME, NAME:SLOTS, [ADDRESS] or [ADDRESS]:SLOTS; slots 0: they are not said. -EINVAL: it
 * is none of these, or looks like an option. */
int fbr_host_split(const char *word, size_t len, const char **name, size_t *n, unsigned *slots);
/* Adds hosts: separated by blanks, commas or lines, each NAME, NAME:SLOTS, [ADDRESS] or
 * [ADDRESS]:SLOTS; "slots=N" after a name means the same; # begins a comment. -EINVAL with
 * `origin`:LINE. */
int fbr_hosts_parse(struct fbr_hosts *h, const char *origin, const char *text,
                    struct fbr_error *err);
/* The next in turn that has a free slot; the next in turn when none has. NULL: there are no
 * hosts. */
struct fbr_host *fbr_hosts_pick(struct fbr_hosts *h);
void fbr_hosts_fini(struct fbr_hosts *h);

#endif
