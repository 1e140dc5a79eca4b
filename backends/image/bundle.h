/* bundle.h - a program with all that it needs, moved together under one folder, so that it runs in
 * any image: whatever C library that has, or none.
 *
 *     /.fiber/ld.so            the interpreter of our programs, which is run in place of the
 *                              program
 *     /.fiber/lib/             every library, flat
 *     /.fiber/bin/agent        the program
 *     /.fiber/fiber/NAME.so    Fiber's modules, where runtime/program/module.c looks for them:
 *                              beside the file that was executed, or one folder up
 *
 * It is started as `/.fiber/ld.so --library-path /.fiber/lib --argv0 /.fiber/bin/agent
 * /.fiber/bin/agent ARGUMENT...`, so nothing of it is in the environment of what it starts
 * (ld.so(8)).
 *
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef FBR_BUNDLE_H
#define FBR_BUNDLE_H

#include <stdbool.h>

#include "runtime/base/error.h"

#define FBR_BUNDLE_DIR "/.fiber"
#define FBR_BUNDLE_PROGRAM FBR_BUNDLE_DIR "/bin/agent"
/* The words before the program's arguments; NULL-terminated. */
extern const char *const fbr_bundle_command[];

/* Writes it as a tar archive into fd (a regular file or memory file), from its position on. Reads
 * files, so not for the loop's thread. */
int fbr_bundle_write(const char *program, int fd, struct fbr_error *err);
/* Writes what is under /.fiber into a folder that is there; `cluster`: with the module that a
 * master needs. */
int fbr_bundle_into(const char *program, const char *dir, bool cluster, struct fbr_error *err);

#endif
