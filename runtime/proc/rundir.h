/* rundir.h - the directories of a run on one host: sockets in a 0700 directory, segments in
 * another.
 *
 * The master makes them; its children put their own sockets below. They end with the master: it
 * removes them, or, when it was killed, its children do as they end; what even so stays behind is
 * swept by the next run of the same user, which can tell by a lock that nobody holds any more.
 *
 * Programs that clean temporary directories by age must leave it alone, however long the run lasts: its
 * processes hold a shared BSD lock on the directory, at which systemd-tmpfiles stops, and fbr_rundir_keep() makes
 * young again what is in it, for those that look at times only.
 *
 * What is below /dev/shm says itself whose it is, in its file `run`: "MASTER ROOT", the master as
 * master.h names it. So it is swept, too, when somebody has removed the other directory by hand: when
 * that master is dead for certain. Where the master is on another host it is called "-", and each
 * process of the run holds a read lock on the file instead.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef FBR_RUNDIR_H
#define FBR_RUNDIR_H

#include <stdbool.h>
#include <stddef.h>

#include "runtime/base/error.h"
#include "runtime/base/master.h"

#define FBR_DIR_MAX 72

struct fbr_rundir {
    char root[FBR_DIR_MAX]; /* of the run, on this host; "" when there is none */
    char own[FBR_DIR_MAX +
             8]; /* this process's own, below root or equal to it; "" until it is needed */
    char shm[FBR_DIR_MAX]; /* segments of the run; fbr_rundir_shm() makes it */
    int lock_fd, shm_fd, held_fd;
    bool master, shared;
};

/* Whose segments these are, as their file `run` says it. */
struct fbr_rundir_owner {
    char master[FBR_MASTER_MAX], root[FBR_DIR_MAX]; /* "-": the master is on another host */
};
/* False: that is no such text, or not all of it. */
bool fbr_rundir_owner(const char *text, size_t len, struct fbr_rundir_owner *o);

/* Makes a run's directory in `base` ($XDG_RUNTIME_DIR or /tmp when empty), after sweeping what dead
 * runs left. */
int fbr_rundir_create(struct fbr_rundir *d, const char *base, struct fbr_error *err);
/* A child's own directory below its master's, on the same host; falls back to a new run directory
 * elsewhere. */
int fbr_rundir_join(struct fbr_rundir *d, const char *root, const char *base,
                    struct fbr_error *err);
/* The run's directory on a host that its master is not on: the first process makes it, the last
 * removes it. */
int fbr_rundir_share(struct fbr_rundir *d, const char *run_uid, const char *base,
                     struct fbr_error *err);
/* Makes a child's own directory, if it is not there yet. */
int fbr_rundir_own(struct fbr_rundir *d, struct fbr_error *err);
/* Makes the directory of segments, if it is not there yet, or checks that it is ours alone. Any
 * thread. */
int fbr_rundir_shm(struct fbr_rundir *d, struct fbr_error *err);
/* Removes it when the run is over and nothing is in it: it may have been made too late. */
void fbr_rundir_shm_leave(const struct fbr_rundir *d);
/* For cleaners by age, now and then: all that is in it was just used, and a lock that is gone is made
 * again. Not two at a time. */
void fbr_rundir_keep(struct fbr_rundir *d);
/* Takes the BSD lock that says that a directory is in use: its descriptor, or negative. */
int fbr_rundir_hold(const char *dir);
/* Whether somebody holds that. */
bool fbr_rundir_is_held(const char *dir);
/* Makes all that is in it young. */
void fbr_rundir_touch(const char *dir);
#define FBR_RUNDIR_KEEP_MS \
    3600000 /* how often: the shortest age that cleaners are given is hours */
/* Makes the directories that are above the last name of a path. */
int fbr_rundir_parents(const char *path, unsigned mode);
/* Removes our own; in the master all of it. */
void fbr_rundir_remove(struct fbr_rundir *d);
/* Removes a directory of ours with all that is in it; what cannot be removed stays. */
void fbr_rundir_remove_tree(const char *path);
/* Removes the whole run's. */
void fbr_rundir_wreck(const char *root);
/* The same if its master is dead; true: it is gone. For the directory of a master, who said its
 * name, not one that is shared. */
bool fbr_rundir_wreck_dead(const char *root);
/* Calls found() for each directory in `base` that a dead run left, and for its segments, and removes
 * them unless found() answers false. found NULL: removes them, and segments of dead runs anywhere. */
void fbr_rundir_sweep(const char *base, bool (*found)(void *user, const char *root), void *user);

#endif
