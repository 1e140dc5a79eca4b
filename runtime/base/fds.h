/* fds.h - descriptors: how many there may be, and whether enough of them are free.
 *
 * libuv and nanomsg abort the process in some places when they get no descriptor, and what is
 * refused in the middle of a join looks like a broken connection. So whoever is about to open some
 * asks first, and what is started keeps those set aside that it will need here later. What the
 * program itself opens meanwhile is not known; hence the headroom.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef FBR_FDS_H
#define FBR_FDS_H

#include <stdbool.h>

#include "runtime/base/error.h"

/* Raises the soft limit of this process to the hard one: many children are many descriptors. */
void fbr_fds_raise(void);
/* Our soft limit before that. Programs get it back that we start: some pass descriptors to
 * select(). 0: not raised. */
unsigned long fbr_fds_before(void);

/* Are `now` descriptors free, and `later` more for what comes in time? Sets the latter aside until
 * they are released. -EMFILE and a sentence: no. Any thread. */
int fbr_fds_take(int now, int later, const char *what, struct fbr_error *err);
void fbr_fds_release(int later);
/* Just asks. */
int fbr_fds_need(int now, const char *what, struct fbr_error *err);
/* So few are free that what has failed may have failed by that. Fills in a sentence about it. */
bool fbr_fds_short(char *text, unsigned size);

#endif
