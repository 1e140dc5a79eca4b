/* batch_dir.h - the folder of batch jobs, which the nodes share: tickets, and the jobs' output.
 *
 * It is in the configured folder and has mode 0700:
 *
 *     slurm-TAG/master            its owner (runtime/base/master_id.h)
 *     slurm-TAG/SEQ.INDEX.ticket  of element INDEX of submission SEQ; its reader removes it
 *     slurm-TAG/SEQ.INDEX.out .err
 *
 * A job that starts jobs has its folder in the folder of the job that started it, and both end
 * together. Folders whose master died without removing them are removed by the next master that can
 * detect it.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#pragma once

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
    char tag[FBR_SLURM_TAG]; /* of this master; also in the names of its submissions */
};

/* Called for the folder of a dead master, which it may remove. */
typedef void fbr_slurm_dir_dead(void *user, const char *path, const char *tag);

/* Makes `base` if it does not exist, and sweeps it. */
int fbr_slurm_dir_open(struct fbr_slurm_dir *d, const char *base, fbr_slurm_dir_dead *dead,
                       void *user, struct fbr_error *err);
/* Whether fbr_slurm_dir_open() could make a folder in `base`; changes nothing. */
int fbr_slurm_dir_check(const char *base, struct fbr_error *err);
void fbr_slurm_dir_sweep(const char *base, fbr_slurm_dir_dead *dead, void *user);
/* Removes such a folder with its contents. */
int fbr_slurm_dir_remove(const char *path, struct fbr_error *err);
/* Removes the folder with its contents. A zeroed struct is allowed. */
void fbr_slurm_dir_close(struct fbr_slurm_dir *d);
/* Writes a file that only this user can read, 0600. */
int fbr_slurm_dir_write(const char *path, const void *data, size_t len, struct fbr_error *err);

/* ---- Reads the output of jobs on another thread: the folder may be remote ---- */

struct fbr_slurm_read {
    char path[PATH_MAX];
    uint64_t offset;
    uint8_t *data; /* bytes that were read; if len is FBR_SLURM_READ, more may follow */
    size_t len;
    bool unread; /* memory, a descriptor or a thread was missing: nothing was read this time */
    void *user;
    int stream;
};
#define FBR_SLURM_READ 65536

struct fbr_slurm_reads {
    pthread_t thread;
    bool running;
    struct fbr_post post;
    struct fbr_loop *loop;
    /* NULL: the result is not needed any more */
    void (*done)(void *user, struct fbr_slurm_reads *r);
    void *user;
    size_t n;
    struct fbr_slurm_read at[];
};

/* Makes a record for n files; the caller fills in at[]. NULL without memory. */
struct fbr_slurm_reads *fbr_slurm_reads_new(size_t n);
/* Reads the files, calls done(), frees the record. Loop thread. */
void fbr_slurm_reads_start(struct fbr_slurm_reads *r, struct fbr_loop *loop);
