/* kube_state_test.c - what pods say, as a table of pods and what is told about them.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "backends/http/json.h"
#include "backends/kubernetes/pod_state.h"
#include "runtime/proc/backend.h"

#define OWN(state) "\"containerStatuses\":[{\"name\":\"fiber\",\"image\":\"reg/x:1\"," state "}]"
#define ENDED(code, reason)                                                            \
    OWN("\"state\":{\"terminated\":{\"exitCode\":" #code ",\"reason\":\"" reason "\"," \
        "\"message\":\"why\"}}")
#define WAITS(reason, message) \
    OWN("\"state\":{\"waiting\":{\"reason\":\"" reason "\",\"message\":\"" message "\"}}")
#define LIMITED                                                                            \
    "\"spec\":{\"containers\":[{\"name\":\"fiber\",\"resources\":{\"limits\":{\"memory\":" \
    "\"64Mi\"}}}]},"

struct example {
    const char *pod; /* what stands between the outer braces */
    enum fbr_kube_phase phase;
    enum fbr_kube_wait wait;
    int32_t code;
    int disruption;
    const char *text; /* is in it; NULL: it has none */
};

static const struct example examples[] = {
    {"", FBR_KUBE_PENDING, FBR_KUBE_WAIT_NONE, 0, 0, "waits for a node"},
    {"\"spec\":{\"schedulerName\":\"volcano\"}", FBR_KUBE_PENDING, FBR_KUBE_WAIT_NONE, 0, 0,
     "waits for a node (schedulerName: volcano)"},
    {"\"status\":{\"phase\":\"Pending\"}", FBR_KUBE_PENDING, FBR_KUBE_WAIT_NONE, 0, 0, "waits"},
    {"\"spec\":{\"nodeName\":\"n7\"},\"status\":{\"phase\":\"Pending\"}", FBR_KUBE_PENDING,
     FBR_KUBE_WAIT_NONE, 0, 0, "set up on node n7"},
    {"\"status\":{\"phase\":\"Unknown\"}", FBR_KUBE_PENDING, FBR_KUBE_WAIT_NONE, 0, 0, "waits"},
    {"\"status\":{\"phase\":\"SomethingNew\"}", FBR_KUBE_PENDING, FBR_KUBE_WAIT_NONE, 0, 0, ""},
    {"\"status\":{\"phase\":\"Pending\",\"conditions\":[{\"type\":\"PodScheduled\",\"status\":"
     "\"False\",\"reason\":\"Unschedulable\",\"message\":\"0/5 nodes: Insufficient cpu\"}]}",
     FBR_KUBE_PENDING, FBR_KUBE_WAIT_PLACE, 0, 0, "no node takes it: 0/5 nodes: Insufficient cpu"},
    {"\"status\":{\"phase\":\"Pending\",\"conditions\":[{\"type\":\"PodScheduled\",\"status\":"
     "\"False\",\"reason\":\"SchedulingGated\",\"message\":\"gated\"}]}",
     FBR_KUBE_PENDING, FBR_KUBE_WAIT_QUEUE, 0, 0, "queue"},
    {"\"status\":{\"phase\":\"Pending\"," WAITS("ErrImagePull", "no such host") "}",
     FBR_KUBE_PENDING, FBR_KUBE_WAIT_PULL, 0, 0, "image 'reg/x:1' cannot be pulled: no such host"},
    {"\"status\":{\"phase\":\"Pending\"," WAITS("ImagePullBackOff", "Back-off") "}",
     FBR_KUBE_PENDING, FBR_KUBE_WAIT_PULL, 0, 0, "cannot be pulled: Back-off"},
    {"\"status\":{\"phase\":\"Pending\"," WAITS("ErrImagePull", "401 Unauthorized") "}",
     FBR_KUBE_PENDING, FBR_KUBE_WAIT_PULL, 0, 0,
     "401 Unauthorized (pods may need a login: kubectl "},
    {"\"status\":{\"phase\":\"Pending\"," WAITS(
         "ErrImagePull",
         "failed to pull and unpack image \\\"reg/x:1\\\": failed to resolve reference "
         "\\\"reg/x:1\\\": pulling from host reg failed: 401 Unauthorized") "}",
     FBR_KUBE_PENDING, FBR_KUBE_WAIT_PULL, 0, 0,
     "cannot be pulled: pulling from host reg failed: 401 Unauthorized (pods may need a login"},
    {"\"status\":{\"phase\":\"Pending\"," WAITS(
         "ErrImagePull",
         "failed to resolve reference \\\"docker.io/reg/x:1\\\": failed to do request: Head "
         "\\\"https://docker.io/v2/\\\": dial tcp: i/o timeout") "}",
     FBR_KUBE_PENDING, FBR_KUBE_WAIT_PULL, 0, 0,
     "cannot be pulled: failed to do request: Head \"https://docker.io/v2/\": dial tcp: i/o "
     "timeout"},
    {"\"status\":{\"phase\":\"Pending\"," WAITS("ErrImageNeverPull", "m") "}", FBR_KUBE_PENDING,
     FBR_KUBE_WAIT_NEVER, 0, 0, "must not be pulled"},
    {"\"status\":{\"phase\":\"Pending\"," WAITS("InvalidImageName", "m") "}", FBR_KUBE_PENDING,
     FBR_KUBE_WAIT_NEVER, 0, 0, "an invalid name"},
    {"\"status\":{\"phase\":\"Pending\"," WAITS("CreateContainerConfigError",
                                                "secret not found") "}",
     FBR_KUBE_PENDING, FBR_KUBE_WAIT_CONFIG, 0, 0, "secret not found"},
    {"\"status\":{\"phase\":\"Pending\"," WAITS(
         "CreateContainerConfigError", "container has runAsNonRoot and image will run as root") "}",
     FBR_KUBE_PENDING, FBR_KUBE_WAIT_NEVER, 0, 0, "as root; kubernetes_user sets a user id"},
    {"\"status\":{\"phase\":\"Pending\"," WAITS("ContainerCreating", "") "}", FBR_KUBE_PENDING,
     FBR_KUBE_WAIT_NONE, 0, 0, ""},
    {"\"status\":{\"phase\":\"Pending\",\"initContainerStatuses\":[{\"name\":\"i\",\"image\":\"y\","
     "\"state\":{\"waiting\":{\"reason\":\"ErrImagePull\",\"message\":\"m\"}}}]}",
     FBR_KUBE_PENDING, FBR_KUBE_WAIT_PULL, 0, 0, "image 'y'"},
    {"\"status\":{\"phase\":\"Running\"," OWN("\"state\":{\"running\":{\"startedAt\":\"t\"}}") "}",
     FBR_KUBE_RUNNING, FBR_KUBE_WAIT_NONE, 0, 0, NULL},
    /* another container runs, ours not yet */
    {"\"status\":{\"phase\":\"Running\"," WAITS("PodInitializing", "") "}", FBR_KUBE_PENDING,
     FBR_KUBE_WAIT_NONE, 0, 0, ""},
    {"\"status\":{\"phase\":\"Succeeded\"," ENDED(0, "Completed") "}", FBR_KUBE_ENDED,
     FBR_KUBE_WAIT_NONE, 0, 0, NULL},
    {"\"status\":{\"phase\":\"Succeeded\"}", FBR_KUBE_ENDED, FBR_KUBE_WAIT_NONE, 0, 0, NULL},
    {"\"status\":{\"phase\":\"Failed\"," ENDED(3, "Error") "}", FBR_KUBE_ENDED, FBR_KUBE_WAIT_NONE,
     3, 0, NULL},
    /* ours has ended, another one goes on */
    {"\"status\":{\"phase\":\"Running\"," ENDED(0, "Completed") "}", FBR_KUBE_ENDED,
     FBR_KUBE_WAIT_NONE, 0, 0, NULL},
    {"\"status\":{\"phase\":\"Failed\"," ENDED(139, "Error") "}", FBR_KUBE_ENDED,
     FBR_KUBE_WAIT_NONE, -11, 0, NULL},
    {"\"status\":{\"phase\":\"Failed\"," ENDED(255, "Error") "}", FBR_KUBE_ENDED,
     FBR_KUBE_WAIT_NONE, 255, 0, NULL},
    {"\"status\":{\"phase\":\"Failed\"," ENDED(99999, "Error") "}", FBR_KUBE_ENDED,
     FBR_KUBE_WAIT_NONE, FBR_EXIT_UNKNOWN, 0, NULL},
    {LIMITED "\"status\":{\"phase\":\"Failed\"," ENDED(137, "OOMKilled") "}", FBR_KUBE_ENDED,
     FBR_KUBE_WAIT_NONE, -9, 0,
     "its limit of 64Mi, and was killed (OOMKilled); the cluster does not report its peak"},
    {"\"status\":{\"phase\":\"Failed\"," ENDED(137, "OOMKilled") "}", FBR_KUBE_ENDED,
     FBR_KUBE_WAIT_NONE, -9, 0, "its node ran out of memory"},
    {"\"status\":{\"phase\":\"Failed\"," ENDED(128, "StartError") "}", FBR_KUBE_ENDED,
     FBR_KUBE_WAIT_NONE, 127, 0, "cannot be started: why"},
    {"\"spec\":{\"containers\":[{\"name\":\"fiber\",\"image\":\"reg/x:1\"}]},"
     "\"status\":{\"phase\":\"Failed\"," ENDED(127, "Error") "}",
     FBR_KUBE_ENDED, FBR_KUBE_WAIT_NONE, 127, 0,
     "code 127: a program, or a library that it needs, is not in the image 'reg/x:1'"},
    {"\"status\":{\"phase\":\"Failed\"," ENDED(126, "Error") "}", FBR_KUBE_ENDED,
     FBR_KUBE_WAIT_NONE, 126, 0, "cannot be executed"},
    {"\"status\":{\"phase\":\"Failed\",\"containerStatuses\":[{\"name\":\"fiber\",\"state\":{"
     "\"terminated\":{\"exitCode\":128,\"reason\":\"StartError\",\"message\":\"exec: \\\"x\\\": "
     "stat x: no such file or directory\"}}}]}",
     FBR_KUBE_ENDED, FBR_KUBE_WAIT_NONE, 127, 0,
     "it is not in the image: exec: \"x\": stat x: no such file or directory; `fiber image "
     "export`"},
    {"\"spec\":{\"containers\":[{\"name\":\"fiber\",\"command\":[\"/bin/fiber\",\"agent\"]}]},"
     "\"status\":{\"phase\":\"Failed\"," OWN(
         "\"state\":{\"terminated\":{\"exitCode\":128,\"reason\":\"StartError\","
         "\"message\":\"runc create failed: exec: no such file\"}}") "}",
     FBR_KUBE_ENDED, FBR_KUBE_WAIT_NONE, 127, 0,
     "it is not in the image: exec: no such file; kubernetes_agent_image"},
    {"\"spec\":{\"schedulingGates\":[{\"name\":\"kueue.x-k8s.io/admission\"}]},"
     "\"status\":{\"phase\":\"Pending\",\"conditions\":[{\"type\":\"PodScheduled\",\"status\":"
     "\"False\","
     "\"reason\":\"SchedulingGated\",\"message\":\"m\"}]}",
     FBR_KUBE_PENDING, FBR_KUBE_WAIT_QUEUE, 0, 0,
     "queue of Kueue (gate kueue.x-k8s.io/admission): m"},
    {"\"spec\":{\"schedulingGates\":[{\"name\":\"our/gate\"}]},"
     "\"status\":{\"phase\":\"Pending\",\"conditions\":[{\"type\":\"PodScheduled\",\"status\":"
     "\"False\","
     "\"reason\":\"SchedulingGated\",\"message\":\"m\"}]}",
     FBR_KUBE_PENDING, FBR_KUBE_WAIT_QUEUE, 0, 0, "queue of the cluster (gate our/gate): m"},
    {"\"status\":{\"phase\":\"Failed\"," ENDED(137, "ContainerStatusUnknown") "}", FBR_KUBE_ENDED,
     FBR_KUBE_WAIT_NONE, FBR_EXIT_UNKNOWN, 1, "lost track"},
    /* after a restart of the node, in the words of containerd */
    {"\"status\":{\"phase\":\"Running\"," ENDED(255, "Unknown") "}", FBR_KUBE_ENDED,
     FBR_KUBE_WAIT_NONE, FBR_EXIT_UNKNOWN, 1, "its node was restarted"},
    {"\"status\":{\"phase\":\"Failed\",\"reason\":\"Evicted\",\"message\":\"low on memory\"}",
     FBR_KUBE_ENDED, FBR_KUBE_WAIT_NONE, FBR_EXIT_UNKNOWN, 1, "(Evicted): low on memory"},
    {"\"status\":{\"phase\":\"Failed\",\"reason\":\"Evicted\",\"message\":\"Pod ephemeral local "
     "storage "
     "usage exceeds the total limit of containers 2Mi. \"," ENDED(137, "Error") "}",
     FBR_KUBE_ENDED, FBR_KUBE_WAIT_NONE, -9, 0, "more disk than its limit, and was evicted: Pod"},
    {"\"status\":{\"phase\":\"Failed\",\"reason\":\"Evicted\",\"message\":\"Usage of EmptyDir "
     "volume "
     "\\\"tmp\\\" exceeds the limit \\\"1Mi\\\". \"}",
     FBR_KUBE_ENDED, FBR_KUBE_WAIT_NONE, FBR_EXIT_UNKNOWN, 0, "was evicted: Usage of EmptyDir"},
    {"\"status\":{\"phase\":\"Failed\",\"reason\":\"Evicted\",\"message\":\"The node was low on "
     "resource: ephemeral-storage. Container fiber was using 9Gi, request is 0, has larger "
     "consumption of ephemeral-storage. \"," ENDED(137, "Error") "}",
     FBR_KUBE_ENDED, FBR_KUBE_WAIT_NONE, -9, 1, "(Evicted): The node was low"},
    {"\"status\":{\"phase\":\"Failed\",\"reason\":\"DeadlineExceeded\"," ENDED(143, "Error") "}",
     FBR_KUBE_ENDED, FBR_KUBE_WAIT_NONE, -15, 0, "activeDeadlineSeconds"},
    {"\"status\":{\"phase\":\"Failed\",\"reason\":\"OutOfcpu\",\"message\":\"m\"}", FBR_KUBE_ENDED,
     FBR_KUBE_WAIT_NONE, FBR_EXIT_UNKNOWN, 1, "failed (OutOfcpu): m"},
    {"\"status\":{\"phase\":\"Failed\",\"conditions\":[{\"type\":\"DisruptionTarget\",\"status\":"
     "\"True\",\"reason\":\"PreemptionByScheduler\",\"message\":\"preempted\"}]," ENDED(
         143, "Error") "}",
     FBR_KUBE_ENDED, FBR_KUBE_WAIT_NONE, -15, 1, "(PreemptionByScheduler): preempted"},
    {"\"status\":{\"phase\":\"Failed\",\"initContainerStatuses\":[{\"name\":\"get\",\"state\":{"
     "\"terminated\":{\"exitCode\":2,\"reason\":\"Error\"}}}]}",
     FBR_KUBE_ENDED, FBR_KUBE_WAIT_NONE, FBR_EXIT_UNKNOWN, 0, "init container 'get'"},
    {"\"status\":{\"phase\":\"Failed\",\"initContainerStatuses\":[{\"name\":\"get\",\"state\":{"
     "\"terminated\":{\"exitCode\":2,\"reason\":\"Error\",\"message\":\"line 1\\nno data\\n\"}}}]}",
     FBR_KUBE_ENDED, FBR_KUBE_WAIT_NONE, FBR_EXIT_UNKNOWN, 0,
     "init container 'get' of its pod failed with code 2 (Error): no data"},
    {"\"status\":{\"phase\":\"Failed\"}", FBR_KUBE_ENDED, FBR_KUBE_WAIT_NONE, FBR_EXIT_UNKNOWN, 0,
     "its pod failed"},
    /* wrong types say nothing */
    {"\"status\":{\"phase\":7,\"containerStatuses\":{\"name\":\"fiber\"},\"conditions\":\"x\"}",
     FBR_KUBE_PENDING, FBR_KUBE_WAIT_NONE, 0, 0, ""},
};

