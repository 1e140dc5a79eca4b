/* registry.h - finds the runs of this user on this host: each has a directory of mode 0700.
 *
 *   $XDG_RUNTIME_DIR/fiber/UID/control     a socket (run_control.h); /tmp/fiber-<user id>/ without
 *                                          XDG_RUNTIME_DIR
 *                         UID/about        what was known at the start (run_control_wire.h: a RUN)
 *                     ended/MS-UIDNAME     runs that ended, 50 of each name: a RUN, a DONE; NAME is
 *                                          a hash
 *                     cpus             which processors runs are bound to (claim.h)
 *
 * Where another user has made /tmp/fiber-<user id>, it is the first of this user's directories
 * /tmp/fiber-u<user id>-*.
 *
 * UID is the first half of the run's. Directories that belong to somebody else, or that somebody
 * else may write, are not used. A run whose launcher was killed leaves a socket that nobody listens
 * at: the next run, and whatever lists runs, removes it and writes the record. Any thread;
 * processes may do all of it at the same time.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef FBR_REGISTRY_H
#define FBR_REGISTRY_H

#include "runtime/inspect/run_control_wire.h"
#include "runtime/base/error.h"

#define FBR_REGISTRY_MAX 108 /* a path in it, with its NUL: what a socket's name may have */

/* The registry's directory, made if need be. */
int fbr_registry_root(char root[FBR_REGISTRY_MAX], struct fbr_error *err);
/* Makes the directory of a run and its about file, and removes those of runs that are dead. */
int fbr_registry_add(const struct fbr_run_control_about *about, char dir[FBR_REGISTRY_MAX],
                     struct fbr_error *err);
/* Removes it. */
void fbr_registry_drop(const char *dir);
/* The same, and keeps a record that it ended so. */
void fbr_registry_end(const char *dir, const struct fbr_run_control_about *about,
                      const struct fbr_run_facts *facts, int code, const char *report);

/* A socket that is connected to that run's door, or -errno; -EAGAIN: it lives, and takes no more
 * callers now. */
int fbr_registry_call(const char *uid);

/* Calls found() for each run that is there: a connected socket, which is found()'s to close (-1: it
 * takes no more callers now), and what was known at its start. Dead ones are swept. */
int fbr_registry_each(void (*found)(void *user, int fd, const struct fbr_run_control_about *about),
                      void *user, struct fbr_error *err);
/* The same for those that have ended, oldest first. code FBR_REGISTRY_LOST: its launcher was
 * killed. */
#define FBR_REGISTRY_LOST (-1)
int fbr_registry_ended(void (*found)(void *user, const struct fbr_run_control_about *about,
                                     const struct fbr_run_facts *facts, int code,
                                     const char *report),
                       void *user, struct fbr_error *err);

#endif
