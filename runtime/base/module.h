/* module.h - parts of Fiber that are loaded when first needed, because of the libraries that they
 * bring.
 *
 * A module is a shared object NAME.so with one exported table, `const struct ... fbr_module_NAME`.
 * It is looked for beside the program or library that this code is in (fiber/NAME.so, and one or
 * two folders up, as in a build tree and as bin/ stands to lib/), then where Fiber was installed.
 * One that somebody else could have put there is passed over. So is one of another build, whose structs
 * may not be ours: each module says by the string `fbr_module_stamp` what it was built of (stamp.c), and
 * that must be what we were. Programs of Fiber's own stand in the same folders.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef FBR_MODULE_H
#define FBR_MODULE_H

#include <stddef.h>

#include "runtime/base/error.h"

/* The table of that module, loaded at most once, never unloaded; NULL and a sentence. Any
 * thread. */
const void *fbr_module(const char *name, struct fbr_error *err);

/* The same for a module that has functions in place of a table: what dlsym() takes. */
void *fbr_module_open(const char *name, struct fbr_error *err);

/* The path of a program there, as path[size]. Any thread. */
int fbr_module_program(const char *name, char *path, size_t size, struct fbr_error *err);

#endif
