/* store.h - the main function of the process of a store.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef FBR_STORE_H
#define FBR_STORE_H

#include <stddef.h>

/* A fiber_process_fn: serves a new store until its parent closes it, then ends the process. */
int fbr_store_main(const void *arg, size_t len);

#endif
