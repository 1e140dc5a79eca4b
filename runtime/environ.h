/* environ.h - variables of our own environment, set for a moment, for a library that looks there
 * while it starts.
 *
 * For agents: in a program of the user's, a thread of his may look meanwhile.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef FBR_ENVIRON_H
#define FBR_ENVIRON_H

#include <stddef.h>

struct fbr_setting {
    const char *name;
    char value[512]; /* "": unset */
    char *before;
};

void fbr_settings_apply(struct fbr_setting *s, size_t n);
void fbr_settings_undo(struct fbr_setting *s, size_t n);

#endif
