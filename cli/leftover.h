/* leftover.h - jobs that engines have of this user's runs, and what became of those runs: for gc and ps.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef CLI_LEFTOVER_H
#define CLI_LEFTOVER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cli/backend_client.h"
#include "runtime/base/error.h"

enum leftover_verdict {
    LEFTOVER_LIVES,   /* its run goes on */
    LEFTOVER_DEAD,    /* its run is over, for certain */
    LEFTOVER_UNKNOWN, /* cannot be told from here */
};

struct leftover {
    const char *backend;
    char *run, *id, *name, *master;
    char *fiber; /* the command beside a master; NULL: unknown */
    int64_t since_ms;
    bool alive; /* the job */
    enum leftover_verdict verdict;
    const char *why; /* of the verdict */
};

struct leftovers {
    struct leftover *jobs;
    size_t count;
    bool failed; /* out of memory */
};

/* Opens that backend, asks it, and judges: 1; 0: it cannot be asked, and nobody named it nor is there a sign that it is
 * used here. On 1, close the backend and free l. */
int leftovers_ask(struct leftovers *l, struct cli_backend *b, const char *name, const char *only,
                  struct fbr_error *err);
/* Sorts them by run and gives each its verdict, by looking at the masters (runtime/base/master.h). */
void leftovers_judge(struct leftovers *l);
/* How many from that one on are of its run; after leftovers_judge(). */
size_t leftovers_same_run(const struct leftovers *l, size_t first);
/* For tests. */
void leftovers_add(struct leftovers *l, const char *backend, const struct fbr_leftover *job);
void leftovers_free(struct leftovers *l);

/* The names of the backends that are asked when `only` is NULL, or that one; NULL behind the last. */
const char *leftovers_backend(const char *only, size_t at);
/* The command of its engine that removes it: "docker rm -f 12ab". */
void leftover_command(const struct leftover *j, char *out, size_t size);
/* "HOST:PID" of its master, for people. */
void leftover_master(const struct leftover *j, char out[40]);
long leftover_pid(const struct leftover *j); /* 0: unknown */

#endif
