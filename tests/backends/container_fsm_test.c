/* container_fsm_test.c - a container's life: each event in each state, each order of events, and the races by name.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "backends/docker/container_fsm.h"
#include "tests/support/life.h"

static bool is_killed(unsigned s)
{
    return s == KILLED_CREATING || s == KILLED_LOOKING_UP;
}

static bool ends(unsigned action)
{
    return action >= DO_END;
}

/* ---- Each event in each state ---- */

/* Which states take the events that may come at any time. */
static void check_takes(enum fbr_container_state s, enum fbr_container_event e, bool takes)
{
    if (e == ON_KILL)
        assert_int_equal(takes, s < KILLED_CREATING || s == RUNNING);
    if (e == ON_SIGNAL || e == ON_RUNS)
        assert_int_equal(takes, s == RUNNING);
    if (e == ON_DIED)
        assert_int_equal(takes, s == STARTING || s == STARTING_LOST || s == RUNNING || s == LOST);
    if (e == ON_GONE)
        assert_int_equal(takes, s == STARTING || s == RUNNING);
    if (e == ON_OUTPUT)
        assert_int_equal(takes, s == DRAINING || s == LOST);
    if (e == ON_PUT)
        assert_int_equal(takes, s == FILLING || s == ATTACHED);
    if (e == ON_TIME)
        assert_int_equal(takes, s == RUNNING || s == DRAINING || s == LOST);
    if (e == ON_TOLD)
        assert_int_equal(takes, s == ENDED);
}

static void check_step(enum fbr_container_state s, enum fbr_container_event e)
{
    const struct fbr_container_step step = fbr_container_step(s, e);

    assert_in_range(step.next, 0, FBR_CONTAINER_STATES - 1);
    assert_in_range(step.action, 0, FBR_CONTAINER_ACTIONS - 1);
    if (step.action == DO_NOTHING)
        assert_int_equal(step.next, s);
    assert_true((step.next == ENDED) == (ends(step.action) || s == ENDED) || step.next == TOLD);
    assert_true((step.action == DO_START) == (step.next == STARTING && s != STARTING));
    if (s >= ENDED && e != ON_TOLD)
        assert_int_equal(step.action, DO_NOTHING);
    if (s >= RUNNING)
        assert_true(step.next >= RUNNING);
    if (is_killed(s))
        assert_true(is_killed(step.next) || step.next == ENDED);
    check_takes(s, e, step.action != DO_NOTHING);
}

static void each_event_in_each_state_keeps_the_rules(void **state)
{
    for (int s = 0; s < FBR_CONTAINER_STATES; s++)
        for (int e = 0; e < FBR_CONTAINER_EVENTS; e++)
            check_step((enum fbr_container_state)s, (enum fbr_container_event)e);
}

/* ---- Each order of events ---- */

/* The container, its engine and its owner, as far as they matter to the order of events. */
struct world {
    unsigned char state;
    unsigned char call;   /* the state that a request was sent in; FBR_CONTAINER_STATES: none */
    unsigned char output; /* 0: none, 1: it is being attached, 2: it is */
    unsigned char puts, fetches;
    bool ran, started, undone, over, image_waits, bundle_waits, probing, putting, timer;
};

static struct worlds seen;

static void send(struct world *w)
{
    assert_int_equal(w->call, FBR_CONTAINER_STATES); /* one request at a time */
    w->call = w->state;
}

static void end_world(struct world *w, unsigned action)
{
    assert_false(w->over);
    assert_true(w->ran || action >= DO_FAIL); /* only an end that was seen has a code */
    w->over = true;
}

static void act(struct world *w, unsigned action)
{
    switch (action) {
    case DO_PULL:
        w->image_waits = true;
        assert_true(w->fetches++ < 2);
        break;
    case DO_CREATE:
    case DO_LOOK_UP:
    case DO_START:
        send(w);
        break;
    case DO_UNDO:
        assert_false(w->undone);
        w->undone = true;
        send(w);
        break;
    case DO_PROBE:
        w->probing = true;
        break;
    case DO_BUNDLE:
        w->bundle_waits = true;
        break;
    case DO_FILL:
        assert_int_equal(w->output, 0);
        w->output = 1;
        w->putting = true;
        break;
    case DO_PUT:
        w->putting = true;
        break;
    case DO_RUN:
    case DO_RUN_DRAIN:
        assert_false(w->started);
        w->started = w->ran = w->timer = true;
        break;
    case DO_DRAIN:
        w->ran = w->timer = true;
        break;
    case DO_LOOK_SOON:
    case DO_DRAIN_MORE:
        w->timer = true;
        break;
    case DO_READ_LOG:
        w->output = 2;
        break;
    case DO_SIGNAL:
        assert_true(w->started && !w->over);
        break;
    default:
        if (ends(action))
            end_world(w, action);
    }
}

