/* ring_fsm.h - the life of a ring as a table of states and events: pure.
 *
 * launch.c and failure.c report what happened to agents and ranks as events. launch.c does the
 * action that the table answers with. A state ignores an event for which it has no row.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* In the order of a life. Only another try goes back. */
enum ring_state {
    R_WAITING, /* for the agents */
    R_RUNNING,
    R_RESTARTING, /* ranks were sent SIGTERM or killed; another try follows */
    R_STOPPING,   /* the same; the end follows */
    R_ENDING,     /* agents were sent END */
    R_ENDED,
    R_STATES
};

enum ring_event {
    R_ON_HELLO,  /* an agent has said hello; others have not */
    R_ON_READY,  /* every agent has said hello */
    R_ON_FAILED, /* a failure that ends the ring */
    R_ON_AGAIN,  /* a failure after which all ranks start again */
    R_ON_STOP,   /* fiber_ring_stop() */
    R_ON_OVER,   /* no rank of any job is left */
    R_ON_CLEAR,  /* the same, and no killed agent is left */
    R_ON_GONE,   /* no agent is left */
    R_EVENTS
};

enum ring_action {
    R_DO_NOTHING, /* no row: the state stays */
    R_DO_WAIT,
    R_DO_WAIT_GANG, /* for the other agents, at most gang_timeout */
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
