/* container_fsm.c - the life of one container as a table of states and events.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "backends/docker/container_fsm.h"

#include <stddef.h>

#define REFUSED [ON_REFUSED] = {ENDED, DO_FAIL}
/* the output ended before it was attached */
#define DETACHED [ON_DETACHED] = {ENDED, DO_FAIL}
/* its requests are cancelled, and it is removed */
#define KILL_ENDS [ON_KILL] = {ENDED, DO_FAIL_KILLED}
#define ENDS_KILLED           \
    {                         \
        ENDED, DO_FAIL_KILLED \
    }

static const struct fbr_container_step steps[FBR_CONTAINER_STATES][FBR_CONTAINER_EVENTS] = {
    [FETCHING] = {[ON_IMAGE] = {CREATING, DO_CREATE}, REFUSED, KILL_ENDS},
    [CREATING] = {[ON_CREATED] = {PROBING, DO_PROBE},
                  [ON_TAKEN] = {LOOKING_UP, DO_LOOK_UP},
                  [ON_NO_IMAGE] = {PULLING, DO_PULL},
                  [ON_KILL] = {KILLED_CREATING, DO_WAIT},
                  REFUSED},
    [PULLING] = {[ON_IMAGE] = {RECREATING, DO_CREATE}, REFUSED, KILL_ENDS},
    [RECREATING] = {[ON_CREATED] = {PROBING, DO_PROBE},
                    [ON_TAKEN] = {LOOKING_UP, DO_LOOK_UP},
                    [ON_NO_IMAGE] = {ENDED, DO_FAIL},
                    [ON_KILL] = {KILLED_CREATING, DO_WAIT},
                    REFUSED},
    [LOOKING_UP] = {[ON_OURS] = {PROBING, DO_PROBE},
                    [ON_THEIRS] = {ENDED, DO_FAIL_TAKEN},
                    [ON_KILL] = {KILLED_LOOKING_UP, DO_WAIT},
                    REFUSED},
    [PROBING] = {[ON_BUNDLED] = {BUNDLING, DO_BUNDLE},
                 [ON_HAS] = {FILLING, DO_FILL},
                 [ON_LACKS] = {UNDOING, DO_UNDO},
                 REFUSED,
                 KILL_ENDS},
    [UNDOING] = {[ON_UNDONE] = {CREATING, DO_CREATE}, REFUSED, KILL_ENDS},
    [BUNDLING] = {[ON_BUNDLE] = {FILLING, DO_FILL}, REFUSED, KILL_ENDS},
    [FILLING] = {[ON_PUT] = {FILLING, DO_PUT},
                 [ON_ALL_PUT] = {FILLED, DO_WAIT},
                 [ON_ATTACHED] = {ATTACHED, DO_WAIT},
                 DETACHED,
                 REFUSED,
                 KILL_ENDS},
    [ATTACHED] = {[ON_PUT] = {ATTACHED, DO_PUT},
                  [ON_ALL_PUT] = {STARTING, DO_START},
                  DETACHED,
                  REFUSED,
                  KILL_ENDS},
    [FILLED] = {[ON_ATTACHED] = {STARTING, DO_START}, DETACHED, KILL_ENDS},

    /* The answer is waited for: only the answer shows what must be removed. */
    [KILLED_CREATING] = {[ON_CREATED] = ENDS_KILLED,
                         [ON_NO_IMAGE] = ENDS_KILLED,
                         [ON_REFUSED] = ENDS_KILLED,
                         [ON_TAKEN] = {KILLED_LOOKING_UP, DO_LOOK_UP}},
    [KILLED_LOOKING_UP] =
        {[ON_OURS] = ENDS_KILLED, [ON_REFUSED] = ENDS_KILLED, [ON_THEIRS] = {ENDED, DO_FAIL_TAKEN}},

    /* Signals are kept for DO_RUN. */
    [STARTING] = {[ON_STARTED] = {RUNNING, DO_RUN},
                  [ON_VANISHED] = {LOST, DO_DRAIN},
                  [ON_DIED] = {STARTING_DIED, DO_WAIT},
                  [ON_GONE] = {STARTING_LOST, DO_WAIT},
                  REFUSED},
    [STARTING_DIED] = {[ON_STARTED] = {DRAINING, DO_RUN_DRAIN},
                       [ON_VANISHED] = {DRAINING, DO_RUN_DRAIN},
                       REFUSED},
    [STARTING_LOST] = {[ON_STARTED] = {LOST, DO_RUN_DRAIN},
                       [ON_VANISHED] = {LOST, DO_RUN_DRAIN},
                       [ON_DIED] = {STARTING_DIED, DO_WAIT},
                       REFUSED},
    [RUNNING] = {[ON_KILL] = {RUNNING, DO_SIGNAL},
                 [ON_SIGNAL] = {RUNNING, DO_SIGNAL},
                 [ON_DIED] = {DRAINING, DO_DRAIN},
                 [ON_GONE] = {LOST, DO_DRAIN},
                 [ON_DETACHED] = {RUNNING, DO_LOOK_SOON},
                 [ON_TIME] = {RUNNING, DO_LOOK},
                 [ON_RUNS] = {RUNNING, DO_READ_LOG}},

    [DRAINING] = {[ON_OUTPUT] = {DRAINING, DO_DRAIN_MORE},
                  [ON_DETACHED] = {ENDED, DO_END},
                  [ON_TIME] = {ENDED, DO_END}},
    [LOST] = {[ON_DIED] = {DRAINING, DO_DRAIN},
              [ON_OUTPUT] = {LOST, DO_DRAIN_MORE},
              [ON_DETACHED] = {LOST, DO_DRAIN_MORE},
              [ON_TIME] = {ENDED, DO_END_LOST}},
    [ENDED] = {[ON_TOLD] = {TOLD, DO_WAIT}},
};

