/* env.c - builds an environment.
 *
 * Names are searched one by one: an environment has a hundred of them, and it is built once for
 * each rank.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "mpi_bridge/env.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/buf.h"
#include "runtime/base/environ.h"

void fbr_env_fini(struct fbr_env *e)
{
    for (size_t i = 0; i < e->count; i++)
        free(e->list[i]);
    free(e->list);
    *e = (struct fbr_env){0};
}

/* Takes over the pair, even on failure. len: of its name. */
static void take(struct fbr_env *e, char *pair, size_t len)
{
    size_t i = 0;

    if (!pair || e->failed)
        goto fail;
    while (i < e->count && strncmp(e->list[i], pair, len + 1) != 0)
        i++;
    if (i < e->count) {
        free(e->list[i]);
        e->list[i] = pair;
        return;
    }
    if (!fbr_grow(&e->list, e->count + 1, sizeof(*e->list))) /* the NULL is an element, too */
        goto fail;
    e->list[e->count++] = pair;
    return;
fail:
    free(pair);
    e->failed = true;
}

void fbr_env_put(struct fbr_env *e, const char *pair)
{
    const char *eq = strchr(pair, '=');

    if (eq && eq != pair) /* drops strings that execve lets through but no program can look up */
        take(e, strdup(pair), (size_t)(eq - pair));
}

void fbr_env_copy(struct fbr_env *e, char *const *list)
{
    for (; list && *list; list++)
        fbr_env_put(e, *list);
}

static void set(struct fbr_env *e, const char *name, const char *fmt, va_list ap)
{
    char *value = NULL, *pair = NULL;

    if (vasprintf(&value, fmt, ap) < 0 || asprintf(&pair, "%s=%s", name, value) < 0)
        pair = NULL;
    free(value);
    take(e, pair, strlen(name));
}

void fbr_env_set(struct fbr_env *e, const char *name, const char *fmt, ...)
{
    va_list ap;

    va_start(ap, fmt);
    set(e, name, fmt, ap);
    va_end(ap);
}

void fbr_env_default(struct fbr_env *e, const char *name, const char *fmt, ...)
{
    va_list ap;

    if (fbr_env_get(e, name))
        return;
    va_start(ap, fmt);
    set(e, name, fmt, ap);
    va_end(ap);
}

void fbr_env_drop(struct fbr_env *e, const char *const *starts)
{
    size_t kept = 0;

    for (size_t i = 0; i < e->count; i++)
        if (fbr_strings_begin(e->list[i], starts))
            free(e->list[i]);
        else
            e->list[kept++] = e->list[i];
    e->count = kept;
    if (e->list)
        e->list[kept] = NULL;
}

const char *fbr_env_get(const struct fbr_env *e, const char *name)
{
    return fbr_environ_value(e->list, name);
}
