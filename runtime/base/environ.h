/* environ.h - copies of this process's environment that our threads read, and variables that are
 * set for a moment.
 *
 * A program may change its environment at any time, as long as none of its threads reads it
 * meanwhile; the program does not know our threads. So our threads read a copy. The copy is made in
 * a thread of the program: in fiber_init(), and when a process is started on a backend that is not
 * open yet.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

/* Makes a new copy. Call it in a thread of the program, because it reads the real environment. A
 * copy is never freed, because a thread may use its strings. If nothing has changed, the last copy
 * is used again. If memory is short, the last copy stays. */
void fbr_environ_keep(void);
/* Uses the copy of another library. A module (module.h) has its own instance of this code, and
 * takes the main library's copy. NULL: no copy. */
void fbr_environ_use(char **list);
/* Returns the copy, or the environment itself if there is no copy yet. The list is NULL-terminated,
 * never NULL. Any thread. */
char **fbr_environ(void);
/* Returns the value of a variable in a NULL-terminated list of settings. NULL: it is not set. */
const char *fbr_environ_value(char *const *list, const char *name);
/* The same for our environment, fbr_environ(). A string of a copy stays valid
 * for ever. Any thread. */
const char *fbr_getenv(const char *name);

/* Returns `list` with the settings of `more` ("NAME=value"), which replace its own; a name without
 * "=" removes the variable. `more` may be NULL. The strings are those of the arguments; the caller
 * frees the list. NULL: out of memory. */
char **fbr_environ_with(char *const *list, const char *const *more);
/* The same, but drops() decides which settings of `list` are left out. */
char **fbr_environ_without(char *const *list, bool (*drops)(const void *user, const char *setting),
                           const void *user, const char *const *more);

/* Copies the real environment with the settings of `more` into one block. Call it in a thread of
 * the program, for processes that start later on the loop thread. NULL: out of memory. */
char **fbr_environ_copy(const char *const *more);

/* Whether two NULL-terminated lists have the same strings. */
bool fbr_strings_same(char *const *a, char *const *b);
/* Whether a text begins with one of the strings of a NULL-terminated list. */
bool fbr_strings_begin(const char *text, const char *const *list);
/* Copies a NULL-terminated list and its strings into one block. NULL: out of memory. */
char **fbr_strings_copy(char *const *list);
/* The same, for strings that any thread may use at any time: the copy is never freed. */
char **fbr_strings_keep(char *const *list);

/* A variable that is set for a library that reads the environment while it starts. Only for agents:
 * in a user's program another thread may read the environment meanwhile. */
struct fbr_setting {
    const char *name;
    char value[512]; /* "": unset */
    char *before;
};

void fbr_settings_apply(struct fbr_setting *s, size_t n);
void fbr_settings_undo(struct fbr_setting *s, size_t n);
