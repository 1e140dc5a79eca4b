/* pmix_modex_test.c - a direct modex whose agent is gone ends with an error.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "mpi_bridge/pmix_message.c" /* of the module; the library does not have them */
#include "mpi_bridge/pmix_request.c"

static const uint32_t first[] = {0, 1, 2}, agents[] = {0, 1};
static const struct fbr_bridge_job about = {
    .nspace = "job", .size = 2, .nodes = 2, .first = first, .agents = agents};
static struct fbr_pmix_job job = {.job = &about};

static struct fbr_buf sent; /* the last message, to agent 1 */

static int host_notify(void *user, uint32_t agent, const void *data, size_t len)
{
    assert_int_equal(agent, 1);
    fbr_buf_clear(&sent);
    fbr_put(&sent, data, len);
    return 0;
}

static int host_post(void *user, void (*fn)(void *arg), void *arg)
{
    return 0;
}

static unsigned answers;
static pmix_status_t answer;

static void on_modex(pmix_status_t status, const char *data, size_t len, void *arg,
                     pmix_release_cbfunc_t release, void *release_arg)
{
    answers++;
    answer = status;
}

static void message(struct fbr_bridge *b, uint32_t agent, const void *data, size_t len)
{
    struct fbr_cur c = fbr_cur(data, len);

    fbr_pmix_message(b, agent, &c);
}

static void a_question_that_comes_back_ends_the_request(void **state)
{
    const struct fbr_bridge_host host = {.notify = host_notify, .post = host_post};
    struct fbr_bridge b = {.host = &host};
    struct fbr_pmix_request *r;
    struct fbr_buf other = {0};
    pmix_proc_t who;

    DL_APPEND(b.jobs, &job);
    PMIX_LOAD_PROCID(&who, "job", 1);
    assert_int_equal(fbr_pmix_queue_open(&b), 0);
    r = fbr_pmix_request_new(fbr_pmix_start_dmodex, &who);
    r->answer = FBR_PMIX_MODEX;
    r->call.modex = on_modex;
    assert_int_equal(fbr_pmix_request_post(r), PMIX_SUCCESS);
    fbr_pmix_queue_drain();
    assert_true(sent.len > 0 && answers == 0);
    fbr_put_u8(&other, ANSWER); /* one that we gave has the number of the other's request */
    fbr_put_u32(&other, b.last_id);
    fbr_put_u32(&other, 0);
    fbr_put_bytes(&other, NULL, 0);
    message(&b, FBR_BRIDGE_NOBODY, other.data, other.len);
    assert_int_equal(answers, 0);
    message(&b, FBR_BRIDGE_NOBODY, sent.data, sent.len);
    assert_int_equal(answers, 1);
    assert_int_equal(answer, PMIX_ERR_NOT_FOUND);
    fbr_pmix_queue_shut();
    fbr_pmix_queue_close(&b);
    fbr_buf_fini(&other);
    fbr_buf_fini(&sent);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_question_that_comes_back_ends_the_request),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
