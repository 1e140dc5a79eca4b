/* environ.c - copies of this process's environment.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "runtime/base/environ.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

extern char **environ;

struct kept {
    struct kept *before;
    char **list;
};

static struct kept *_Atomic all_kept; /* so that a leak checker finds them */
static pthread_mutex_t keeping = PTHREAD_MUTEX_INITIALIZER;
static char **_Atomic in_use; /* the newest copy of the environment */

bool fbr_strings_same(char *const *a, char *const *b)
{
    size_t i = 0;

    while (a[i] && b[i] && strcmp(a[i], b[i]) == 0)
        i++;
    return !a[i] && !b[i];
}

bool fbr_strings_begin(const char *text, const char *const *list)
{
    for (; *list; list++)
        if (strncmp(text, *list, strlen(*list)) == 0)
            return true;
    return false;
}

char **fbr_strings_copy(char *const *list)
{
    size_t n = 0, bytes = 0;
    char **copy, *at;

    for (; list[n]; n++)
        bytes += strlen(list[n]) + 1;
    copy = malloc((n + 1) * sizeof(*copy) + bytes);
    if (!copy)
        return NULL;
    at = (char *)(copy + n + 1);
    for (size_t i = 0; i < n; i++) {
        copy[i] = at;
        at = stpcpy(at, list[i]) + 1;
    }
    copy[n] = NULL;
    return copy;
}

char **fbr_strings_keep(char *const *list)
{
    struct kept *k = calloc(1, sizeof(*k));

    if (!k || !(k->list = fbr_strings_copy(list))) {
        free(k);
        return NULL;
    }
    k->before = atomic_load(&all_kept);
    while (!atomic_compare_exchange_weak(&all_kept, &k->before, k))
        continue;
    return k->list;
}

static char **now(void)
{
    static char *none[] = {NULL};

    return environ ? environ : none; /* clearenv() leaves NULL */
}

void fbr_environ_keep(void)
{
    char **last, **next;

    pthread_mutex_lock(&keeping);
    last = atomic_load(&in_use);
    next = last && fbr_strings_same(last, now()) ? last : fbr_strings_keep(now());
    if (next)
        atomic_store(&in_use, next);
    pthread_mutex_unlock(&keeping);
}

void fbr_environ_use(char **list)
{
    atomic_store(&in_use, list);
}

char **fbr_environ(void)
{
    char **list = atomic_load(&in_use);

    return list ? list : now();
}

const char *fbr_environ_value(char *const *list, const char *name)
{
    size_t n = strlen(name);

    for (; list && *list; list++)
        if (strncmp(*list, name, n) == 0 && (*list)[n] == '=')
            return *list + n + 1;
    return NULL;
}

const char *fbr_getenv(const char *name)
{
    return fbr_environ_value(fbr_environ(), name);
}

/* Whether a setting is of a variable that `more` sets or removes. */
static bool is_changed(const void *user, const char *setting)
{
    const char *const *more = user;
    size_t n = strcspn(setting, "=");

    for (; more && *more; more++)
        if (strncmp(*more, setting, n) == 0 && strchr("=", (*more)[n]))
            return true;
    return false;
}

char **fbr_environ_without(char *const *list, bool (*drops)(const void *user, const char *setting),
                           const void *user, const char *const *more)
{
    size_t n = 0, m = 0, k = 0;
    char **out;

    while (list && list[n]) /* clearenv() leaves NULL */
        n++;
    while (more && more[m])
        m++;
    out = calloc(n + m + 1, sizeof(*out));
    for (size_t i = 0; out && i < n; i++)
        if (!drops(user, list[i]))
            out[k++] = list[i];
    for (size_t i = 0; out && i < m; i++)
        if (strchr(more[i], '='))
            out[k++] = (char *)(uintptr_t)more[i];
    return out;
}

char **fbr_environ_with(char *const *list, const char *const *more)
{
    return fbr_environ_without(list, is_changed, more, more);
}

char **fbr_environ_copy(const char *const *more)
{
    char **all = fbr_environ_with(now(), more), **copy = all ? fbr_strings_copy(all) : NULL;

    free(all);
    return copy;
}

/* ---- For a moment ---- */

void fbr_settings_apply(struct fbr_setting *s, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        const char *old = getenv(s[i].name);

        s[i].before = old ? strdup(old) : NULL;
        if (s[i].value[0])
            setenv(s[i].name, s[i].value, 1);
        else
            unsetenv(s[i].name);
    }
}

void fbr_settings_undo(struct fbr_setting *s, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (s[i].before)
            setenv(s[i].name, s[i].before, 1);
        else
            unsetenv(s[i].name);
        free(s[i].before);
    }
}
