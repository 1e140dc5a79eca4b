/* module.h - parts of Fiber that are loaded when first needed, because of the libraries that they
 * bring.
 *
 * A module is a shared object NAME.so with one exported table, `const struct ... fbr_module_NAME`.
 * The search begins beside the program or library that this code is in (fiber/NAME.so, and one or
 * two folders up, as in a build tree and as bin/ stands to lib/), and goes on where Fiber was
 * installed. A module that another user could have put there is passed over. So is a module of
 * another build, whose structs may differ: the string `fbr_module_stamp` of each module names its
 * build (stamp.c), and must equal ours. Programs of Fiber's own lie in the same folders.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef FBR_MODULE_H
#define FBR_MODULE_H

#include <stddef.h>

#include "runtime/base/error.h"

/* Returns the table of that module, loaded at most once, never unloaded; NULL and a sentence on
 * failure. Any thread. */
const void *fbr_module(const char *name, struct fbr_error *err);

/* Returns a handle for dlsym() of a module that has functions in place of a table. */
void *fbr_module_open(const char *name, struct fbr_error *err);

/* Stores the path of a program of Fiber's own, as path[size]. Any thread. */
int fbr_module_program(const char *name, char *path, size_t size, struct fbr_error *err);

#endif
