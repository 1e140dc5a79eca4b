/* kubernetes_command_test.c - the objects that `fiber kubernetes manifest` prints, and what it
 * refuses to print.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "tests/cli/made_run_util.h"

#include "cli/in_cluster.h"

/* ---- What is refused ---- */

static void texts_that_are_no_names_stand_in_no_manifest(void **state)
{
    static const struct {
        const char *line, *sentence;
    } cases[] = {
        {"kubernetes manifest --name Fiber",
         "'Fiber' is not a name: use small letters, digits and '-'"},
        {"kubernetes manifest --name a_b",
         "'a_b' is not a name: use small letters, digits and '-'"},
        {"kubernetes manifest --name -a", "'-a' is not a name: use small letters, digits and '-'"},
        {"kubernetes manifest --name a-", "'a-' is not a name: use small letters, digits and '-'"},
        {"kubernetes manifest --name=", "'' is not a name: use small letters, digits and '-'"},
        {"kubernetes manifest --name a.b",
         "'a.b' is not a name: use small letters, digits and '-'"},
        {"kubernetes manifest -N {team}",
         "'{team}' is not a name: use small letters, digits and '-'"},
        {"kubernetes manifest -N team,x",
         "'team,x' is not a name: use small letters, digits and '-'"},
        {"kubernetes manifest --name "
         "a23456789012345678901234567890123456789012345678901",
         "'a23456789012345678901234567890123456789012345678901' is not a name: use small letters, "
         "digits and '-'"},
        {"kubernetes manifest --master host", "--master: \"host\" is not an address"},
        {"kubernetes manifest --master 10.0.0.1/8", "--master: \"10.0.0.1/8\" is not an address"},
        {"kubernetes manifest --master face", "--master: \"face\" is not an address"},
        {"kubernetes manifest --master 10.0.0", "--master: \"10.0.0\" is not an address"},
        {"kubernetes manifest --master 10.0.0.256", "--master: \"10.0.0.256\" is not an address"},
        {"kubernetes manifest --master=", "--master: \"\" is not an address"},
        {"kubernetes manifest --master :::", "--master: \":::\" is not an address"},
        {"kubernetes manifest -- ./train", "--image is needed for the Job that runs ./train"},
        {"kubernetes manifest -x A=b", "--env is for the Job of a program, and there is none"},
        {"kubernetes run", "the program is missing: fiber kubernetes run [OPTION...] -- PROGRAM "
                           "[ARGUMENT...]"},
    };

    for (size_t i = 0; i < COUNT(cases); i++)
        refuses(cases[i].line, 2, cases[i].sentence);
    says(command("kubernetes apply")->err, "kubernetes: \"apply\" is none of: manifest run\n");
}

static void the_longest_names_are_taken(void **state)
{
    assert_int_equal(command("kubernetes manifest --name "
                             "a2345678901234567890123456789012345678901234567890")
                         ->code,
                     0);
    assert_int_equal(command("kubernetes manifest -N "
                             "a23456789012345678901234567890123456789012345678901234567890123")
                         ->code,
                     0);
    assert_int_equal(command("kubernetes manifest -N "
                             "a234567890123456789012345678901234567890123456789012345678901234")
                         ->code,
                     2);
}

/* ---- What is printed ---- */

/* How often a part stands in a text. */
static int count_of(const char *text, const char *part)
{
    int n = 0;

    for (; (text = strstr(text, part)); text += strlen(part))
        n++;
    return n;
}

static void a_namespace_gets_accounts_rights_and_a_policy(void **state)
{
    const struct said *s = command("kubernetes manifest");

    assert_int_equal(s->code, 0);
    assert_int_equal(count_of(s->out, "\n---\n"), 5);
    assert_int_equal(count_of(s->out, "kind: ServiceAccount\n"), 2);
    assert_int_equal(count_of(s->out, ", namespace: "), 0); /* kubectl decides */
    says(s->out, "# For one namespace: fiber kubernetes manifest | kubectl apply -f -\n");
    says(s->out, "metadata: {name: \"fiber-worker\"}\nautomountServiceAccountToken: false\n");
    says(s->out, "kind: RoleBinding\nmetadata: {name: \"fiber\"}\n");
    says(s->out, "kind: NetworkPolicy\nmetadata: {name: \"fiber-worker\"}\n");
    says(s->out, "resources: [secrets], verbs: [create, delete]} # never read\n");
    assert_null(strstr(s->out, "kind: Job"));
    assert_null(strstr(s->out, "ipBlock"));
}

static void every_object_is_in_the_namespace(void **state)
{
    const struct said *s = command("kubernetes manifest -N team --name ours");

    says(s->out, "# For one namespace, team: ");
    assert_int_equal(count_of(s->out, "metadata: {name: \"ours"), 5);
    assert_int_equal(count_of(s->out, ", namespace: \"team\"}\n"), 6);
    assert_int_equal(count_of(s->out, "metadata: {name: \"ours\", "), 3);
    assert_int_equal(count_of(s->out, "metadata: {name: \"ours-worker\", "), 2);
    says(s->out, "  - {kind: ServiceAccount, name: \"ours\", namespace: \"team\"}\n");
    says(s->out, "roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: \"ours\"}\n");
}