static void say(const char *text, struct fbr_kube_state *s)
{
    struct json_t *pod = fbr_json_parse(text, strlen(text), NULL);

    if (!pod)
        fail_msg("that is not JSON: %s", text);
    fbr_kube_state(s, pod);
    fbr_json_free(pod);
}

static void pods_are_told_in_words(void **state)
{
    for (size_t i = 0; i < sizeof(examples) / sizeof(examples[0]); i++) {
        const struct example *e = &examples[i];
        struct fbr_kube_state s;
        char text[2048];

        snprintf(text, sizeof(text), "{%s}", e->pod);
        say(text, &s);
        if (s.phase != e->phase || s.wait != e->wait ||
            (s.phase == FBR_KUBE_ENDED && s.code != e->code) ||
            s.disruption != (e->disruption != 0))
            fail_msg("example %zu: phase %d, wait %d, code %d, disruption %d", i, (int)s.phase,
                     (int)s.wait, (int)s.code, s.disruption);
        if (e->text ? !strstr(s.text, e->text) : s.text[0] != '\0')
            fail_msg("example %zu says '%s'", i, s.text);
    }
}

/* What else the kubelet says of a container that waits, and of a pod that it has ended. */
static void every_reason_has_its_patience(void **state)
{
    static const struct {
        const char *reason;
        enum fbr_kube_wait wait;
    } waits[] = {
        {"RegistryUnavailable", FBR_KUBE_WAIT_PULL},
        {"SignatureValidationFailed", FBR_KUBE_WAIT_PULL},
        {"ImageInspectError", FBR_KUBE_WAIT_CONFIG},
        {"CreateContainerError", FBR_KUBE_WAIT_CONFIG},
        {"RunContainerError", FBR_KUBE_WAIT_CONFIG},
        {"PreCreateHookError", FBR_KUBE_WAIT_CONFIG},
        {"PreStartHookError", FBR_KUBE_WAIT_CONFIG},
        {"PostStartHookError", FBR_KUBE_WAIT_CONFIG},
        {"CrashLoopBackOff", FBR_KUBE_WAIT_CONFIG},
        {"NobodyKnowsThat", FBR_KUBE_WAIT_NONE},
    };
    static const struct {
        const char *reason;
        bool disruption;
    } ends[] = {
        {"Preempting", true},   {"Preempted", true},        {"NodeLost", true},
        {"NodeShutdown", true}, {"Shutdown", true},         {"Terminated", true},
        {"NodeAffinity", true}, {"NodeUnreachable", true},  {"UnexpectedAdmissionError", true},
        {"OutOfpods", true},    {"NobodyKnowsThat", false},
    };

    for (size_t i = 0; i < sizeof(waits) / sizeof(waits[0]); i++) {
        struct fbr_kube_state s;
        char text[512];

        snprintf(text, sizeof(text),
                 "{\"status\":{\"phase\":\"Pending\",\"containerStatuses\":[{\"name\":\"fiber\","
                 "\"state\":"
                 "{\"waiting\":{\"reason\":\"%s\",\"message\":\"why\"}}}]}}",
                 waits[i].reason);
        say(text, &s);
        if (s.phase != FBR_KUBE_PENDING || s.wait != waits[i].wait ||
            (s.wait != FBR_KUBE_WAIT_NONE && !strstr(s.text, "why")))
            fail_msg("%s: phase %d, wait %d, '%s'", waits[i].reason, (int)s.phase, (int)s.wait,
                     s.text);
    }
    for (size_t i = 0; i < sizeof(ends) / sizeof(ends[0]); i++) {
        struct fbr_kube_state s;
        char text[512];

        snprintf(text, sizeof(text),
                 "{\"status\":{\"phase\":\"Failed\",\"reason\":\"%s\",\"message\":\"why\"}}",
                 ends[i].reason);
        say(text, &s);
        if (s.phase != FBR_KUBE_ENDED || s.code != FBR_EXIT_UNKNOWN ||
            s.disruption != ends[i].disruption || !strstr(s.text, ends[i].reason) ||
            !strstr(s.text, "why"))
            fail_msg("%s: phase %d, code %d, disruption %d, '%s'", ends[i].reason, (int)s.phase,
                     (int)s.code, s.disruption, s.text);
    }
}

