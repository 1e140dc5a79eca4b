/* slurm_batch_fsm_test.c - the life of a job of sbatch's: each event in each state, each order of events, and the
 * races by name.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "backends/slurm/batch_fsm.h"
#include "tests/support/life.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

static bool is_killed(unsigned s)
{
    return s == NEW_KILLED || s == PENDING_KILLED || s == RUNNING_KILLED;
}

/* ---- Each event in each state ---- */

static void check_step(enum fbr_batch_state s, enum fbr_batch_event e)
{
    const struct fbr_batch_step step = fbr_batch_step(s, e);
    bool takes = step.action != DO_NOTHING;

    assert_in_range(step.next, 0, FBR_BATCH_STATES - 1);
    assert_in_range(step.action, 0, FBR_BATCH_ACTIONS - 1);
    assert_int_equal(takes, fbr_batch_takes(s, e));
    assert_true(step.next >= s); /* nothing goes back */
    if (!takes)
        assert_int_equal(step.next, s);
    if (is_killed(s))
        assert_true(is_killed(step.next) || step.next >= ENDING);
    if (e == ON_KILL)
        assert_int_equal(takes, s < UNWANTED);
    if (e == ON_SUBMITTED || e == ON_REFUSED)
        assert_int_equal(takes, s == NEW || s == NEW_KILLED);
    if (e == ON_ENDED || e == ON_FORGOTTEN)
        assert_int_equal(takes, s >= PENDING && s < UNWANTED);
    if (e == ON_WAITS)
        assert_int_equal(takes, s <= PENDING_KILLED);
    if (e == ON_NEVER)
        assert_int_equal(takes, s >= PENDING && s <= RUNNING);
    if (e == ON_READ)
        assert_int_equal(takes, s == UNWANTED || s == ENDING);
}

static void each_event_in_each_state_keeps_the_rules(void **state)
{
    for (int s = 0; s < FBR_BATCH_STATES; s++)
        for (int e = 0; e < FBR_BATCH_EVENTS; e++)
            check_step((enum fbr_batch_state)s, (enum fbr_batch_event)e);
}

static void a_signal_goes_the_way_that_its_state_allows(void **state)
{
    static const enum fbr_batch_state silent[] = {NEW,    NEW_KILLED, PENDING, RUNNING,
                                                  ENDING, TELLING,    TOLD};

    for (size_t i = 0; i < COUNT(silent); i++)
        assert_int_equal(fbr_batch_way(silent[i], SIGKILL), NO_WAY);
    assert_int_equal(fbr_batch_way(PENDING_KILLED, SIGTERM), CANCEL);
    assert_int_equal(fbr_batch_way(PENDING_KILLED, SIGKILL), CANCEL);
    assert_int_equal(fbr_batch_way(UNWANTED, SIGKILL), CANCEL);
    assert_int_equal(fbr_batch_way(RUNNING_KILLED, SIGTERM), TERM);
    assert_int_equal(fbr_batch_way(RUNNING_KILLED, SIGKILL), KILL);
    assert_int_equal(fbr_batch_way(RUNNING_KILLED, SIGUSR1), NO_WAY);
}

static void output_is_read_from_its_run_to_its_end(void **state)
{
    for (int s = 0; s < FBR_BATCH_STATES; s++)
        assert_int_equal(fbr_batch_may_have_written((enum fbr_batch_state)s),
                         s == RUNNING || s == RUNNING_KILLED || s == UNWANTED || s == ENDING);
}

/* ---- Each order of events ---- */

/* The job and its Slurm, as far as they matter to the order of events. */
struct world {
    unsigned char state;
    bool started, killed, cancels, given_up, over;
};

static struct worlds seen;

static void act(struct world *w, unsigned action)
{
    switch (action) {
    case DO_TELL_STARTED_CANCEL:
        assert_true(w->killed);
        w->cancels = true;
        /* fall through */
    case DO_TELL_STARTED:
        assert_false(w->started);
        w->started = true;
        break;
    case DO_CANCEL_SOON:
        assert_true(w->started);
        w->cancels = true;
        break;
    case DO_GIVE_UP:
        assert_false(w->killed);
        w->given_up = w->cancels = true;
        break;
    case DO_REFUSE:
    case DO_REFUSE_KILLED:
        assert_false(w->started);
        assert_int_equal(w->killed, action == DO_REFUSE_KILLED);
        /* fall through */
    case DO_FINISH:
        assert_false(w->over);
        w->over = true;
        break;
    default:
        break;
    }
}

