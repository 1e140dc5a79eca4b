/* kube_pod_fsm_test.c - a pod's life: each event in each state, each order of events, and the races by name.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "backends/kubernetes/pod_fsm.h"
#include "tests/support/life.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

static bool is_killed(unsigned s)
{
    return s == CREATING_KILLED || s == TRYING_KILLED || s == JOB_KILLED || s == PENDING_KILLED ||
           s == RUNNING_KILLED;
}

static bool has_pod(unsigned s)
{
    return s >= PENDING && s < ENDING;
}

/* ---- Each event in each state ---- */

/* Which states take the events that may come at any time. */
static void check_takes(enum fbr_pod_state s, enum fbr_pod_event e, bool takes)
{
    static const bool waits_long[FBR_POD_STATES] = {
        [QUEUED] = true, [WAITING] = true, [JOB_MADE] = true, [PENDING] = true};

    if (e == ON_KILL || e == ON_TICK)
        assert_int_equal(takes, s < ENDING);
    if (e == ON_OVER || e == ON_GONE)
        assert_int_equal(takes, has_pod(s));
    if (e == ON_CREATED)
        assert_int_equal(takes, s == CREATING || s == CREATING_KILLED ||
                                    (s >= JOB_CREATING && s < PENDING && s != TRYING_KILLED));
    if (e == ON_WAITS || e == ON_NEVER)
        assert_int_equal(takes, has_pod(s) && s != GIVEN_UP);
    if (e == ON_NEWS)
        assert_int_equal(takes, s == PENDING || s == PENDING_KILLED);
    if (e == ON_THEIRS)
        assert_int_equal(takes, s == PENDING || s == RUNNING);
    if (e == ON_TIMEOUT) /* one that was sent, or that is to end, is answered for by the server */
        assert_int_equal(takes, waits_long[s]);
}

static void check_step(enum fbr_pod_state s, enum fbr_pod_event e)
{
    const struct fbr_pod_step step = fbr_pod_step(s, e);
    bool takes = step.action != DO_NOTHING;

    assert_in_range(step.next, 0, FBR_POD_STATES - 1);
    assert_in_range(step.action, 0, FBR_POD_ACTIONS - 1);
    assert_int_equal(takes, fbr_pod_takes(s, e));
    if (!takes)
        assert_int_equal(step.next, s);
    if (s == ENDED)
        assert_false(takes);
    if (has_pod(s)) /* it is not made again */
        assert_true(step.next >= PENDING);
    if (is_killed(s) && step.next != GIVEN_UP)
        assert_true(is_killed(step.next) || step.next >= ENDING);
    if (step.next == ENDED && s != ENDED)
        assert_true(step.action == DO_FINISH || step.action == DO_REFUSE);
    if (step.action == DO_DELETE)
        assert_true(has_pod(s));
    check_takes(s, e, takes);
}

static void each_event_in_each_state_keeps_the_rules(void **state)
{
    for (int s = 0; s < FBR_POD_STATES; s++)
        for (int e = 0; e < FBR_POD_EVENTS; e++)
            check_step((enum fbr_pod_state)s, (enum fbr_pod_event)e);
}

static void only_what_was_sent_is_deleted_at_the_end(void **state)
{
    for (int s = 0; s < FBR_POD_STATES; s++)
        assert_int_equal(fbr_pod_may_exist((enum fbr_pod_state)s), s >= CREATING && s < ENDING);
}

/* ---- Each order of events ---- */

enum line { NO_LINE, QUEUE, SECRET, TURNS };

/* The pod and its server, as far as they matter to the order of events. */
struct world {
    unsigned char state, line;
    bool master, killed, started, ran, given_up, over;
    bool call;  /* a request that makes it is on its way */
    bool drain; /* the timer of its end */
};

static struct worlds seen;

static void leave(struct world *w, enum line line)
{
    assert_int_equal(w->line, line);
    w->line = NO_LINE;
    w->drain = true;
}

static void enter(struct world *w, enum line line)
{
    assert_int_equal(w->line, NO_LINE);
    assert_false(w->killed);
    w->line = (unsigned char)line;
}

static void send(struct world *w)
{
    assert_false(w->call);
    assert_int_equal(w->line, NO_LINE);
    w->call = true;
}

static void notify_started(struct world *w)
{
    assert_false(w->started);
    w->started = true;
}

static void begin_end(struct world *w, bool right)
{
    assert_true(w->started && right);
    w->drain = true;
}

/* The words about it, which it may be told while it lives only. */
static void notify_words(struct world *w, unsigned action)
{
    assert_true(w->started && !w->over);
    w->ran |= action == DO_TELL_RUNNING;
}

