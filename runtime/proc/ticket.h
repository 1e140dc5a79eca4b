/* ticket.h - the ticket by which a job finds and convinces its parent: an address and a secret.
 *
 * The backend puts it where only the job can read it; the environment only names the place. The
 * reader wipes it.
 *
 *     FIBER_TICKET=fd:3          an inherited memory file
 *     FIBER_TICKET=file:/path    a 0400 file, which is removed
 *     FIBER_TICKET=fd:0          standard input, which may be a pipe over the network: u32 length,
 *                                then the ticket. Nothing behind it is read, its end is not waited
 *                                for, and afterwards standard input is /dev/null
 *
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef FBR_TICKET_H
#define FBR_TICKET_H

#include "runtime/base/buf.h"
#include "runtime/base/config.h"
#include "runtime/net/conn.h"
#include "runtime/proc/rundir.h"

#define FBR_TICKET_ENV "FIBER_TICKET"
#define FBR_TICKET_MAX 131072
#define FBR_NAME_MAX 64

struct fbr_join {
    char url[FBR_URL_MAX]; /* where the parent listens */
    char run_uid[33];
    char name[FBR_NAME_MAX]; /* the job's */
    char root[FBR_DIR_MAX];  /* the run's directory, when on the same host; else "" */
    bool by_host;            /* the job joins by way of its host (subjobs.h), and has no secret */
    struct fbr_caller me;
    uint8_t secret[FBR_KEY_SIZE];
};

void fbr_join_put(const struct fbr_join *j, const struct fbr_config *config, struct fbr_buf *b);
/* Fills *j and a new *config from bytes. -EBADMSG. */
int fbr_join_get(struct fbr_join *j, struct fbr_config **config, const void *data, size_t len,
                 struct fbr_error *err);

/* Reads and wipes the ticket that the environment names, and removes the variable. 1: there is
 * none, this is a master. */
int fbr_join_take(struct fbr_join *j, struct fbr_config **config, struct fbr_error *err);

#endif
