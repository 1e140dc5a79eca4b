/* kube_pod_test.c - the objects that are sent to a cluster, templates over them, and the lines of logs.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <locale.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <jansson.h>

#include "backends/http/json.h"
#include "backends/kubernetes/pod_log.h"
#include "backends/kubernetes/pod.h"
#include "backends/kubernetes/yaml.h"

#define RUN "0123456789abcdef0123456789abcdef"

static const struct fbr_kube_settings plain = {.image = "reg/x:1",
                                               .pull_policy = "",
                                               .program = "/bin/prog",
                                               .workdir = "",
                                               .agent_image = "",
                                               .account = "",
                                               .gpu_resource = "nvidia.com/gpu",
                                               .master_account = "fiber",
                                               .user_label = "jane",
                                               .master = "host:1:m",
                                               .run_as = -1,
                                               .grace_s = 5};

static struct fbr_job job_named(const char *name, uint64_t process)
{
    return (struct fbr_job){.name = name,
                            .run_uid = RUN,
                            .file = "/proc/self/exe",
                            .own_program = 1,
                            .process = process};
}

static const struct json_t *container_of(const struct json_t *pod, size_t i)
{
    return fbr_json_item(fbr_json_at(pod, "spec", "containers", NULL), i);
}

/* A list's item by its name. */
static const struct json_t *named(const struct json_t *list, const char *name)
{
    for (size_t i = 0; i < fbr_json_count(list); i++)
        if (!strcmp(fbr_json_text(fbr_json_item(list, i), "name", NULL), name))
            return fbr_json_item(list, i);
    return NULL;
}

static struct json_t *yaml(const char *text)
{
    struct fbr_error err = {0, ""};
    struct json_t *j = fbr_kube_yaml(text, strlen(text), "template", &err);

    if (!j)
        fail_msg("%s", err.text);
    return j;
}

static void names_are_fixed_and_fit(void **state)
{
    static const struct {
        const char *name;
        uint64_t process;
        const char *want;
    } cases[] = {
        {"worker-3", 3, "fiber-01234567-worker-3"},
        {"worker", 3, "fiber-01234567-worker-3"},
        {"worker-3", 4, "fiber-01234567-worker-3-4"},
        {"A_odd..Name-", 1, "fiber-01234567-a-odd--name--1"},
        {"-", 9, "fiber-01234567---9"},
    };
    char name[FBR_KUBE_NAME], longest[65];
    struct fbr_job job;

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        job = job_named(cases[i].name, cases[i].process);
        fbr_kube_pod_name(name, &job);
        assert_string_equal(name, cases[i].want);
    }
    memset(longest, 'x', sizeof(longest));
    longest[64] = '\0';
    job = job_named(longest, UINT64_MAX);
    fbr_kube_pod_name(name, &job);
    assert_int_equal(strlen(name), FBR_KUBE_NAME - 1);
    assert_non_null(strstr(name, "-18446744073709551615"));
}

/* In Turkish the small letter of I is not i, and in an 8-bit locale other bytes are letters, too. Python sets the
 * user's locale. */
static void names_do_not_depend_on_the_locale(void **state)
{
    const struct fbr_job job = job_named("IN\xfdIT-1", 1);
    char folder[] = "/tmp/fiber-locale-XXXXXX", command[200], name[FBR_KUBE_NAME];
    bool turkish;

    assert_non_null(mkdtemp(folder));
    snprintf(command, sizeof(command),
             "localedef -c -i tr_TR -f ISO-8859-9 %s/tr_TR.ISO-8859-9 2>/dev/null", folder);
    turkish = system(command) == 0;
    setenv("LOCPATH", folder, 1);
    turkish = turkish && setlocale(LC_ALL, "tr_TR.ISO-8859-9");
    fbr_kube_pod_name(name, &job);
    setlocale(LC_ALL, "C");
    snprintf(command, sizeof(command), "rm -r %s", folder);
    assert_int_equal(system(command), 0);
    if (!turkish) {
        print_message("skipped: localedef cannot make the locale tr_TR here\n");
        skip();
    }
    assert_string_equal(name, "fiber-01234567-in-it-1");
}

static const char *variable(const struct json_t *pod, const char *name)
{
    return fbr_json_text(named(fbr_json_at(container_of(pod, 0), "env", NULL), name), "value",
                         NULL);
}

