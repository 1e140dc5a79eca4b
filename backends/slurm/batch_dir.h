/* batch_dir.h - the folder of batch jobs, which the nodes share: tickets, and what jobs write.
 *
 * It is below the configured one and has mode 0700:
 *
 *     slurm-TAG/master            whose it is (runtime/base/master_id.h)
 *     slurm-TAG/SEQ.INDEX.ticket  of element INDEX of submission SEQ; its reader removes it
 *     slurm-TAG/SEQ.INDEX.out .err
 *
 * A job that starts jobs has its folder in that of who started it, and it ends with that. Folders
 * whose master died without removing them are swept by the next one that can tell.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef FBR_SLURM_DIR_H
#define FBR_SLURM_DIR_H

#include <limits.h>
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "runtime/base/error.h"
#include "runtime/net/loop.h"

#define FBR_SLURM_TAG 8

struct fbr_slurm_dir {
    char path[PATH_MAX - 64];
    char tag[FBR_SLURM_TAG]; /* of our own; also in what we submit */
};

/* `base` is made when it is not there. Calls dead(user, tag) for each folder that it swept. */
int fbr_slurm_dir_open(struct fbr_slurm_dir *d, const char *base,
                       void (*dead)(void *user, const char *tag), void *user,
                       struct fbr_error *err);
/* Removes it with all that is in it. Zeroed ones are fine. */
void fbr_slurm_dir_close(struct fbr_slurm_dir *d);
/* Writes a file that only we can read, 0600. */
int fbr_slurm_dir_write(const char *path, const void *data, size_t len, struct fbr_error *err);

/* ---- Reading what jobs write, on another thread: the folder may be far away ---- */

struct fbr_slurm_read {
    char path[PATH_MAX];
    uint64_t offset;
    uint8_t *data; /* what was read there; more may be behind it when len is FBR_SLURM_READ */
    size_t len;
    void *user;
    int stream;
};
#define FBR_SLURM_READ 65536

struct fbr_slurm_reads {
    pthread_t thread;
    bool running;
    struct fbr_post post;
    struct fbr_loop *loop;
    struct fbr_slurm_read *at;
    size_t n;
    void (*done)(void *user, struct fbr_slurm_reads *r); /* NULL: nobody wants to know any more */
    void *user;
};

/* For n files; the caller fills in at[]. NULL without memory. */
struct fbr_slurm_reads *fbr_slurm_reads_new(size_t n);
/* Reads, calls done(), frees it. Loop thread. */
void fbr_slurm_reads_start(struct fbr_slurm_reads *r, struct fbr_loop *loop);

#endif
