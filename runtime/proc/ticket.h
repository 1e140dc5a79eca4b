/* ticket.h - the ticket by which a job finds its parent and authenticates to it: an address and a
 * secret.
 *
 * The backend stores the ticket where only the job can read it, and the environment names that
 * place. The job wipes the ticket when it reads it.
 *
 *     FIBER_TICKET=fd:3          an inherited memory file
 *     FIBER_TICKET=file:/path    a 0400 file, which is removed
 *     FIBER_TICKET=fd:0          standard input, which may be a pipe over the network: u32 length,
 *                                then the ticket. The job reads nothing after the ticket, does not
 *                                wait for the end of the pipe, and replaces standard input by
 *                                /dev/null
 *
 * SPDX-License-Identifier: Apache-2.0 */
#pragma once

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
    char name[FBR_NAME_MAX]; /* name of the job */
    char root[FBR_DIR_MAX];  /* the run's directory if the job is on the same host; else "" */
    /* the job is a subjob: it joins through its host process (subjobs.h), and has no secret */
    bool by_host;
    struct fbr_caller me;
    uint8_t secret[FBR_KEY_SIZE];
};

void fbr_join_put(const struct fbr_join *j, const struct fbr_config *config, struct fbr_buf *b);
/* Fills *j and a new *config from bytes. -EBADMSG: the bytes are malformed. */
int fbr_join_get(struct fbr_join *j, struct fbr_config **config, const void *data, size_t len,
                 struct fbr_error *err);

/* Reads and wipes the ticket that the environment names, and removes the variable. 1: there is no
 * ticket, and this process is a master. */
int fbr_join_take(struct fbr_join *j, struct fbr_config **config, struct fbr_error *err);