/* The container runtime's words are all that tells them apart. */
static void why_a_program_does_not_start_is_told(void **state)
{
    static const struct {
        const char *message, *text;
        int code;
    } cases[] = {
        {"exec: x: permission denied", "it is not executable: exec: x", 126},
        {"fork/exec x: exec format error", "it is for another kind of processor", 127},
        {"stat x: not found", "it is not in the image", 127},
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct fbr_kube_state s;
        char text[512];

        snprintf(text, sizeof(text),
                 "{\"status\":{\"phase\":\"Failed\",\"containerStatuses\":[{\"name\":\"fiber\","
                 "\"state\":"
                 "{\"terminated\":{\"exitCode\":128,\"reason\":\"ContainerCannotRun\",\"message\":"
                 "\"%s\"}}"
                 "}]}}",
                 cases[i].message);
        say(text, &s);
        assert_int_equal(s.code, cases[i].code);
        assert_non_null(strstr(s.text, cases[i].text));
    }
}

static void a_deleted_pod_and_its_other_containers_are_seen(void **state)
{
    static const char text[] =
        "{\"metadata\":{\"deletionTimestamp\":\"t\"},\"status\":{\"phase\":\"Running\","
        "\"containerStatuses\":[{\"name\":\"side\",\"state\":{\"running\":{}}},"
        "{\"name\":\"fiber\",\"state\":{\"terminated\":{\"exitCode\":0}}}]}}";
    struct json_t *pod = fbr_json_parse(text, strlen(text), NULL);
    struct fbr_kube_state s;

    assert_non_null(pod);
    fbr_kube_state(&s, pod);
    fbr_json_free(pod);
    assert_int_equal(s.phase, FBR_KUBE_ENDED);
    assert_int_equal(s.code, 0);
    assert_true(s.deleting);
    assert_true(s.others);
}

