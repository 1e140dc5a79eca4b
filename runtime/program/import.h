/* import.h - replaces a function that a loaded library calls.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Lets the library, or the program, that has the code at `inside` call `function` in place of the
 * function `name` of another library. Calls from elsewhere do not change. `function` must stay
 * loaded. Any thread. 0; -ENOENT: it does not call a function of that name; or an error of
 * mprotect(2). */
int fbr_import_replace(const void *inside, const char *name, void *function);
