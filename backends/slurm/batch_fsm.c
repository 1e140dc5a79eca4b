/* batch_fsm.c - the life of one job of sbatch as a table of states and events.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "backends/slurm/batch_fsm.h"

#include <signal.h>

#define HAS_ENDED [ON_ENDED] = {ENDING, DO_END}, [ON_FORGOTTEN] = {ENDING, DO_END}

static const struct fbr_batch_step steps[FBR_BATCH_STATES][FBR_BATCH_EVENTS] = {
    [NEW] = {[ON_SUBMITTED] = {PENDING, DO_TELL_STARTED},
             [ON_REFUSED] = {TELLING, DO_REFUSE},
             [ON_WAITS] = {NEW, DO_TELL_WAITING},
             [ON_KILL] = {NEW_KILLED, DO_WAIT}},
    /* sbatch may have made the job: only Slurm's answer ends it. */
    [NEW_KILLED] = {[ON_SUBMITTED] = {PENDING_KILLED, DO_TELL_STARTED_CANCEL},
                    [ON_REFUSED] = {TELLING, DO_REFUSE_KILLED},
                    [ON_WAITS] = {NEW_KILLED, DO_TELL_WAITING},
                    [ON_KILL] = {NEW_KILLED, DO_WAIT}},
    [PENDING] = {[ON_WAITS] = {PENDING, DO_TELL_WAITING},
                 [ON_NEVER] = {UNWANTED, DO_GIVE_UP},
                 [ON_RUNS] = {RUNNING, DO_TELL_RUNNING},
                 [ON_KILL] = {PENDING_KILLED, DO_CANCEL_SOON},
                 HAS_ENDED},
    [PENDING_KILLED] = {[ON_WAITS] = {PENDING_KILLED, DO_TELL_WAITING},
                        [ON_NEVER] = {PENDING_KILLED, DO_TELL_WAITING},
                        [ON_RUNS] = {RUNNING_KILLED, DO_WAIT},
                        [ON_KILL] = {PENDING_KILLED, DO_CANCEL_SOON},
                        HAS_ENDED},
    [RUNNING] = {[ON_NEVER] = {UNWANTED, DO_GIVE_UP}, /* it was requeued, and is held */
                 [ON_KILL] = {RUNNING_KILLED, DO_CANCEL_SOON},
                 HAS_ENDED},
    [RUNNING_KILLED] = {[ON_KILL] = {RUNNING_KILLED, DO_CANCEL_SOON}, HAS_ENDED},

    [UNWANTED] = {[ON_READ] = {TELLING, DO_FINISH}},
    [ENDING] = {[ON_READ] = {TELLING, DO_FINISH}},
    [TELLING] = {[ON_TOLD] = {TOLD, DO_WAIT}},
};

struct fbr_batch_step fbr_batch_step(enum fbr_batch_state state, enum fbr_batch_event event)
{
    struct fbr_batch_step s = steps[state][event];

    if (s.action == DO_NOTHING)
        s.next = (unsigned char)state;
    return s;
}

bool fbr_batch_takes(enum fbr_batch_state state, enum fbr_batch_event event)
{
    return steps[state][event].action != DO_NOTHING;
}

bool fbr_batch_may_have_written(enum fbr_batch_state state)
{
    return state >= RUNNING && state < TELLING;
}

enum fbr_batch_way fbr_batch_way(enum fbr_batch_state state, int sig)
{
    if (state == PENDING_KILLED || state == UNWANTED)
        return CANCEL;
    if (state != RUNNING_KILLED)
        return NO_WAY;
    return sig == SIGKILL ? KILL : sig == SIGTERM ? TERM : NO_WAY;
}