/* Each agent of --nodes K is on a host of its own, also where a template has an affinity. */
static void pods_that_are_to_be_apart_share_no_host(void **state)
{
    static const char *const templates[] = {
        NULL, "spec: {affinity: {podAntiAffinity: "
              "{requiredDuringSchedulingIgnoredDuringExecution: [{topologyKey: zone}]}}}"};

    for (size_t i = 0; i < 2; i++) {
        struct json_t *over = templates[i] ? yaml(templates[i]) : NULL, *pod;
        struct fbr_job job = job_named("agent-1", 1);
        struct fbr_kube_settings s = plain;
        const struct json_t *terms, *own;

        job.index = 1;
        s.overlay = over;
        pod = fbr_kube_pod(&job, &s, NULL);
        assert_non_null(pod);
        assert_true(!i == !fbr_json_at(pod, "spec", "affinity", NULL));
        fbr_json_free(pod);
        job.apart = "0123abcd";
        pod = fbr_kube_pod(&job, &s, NULL);
        assert_non_null(pod);
        terms = fbr_json_at(pod, "spec", "affinity", "podAntiAffinity",
                            "requiredDuringSchedulingIgnoredDuringExecution", NULL);
        assert_int_equal(fbr_json_count(terms), i + 1);
        own = fbr_json_item(terms, i);
        assert_string_equal(fbr_json_text(own, "topologyKey", NULL), "kubernetes.io/hostname");
        assert_string_equal(
            fbr_json_text(own, "labelSelector", "matchLabels", "fiber.io/apart", NULL), "0123abcd");
        assert_string_equal(fbr_json_text(pod, "metadata", "labels", "fiber.io/apart", NULL),
                            "0123abcd");
        fbr_json_free(pod);
        fbr_json_free(over);
    }
}

static void a_master_has_an_account_and_knows_its_pod(void **state)
{
    char *env[] = {"FIBER_BACKEND=mine", "A=$b", NULL};
    struct fbr_job job = job_named("master", 0);
    struct json_t *pod, *over = yaml("spec: {serviceAccountName: theirs, nodeSelector: {a: $b}}");
    struct fbr_kube_settings s = plain;
    const struct json_t *list;
    struct json_t *job_of;

    job.is_master = 1;
    job.added_env = env;
    s.overlay = over;
    pod = fbr_kube_pod(&job, &s, NULL);
    assert_non_null(pod);
    assert_string_equal(fbr_json_text(pod, "spec", "serviceAccountName", NULL), "fiber");
    assert_true(fbr_json_bool(pod, "spec", "automountServiceAccountToken", NULL));
    assert_string_equal(fbr_json_text(pod, "metadata", "labels", "fiber.io/role", NULL), "master");
    assert_int_equal(fbr_json_int(pod, 0, "spec", "terminationGracePeriodSeconds", NULL), 15);
    assert_string_equal(variable(pod, "FIBER_BACKEND"), "mine"); /* what was asked for stays */
    assert_string_equal(variable(pod, "FIBER_KUBERNETES_SERVICE_ACCOUNT"), "fiber-worker");
    assert_string_equal(variable(pod, "FIBER_KUBERNETES_PROGRAM"), "/bin/prog");
    assert_string_equal(variable(pod, "FIBER_KUBERNETES_POD_TEMPLATE"),
                        FBR_KUBE_TEMPLATE_DIR "/template.json");
    assert_non_null(strstr(fbr_json_text(pod, "metadata", "annotations", "fiber.io/template", NULL),
                           "{\"a\":\"$b\"}"));
    list = fbr_json_at(named(fbr_json_at(pod, "spec", "volumes", NULL), "fiber-template"),
                       "downwardAPI", "items", NULL);
    assert_string_equal(fbr_json_text(fbr_json_item(list, 0), "path", NULL), "template.json");
    job_of = fbr_kube_master_job(pod);
    assert_string_equal(fbr_json_text(job_of, "kind", NULL), "Job");
    assert_string_equal(fbr_json_text(job_of, "metadata", "name", NULL),
                        fbr_json_text(pod, "metadata", "name", NULL));
    assert_int_equal(fbr_json_int(job_of, -1, "spec", "backoffLimit", NULL), 0);
    assert_int_equal(fbr_json_int(job_of, 0, "spec", "ttlSecondsAfterFinished", NULL), 3600);
    assert_string_equal(fbr_json_text(job_of, "spec", "template", "spec", "restartPolicy", NULL),
                        "Never");
    assert_string_equal(
        fbr_json_text(job_of, "spec", "template", "metadata", "labels", FBR_KUBE_RUN_LABEL, NULL),
        RUN);
    assert_null(fbr_json_at(job_of, "spec", "template", "metadata", "name", NULL));
    fbr_json_free(job_of);
    list = fbr_json_at(container_of(pod, 0), "env", NULL);
    assert_string_equal(
        fbr_json_text(named(list, "FIBER_POD_NAME"), "valueFrom", "fieldRef", "fieldPath", NULL),
        "metadata.name");
    fbr_json_free(pod);
    fbr_json_free(over);
}

