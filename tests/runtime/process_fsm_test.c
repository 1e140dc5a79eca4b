/* process_fsm_test.c - a process's life: each event in each state, each order of events, and the races by name.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "runtime/proc/process_fsm.h"
#include "tests/support/life.h"

/* ---- Each event in each state ---- */

static void check_takes(enum process_state s, enum process_event e, bool takes)
{
    if (e == P_ON_KILL || e == P_ON_FAILED)
        assert_int_equal(takes, s != P_ENDED);
    if (e == P_ON_JOINED || e == P_ON_REFUSED)
        assert_int_equal(takes, fbr_process_is_starting(s));
    if (e == P_ON_HUNG_UP || e == P_ON_SILENT)
        assert_int_equal(takes, fbr_process_is_joined(s) || s == P_EXITED);
    if (e == P_ON_EXITED)
        assert_int_equal(takes, s < P_EXITED);
    if (e == P_ON_DRAINED)
        assert_int_equal(takes, s == P_DRYING);
    if (e == P_ON_TIME) /* one that has joined has no time */
        assert_int_equal(takes, !fbr_process_is_joined(s) && s != P_ENDED);
}

static void check_step(enum process_state s, enum process_event e)
{
    const struct process_step step = fbr_process_step(s, e);
    bool takes = step.action != P_DO_NOTHING;

    assert_in_range(step.next, 0, P_STATES - 1);
    assert_in_range(step.action, 0, P_ACTIONS - 1);
    assert_int_equal(takes, fbr_process_takes(s, e));
    assert_true(step.next >= s); /* nothing goes back */
    if (!takes)
        assert_int_equal(step.next, s);
    assert_int_equal(step.next == P_ENDED, step.action == P_DO_END || s == P_ENDED);
    if (fbr_process_is_killed(s)) /* stays it until its backend has spoken */
        assert_true(fbr_process_is_killed(step.next) || step.next >= P_EXITED);
    check_takes(s, e, takes);
}

static void each_event_in_each_state_keeps_the_rules(void **state)
{
    for (int s = 0; s < P_STATES; s++)
        for (int e = 0; e < P_EVENTS; e++)
            check_step((enum process_state)s, (enum process_event)e);
}

/* ---- Each order of events ---- */

/* The process and its two witnesses, as far as they matter to the order of events. */
struct world {
    unsigned char state;
    bool conn;   /* it has its connection */
    bool hung;   /* the connection has spoken */
    bool exited; /* the backend has */
    bool killed; /* SIGKILL was sent */
    bool timed;  /* a time is over in which the other witness should have spoken */
    bool timer, failed, over;
};

static struct worlds seen;

static void explore(struct world w);
static void notify(struct world w, enum process_event e);

/* As kill_it() of job.c does. */
static void kill_now(struct world *w)
{
    w->killed = w->timer = true;
}

static void check_end(struct world *w)
{
    assert_false(w->over);
    assert_true(w->failed || (w->exited && !w->conn) || w->timed);
    assert_true(w->exited || w->killed || w->failed); /* what may run is not left */
    w->over = true;
}

static void act(struct world *w, unsigned action)
{
    switch (action) {
    case P_DO_SIGNAL:
        w->killed = true;
        break;
    case P_DO_REFUSE:
    case P_DO_TOO_LATE:
        assert_false(w->conn);
        kill_now(w);
        break;
    case P_DO_KILL:
    case P_DO_GIVE_UP:
        assert_true(w->hung && !w->exited); /* nothing that has ended is killed */
        kill_now(w);
        break;
    case P_DO_WAIT_EXIT:
        assert_true(w->hung && !w->exited);
        w->timer = true;
        break;
    case P_DO_WAIT_CONN:
        assert_true(w->conn && w->exited);
        w->timer = true;
        break;
    case P_DO_DRY:
        assert_true(w->exited && !w->conn);
        notify(*w, P_ON_DRAINED);
        w->timer = true;
        break;
    case P_DO_END:
        check_end(w);
        break;
    default:
        break;
    }
}

static void notify(struct world w, enum process_event e)
{
    const struct process_step s = fbr_process_step((enum process_state)w.state, e);

    w.state = s.next;
    act(&w, s.action);
    explore(w);
}

static void notify_time(struct world w)
{
    w.timer = false;
    w.timed = true;
    notify(w, P_ON_TIME);
}

static void notify_conn(struct world w)
{
    struct world after = w;

    if (fbr_process_is_starting(w.state)) {
        after.conn = true;
        after.timer = false;
        notify(after, P_ON_JOINED);
        notify(w, P_ON_REFUSED);
    }
    if (w.conn) {
        after = w;
        after.conn = false;
        after.hung = true;
        notify(after, P_ON_HUNG_UP);
        notify(after, P_ON_SILENT);
    }
}