/* Before its program hears of it. */
static void why_a_running_pod_is_to_end_is_told(void **state)
{
    static const char text[] =
        "{\"metadata\":{\"deletionTimestamp\":\"t\"},\"status\":{\"phase\":\"Running\","
        "\"conditions\":"
        "[{\"type\":\"DisruptionTarget\",\"status\":\"True\",\"reason\":\"EvictionByEvictionAPI\"}]"
        ","
        "\"containerStatuses\":[{\"name\":\"fiber\",\"state\":{\"running\":{}}}]}}";
    struct json_t *pod = fbr_json_parse(text, strlen(text), NULL);
    struct fbr_kube_state s;

    assert_non_null(pod);
    fbr_kube_state(&s, pod);
    fbr_json_free(pod);
    assert_int_equal(s.phase, FBR_KUBE_RUNNING);
    assert_true(s.deleting && s.disruption);
    assert_non_null(strstr(s.text, "EvictionByEvictionAPI"));
}

static void the_newest_warning_is_taken_of_events(void **state)
{
    static const char text[] =
        "{\"items\":[{\"type\":\"Warning\",\"reason\":\"Old\",\"message\":\"a\","
        "\"lastTimestamp\":\"2026-11-21T10:00:00Z\"},"
        "{\"type\":\"Warning\",\"reason\":\"FailedMount\",\"message\":\"b\","
        "\"lastTimestamp\":\"2026-11-21T10:00:09Z\"},"
        "{\"type\":\"Normal\",\"reason\":\"Pulled\",\"message\":\"c\","
        "\"lastTimestamp\":\"2026-11-21T10:00:10Z\"}]}";
    struct json_t *list = fbr_json_parse(text, strlen(text), NULL);
    char out[64];

    assert_non_null(list);
    fbr_kube_newest_event(list, out, sizeof(out));
    fbr_json_free(list);
    assert_string_equal(out, "FailedMount: b");
    fbr_kube_newest_event(NULL, out, sizeof(out));
    assert_string_equal(out, "");
}

