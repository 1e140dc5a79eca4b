/* queue_engine_test.c - a queue's engine: who gets which message, when a put is accepted, what
 * becomes of deaths.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "share/queue_engine.h"

/* What the engine decided, as text: "3<1:a" deliver a as number 1 to peer 3, "3?" recall, "3." end
 * of file, "3+7" put 7 of peer 3 is accepted ("3-7": refused), "!" wake one, "!!" wake all, "~a" a
 * was dropped, "3*" peer 3 is told that there is something, "3o" that there is nothing. */
static char said[4096];
static struct fbr_queue_engine *queue;

__attribute__((format(printf, 1, 2))) static void say(const char *fmt, ...)
{
    size_t len = strlen(said);
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(said + len, sizeof(said) - len, fmt, ap);
    va_end(ap);
}

static void on_deliver(void *user, uint64_t peer, uint64_t seq, const void *data, size_t len)
{
    assert_ptr_equal(user, said);
    say("%d<%d:%.*s ", (int)peer, (int)seq, (int)len, (const char *)data);
}

static void on_put_done(void *user, uint64_t peer, uint64_t call, int code)
{
    assert_true(code == 0 || code == -EPIPE);
    say("%d%c%d ", (int)peer, code ? '-' : '+', (int)call);
}

static void on_recall(void *user, uint64_t peer)
{
    say("%d? ", (int)peer);
}

static void on_eof(void *user, uint64_t peer)
{
    say("%d. ", (int)peer);
}

static void on_wake_local(void *user, bool all)
{
    say(all ? "!! " : "! ");
}

static void on_drop(void *user, void *data, size_t len)
{
    say("~%.*s ", (int)len, (const char *)data);
    free(data);
}

static void on_ready(void *user, uint64_t peer, bool ready)
{
    say("%d%c ", (int)peer, ready ? '*' : 'o');
}

static const struct fbr_queue_engine_ops ops = {
    on_deliver, on_put_done, on_recall, on_eof, on_wake_local, on_drop, on_ready,
};

static int open_bounded(size_t max_messages, size_t max_bytes)
{
    const struct fbr_queue_engine_config config = {.max_messages = max_messages,
                                                   .max_bytes = max_bytes};

    queue = fbr_queue_engine_open(&ops, said, &config);
    said[0] = '\0';
    return queue ? 0 : -1;
}

static int open_queue(void **state)
{
    return open_bounded(0, 0);
}

static int close_queue(void **state)
{
    fbr_queue_engine_close(queue);
    return 0;
}

/* What was said since the last look. */
static void assert_said(const char *text)
{
    size_t len = strlen(said);

    if (len)
        said[len - 1] = '\0';
    assert_string_equal(said, text);
    said[0] = '\0';
}

static int put_from(uint64_t peer, uint64_t call, const char *text)
{
    char *data = strdup(text);
    int rc = fbr_queue_engine_put(queue, peer, call, data, strlen(text));

    if (rc < 0)
        free(data);
    return rc;
}

/* Each letter of the text is a message. */
static void put(const char *letters)
{
    char text[2] = "";

    for (; *letters; letters++) {
        text[0] = *letters;
        assert_int_equal(put_from(0, 0, text), 0);
    }
}

static int ask(uint64_t peer, uint64_t taken, uint32_t hungry, uint32_t want)
{
    return fbr_queue_engine_ask(queue, peer, taken, hungry, want);
}

/* The letter that a local get has, or its error. */
static int get(void)
{
    void *data = NULL;
    size_t len;
    int rc = fbr_queue_engine_get(queue, &data, &len);

    if (rc == 0) {
        assert_int_equal(len, 1);
        rc = *(char *)data;
        free(data);
    }
    return rc;
}

static void assert_gets(const char *letters)
{
    for (; *letters; letters++)
        assert_int_equal(get(), *letters);
}

static struct fbr_queue_engine_stats stats(void)
{
    struct fbr_queue_engine_stats s;

    fbr_queue_engine_stats(queue, &s);
    return s;
}

/* ---- in the owner's process ---- */

static void messages_come_in_order(void **state)
{
    assert_int_equal(get(), -EAGAIN);
    for (int i = 0; i < 10; i++) {
        put("abcdefghijklmnopqrstuvwxyz");
        assert_gets("abcdefghijklmnopqrstuvwxy");
        put("ab");
        assert_gets("zab");
    }
    assert_int_equal(get(), -EAGAIN);
    assert_said("");
}

static void a_thread_that_waits_is_woken_for_each_message(void **state)
{
    fbr_queue_engine_wait(queue);
    fbr_queue_engine_wait(queue);
    put("abc");
    assert_said("! !");
    assert_gets("a");
    fbr_queue_engine_unwait(queue);
    assert_said("!"); /* again: whose signal the one was is not known */
    assert_gets("b");
    fbr_queue_engine_unwait(queue);
    assert_gets("c");
    assert_int_equal(get(), -EAGAIN);
    assert_said("");
}

