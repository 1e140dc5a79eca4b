/* stamp.c - what a module says of the build that it is of; see module.h.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "stamp/fiber_stamp.h"

__attribute__((visibility("default"))) extern const char fbr_module_stamp[];
const char fbr_module_stamp[] = FBR_STAMP;
