/* interpreter.h - interpreters whose own library is a tree of files: what of it goes into an image.
 *
 * Python and Perl are asked where their library is: only they know what a version manager, a
 * virtual environment or a distribution has made of it. The folder of a script goes along, as its
 * modules lie there.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef CLI_INTERPRETER_H
#define CLI_INTERPRETER_H

#include <limits.h>
#include <stdbool.h>

#include "runtime/base/buf.h"
#include "runtime/base/error.h"

/* A script's folder is not taken when it is larger than this. */
#define INTERPRETER_FOLDER_MIB 64
#define INTERPRETER_FOLDER_FILES 5000

struct interpreter_wish {
    const char *program;        /* its path here: an interpreter, or a script that begins with #! */
    const char *const *command; /* that runs it; NULL-terminated */
    const char *workdir;        /* where it starts; NULL: here */
    bool named; /* files for the image were named, so a folder that is too large is left out */
};

struct interpreter_files {
    char self[PATH_MAX];  /* the interpreter, as it calls itself */
    struct fbr_buf lines; /* paths of the other files and directories, each with a '\n' behind it */
};

/* 1: `files` has what goes along; 0: it is no such interpreter; -ENOTSUP, -E2BIG and others with a
 * sentence. `lines` is the caller's, from fbr_buf_init() to fbr_buf_fini(). */
int interpreter_find(const struct interpreter_wish *w, struct interpreter_files *files,
                     struct fbr_error *err);

#endif
