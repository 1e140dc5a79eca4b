/* ring_fsm_test.c - the life of a ring: each event in each state, each order of events, and the races by name.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "ring/ring_fsm.h"
#include "tests/support/life.h"

/* ---- Each event in each state ---- */

static void check_step(enum ring_state s, enum ring_event e)
{
    const struct ring_step step = fbr_ring_step(s, e);
    bool takes = step.action != R_DO_NOTHING;

    assert_in_range(step.next, 0, R_STATES - 1);
    assert_in_range(step.action, 0, R_ACTIONS - 1);
    if (!takes)
        assert_int_equal(step.next, s);
    assert_int_equal(step.next < s, step.action == R_DO_TRY_AGAIN); /* nothing else goes back */
    if (e == R_ON_HELLO || e == R_ON_READY)
        assert_int_equal(takes, s == R_WAITING);
    if (e == R_ON_FAILED || e == R_ON_AGAIN)
        assert_int_equal(takes, s <= R_RUNNING);
    if (e == R_ON_STOP)
        assert_int_equal(takes, s <= R_RESTARTING);
    if (e == R_ON_OVER) /* one that waits has no ranks, and is not over */
        assert_int_equal(takes, s == R_RUNNING || s == R_STOPPING);
    if (e == R_ON_CLEAR)
        assert_int_equal(takes, s == R_RESTARTING);
    if (e == R_ON_GONE)
        assert_int_equal(takes, s == R_ENDING);
}

static void each_event_in_each_state_keeps_the_rules(void **state)
{
    for (int s = 0; s < R_STATES; s++)
        for (int e = 0; e < R_EVENTS; e++)
            check_step((enum ring_state)s, (enum ring_event)e);
}

/* ---- Each order of events ---- */

#define AGENTS 2
#define TRIES 3

enum agent { GONE, STARTING, DOOMED, READY };

/* A ring of one rank for each agent, as far as it matters to the order of events. */
struct world {
    unsigned char state, tries;
    unsigned char agents[AGENTS]; /* enum agent */
    bool ranks[AGENTS];           /* that rank lives */
    bool told;                    /* ranks were told to end */
    bool failed, stopped, over;
};

static struct worlds seen;

static unsigned count(const struct world *w, enum agent what)
{
    unsigned n = 0;

    for (int i = 0; i < AGENTS; i++)
        n += w->agents[i] == what;
    return n;
}

static bool has_ranks(const struct world *w)
{
    bool any = false;

    for (int i = 0; i < AGENTS; i++)
        any |= w->ranks[i];
    return any;
}

static void notify(struct world *w, enum ring_event e);

static void doom(struct world *w)
{
    for (int i = 0; i < AGENTS; i++)
        if (w->agents[i] == STARTING)
            w->agents[i] = DOOMED;
}

static void look_for_agents(struct world *w)
{
    notify(w, count(w, READY) == AGENTS ? R_ON_READY : R_ON_HELLO);
}

/* As fbr_ring_check() does. */
static void look(struct world *w)
{
    if (!has_ranks(w))
        notify(w, R_ON_OVER);
    if (!has_ranks(w) && count(w, DOOMED) == 0)
        notify(w, R_ON_CLEAR);
    if (count(w, GONE) == AGENTS)
        notify(w, R_ON_GONE);
}

static void act(struct world *w, enum ring_action action)
{
    switch (action) {
    case R_DO_START:
        assert_int_equal(count(w, READY), AGENTS);
        memset(w->ranks, true, sizeof(w->ranks));
        break;
    case R_DO_END_RANKS:
        assert_false(w->told); /* a restart is not told twice, so no grace begins anew */
        w->told = true;
        doom(w);
        break;
    case R_DO_TRY_AGAIN:
        assert_false(has_ranks(w) || w->stopped);
        assert_int_equal(count(w, DOOMED), 0);
        w->tries++;
        w->told = w->failed = false;
        for (int i = 0; i < AGENTS; i++)
            if (w->agents[i] == GONE)
                w->agents[i] = STARTING;
        look_for_agents(w);
        break;
    case R_DO_END_AGENTS:
        assert_false(has_ranks(w));
        doom(w);
        break;
    case R_DO_END:
        assert_false(has_ranks(w) || w->over);
        assert_int_equal(count(w, GONE), AGENTS);
        w->over = true;
        break;
    default:
        break;
    }
}

static void notify(struct world *w, enum ring_event e)
{
    const struct ring_step s = fbr_ring_step((enum ring_state)w->state, e);

    if (e == R_ON_STOP)
        w->stopped |= w->state < R_ENDING;
    if (e == R_ON_FAILED || e == R_ON_AGAIN)
        w->failed |= s.action != R_DO_NOTHING;
    w->state = s.next;
    act(w, (enum ring_action)s.action);
}

static void explore(struct world w);

/* A failure that ends the ring, and one that leads to another try. */
static void go_wrong(struct world w)
{
    struct world after = w;

    notify(&after, R_ON_FAILED);
    look(&after);
    explore(after);
    if (w.tries == TRIES)
        return;
    notify(&w, R_ON_AGAIN);
    look(&w);
    explore(w);
}

