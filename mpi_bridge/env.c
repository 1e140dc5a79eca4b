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

void fbr_env_init(struct fbr_env *e)
{
    memset(e, 0, sizeof(*e));
}

void fbr_env_fini(struct fbr_env *e)
{
    for (size_t i = 0; i < e->count; i++)
        free(e->list[i]);
    free(e->list);
    fbr_env_init(e);
}

/* Returns the index of the name of len bytes, or count. */
static size_t find(const struct fbr_env *e, const char *name, size_t len)
{
    size_t i = 0;

    while (i < e->count && (strncmp(e->list[i], name, len) != 0 || e->list[i][len] != '='))
        i++;
    return i;
}

/* Takes over the pair, even on failure. len: of its name. */
static void take(struct fbr_env *e, char *pair, size_t len)
{
    size_t i;

    if (!pair || e->failed)
        goto fail;
    i = find(e, pair, len);
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

void fbr_env_drop(struct fbr_env *e, const char *start)
{
    size_t kept = 0;

    for (size_t i = 0; i < e->count; i++)
        if (strncmp(e->list[i], start, strlen(start)) != 0)
            e->list[kept++] = e->list[i];
        else
            free(e->list[i]);
    e->count = kept;
    if (e->list)
        e->list[kept] = NULL;
}

const char *fbr_env_get(const struct fbr_env *e, const char *name)
{
    size_t len = strlen(name), i = find(e, name, len);

    return i < e->count ? e->list[i] + len + 1 : NULL;
}