static void explore(struct world w);

static void notify(struct world w, enum fbr_container_event e)
{
    const struct fbr_container_step s = fbr_container_step(w.state, e);

    w.state = s.next;
    act(&w, s.action);
    explore(w);
}

static void answer(struct world w)
{
    static const int statuses[] = {0, 200, 201, 204, 304, 400, 404, 409, 500};
    struct world after = w;

    after.call = FBR_CONTAINER_STATES;
    for (size_t i = 0; i < sizeof(statuses) / sizeof(statuses[0]); i++)
        notify(after, fbr_container_answer(w.state, statuses[i]));
    if (w.call == LOOKING_UP || w.call == KILLED_LOOKING_UP)
        notify(after, ON_THEIRS);
}

static void decide(struct world w)
{
    struct world after = w;

    if (w.image_waits) {
        after.image_waits = false;
        notify(after, ON_IMAGE);
        notify(after, ON_REFUSED);
    } else if (w.bundle_waits) {
        after.bundle_waits = false;
        notify(after, ON_BUNDLE);
        notify(after, ON_REFUSED);
    } else if (w.probing) {
        after.probing = false;
        notify(after, ON_BUNDLED);
        if (w.undone) /* what the image lacks is known then */
            return;
        notify(after, ON_HAS);
        send(&after);
        explore(after);
    } else if (w.putting) {
        after.putting = false;
        notify(after, ON_ALL_PUT);
        if (++after.puts <= 2) {
            send(&after);
            explore(after);
        }
    }
}

/* These two are asked for within the action that leads to them, before anything else can happen. */
static bool is_within_action(const struct world *w)
{
    return w->probing || w->putting;
}

static void stream(struct world w)
{
    struct world after = w;

    if (w.output == 1) {
        after.output = 2;
        notify(after, ON_ATTACHED);
    } else if (w.output == 2) {
        notify(w, ON_OUTPUT);
    }
    if (w.output) {
        after.output = 0;
        notify(after, ON_DETACHED);
    }
    if (w.timer) {
        after = w;
        after.timer = false;
        notify(after, ON_TIME);
    }
}

static void explore(struct world w)
{
    static const enum fbr_container_event any_time[] = {ON_KILL, ON_SIGNAL, ON_DIED, ON_GONE};

    if (!worlds_add(&seen, &w, sizeof(w)))
        return;
    if (w.over) {
        assert_int_equal(w.state, ENDED);
        return;
    }
    if (!is_within_action(&w)) {
        assert_true(w.image_waits || w.bundle_waits || w.call != FBR_CONTAINER_STATES || w.output ||
                    w.timer || w.state == RUNNING);
        if (w.state == DRAINING || w.state == LOST) /* nothing keeps it from its end */
            assert_true(w.timer);
        for (size_t i = 0; i < sizeof(any_time) / sizeof(any_time[0]); i++)
            notify(w, any_time[i]);
        stream(w);
    }
    decide(w);
    if (w.call != FBR_CONTAINER_STATES)
        answer(w);
    if (w.state == RUNNING && !w.output)
        notify(w, ON_RUNS);
}

static void each_order_of_events_ends_once_with_one_request_at_a_time(void **state)
{
    struct world w;

    memset(&w, 0, sizeof(w)); /* worlds are compared with their padding */
    w.state = FETCHING;
    w.call = FBR_CONTAINER_STATES;
    w.image_waits = true;
    explore(w);
    worlds_check(&seen, sizeof(w), TOLD); /* TOLD ends the record */
}

/* ---- Races ---- */

#define CREATE_409           \
    {                        \
        ON_TAKEN, DO_LOOK_UP \
    }