static void explore(struct world w)
{
    struct world after = w;

    if (!worlds_add(&seen, &w, sizeof(w)))
        return;
    assert_int_equal(w.over, w.state == P_ENDED);
    if (w.over)
        return;
    assert_int_equal(w.conn, fbr_process_is_joined(w.state) || w.state == P_EXITED);
    assert_true(w.timer || fbr_process_is_joined(w.state)); /* nothing waits for ever */
    notify(w, P_ON_KILL);
    notify(w, P_ON_DRAINED);
    after.failed = true;
    notify(after, P_ON_FAILED);
    if (!w.exited) {
        after = w;
        after.exited = true;
        notify(after, P_ON_EXITED);
    }
    if (w.timer)
        notify_time(w);
    notify_conn(w);
}

static void each_order_of_events_ends_once_and_leaves_nothing_that_runs(void **state)
{
    struct world w;

    memset(&w, 0, sizeof(w)); /* worlds are compared with their padding */
    w.timer = true;
    explore(w);
    worlds_check(&seen, sizeof(w), P_STATES);
}

/* ---- Races ---- */

static const struct race races[] = {
    {"a kill before it joined, and it joins", P_STARTING,
     STEPS({P_ON_KILL, P_DO_SIGNAL}, {P_ON_JOINED, P_DO_WAIT}, {P_ON_HUNG_UP, P_DO_WAIT_EXIT},
           {P_ON_EXITED, P_DO_DRY}),
     P_DRYING},
    {"an end before it joined", P_STARTING,
     STEPS({P_ON_EXITED, P_DO_DRY}, {P_ON_DRAINED, P_DO_END}), P_ENDED},
    {"an end before hello: it does not join any more", P_STARTING,
     STEPS({P_ON_EXITED, P_DO_DRY}, {P_ON_JOINED, P_DO_NOTHING}), P_DRYING},
    {"it joins after it was given up", P_STARTING,
     STEPS({P_ON_TIME, P_DO_TOO_LATE}, {P_ON_JOINED, P_DO_NOTHING}, {P_ON_EXITED, P_DO_DRY}),
     P_DRYING},
    {"its backend is faster than its connection", P_JOINED,
     STEPS({P_ON_EXITED, P_DO_WAIT_CONN}, {P_ON_HUNG_UP, P_DO_DRY}), P_DRYING},
    {"its connection never ends, as something else has it", P_JOINED,
     STEPS({P_ON_EXITED, P_DO_WAIT_CONN}, {P_ON_TIME, P_DO_END}), P_ENDED},
    {"its connection is cut off after its end", P_JOINED,
     STEPS({P_ON_EXITED, P_DO_WAIT_CONN}, {P_ON_SILENT, P_DO_DRY}), P_DRYING},
    {"it hung up, and its backend is slow", P_JOINED,
     STEPS({P_ON_HUNG_UP, P_DO_WAIT_EXIT}, {P_ON_TIME, P_DO_GIVE_UP}, {P_ON_EXITED, P_DO_DRY}),
     P_DRYING},
    {"its backend never speaks", P_JOINED,
     STEPS({P_ON_HUNG_UP, P_DO_WAIT_EXIT}, {P_ON_TIME, P_DO_GIVE_UP}, {P_ON_TIME, P_DO_END}),
     P_ENDED},
    {"it was killed, so it is not killed again", P_JOINED,
     STEPS({P_ON_KILL, P_DO_SIGNAL}, {P_ON_HUNG_UP, P_DO_WAIT_EXIT}, {P_ON_TIME, P_DO_END}),
     P_ENDED},
    {"a kill after it hung up counts", P_JOINED,
     STEPS({P_ON_HUNG_UP, P_DO_WAIT_EXIT}, {P_ON_KILL, P_DO_SIGNAL}, {P_ON_TIME, P_DO_END}),
     P_ENDED},
    {"a frozen process is killed", P_JOINED,
     STEPS({P_ON_SILENT, P_DO_KILL}, {P_ON_EXITED, P_DO_DRY}), P_DRYING},
    {"what its host has is not dry before its end", P_JOINED,
     STEPS({P_ON_DRAINED, P_DO_NOTHING}, {P_ON_HUNG_UP, P_DO_WAIT_EXIT},
           {P_ON_DRAINED, P_DO_NOTHING}, {P_ON_EXITED, P_DO_DRY}),
     P_DRYING},
    {"its host never says that it is dry", P_DRYING,
     STEPS({P_ON_TIME, P_DO_END}, {P_ON_DRAINED, P_DO_NOTHING}), P_ENDED},
    {"it ends once", P_ENDED,
     STEPS({P_ON_EXITED, P_DO_NOTHING}, {P_ON_TIME, P_DO_NOTHING}, {P_ON_FAILED, P_DO_NOTHING},
           {P_ON_KILL, P_DO_NOTHING}),
     P_ENDED},
};

static void races_end_as_they_were_mended(void **state)
{
    RUN_RACES(races, fbr_process_step);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_event_in_each_state_keeps_the_rules),
        cmocka_unit_test(each_order_of_events_ends_once_and_leaves_nothing_that_runs),
        cmocka_unit_test(races_end_as_they_were_mended),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
