/* fds.h - descriptors: raises their limit, and checks that enough of them are free.
 *
 * libuv and nanomsg abort the process in some places when they get no descriptor, and a refused
 * descriptor in the middle of a join looks like a broken connection. So callers ask before they
 * open descriptors, and each start of a process sets aside those that it will need here later. The
 * program itself may open descriptors meanwhile; hence the headroom.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef FBR_FDS_H
#define FBR_FDS_H

#include <stdbool.h>

#include "runtime/base/error.h"

/* Raises the soft limit of this process to the hard one: many children are many descriptors. */
void fbr_fds_raise(void);
/* Our soft limit before fbr_fds_raise(). Programs that we start get it back: some pass descriptors
 * to select(). 0: not raised. */
unsigned long fbr_fds_before(void);

/* Checks that `now` descriptors are free, and `later` more, which it sets aside until they are
 * released. -EMFILE and a sentence: there are too few. Any thread. */
int fbr_fds_take(int now, int later, const char *what, struct fbr_error *err);
void fbr_fds_release(int later);
/* Checks, and sets none aside. */
int fbr_fds_need(int now, const char *what, struct fbr_error *err);
/* Whether so few are free that the lack may explain a failure. Fills in a sentence about it. */
bool fbr_fds_short(char *text, unsigned size);

#endif