static void act_at_start(struct world *w, unsigned action)
{
    static const unsigned char lines[] = {
        [DO_LEAVE_QUEUE] = QUEUE, [DO_LEAVE_SECRET] = SECRET, [DO_LEAVE_WAITING] = TURNS};

    if (action >= DO_LEAVE_QUEUE && action <= DO_LEAVE_WAITING)
        leave(w, lines[action]);
    else if (action == DO_QUEUE || action == DO_WAIT_TURN)
        enter(w, action == DO_QUEUE ? QUEUE : TURNS);
    else if (action == DO_CREATE || action == DO_CREATE_JOB)
        assert_false(w->killed);
    if (action == DO_CREATE || action == DO_CREATE_JOB || action == DO_FIND)
        send(w);
    if (action == DO_END_JOB)
        w->drain = true;
}

static void act(struct world *w, unsigned action)
{
    act_at_start(w, action);
    if (action == DO_TELL_STARTED || action == DO_TELL_STARTED_DELETE)
        notify_started(w);
    else if (action >= DO_TELL_WAITING && action <= DO_TELL_NEWS)
        notify_words(w, action);
    else if (action == DO_GIVE_UP)
        w->given_up = true;
    else if (action == DO_END || action == DO_END_UNSEEN)
        begin_end(w, !w->killed && !w->given_up);
    else if (action == DO_END_ASKED)
        begin_end(w, w->killed && !w->given_up);
    else if (action == DO_END_KILLED)
        begin_end(w, w->killed && !w->given_up && !w->ran);
    else if (action == DO_END_GIVEN_UP)
        begin_end(w, w->given_up);
    if (action == DO_FINISH || action == DO_REFUSE) {
        assert_false(w->over);
        w->over = true;
    }
}

static void explore(struct world w);

static void notify(struct world w, enum fbr_pod_event e)
{
    const struct fbr_pod_step s = fbr_pod_step(w.state, e);

    if (e == ON_KILL && w.state < ENDING)
        w.killed = true;
    w.state = s.next;
    act(&w, s.action);
    explore(w);
}

static void answer(struct world w)
{
    static const enum fbr_pod_event refusals[] = {ON_NO_ROOM, ON_REFUSED};

    w.call = false;
    for (size_t i = 0; i < COUNT(refusals); i++)
        notify(w, refusals[i]);
    if (w.state == TRYING || w.state == TRYING_KILLED)
        notify(w, ON_TRIED);
    else if (w.master)
        notify(w, ON_JOB);
    if (w.state == CREATING || w.state == CREATING_KILLED) {
        notify(w, ON_TAKEN);
        notify(w, ON_CREATED);
    }
    if (has_pod(w.state)) /* the watch was faster */
        notify(w, ON_CREATED);
}

static void move_on(struct world w)
{
    struct world after = w;

    after.line = w.line == QUEUE ? SECRET : w.line == SECRET ? TURNS : NO_LINE;
    if (w.line == QUEUE)
        notify(after, ON_BATCH);
    if (w.line == SECRET)
        notify(after, ON_SECRET);
    if (w.line == TURNS)
        notify(after, w.master ? ON_TURN_MASTER : ON_TURN);
    if (w.line == SECRET) {
        after.line = NO_LINE; /* the Secret is refused */
        notify(after, ON_NO_ROOM);
        notify(after, ON_REFUSED);
    }
}

static void explore(struct world w)
{
    static const enum fbr_pod_event any_time[] = {ON_KILL, ON_TIMEOUT, ON_TICK, ON_NEWS,
                                                  ON_LOG_END};
    static const enum fbr_pod_event watched[] = {ON_WAITS,  ON_NEVER, ON_RUNS,
                                                 ON_THEIRS, ON_OVER,  ON_GONE};

    if (!worlds_add(&seen, &w, sizeof(w)))
        return;
    assert_true((w.state == ENDED) == w.over);
    if (w.over)
        return;
    assert_true(w.line || w.call || w.state == JOB_MADE || has_pod(w.state) || w.drain);
    for (size_t i = 0; i < COUNT(any_time); i++)
        notify(w, any_time[i]);
    for (size_t i = 0; i < COUNT(watched) && w.started; i++)
        notify(w, watched[i]);
    move_on(w);
    if (w.call && w.state > WAITING)
        answer(w);
    if (w.state >= CREATING && w.state != TRYING && w.state != TRYING_KILLED && !w.started)
        notify(w, ON_CREATED); /* by the watch */
    if (w.drain)
        notify(w, ON_DRAINED);
}

static void each_order_of_events_ends_once_and_a_killed_pod_is_not_made(void **state)
{
    struct world w;

    memset(&w, 0, sizeof(w)); /* worlds are compared with their padding */
    w.state = QUEUED;
    w.line = QUEUE;
    explore(w);
    w.state = WAITING;
    w.line = TURNS;
    w.master = true;
    explore(w);
    worlds_check(&seen, sizeof(w), FBR_POD_STATES);
}

/* ---- Races ---- */

