/* kube_watch_test.c - one list and one watch, against a server that ends streams, forgets versions, and comes in pages.
 *
 * What the watch tells is written down as a text: L and l are the begin and the end of a list, +a a pod, -a one that
 * was deleted, T a trouble.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <semaphore.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "backends/http/json.h"
#include "backends/kubernetes/pod_watch.h"
#include "tests/support/http_server.h"
#include "tests/support/sync.h"

#define POD(name, version) \
    "{\"metadata\":{\"name\":\"" name "\",\"resourceVersion\":\"" version "\"}}"
#define LIST(items, version, more)                                            \
    "{\"metadata\":{\"resourceVersion\":\"" version "\",\"continue\":\"" more \
    "\"},\"items\":[" items "]}"
#define EVENT(type, object) "{\"type\":\"" type "\",\"object\":" object "}\n"
#define EXPIRED EVENT("ERROR", "{\"kind\":\"Status\",\"code\":410,\"reason\":\"Expired\"}")

/* What is asked for, in its order, and what is answered; a status of 0 ends it: that request is the last. */
struct step {
    const char *asks;
    int status;
    const char *body;
};

struct bench {
    const struct step *steps;
    int late; /* the number of the request that is answered as from a busy machine; 0: none */
    struct http_server *server;
    struct fbr_loop *loop;
    struct fbr_kube_api api;
    struct fbr_kube_watch *watch;
    sem_t last;
    char url[64], told[256], wrong[600];
    uint64_t came_ms, pause_ms; /* when a request came; the ms before the last list */
};

static bool answer(struct http_peer *p, const struct http_asked *q, void *user)
{
    struct bench *b = user;
    const struct step *s = &b->steps[q->number - 1];

    if (!strstr(q->path, s->asks) && !b->wrong[0])
        snprintf(b->wrong, sizeof(b->wrong), "request %d is %s, not %s", q->number, q->path,
                 s->asks);
    if (q->number == b->late)
        let_time_pass(1200);
    if (strstr(q->path, "limit="))
        b->pause_ms = fbr_now_ms() - b->came_ms;
    b->came_ms = fbr_now_ms();
    if (s->status)
        return http_say(p, s->status, "", s->body);
    sem_post(&b->last);
    http_wait_for_end(p);
    return false;
}

static void note(struct bench *b, const char *sign, const char *name)
{
    size_t n = strlen(b->told);

    snprintf(b->told + n, sizeof(b->told) - n, "%s%s", sign, name);
}

static void on_pod(void *user, const struct json_t *pod, bool deleted)
{
    note(user, deleted ? "-" : "+", fbr_json_text(pod, "metadata", "name", NULL));
}

static void on_listing(void *user)
{
    note(user, "L", "");
}

static void on_listed(void *user)
{
    note(user, "l", "");
}

static void on_trouble(void *user, const char *text)
{
    note(user, text[0] ? "T" : "?", "");
}

static int set_up(void *arg)
{
    static const struct fbr_kube_watch_ops ops = {on_pod, on_listing, on_listed, on_trouble};
    struct bench *b = arg;
    struct fbr_http_options *o = b->api.options;

    o->url = b->url;
    snprintf(b->url, sizeof(b->url), "http://127.0.0.1:%d", http_server_port(b->server));
    b->api.loop = b->loop;
    b->api.config.server = b->url;
    b->api.namespace_ = "n";
    if (fbr_kube_creds_open(&b->api.creds, &b->api.config, NULL) < 0 ||
        fbr_http_open(&b->api.calls, b->loop, o, NULL) < 0 ||
        fbr_http_open(&b->api.streams, b->loop, o, NULL) < 0)
        return -1;
    return fbr_kube_watch_open(&b->watch, &b->api, "run%3Dx", &ops, b, NULL);
}

static int tear_down(void *arg)
{
    struct bench *b = arg;

    fbr_kube_watch_close(b->watch);
    fbr_http_close(b->api.calls);
    fbr_http_close(b->api.streams);
    fbr_kube_creds_close(b->api.creds);
    return 0;
}

