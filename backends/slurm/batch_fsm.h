/* batch_fsm.h - the life of one job of sbatch as a table of states and events: pure.
 *
 * batch.c passes the events of Slurm and of the runtime in, and does the action that comes back. An
 * event for which a state has no row changes nothing. A list that fails is not an event.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>

/* In the order of a job's life; _KILLED: its end was requested. */
enum fbr_batch_state {
    NEW, /* Slurm does not have it: its submission collects further jobs, or sbatch runs */
    NEW_KILLED,
    PENDING,
    PENDING_KILLED,
    RUNNING,
    RUNNING_KILLED,
    /* it waits for a condition that will not come true: it is cancelled, and has ended for us */
    UNWANTED,
    ENDING,  /* the rest of its output is being read */
    TELLING, /* its end is being reported */
    TOLD,    /* the record stays until it is released */
    FBR_BATCH_STATES
};

enum fbr_batch_event {
    ON_SUBMITTED,
    ON_REFUSED,
    /* waits for a condition that may come true, or for a Slurm that does not answer */
    ON_WAITS,
    ON_NEVER, /* waits for a condition that will not come true */
    ON_RUNS,
    ON_ENDED,
    ON_FORGOTTEN, /* neither the lists nor the accounting have it any more */
    ON_KILL,      /* the runtime: SIGTERM or SIGKILL */
    ON_READ,      /* all its output is read */
    ON_TOLD,
    FBR_BATCH_EVENTS
};

enum fbr_batch_action {
    DO_NOTHING, /* no row: the state stays */
    DO_WAIT,
    DO_TELL_STARTED,
    DO_TELL_STARTED_CANCEL,
    DO_TELL_WAITING,
    DO_TELL_RUNNING, /* the time that it has to join begins */
    DO_CANCEL_SOON,  /* together with other jobs */
    DO_GIVE_UP,
    DO_END, /* keeps how the job ended, and reads the rest of the output */
    DO_REFUSE,
    DO_REFUSE_KILLED,
    DO_FINISH,
    FBR_BATCH_ACTIONS
};

struct fbr_batch_step {
    unsigned char next, action; /* enum fbr_batch_state, enum fbr_batch_action */
};

struct fbr_batch_step fbr_batch_step(enum fbr_batch_state state, enum fbr_batch_event event);

/* Whether the event has a row in this state. */
bool fbr_batch_takes(enum fbr_batch_state state, enum fbr_batch_event event);

/* Whether the job may have output to read. */
bool fbr_batch_may_have_written(enum fbr_batch_state state);

/* How a signal is sent to the job. A program that runs gets the signal itself; a job that may not
 * run yet is cancelled, which sends TERM, and KILL later, to those that run. */
enum fbr_batch_way { CANCEL, TERM, KILL, NO_WAY };
enum fbr_batch_way fbr_batch_way(enum fbr_batch_state state, int sig);
