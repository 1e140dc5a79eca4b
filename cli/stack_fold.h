/* stack_fold.h - groups the stacks of many ranks, so that each different stack is shown once: for
 * `fiber stack`.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "runtime/inspect/stack.h"

/* Threads at the same place: the same functions of the same files, in the same program. */
struct stack_group {
    struct stack_group *next;
    /* of the first thread; `thread` has the stack of all */
    const struct fbr_stack_process *process;
    const struct fbr_stack_thread *thread;
    bool main;  /* all are the main threads of their processes */
    bool exact; /* they are at the same lines, too */
    bool call;  /* they are in the same system call */
    int *who;   /* ranks or workers in ascending order, each once */
    size_t nwho, threads;
};

struct stack_fold {
    struct stack_group *groups; /* in display order after stack_fold_sort() */
    bool failed;                /* memory was short */
};

/* Adds the threads of a process, which must live as long as the fold does; `who` does not fall from
 * call to call. */
void stack_fold_add(struct stack_fold *f, int who, const struct fbr_stack_process *p);
/* Main threads first, then by the number of threads. */
void stack_fold_sort(struct stack_fold *f);
void stack_fold_fini(struct stack_fold *f);

/* Writes "0-2,5" from numbers in ascending order; a list that does not fit ends in "...". */
void stack_ranges(char *out, size_t size, const int *who, size_t n);
