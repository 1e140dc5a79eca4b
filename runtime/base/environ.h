/* environ.h - our own environment: as our threads read it, and variables set for a moment.
 *
 * A program may change its environment whenever it likes, as long as none of its threads reads it meanwhile; it knows
 * nothing of ours. So these read a copy, which is made where the program calls us: by fiber_init(), and when something
 * is started by a backend that is not open yet.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef FBR_ENVIRON_H
#define FBR_ENVIRON_H

#include <stddef.h>

/* Makes the copy anew. In the program's thread, which reads its environment by it. A copy stays for ever: somebody may
 * have its strings; one that would be the same as the last is not made. Out of memory, the last one stays. */
void fbr_environ_keep(void);
/* Another one's copy instead: a module (module.h) has its own of all this, and none of its own. NULL: none. */
void fbr_environ_use(char **list);
/* The copy, or the environment itself before there is one; NULL-terminated, never NULL. Any thread. */
char **fbr_environ(void);
/* A variable of that; NULL: unset. The string stays for ever. Any thread. */
const char *fbr_getenv(const char *name);

/* For a library that looks into the environment while it starts. For agents: in a program of the user's, a thread of
 * his may look meanwhile. */
struct fbr_setting {
    const char *name;
    char value[512]; /* "": unset */
    char *before;
};

void fbr_settings_apply(struct fbr_setting *s, size_t n);
void fbr_settings_undo(struct fbr_setting *s, size_t n);

#endif
