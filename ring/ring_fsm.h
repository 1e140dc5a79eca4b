/* ring_fsm.h - the life of a ring as a table of states and events: pure.
 *
 * launch.c and failure.c tell it what became of agents and ranks, and launch.c does the action that
 * it answers with. An event that a state has no row for says nothing there.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef FBR_RING_FSM_H
#define FBR_RING_FSM_H

#include <stdbool.h>

/* In the order in which a life goes; only another try goes back. */
enum ring_state {
    R_WAITING, /* for the agents */
    R_RUNNING,
    R_RESTARTING, /* ranks were told to end, or killed; another try follows */
    R_STOPPING,   /* the same; the end follows */
    R_ENDING,     /* agents were told to end */
    R_ENDED,
    R_STATES
};

enum ring_event {
    R_ON_HELLO,  /* of an agent; others are waited for */
    R_ON_READY,  /* every agent has said hello */
    R_ON_FAILED, /* a failure that ends the ring */
    R_ON_AGAIN,  /* a failure after which all ranks start again */
    R_ON_STOP,   /* fiber_ring_stop() */
    R_ON_OVER,   /* no rank of any job is left */
    R_ON_CLEAR,  /* the same, and no agent that we have killed */
    R_ON_GONE,   /* no agent is left */
    R_EVENTS
};

enum ring_action {
    R_DO_NOTHING, /* no row: the state stays */
    R_DO_WAIT,
    R_DO_WAIT_GANG, /* for the other agents, as long as gang_timeout says */
    R_DO_START,     /* the first job */
    R_DO_END_RANKS,
    R_DO_TRY_AGAIN, /* starts the agents that are gone */
    R_DO_END_AGENTS,
    R_DO_END,
    R_ACTIONS
};

struct ring_step {
    unsigned char next, action; /* enum ring_state, enum ring_action */
};

struct ring_step fbr_ring_step(enum ring_state state, enum ring_event event);

/* Does the event say anything in this state? */
bool fbr_ring_takes(enum ring_state state, enum ring_event event);

#endif
