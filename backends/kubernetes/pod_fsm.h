/* pod_fsm.h - the life of one pod as a table of states and events: pure.
 *
 * pod_start.c and pod_life.c pass the events of the server and of the runtime in, and do the action
 * that comes back. An event for which a state has no row changes nothing.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>

/* In the order of a pod's life. */
enum fbr_pod_state {
    QUEUED,          /* waits for a Secret for its ticket */
    WRAPPED,         /* the Secret is on its way */
    WAITING,         /* waits for its turn to be created */
    CREATING,        /* its pod is on its way */
    TRYING,          /* for a master: the server checks whether it would accept the pod */
    JOB_CREATING,    /* for a master: its Job is on its way */
    JOB_MADE,        /* for a master: the watch will show its pod */
    CREATING_KILLED, /* its end was requested; the answer shows whether a pod exists */
    TRYING_KILLED,   /* the same, for a master */
    JOB_KILLED,      /* the same; the answer shows whether a Job exists */
    PENDING,         /* the pod exists; the watch shows its state */
    RUNNING,         /* it was seen running */
    GIVEN_UP,        /* it cannot start, and we have deleted it */
    PENDING_KILLED,  /* its end was requested before it was seen running */
    RUNNING_KILLED,  /* its end was requested */
    ENDING,          /* the pod has ended; the rest of its output is on its way */
    ENDED,           /* reported; the record stays until it is released */
    FBR_POD_STATES
};

enum fbr_pod_event {
    ON_BATCH,       /* a Secret will have its ticket */
    ON_SECRET,      /* the Secret exists */
    ON_TURN,        /* it may be created now */
    ON_TURN_MASTER, /* the same, for a master */
    ON_TRIED,       /* the server would accept the pod */
    ON_JOB,         /* the Job exists */
    ON_TAKEN,       /* a pod of its name exists */
    ON_CREATED,     /* its pod exists, by an answer or by the watch */
    ON_NO_ROOM,     /* a quota has no room */
    ON_REFUSED,     /* any other answer, or no answer */
    ON_TIMEOUT,     /* it has waited too long */
    ON_KILL,        /* the runtime: SIGTERM or SIGKILL */
    ON_WAITS,       /* the pod waits for a condition that may come true */
    ON_NEVER,       /* the pod waits for a condition that will not come true */
    ON_RUNS,
    ON_THEIRS, /* another client deletes the pod */
    ON_OVER,   /* the pod has ended */
    ON_GONE,   /* the pod no longer exists, and its end was not seen */
    ON_NEWS,   /* a warning about a pod that waits without a reason */
    ON_TICK,
    ON_LOG_END, /* its output has ended */
    ON_DRAINED, /* no more output comes, or the output took too long */
    FBR_POD_EVENTS
};

enum fbr_pod_action {
    DO_NOTHING, /* no row: the state stays */
    DO_WAIT,
    DO_LEAVE_QUEUE, /* leaves the line; the loop reports its end in its next round */
    DO_LEAVE_SECRET,
    DO_LEAVE_WAITING,
    DO_QUEUE, /* returns to the line, until there is room */
    DO_WAIT_TURN,
    DO_CREATE,
    DO_FIND, /* checks to which run the pod of its name belongs */
    DO_CREATE_JOB,
    DO_HURRY, /* what is sent is not repeated once the server has refused it */
    DO_END_JOB,
    DO_REFUSE, /* reports that it could not be started, or that it was killed before */
    DO_TELL_STARTED,
    DO_TELL_STARTED_DELETE,
    DO_DELETE,
    DO_TELL_WAITING,
    DO_TELL_RUNNING,
    DO_TELL_THEIRS,
    DO_TELL_NEWS,
    DO_GIVE_UP, /* deletes the pod, and keeps the reason */
    DO_CHECK_ABSENT,
    DO_CHECK_WAITING,
    DO_CHECK_SILENCE,
    DO_END, /* reads the rest of its output; ON_DRAINED if there is none */
    DO_END_ASKED,
    DO_END_GIVEN_UP,
    DO_END_KILLED, /* it never ran */
    DO_END_UNSEEN,
    DO_DRAIN_NOW,
    DO_FINISH,
    FBR_POD_ACTIONS
};

struct fbr_pod_step {
    unsigned char next, action; /* enum fbr_pod_state, enum fbr_pod_action */
};

struct fbr_pod_step fbr_pod_step(enum fbr_pod_state state, enum fbr_pod_event event);

/* Whether the event has a row in this state. */
bool fbr_pod_takes(enum fbr_pod_state state, enum fbr_pod_event event);

/* Whether a pod exists or may exist. */
bool fbr_pod_may_exist(enum fbr_pod_state state);
