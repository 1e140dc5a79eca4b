/* master_id.h - names of masters, for labels on jobs: a name shows whether a job's master is gone.
 *
 * A name is "HOST:PID:MARK.START", at most 63 bytes. HOST is for people. MARK stands for the host,
 * its boot and the PID namespace, so another host with the same name, or a container, has another
 * mark. START is the start time of the process, so a later process with the same PID has another
 * start.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#pragma once

#define FBR_MASTER_ID_MAX 64

enum fbr_master_id_state {
    FBR_MASTER_ID_ALIVE,
    FBR_MASTER_ID_DEAD,    /* for certain */
    FBR_MASTER_ID_UNKNOWN, /* on another host, or the name is invalid */
};

/* Stores the name of this process. Any thread. */
void fbr_master_id_self(char out[FBR_MASTER_ID_MAX]);

/* Returns the state of the master with that name, as far as this process can see. Any thread. */
enum fbr_master_id_state fbr_master_id_state(const char *name);
