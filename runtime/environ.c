/* environ.c - variables of our own environment, set for a moment; see environ.h.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "runtime/environ.h"

#include <stdlib.h>
#include <string.h>

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
