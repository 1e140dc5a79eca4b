/* pmix_request_test.c - requests of libpmix reach the loop, also after a post that had no memory.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "mpi_bridge/pmix_request.c" /* of the module; the library does not have it */

static unsigned posts, started;
static int post_code;
static void (*posted)(void *arg);

static int host_post(void *user, void (*fn)(void *arg), void *arg)
{
    posts++;
    posted = fn;
    return post_code;
}

static void start(struct fbr_pmix_request *r)
{
    started++;
    fbr_pmix_fail(r, PMIX_SUCCESS);
}

static void test_a_post_without_memory_is_made_up_for_by_the_next(void **state)
{
    const struct fbr_bridge_host host = {.post = host_post};
    struct fbr_bridge b = {.host = &host};

    assert_int_equal(fbr_pmix_queue_open(&b), 0);
    post_code = -ENOMEM;
    assert_int_equal(fbr_pmix_request_post(fbr_pmix_request_new(start, NULL)), PMIX_SUCCESS);
    post_code = 0;
    assert_int_equal(fbr_pmix_request_post(fbr_pmix_request_new(start, NULL)), PMIX_SUCCESS);
    assert_int_equal(fbr_pmix_request_post(fbr_pmix_request_new(start, NULL)), PMIX_SUCCESS);
    assert_int_equal(posts, 2);
    posted(NULL);
    assert_int_equal(started, 3);
    fbr_pmix_queue_shut();
    fbr_pmix_queue_close(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_post_without_memory_is_made_up_for_by_the_next),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