/* The server tells that it is no name, and shows it. */
static void an_account_that_is_no_text_is_left_to_the_server(void **state)
{
    struct fbr_job job = job_named("master", 0);
    struct fbr_kube_settings s = plain;
    struct fbr_error err = {0, ""};
    struct json_t *pod;

    job.is_master = 1;
    s.master_account = "caf\xe9";
    pod = fbr_kube_pod(&job, &s, &err);
    if (!pod)
        fail_msg("%s", err.text);
    assert_string_equal(fbr_json_text(pod, "spec", "serviceAccountName", NULL), "caf?");
    fbr_json_free(pod);
}

static void a_template_that_reaches_no_master_is_told(void **state)
{
    struct fbr_job job = job_named("master", 0);
    struct fbr_kube_settings s = plain;
    struct fbr_error err = {0, ""};
    char *large = malloc((1 << 18) + 100);
    struct json_t *over;

    sprintf(large, "metadata: {annotations: {a: x%0*d}}", 1 << 18, 0);
    over = yaml(large);
    job.is_master = 1;
    s.overlay = over;
    assert_null(fbr_kube_pod(&job, &s, &err));
    assert_non_null(strstr(err.text, "kubernetes_pod_template has 262"));
    fbr_json_free(over);
    free(large);
}

/* The examples of docs/kubernetes.md: what queues and gang schedulers look for is on every pod. */
static void a_gang_is_marked_by_the_template(void **state)
{
    static const struct {
        const char *template, *where, *key, *value;
    } cases[] = {
        {"metadata: {labels: {kueue.x-k8s.io/queue-name: team}}", "labels",
         "kueue.x-k8s.io/queue-name", "team"},
        {"metadata: {annotations: {kueue.x-k8s.io/pod-group-total-count: \"2\"}}", "annotations",
         "kueue.x-k8s.io/pod-group-total-count", "2"},
        {"{metadata: {annotations: {scheduling.k8s.io/group-name: train}}, spec: {schedulerName: "
         "gang}}",
         "annotations", "scheduling.k8s.io/group-name", "train"},
        {"{metadata: {labels: {scheduling.x-k8s.io/pod-group: train}}, spec: {schedulerName: "
         "gang}}",
         "labels", "scheduling.x-k8s.io/pod-group", "train"},
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct json_t *over = yaml(cases[i].template);
        struct fbr_kube_settings s = plain;
        struct fbr_error err = {0, ""};

        assert_int_equal(fbr_kube_overlay_check(over, &err), 0);
        s.overlay = over;
        for (uint64_t k = 0; k < 3; k++) {
            struct fbr_job job = job_named("agent", k);
            struct json_t *pod = fbr_kube_pod(&job, &s, &err);

            assert_string_equal(fbr_json_text(pod, "metadata", cases[i].where, cases[i].key, NULL),
                                cases[i].value);
            assert_string_equal(fbr_json_text(pod, "spec", "schedulerName", NULL),
                                strstr(cases[i].template, "gang") ? "gang" : "");
            assert_string_equal(fbr_json_text(pod, "metadata", "labels", FBR_KUBE_RUN_LABEL, NULL),
                                RUN);
            fbr_json_free(pod);
        }
        fbr_json_free(over);
    }
}

static void labels_have_only_what_is_allowed(void **state)
{
    static const char *const cases[][2] = {
        {"jane", "jane"}, {"a b", "a-b"}, {"_a.b-", "a.b"},
        {"--", ""},       {"", ""},       {"\xc3\xa4x", "x"},
    };
    char out[FBR_KUBE_NAME], longest[200];

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        fbr_kube_label(out, cases[i][0]);
        assert_string_equal(out, cases[i][1]);
    }
    memset(longest, 'x', sizeof(longest));
    longest[199] = '\0';
    fbr_kube_label(out, longest);
    assert_int_equal(strlen(out), FBR_KUBE_NAME - 1);
}

static void processors_of_ranks_are_requested_and_not_limited(void **state)
{
    struct fbr_job job = job_named("agent-1", 1);
    struct json_t *pod;

    job.reserve = 6;
    pod = fbr_kube_pod(&job, &plain, NULL);
    assert_string_equal(fbr_json_text(container_of(pod, 0), "resources", "requests", "cpu", NULL),
                        "6000m");
    assert_string_equal(fbr_json_text(container_of(pod, 0), "resources", "limits", "cpu", NULL),
                        "");
    fbr_json_free(pod);
    job.cpus = 2; /* the job's own wish comes first */
    pod = fbr_kube_pod(&job, &plain, NULL);
    assert_string_equal(fbr_json_text(container_of(pod, 0), "resources", "requests", "cpu", NULL),
                        "2000m");
    fbr_json_free(pod);
}

