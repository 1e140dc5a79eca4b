/* process_fsm.c - the life of a process as a table of states and events.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "runtime/proc/process_fsm.h"

#define FAILS [P_ON_FAILED] = {P_ENDED, P_DO_END}

static const struct process_step steps[P_STATES][P_EVENTS] = {
    [P_STARTING] = {[P_ON_JOINED] = {P_JOINED, P_DO_WAIT},
                    [P_ON_REFUSED] = {P_KILLED, P_DO_REFUSE},
                    [P_ON_KILL] = {P_STARTING_KILLED, P_DO_SIGNAL},
                    [P_ON_EXITED] = {P_DRYING, P_DO_DRY},
                    [P_ON_TIME] = {P_KILLED, P_DO_TOO_LATE},
                    FAILS},
    /* The signal may still be on its way to a cluster, so the process may join before it
     * arrives. */
    [P_STARTING_KILLED] = {[P_ON_JOINED] = {P_JOINED_KILLED, P_DO_WAIT},
                           [P_ON_REFUSED] = {P_KILLED, P_DO_REFUSE},
                           [P_ON_KILL] = {P_STARTING_KILLED, P_DO_SIGNAL},
                           [P_ON_EXITED] = {P_DRYING, P_DO_DRY},
                           [P_ON_TIME] = {P_KILLED, P_DO_TOO_LATE},
                           FAILS},
    [P_JOINED] = {[P_ON_KILL] = {P_JOINED_KILLED, P_DO_SIGNAL},
                  [P_ON_HUNG_UP] = {P_HUNG_UP, P_DO_WAIT_EXIT},
                  [P_ON_SILENT] = {P_KILLED, P_DO_KILL},
                  [P_ON_EXITED] = {P_EXITED, P_DO_WAIT_CONN},
                  FAILS},
    [P_JOINED_KILLED] = {[P_ON_KILL] = {P_JOINED_KILLED, P_DO_SIGNAL},
                         [P_ON_HUNG_UP] = {P_KILLED, P_DO_WAIT_EXIT},
                         [P_ON_SILENT] = {P_KILLED, P_DO_KILL},
                         [P_ON_EXITED] = {P_EXITED, P_DO_WAIT_CONN},
                         FAILS},

    /* One source has reported the end. */
    [P_HUNG_UP] = {[P_ON_KILL] = {P_KILLED, P_DO_SIGNAL},
                   [P_ON_EXITED] = {P_DRYING, P_DO_DRY},
                   [P_ON_TIME] = {P_KILLED, P_DO_GIVE_UP},
                   FAILS},
    [P_KILLED] = {[P_ON_KILL] = {P_KILLED, P_DO_SIGNAL},
                  [P_ON_EXITED] = {P_DRYING, P_DO_DRY},
                  [P_ON_TIME] = {P_ENDED, P_DO_END},
                  FAILS},
    [P_EXITED] = {[P_ON_KILL] = {P_EXITED, P_DO_SIGNAL},
                  [P_ON_HUNG_UP] = {P_DRYING, P_DO_DRY},
                  [P_ON_SILENT] = {P_DRYING, P_DO_DRY},
                  [P_ON_TIME] = {P_ENDED, P_DO_END},
                  FAILS},

    /* Both sources have reported the end. The data that the host process still has comes first, so
     * that a task that is done does not count as lost. */
    [P_DRYING] = {[P_ON_KILL] = {P_DRYING, P_DO_SIGNAL},
                  [P_ON_DRAINED] = {P_ENDED, P_DO_END},
                  [P_ON_TIME] = {P_ENDED, P_DO_END},
                  FAILS},
};

struct process_step fbr_process_step(enum process_state state, enum process_event event)
{
    struct process_step s = steps[state][event];

    if (s.action == P_DO_NOTHING)
        s.next = (unsigned char)state;
    return s;
}

bool fbr_process_takes(enum process_state state, enum process_event event)
{
    return steps[state][event].action != P_DO_NOTHING;
}

bool fbr_process_is_starting(enum process_state state)
{
    return state == P_STARTING || state == P_STARTING_KILLED;
}

bool fbr_process_is_joined(enum process_state state)
{
    return state == P_JOINED || state == P_JOINED_KILLED;
}

bool fbr_process_is_killed(enum process_state state)
{
    return state == P_STARTING_KILLED || state == P_JOINED_KILLED || state == P_KILLED;
}
