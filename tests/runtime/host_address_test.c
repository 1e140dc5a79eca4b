/* host_address_test.c - addresses of ours: of interfaces, and on the way to others.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#include "runtime/net/host_address.h"
#include "runtime/net/loop.h"
#include "tests/support/sync.h"

static int threads; /* without those that ask a resolver */

static void an_address_stays_and_an_interface_has_one(void **state)
{
    char out[FBR_HOST_ADDRESS_MAX];

    assert_int_equal(fbr_host_address_find("127.0.0.1", out), 0);
    assert_string_equal(out, "127.0.0.1");
    assert_int_equal(fbr_host_address_find("lo", out), 0);
    assert_string_equal(out, "127.0.0.1");
}

static void what_is_not_ours_is_refused(void **state)
{
    static const char *const cases[] = {"192.0.2.7", "no-such-if", "", "0.0.0.0"};
    char out[FBR_HOST_ADDRESS_MAX];

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
        assert_int_equal(fbr_host_address_find(cases[i], out), -EADDRNOTAVAIL);
}

static void the_way_to_ourselves_is_the_loopback(void **state)
{
    static const char *const cases[] = {"127.0.0.1", "me@127.0.0.1", "a@b@127.0.0.1", "localhost"};
    char out[FBR_HOST_ADDRESS_MAX];
    bool here;

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        here = false;
        assert_int_equal(fbr_host_address_toward(cases[i], 20000, out, &here), 0);
        assert_string_equal(out, "127.0.0.1");
        assert_true(here);
    }
}

/* Whether there is a resolver to ask, and whatever it does: we wait no longer than we said. */
static void a_name_that_nobody_knows(void **state)
{
    char out[FBR_HOST_ADDRESS_MAX];

    for (unsigned ms = 0; ms < 3; ms++) {
        int rc = fbr_host_address_toward("no-such-host.invalid", ms, out, NULL);

        assert_true(rc == -ENOENT || rc == -ETIMEDOUT);
    }
}

static void *nothing(void *arg)
{
    return arg;
}

/* The first thread brings those of the sanitizers along. */
static int nobody_asks(void **state)
{
    pthread_t first;

    if (pthread_create(&first, NULL, nothing, NULL) || pthread_join(first, NULL))
        return -1;
    threads = dir_count("/proc/self/task", "");
    return 0;
}

/* Who still asks a resolver ends before the process does: the leak checker must not see its memory half put away. */
static int all_have_asked(void **state)
{
    uint64_t until = fbr_now_ms() + TEST_LONG_MS;

    while (dir_count("/proc/self/task", "") > threads && fbr_now_ms() < until)
        sched_yield();
    return dir_count("/proc/self/task", "") > threads;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_address_stays_and_an_interface_has_one),
        cmocka_unit_test(what_is_not_ours_is_refused),
        cmocka_unit_test(the_way_to_ourselves_is_the_loopback),
        cmocka_unit_test(a_name_that_nobody_knows),
    };

    return cmocka_run_group_tests(tests, nobody_asks, all_have_asked);
}
