/* bundle.h - a program and all files that it needs, moved together under one folder, so that it
 * runs in any image, whatever its C library.
 *
 *     /.fiber/ld.so            the interpreter of our programs, which is run in place of the
 *                              program
 *     /.fiber/lib/             every library, without subfolders
 *     /.fiber/bin/agent        the program
 *     /.fiber/fiber/NAME.so    Fiber's modules, where runtime/program/module.c looks for them:
 *                              next to the file that was executed, or one folder up
 *
 * The program is started as `/.fiber/ld.so --library-path /.fiber/lib --argv0 /.fiber/bin/agent
 * /.fiber/bin/agent ARGUMENT...`, so its children inherit no variable of the bundle (ld.so(8)).
 *
 * SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>

#include "runtime/base/error.h"

#define FBR_BUNDLE_DIR "/.fiber"
#define FBR_BUNDLE_PROGRAM FBR_BUNDLE_DIR "/bin/agent"
/* The words that stand before the program's arguments; NULL-terminated. */
extern const char *const fbr_bundle_command[];

/* Writes the bundle as a tar archive into fd (a regular file or memory file), from its position on.
 * Reads files, so it must not run on the loop thread. */
int fbr_bundle_write(const char *program, int fd, struct fbr_error *err);
/* Writes the contents of /.fiber into an existing folder; `cluster`: with the module that a master
 * needs. */
int fbr_bundle_into(const char *program, const char *dir, bool cluster, struct fbr_error *err);