static void a_message_for_a_thread_that_gave_up_goes_to_the_next(void **state)
{
    fbr_queue_engine_wait(queue);
    assert_int_equal(ask(7, 0, 1, 1), 0);
    put("a");
    assert_said("!");
    fbr_queue_engine_unwait(queue);
    assert_said("7<1:a");
}

static void a_thread_that_gives_up_while_it_is_woken_wakes_another(void **state)
{
    fbr_queue_engine_wait(queue);
    fbr_queue_engine_wait(queue);
    put("a");
    assert_said("!");
    fbr_queue_engine_unwait(queue);
    assert_said("!");
    assert_gets("a");
    fbr_queue_engine_unwait(queue);
    assert_said("");
}

static void shut_drains_and_then_ends_every_get(void **state)
{
    put("ab");
    fbr_queue_engine_shut(queue);
    fbr_queue_engine_shut(queue);
    assert_int_equal(put_from(0, 0, "c"), -EPIPE);
    assert_gets("ab");
    assert_int_equal(get(), -EPIPE);
    assert_int_equal(ask(7, 0, 1, 1), 0);
    assert_said("7. !!");
    assert_int_equal(ask(7, 0, 1, 1), 0);
    assert_said("7.");
}

static void shut_wakes_all_that_wait(void **state)
{
    fbr_queue_engine_wait(queue);
    assert_int_equal(ask(7, 0, 2, 9), 0);
    assert_int_equal(ask(8, 0, 0, 9), 0);
    assert_int_equal(ask(9, 0, 1, 9), 0);
    assert_said("");
    fbr_queue_engine_shut(queue);
    assert_said("7. 9. !!");
    assert_int_equal(get(), -EPIPE);
    fbr_queue_engine_unwait(queue);
}

static void memory_is_given_back_after_a_burst(void **state)
{
    for (int i = 0; i < 100000; i++)
        put("x");
    for (int i = 0; i < 100000; i++)
        assert_int_equal(get(), 'x');
    put("abc");
    assert_gets("abc");
}

/* ---- bounds ---- */

static void puts_wait_for_room_in_order(void **state)
{
    fbr_queue_engine_close(queue);
    assert_int_equal(open_bounded(2, 0), 0);
    put("ab");
    assert_int_equal(put_from(0, 1, "c"), 1);
    assert_int_equal(put_from(5, 1, "d"), 1);
    assert_int_equal(put_from(5, 2, "e"), 1);
    assert_gets("a");
    assert_said("0+1");
    assert_int_equal(put_from(5, 3, "f"), 1);
    assert_gets("bc");
    assert_said("5+1 5+2");
    assert_gets("d");
    assert_said("5+3");
    assert_gets("ef");
    assert_int_equal(put_from(5, 4, "g"), 0);
    assert_int_equal(stats().parked, 0);
}

static void a_parked_put_is_either_accepted_or_withdrawn(void **state)
{
    fbr_queue_engine_close(queue);
    assert_int_equal(open_bounded(1, 0), 0);
    put("a");
    assert_int_equal(put_from(3, 1, "b"), 1);
    assert_int_equal(put_from(3, 2, "c"), 1);
    assert_int_equal(fbr_queue_engine_put_cancel(queue, 3, 1), 0);
    assert_said("~b");
    assert_int_equal(fbr_queue_engine_put_cancel(queue, 3, 1), -ENOENT);
    assert_gets("a");
    assert_said("3+2");
    assert_int_equal(fbr_queue_engine_put_cancel(queue, 3, 2), -ENOENT);
    assert_gets("c");
}

static void parked_puts_fail_when_the_queue_is_shut(void **state)
{
    fbr_queue_engine_close(queue);
    assert_int_equal(open_bounded(1, 0), 0);
    put("a");
    assert_int_equal(put_from(3, 1, "b"), 1);
    assert_int_equal(put_from(4, 1, "c"), 1);
    fbr_queue_engine_gone(queue, 4);
    assert_said("~c");
    fbr_queue_engine_shut(queue);
    assert_said("~b 3-1");
    assert_gets("a");
    assert_int_equal(get(), -EPIPE);
}

static void what_consumers_have_not_taken_counts(void **state)
{
    fbr_queue_engine_close(queue);
    assert_int_equal(open_bounded(2, 0), 0);
    assert_int_equal(ask(3, 0, 1, 8), 0);
    put("ab");
    assert_said("3<1:a 3<2:b");
    assert_int_equal(put_from(0, 1, "c"), 1);
    assert_int_equal(ask(3, 1, 0, 8), 0);
    assert_said("~a 0+1 3<3:c");
    assert_int_equal(stats().assigned, 2);
}

