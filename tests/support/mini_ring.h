/* mini_ring.h - as much of a ring as a bridge needs: a launcher in the test, and agents as
 * processes of their own.
 *
 * An agent is the test's program again (argv: program, "agent", number, folder): libpmix is one per
 * process, and a fresh one for each test. They speak packets over a socket pair; an agent's loop
 * runs the bridge, its main thread reads the socket, and a thread waits for each rank.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "runtime/base/buf.h"

#define MINI_AGENTS 2
#define MINI_JOBS 4
#define MINI_RANKS 64
#define MINI_PACKET (256 * 1024)

/* What main() does when argv[1] is "agent"; `module` is the bridge's. */
int mini_agent_main(char **argv, const char *module);

struct mini_fence {
    void *key;
    size_t key_len;
    uint32_t came;
    struct {
        bool here;
        uint32_t id;
        struct fbr_buf data;
    } part[MINI_AGENTS];
};

struct mini_name {
    char key[512];
    bool waited; /* not there: agent and id of who waits */
    uint32_t agent, id;
    struct fbr_buf value; /* u32 job, u32 rank, bytes */
};

struct mini_job {
    uint32_t id, size, ready, running, met, left, ended;
    uint32_t spawner, spawn_id; /* whose request it is */
    bool spawned;
    int first_code, codes[MINI_RANKS];
};

struct mini_ring {
    uint32_t agents;
    int fd[MINI_AGENTS];
    pid_t pid[MINI_AGENTS];
    char dir[64], out[96];
    struct mini_fence fences[16];
    struct mini_name names[64];
    struct mini_job jobs[MINI_JOBS];
    uint32_t njobs;
    int aborted;
    char abort_text[256], how[64];
    bool shrink; /* a rank that dies is told to the others; otherwise all are killed */
};

void mini_open(struct mini_ring *l, uint32_t agents);
/* Ranks by blocks over the agents; argv: the program and one word. */
uint32_t mini_start(struct mini_ring *l, const char *program, uint32_t size, const char *what);
/* Until every rank of every job has ended, or so many of the first have met their server. Fails the
 * test when nothing happens for long, or an agent dies. */
void mini_serve_until(struct mini_ring *l, uint32_t met);
void mini_serve(struct mini_ring *l);
/* Kills what lives; what all have written, which the caller frees. */
char *mini_close(struct mini_ring *l);
/* How often the word is in the text. */
int mini_count(const char *text, const char *word);

/* Packets, for mini_agent.c and mini_launcher.c. */
bool mini_send(int fd, struct fbr_buf *b); /* and frees it */
void mini_packet(struct fbr_buf *b, char type);
