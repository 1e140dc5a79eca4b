/* module.h - parts of Fiber that are loaded when first needed, because they need further libraries.
 *
 * A module is a shared object NAME.so with one exported table, `const struct ... fbr_module_NAME`.
 * The search begins next to the program or library that this code is in: fiber/NAME.so in the same
 * folder, and in one or two folders up, as in a build tree and from bin/ to lib/. It ends in the
 * folder where Fiber was installed. The search skips a module that another user could have put
 * there, and a module of another build, whose structs may differ: the string `fbr_module_stamp` of
 * each module names its build (stamp.c), and must equal ours. Fiber's own programs are in the same
 * folders.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <sys/stat.h>

#include "runtime/base/error.h"

/* Returns the table of a module, which is loaded at most once and never unloaded, or NULL and a
 * sentence. `name` stays valid. Any thread. */
const void *fbr_module(const char *name, struct fbr_error *err);

/* Returns a handle for dlsym() of a module that has functions in place of a table. */
void *fbr_module_open(const char *name, struct fbr_error *err);

/* Stores the path of one of Fiber's own programs in path[size]. Any thread. */
int fbr_module_program(const char *name, char *path, size_t size, struct fbr_error *err);

/* The program or library that loads modules. */
struct fbr_module_user {
    uid_t owner;
    bool open; /* every user can write it */
};

/* Whether it may use a module, or a folder of modules. */
bool fbr_module_is_trusted(const struct fbr_module_user *u, const struct stat *st);
/* Calls look() for each folder where the program or library `path` searches its modules, until it
 * returns another value than 0, and returns that value. "": only where Fiber was installed. *u is
 * set before the first call. Any thread. */
int fbr_module_search(const char *path, struct fbr_module_user *u,
                      int (*look)(void *user, const char *folder), void *user);