/* What a waiting thread got counts as taken, before that is reported; the rest has to be asked for. */
static void messages_ahead_of_the_gets_are_counted_after_a_recall(void **state)
{
    put("abc");
    assert_int_equal(ask(3, 0, 1, 8), 0);
    assert_said("3<1:a 3<2:b 3<3:c");
    assert_int_equal(stats().ahead, 2);
    fbr_queue_engine_settle(queue);
    assert_said("3?");
    assert_int_equal(stats().recalls, 1);
    fbr_queue_engine_settle(queue);
    assert_said(""); /* it is recalled already */
    assert_int_equal(fbr_queue_engine_returned(queue, 3, 3), 0);
    assert_said("~a ~b 3<4:c"); /* it reads ahead again */
    assert_int_equal(stats().recalls, 0);
    assert_int_equal(stats().ahead + stats().waiting, 1);
}

static void a_bound_in_bytes_lets_any_single_message_in(void **state)
{
    fbr_queue_engine_close(queue);
    assert_int_equal(open_bounded(0, 4), 0);
    assert_int_equal(put_from(0, 1, "abc"), 0);
    assert_int_equal(put_from(0, 2, "defgh"), 0);
    assert_int_equal(stats().bytes, 8);
    assert_int_equal(put_from(0, 3, ""), 1);
    assert_int_equal(ask(3, 0, 1, 1), 0);
    assert_int_equal(ask(3, 1, 0, 1), 0);
    assert_said("3<1:abc ~abc 3<2:defgh");
    assert_int_equal(ask(3, 2, 0, 1), 0);
    assert_said("~defgh 0+3 3<3:");
}

/* ---- remote consumers ---- */

static void a_single_consumer_is_given_what_it_wants_ahead(void **state)
{
    put("abcde");
    assert_int_equal(ask(3, 0, 1, 3), 0);
    assert_said("3<1:a 3<2:b 3<3:c");
    assert_int_equal(ask(3, 0, 1, 3), 0); /* a state, not an increment */
    assert_said("");
    assert_int_equal(ask(3, 2, 0, 3), 0);
    assert_said("~a ~b 3<4:d 3<5:e");
    put("f");
    assert_said("");
    assert_int_equal(ask(3, 3, 0, 3), 0);
    assert_said("~c 3<6:f");
}

static void the_hungry_are_served_in_turn(void **state)
{
    assert_int_equal(ask(3, 0, 2, 8), 0);
    assert_int_equal(ask(4, 0, 2, 8), 0);
    fbr_queue_engine_wait(queue);
    put("abcdef");
    assert_said("3<1:a 4<1:b ! 3<2:c 4<2:d");
    assert_gets("ef");
    fbr_queue_engine_unwait(queue);
}

static void another_hungry_consumer_recalls_what_was_read_ahead(void **state)
{
    put("abcdefg");
    assert_int_equal(ask(3, 0, 1, 5), 0);
    assert_said("3<1:a 3<2:b 3<3:c 3<4:d 3<5:e");
    assert_int_equal(ask(4, 0, 1, 5), 0);
    assert_said("3?");
    assert_int_equal(ask(5, 0, 1, 5), 0);
    assert_said("");
    assert_int_equal(fbr_queue_engine_returned(queue, 3, 3), 0);
    assert_said("~a ~b 4<1:c 5<1:d"); /* 3 has nothing ahead now and asks when it is hungry again */
    assert_int_equal(stats().waiting, 3);
    assert_int_equal(ask(3, 5, 1, 5), 0);
    assert_said("3<6:e");
    assert_int_equal(ask(4, 1, 1, 5), 0);
    assert_said("~c 4<2:f");
}

static void a_reader_in_the_owner_recalls_as_well(void **state)
{
    put("abc");
    assert_int_equal(ask(3, 0, 1, 5), 0);
    assert_said("3<1:a 3<2:b 3<3:c");
    put("d");
    assert_said("3<4:d");
    assert_int_equal(get(), -EINPROGRESS);
    assert_said("3?");
    fbr_queue_engine_wait(queue);
    assert_int_equal(get(), -EINPROGRESS);
    assert_int_equal(fbr_queue_engine_returned(queue, 3, 2), 0);
    assert_said("~a !");
    assert_gets("b");
    fbr_queue_engine_unwait(queue);
    assert_gets("cd");
    assert_int_equal(get(), -EAGAIN);
}

static void a_lone_reader_may_read_ahead_again(void **state)
{
    uint64_t taken = 0;

    assert_int_equal(ask(3, 0, 1, 1), 0);
    assert_int_equal(ask(4, 0, 1, 8), 0);
    fbr_queue_engine_gone(queue, 3);
    for (int i = 0; i < 200; i++)
        put("x");
    while (stats().assigned < 8 && taken < 200)
        assert_int_equal(ask(4, ++taken, 1, 8), 0);
    assert_true(taken < 100);
}

static void a_dead_consumers_messages_go_to_the_front_in_order(void **state)
{
    put("abcdef");
    assert_int_equal(ask(3, 0, 1, 4), 0);
    assert_said("3<1:a 3<2:b 3<3:c 3<4:d");
    assert_int_equal(ask(3, 1, 0, 4), 0);
    assert_said("~a 3<5:e");
    fbr_queue_engine_gone(queue, 3);
    assert_said("");
    assert_int_equal(stats().waiting, 5);
    put("g");
    assert_gets("bcdefg");
}

