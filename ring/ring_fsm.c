/* ring_fsm.c - the life of a ring as a table of states and events.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "ring/ring_fsm.h"

#define MAY_FAIL                                                                                 \
    [R_ON_FAILED] = {R_STOPPING, R_DO_END_RANKS}, [R_ON_AGAIN] = {R_RESTARTING, R_DO_END_RANKS}, \
    [R_ON_STOP] = {R_STOPPING, R_DO_END_RANKS}

static const struct ring_step steps[R_STATES][R_EVENTS] = {
    [R_WAITING] = {[R_ON_HELLO] = {R_WAITING, R_DO_WAIT_GANG},
                   [R_ON_READY] = {R_RUNNING, R_DO_START},
                   MAY_FAIL},
    [R_RUNNING] = {[R_ON_OVER] = {R_ENDING, R_DO_END_AGENTS}, MAY_FAIL},

    /* The first cause is recorded, so a later failure is ignored. An agent that was killed may
     * outlive all ranks, and in the next try its end would be a failure. So R_ON_OVER is too
     * early. */
    [R_RESTARTING] =
        {[R_ON_CLEAR] = {R_WAITING, R_DO_TRY_AGAIN}, [R_ON_STOP] = {R_STOPPING, R_DO_WAIT}},
    [R_STOPPING] = {[R_ON_OVER] = {R_ENDING, R_DO_END_AGENTS}},

    [R_ENDING] = {[R_ON_GONE] = {R_ENDED, R_DO_END}},
};

struct ring_step fbr_ring_step(enum ring_state state, enum ring_event event)
{
    struct ring_step s = steps[state][event];

    if (s.action == R_DO_NOTHING)
        s.next = (unsigned char)state;
    return s;
}
