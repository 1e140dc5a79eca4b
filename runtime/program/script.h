/* script.h - the script, or the module, that the command line of an interpreter runs, and the name
 * of a program.
 *
 * Pure, but for fbr_script_first_line() and fbr_script_own(); any thread.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#define FBR_SCRIPT_WORDS 16
#define FBR_SCRIPT_LINE 256 /* of a script's first line; the kernel's limit */

struct fbr_language {
    const char *name; /* the beginning of the names of its programs */
    const char *ends; /* of the names of its scripts */
    /* Options of the interpreter. code, module: end the options, with code or a module in the next
     * word; value: have a value, in the same or the next word; attached: have their value in the
     * same word; kept: change where the interpreter looks for its library. */
    const char *code, *module, *value, *attached, *kept;
};

struct fbr_script {
    const char *path;                      /* NULL: code, a module, or standard input */
    const char *module;                    /* NULL: none */
    char kept[FBR_SCRIPT_WORDS];           /* "-IE"; "-": none */
    const char *folders[FBR_SCRIPT_WORDS]; /* values of Perl's -I */
    int nfolders;
};

/* Whether the file has that name, with or without a version: "python3.13t", "julia-1.9",
 * "python3-dbg". "node_bench" is a user's own program. */
bool fbr_script_is_named(const char *path, const char *name);
/* Finds the language by the name of its interpreter; NULL: it is none. */
const struct fbr_language *fbr_script_language(const char *path);
/* Parses a command line of an interpreter of that language. *s points into `words`. */
void fbr_script_parse(struct fbr_script *s, const struct fbr_language *l, const char *const *words);
/* Reads the words of a script's first line, "#!/usr/bin/env -S A=b python3 -u": the program that
 * the kernel starts, and its arguments; those of env without its own options and variables. The
 * words point into `line`, and NULL comes after the last one. Returns their number; 0: the file is
 * not a script. */
int fbr_script_first_line(const char *path, char line[FBR_SCRIPT_LINE],
                          const char *words[FBR_SCRIPT_WORDS]);
/* Whether the first of these words is env, and the second is the program that env starts. */
bool fbr_script_is_by_env(const char *const *words);
/* Writes the name of the program that a command runs: "train" for /home/jane/train, ./train.py and
 * `python3 -u train.py`, "pkg.train" for `python3 -m pkg.train`. */
void fbr_script_name(const char *const *command, char *out, size_t size);
/* Writes the name of our own program, and its command line; each may be NULL. */
void fbr_script_own(char *name, size_t size, char *command, size_t command_size);
