/* rundir.h - the directories of a run on one host: sockets in a 0700 directory, segments in
 * another.
 *
 * The master makes both; its children put their own sockets below. The master removes both when it
 * ends; if it was killed, its children remove them as they end. The next run of the same user
 * removes directories that are left over, whose lock no process holds any more.
 *
 * Programs that clean temporary directories by age must not remove them, however long the run
 * lasts. The run's processes hold a shared BSD lock on the directory, which systemd-tmpfiles
 * respects, and fbr_rundir_keep() refreshes the times of all entries, for cleaners that check only
 * times.
 *
 * A directory below /dev/shm names its owner in its file `run`: "MASTER ROOT", where MASTER is a
 * name as in master_id.h. So a later run can remove the directory even if somebody has removed ROOT
 * by hand, once that master is certainly dead. If the master is on another host, MASTER is "-", and
 * each process of the run holds a read lock on the file instead.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "runtime/base/config.h"
#include "runtime/base/error.h"
#include "runtime/base/master_id.h"

#define FBR_DIR_MAX (FBR_RUN_DIR_MAX + 32)

struct fbr_rundir {
    char root[FBR_DIR_MAX]; /* of the run, on this host; "" when there is none */
    /* this process's own, below root or equal to it; "" until it is needed */
    char own[FBR_DIR_MAX + 8];
    char shm[FBR_DIR_MAX]; /* segments of the run; fbr_rundir_shm() makes it */
    int lock_fd, shm_fd, held_fd;
    bool master, shared;
    bool joined_shared; /* joined, and processes of a run elsewhere share it */
};

/* The owner of segments, as their file `run` names it. */
struct fbr_rundir_owner {
    char master[FBR_MASTER_ID_MAX], root[FBR_DIR_MAX]; /* "-": the master is on another host */
};
/* False: the text is invalid or incomplete. */
bool fbr_rundir_owner(const char *text, size_t len, struct fbr_rundir_owner *o);

/* Removes the directories of dead runs, then makes a run's directory in `base`. */
int fbr_rundir_create(struct fbr_rundir *d, const char *base, struct fbr_error *err);
/* The same, but removes nothing. */
int fbr_rundir_make(struct fbr_rundir *d, const char *base, struct fbr_error *err);
/* Joins the directory of a run whose master is on the same host; makes a new run directory if that
 * is not there. */
int fbr_rundir_join(struct fbr_rundir *d, const char *root, const char *base,
                    struct fbr_error *err);
/* Makes or joins the run's directory on a host without its master: the first process makes it, the
 * last removes it. */
int fbr_rundir_share(struct fbr_rundir *d, const char *run_uid, const char *base,
                     struct fbr_error *err);
/* Makes a child's own directory, unless it exists. */
int fbr_rundir_own(struct fbr_rundir *d, struct fbr_error *err);
/* Makes the directory of segments, or checks that an existing one is ours alone. Any thread. */
int fbr_rundir_shm(struct fbr_rundir *d, struct fbr_error *err);
/* Removes an empty directory of segments when the run is over: the directory may have been made
 * after the run's directory was removed. */
void fbr_rundir_shm_leave(const struct fbr_rundir *d);
/* Protects the directories from cleaners by age: refreshes the times of all entries, and makes a
 * lost lock again. Call it now and then, one thread at a time. */
void fbr_rundir_keep(struct fbr_rundir *d);
/* Takes the BSD lock that marks a directory as used: returns its descriptor, or negative. */
int fbr_rundir_hold(const char *dir);
/* Whether a process holds that lock. */
bool fbr_rundir_is_held(const char *dir);
/* Refreshes the times of all entries. */
void fbr_rundir_touch(const char *dir);
#define FBR_RUNDIR_KEEP_MS \
    3600000 /* interval of fbr_rundir_keep(): cleaners are given ages of hours at least */
/* Makes the parent directories of a path. */
int fbr_rundir_parents(const char *path, unsigned mode);
/* Removes our own directory; in a master all directories of the run. */
void fbr_rundir_remove(struct fbr_rundir *d);
/* Removes a directory of ours with all its contents; an entry that cannot be removed stays. */
void fbr_rundir_remove_tree(const char *path);
/* Removes the whole run's directories. */
void fbr_rundir_wreck(const char *root);
/* Removes the run's directories if their master is dead; true: they are gone. `shared`: if no
 * process holds their lock; another process may make them again at any time. */
bool fbr_rundir_wreck_dead(const char *root, bool shared);
/* Calls found() for each directory in `base` that a dead run left, and for its segments, and
 * removes them unless found() answers false. found NULL: removes them, and segments of dead runs
 * anywhere. */
void fbr_rundir_sweep(const char *base, bool (*found)(void *user, const char *root), void *user);
