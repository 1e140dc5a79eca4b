/* env.h - builds an environment: NAME=VALUE strings, each name once, the last value wins.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

struct fbr_env { /* zeros are an empty environment */
    char **list; /* NULL-terminated once it has an entry; owned */
    size_t count;
    bool failed; /* out of memory: check once, at the end */
};

void fbr_env_fini(struct fbr_env *e);
/* Adds all strings of a list like `environ`. Values that are set later replace them. */
void fbr_env_copy(struct fbr_env *e, char *const *list);
void fbr_env_set(struct fbr_env *e, const char *name, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
/* The same unless the name is there already, even with an empty value: the user's value wins. */
void fbr_env_default(struct fbr_env *e, const char *name, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
void fbr_env_put(struct fbr_env *e, const char *pair); /* "NAME=VALUE" */
/* Removes the strings that begin with one of a NULL-terminated list: "NAME=" one, "NAME" all whose
 * name begins with it. */
void fbr_env_drop(struct fbr_env *e, const char *const *starts);
const char *fbr_env_get(const struct fbr_env *e, const char *name); /* NULL: not there */
