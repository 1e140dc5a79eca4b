/* process_fsm.h - the life of a process as a table of states and events: pure.
 *
 * Two sources report the end of a process: its control connection and its backend. The process has
 * ended when both have reported that, or when one has and the other has not within a time limit.
 * job.c turns the reports into events, and performs the action that the table returns. An event
 * without a row in a state has no effect there.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>

/* _KILLED: SIGKILL was sent before either source reported the end. */
enum process_state {
    P_STARTING,
    P_STARTING_KILLED,
    P_JOINED, /* it has its connection */
    P_JOINED_KILLED,
    P_HUNG_UP, /* its connection is closed; its backend has not reported its end */
    /* it was killed and has no connection; its backend must report its end within a time limit */
    P_KILLED,
    P_EXITED, /* its backend has reported its end; its last bytes may be on their way */
    P_DRYING, /* both have reported its end; its host process still passes on its data */
    P_ENDED,
    P_STATES
};

enum process_event {
    P_ON_JOINED,
    P_ON_REFUSED, /* it must not run, for a reason on our side */
    P_ON_KILL,    /* SIGKILL, by us or by the program */
    P_ON_HUNG_UP, /* its connection is closed */
    P_ON_SILENT,  /* its connection is cut off, or it is frozen */
    P_ON_EXITED,  /* its backend reports its end */
    P_ON_DRAINED, /* its host process has passed on all its data */
    P_ON_TIME,    /* the timer has expired */
    P_ON_FAILED,  /* it could not be started, or nothing watches it any more */
    P_EVENTS
};

enum process_action {
    P_DO_NOTHING, /* no row: the state stays */
    P_DO_WAIT,
    P_DO_SIGNAL,    /* passes SIGKILL to the backend */
    P_DO_REFUSE,    /* kills it, with the reason why it could not start */
    P_DO_TOO_LATE,  /* the same: it did not join in time */
    P_DO_KILL,      /* kills it, with the reason */
    P_DO_GIVE_UP,   /* kills it, because its backend does not report its end */
    P_DO_WAIT_EXIT, /* sets the timer: its backend should report its end now */
    P_DO_WAIT_CONN, /* sets the timer: its connection should end now */
    /* raises P_ON_DRAINED at once if no data is on its way, else sets the timer */
    P_DO_DRY,
    P_DO_END,
    P_ACTIONS
};

struct process_step {
    unsigned char next, action; /* enum process_state, enum process_action */
};

struct process_step fbr_process_step(enum process_state state, enum process_event event);

/* Whether the event has a row in this state. */
bool fbr_process_takes(enum process_state state, enum process_event event);

/* Whether it has not joined, and is still expected to. */
bool fbr_process_is_starting(enum process_state state);
/* Whether it has joined and can get frames. */
bool fbr_process_is_joined(enum process_state state);
/* Whether SIGKILL was sent to it before its backend reported its end. */
bool fbr_process_is_killed(enum process_state state);