static const struct race races[] = {
    {"the watch is faster than the answer", CREATING,
     STEPS({ON_CREATED, DO_TELL_STARTED}, {ON_RUNS, DO_TELL_RUNNING}, {ON_CREATED, DO_NOTHING}),
     RUNNING},
    {"a create that was repeated finds its own pod", CREATING,
     STEPS({ON_TAKEN, DO_FIND}, {ON_CREATED, DO_TELL_STARTED}), PENDING},
    {"a quota has no room yet", CREATING, STEPS({ON_NO_ROOM, DO_WAIT_TURN}, {ON_TURN, DO_CREATE}),
     CREATING},
    {"a quota has no room, and its end was asked for", CREATING,
     STEPS({ON_KILL, DO_HURRY}, {ON_NO_ROOM, DO_REFUSE}), ENDED},
    {"a quota has no room for too long", WAITING,
     STEPS({ON_TIMEOUT, DO_LEAVE_WAITING}, {ON_TURN, DO_NOTHING}, {ON_DRAINED, DO_FINISH}), ENDED},
    {"a Secret has no room yet", WRAPPED, STEPS({ON_NO_ROOM, DO_QUEUE}), QUEUED},
    {"a kill in the line", WRAPPED,
     STEPS({ON_KILL, DO_LEAVE_SECRET}, {ON_SECRET, DO_NOTHING}, {ON_DRAINED, DO_FINISH}), ENDED},
    {"a kill before the answer deletes what was made", CREATING,
     STEPS({ON_KILL, DO_HURRY}, {ON_CREATED, DO_TELL_STARTED_DELETE}, {ON_GONE, DO_END_KILLED}),
     ENDING},
    {"a kill is answered by a harder one", PENDING,
     STEPS({ON_KILL, DO_DELETE}, {ON_KILL, DO_DELETE}), PENDING_KILLED},
    {"a pod that runs after all when it is killed has a code", PENDING,
     STEPS({ON_KILL, DO_DELETE}, {ON_RUNS, DO_TELL_RUNNING}, {ON_OVER, DO_END_ASKED}), ENDING},
    {"an eviction is not its program's end", RUNNING,
     STEPS({ON_THEIRS, DO_TELL_THEIRS}, {ON_OVER, DO_END}), ENDING},
    {"we delete it: nobody else did", RUNNING,
     STEPS({ON_KILL, DO_DELETE}, {ON_THEIRS, DO_NOTHING}, {ON_GONE, DO_END_ASKED}), ENDING},
    {"a lost node takes it unseen", RUNNING, STEPS({ON_GONE, DO_END_UNSEEN}), ENDING},
    {"a pod that is over without having been seen running", PENDING, STEPS({ON_OVER, DO_END}),
     ENDING},
    {"the reason that it was given up for stays", PENDING,
     STEPS({ON_NEVER, DO_GIVE_UP}, {ON_RUNS, DO_NOTHING}, {ON_KILL, DO_DELETE},
           {ON_GONE, DO_END_GIVEN_UP}),
     ENDING},
    {"our own deletion of it is not somebody else's", PENDING,
     STEPS({ON_TIMEOUT, DO_GIVE_UP}, {ON_THEIRS, DO_NOTHING}), GIVEN_UP},
    {"a log that ends while it runs ends nothing", RUNNING, STEPS({ON_LOG_END, DO_NOTHING}),
     RUNNING},
    {"its end is told when its log has ended", RUNNING,
     STEPS({ON_OVER, DO_END}, {ON_LOG_END, DO_DRAIN_NOW}, {ON_DRAINED, DO_FINISH}), ENDED},
    {"it ends once", ENDING,
     STEPS({ON_OVER, DO_NOTHING}, {ON_GONE, DO_NOTHING}, {ON_KILL, DO_NOTHING},
           {ON_DRAINED, DO_FINISH}, {ON_DRAINED, DO_NOTHING}),
     ENDED},
    {"a master's pod is faster than its Job's answer", JOB_CREATING,
     STEPS({ON_CREATED, DO_TELL_STARTED}, {ON_JOB, DO_NOTHING}), PENDING},
    {"a master is killed before its Job's answer", JOB_CREATING,
     STEPS({ON_KILL, DO_HURRY}, {ON_JOB, DO_END_JOB}, {ON_DRAINED, DO_FINISH}), ENDED},
    {"a master is killed before its pod is there", JOB_MADE,
     STEPS({ON_KILL, DO_END_JOB}, {ON_CREATED, DO_NOTHING}), ENDING},
    {"a master is given up, since a queue holds its Job", JOB_MADE,
     STEPS({ON_TIMEOUT, DO_END_JOB}, {ON_CREATED, DO_NOTHING}, {ON_DRAINED, DO_FINISH}), ENDED},
    {"a master that is refused has no Job", TRYING, STEPS({ON_REFUSED, DO_REFUSE}), ENDED},
};

static void races_end_as_they_were_mended(void **state)
{
    RUN_RACES(races, fbr_pod_step);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_event_in_each_state_keeps_the_rules),
        cmocka_unit_test(only_what_was_sent_is_deleted_at_the_end),
        cmocka_unit_test(each_order_of_events_ends_once_and_a_killed_pod_is_not_made),
        cmocka_unit_test(races_end_as_they_were_mended),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
