/* pmix_upcall_test.c - requests of libpmix, taken while memory is short: whole, or not at all.
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

#include "mpi_bridge/pmix_upcall.c" /* of the module; the library does not have it */

static unsigned refuse_at, asked, posted;

static bool refuse(void)
{
    return refuse_at && ++asked == refuse_at;
}

#include "tests/support/wrapped_malloc.h"

/* ---- The rest of the bridge ---- */

const char fbr_pmix_relayed[] = "fiber.relayed";

struct fbr_pmix_request *fbr_pmix_request_new(void (*start)(struct fbr_pmix_request *r),
                                              const pmix_proc_t *who)
{
    struct fbr_pmix_request *r = calloc(1, sizeof(*r));

    if (r)
        r->start = start;
    return r;
}

void fbr_pmix_request_free(struct fbr_pmix_request *r)
{
    for (size_t i = 0; i < r->nkeys; i++)
        free(r->keys[i]);
    free(r->keys);
    free(r->found);
    free(r->procs);
    free(r);
}

pmix_status_t fbr_pmix_request_post(struct fbr_pmix_request *r)
{
    if (!r)
        return PMIX_ERR_NOMEM;
    posted++;
    assert_true(r->start == fbr_pmix_start_fence ? r->nkeys == 1 && r->nprocs == 2 : r->nkeys == 2);
    for (size_t i = 0; i < r->nkeys; i++)
        assert_non_null(r->keys[i]);
    fbr_pmix_request_free(r);
    return PMIX_SUCCESS;
}

#define PLAYED(name)                      \
    void name(struct fbr_pmix_request *r) \
    {                                     \
    }

PLAYED(fbr_pmix_start_fence)
PLAYED(fbr_pmix_start_dmodex)
PLAYED(fbr_pmix_start_notify)
PLAYED(fbr_pmix_start_publish)
PLAYED(fbr_pmix_start_lookup)
PLAYED(fbr_pmix_start_unpublish)
PLAYED(fbr_pmix_start_spawn)
PLAYED(fbr_pmix_start_query)
PLAYED(fbr_pmix_start_log)
PLAYED(fbr_pmix_start_control)

void fbr_pmix_fail(struct fbr_pmix_request *r, pmix_status_t status)
{
}

struct fbr_pmix_job *fbr_pmix_job_named(struct fbr_bridge *b, const char *nspace)
{
    return NULL;
}

struct fbr_pmix_rank *fbr_pmix_local(struct fbr_pmix_job *j, uint32_t rank)
{
    return NULL;
}

const char *fbr_pmix_version(struct fbr_pmix_job *j)
{
    return "";
}

void fbr_pmix_report_missed(struct fbr_bridge *b, struct fbr_pmix_job *j, uint32_t rank)
{
}

/* ---- Tests ---- */

static const pmix_proc_t procs[] = {{"job", 0}, {"job", 1}};

static pmix_status_t call_unpublish(char **keys)
{
    return unpublish(procs, keys, NULL, 0, NULL, NULL);
}

static pmix_status_t call_lookup(char **keys)
{
    return lookup(procs, keys, NULL, 0, NULL, NULL);
}

static pmix_status_t call_group(char **keys)
{
    return group(PMIX_GROUP_CONSTRUCT, keys[0], procs, 2, NULL, 0, NULL, NULL);
}

/* A name that is lost on the way would mean every name of the rank, or another group. */
static void test_no_name_is_lost(void **state)
{
    pmix_status_t (*const calls[])(char **keys) = {call_unpublish, call_lookup, call_group};
    char *keys[] = {(char[]){"one"}, (char[]){"two"}, NULL};

    for (size_t i = 0; i < sizeof(calls) / sizeof(calls[0]); i++) {
        pmix_status_t rc = PMIX_ERR_NOMEM;

        for (unsigned k = 1; rc != PMIX_SUCCESS; k++) {
            asked = posted = 0;
            refuse_at = k;
            rc = calls[i](keys);
            refuse_at = 0;
            assert_int_equal(rc, asked < k ? PMIX_SUCCESS : PMIX_ERR_NOMEM);
            assert_int_equal(posted, rc == PMIX_SUCCESS);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_no_name_is_lost),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
