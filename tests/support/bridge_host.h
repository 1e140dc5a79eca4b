/* bridge_host.h - a ring in one process, for tests of bridges: K agents on one loop, and the
 * launcher's side of fence, publish, spawn and services.
 *
 * Processes are real: they get the variables that all bridges of their agent have added, and
 * descriptor 3 if one gave it. Everything here is called by the test's thread, unless it says
 * otherwise; failures of the set-up end the program.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "mpi_bridge/bridge.h"

#define HOST_AGENTS 8
#define HOST_JOBS 8
#define HOST_RANKS 256 /* of one job */

struct bridge_host;

/* What a rank did, as its bridge told it. */
struct host_rank {
    int met, left, aborted; /* how often */
    char how[64];
    int abort_code;
    char abort_text[128];
    bool started, ended;
    pid_t pid;
    int code; /* exit code or -signal */
};

struct bridge_host *host_open(uint32_t agents);
/* Closes the bridges, waits for nothing: processes must have ended. */
void host_close(struct bridge_host *h);
/* Opens one more bridge on every agent. */
void host_use(struct bridge_host *h, const struct fbr_bridge_ops *ops);

/* A job with per_agent[k] ranks on agent k (0: none there); answers its id. */
uint32_t host_job(struct bridge_host *h, const uint32_t *per_agent);
const struct fbr_bridge_job *host_job_of(struct bridge_host *h, uint32_t agent, uint32_t job);
/* The variables of that rank as a list of NAME=VALUE, env (may be NULL) below them; *fd, unless
 * NULL, gets what the bridge gave, or -1. The caller ends env_out. 0, or the code of the bridge
 * that failed. */
int host_env(struct bridge_host *h, uint32_t job, uint32_t rank, char *const *env,
             struct fbr_env *env_out, int *fd, struct fbr_error *err);
/* Starts argv as that rank, with env (may be NULL) added to ours first. Its output is kept. */
void host_start(struct bridge_host *h, uint32_t job, uint32_t rank, const char *const *argv,
                char *const *env);
void host_start_all(struct bridge_host *h, uint32_t job, const char *const *argv, char *const *env);
/* Waits for all processes of the job: 0, or the first code in the order of ranks that is not. */
int host_wait(struct bridge_host *h, uint32_t job);
/* What it wrote on stdout and stderr; valid until the next call. */
const char *host_output(struct bridge_host *h, uint32_t job, uint32_t rank);
struct host_rank host_rank(struct bridge_host *h, uint32_t job, uint32_t rank);
/* Tells the bridges that the job is over. */
void host_job_end(struct bridge_host *h, uint32_t job);
/* How many jobs there have been; those that ranks spawned count. */
uint32_t host_jobs(struct bridge_host *h);
/* From now on every fence fails with -ECONNABORTED, those that are open too. */
void host_break(struct bridge_host *h);
/* How many fences have been asked for, and the bytes that came with them. */
void host_fences(struct bridge_host *h, unsigned *count, size_t *bytes);
/* Runs fn(arg) on the loop thread and answers what it returns. */
int host_call(struct bridge_host *h, int (*fn)(void *arg), void *arg);
struct fbr_loop *host_loop(struct bridge_host *h);
