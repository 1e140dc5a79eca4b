/* rundir.h - the directories of a run on one host: sockets in a 0700 directory, segments in
 * another.
 *
 * The master makes them; its children put their own sockets below. They end with the master: the
 * master removes them, or, when it was killed, its children do as they end. The next run of the
 * same user removes the rest, which it knows by a lock that nobody holds any more.
 *
 * Programs that clean temporary directories by age must leave them alone, however long the run
 * lasts: its processes hold a shared BSD lock on the directory, at which systemd-tmpfiles stops,
 * and fbr_rundir_keep() refreshes the times of all entries, for cleaners that look at times only.
 *
 * A directory below /dev/shm names its owner in its file `run`: "MASTER ROOT", the master as
 * master_id.h names it. So it is removed, too, when somebody has removed the other directory by
 * hand: once that master is dead for certain. Where the master is on another host it is called "-",
 * and each process of the run holds a read lock on the file instead.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef FBR_RUNDIR_H
#define FBR_RUNDIR_H

#include <stdbool.h>
#include <stddef.h>

#include "runtime/base/error.h"
#include "runtime/base/master_id.h"

#define FBR_DIR_MAX 72

struct fbr_rundir {
    char root[FBR_DIR_MAX]; /* of the run, on this host; "" when there is none */
    /* this process's own, below root or equal to it; "" until it is needed */
    char own[FBR_DIR_MAX + 8];
    char shm[FBR_DIR_MAX]; /* segments of the run; fbr_rundir_shm() makes it */
    int lock_fd, shm_fd, held_fd;
    bool master, shared;
};

/* The owner of segments, as their file `run` names it. */
struct fbr_rundir_owner {
    char master[FBR_MASTER_ID_MAX], root[FBR_DIR_MAX]; /* "-": the master is on another host */
};
/* False: the text is invalid or incomplete. */
bool fbr_rundir_owner(const char *text, size_t len, struct fbr_rundir_owner *o);

/* Makes a run's directory in `base` ($XDG_RUNTIME_DIR or /tmp when empty), after it has removed
 * those of dead runs. */
int fbr_rundir_create(struct fbr_rundir *d, const char *base, struct fbr_error *err);
/* A child's own directory below its master's, on the same host; falls back to a new run directory
 * elsewhere. */
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
/* Removes an empty directory of segments when the run is over: the directory may have been made too
 * late. */
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
    3600000 /* interval of fbr_rundir_keep(): the shortest age that cleaners are given is hours */
/* Makes the parent directories of a path. */
int fbr_rundir_parents(const char *path, unsigned mode);
/* Removes our own directory; in the master all of the run's. */
void fbr_rundir_remove(struct fbr_rundir *d);
/* Removes a directory of ours with all its contents; an entry that cannot be removed stays. */
void fbr_rundir_remove_tree(const char *path);
/* Removes the whole run's directories. */
void fbr_rundir_wreck(const char *root);
/* Removes them if their master is dead; true: they are gone. For the directory of a master that is
 * named in it, not for a shared one. */
bool fbr_rundir_wreck_dead(const char *root);
/* Calls found() for each directory in `base` that a dead run left, and for its segments, and
 * removes them unless found() answers false. found NULL: removes them, and segments of dead runs
 * anywhere. */
void fbr_rundir_sweep(const char *base, bool (*found)(void *user, const char *root), void *user);

#endif