static const struct race races[] = {
    {"a create that was repeated finds its own container", CREATING,
     STEPS(CREATE_409, {ON_OURS, DO_PROBE}), PROBING},
    {"a name that somebody else has is not removed", CREATING,
     STEPS(CREATE_409, {ON_THEIRS, DO_FAIL_TAKEN}), ENDED},
    {"an image is pulled once", CREATING,
     STEPS({ON_NO_IMAGE, DO_PULL}, {ON_IMAGE, DO_CREATE}, {ON_NO_IMAGE, DO_FAIL}), ENDED},
    {"a kill while it is pulled ends at once", PULLING, STEPS({ON_KILL, DO_FAIL_KILLED}), ENDED},
    {"a kill while it is made waits for what there is to remove", CREATING,
     STEPS({ON_KILL, DO_WAIT}, {ON_KILL, DO_NOTHING}, {ON_CREATED, DO_FAIL_KILLED}), ENDED},
    {"a kill during a repeated create removes no other's container", CREATING,
     STEPS({ON_KILL, DO_WAIT}, CREATE_409, {ON_THEIRS, DO_FAIL_TAKEN}), ENDED},
    {"a kill while it is filled starts nothing", FILLING,
     STEPS({ON_KILL, DO_FAIL_KILLED}, {ON_ATTACHED, DO_NOTHING}), ENDED},
    {"it starts when it is filled and attached", FILLING,
     STEPS({ON_ALL_PUT, DO_WAIT}, {ON_ATTACHED, DO_START}), STARTING},
    {"or attached and filled", FILLING,
     STEPS({ON_ATTACHED, DO_WAIT}, {ON_PUT, DO_PUT}, {ON_ALL_PUT, DO_START}), STARTING},
    {"output that ends before it was attached is a failure", FILLING, STEPS({ON_DETACHED, DO_FAIL}),
     ENDED},
    {"its end is told before its start was answered", STARTING,
     STEPS({ON_DIED, DO_WAIT}, {ON_DETACHED, DO_NOTHING}, {ON_STARTED, DO_RUN_DRAIN},
           {ON_TIME, DO_END}),
     ENDED},
    {"the answer to its start has the sentence, not the event", STARTING,
     STEPS({ON_DIED, DO_WAIT}, {ON_REFUSED, DO_FAIL}), ENDED},
    {"a start that was repeated finds it gone", STARTING,
     STEPS({ON_VANISHED, DO_DRAIN}, {ON_TIME, DO_END_LOST}), ENDED},
    {"it is removed before its start was answered", STARTING,
     STEPS({ON_GONE, DO_WAIT}, {ON_VANISHED, DO_RUN_DRAIN}, {ON_DIED, DO_DRAIN}, {ON_TIME, DO_END}),
     ENDED},
    {"a kill during its start is passed on by DO_RUN", STARTING,
     STEPS({ON_KILL, DO_NOTHING}, {ON_STARTED, DO_RUN}), RUNNING},
    {"an end that comes after the removal still counts", RUNNING,
     STEPS({ON_GONE, DO_DRAIN}, {ON_DETACHED, DO_DRAIN_MORE}, {ON_DIED, DO_DRAIN},
           {ON_DETACHED, DO_END}),
     ENDED},
    {"a removal after the end says nothing", RUNNING,
     STEPS({ON_DIED, DO_DRAIN}, {ON_GONE, DO_NOTHING}, {ON_DIED, DO_NOTHING}, {ON_TIME, DO_END}),
     ENDED},
    {"output that breaks off while it runs is asked for again", RUNNING,
     STEPS({ON_DETACHED, DO_LOOK_SOON}, {ON_TIME, DO_LOOK}, {ON_RUNS, DO_READ_LOG}), RUNNING},
    {"a signal after the end goes nowhere", DRAINING,
     STEPS({ON_KILL, DO_NOTHING}, {ON_SIGNAL, DO_NOTHING}), DRAINING},
};

static void races_end_as_they_were_mended(void **state)
{
    RUN_RACES(races, fbr_container_step);
}

/* ---- Answers ---- */

static void an_answer_means_what_its_request_was(void **state)
{
    assert_int_equal(fbr_container_answer(CREATING, 201), ON_CREATED);
    assert_int_equal(fbr_container_answer(RECREATING, 404), ON_NO_IMAGE);
    assert_int_equal(fbr_container_answer(KILLED_CREATING, 409), ON_TAKEN);
    assert_int_equal(fbr_container_answer(KILLED_LOOKING_UP, 200), ON_OURS);
    assert_int_equal(fbr_container_answer(PROBING, 404), ON_LACKS);
    assert_int_equal(fbr_container_answer(UNDOING, 404), ON_UNDONE);
    assert_int_equal(fbr_container_answer(ATTACHED, 200), ON_PUT);
    assert_int_equal(fbr_container_answer(STARTING, 304), ON_STARTED);
    assert_int_equal(fbr_container_answer(STARTING_DIED, 404), ON_VANISHED);
    assert_int_equal(fbr_container_answer(STARTING_LOST, 409), ON_VANISHED);
    assert_int_equal(fbr_container_answer(STARTING, 0), ON_REFUSED); /* there was none */
}

static void only_a_create_leaves_it_open_whether_there_is_one(void **state)
{
    for (int s = 0; s < FBR_CONTAINER_STATES; s++)
        assert_int_equal(fbr_container_is_being_made((enum fbr_container_state)s),
                         s == CREATING || s == RECREATING || s == KILLED_CREATING);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_event_in_each_state_keeps_the_rules),
        cmocka_unit_test(each_order_of_events_ends_once_with_one_request_at_a_time),
        cmocka_unit_test(races_end_as_they_were_mended),
        cmocka_unit_test(an_answer_means_what_its_request_was),
        cmocka_unit_test(only_a_create_leaves_it_open_whether_there_is_one),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