/* Returns the ms between the last list and the request before it. */
static uint64_t play_late(const struct step *steps, int late, const char *want)
{
    struct bench b = {.steps = steps, .late = late};
    struct timespec until;

    assert_int_equal(sem_init(&b.last, 0, 0), 0);
    b.server = http_server_open(NULL, false, answer, &b);
    assert_non_null(b.server);
    assert_int_equal(fbr_loop_open(&b.loop, NULL), 0);
    assert_int_equal(fbr_loop_call(b.loop, set_up, &b), 0);
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += 60;
    if (sem_timedwait(&b.last, &until) < 0)
        fail_msg("the last request has not come; told: '%s'", b.told);
    assert_int_equal(fbr_loop_call(b.loop, tear_down, &b), 0);
    fbr_loop_close(b.loop);
    http_server_close(b.server);
    sem_destroy(&b.last);
    assert_string_equal(b.wrong, "");
    assert_string_equal(b.told, want);
    return b.pause_ms;
}

static uint64_t play(const struct step *steps, const char *want)
{
    return play_late(steps, 0, want);
}

static void a_watch_goes_on_where_it_was(void **state)
{
    static const struct step steps[] = {
        {"pods?labelSelector=run%3Dx&limit=", 200, LIST(POD("a", "3"), "10", "")},
        {"watch=1&allowWatchBookmarks=true&resourceVersion=10", 200,
         EVENT("ADDED", POD("b", "11")) EVENT("MODIFIED", POD("a", "12"))},
        {"resourceVersion=12", 200,
         EVENT("DELETED", POD("a", "13")) EVENT("BOOKMARK", POD("", "20"))},
        {"resourceVersion=20", 0, ""},
    };

    play(steps, "L+al+b+a-a");
}

#define X10(x) x x x x x x x x x x

/* The mark of the next page may be long. */
static void a_list_comes_in_pages(void **state)
{
    static const struct step steps[] = {
        {"limit=", 200, LIST(POD("a", "1"), "10", "next=1" X10(X10(X10("xx"))))},
        {"continue=next%3D1", 200, LIST(POD("b", "2"), "10", "")},
        {"resourceVersion=10", 0, ""},
    };

    play(steps, "L+a+bl");
}

static void a_version_that_is_too_old_is_listed_again(void **state)
{
    static const struct step in_the_stream[] = {
        {"limit=", 200, LIST(POD("a", "1"), "10", "")},
        {"resourceVersion=10", 200, EVENT("MODIFIED", POD("a", "11")) EXPIRED},
        {"limit=", 200, LIST("", "90", "")},
        {"resourceVersion=90", 0, ""},
    };
    static const struct step as_a_status[] = {
        {"limit=", 200, LIST(POD("a", "1"), "10", "")},
        {"resourceVersion=10", 410, "{}"},
        {"limit=", 200, LIST(POD("a", "1"), "90", "")},
        {"resourceVersion=90", 0, ""},
    };

    play(in_the_stream, "L+al+aLl");
    play(as_a_status, "L+alL+al");
}

/* The pauses of a server that was away do not count once it answers, but a server that forgets each version at once is
 * not asked without a pause. */
static void a_version_that_is_forgotten_at_once_is_listed_soon(void **state)
{
    static const struct step after_failures[] = {
        {"limit=", 200, LIST("", "10", "")}, {"resourceVersion=10", 503, "{}"},
        {"resourceVersion=10", 503, "{}"},   {"resourceVersion=10", 503, "{}"},
        {"resourceVersion=10", 410, "{}"},   {"limit=", 200, LIST("", "20", "")},
        {"resourceVersion=20", 0, ""},
    };
    static const struct step always[] = {
        {"limit=", 200, LIST("", "10", "")}, {"resourceVersion=10", 410, "{}"},
        {"limit=", 200, LIST("", "10", "")}, {"resourceVersion=10", 410, "{}"},
        {"limit=", 200, LIST("", "10", "")}, {"resourceVersion=10", 0, ""},
    };

    assert_in_range(play(after_failures, "LlLl"), 0, 950);
    assert_in_range(play(always, "LlLlLl"), 100, 60000);
}