static void what_comes_back_from_several_is_merged_in_order(void **state)
{
    assert_int_equal(ask(3, 0, 3, 3), 0);
    assert_int_equal(ask(4, 0, 2, 3), 0);
    put("abcdefg");
    assert_said("3<1:a 4<1:b 3<2:c 4<2:d 3<3:e");
    fbr_queue_engine_gone(queue, 4);
    assert_int_equal(ask(5, 0, 1, 1), 0);
    assert_said("5<1:b");
    fbr_queue_engine_gone(queue, 3);
    fbr_queue_engine_gone(queue, 5);
    assert_gets("abcdefg");
}

static void a_hungry_consumer_gets_what_a_death_frees(void **state)
{
    put("ab");
    assert_int_equal(ask(3, 0, 2, 2), 0);
    assert_int_equal(ask(4, 0, 1, 2), 0);
    assert_said("3<1:a 3<2:b"); /* both are hungered for: no recall */
    fbr_queue_engine_gone(queue, 3);
    assert_said("4<1:a");
}

static void a_recall_that_takes_too_long_holds_nobody_back(void **state)
{
    put("abcd");
    assert_int_equal(ask(3, 0, 0, 2), 0);
    assert_int_equal(ask(3, 0, 1, 2), 0);
    assert_int_equal(ask(4, 0, 1, 2), 0);
    assert_said("3<1:a 3<2:b 3?");
    fbr_queue_engine_overdue(queue, 3);
    fbr_queue_engine_overdue(queue, 3);
    assert_said("4<1:c");
    assert_int_equal(ask(4, 1, 1, 2), 0);
    assert_said("~c 4<2:d");
    assert_int_equal(ask(4, 2, 1, 2), 0);
    assert_said("~d");
    assert_int_equal(fbr_queue_engine_returned(queue, 3, 1), 0);
    assert_said("4<3:a 3<3:b"); /* 4 stood in line first */
}

static void what_a_late_consumer_holds_takes_no_room(void **state)
{
    fbr_queue_engine_close(queue);
    assert_int_equal(open_bounded(2, 0), 0);
    put("ab");
    assert_int_equal(ask(3, 0, 0, 2), 0);
    assert_int_equal(ask(3, 0, 1, 2), 0);
    assert_said("3<1:a 3<2:b");
    assert_int_equal(put_from(5, 7, "c"), 1);
    assert_int_equal(ask(4, 0, 1, 2), 0);
    assert_said("3?");
    fbr_queue_engine_overdue(queue, 3);
    assert_said("5+7 4<1:c");
    assert_int_equal(stats().late, 2);
    assert_int_equal(put_from(5, 8, "d"), 0);
    assert_int_equal(fbr_queue_engine_returned(queue, 3, 1), 0);
    assert_said("3<3:a");
    assert_int_equal(stats().late, 0);
    assert_int_equal(put_from(5, 9, "e"), 1); /* there are four now */
    assert_int_equal(ask(4, 1, 2, 2), 0);
    assert_said("~c 4<2:b 4<3:d");
    assert_int_equal(ask(4, 3, 0, 0), 0);
    assert_said("~b ~d 5+9");
}

static void messages_that_fill_a_bounded_queue_are_asked_back_under_pressure(void **state)
{
    fbr_queue_engine_close(queue);
    assert_int_equal(open_bounded(1, 0), 0);
    assert_int_equal(ask(3, 0, 1, 1), 0);
    put("a");
    assert_said("3<1:a");
    fbr_queue_engine_press(queue);
    assert_int_equal(put_from(5, 1, "b"), 1);
    fbr_queue_engine_press(queue); /* nobody waits for it */
    assert_said("");
    assert_int_equal(ask(4, 0, 1, 1), 0);
    assert_said("");
    fbr_queue_engine_press(queue);
    fbr_queue_engine_press(queue);
    assert_said("3?");
    fbr_queue_engine_overdue(queue, 3);
    assert_said("5+1 4<1:b");
    fbr_queue_engine_gone(queue, 3);
    assert_int_equal(stats().waiting, 1);
}

static void end_of_file_waits_for_what_is_on_its_way(void **state)
{
    put("a");
    assert_int_equal(ask(3, 0, 1, 1), 0);
    assert_int_equal(ask(4, 0, 1, 1), 0);
    assert_said("3<1:a");
    fbr_queue_engine_shut(queue);
    assert_said("3?"); /* did it take it? */
    assert_int_equal(fbr_queue_engine_returned(queue, 3, 2), 0);
    assert_said("~a 4. !!");
}

static void end_of_file_comes_after_a_message_that_came_back(void **state)
{
    put("a");
    assert_int_equal(ask(3, 0, 1, 1), 0);
    assert_int_equal(ask(4, 0, 1, 1), 0);
    fbr_queue_engine_shut(queue);
    assert_said("3<1:a 3?");
    fbr_queue_engine_gone(queue, 3);
    assert_said("4<1:a");
    assert_int_equal(ask(4, 1, 1, 1), 0);
    assert_said("~a 4. !!");
}

