/* registry.h - the runs of this user on this host, each in a directory of mode 0700.
 *
 *   $XDG_RUNTIME_DIR/fiber/UID/control     a socket (run_control.h); /tmp/fiber-<user id>/ without
 *                                          XDG_RUNTIME_DIR (fbr_config_tmp() for /tmp)
 *                         UID/about        the facts at the start (run_control_wire.h: a RUN)
 *                         UID/stopped      empty; there after `fiber kill` of a pool or a program
 *                     ended/MS-UIDNAME     runs that ended, 50 of each name: a RUN, a DONE; NAME is
 *                                          a hash
 *                     cpus                 the processors that runs are bound to (claim.h)
 *
 * If another user has made /tmp/fiber-<user id>, the registry is the first of this user's
 * directories /tmp/fiber-u<user id>-*.
 *
 * UID is the first half of the run's uid. Directories that belong to another user, or that another
 * user can enter, are not used. A launcher that is killed leaves a socket at which no process
 * listens: the next run, or a command that lists runs, removes that directory and writes the
 * record. Any thread; several processes may call all functions at the same time.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "runtime/inspect/run_control_wire.h"
#include "runtime/base/error.h"

#define FBR_REGISTRY_MAX 108 /* size of a path in it, with its NUL: the limit of a socket's name */

#define FBR_REGISTRY_UID 16 /* characters of a run's uid in the name of its directory */

/* Whether a name can be that of a run's directory. */
bool fbr_registry_is_run(const char *name);
/* Whether a user means this run: by its name, or by the first characters of its uid. */
bool fbr_registry_is_called(const struct fbr_run_control_about *about, const char *typed);
/* Writes a record, which other users cannot read: a RUN, and a DONE unless `report` is NULL. *lock,
 * if not NULL, is then its descriptor, and holds a BSD lock. -EWOULDBLOCK: another process holds
 * it. */
int fbr_registry_write(const char *path, const struct fbr_run_control_about *about,
                       const struct fbr_run_facts *facts, int code, const char *report, int *lock);
/* Reads a record; its DONE only if `report` is not NULL. False: it is malformed, or not there. */
bool fbr_registry_read(const char *path, struct fbr_run_control_about *about,
                       struct fbr_run_facts *facts, int *code, char *report, size_t size);

/* Makes a directory. One that exists must be ours alone, and no link, so that no other user can
 * have put anything into it, or reads it. `advice` (may be "") ends the sentence of -EPERM. */
int fbr_registry_make_dir(const char *path, const char *advice, struct fbr_error *err);
/* Stores the registry's directory, which it makes if necessary. */
int fbr_registry_root(char root[FBR_REGISTRY_MAX], struct fbr_error *err);
/* Removes the directories of dead runs, then makes the directory of a run and its file `about`. */
int fbr_registry_add(const struct fbr_run_control_about *about, char dir[FBR_REGISTRY_MAX],
                     struct fbr_error *err);
/* Notes that the run's launcher will get SIGTERM, and may leave no other record of its end. */
void fbr_registry_stopping(const char *dir);
/* Removes the directory of a run, and writes the record of the run's end. */
void fbr_registry_end(const char *dir, const struct fbr_run_control_about *about,
                      const struct fbr_run_facts *facts, int code, const char *report);

/* Returns a socket that is connected to the control socket of that run, or -errno. -EAGAIN: the run
 * lives, but takes no more callers now. */
int fbr_registry_call(const char *uid);

/* Calls found() for each living run, with a connected socket, which found() closes (-1: the run
 * takes no more callers now), and with the facts at its start. Removes dead runs. */
int fbr_registry_each(void (*found)(void *user, int fd, const struct fbr_run_control_about *about),
                      void *user, struct fbr_error *err);
/* The same for runs that have ended, oldest first. code FBR_REGISTRY_LOST: the launcher was killed,
 * or closed the run before its end. */
#define FBR_REGISTRY_LOST (-1)
int fbr_registry_ended(void (*found)(void *user, const struct fbr_run_control_about *about,
                                     const struct fbr_run_facts *facts, int code,
                                     const char *report),
                       void *user, struct fbr_error *err);