static void pages_that_are_too_old_begin_again(void **state)
{
    static const struct step steps[] = {
        {"limit=", 200, LIST(POD("a", "1"), "10", "next")},
        {"continue=next", 410, "{}"},
        {"limit=", 200, LIST(POD("a", "1"), "20", "")},
        {"resourceVersion=20", 0, ""},
    };

    play(steps, "L+aL+al");
}

static void a_list_that_is_too_old_or_refused_for_now_is_asked_for_again(void **state)
{
    static const struct step steps[] = {
        {"limit=", 429, "{}"},
        {"limit=", 410, "{}"},
        {"limit=", 200, "{\"items\": [{\"meta"},
        {"limit=", 200, LIST(POD("a", "1"), "20", "")},
        {"resourceVersion=20", 0, ""},
    };

    play(steps, "LLTL+al");
}

static void streams_that_end_at_once_are_listed_again(void **state)
{
    static const struct step steps[] = {
        {"limit=", 200, LIST("", "10", "")}, {"resourceVersion=10", 200, ""},
        {"resourceVersion=10", 200, ""},     {"resourceVersion=10", 200, ""},
        {"limit=", 200, LIST("", "11", "")}, {"resourceVersion=11", 0, ""},
    };

    play_late(steps, 3, "LlLl");
}

static void what_is_no_event_is_passed_over(void **state)
{
    static const struct step steps[] = {
        {"limit=", 200, LIST("", "10", "")},
        {"resourceVersion=10", 200,
         "\n{}\nnonsense\n{\"type\":7,\"object\":[]}\n" EVENT("ADDED",
                                                              POD("a", "11")) "{\"type\":"},
        {"resourceVersion=11", 0, ""},
    };

    play(steps, "Ll+a");
}

static void an_event_that_is_too_long_is_listed_again(void **state)
{
    static const char next[] = "\n" EVENT("ADDED", POD("b", "12"));
    char *body = malloc(FBR_JSON_LINE_MAX + sizeof(next) + 1);
    const struct step steps[] = {
        {"limit=", 200, LIST("", "10", "")},
        {"resourceVersion=10", 200, body},
        {"limit=", 200, LIST(POD("a", "11") "," POD("b", "12"), "20", "")},
        {"resourceVersion=20", 0, ""},
    };

    assert_non_null(body);
    memset(body, ' ', FBR_JSON_LINE_MAX + 1);
    memcpy(body + FBR_JSON_LINE_MAX + 1, next, sizeof(next));
    play(steps, "Ll+bL+a+bl");
    free(body);
}

static void a_refusal_is_told_and_tried_again(void **state)
{
    static const struct step steps[] = {
        {"limit=", 403, "{\"message\":\"pods is forbidden\"}"},
        {"limit=", 200, LIST("", "10", "")},
        {"resourceVersion=10", 0, ""},
    };

    play(steps, "LTLl");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_watch_goes_on_where_it_was),
        cmocka_unit_test(a_list_comes_in_pages),
        cmocka_unit_test(a_version_that_is_too_old_is_listed_again),
        cmocka_unit_test(a_version_that_is_forgotten_at_once_is_listed_soon),
        cmocka_unit_test(pages_that_are_too_old_begin_again),
        cmocka_unit_test(a_list_that_is_too_old_or_refused_for_now_is_asked_for_again),
        cmocka_unit_test(streams_that_end_at_once_are_listed_again),
        cmocka_unit_test(what_is_no_event_is_passed_over),
        cmocka_unit_test(an_event_that_is_too_long_is_listed_again),
        cmocka_unit_test(a_refusal_is_told_and_tried_again),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
