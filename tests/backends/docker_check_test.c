/* docker_check_test.c - what an engine says of itself becomes findings.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "backends/docker/engine_check.h"

static struct {
    char what[32], text[400], mend[400];
    enum fbr_finding finding;
} told[8];
static size_t count;

static void say(void *user, enum fbr_finding finding, const char *what, const char *text,
                const char *mend)
{
    assert_true(count < sizeof(told) / sizeof(told[0]));
    told[count].finding = finding;
    snprintf(told[count].what, sizeof(told[count].what), "%s", what);
    snprintf(told[count].text, sizeof(told[count].text), "%s", text);
    snprintf(told[count].mend, sizeof(told[count].mend), "%s", mend);
    count++;
}

static void check(const char *text, bool gpus)
{
    struct json_t *info = fbr_json_parse(text, strlen(text), NULL);

    assert_non_null(info);
    count = 0;
    fbr_docker_check_info(info, gpus, "x86_64", &(const struct fbr_findings){say, NULL});
    fbr_json_free(info);
}

static enum fbr_finding of(const char *what, const char *part)
{
    for (size_t i = 0; i < count; i++)
        if (!strcmp(told[i].what, what)) {
            if (!strstr(told[i].text, part))
                fail_msg("%s: %s", what, told[i].text);
            if (told[i].finding == FBR_FINDING_BAD)
                assert_true(told[i].mend[0] != '\0');
            return told[i].finding;
        }
    fail_msg("nothing is said of %s", what);
    return FBR_FINDING_BAD;
}

static void an_engine_that_can_all_of_it_is_good(void **state)
{
    check("{\"Architecture\":\"x86_64\",\"NCPU\":8,\"MemTotal\":8589934592,"
          "\"OperatingSystem\":\"Debian\",\"MemoryLimit\":true,\"CpuCfsQuota\":true,"
          "\"CgroupVersion\":\"2\",\"CgroupDriver\":\"systemd\",\"Runtimes\":{\"runc\":{},"
          "\"nvidia\":{}}}",
          true);
    assert_int_equal(of("machine", "8 processors, 8.0 GiB, Debian"), FBR_FINDING_GOOD);
    assert_int_equal(of("limits", "cgroup v2 (systemd)"), FBR_FINDING_GOOD);
    assert_int_equal(of("GPUs", "NVIDIA"), FBR_FINDING_GOOD);
}

static void what_a_rootless_engine_cannot_is_bad(void **state)
{
    check("{\"Architecture\":\"x86_64\",\"SecurityOptions\":[\"name=seccomp,profile=default\","
          "\"name=rootless\"],\"MemoryLimit\":false,\"CpuCfsQuota\":false,\"Runtimes\":{}}",
          false);
    assert_int_equal(of("machine", "rootless"), FBR_FINDING_GOOD);
    assert_int_equal(
        of("limits", "memory and processors: --mem and --cpus-per-rank are refused, or "),
        FBR_FINDING_BAD);
    assert_int_equal(of("GPUs", "no runtime"), FBR_FINDING_ABSENT);
}

static void gpus_that_containers_cannot_have_are_bad(void **state)
{
    check("{\"Architecture\":\"x86_64\",\"MemoryLimit\":true,\"CpuCfsQuota\":true}", true);
    assert_int_equal(of("GPUs", "lacks"), FBR_FINDING_BAD);
}

static void another_architecture_is_bad_and_another_word_for_ours_is_not(void **state)
{
    check("{\"Architecture\":\"aarch64\"}", false);
    assert_int_equal(of("machine", "aarch64"), FBR_FINDING_BAD);
    check("{\"Architecture\":\"amd64\"}", false); /* as Podman says it */
    assert_int_equal(of("machine", ""), FBR_FINDING_GOOD);
}

static void an_answer_of_other_types_is_survived(void **state)
{
    check("{\"SecurityOptions\":3,\"Runtimes\":[],\"NCPU\":\"x\",\"Architecture\":null}", false);
    assert_int_equal(count, 3);
    check("[]", true);
    assert_int_equal(count, 3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_engine_that_can_all_of_it_is_good),
        cmocka_unit_test(what_a_rootless_engine_cannot_is_bad),
        cmocka_unit_test(gpus_that_containers_cannot_have_are_bad),
        cmocka_unit_test(another_architecture_is_bad_and_another_word_for_ours_is_not),
        cmocka_unit_test(an_answer_of_other_types_is_survived),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
