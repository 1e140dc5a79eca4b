/* sync.h - how tests wait for other processes: by events, with a bound that only a failure reaches.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define TEST_LONG_MS 100000

/* A FIFO that another process tells something by; its path fits into an argument. */
struct gate {
    char path[96];
    int fd;
};

void gate_open(struct gate *g);
void gate_close(struct gate *g);
/* In another process: tells len bytes (at most PIPE_BUF). Blocks until somebody has the gate
 * open. */
int gate_notify(const char *path, const void *data, size_t len);
/* Waits for exactly len bytes, at most TEST_LONG_MS: 0 or -ETIMEDOUT. */
int gate_wait(struct gate *g, void *data, size_t len);
/* In another process: waits until one byte comes. */
int gate_listen(const char *path);

/* A descriptor of a process that somebody else may wait for; -1 when it is gone already. */
int pid_open(pid_t pid);
/* Waits until all n have ended: how many still live when the time is over. Closes the
 * descriptors. */
int pids_gone(int *pidfds, size_t n, int timeout_ms);

/* For tests whose subject is time itself; never to wait for something. */
void let_time_pass(int ms);

/* A fresh directory of mode 0700, and its removal with all that is in it. */
void temp_dir_make(char path[64]);
void temp_dir_remove(const char *path);
/* How many entries (without . and ..) a directory has whose names begin with prefix; -1: no such
 * directory. */
int dir_count(const char *path, const char *prefix);
