/* interpreter.h - the files that an image needs for interpreters whose library is a tree of files.
 *
 * Python and Perl are asked where their library is: only they know how a version manager, a virtual
 * environment or a distribution has arranged it. The folder of a script is added too, because the
 * script's modules lie there.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <limits.h>

#include "runtime/base/buf.h"
#include "runtime/base/error.h"

/* A script's folder is not added if it is larger than this. */
#define INTERPRETER_FOLDER_MIB 64
#define INTERPRETER_FOLDER_FILES 5000

struct interpreter_wish {
    /* path on this host: an interpreter, or a script that begins with #! */
    const char *program;
    const char *const *command; /* the command that runs it; NULL-terminated */
    const char *workdir;        /* where it starts; NULL: the working directory */
    /* the user has named files for the image, so a folder that is too large is left out */
    bool named;
};

/* 1: `self` is the interpreter's own path, and the paths of the other files and directories to add
 * were appended to `lines`, each with a '\n' after it; 0: not such an interpreter; -ENOTSUP, -E2BIG
 * and others with a message. */
int interpreter_find(const struct interpreter_wish *w, char self[PATH_MAX], struct fbr_buf *lines,
                     struct fbr_error *err);