static void a_pod_has_what_its_job_asks_for(void **state)
{
    char *argv[] = {"name", "a", "$(HOME) $x", NULL}, *env[] = {"A=b=$c", "FIBER_TICKET=no", NULL};
    struct fbr_job job = job_named("worker-3", 3);
    const struct json_t *c, *limits;
    struct json_t *pod;

    job.argv = argv;
    job.added_env = env;
    job.cpus = 0.5;
    job.memory = 64 << 20;
    job.gpus = 2;
    job.ticket = "t";
    job.ticket_len = 1;
    pod = fbr_kube_pod(&job, &plain, NULL);
    assert_non_null(pod);
    c = container_of(pod, 0);
    limits = fbr_json_at(c, "resources", "limits", NULL);
    assert_string_equal(fbr_json_text(c, "image", NULL), "reg/x:1");
    assert_string_equal(fbr_json_text(fbr_json_item(fbr_json_at(c, "command", NULL), 0), NULL),
                        "/bin/prog");
    assert_string_equal(fbr_json_text(fbr_json_item(fbr_json_at(c, "args", NULL), 1), NULL),
                        "$$(HOME) $$x");
    assert_string_equal(fbr_json_text(limits, "cpu", NULL), "500m");
    assert_string_equal(fbr_json_text(limits, "memory", NULL), "64Mi");
    assert_string_equal(fbr_json_text(limits, "nvidia.com/gpu", NULL), "2");
    assert_int_equal(fbr_json_count(fbr_json_at(c, "env", NULL)), 2);
    assert_string_equal(fbr_json_text(named(fbr_json_at(c, "env", NULL), "A"), "value", NULL),
                        "b=$$c");
    assert_string_equal(
        fbr_json_text(named(fbr_json_at(c, "env", NULL), "FIBER_TICKET"), "value", NULL),
        "file:" FBR_KUBE_TICKET_DIR "/ticket");
    assert_string_equal(fbr_json_text(pod, "spec", "restartPolicy", NULL), "Never");
    assert_string_equal(fbr_json_text(pod, "metadata", "labels", FBR_KUBE_RUN_LABEL, NULL), RUN);
    assert_string_equal(fbr_json_text(pod, "metadata", "annotations", FBR_KUBE_MASTER, NULL),
                        "host:1:m");
    assert_int_equal(fbr_json_int(pod, 0, "spec", "terminationGracePeriodSeconds", NULL), 5);
    fbr_json_free(pod);
}

static void a_pod_without_an_image_is_refused(void **state)
{
    struct fbr_job job = job_named("w", 1);
    struct fbr_kube_settings s = plain;
    struct fbr_error err = {0, ""};
    struct json_t *over = yaml("spec: {containers: [{image: other}]}"), *pod;

    s.image = "";
    assert_null(fbr_kube_pod(&job, &s, &err));
    assert_non_null(strstr(err.text, "no image is set"));
    s.overlay = over;
    pod = fbr_kube_pod(&job, &s, &err);
    assert_non_null(pod);
    assert_string_equal(fbr_json_text(container_of(pod, 0), "image", NULL), "other");
    fbr_json_free(pod);
    fbr_json_free(over);
}

static void an_image_that_lacks_the_program_is_given_it(void **state)
{
    struct fbr_job job = job_named("w", 1), other = job;
    struct fbr_kube_settings s = plain;
    const struct json_t *first, *main;
    struct json_t *pod;

    s.agent_image = "reg/fiber:1";
    pod = fbr_kube_pod(&job, &s, NULL);
    assert_non_null(pod);
    first = fbr_json_item(fbr_json_at(pod, "spec", "initContainers", NULL), 0);
    main = container_of(pod, 0);
    assert_string_equal(fbr_json_text(first, "image", NULL), "reg/fiber:1");
    assert_string_equal(fbr_json_text(main, "image", NULL), "reg/x:1");
    assert_non_null(named(fbr_json_at(pod, "spec", "volumes", NULL), "fiber-agent"));
    assert_string_equal(
        fbr_json_text(named(fbr_json_at(first, "volumeMounts", NULL), "fiber-agent"), "mountPath",
                      NULL),
        "/.fiber");
    assert_string_equal(fbr_json_text(named(fbr_json_at(main, "volumeMounts", NULL), "fiber-agent"),
                                      "mountPath", NULL),
                        "/.fiber");
    fbr_json_free(pod);
    other.own_program = 0; /* a command of the image's own is its own affair */
    other.file = "/bin/train";
    pod = fbr_kube_pod(&other, &s, NULL);
    assert_non_null(pod);
    assert_null(fbr_json_at(pod, "spec", "initContainers", NULL));
    fbr_json_free(pod);
}

