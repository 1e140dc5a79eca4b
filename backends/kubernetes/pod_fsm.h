/* pod_fsm.h - the life of one pod as a table of states and events: pure.
 *
 * pod_start.c and pod_life.c tell it what the server said and what the runtime wants, and do the
 * action that it answers with. An event that a state has no row for says nothing there.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef FBR_KUBE_POD_FSM_H
#define FBR_KUBE_POD_FSM_H

#include <stdbool.h>

/* In the order in which a life goes. */
enum fbr_pod_state {
    QUEUED,          /* waits for a Secret with its ticket */
    WRAPPED,         /* the Secret is on its way */
    WAITING,         /* waits for its turn to be created */
    CREATING,        /* its pod is on its way */
    TRYING,          /* of a master: the server tells whether it would take the pod */
    JOB_CREATING,    /* of a master: its Job is on its way */
    JOB_MADE,        /* of a master: its pod comes by the watch */
    CREATING_KILLED, /* its end was asked for; the answer tells whether there is a pod */
    TRYING_KILLED,   /* the same, of a master */
    JOB_KILLED,      /* the same, and the answer tells whether there is a Job */
    PENDING,         /* the pod is there; the watch tells what becomes of it */
    RUNNING,         /* it was seen running */
    GIVEN_UP,        /* it cannot start, and we have deleted it */
    PENDING_KILLED,  /* its end was asked for before it was seen running */
    RUNNING_KILLED,  /* its end was asked for */
    ENDING,          /* it has ended, and the rest of its output is on its way */
    ENDED,           /* told; the record stays until it is released */
    FBR_POD_STATES
};

enum fbr_pod_event {
    ON_BATCH,       /* a Secret takes its ticket */
    ON_SECRET,      /* the Secret is there */
    ON_TURN,        /* it may be created now */
    ON_TURN_MASTER, /* the same, of a master */
    ON_TRIED,       /* the server would take the pod */
    ON_JOB,         /* the Job is there */
    ON_TAKEN,       /* there is a pod of its name */
    ON_CREATED,     /* its pod is there, by an answer or by the watch */
    ON_NO_ROOM,     /* a quota has no room */
    ON_REFUSED,     /* any other answer, or none */
    ON_TIMEOUT,     /* it has waited for too long */
    ON_KILL,        /* the runtime: SIGINT, SIGTERM or SIGKILL */
    ON_WAITS,       /* the pod waits, for what may come */
    ON_NEVER,       /* the pod waits, for what will not come */
    ON_RUNS,
    ON_THEIRS, /* somebody deletes the pod */
    ON_OVER,   /* the pod has ended */
    ON_GONE,   /* the pod is there no more, and nobody saw its end */
    ON_NEWS,   /* a warning about the pod, which waits without saying for what */
    ON_TICK,
    ON_LOG_END, /* its output has ended */
    ON_DRAINED, /* no more output comes, or it has taken too long */
    FBR_POD_EVENTS
};

enum fbr_pod_action {
    DO_NOTHING, /* no row: the state stays */
    DO_WAIT,
    DO_LEAVE_QUEUE, /* out of the line; its end is told when the loop comes to it */
    DO_LEAVE_SECRET,
    DO_LEAVE_WAITING,
    DO_QUEUE, /* back into the line, until there is room */
    DO_WAIT_TURN,
    DO_CREATE,
    DO_FIND, /* whose is the pod of its name? */
    DO_CREATE_JOB,
    DO_END_JOB,
    DO_REFUSE, /* tells that it could not be started, or that it was killed before */
    DO_TELL_STARTED,
    DO_TELL_STARTED_DELETE,
    DO_DELETE,
    DO_TELL_WAITING,
    DO_TELL_RUNNING,
    DO_TELL_THEIRS,
    DO_TELL_NEWS,
    DO_GIVE_UP, /* deletes it, and keeps why */
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

/* Does the event say anything in this state? */
bool fbr_pod_takes(enum fbr_pod_state state, enum fbr_pod_event event);

/* There is a pod, or there may be one. */
bool fbr_pod_may_exist(enum fbr_pod_state state);

#endif
