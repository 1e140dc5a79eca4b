/* claim.h - which processors of this host are bound to runs of this user.
 *
 * The claims are in a file in a directory that all runs of the user share (the registry's). Byte N
 * of the file is locked while a run is bound to processor N. The lock belongs to a descriptor, so
 * it is released when the process that holds it ends, even if the process is killed. Loop thread,
 * or one thread at a time.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "runtime/pin/cpulist.h"

/* Adds a list ("0-3,8") to the set. -EINVAL, -E2BIG. */
int fbr_cpuset_add(struct fbr_cpuset *set, const char *list);
/* Stores the processors that are not in the set, as a list. False: there are none, or the list does
 * not fit. */
bool fbr_cpuset_rest(const struct fbr_cpuset *set, char *list, unsigned size);
/* Removes the processors that the calling thread may not run on. Removes none if the kernel does
 * not report them. */
void fbr_cpuset_allowed(struct fbr_cpuset *set);

/* Opens the file of claims in this directory. Returns a descriptor, which the caller closes when it
 * has no claims any more, or a negative errno. */
int fbr_claim_open(const char *dir);
/* Claims all processors of the set. 0; -EAGAIN: another run has claimed one of them, and this call
 * claims none. */
int fbr_claim_take(int fd, const struct fbr_cpuset *set);
/* Releases all claims of fd. */
void fbr_claim_drop(int fd);
/* Stores the processors that other runs have claimed. */
void fbr_claim_others(int fd, struct fbr_cpuset *set);
