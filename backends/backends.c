/* backends.c - the registry of backends: one array.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <string.h>

#include "runtime/backend.h"

extern const struct fbr_backend_ops fbr_backend_local, fbr_backend_mock, fbr_backend_command;

const struct fbr_backend_ops *const fbr_backends[] = {&fbr_backend_local, &fbr_backend_mock,
                                                      &fbr_backend_command, NULL};

const struct fbr_backend_ops *fbr_backend_find(const char *name, struct fbr_error *err)
{
    char names[128] = "";

    for (int i = 0; fbr_backends[i]; i++) {
        if (strcmp(fbr_backends[i]->name, name) == 0)
            return fbr_backends[i];
        if (i)
            strncat(names, " ", sizeof(names) - strlen(names) - 1);
        strncat(names, fbr_backends[i]->name, sizeof(names) - strlen(names) - 1);
    }
    fbr_fail(err, -ENOENT, "there is no backend '%s' in this build; it has: %s", name, names);
    return NULL;
}
