/* container_fsm.h - the life of one container as a table of states and events: pure.
 *
 * container.c passes the events of the engine and of the runtime in, and does the action that comes
 * back. An event for which a state has no row changes nothing.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>

/* In the order of a container's life; a container in a state before RUNNING has not been seen
 * running. */
enum fbr_container_state {
    FETCHING,          /* its image is found, or pulled */
    CREATING,          /* POST create */
    PULLING,           /* the engine does not have the image */
    RECREATING,        /* POST create after the pull; done once */
    LOOKING_UP,        /* its name is taken: GET shows which container has it */
    PROBING,           /* HEAD shows whether the image has our program */
    UNDOING,           /* DELETE: it was made with a command that the image lacks */
    BUNDLING,          /* the archive with our program is made */
    FILLING,           /* PUT of the archives and attach to the output, before the container runs */
    ATTACHED,          /* attached; the archives are not in yet */
    FILLED,            /* the archives are in; it is not attached yet */
    KILLED_CREATING,   /* the runtime asked for its end; the engine may be creating it */
    KILLED_LOOKING_UP, /* the same, and its name was taken */
    STARTING,          /* POST start */
    STARTING_DIED,     /* its end was reported before the answer, which has the reason */
    STARTING_LOST,     /* its removal was reported before the answer */
    RUNNING,           /* one stream of events for all containers reports its end */
    DRAINING,          /* it has ended; the rest of its output is on its way */
    LOST,              /* the engine no longer has it; the event of its end may be on its way */
    ENDED,             /* its end is being reported; the engine removes it (AutoRemove) */
    TOLD,
    FBR_CONTAINER_STATES
};

enum fbr_container_event {
    ON_IMAGE,    /* the engine has the image */
    ON_CREATED,  /* we created the container */
    ON_TAKEN,    /* the name is taken */
    ON_NO_IMAGE, /* the engine lacks the image */
    ON_OURS,     /* the container with our name is ours; the answer was lost */
    ON_THEIRS,
    ON_BUNDLED, /* it was created to run our program from the archive */
    ON_HAS,     /* the image has our program */
    ON_LACKS,
    ON_UNDONE,   /* the container is removed */
    ON_BUNDLE,   /* the archive is ready */
    ON_PUT,      /* one archive is in */
    ON_ALL_PUT,  /* no archive is left to put in */
    ON_ATTACHED, /* its output is attached */
    ON_DETACHED, /* its output has ended */
    ON_STARTED,
    /* nothing received the answer of an earlier start; the container is gone or going */
    ON_VANISHED,
    ON_REFUSED, /* any other answer, or no answer */
    ON_KILL,    /* the runtime: SIGTERM or SIGKILL */
    ON_SIGNAL,  /* any other signal */
    ON_DIED,    /* the engine: its program has ended */
    ON_GONE,    /* the engine no longer has it */
    ON_RUNS,    /* the engine lists it as running */
    ON_OUTPUT,
    ON_TIME, /* the timer fired */
    ON_TOLD, /* the runtime has received its end */
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
    DO_PUT, /* puts the next archive in; if none is left, the event ON_ALL_PUT follows */
    DO_START,
    DO_RUN,       /* reports the start, and sends the signals that came before it */
    DO_RUN_DRAIN, /* reports the start, and drains */
    DO_SIGNAL,
    DO_LOOK, /* asks the engine for the list */
    DO_LOOK_SOON,
    DO_READ_LOG,   /* if the output broke off */
    DO_DRAIN,      /* waits for its output; ON_TIME if no output is open */
    DO_DRAIN_MORE, /* restarts the timer */
    DO_END,        /* reports the exit code */
    DO_END_LOST,
    DO_FAIL, /* removes it, and reports that it could not be started */
    DO_FAIL_TAKEN,
    DO_FAIL_KILLED,
    FBR_CONTAINER_ACTIONS
};

struct fbr_container_step {
    unsigned char next, action; /* enum fbr_container_state, enum fbr_container_action */
};

struct fbr_container_step fbr_container_step(enum fbr_container_state state,
                                             enum fbr_container_event event);

/* Whether the engine may be creating the container. */
bool fbr_container_is_being_made(enum fbr_container_state state);

/* The event for the HTTP status of an answer, in the state that waits for that answer. A look-up
 * that found a container (200) is ON_OURS; the caller checks to which run the container belongs. */
enum fbr_container_event fbr_container_answer(enum fbr_container_state state, int status);
