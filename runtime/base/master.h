/* master.h - names of masters, for labels on jobs: they tell whether a job's master is gone.
 *
 * A name is "HOST:PID:MARK.START", at most 63 bytes. HOST is for people. The mark stands for the host, its boot and the
 * process namespace, so neither another host of the same name nor a container is taken for it, and START for the
 * process, so no other that has got its number.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef FBR_MASTER_H
#define FBR_MASTER_H

#define FBR_MASTER_MAX 64

enum fbr_master_state {
    FBR_MASTER_ALIVE,
    FBR_MASTER_DEAD,    /* for certain */
    FBR_MASTER_UNKNOWN, /* elsewhere, or it is no name */
};

/* Our own. Any thread. */
void fbr_master_self(char out[FBR_MASTER_MAX]);

/* What became of that one, as far as one can tell from here. Any thread. */
enum fbr_master_state fbr_master_state(const char *name);

#endif