/* Only its message tells why an init container failed, and by default this is a file. */
static void an_init_container_that_fails_shows_its_output(void **state)
{
    struct fbr_job job = job_named("w", 1);
    struct fbr_kube_settings s = plain;
    struct json_t *over = yaml("spec: {initContainers: [{name: a}, {name: b, "
                               "terminationMessagePolicy: File}, 7]}"),
                  *pod;
    const struct json_t *all;

    s.overlay = over;
    pod = fbr_kube_pod(&job, &s, NULL);
    assert_non_null(pod);
    all = fbr_json_at(pod, "spec", "initContainers", NULL);
    assert_string_equal(fbr_json_text(named(all, "a"), "terminationMessagePolicy", NULL),
                        "FallbackToLogsOnError");
    assert_string_equal(fbr_json_text(named(all, "b"), "terminationMessagePolicy", NULL), "File");
    fbr_json_free(pod);
    fbr_json_free(over);
}

/* A pod is Guaranteed, and a quota takes it, only if its init containers say what they need, too. */
static void the_init_container_has_the_size_of_the_job(void **state)
{
    static const struct {
        const char *template, *cpu, *memory;
    } cases[] = {
        {"{}", "1500m", "64Mi"},
        {"spec: {containers: [{resources: {requests: {cpu: 2}, limits: {cpu: 2}}}]}", "2", "64Mi"},
        {"spec: {initContainers: [{name: fiber-agent, resources: {requests: {cpu: 3}, "
         "limits: {cpu: 3}}}]}",
         "3", ""},
        {"spec: {initContainers: null}", "", ""}};
    struct fbr_job job = job_named("w", 1);
    struct fbr_kube_settings s = plain;

    s.agent_image = "reg/fiber:1";
    job.cpus = 1.5;
    job.memory = 64 << 20;
    job.gpus = 1;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct json_t *over = yaml(cases[i].template), *pod;
        const struct json_t *first;

        s.overlay = over;
        pod = fbr_kube_pod(&job, &s, NULL);
        assert_non_null(pod);
        first = fbr_json_item(fbr_json_at(pod, "spec", "initContainers", NULL), 0);
        for (size_t k = 0; k < 2; k++) {
            const struct json_t *has =
                fbr_json_at(first, "resources", k ? "limits" : "requests", NULL);
            char *cpu = fbr_json_print(fbr_json_at(has, "cpu", NULL), NULL);

            assert_true(cpu ? strstr(cpu, cases[i].cpu) != NULL : !cases[i].cpu[0]);
            assert_string_equal(fbr_json_text(has, "memory", NULL), cases[i].memory);
            assert_null(fbr_json_at(has, "nvidia.com/gpu", NULL)); /* it computes nothing */
            free(cpu);
        }
        fbr_json_free(pod);
        fbr_json_free(over);
    }
}

/* Memory of JSON, of which one request is refused. */
static unsigned refused, asked;
static size_t held;

static void *json_take(size_t n)
{
    void *p = ++asked == refused ? NULL : malloc(n);

    held += p != NULL;
    return p;
}

static void json_give_back(void *p)
{
    held -= p != NULL;
    free(p);
}

static void a_pod_that_lacks_memory_leaves_nothing(void **state)
{
    static char *const args[] = {(char *)"prog", (char *)"-v", NULL};
    static char *const env[] = {(char *)"A=$b", NULL};
    struct fbr_kube_settings s = plain;
    struct fbr_job job = job_named("worker-3", 3);
    struct json_t *pod = NULL;

    s.agent_image = "reg/agent:1";
    s.pull_policy = "Always";
    s.account = "worker";
    job.argv = args;
    job.added_env = env;
    job.ticket = "t";
    job.workdir = "/w";
    job.cpus = 1;
    job.memory = 1 << 20;
    job.gpus = 1;
    job.index = 1;
    job.apart = "x";
    json_set_alloc_funcs(json_take, json_give_back);
    for (refused = 1; !pod; refused++) {
        struct fbr_error err = {0, ""};

        asked = 0;
        pod = fbr_kube_pod(&job, &s, &err);
        assert_int_equal(pod == NULL, asked >= refused);
        assert_string_equal(err.text, pod ? "" : "out of memory");
        assert_true(pod || held == 0);
    }
    assert_true(refused > 50);
    fbr_json_free(pod);
    assert_int_equal(held, 0);
    json_set_alloc_funcs(malloc, free);
}