struct fbr_container_step fbr_container_step(enum fbr_container_state state,
                                             enum fbr_container_event event)
{
    struct fbr_container_step s = steps[state][event];

    if (s.action == DO_NOTHING)
        s.next = (unsigned char)state;
    return s;
}

static const struct answer {
    enum fbr_container_state state;
    int status;
    enum fbr_container_event event;
} answers[] = {
    {CREATING, 201, ON_CREATED},
    {CREATING, 409, ON_TAKEN},
    {CREATING, 404, ON_NO_IMAGE},
    {LOOKING_UP, 200, ON_OURS},
    {PROBING, 200, ON_HAS},
    {PROBING, 404, ON_LACKS},
    {UNDOING, 204, ON_UNDONE},
    {UNDOING, 404, ON_UNDONE},
    {FILLING, 200, ON_PUT},
    {STARTING, 204, ON_STARTED},
    /* an earlier start, whose answer was lost, started it */
    {STARTING, 304, ON_STARTED},
    {STARTING, 404, ON_VANISHED},
    {STARTING, 409, ON_VANISHED}, /* it is being removed */
};

/* The state that the request was sent in. */
static enum fbr_container_state asked_in(enum fbr_container_state state)
{
    switch (state) {
    case RECREATING:
    case KILLED_CREATING:
        return CREATING;
    case KILLED_LOOKING_UP:
        return LOOKING_UP;
    case ATTACHED:
        return FILLING;
    case STARTING_DIED:
    case STARTING_LOST:
        return STARTING;
    default:
        return state;
    }
}

bool fbr_container_is_being_made(enum fbr_container_state state)
{
    return asked_in(state) == CREATING;
}

enum fbr_container_event fbr_container_answer(enum fbr_container_state state, int status)
{
    state = asked_in(state);
    for (size_t i = 0; i < sizeof(answers) / sizeof(answers[0]); i++)
        if (answers[i].state == state && answers[i].status == status)
            return answers[i].event;
    return ON_REFUSED;
}
