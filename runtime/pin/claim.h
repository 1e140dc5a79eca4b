/* claim.h - which processors of this host the runs of this user are bound to.
 *
 * A file in a directory that all runs of the user share (the registry's), of which byte N is locked
 * while somebody is bound to processor N. The lock belongs to a descriptor, so it goes with the
 * process that holds it, however that ends.
 * Loop thread, or one thread at a time.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef FBR_CLAIM_H
#define FBR_CLAIM_H

#include <stdbool.h>
#include <stdint.h>

#define FBR_CLAIM_CPUS 4096

struct fbr_cpuset {
    uint8_t bits[FBR_CLAIM_CPUS / 8];
};
/* Adds a list ("0-3,8") to it. -EINVAL, -E2BIG. */
int fbr_cpuset_add(struct fbr_cpuset *set, const char *list);
/* All but these as a list; false: it does not fit. */
bool fbr_cpuset_rest(const struct fbr_cpuset *set, char *list, unsigned size);
unsigned fbr_cpuset_count(const struct fbr_cpuset *set);
/* Leaves those in it that the calling thread may run on; all, where the kernel does not say. */
void fbr_cpuset_allowed(struct fbr_cpuset *set);

/* Opens the file of claims in this directory. A descriptor, to close when nothing is claimed any
 * more; or negative. */
int fbr_claim_open(const char *dir);
/* Claims all of them: 0; -EAGAIN: others were faster, and nothing more is claimed. */
int fbr_claim_take(int fd, const struct fbr_cpuset *set);
/* Gives back all that was claimed by fd. */
void fbr_claim_drop(int fd);
/* Those that others have claimed. */
void fbr_claim_others(int fd, struct fbr_cpuset *set);

#endif