static void a_ticket_is_seen_by_its_pod_alone(void **state)
{
    /* who runs in it, by the settings or the template, and who may read it then */
    static const struct {
        int64_t run_as;
        const char *template;
        int mode;
    } cases[] = {
        {-1, NULL, 0444},
        {1000, NULL, 0400},
        {-1, "spec: {securityContext: {runAsUser: 0}}", 0400},
        {-1, "spec: {securityContext: {runAsUser: 7}}", 0444},
        {-1, "spec: {securityContext: {runAsUser: 7, fsGroup: 7}}", 0400},
        {-1, "spec: {containers: [{securityContext: {runAsUser: 0}}]}", 0400},
        {-1,
         "spec: {securityContext: {runAsUser: 0}, containers: [{securityContext: {runAsUser: 7}}]}",
         0444},
    };
    struct json_t *owner = fbr_kube_owner("Secret", "s", "u"), *pod, *over;
    struct fbr_job job = job_named("w", 1);
    struct fbr_kube_settings s = plain;
    const struct json_t *volume, *item;

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        s.run_as = cases[i].run_as;
        s.overlay = over = cases[i].template ? yaml(cases[i].template) : NULL;
        pod = fbr_kube_pod(&job, &s, NULL);
        assert_non_null(pod);
        assert_int_equal(fbr_kube_pod_bind(pod, "secret-1", "key-1", owner), 0);
        volume = named(fbr_json_at(pod, "spec", "volumes", NULL), "fiber-ticket");
        item = fbr_json_item(fbr_json_at(volume, "secret", "items", NULL), 0);
        assert_int_equal(fbr_json_count(fbr_json_at(volume, "secret", "items", NULL)), 1);
        assert_string_equal(fbr_json_text(item, "key", NULL), "key-1");
        assert_int_equal(fbr_json_int(item, 0, "mode", NULL), cases[i].mode);
        assert_string_equal(
            fbr_json_text(fbr_json_item(fbr_json_at(pod, "metadata", "ownerReferences", NULL), 0),
                          "uid", NULL),
            "u");
        fbr_json_free(pod);
        fbr_json_free(over);
    }
    fbr_json_free(owner);
}

static void a_secret_has_a_key_for_each_job(void **state)
{
    struct json_t *s = fbr_kube_secret("s", RUN, "jane", NULL);

    assert_non_null(s);
    assert_int_equal(fbr_kube_secret_add(s, "a", "\0\1\2", 3), 0);
    assert_int_equal(fbr_kube_secret_add(s, "b", "xy", 2), 0);
    assert_string_equal(fbr_json_text(s, "data", "a", NULL), "AAEC");
    assert_string_equal(fbr_json_text(s, "data", "b", NULL), "eHk=");
    assert_true(fbr_json_bool(s, "immutable", NULL));
    fbr_json_free(s);
}

