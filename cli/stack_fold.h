/* stack_fold.h - stacks of many ranks, each different one once: for `fiber stack`.
 *
 * Pure.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef CLI_STACK_FOLD_H
#define CLI_STACK_FOLD_H

#include "runtime/inspect/stack.h"

/* Threads that stand at the same place: the same functions of the same files, in the same
 * program. */
struct stack_group {
    struct stack_group *next;
    uint64_t hash;
    const struct fbr_stack_process *process; /* of the first; `thread` shows the stack of all */
    const struct fbr_stack_thread *thread;
    bool main;  /* all are the main threads of their processes */
    bool exact; /* they stand at the same lines, too */
    bool call;  /* they are in the same system call */
    int *who;   /* ranks or workers in ascending order, each once */
    size_t nwho, threads;
};

struct stack_fold {
    struct stack_group *groups; /* after stack_fold_sort(): as they are shown */
    size_t count;
    bool failed; /* memory was short */
};

/* Adds the threads of a process, which must live as long as the fold does. */
void stack_fold_add(struct stack_fold *f, int who, const struct fbr_stack_process *p);
/* Main threads first, then what most stand at. */
void stack_fold_sort(struct stack_fold *f);
void stack_fold_fini(struct stack_fold *f);

/* "0-2,5" from numbers in ascending order; what does not fit ends in "...". */
void stack_ranges(char *out, size_t size, const int *who, size_t n);

#endif