/* As from a stream that its reader leaves after the other end has gone. */
static void a_message_that_is_here_already_comes_after_the_shut(void **state)
{
    put("a");
    assert_int_equal(ask(3, 0, 1, 1), 0);
    assert_int_equal(ask(3, 1, 1, 1), 0);
    fbr_queue_engine_shut(queue);
    assert_said("3<1:a ~a 3. !!");
    assert_int_equal(put_from(7, 1, "b"), -EPIPE);
    assert_int_equal(put_from(7, FBR_QUEUE_OURS + 1, "b"), 0);
    assert_int_equal(put_from(7, FBR_QUEUE_OURS + 2, "c"), 0);
    assert_int_equal(ask(3, 1, 1, 1), 0);
    assert_said("3<2:b");
    assert_gets("c");
    assert_int_equal(ask(3, 2, 1, 1), 0);
    assert_said("~b 3. !!");
    assert_int_equal(get(), -EPIPE);
}

static void messages_that_were_sent_before_go_to_the_mark(void **state)
{
    put("a");
    fbr_queue_engine_mark(queue);
    put("de");
    fbr_queue_engine_await(queue, true);
    assert_int_equal(get(), -EINPROGRESS);
    assert_int_equal(ask(3, 0, 1, 1), 0);
    assert_int_equal(put_from(7, FBR_QUEUE_EARLIER + 1, "b"), 0);
    assert_int_equal(put_from(7, FBR_QUEUE_EARLIER + 2, "c"), 0);
    assert_said("");
    fbr_queue_engine_await(queue, false);
    assert_said("3<1:a");
    assert_int_equal(ask(3, 1, 0, 0), 0);
    assert_said("~a");
    assert_gets("bcde");
    assert_int_equal(get(), -EAGAIN);
}

static void the_end_waits_for_messages_that_were_sent_before(void **state)
{
    fbr_queue_engine_await(queue, true);
    assert_int_equal(ask(3, 0, 1, 1), 0);
    fbr_queue_engine_shut(queue);
    assert_int_equal(get(), -EINPROGRESS);
    assert_said("");
    assert_int_equal(put_from(7, FBR_QUEUE_EARLIER + 1, "a"), 0);
    fbr_queue_engine_await(queue, false);
    assert_said("3<1:a");
    assert_int_equal(ask(3, 1, 1, 1), 0);
    assert_said("~a 3. !!");
}

static void what_cannot_be_is_refused(void **state)
{
    put("abc");
    assert_int_equal(ask(0, 0, 1, 1), -EPROTO);
    assert_int_equal(ask(3, 0, 2, 1), -EPROTO);
    assert_int_equal(ask(3, 1, 1, 1), -EPROTO);
    assert_int_equal(fbr_queue_engine_returned(queue, 3, 1), -EPROTO);
    assert_int_equal(ask(3, 0, 1, 2), 0);
    assert_int_equal(ask(3, 3, 1, 2), -EPROTO);
    assert_int_equal(fbr_queue_engine_returned(queue, 3, 1), -EPROTO);
    assert_int_equal(ask(3, 1, 0, 2), 0);
    assert_int_equal(ask(4, 0, 1, 1), 0);
    assert_said("3<1:a 3<2:b ~a 3<3:c 3?");
    assert_int_equal(fbr_queue_engine_returned(queue, 3, 1), -EPROTO);
    assert_int_equal(fbr_queue_engine_returned(queue, 3, 5), -EPROTO);
    assert_int_equal(fbr_queue_engine_returned(queue, 3, 4), 0);
    assert_int_equal(fbr_queue_engine_returned(queue, 3, 4), -EPROTO);
    fbr_queue_engine_gone(queue, 99);
    fbr_queue_engine_overdue(queue, 99);
    fbr_queue_engine_unwait(queue);
    fbr_queue_engine_gone(queue, 0);
}

/* Of 10 messages of another process, which count, three fit; those of the owner do not count. */
static void messages_of_others_are_counted(void **state)
{
    struct fbr_held held = {.limit = 200};
    const struct fbr_queue_engine_config config = {.held = &held, .max_messages = 2};
    size_t len;
    void *data;

    fbr_queue_engine_close(queue);
    queue = fbr_queue_engine_open(&ops, said, &config);
    assert_int_equal(put_from(1, 1, "a"), 0);
    assert_int_equal(put_from(1, 2, "b"), 0);
    assert_int_equal(put_from(1, 3, "c"), 1); /* parked */
    for (uint64_t i = 4; i < 11; i++)
        assert_int_equal(put_from(1, i, "d"), -ENOBUFS);
    assert_int_equal(put_from(0, 1, "e"), 1);
    assert_int_equal(fbr_queue_engine_get(queue, &data, &len), 0);
    free(data);
    assert_int_equal(put_from(1, 11, "f"), 1); /* there is room again */
    assert_int_equal(put_from(1, 12, "g"), -ENOBUFS);
    assert_int_equal(fbr_queue_engine_ask(queue, 2, 0, 1, 1), 0);
    assert_int_equal(fbr_queue_engine_ask(queue, 2, 1, 0, 0), 0);
    fbr_queue_engine_gone(queue, 1);
    fbr_queue_engine_shut(queue);
    fbr_queue_engine_close(queue);
    queue = NULL;
    assert_int_equal(held.bytes, 0);
}