static void jobs_may_call_a_master_outside(void **state)
{
    static const struct {
        const char *line, *part;
        int times;
    } cases[] = {
        {"kubernetes manifest --master 10.1.2.3", "        - ipBlock: {cidr: 10.1.2.3/32}\n", 1},
        {"kubernetes manifest --master fd00::1", "        - ipBlock: {cidr: fd00::1/128}\n", 1},
        {"kubernetes manifest --master fd00::1 --no-network-policy", "ipBlock", 0},
        {"kubernetes manifest --no-network-policy", "NetworkPolicy", 0},
        {"kubernetes manifest --no-network-policy", "RoleBinding", 1},
    };

    for (size_t i = 0; i < COUNT(cases); i++)
        assert_int_equal(count_of(command(cases[i].line)->out, cases[i].part), cases[i].times);
}

static void a_program_becomes_a_job(void **state)
{
    const struct said *s;

    s = command("kubernetes manifest -N team -i reg/x:1 -- ./train --rate $(RATE) \"q\" a\\b $$");
    assert_int_equal(s->code, 0);
    says(s->out, "kind: Job\nmetadata: {name: \"fiber-master\", namespace: \"team\"}\n");
    says(s->out, "          image: \"reg/x:1\"\n"
                 "          command: [\"./train\", \"--rate\", \"$$(RATE)\", \"\\\"q\\\"\", "
                 "\"a\\\\b\", \"$$$$\"]\n");
    says(s->out, "      serviceAccountName: \"fiber\"\n");
    says(s->out, "{name: FIBER_KUBERNETES_SERVICE_ACCOUNT, value: \"fiber-worker\"}");
    assert_null(strstr(s->out, "runAsUser"));
}

static void a_program_gets_its_variables(void **state)
{
    const struct said *s;

    assert_int_equal(setenv("HERE", "a \"b\" $c", 1), 0);
    s = command("kubernetes manifest -i x -x HERE -x THERE=1=2 -x NONE= -x N\"$=1 -- p");
    assert_int_equal(s->code, 0);
    says(s->out, "            - {name: \"HERE\", value: \"a \\\"b\\\" $$c\"}\n"
                 "            - {name: \"THERE\", value: \"1=2\"}\n"
                 "            - {name: \"NONE\", value: \"\"}\n"
                 "            - {name: \"N\\\"$\", value: \"1\"}\n");
    unsetenv("HERE");
    refuses("kubernetes manifest -i x -x HERE -- p", 2,
            "-x HERE: there is no such variable here; use -x HERE=VALUE");
}

static void the_user_of_jobs_is_the_masters_too(void **state)
{
    static const struct {
        const char *user, *part;
    } cases[] = {
        {"1000", "{type: RuntimeDefault}, runAsUser: 1000, fsGroup: 1000, runAsNonRoot: true}\n"},
        {"0", "{type: RuntimeDefault}, runAsUser: 0, fsGroup: 0, runAsNonRoot: false}\n"},
    };

    assert_int_equal(fiber_init(NULL, NULL), 0);
    for (size_t i = 0; i < COUNT(cases); i++) {
        assert_int_equal(fiber_config_set("kubernetes_user", cases[i].user), 0);
        says(command("kubernetes manifest -i x -- p")->out, cases[i].part);
    }
    says(command("kubernetes manifest -i x -- p")->out,
         "            - {name: FIBER_KUBERNETES_USER, value: \"0\"}\n");
}

/* Nothing of a program's word is lost, however long it is. */
static void a_long_word_is_whole(void **state)
{
    static char word[20000], want[2 * sizeof(word)];
    char *operands[] = {"manifest", "./p", word, NULL};
    const struct cli_command *c = cli_command_find("kubernetes");
    struct cli_value *values = calloc(c->count, sizeof(*values));
    struct cli_args args = {.command = c, .values = values, .operands = operands, .noperands = 3};
    static struct said s;
    struct caught caught;

    assert_non_null(values);
    memset(word, 'x', sizeof(word) - 2);
    word[0] = '$';
    for (size_t i = 0; i < c->count; i++)
        if (!strcmp(c->options[i].name, "image"))
            values[i].text = "x";
    catch_begin(&caught);
    s.code = c->run(&args);
    catch_end(&caught, &s);
    assert_int_equal(s.code, 0);
    snprintf(want, sizeof(want), "          command: [\"./p\", \"$%s\"]\n", word);
    says(s.out, want);
    free(values);
}

static void other_backends_run_no_masters(void **state)
{
    static struct said s;
    struct caught caught;
    const char *name[3];

    catch_begin(&caught);
    name[0] = in_cluster_backend("kubernetes");
    name[1] = in_cluster_backend(NULL);
    name[2] = in_cluster_backend("docker");
    catch_end(&caught, &s);
    assert_string_equal(name[0], "kubernetes");
    assert_string_equal(name[1], "kubernetes");
    assert_null(name[2]);
    says(s.err, "docker");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        made_test(texts_that_are_no_names_stand_in_no_manifest),
        made_test(the_longest_names_are_taken),
        made_test(a_namespace_gets_accounts_rights_and_a_policy),
        made_test(every_object_is_in_the_namespace),
        made_test(jobs_may_call_a_master_outside),
        made_test(a_program_becomes_a_job),
        made_test(a_program_gets_its_variables),
        made_test(the_user_of_jobs_is_the_masters_too),
        made_test(a_long_word_is_whole),
        made_test(other_backends_run_no_masters),
    };

    return cmocka_run_group_tests_name("kubernetes_command", tests, NULL, NULL);
}
