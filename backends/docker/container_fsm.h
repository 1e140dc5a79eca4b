/* container_fsm.h - the life of one container as a table of states and events: pure.
 *
 * container.c tells it what the engine said and what the runtime wants, and does the action that it
 * answers with. An event that a state has no row for says nothing there.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef FBR_DOCKER_CONTAINER_FSM_H
#define FBR_DOCKER_CONTAINER_FSM_H

#include <stdbool.h>

/* In the order in which a life goes; what comes before RUNNING has not been seen running. */
enum fbr_container_state {
    FETCHING,        /* its image is found, or pulled */
    CREATING,        /* POST create */
    PULLING,         /* the engine had no such image */
    RECREATING,      /* POST create after that, which is done once */
    LOOKING_UP,      /* its name was taken: GET tells by whom */
    PROBING,         /* HEAD tells whether the image has our program */
    UNDOING,         /* DELETE: it was made with a command that the image lacks */
    BUNDLING,        /* the archive with our program is made */
    FILLING,         /* its archives are put in (PUT) and its output is attached, before it runs */
    ATTACHED,        /* attached; the archives are not in yet */
    FILLED,          /* the archives are in; it is not attached yet */
    KILLED_CREATING, /* its end was asked for; the engine may be making it */
    KILLED_LOOKING_UP, /* the same, and its name was taken */
    KILLED,            /* the same, and it is made: the next answer ends it */
    STARTING,          /* POST start */
    STARTING_DIED,     /* its end was told before the answer, which has the sentence */
    STARTING_LOST,     /* its removal was */
    RUNNING,           /* one stream of events for all containers tells its end */
    DRAINING,          /* it has ended; the rest of its output is on its way */
    LOST,              /* the engine has it no more; the event of its end may be on its way */
    ENDED,             /* its end is being told; the engine removes it by itself (AutoRemove) */
    TOLD,
    FBR_CONTAINER_STATES
};

enum fbr_container_event {
    ON_IMAGE,    /* the image is there */
    ON_CREATED,  /* by us */
    ON_TAKEN,    /* the name is */
    ON_NO_IMAGE, /* the engine has not the image */
    ON_OURS,     /* the container with our name is ours: an answer was lost */
    ON_THEIRS,
    ON_BUNDLED, /* it was made to run our program out of the archive */
    ON_HAS,     /* the image has our program */
    ON_LACKS,
    ON_UNDONE,   /* the container is removed */
    ON_BUNDLE,   /* the archive is there */
    ON_PUT,      /* one archive is in */
    ON_ALL_PUT,  /* no archive is left to be put in */
    ON_ATTACHED, /* its output is attached */
    ON_DETACHED, /* its output has ended */
    ON_STARTED,
    ON_VANISHED, /* an earlier start was answered by nobody; the container is gone, or going */
    ON_REFUSED,  /* any other answer, or none */
    ON_KILL,     /* the runtime: SIGTERM or SIGKILL */
    ON_SIGNAL,   /* any other signal */
    ON_DIED,     /* the engine: its program has ended */
    ON_GONE,     /* the engine has it no more */
    ON_RUNS,     /* the engine lists it as running */
    ON_OUTPUT,
    ON_TIME, /* the timer */
    ON_TOLD, /* the runtime has heard its end */
    FBR_CONTAINER_EVENTS
};

enum fbr_container_action {
    DO_NOTHING, /* no row: the state stays */
    DO_WAIT,
    DO_CREATE,
    DO_PULL,
    DO_LOOK_UP,
    DO_PROBE,
    DO_UNDO,
    DO_BUNDLE,
    DO_FILL,
    DO_PUT, /* the next archive; with none left the event ON_ALL_PUT */
    DO_START,
    DO_RUN,       /* tells that it was started, sends the signal that was asked for before */
    DO_RUN_DRAIN, /* tells that it was started, and drains */
    DO_SIGNAL,
    DO_LOOK, /* asks the engine for the list */
    DO_LOOK_SOON,
    DO_READ_LOG,   /* if its output broke off */
    DO_DRAIN,      /* waits for its output; ON_TIME if there is none to wait for */
    DO_DRAIN_MORE, /* the timer starts again */
    DO_END,        /* tells its code */
    DO_END_LOST,
    DO_FAIL, /* removes it, and tells that it could not be started */
    DO_FAIL_TAKEN,
    DO_FAIL_KILLED,
    FBR_CONTAINER_ACTIONS
};

struct fbr_container_step {
    unsigned char next, action; /* enum fbr_container_state, enum fbr_container_action */
};

struct fbr_container_step fbr_container_step(enum fbr_container_state state,
                                             enum fbr_container_event event);

/* The engine may be making it. */
bool fbr_container_is_being_made(enum fbr_container_state state);

/* The event that an answer's HTTP status stands for, in the state that waits for the answer. A
 * look-up that found a container (200) is ON_OURS; the caller reads whose it is. */
enum fbr_container_event fbr_container_answer(enum fbr_container_state state, int status);

#endif
