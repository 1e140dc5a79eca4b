/* requests_test.c - requests of bridges, as the launcher reads them: each gets one answer. No process
 * runs.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "ring/ring_priv.h"

#define REQUEST 7

static struct fbr_runtime rt;
static struct ring_agent agents[2];
static struct fiber_ring ring = {.rt = &rt, .agents = agents, .nagents = 2, .state = R_RUNNING};
static int answers, code; /* of the last frame that was read */
static uint32_t notified_by;

int __wrap_fbr_process_answer(struct fiber_process *p, uint8_t type, const struct fbr_buf *body);

int __wrap_fbr_process_answer(struct fiber_process *p, uint8_t type, const struct fbr_buf *body)
{
    struct fbr_cur c = fbr_cur(body->data, body->len);
    char bridge[32];

    answers++;
    if (type == FBR_RING_NOTIFY) {
        fbr_get_str(&c, bridge, sizeof(bridge));
        assert_string_equal(bridge, "pmix");
        notified_by = fbr_get_u32(&c);
        return 0;
    }
    assert_int_equal(type, FBR_RING_ANSWER);
    assert_int_equal(fbr_get_u64(&c), REQUEST);
    code = (int)fbr_get_u32(&c);
    return 0;
}

struct frame {
    uint8_t type;
    struct fbr_buf body;
};

static int read_frame(void *arg)
{
    struct frame *f = arg;
    struct fbr_cur c = fbr_cur(f->body.data, f->body.len);

    fbr_ring_requests_frame(&agents[0], f->type, &c);
    fbr_buf_fini(&f->body);
    return 0;
}

static struct frame request(uint8_t type)
{
    struct frame f = {.type = type};

    fbr_put_u64(&f.body, REQUEST);
    return f;
}

static void assert_answer(struct frame *f, int want)
{
    answers = 0;
    assert_int_equal(fbr_loop_call(rt.loop, read_frame, f), 0);
    assert_int_equal(answers, 1);
    assert_int_equal(code, want);
}

static int open_requests(void *arg)
{
    return fbr_ring_requests_open(&ring);
}

static int close_requests(void *arg)
{
    fbr_ring_requests_close(&ring);
    return 0;
}

static int begin(void **state)
{
    for (uint32_t i = 0; i < 2; i++)
        agents[i] =
            (struct ring_agent){.ring = &ring, .number = i, .process = (struct fiber_process *)&rt};
    assert_int_equal(fbr_loop_open(&rt.loop, NULL), 0);
    return fbr_loop_call(rt.loop, open_requests, NULL);
}

static int end(void **state)
{
    fbr_loop_call(rt.loop, close_requests, NULL);
    fbr_loop_close(rt.loop);
    return 0;
}

/* Writes a frame about a name of rank 0 of job 0, or the lookup of a name. */
static struct frame about_name(uint8_t type, const char *key)
{
    struct frame f = request(type);

    if (type != FBR_RING_LOOKUP) {
        fbr_put_u32(&f.body, 0);
        fbr_put_u32(&f.body, 0);
    }
    if (type == FBR_RING_UNPUBLISH)
        fbr_put_u8(&f.body, 0);
    fbr_put_str(&f.body, key);
    if (type == FBR_RING_PUBLISH)
        fbr_put_str(&f.body, "value");
    if (type == FBR_RING_LOOKUP)
        fbr_put_u32(&f.body, 0);
    return f;
}

static void a_name_is_published_once(void **state)
{
    struct frame f = about_name(FBR_RING_LOOKUP, "name");

    assert_answer(&f, -ENOENT);
    f = about_name(FBR_RING_PUBLISH, "name");
    assert_answer(&f, 0);
    f = about_name(FBR_RING_PUBLISH, "name");
    assert_answer(&f, -EEXIST);
    f = about_name(FBR_RING_LOOKUP, "name");
    assert_answer(&f, 0);
    f = about_name(FBR_RING_UNPUBLISH, "name");
    assert_answer(&f, 0);
}

/* As one for which there is no memory. */
static void a_request_that_cannot_be_read_is_answered(void **state)
{
    static const uint8_t types[] = {FBR_RING_PUBLISH, FBR_RING_LOOKUP, FBR_RING_UNPUBLISH};
    static char key[(64 << 10) + 2];
    struct frame f;

    memset(key, 'k', sizeof(key) - 1);
    for (size_t i = 0; i < sizeof(types); i++) {
        f = about_name(types[i], key);
        assert_answer(&f, -EINVAL);
    }
    f = request(FBR_RING_FENCE); /* of no agent */
    fbr_put_u32(&f.body, 0);
    assert_answer(&f, -EINVAL);
    f = request(FBR_RING_SPAWN);
    assert_answer(&f, -EINVAL);
}

static void notify(uint32_t to, uint32_t want)
{
    struct frame f = {.type = FBR_RING_NOTIFY};

    fbr_put_str(&f.body, "pmix");
    fbr_put_u32(&f.body, to);
    assert_int_equal(fbr_loop_call(rt.loop, read_frame, &f), 0);
    assert_int_equal(notified_by, want);
}

static void a_message_to_an_agent_that_is_gone_comes_back(void **state)
{
    agents[1].state = AGENT_READY;
    notify(1, 0);
    agents[1].state = AGENT_GONE;
    notify(1, FBR_BRIDGE_NOBODY);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_name_is_published_once),
        cmocka_unit_test(a_request_that_cannot_be_read_is_answered),
        cmocka_unit_test(a_message_to_an_agent_that_is_gone_comes_back),
    };

    return cmocka_run_group_tests(tests, begin, end);
}