/* gang_timeout is for those that have none: what is set up on its node is not counted. */
static void a_pod_has_its_place_when_it_has_a_node(void **state)
{
    static const struct {
        const char *pod;
        bool placed;
    } cases[] = {
        {"{}", false},
        {"{\"spec\":{\"nodeName\":\"\"},\"status\":{\"phase\":\"Pending\"}}", false},
        {"{\"spec\":{\"nodeName\":\"n\"},\"status\":{\"phase\":\"Pending\"}}", true},
        {"{\"spec\":{\"nodeName\":\"n\"},\"status\":{\"phase\":\"Pending\"," WAITS("ErrImagePull",
                                                                                   "m") "}}",
         true},
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct json_t *pod = fbr_json_parse(cases[i].pod, strlen(cases[i].pod), NULL);
        struct fbr_kube_state s;

        assert_non_null(pod);
        fbr_kube_state(&s, pod);
        assert_int_equal(s.placed, cases[i].placed);
        fbr_json_free(pod);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_pod_has_its_place_when_it_has_a_node),
        cmocka_unit_test(pods_are_told_in_words),
        cmocka_unit_test(every_reason_has_its_patience),
        cmocka_unit_test(why_a_program_does_not_start_is_told),
        cmocka_unit_test(a_deleted_pod_and_its_other_containers_are_seen),
        cmocka_unit_test(why_a_running_pod_is_to_end_is_told),
        cmocka_unit_test(the_newest_warning_is_taken_of_events),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
