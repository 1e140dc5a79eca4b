/* process_fsm.h - the life of a process as a table of states and events: pure.
 *
 * Two witnesses tell of it, its control connection and its backend. Its end needs both, or one and
 * a time in which the other should have spoken. job.c tells what they say, and does the action that
 * the table answers with. An event that a state has no row for says nothing there.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef FBR_PROCESS_FSM_H
#define FBR_PROCESS_FSM_H

#include <stdbool.h>

/* _KILLED: it was sent SIGKILL before either witness spoke. */
enum process_state {
    P_STARTING,
    P_STARTING_KILLED,
    P_JOINED, /* it has its connection */
    P_JOINED_KILLED,
    P_HUNG_UP, /* its connection is closed; its backend says that it runs */
    P_KILLED,  /* the same, or it never had one; its backend has a time to tell its end */
    P_EXITED,  /* its backend has told its end; its last bytes may be on their way */
    P_DRYING,  /* both have spoken; its host still passes on what it sent */
    P_ENDED,
    P_STATES
};

enum process_event {
    P_ON_JOINED,
    P_ON_REFUSED, /* it must not run, for a reason on our side */
    P_ON_KILL,    /* SIGKILL, by us or by the program */
    P_ON_HUNG_UP, /* its connection is closed */
    P_ON_SILENT,  /* its connection is cut off, or it is frozen */
    P_ON_EXITED,  /* its backend tells its end */
    P_ON_DRAINED, /* nothing more comes by way of its host */
    P_ON_TIME,    /* the timer */
    P_ON_FAILED,  /* it could not be started, or nobody watches it any more */
    P_EVENTS
};

enum process_action {
    P_DO_NOTHING, /* no row: the state stays */
    P_DO_WAIT,
    P_DO_SIGNAL,    /* passes on the SIGKILL */
    P_DO_REFUSE,    /* kills it, and says why it could not start */
    P_DO_TOO_LATE,  /* the same: it did not join in time */
    P_DO_KILL,      /* kills it, and says why */
    P_DO_GIVE_UP,   /* the same, as its backend has not spoken */
    P_DO_WAIT_EXIT, /* its backend should tell its end now */
    P_DO_WAIT_CONN, /* its connection should end now */
    P_DO_DRY,       /* P_ON_DRY at once, if there is nothing to wait for */
    P_DO_END,
    P_ACTIONS
};

struct process_step {
    unsigned char next, action; /* enum process_state, enum process_action */
};

struct process_step fbr_process_step(enum process_state state, enum process_event event);

/* Does the event say anything in this state? */
bool fbr_process_takes(enum process_state state, enum process_event event);

/* It has neither joined nor ended. */
bool fbr_process_is_starting(enum process_state state);
/* It can be talked to. */
bool fbr_process_is_joined(enum process_state state);
/* SIGKILL was sent to it before its backend spoke. */
bool fbr_process_is_killed(enum process_state state);

#endif
