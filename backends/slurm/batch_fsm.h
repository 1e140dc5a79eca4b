/* batch_fsm.h - the life of one job of sbatch's as a table of states and events: pure.
 *
 * batch.c tells it what Slurm said and what the runtime wants, and does the action that it answers
 * with. An event that a state has no row for says nothing there. A list that fails is not an event.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef FBR_SLURM_BATCH_FSM_H
#define FBR_SLURM_BATCH_FSM_H

#include <stdbool.h>

/* In the order in which a life goes; _KILLED: its end was asked for. */
enum fbr_batch_state {
    NEW, /* Slurm does not have it: its submission collects others, or sbatch runs */
    NEW_KILLED,
    PENDING,
    PENDING_KILLED,
    RUNNING,
    RUNNING_KILLED,
    UNWANTED, /* it waits for what will not come: it is cancelled, and has ended for us */
    ENDING,   /* the rest of its output is read */
    TELLING,  /* its end is being told */
    TOLD,     /* the record stays until it is released */
    FBR_BATCH_STATES
};

enum fbr_batch_event {
    ON_SUBMITTED,
    ON_REFUSED,
    ON_WAITS, /* for what may come; also for a Slurm that does not answer */
    ON_NEVER, /* it waits for what will not come */
    ON_RUNS,
    ON_ENDED,
    ON_FORGOTTEN, /* no list has it any more, nor has the accounting */
    ON_KILL,      /* the runtime: SIGTERM or SIGKILL */
    ON_READ,      /* all that it wrote is read */
    ON_TOLD,
    FBR_BATCH_EVENTS
};

enum fbr_batch_action {
    DO_NOTHING, /* no row: the state stays */
    DO_WAIT,
    DO_TELL_STARTED,
    DO_TELL_STARTED_CANCEL,
    DO_TELL_WAITING,
    DO_CANCEL_SOON, /* with others */
    DO_GIVE_UP,
    DO_END, /* keeps how it ended, and reads the rest */
    DO_REFUSE,
    DO_REFUSE_KILLED,
    DO_FINISH,
    FBR_BATCH_ACTIONS
};

struct fbr_batch_step {
    unsigned char next, action; /* enum fbr_batch_state, enum fbr_batch_action */
};

struct fbr_batch_step fbr_batch_step(enum fbr_batch_state state, enum fbr_batch_event event);

/* Does the event say anything in this state? */
bool fbr_batch_takes(enum fbr_batch_state state, enum fbr_batch_event event);

/* There may be output to be read. */
bool fbr_batch_may_have_written(enum fbr_batch_state state);

/* How a signal goes to it: a program that runs gets it as it is; one that may not run yet is
 * cancelled, which is TERM, and KILL later, for those that do. */
enum fbr_batch_way { CANCEL, TERM, KILL, NO_WAY };
enum fbr_batch_way fbr_batch_way(enum fbr_batch_state state, int sig);

#endif
