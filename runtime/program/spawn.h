/* spawn.h - starts a program on this machine by clone (as vfork does) and exec; never a bare fork.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/resource.h>
#include <sys/types.h>

#include "runtime/base/error.h"

#define FBR_SPAWN_FDS 6

struct fbr_spawn {
    const char *file;    /* path; no search */
    char *const *argv;   /* NULL-terminated */
    char *const *env;    /* NULL-terminated, the whole environment */
    const char *workdir; /* NULL: ours */
    /* the child's descriptor i is our fds[i]; -1: /dev/null. The child gets no others */
    int fds[FBR_SPAWN_FDS];
    int nfds;         /* at least 3 */
    const void *cpus; /* mask of processors to bind the child to (fbr_pin_mask); NULL: ours */
    size_t cpus_len;
    uint64_t nodes;      /* NUMA nodes to bind the child's memory to, by bit; 0: ours */
    unsigned long slack; /* nanoseconds by which the child's timers may be late; 0: ours */
    bool session;        /* the child leads a session of its own: see fbr_spawn_sweep */
    bool terminal;       /* and its standard input is its controlling terminal */
};

/* Starts a program as the leader of its own process group (a terminal's Ctrl-C is for us, not for
 * the child). The child is killed when the calling thread ends, so call this on the loop thread. On
 * success *pid and *pidfd (close-on-exec) are the caller's. Callers may poll and close the pidfd;
 * for all else use the functions below, because on old kernels it is no pidfd. A failed exec is an
 * error here, with the reason. */
int fbr_spawn(const struct fbr_spawn *s, pid_t *pid, int *pidfd, struct fbr_error *err);

/* Signals a process that has not been waited for. Returns 0; -ESRCH: it has been. */
int fbr_spawn_signal(pid_t pid, int pidfd, int sig);
/* Waits for the end of the process; `use` may be NULL. -ECHILD: another part of the program has
 * waited for the process. */
int fbr_spawn_wait(pid_t pid, int pidfd, siginfo_t *how, struct rusage *use);

/* Kills the rest of the session of a process that has ended: all descendants, in any process group,
 * except those with a session of their own. The leader must not have been waited for yet, so that
 * its id means no other process; or the leader is the caller, which stays alive. One thread at a
 * time. */
void fbr_spawn_sweep(pid_t leader);

/* Finds the program `name`: the name itself if it has a slash, else the first regular file in PATH
 * that we may run; relative folders of PATH do not count. -ENOENT: there is none; *err does not
 * change, because the caller knows the purpose. -ENAMETOOLONG and a sentence: the path does not
 * fit. Any thread. */
int fbr_spawn_find(const char *name, char *path, size_t size, struct fbr_error *err);
/* The same, with the PATH of another environment. */
int fbr_spawn_find_in(char *const *env, const char *name, char *path, size_t size,
                      struct fbr_error *err);

/* Stores the path of the file of our own program. Any thread. */
int fbr_spawn_own_path(char *path, size_t size, struct fbr_error *err);
