/* pod_fsm.c - the life of one pod as a table of states and events.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "backends/kubernetes/pod_fsm.h"

static const struct fbr_pod_step steps[FBR_POD_STATES][FBR_POD_EVENTS] = {
    [QUEUED] = {[ON_BATCH] = {WRAPPED, DO_WAIT},
                [ON_KILL] = {ENDING, DO_LEAVE_QUEUE},
                [ON_TIMEOUT] = {ENDING, DO_LEAVE_QUEUE},
                [ON_TICK] = {QUEUED, DO_CHECK_ABSENT}},
    [WRAPPED] = {[ON_SECRET] = {WAITING, DO_WAIT},
                 [ON_NO_ROOM] = {QUEUED, DO_QUEUE},
                 [ON_REFUSED] = {ENDED, DO_REFUSE},
                 [ON_KILL] = {ENDING, DO_LEAVE_SECRET},
                 [ON_TICK] = {WRAPPED, DO_CHECK_ABSENT}},
    [WAITING] = {[ON_TURN] = {CREATING, DO_CREATE},
                 [ON_TURN_MASTER] = {TRYING, DO_CREATE},
                 [ON_KILL] = {ENDING, DO_LEAVE_WAITING},
                 [ON_TIMEOUT] = {ENDING, DO_LEAVE_WAITING},
                 [ON_TICK] = {WAITING, DO_CHECK_ABSENT}},

    [CREATING] = {[ON_CREATED] = {PENDING, DO_TELL_STARTED},
                  [ON_TAKEN] = {CREATING, DO_FIND},
                  [ON_NO_ROOM] = {WAITING, DO_WAIT_TURN},
                  [ON_REFUSED] = {ENDED, DO_REFUSE},
                  [ON_KILL] = {CREATING_KILLED, DO_HURRY},
                  [ON_TICK] = {CREATING, DO_CHECK_ABSENT}},
    [TRYING] = {[ON_TRIED] = {JOB_CREATING, DO_CREATE_JOB},
                [ON_NO_ROOM] = {WAITING, DO_WAIT_TURN},
                [ON_REFUSED] = {ENDED, DO_REFUSE},
                [ON_KILL] = {TRYING_KILLED, DO_HURRY},
                [ON_TICK] = {TRYING, DO_CHECK_ABSENT}},
    [JOB_CREATING] = {[ON_JOB] = {JOB_MADE, DO_WAIT},
                      [ON_CREATED] = {PENDING, DO_TELL_STARTED},
                      [ON_NO_ROOM] = {WAITING, DO_WAIT_TURN},
                      [ON_REFUSED] = {ENDED, DO_REFUSE},
                      [ON_KILL] = {JOB_KILLED, DO_HURRY},
                      [ON_TICK] = {JOB_CREATING, DO_CHECK_ABSENT}},
    [JOB_MADE] = {[ON_CREATED] = {PENDING, DO_TELL_STARTED},
                  [ON_KILL] = {ENDING, DO_END_JOB},
                  [ON_TIMEOUT] = {ENDING, DO_END_JOB},
                  [ON_TICK] = {JOB_MADE, DO_CHECK_ABSENT}},

    [CREATING_KILLED] = {[ON_CREATED] = {PENDING_KILLED, DO_TELL_STARTED_DELETE},
                         [ON_TAKEN] = {CREATING_KILLED, DO_FIND},
                         [ON_NO_ROOM] = {ENDED, DO_REFUSE},
                         [ON_REFUSED] = {ENDED, DO_REFUSE},
                         [ON_KILL] = {CREATING_KILLED, DO_WAIT},
                         [ON_TICK] = {CREATING_KILLED, DO_CHECK_ABSENT}},
    [TRYING_KILLED] = {[ON_TRIED] = {ENDED, DO_REFUSE},
                       [ON_NO_ROOM] = {ENDED, DO_REFUSE},
                       [ON_REFUSED] = {ENDED, DO_REFUSE},
                       [ON_KILL] = {TRYING_KILLED, DO_WAIT},
                       [ON_TICK] = {TRYING_KILLED, DO_CHECK_ABSENT}},
    [JOB_KILLED] = {[ON_JOB] = {ENDING, DO_END_JOB},
                    [ON_CREATED] = {PENDING_KILLED, DO_TELL_STARTED_DELETE},
                    [ON_NO_ROOM] = {ENDED, DO_REFUSE},
                    [ON_REFUSED] = {ENDED, DO_REFUSE},
                    [ON_KILL] = {JOB_KILLED, DO_WAIT},
                    [ON_TICK] = {JOB_KILLED, DO_CHECK_ABSENT}},

    [PENDING] = {[ON_WAITS] = {PENDING, DO_TELL_WAITING},
                 [ON_NEVER] = {GIVEN_UP, DO_GIVE_UP},
                 [ON_TIMEOUT] = {GIVEN_UP, DO_GIVE_UP},
                 [ON_NEWS] = {PENDING, DO_TELL_NEWS},
                 [ON_RUNS] = {RUNNING, DO_TELL_RUNNING},
                 [ON_THEIRS] = {PENDING, DO_TELL_THEIRS},
                 [ON_KILL] = {PENDING_KILLED, DO_DELETE},
                 [ON_OVER] = {ENDING, DO_END},
                 [ON_GONE] = {ENDING, DO_END_UNSEEN},
                 [ON_TICK] = {PENDING, DO_CHECK_WAITING}},
    [RUNNING] = {[ON_WAITS] = {RUNNING, DO_TELL_WAITING},
                 [ON_NEVER] = {GIVEN_UP, DO_GIVE_UP},
                 [ON_THEIRS] = {RUNNING, DO_TELL_THEIRS},
                 [ON_KILL] = {RUNNING_KILLED, DO_DELETE},
                 [ON_OVER] = {ENDING, DO_END},
                 [ON_GONE] = {ENDING, DO_END_UNSEEN},
                 [ON_TICK] = {RUNNING, DO_CHECK_SILENCE}},
    /* Keeps the reason for which the pod was given up. */
    [GIVEN_UP] = {[ON_KILL] = {GIVEN_UP, DO_DELETE},
                  [ON_OVER] = {ENDING, DO_END_GIVEN_UP},
                  [ON_GONE] = {ENDING, DO_END_GIVEN_UP},
                  [ON_TICK] = {GIVEN_UP, DO_CHECK_SILENCE}},
    [PENDING_KILLED] = {[ON_WAITS] = {PENDING_KILLED, DO_TELL_WAITING},
                        [ON_NEVER] = {GIVEN_UP, DO_GIVE_UP},
                        [ON_NEWS] = {PENDING_KILLED, DO_TELL_NEWS},
                        [ON_RUNS] = {RUNNING_KILLED, DO_TELL_RUNNING},
                        [ON_KILL] = {PENDING_KILLED, DO_DELETE},
                        [ON_OVER] = {ENDING, DO_END_ASKED},
                        [ON_GONE] = {ENDING, DO_END_KILLED},
                        [ON_TICK] = {PENDING_KILLED, DO_CHECK_SILENCE}},
    [RUNNING_KILLED] = {[ON_WAITS] = {RUNNING_KILLED, DO_TELL_WAITING},
                        [ON_NEVER] = {GIVEN_UP, DO_GIVE_UP},
                        [ON_KILL] = {RUNNING_KILLED, DO_DELETE},
                        [ON_OVER] = {ENDING, DO_END_ASKED},
                        [ON_GONE] = {ENDING, DO_END_ASKED},
                        [ON_TICK] = {RUNNING_KILLED, DO_CHECK_SILENCE}},

    [ENDING] = {[ON_LOG_END] = {ENDING, DO_DRAIN_NOW}, [ON_DRAINED] = {ENDED, DO_FINISH}},
};

struct fbr_pod_step fbr_pod_step(enum fbr_pod_state state, enum fbr_pod_event event)
{
    struct fbr_pod_step s = steps[state][event];

    if (s.action == DO_NOTHING)
        s.next = (unsigned char)state;
    return s;
}

bool fbr_pod_takes(enum fbr_pod_state state, enum fbr_pod_event event)
{
    return steps[state][event].action != DO_NOTHING;
}

bool fbr_pod_may_exist(enum fbr_pod_state state)
{
    return state >= CREATING && state < ENDING;
}
