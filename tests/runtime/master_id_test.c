/* master_id_test.c - a master's name tells whether it lives, is dead, or is none of this host.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <ctype.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "runtime/base/master_id.h"

static void our_own_name_is_of_one_that_lives(void **state)
{
    char name[FBR_MASTER_ID_MAX], pid[32];

    fbr_master_id_self(name);
    snprintf(pid, sizeof(pid), ":%ld:", (long)getpid());
    assert_non_null(strstr(name, pid));
    for (const char *c = name; *c; c++)
        assert_true(isalnum((unsigned char)*c) || strchr(":.-", *c));
    assert_int_equal(fbr_master_id_state(name), FBR_MASTER_ID_ALIVE);
}

/* A child tells its name; it is alive while it waits, a zombie counts as dead, and so does nobody. */
static void one_that_has_ended_is_dead(void **state)
{
    char name[FBR_MASTER_ID_MAX];
    siginfo_t info;
    int told[2], gate[2];
    pid_t pid;

    assert_return_code(pipe(told), 0);
    assert_return_code(pipe(gate), 0);
    pid = fork();
    if (pid == 0) {
        close(gate[1]);
        fbr_master_id_self(name);
        if (write(told[1], name, sizeof(name)) != sizeof(name) || read(gate[0], name, 1) != 0)
            _exit(1);
        _exit(0);
    }
    close(gate[0]);
    assert_int_equal(read(told[0], name, sizeof(name)), sizeof(name));
    assert_int_equal(fbr_master_id_state(name), FBR_MASTER_ID_ALIVE);
    close(gate[1]);
    assert_return_code(waitid(P_PID, (id_t)pid, &info, WEXITED | WNOWAIT), 0);
    assert_int_equal(fbr_master_id_state(name), FBR_MASTER_ID_DEAD);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
    assert_int_equal(fbr_master_id_state(name), FBR_MASTER_ID_DEAD);
    close(told[0]);
    close(told[1]);
}

static void another_process_with_the_number_is_not_taken_for_it(void **state)
{
    char name[FBR_MASTER_ID_MAX];

    fbr_master_id_self(name);
    strcpy(strrchr(name, '.'), ".1"); /* it began with the boot */
    assert_int_equal(fbr_master_id_state(name), FBR_MASTER_ID_DEAD);
}

static void of_another_place_nothing_is_said(void **state)
{
    char name[FBR_MASTER_ID_MAX], *mark;

    fbr_master_id_self(name);
    mark = strchr(strchr(name, ':') + 1, ':') + 1;
    *mark = *mark == '0' ? '1' : '0';
    assert_int_equal(fbr_master_id_state(name), FBR_MASTER_ID_UNKNOWN);
}

static void what_is_no_name_is_unknown(void **state)
{
    static const char *const names[] = {
        "",
        ":",
        "host",
        "host:5",
        "host:5:",
        "host:5:1",
        "host:5:1.",
        "host:5:x.y",
        ":::...",
        "host:-5:1234567812345678.5",
        "host:5:0.0",
        "a-very-long-name-of-a-host-that-cannot-be:5:1234567812345678.1234567812345678"};

    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        assert_int_equal(fbr_master_id_state(names[i]), FBR_MASTER_ID_UNKNOWN);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(our_own_name_is_of_one_that_lives),
        cmocka_unit_test(one_that_has_ended_is_dead),
        cmocka_unit_test(another_process_with_the_number_is_not_taken_for_it),
        cmocka_unit_test(of_another_place_nothing_is_said),
        cmocka_unit_test(what_is_no_name_is_unknown),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