static void close_drops_everything(void **state)
{
    fbr_queue_engine_close(queue);
    assert_int_equal(open_bounded(3, 0), 0);
    put("abc");
    assert_int_equal(put_from(3, 1, "d"), 1);
    assert_int_equal(ask(3, 0, 1, 1), 0);
    said[0] = '\0';
    fbr_queue_engine_close(queue);
    assert_said("~d ~a ~b ~c");
    fbr_queue_engine_close(NULL);
    queue = NULL;
}

static void who_watches_is_told_of_changes_only(void **state)
{
    put("a");
    assert_int_equal(fbr_queue_engine_watch(queue, 3), 0);
    assert_said("3*");
    assert_int_equal(fbr_queue_engine_watch(queue, 0), 0);
    assert_said("0*");
    put("b");
    assert_int_equal(get(), 'a');
    assert_said("");
    assert_int_equal(get(), 'b');
    assert_said("0o 3o");
    fbr_queue_engine_gone(queue, 3);
    put("c");
    assert_said("0*");
    fbr_queue_engine_shut(queue);
    assert_int_equal(get(), 'c');
    assert_said("");
    assert_int_equal(get(), -EPIPE);
}

static void what_a_hungry_consumer_gets_is_nothing_to_be_told_of(void **state)
{
    assert_int_equal(fbr_queue_engine_watch(queue, 3), 0);
    assert_int_equal(ask(4, 0, 1, 8), 0);
    put("a");
    assert_said("4<1:a");
    assert_int_equal(ask(4, 1, 0, 8), 0);
    assert_said("~a");
    put("b");
    assert_said("3*");
    assert_int_equal(ask(3, 0, 1, 1), 0);
    assert_said("3<1:b 3o");
    fbr_queue_engine_shut(queue);
    assert_said("");
    assert_int_equal(ask(3, 1, 0, 1), 0);
    assert_said("~b 3*");
}

static void nobody_reads_ahead_of_a_watcher(void **state)
{
    assert_int_equal(ask(3, 0, 1, 4), 0);
    put("abc");
    assert_said("3<1:a 3<2:b 3<3:c");
    assert_int_equal(fbr_queue_engine_watch(queue, 4), 0);
    assert_said("3?");
    assert_int_equal(fbr_queue_engine_returned(queue, 3, 2), 0);
    assert_said("~a 4*");
    assert_int_equal(ask(3, 1, 0, 4), 0);
    assert_said("");
    assert_int_equal(fbr_queue_engine_watch(queue, 3), 0);
    assert_said("3*");
    fbr_queue_engine_gone(queue, 4);
    assert_int_equal(ask(3, 1, 1, 4), 0); /* the only watcher may again */
    assert_said("3<4:b 3<5:c 3o");
}

/* ---- finished messages ---- */

static int done(uint64_t peer)
{
    return fbr_queue_engine_done(queue, peer);
}

static void join_waits_until_every_message_is_finished(void **state)
{
    assert_int_equal(fbr_queue_engine_joined(queue), 0);
    assert_int_equal(done(0), -ERANGE);
    put("ab");
    assert_int_equal(ask(3, 0, 1, 1), 0);
    assert_int_equal(ask(3, 1, 0, 0), 0);
    assert_gets("b");
    assert_int_equal(fbr_queue_engine_joined(queue), -EAGAIN);
    assert_int_equal(done(0), 0);
    assert_int_equal(fbr_queue_engine_joined(queue), -EAGAIN);
    assert_int_equal(done(3), 0);
    assert_int_equal(fbr_queue_engine_joined(queue), 0);
    assert_int_equal(done(3), -ERANGE);
}

static void a_message_that_comes_back_is_counted_once(void **state)
{
    put("a");
    assert_int_equal(ask(3, 0, 1, 1), 0);
    fbr_queue_engine_gone(queue, 3);
    assert_gets("a");
    assert_int_equal(done(0), 0);
    assert_int_equal(fbr_queue_engine_joined(queue), 0);
    assert_int_equal(done(0), -ERANGE);
}

static void join_does_not_wait_for_the_dead(void **state)
{
    put("ab");
    assert_int_equal(ask(3, 0, 1, 1), 0);
    assert_int_equal(ask(3, 1, 0, 0), 0); /* it has taken a */
    fbr_queue_engine_gone(queue, 3);
    assert_int_equal(fbr_queue_engine_joined(queue), -EAGAIN); /* b waits for a receiver */
    assert_gets("b");
    assert_int_equal(fbr_queue_engine_joined(queue), -EAGAIN);
    assert_int_equal(done(0), 0);
    assert_int_equal(fbr_queue_engine_joined(queue), -EOWNERDEAD);
    assert_int_equal(done(0), 0); /* in place of the dead one */
    assert_int_equal(fbr_queue_engine_joined(queue), 0);
}

