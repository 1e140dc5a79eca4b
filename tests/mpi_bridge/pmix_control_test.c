/* pmix_control_test.c - what a spawn by PMIx asks the host for.
 *
 * The rest of the bridge is played here.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "mpi_bridge/pmix_control.c" /* of the module; the library does not have it */

static const struct fbr_bridge_job about = {.nspace = "job"};
static struct fbr_pmix_job job = {.job = &about};
static char given[256];
static pmix_status_t answer;

/* ---- The rest of the bridge ---- */

struct fbr_pmix_job *fbr_pmix_job_named(struct fbr_bridge *b, const char *nspace)
{
    return &job;
}

struct fbr_pmix_job *fbr_pmix_job_numbered(struct fbr_bridge *b, uint32_t id)
{
    return &job;
}

struct fbr_pmix_rank *fbr_pmix_local(struct fbr_pmix_job *j, uint32_t rank)
{
    return NULL;
}

bool fbr_pmix_request_answered(struct fbr_pmix_request *r)
{
    return true;
}

void fbr_pmix_fail(struct fbr_pmix_request *r, pmix_status_t status)
{
    answer = status;
}

void fbr_pmix_reply_spawn(struct fbr_pmix_request *r, const char *nspace)
{
}

void fbr_pmix_reply_info(struct fbr_pmix_request *r, pmix_status_t status, void *list)
{
}

pmix_status_t fbr_pmix_status(int code)
{
    return code;
}

static int host_spawn(void *user, const struct fbr_bridge_spawn *spawn, fbr_bridge_done *done,
                      void *arg)
{
    assert_int_equal(spawn->napps, 1);
    for (const char *const *env = spawn->apps[0].env; env && *env; env++)
        snprintf(given + strlen(given), sizeof(given) - strlen(given), "%s ", *env);
    if (spawn->apps[0].workdir)
        snprintf(given + strlen(given), sizeof(given) - strlen(given), "in %s",
                 spawn->apps[0].workdir);
    return 0;
}

static const struct fbr_bridge_host host = {.spawn = host_spawn};
static struct fbr_bridge bridge = {.host = &host};

static int set_up(void **state)
{
    given[0] = '\0';
    answer = PMIX_SUCCESS;
    return 0;
}

/* ---- Tests ---- */

/* As pmix_common.h has it: "add envar, but do not overwrite any existing one". */
static void test_a_variable_that_is_added_replaces_none(void **state)
{
    static const struct {
        const char *key, *name, *value;
    } asked[] = {
        {PMIX_SET_ENVAR, "SET", "2"}, {PMIX_ADD_ENVAR, "OWN", "2"},  {PMIX_ADD_ENVAR, "HERE", "2"},
        {PMIX_ADD_ENVAR, "NEW", "1"}, {PMIX_SET_ENVAR, "GONE", "2"},
    };
    enum { ASKED = sizeof(asked) / sizeof(asked[0]) };
    char *env[] = {(char[]){"SET=1"}, (char[]){"OWN=1"}, NULL};
    pmix_info_t info[ASKED];
    pmix_app_t app = {
        .cmd = (char[]){"x"}, .maxprocs = 1, .env = env, .info = info, .ninfo = ASKED};
    struct fbr_pmix_request r = {.bridge = &bridge, .apps = &app, .count = 1};

    setenv("HERE", "1", 1);
    setenv("GONE", "1", 1);
    for (int i = 0; i < ASKED; i++) {
        pmix_envar_t v = {.envar = (char *)(uintptr_t)asked[i].name,
                          .value = (char *)(uintptr_t)asked[i].value,
                          .separator = ':'};

        PMIX_INFO_LOAD(&info[i], asked[i].key, &v, PMIX_ENVAR);
    }
    fbr_pmix_start_spawn(&r);
    assert_string_equal(given, "SET=2 OWN=1 NEW=1 GONE=2 ");
    for (int i = 0; i < ASKED; i++)
        PMIX_INFO_DESTRUCT(&info[i]);
}

/* An application's own infos come after those of the whole job. */
static void test_infos_of_the_job_are_for_each_application(void **state)
{
    pmix_envar_t all = {.envar = (char[]){"ALL"}, .value = (char[]){"1"}, .separator = ':'};
    pmix_envar_t one = {.envar = (char[]){"ONE"}, .value = (char[]){"1"}, .separator = ':'};
    pmix_envar_t own = {.envar = (char[]){"ONE"}, .value = (char[]){"2"}, .separator = ':'};
    pmix_info_t info[3], app_info;
    pmix_app_t app = {.cmd = (char[]){"x"}, .maxprocs = 1, .info = &app_info, .ninfo = 1};
    struct fbr_pmix_request r = {
        .bridge = &bridge, .apps = &app, .count = 1, .info = info, .ninfo = 3};

    PMIX_INFO_LOAD(&info[0], PMIX_SET_ENVAR, &all, PMIX_ENVAR);
    PMIX_INFO_LOAD(&info[1], PMIX_SET_ENVAR, &one, PMIX_ENVAR);
    PMIX_INFO_LOAD(&info[2], PMIX_WDIR, "/job", PMIX_STRING);
    PMIX_INFO_LOAD(&app_info, PMIX_SET_ENVAR, &own, PMIX_ENVAR);
    fbr_pmix_start_spawn(&r);
    assert_string_equal(given, "ALL=1 ONE=2 in /job");
    app.cwd = (char[]){"/app"};
    given[0] = '\0';
    fbr_pmix_start_spawn(&r);
    assert_string_equal(given, "ALL=1 ONE=2 in /app");
    for (int i = 0; i < 3; i++)
        PMIX_INFO_DESTRUCT(&info[i]);
    PMIX_INFO_DESTRUCT(&app_info);
}

/* Others are advice, which Open MPI always gives. */
static void test_a_required_info_that_has_no_effect_is_refused(void **state)
{
    pmix_info_t info[2];
    pmix_app_t app = {.cmd = (char[]){"x"}, .maxprocs = 1};
    struct fbr_pmix_request r = {
        .bridge = &bridge, .apps = &app, .count = 1, .info = info, .ninfo = 2};

    PMIX_INFO_LOAD(&info[0], PMIX_WDIR, "/job", PMIX_STRING);
    PMIX_INFO_LOAD(&info[1], PMIX_MAPBY, "node", PMIX_STRING);
    PMIX_INFO_REQUIRED(&info[0]);
    fbr_pmix_start_spawn(&r);
    assert_string_equal(given, "in /job");
    given[0] = '\0';
    PMIX_INFO_REQUIRED(&info[1]);
    fbr_pmix_start_spawn(&r);
    assert_string_equal(given, "");
    assert_int_equal(answer, -ENOSYS);
    for (int i = 0; i < 2; i++)
        PMIX_INFO_DESTRUCT(&info[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_a_variable_that_is_added_replaces_none, set_up),
        cmocka_unit_test_setup(test_infos_of_the_job_are_for_each_application, set_up),
        cmocka_unit_test_setup(test_a_required_info_that_has_no_effect_is_refused, set_up),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
