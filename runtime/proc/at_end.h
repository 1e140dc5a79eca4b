/* at_end.h - the ordered list of functions that the end of a process calls, one for each stage.
 *
 * The runtime does not know pools, rings and objects: a part that has something to end registers a
 * function at the stage where it ends. fiber_fini() calls the functions in the order of the stages,
 * once, before it ends processes and closes the context. A stage that has begun takes no more
 * functions, because it would not call them. Later stages still do: a pool that ends may use a
 * queue for the first time.
 *
 * The caller serialises all calls except those of the functions themselves (context.c: rt->lock).
 *
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef FBR_AT_END_H
#define FBR_AT_END_H

/* In the order of their calls: each stage may still use what later stages close. */
enum fbr_end_stage {
    FBR_END_REPORT,  /* a child sends its parent the rest of its results */
    FBR_END_RUNS,    /* rings, whose functions may use pools and objects */
    FBR_END_TASKS,   /* pools, whose tasks may use objects */
    FBR_END_OBJECTS, /* queues, pipes, managers and stores */
    FBR_END_STAGES
};

struct fbr_runtime;

typedef void fbr_end_fn(struct fbr_runtime *rt);

/* Zeroed at first. */
struct fbr_at_end {
    fbr_end_fn *fn[FBR_END_STAGES]; /* NULL: nothing to end there */
    unsigned begun;                 /* number of stages that have begun */
};

/* Registers a function, in place of the stage's former one. -ESHUTDOWN: the stage has begun. */
int fbr_at_end_set(struct fbr_at_end *e, enum fbr_end_stage stage, fbr_end_fn *fn);
/* Begins the next stage. Returns 1 and its function (NULL: it has none), or 0 after the last
 * stage. */
int fbr_at_end_next(struct fbr_at_end *e, fbr_end_fn **fn);

#endif