static void a_template_is_merged_by_names(void **state)
{
    struct json_t *over = yaml("metadata: {labels: {team: a, fiber.io/run: forged}}\n"
                               "spec:\n"
                               "  restartPolicy: Always\n"
                               "  nodeSelector: {gpu: a100}\n"
                               "  enableServiceLinks: null\n"
                               "  tolerations: [{operator: Exists}]\n"
                               "  volumes:\n"
                               "  - {name: data, persistentVolumeClaim: {claimName: d}}\n"
                               "  - {name: shm, emptyDir: {sizeLimit: 1Gi}}\n"
                               "  containers:\n"
                               "  - volumeMounts: [{name: data, mountPath: /data}]\n"
                               "    env: [{name: A, value: over}, {name: B, value: new}]\n"
                               "    resources: {requests: {cpu: 500m}, limits: {memory: 1Gi}}\n"
                               "  - {name: side, image: s}\n");
    char *env[] = {"A=b", "C=d", NULL};
    struct fbr_job job = job_named("w", 1);
    struct fbr_kube_settings s = plain;
    const struct json_t *c, *volumes, *spec;
    struct fbr_error err = {0, ""};
    struct json_t *pod;

    assert_int_equal(fbr_kube_overlay_check(over, &err), 0);
    s.overlay = over;
    job.added_env = env;
    job.cpus = 1;
    pod = fbr_kube_pod(&job, &s, &err);
    assert_non_null(pod);
    spec = fbr_json_at(pod, "spec", NULL);
    c = container_of(pod, 0);
    volumes = fbr_json_at(spec, "volumes", NULL);
    assert_string_equal(fbr_json_text(spec, "restartPolicy", NULL), "Never");
    assert_string_equal(fbr_json_text(pod, "metadata", "labels", FBR_KUBE_RUN_LABEL, NULL), RUN);
    assert_string_equal(fbr_json_text(pod, "metadata", "labels", "team", NULL), "a");
    assert_string_equal(fbr_json_text(spec, "nodeSelector", "gpu", NULL), "a100");
    assert_null(fbr_json_at(spec, "enableServiceLinks", NULL));
    assert_int_equal(fbr_json_count(volumes), 2);
    assert_string_equal(fbr_json_text(named(volumes, "shm"), "emptyDir", "medium", NULL), "Memory");
    assert_string_equal(fbr_json_text(named(volumes, "shm"), "emptyDir", "sizeLimit", NULL), "1Gi");
    assert_int_equal(fbr_json_count(fbr_json_at(spec, "containers", NULL)), 2);
    assert_string_equal(fbr_json_text(c, "name", NULL), "fiber");
    assert_int_equal(fbr_json_count(fbr_json_at(c, "volumeMounts", NULL)), 2);
    assert_int_equal(fbr_json_count(fbr_json_at(c, "env", NULL)), 3);
    assert_string_equal(fbr_json_text(named(fbr_json_at(c, "env", NULL), "A"), "value", NULL),
                        "over");
    assert_string_equal(fbr_json_text(c, "resources", "limits", "cpu", NULL), "1000m");
    assert_string_equal(fbr_json_text(c, "resources", "limits", "memory", NULL), "1Gi");
    assert_string_equal(fbr_json_text(c, "resources", "requests", "cpu", NULL), "500m");
    assert_null(fbr_json_at(c, "resources", "requests", "memory", NULL));
    fbr_json_free(pod);
    fbr_json_free(over);
}

static void a_template_that_is_no_pod_is_refused(void **state)
{
    static const char *const cases[][2] = {
        {"[1]", "not an object"},
        {"kind: Deployment", "Deployment"},
        {"containers: []", "'containers'"},
        {"spec: 3", "its spec"},
        {"spec: {containers: {name: x}}", "spec.containers"},
        {"spec: {containers: null}", "spec.containers"},
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct json_t *over = yaml(cases[i][0]);
        struct fbr_error err = {0, ""};

        assert_true(fbr_kube_overlay_check(over, &err) < 0);
        if (!strstr(err.text, cases[i][1]))
            fail_msg("%s: '%s'", cases[i][0], err.text);
        fbr_json_free(over);
    }
}

static void a_template_that_leaves_no_place_is_refused(void **state)
{
    static const char *const cases[][2] = {
        {"spec: {volumes: {name: x}}", "kubernetes_pod_template: volumes is not a list"},
        {"spec: {containers: [{volumeMounts: x}]}", "volumeMounts is not a list"},
        {"spec: {containers: [{env: {A: b}}]}", "env is not a list"},
        {"spec: {containers: [{name: ~}]}", "removed its container"},
        {"spec: {affinity: {podAntiAffinity: {requiredDuringSchedulingIgnoredDuringExecution: x}}}",
         "requiredDuringSchedulingIgnoredDuringExecution is not a list"},
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct json_t *over = yaml(cases[i][0]);
        struct fbr_kube_settings s = plain;
        struct fbr_job job = job_named("a", 1);
        struct fbr_error err = {0, ""};

        job.apart = "x";
        s.overlay = over;
        assert_int_equal(fbr_kube_overlay_check(over, &err), 0);
        assert_null(fbr_kube_pod(&job, &s, &err));
        if (!strstr(err.text, cases[i][1]))
            fail_msg("%s: '%s'", cases[i][0], err.text);
        fbr_json_free(over);
    }
}

/* ---- Lines of logs ---- */

#define S1 "2026-11-21T10:00:00.000000001Z "
#define S2 "2026-11-21T10:00:00.000000002Z "
#define S3 "2026-11-21T10:00:01.000000000Z "

static char told[512];

static void notify(void *user, const void *data, size_t len)
{
    snprintf(told + strlen(told), sizeof(told) - strlen(told), "%.*s", (int)len,
             (const char *)data);
}

static void add(struct fbr_kube_lines *l, const char *text, size_t piece)
{
    for (size_t at = 0; at < strlen(text); at += piece)
        fbr_kube_lines_add(l, text + at, strnlen(text + at, piece), notify, NULL);
}

