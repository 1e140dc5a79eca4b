/* stamp.c - the stamp by which a module names its build.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "stamp/fiber_stamp.h"

__attribute__((visibility("default"))) extern const char fbr_module_stamp[];
const char fbr_module_stamp[] = FBR_STAMP;