/* Each thing that may become of that agent and its rank. */
static void go_on(struct world w, int i)
{
    struct world after = w;

    if (w.agents[i] == STARTING) {
        after.agents[i] = READY;
        look_for_agents(&after);
        explore(after);
    }
    if (w.ranks[i]) {
        after = w;
        after.ranks[i] = false;
        look(&after); /* it ended well */
        explore(after);
        go_wrong(after);
    }
    if (w.agents[i] == GONE)
        return;
    after = w;
    after.agents[i] = GONE;
    after.ranks[i] = false;
    if (w.state < R_ENDING)
        go_wrong(after);
    if (w.state == R_WAITING)
        return;
    look(&after); /* the others go on */
    explore(after);
}

static void check_world(const struct world *w)
{
    bool may_end = false;

    assert_int_equal(w->over, w->state == R_ENDED);
    for (int i = 0; i < AGENTS; i++) {
        assert_true(!w->ranks[i] || w->agents[i] == READY);
        may_end |= w->agents[i] != GONE;
    }
    assert_true(may_end || w->over); /* else it would wait for ever */
    if (w->state == R_RESTARTING || w->state == R_STOPPING) {
        assert_true(w->told && (w->failed || w->stopped));
        assert_true(has_ranks(w) || count(w, DOOMED) > 0); /* it waits for something */
        assert_int_equal(count(w, STARTING), 0);           /* all can hear, or are killed */
    }
    if (w->stopped)
        assert_true(w->state >= R_STOPPING);
    if (w->state == R_WAITING)
        assert_true(count(w, STARTING) > 0);
}

static void explore(struct world w)
{
    struct world after = w;

    if (!worlds_add(&seen, &w, sizeof(w)))
        return;
    check_world(&w);
    if (w.over)
        return;
    notify(&after, R_ON_STOP);
    look(&after);
    explore(after);
    for (int i = 0; i < AGENTS; i++)
        go_on(w, i);
}

static void each_order_of_events_ends_once_and_nothing_waits_for_ever(void **state)
{
    struct world w;

    memset(&w, 0, sizeof(w)); /* worlds are compared with their padding */
    memset(w.agents, STARTING, sizeof(w.agents));
    explore(w);
    worlds_check(&seen, sizeof(w), R_STATES);
}

/* ---- Races ---- */

static const struct race races[] = {
    {"a restart waits for the agents that it has killed", R_RUNNING,
     STEPS({R_ON_AGAIN, R_DO_END_RANKS}, {R_ON_OVER, R_DO_NOTHING}, {R_ON_CLEAR, R_DO_TRY_AGAIN}),
     R_WAITING},
    {"the end of an agent that was killed is no failure of the restart", R_RESTARTING,
     STEPS({R_ON_FAILED, R_DO_NOTHING}, {R_ON_CLEAR, R_DO_TRY_AGAIN}), R_WAITING},
    {"a restart that cannot begin ends the ring", R_RESTARTING,
     STEPS({R_ON_CLEAR, R_DO_TRY_AGAIN}, {R_ON_FAILED, R_DO_END_RANKS},
           {R_ON_OVER, R_DO_END_AGENTS}, {R_ON_GONE, R_DO_END}),
     R_ENDED},
    {"an agent that is lost while the next try waits may lead to another", R_WAITING,
     STEPS({R_ON_AGAIN, R_DO_END_RANKS}, {R_ON_CLEAR, R_DO_TRY_AGAIN}, {R_ON_READY, R_DO_START}),
     R_RUNNING},
    {"the ranks of the try before do not end the one that waits", R_WAITING,
     STEPS({R_ON_OVER, R_DO_NOTHING}, {R_ON_CLEAR, R_DO_NOTHING}, {R_ON_HELLO, R_DO_WAIT_GANG}),
     R_WAITING},
    {"a stop takes the restart back", R_RUNNING,
     STEPS({R_ON_AGAIN, R_DO_END_RANKS}, {R_ON_STOP, R_DO_WAIT}, {R_ON_CLEAR, R_DO_NOTHING},
           {R_ON_OVER, R_DO_END_AGENTS}),
     R_ENDING},
    {"what ranks do once they were told to end is no news", R_RUNNING,
     STEPS({R_ON_FAILED, R_DO_END_RANKS}, {R_ON_AGAIN, R_DO_NOTHING}, {R_ON_FAILED, R_DO_NOTHING},
           {R_ON_OVER, R_DO_END_AGENTS}),
     R_ENDING},
    {"the last hello comes after the stop", R_WAITING,
     STEPS({R_ON_HELLO, R_DO_WAIT_GANG}, {R_ON_STOP, R_DO_END_RANKS}, {R_ON_READY, R_DO_NOTHING}),
     R_STOPPING},
    {"agents that were replaced say hello to a ring that runs", R_RUNNING,
     STEPS({R_ON_READY, R_DO_NOTHING}, {R_ON_HELLO, R_DO_NOTHING}), R_RUNNING},
    {"an agent that dies when all ranks have ended is no failure", R_RUNNING,
     STEPS({R_ON_OVER, R_DO_END_AGENTS}, {R_ON_FAILED, R_DO_NOTHING}, {R_ON_STOP, R_DO_NOTHING},
           {R_ON_GONE, R_DO_END}),
     R_ENDED},
    {"it ends once", R_ENDED,
     STEPS({R_ON_GONE, R_DO_NOTHING}, {R_ON_STOP, R_DO_NOTHING}, {R_ON_READY, R_DO_NOTHING}),
     R_ENDED},
};

static void races_end_as_they_were_mended(void **state)
{
    RUN_RACES(races, fbr_ring_step);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_event_in_each_state_keeps_the_rules),
        cmocka_unit_test(each_order_of_events_ends_once_and_nothing_waits_for_ever),
        cmocka_unit_test(races_end_as_they_were_mended),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