static void another_may_finish_what_one_took(void **state)
{
    put("a");
    assert_int_equal(ask(3, 0, 1, 1), 0);
    assert_int_equal(ask(3, 1, 0, 1), 0);
    assert_int_equal(done(4), 0);
    assert_int_equal(fbr_queue_engine_joined(queue), 0);
    fbr_queue_engine_gone(queue, 3);
    assert_int_equal(fbr_queue_engine_joined(queue), 0);
}

/* ---- dealing ---- */

/* Peers 3 and 4 have been hungry once and are not any more; all that was put is taken. */
static void deal_to_two(void)
{
    fbr_queue_engine_deal(queue);
    assert_int_equal(ask(3, 0, 1, 9), 0);
    put("x");
    assert_int_equal(ask(3, 1, 0, 9), 0);
    assert_int_equal(ask(4, 0, 1, 9), 0);
    put("yz"); /* 3 is the next one */
    assert_int_equal(ask(3, 1, 1, 9), 0);
    assert_int_equal(ask(3, 2, 0, 9), 0);
    assert_int_equal(ask(4, 1, 0, 9), 0);
    assert_int_equal(stats().waiting + stats().assigned, 0);
    said[0] = '\0';
}

static void messages_are_dealt_in_turn_whoever_is_hungry(void **state)
{
    deal_to_two();
    assert_int_equal(ask(3, 2, 1, 9), 0);
    put("abcd");
    assert_said("3<3:a");
    assert_int_equal(ask(3, 3, 1, 9), 0);
    assert_said("~a 3<4:c");
    assert_int_equal(ask(3, 4, 1, 9), 0);
    assert_said("~c"); /* the others are not its own */
    assert_int_equal(ask(4, 1, 2, 9), 0);
    assert_said("4<2:b 4<3:d");
}

static void a_share_goes_to_the_others_when_its_consumer_dies(void **state)
{
    deal_to_two();
    put("abcd");
    assert_said("");
    assert_int_equal(ask(4, 1, 1, 9), 0);
    assert_said("4<2:b");
    fbr_queue_engine_gone(queue, 3);
    assert_int_equal(ask(4, 2, 3, 9), 0);
    assert_said("~b 4<3:a 4<4:c 4<5:d");
}

static void shares_stay_when_a_consumer_goes_that_has_taken_its_own(void **state)
{
    deal_to_two();
    assert_int_equal(ask(5, 0, 1, 9), 0);
    put("abc");
    assert_said("5<1:c");
    put("def");
    assert_int_equal(ask(5, 1, 1, 9), 0);
    assert_int_equal(ask(3, 2, 2, 9), 0);
    assert_int_equal(ask(3, 4, 0, 9), 0);
    assert_said("~c 5<2:f 3<3:a 3<4:d ~a ~d");
    fbr_queue_engine_gone(queue, 3);
    assert_int_equal(ask(5, 2, 1, 9), 0);
    assert_said("~f");
    assert_int_equal(ask(4, 1, 2, 9), 0);
    assert_said("4<2:b 4<3:e");
}

static void a_new_consumer_gets_a_share_of_what_waits(void **state)
{
    fbr_queue_engine_deal(queue);
    put("abcd");
    assert_int_equal(ask(3, 0, 1, 9), 0);
    assert_said("3<1:a");
    assert_int_equal(ask(4, 0, 1, 9), 0);
    assert_said("4<1:c");
    assert_int_equal(ask(3, 1, 2, 9), 0);
    assert_said("~a 3<2:b 3<3:d");
}

static void the_owner_has_a_share_too(void **state)
{
    fbr_queue_engine_deal(queue);
    assert_int_equal(get(), -EAGAIN);
    assert_int_equal(ask(3, 0, 2, 9), 0);
    put("abcd");
    assert_said("! 3<1:b ! 3<2:d");
    assert_gets("ac");
    assert_int_equal(get(), -EAGAIN);
    fbr_queue_engine_shut(queue);
    assert_int_equal(get(), -EAGAIN); /* 3 may die, and b come back */
    assert_int_equal(ask(3, 2, 1, 9), 0);
    assert_said("~b ~d 3. !!");
    assert_int_equal(get(), -EPIPE);
}

static void the_owner_takes_the_last_share_and_ends_the_waits_of_others(void **state)
{
    fbr_queue_engine_deal(queue);
    assert_int_equal(get(), -EAGAIN);
    assert_int_equal(ask(3, 0, 1, 9), 0);
    put("ab");
    fbr_queue_engine_shut(queue);
    assert_int_equal(ask(3, 1, 1, 9), 0);
    assert_said("! 3<1:b ~b");
    assert_gets("a");
    assert_said("3. !!");
}

