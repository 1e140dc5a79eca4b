/* environ.h - the environment of this process: a copy that our threads read, and variables set for
 * a moment.
 *
 * A program may change its environment whenever it likes, as long as none of its threads reads it
 * meanwhile; the program does not know our threads. So our threads read a copy, which is made where
 * the program calls us: by fiber_init(), and when a process is started on a backend that is not
 * open yet.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef FBR_ENVIRON_H
#define FBR_ENVIRON_H

#include <stddef.h>

/* Makes a new copy. Call it in the program's thread, which reads its environment by it. A copy
 * stays for ever, because a thread may use its strings; a copy that would be the same as the last
 * is not made. When memory is short, the last copy stays. */
void fbr_environ_keep(void);
/* Uses the copy of another library: a module (module.h) has this code twice, and takes the main
 * library's copy. NULL: none. */
void fbr_environ_use(char **list);
/* The copy, or the environment itself before there is one; NULL-terminated, never NULL. Any
 * thread. */
char **fbr_environ(void);
/* Returns a variable of that copy; NULL: unset. The string stays for ever. Any thread. */
const char *fbr_getenv(const char *name);

/* Sets a variable for a library that reads the environment while it starts. Only for agents: in a
 * user's program another thread may read the environment meanwhile. */
struct fbr_setting {
    const char *name;
    char value[512]; /* "": unset */
    char *before;
};

void fbr_settings_apply(struct fbr_setting *s, size_t n);
void fbr_settings_undo(struct fbr_setting *s, size_t n);

#endif
