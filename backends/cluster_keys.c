/* cluster_keys.c - the settings of backends as the module "cluster" sees them: none.
 *
 * The module reads configurations that the library made, and each of these carries its keys. The
 * registry, which has the keys, stays out of the module.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "runtime/base/config.h"

const char fbr_backend_words[] = "auto";

int fbr_backend_keys(size_t index, const struct fbr_config_key **keys, size_t *n)
{
    *keys = NULL;
    *n = 0;
    return 0;
}

bool fbr_backend_variable(const char *name)
{
    return false;
}
