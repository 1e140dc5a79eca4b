/* pmix_message_test.c - data of a rank that another agent asks for while memory is short: the other
 * agent always gets an answer, because its rank waits for one without a limit.
 *
 * The linker replaces malloc and its like. The rest of the bridge is played here.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "mpi_bridge/pmix_message.c" /* of the module; the library does not have it */

#define AGENT 7
#define ID 42

static unsigned refuse_at, tried, answers;
static pmix_status_t status;

static bool refuse(void)
{
    return refuse_at && ++tried == refuse_at;
}

#include "tests/support/wrapped_malloc.h"

/* ---- The rest of the bridge ---- */

struct fbr_pmix_request *fbr_pmix_request_new(void (*start)(struct fbr_pmix_request *r),
                                              const pmix_proc_t *who)
{
    struct fbr_pmix_request *r = calloc(1, sizeof(*r));

    if (r)
        r->start = start;
    return r;
}

void fbr_pmix_request_attach(struct fbr_bridge *b, struct fbr_pmix_request *r)
{
    r->bridge = b;
}

void fbr_pmix_request_back(struct fbr_pmix_request *r)
{
}

void fbr_pmix_fail(struct fbr_pmix_request *r, pmix_status_t code)
{
    free(r);
}

void fbr_pmix_reply_modex(struct fbr_pmix_request *r, char *data, size_t len)
{
}

pmix_status_t fbr_pmix_status(int rc)
{
    return PMIX_ERROR;
}

uint32_t fbr_pmix_agents_end(const struct fbr_bridge *b)
{
    return 0;
}

struct fbr_pmix_job *fbr_pmix_job_named(struct fbr_bridge *b, const char *nspace)
{
    return NULL;
}

struct fbr_pmix_rank *fbr_pmix_local(struct fbr_pmix_job *j, uint32_t rank)
{
    return NULL;
}

static int notify(void *user, uint32_t agent, const void *data, size_t len)
{
    struct fbr_cur c = fbr_cur(data, len);

    assert_int_equal(agent, AGENT);
    assert_int_equal(fbr_get_u8(&c), ANSWER);
    assert_int_equal(fbr_get_u32(&c), ID);
    status = (pmix_status_t)fbr_get_u32(&c);
    assert_true(fbr_cur_ok(&c));
    answers++;
    return 0;
}

/* ---- Tests ---- */

/* The rank that it asks for is not there. */
static void test_every_ask_is_answered(void **state)
{
    const struct fbr_bridge_host host = {.notify = notify};
    struct fbr_bridge b = {.host = &host};
    struct fbr_buf ask = {0};
    unsigned k = 0;

    fbr_put_u8(&ask, ASK);
    fbr_put_u32(&ask, ID);
    fbr_put_str(&ask, "job");
    fbr_put_u32(&ask, 3);
    do {
        struct fbr_cur c = fbr_cur(ask.data, ask.len);

        answers = tried = 0;
        refuse_at = ++k;
        fbr_pmix_message(&b, AGENT, &c);
        refuse_at = 0;
        assert_int_equal(answers, 1);
        assert_int_equal(status, tried < k ? PMIX_ERR_NOT_FOUND : PMIX_ERR_NOMEM);
    } while (tried >= k);
    assert_true(k > 2);
    fbr_buf_fini(&ask);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_ask_is_answered),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