static void stamps_are_taken_off_however_the_bytes_come(void **state)
{
    for (size_t piece = 1; piece < 50; piece++) {
        struct fbr_kube_lines l = {0};

        told[0] = '\0';
        add(&l, S1 "one\n" S2 "\n" S2 "two words\n" S3 "rest", piece);
        assert_string_equal(told, "one\n\ntwo words\nrest");
    }
}

static void after_a_break_nothing_comes_twice(void **state)
{
    for (size_t piece = 1; piece < 50; piece++) {
        struct fbr_kube_lines l = {0};

        told[0] = '\0';
        assert_false(fbr_kube_lines_resume(&l));
        add(&l, S1 "a\n" S2 "b\n" S2 "c\n", piece);
        assert_true(fbr_kube_lines_resume(&l));
        add(&l, S1 "a\n" S2 "b\n" S2 "c\n" S2 "d\n" S3 "e\n", piece);
        assert_true(fbr_kube_lines_resume(&l));
        add(&l, S3 "e\n" S3 "f\n", piece);
        assert_string_equal(told, "a\nb\nc\nd\ne\nf\n");
    }
}

static void a_line_that_broke_off_is_told_to_its_end(void **state)
{
    for (size_t piece = 1; piece < 50; piece++) {
        struct fbr_kube_lines l = {0};

        told[0] = '\0';
        add(&l, S1 "a\n" S2 "one long", piece);
        assert_true(fbr_kube_lines_resume(&l));
        add(&l, S1 "a\n" S2 "one lo", piece);
        assert_true(fbr_kube_lines_resume(&l));
        add(&l, S1 "a\n" S2 "one long line\n" S2 "b\n", piece);
        assert_true(fbr_kube_lines_resume(&l));
        add(&l, S2 "one long line\n" S2 "b\n" S2 "c\n", piece);
        assert_string_equal(told, "a\none long line\nb\nc\n");
    }
}

static void what_has_no_stamp_is_not_output(void **state)
{
    static const char *const others[] = {"unable to retrieve container logs for containerd://0123",
                                         "containerd://0123456789012345678901234567890123456789",
                                         "2026-11-21 10:00:00 is not a stamp", "no"};

    for (size_t piece = 1; piece < 50; piece++) {
        for (size_t i = 0; i < sizeof(others) / sizeof(*others); i++) {
            struct fbr_kube_lines l = {0};

            told[0] = '\0';
            add(&l, S1 "a\n", piece);
            assert_false(l.foreign);
            add(&l, others[i], piece);
            add(&l, "\n" S2 "b\n", piece);
            assert_string_equal(told, "a\nb\n");
            assert_true(fbr_kube_lines_resume(&l));
            assert_false(l.foreign);
            add(&l, S1 "a\n" S2 "b\n" S3 "c\n", piece);
            assert_string_equal(told, "a\nb\nc\n");
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_are_fixed_and_fit),
        cmocka_unit_test(names_do_not_depend_on_the_locale),
        cmocka_unit_test(pods_that_are_to_be_apart_share_no_host),
        cmocka_unit_test(a_master_has_an_account_and_knows_its_pod),
        cmocka_unit_test(an_account_that_is_no_text_is_left_to_the_server),
        cmocka_unit_test(a_template_that_reaches_no_master_is_told),
        cmocka_unit_test(a_gang_is_marked_by_the_template),
        cmocka_unit_test(labels_have_only_what_is_allowed),
        cmocka_unit_test(a_pod_has_what_its_job_asks_for),
        cmocka_unit_test(processors_of_ranks_are_requested_and_not_limited),
        cmocka_unit_test(a_pod_without_an_image_is_refused),
        cmocka_unit_test(an_image_that_lacks_the_program_is_given_it),
        cmocka_unit_test(an_init_container_that_fails_shows_its_output),
        cmocka_unit_test(the_init_container_has_the_size_of_the_job),
        cmocka_unit_test(a_pod_that_lacks_memory_leaves_nothing),
        cmocka_unit_test(a_ticket_is_seen_by_its_pod_alone),
        cmocka_unit_test(a_secret_has_a_key_for_each_job),
        cmocka_unit_test(a_template_is_merged_by_names),
        cmocka_unit_test(a_template_that_is_no_pod_is_refused),
        cmocka_unit_test(a_template_that_leaves_no_place_is_refused),
        cmocka_unit_test(stamps_are_taken_off_however_the_bytes_come),
        cmocka_unit_test(after_a_break_nothing_comes_twice),
        cmocka_unit_test(a_line_that_broke_off_is_told_to_its_end),
        cmocka_unit_test(what_has_no_stamp_is_not_output),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
