/* kube_folder.h - a folder with a kubeconfig for an API server of a test.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/support/files.h"

/* From now on, this process uses this folder, which is there and empty. */
static inline void kube_folder_make(const char *folder, int port)
{
    char text[512];

    snprintf(text, sizeof(text),
             "{\"current-context\": \"c\", \"contexts\": [{\"name\": \"c\", \"context\": "
             "{\"cluster\": \"k\"}}], \"clusters\": [{\"name\": \"k\", \"cluster\": {\"server\": "
             "\"http://127.0.0.1:%d\"}}]}",
             port);
    file_make(path_in(folder, "config"), text, strlen(text), 0600);
    setenv("KUBECONFIG", path_in(folder, "config"), 1);
}

static inline int kube_folder_remove(const char *folder)
{
    unlink(path_in(folder, "config"));
    return rmdir(folder);
}