static void explore(struct world w)
{
    if (!worlds_add(&seen, &w, sizeof(w)))
        return;
    assert_int_equal(w.over, w.state >= TELLING);
    if (w.started && w.killed && !w.over) /* what is to end is cancelled */
        assert_true(w.cancels);
    for (int e = 0; e < FBR_BATCH_EVENTS; e++) {
        const struct fbr_batch_step s = fbr_batch_step(w.state, (enum fbr_batch_event)e);
        struct world after = w;

        after.killed |= e == ON_KILL && w.state < UNWANTED;
        after.state = s.next;
        act(&after, s.action);
        explore(after);
    }
}

static void each_order_of_events_ends_once_and_cancels_what_was_killed(void **state)
{
    struct world w;

    memset(&w, 0, sizeof(w)); /* worlds are compared with their padding */
    explore(w);
    worlds_check(&seen, sizeof(w), FBR_BATCH_STATES);
}

/* ---- Races ---- */

static const struct race races[] = {
    {"a kill before sbatch is run submits nothing", NEW,
     STEPS({ON_KILL, DO_WAIT}, {ON_REFUSED, DO_REFUSE_KILLED}, {ON_TOLD, DO_WAIT}), TOLD},
    {"a kill while sbatch runs cancels what it made", NEW,
     STEPS({ON_KILL, DO_WAIT}, {ON_SUBMITTED, DO_TELL_STARTED_CANCEL}), PENDING_KILLED},
    {"a frozen controller ends nothing", PENDING,
     STEPS({ON_WAITS, DO_TELL_WAITING}, {ON_WAITS, DO_TELL_WAITING}), PENDING},
    {"a frozen controller says nothing about a job that runs", RUNNING,
     STEPS({ON_WAITS, DO_NOTHING}), RUNNING},
    {"a frozen controller at sbatch is waited for", NEW,
     STEPS({ON_WAITS, DO_TELL_WAITING}, {ON_SUBMITTED, DO_TELL_STARTED}), PENDING},
    {"a job that runs when it is cancelled gets the signal", PENDING,
     STEPS({ON_KILL, DO_CANCEL_SOON}, {ON_RUNS, DO_WAIT}), RUNNING_KILLED},
    {"a kill follows a polite end", RUNNING,
     STEPS({ON_KILL, DO_CANCEL_SOON}, {ON_KILL, DO_CANCEL_SOON}, {ON_ENDED, DO_END}), ENDING},
    {"what waits for ever is given up, and cancelled", PENDING,
     STEPS({ON_NEVER, DO_GIVE_UP}, {ON_ENDED, DO_NOTHING}, {ON_READ, DO_FINISH}), TELLING},
    {"what waits for ever and was killed is not given up", PENDING_KILLED,
     STEPS({ON_NEVER, DO_TELL_WAITING}, {ON_ENDED, DO_END}), ENDING},
    {"a job that was over before it was seen running", PENDING,
     STEPS({ON_ENDED, DO_END}, {ON_READ, DO_FINISH}), TELLING},
    {"a job that Slurm forgot ends once", RUNNING,
     STEPS({ON_FORGOTTEN, DO_END}, {ON_FORGOTTEN, DO_NOTHING}, {ON_ENDED, DO_NOTHING},
           {ON_READ, DO_FINISH}, {ON_READ, DO_NOTHING}),
     TELLING},
    {"a kill after the end goes nowhere", ENDING,
     STEPS({ON_KILL, DO_NOTHING}, {ON_READ, DO_FINISH}, {ON_KILL, DO_NOTHING}), TELLING},
};

static void races_end_as_they_were_mended(void **state)
{
    RUN_RACES(races, fbr_batch_step);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_event_in_each_state_keeps_the_rules),
        cmocka_unit_test(a_signal_goes_the_way_that_its_state_allows),
        cmocka_unit_test(output_is_read_from_its_run_to_its_end),
        cmocka_unit_test(each_order_of_events_ends_once_and_cancels_what_was_killed),
        cmocka_unit_test(races_end_as_they_were_mended),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