static void a_queue_may_begin_to_deal_at_any_time(void **state)
{
    assert_int_equal(ask(3, 0, 1, 1), 0);
    put("abc");
    assert_said("3<1:a");
    fbr_queue_engine_wait(queue); /* b is reserved for a thread of the owner */
    assert_said("!");
    fbr_queue_engine_deal(queue);
    assert_said("!");
    assert_gets("b");
    fbr_queue_engine_unwait(queue);
    assert_int_equal(get(), -EAGAIN);
    assert_int_equal(ask(3, 1, 1, 1), 0);
    assert_said("~a 3<2:c");
}

static void who_watches_is_told_of_its_own_share(void **state)
{
    deal_to_two();
    assert_int_equal(fbr_queue_engine_watch(queue, 4), 0);
    put("a");
    assert_said("");
    put("b");
    assert_said("4*");
    assert_int_equal(ask(4, 1, 1, 9), 0);
    assert_said("4<2:b 4o");
}

int main(void)
{
#define BEHAVIOUR(name) cmocka_unit_test_setup_teardown(name, open_queue, close_queue)
    const struct CMUnitTest tests[] = {
        BEHAVIOUR(messages_come_in_order),
        BEHAVIOUR(a_thread_that_waits_is_woken_for_each_message),
        BEHAVIOUR(a_message_for_a_thread_that_gave_up_goes_to_the_next),
        BEHAVIOUR(a_thread_that_gives_up_while_it_is_woken_wakes_another),
        BEHAVIOUR(shut_drains_and_then_ends_every_get),
        BEHAVIOUR(shut_wakes_all_that_wait),
        BEHAVIOUR(memory_is_given_back_after_a_burst),
        BEHAVIOUR(puts_wait_for_room_in_order),
        BEHAVIOUR(a_parked_put_is_either_accepted_or_withdrawn),
        BEHAVIOUR(parked_puts_fail_when_the_queue_is_shut),
        BEHAVIOUR(what_consumers_have_not_taken_counts),
        BEHAVIOUR(messages_ahead_of_the_gets_are_counted_after_a_recall),
        BEHAVIOUR(a_bound_in_bytes_lets_any_single_message_in),
        BEHAVIOUR(a_single_consumer_is_given_what_it_wants_ahead),
        BEHAVIOUR(the_hungry_are_served_in_turn),
        BEHAVIOUR(another_hungry_consumer_recalls_what_was_read_ahead),
        BEHAVIOUR(a_reader_in_the_owner_recalls_as_well),
        BEHAVIOUR(a_lone_reader_may_read_ahead_again),
        BEHAVIOUR(a_dead_consumers_messages_go_to_the_front_in_order),
        BEHAVIOUR(what_comes_back_from_several_is_merged_in_order),
        BEHAVIOUR(a_hungry_consumer_gets_what_a_death_frees),
        BEHAVIOUR(a_recall_that_takes_too_long_holds_nobody_back),
        BEHAVIOUR(what_a_late_consumer_holds_takes_no_room),
        BEHAVIOUR(messages_that_fill_a_bounded_queue_are_asked_back_under_pressure),
        BEHAVIOUR(end_of_file_waits_for_what_is_on_its_way),
        BEHAVIOUR(end_of_file_comes_after_a_message_that_came_back),
        BEHAVIOUR(a_message_that_is_here_already_comes_after_the_shut),
        BEHAVIOUR(messages_that_were_sent_before_go_to_the_mark),
        BEHAVIOUR(the_end_waits_for_messages_that_were_sent_before),
        BEHAVIOUR(who_watches_is_told_of_changes_only),
        BEHAVIOUR(what_a_hungry_consumer_gets_is_nothing_to_be_told_of),
        BEHAVIOUR(nobody_reads_ahead_of_a_watcher),
        BEHAVIOUR(join_waits_until_every_message_is_finished),
        BEHAVIOUR(a_message_that_comes_back_is_counted_once),
        BEHAVIOUR(join_does_not_wait_for_the_dead),
        BEHAVIOUR(another_may_finish_what_one_took),
        BEHAVIOUR(messages_are_dealt_in_turn_whoever_is_hungry),
        BEHAVIOUR(a_share_goes_to_the_others_when_its_consumer_dies),
        BEHAVIOUR(shares_stay_when_a_consumer_goes_that_has_taken_its_own),
        BEHAVIOUR(a_new_consumer_gets_a_share_of_what_waits),
        BEHAVIOUR(the_owner_has_a_share_too),
        BEHAVIOUR(the_owner_takes_the_last_share_and_ends_the_waits_of_others),
        BEHAVIOUR(a_queue_may_begin_to_deal_at_any_time),
        BEHAVIOUR(who_watches_is_told_of_its_own_share),
        BEHAVIOUR(what_cannot_be_is_refused),
        BEHAVIOUR(messages_of_others_are_counted),
        BEHAVIOUR(close_drops_everything),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
