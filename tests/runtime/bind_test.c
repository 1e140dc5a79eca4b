/* bind_test.c - addresses of ours: of interfaces, and on the way to others.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#include "runtime/bind.h"

static void an_address_stays_and_an_interface_has_one(void **state)
{
    char out[FBR_BIND_MAX];

    (void)state;
    assert_int_equal(fbr_bind_find("127.0.0.1", out), 0);
    assert_string_equal(out, "127.0.0.1");
    assert_int_equal(fbr_bind_find("lo", out), 0);
    assert_string_equal(out, "127.0.0.1");
}

static void what_is_not_ours_is_refused(void **state)
{
    static const char *const cases[] = {"192.0.2.7", "no-such-if", "", "0.0.0.0"};
    char out[FBR_BIND_MAX];

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
        assert_int_equal(fbr_bind_find(cases[i], out), -EADDRNOTAVAIL);
}

static void the_way_to_ourselves_is_the_loopback(void **state)
{
    static const char *const cases[] = {"127.0.0.1", "me@127.0.0.1", "a@b@127.0.0.1", "localhost"};
    char out[FBR_BIND_MAX];

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        assert_int_equal(fbr_bind_toward(cases[i], 20000, out), 0);
        assert_string_equal(out, "127.0.0.1");
    }
}

/* Whether there is a resolver to ask, and whatever it does: we wait no longer than we said. */
static void a_name_that_nobody_knows(void **state)
{
    char out[FBR_BIND_MAX];

    (void)state;
    for (unsigned ms = 0; ms < 3; ms++) {
        int rc = fbr_bind_toward("no-such-host.invalid", ms, out);

        assert_true(rc == -ENOENT || rc == -ETIMEDOUT);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_address_stays_and_an_interface_has_one),
        cmocka_unit_test(what_is_not_ours_is_refused),
        cmocka_unit_test(the_way_to_ourselves_is_the_loopback),
        cmocka_unit_test(a_name_that_nobody_knows),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
