/* kubernetes_command.c - `fiber kubernetes manifest`: the objects that a namespace needs for Fiber,
 * as YAML for kubectl; and `fiber kubernetes run`: a program that is a master, in a pod.
 *
 * The Role has only the rights that the backend uses (backends/kubernetes/cluster_check.c has the
 * same list). Workers have an account of their own without any rights, and no token for it.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/in_cluster.h"
#include "cli/option.h"
#include "cli/run_apps.h"
#include "runtime/proc/context.h"

enum {
    KUBERNETES_NAMESPACE,
    KUBERNETES_NAME,
    KUBERNETES_IMAGE,
    KUBERNETES_MASTER,
    KUBERNETES_NO_NETWORK,
    KUBERNETES_ENV,
    KUBERNETES_QUIET,
    KUBERNETES_OPTIONS
};

/* A JSON string is a YAML string too. In a `word` '$' is doubled, because Kubernetes replaces
 * $(NAME), and $$ by $. */
static void put_quoted(const char *text, bool word)
{
    putchar('"');
    for (; *text; text++) {
        unsigned char c = (unsigned char)*text;

        if (c < ' ' || c == 0x7f)
            printf("\\u%04x", c);
        else
            printf("%s%c", c == '"' || c == '\\' ? "\\" : word && c == '$' ? "$" : "", c);
    }
    putchar('"');
}

static const char rules[] =
    "rules:\n"
    "  - {apiGroups: [\"\"], resources: [pods], verbs: [create, get, list, watch, delete]}\n"
    "  - {apiGroups: [\"\"], resources: [pods/log], verbs: [get]}\n"
    "  - {apiGroups: [\"\"], resources: [secrets], verbs: [create, delete]} # never read\n"
    "  - {apiGroups: [\"\"], resources: [configmaps], verbs: [create, list, delete]}\n"
    "  - {apiGroups: [\"\"], resources: [events], verbs: [list]}\n"
    "  # for masters that are started in the cluster from outside\n"
    "  - {apiGroups: [batch], resources: [jobs], verbs: [create, delete]}\n";

/* Prints the last members of an object. */
static void put_name(const char *name, const char *suffix, const char *namespace)
{
    char whole[300];

    snprintf(whole, sizeof(whole), "%.253s%s", name, suffix);
    fputs("name: ", stdout);
    put_quoted(whole, false);
    if (namespace) {
        fputs(", namespace: ", stdout);
        put_quoted(namespace, false);
    }
    puts("}");
}

static void put_head(const char *version, const char *kind, const char *name, const char *suffix,
                     const char *namespace)
{
    printf("---\napiVersion: %s\nkind: %s\nmetadata: {", version, kind);
    put_name(name, suffix, namespace);
}

void kubernetes_put_rights(const char *name, const char *namespace)
{
    static const char rbac[] = "rbac.authorization.k8s.io/v1";

    puts("# Masters: run as this account.");
    put_head("v1", "ServiceAccount", name, "", namespace);
    puts("# Workers: have no permissions and no token. kubernetes_service_account names it.");
    put_head("v1", "ServiceAccount", name, "-worker", namespace);
    puts("automountServiceAccountToken: false");
    put_head(rbac, "Role", name, "", namespace);
    fputs(rules, stdout);
    put_head(rbac, "RoleBinding", name, "", namespace);
    fputs("roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, ", stdout);
    put_name(name, "", NULL);
    fputs("subjects:\n  - {kind: ServiceAccount, ", stdout);
    put_name(name, "", namespace);
    puts("  # A person or a group that starts masters outside the cluster:\n"
         "  # - {kind: User, apiGroup: rbac.authorization.k8s.io, name: jane}");
}

static void put_network(const char *name, const char *namespace, const char *master)
{
    puts("# Jobs reach their masters, each other and name servers, and nothing else; only masters "
         "and\n"
         "# jobs reach them. This needs a network plugin that enforces policies.");
    put_head("networking.k8s.io/v1", "NetworkPolicy", name, "-worker", namespace);
    printf("spec:\n"
           "  podSelector:\n"
           "    matchExpressions:\n"
           "      - {key: fiber.io/run, operator: Exists}\n"
           "      - {key: fiber.io/role, operator: NotIn, values: [master]}\n"
           "  policyTypes: [Ingress, Egress]\n"
           "  ingress:\n"
           "    - from:\n"
           "        - podSelector: {matchLabels: {fiber.io/role: master}}\n"
           "        - podSelector: {matchExpressions: [{key: fiber.io/run, operator: Exists}]}\n"
           "  egress:\n"
           "    - to:\n"
           "        - podSelector: {matchLabels: {fiber.io/role: master}}\n"
           "        - podSelector: {matchExpressions: [{key: fiber.io/run, operator: Exists}]}\n");
    if (master)
        printf("        - ipBlock: {cidr: %s/%d}\n", master, strchr(master, ':') ? 128 : 32);
    puts("    - ports: [{port: 53, protocol: UDP}, {port: 53, protocol: TCP}]");
}

/* Prints the user of the master's processes, which is also the user of its jobs; < 0: the image's
 * user. */
static void put_user(int user)
{
    if (user >= 0)
        printf(", runAsUser: %d, fsGroup: %d, runAsNonRoot: %s", user, user,
               user ? "true" : "false");
}

/* Cuts a NAME=VALUE at its '='. */
static void put_variable(char *variable)
{
    char *value = strchr(variable, '=');

    *value++ = '\0';
    fputs("            - {name: ", stdout);
    put_quoted(variable, false);
    fputs(", value: ", stdout);
    put_quoted(value, true);
    puts("}");
}

static void put_job(const char *name, const char *namespace, const char *image, int user,
                    char **command, char **variables)
{
    puts("# A master in the cluster. `kubectl logs -f job/NAME-master` shows its output.");
    put_head("batch/v1", "Job", name, "-master", namespace);
    printf("spec:\n"
           "  backoffLimit: 0\n"
           "  ttlSecondsAfterFinished: 3600\n"
           "  template:\n"
           "    metadata:\n"
           "      labels: {fiber.io/role: master}\n"
           "    spec:\n"
           "      serviceAccountName: \"%s\"\n"
           "      restartPolicy: Never\n"
           "      shareProcessNamespace: true\n"
           "      securityContext: {seccompProfile: {type: RuntimeDefault}",
           name);
    put_user(user);
    printf("}\n"
           "      containers:\n"
           "        - name: fiber\n"
           "          image: ");
    put_quoted(image, false);
    printf("\n          command: [");
    for (int i = 0; command[i]; i++) {
        char *whole = i ? NULL : run_program_whole(command[0]);

        printf("%s", i ? ", " : "");
        put_quoted(whole ? whole : command[i], true);
        free(whole);
    }
    printf("]\n"
           "          env:\n"
           "            - {name: FIBER_BACKEND, value: kubernetes}\n"
           "            - {name: FIBER_KUBERNETES_SERVICE_ACCOUNT, value: \"%s-worker\"}\n",
           name);
    if (user >= 0)
        printf("            - {name: FIBER_KUBERNETES_USER, value: \"%d\"}\n", user);
    for (size_t i = 0; variables && variables[i]; i++)
        put_variable(variables[i]);
    printf("            - name: FIBER_POD_NAME\n"
           "              valueFrom: {fieldRef: {fieldPath: metadata.name}}\n"
           "          securityContext: {allowPrivilegeEscalation: false, capabilities: {drop: "
           "[ALL]}}\n");
}

/* Whether a text is a Kubernetes name, which needs no escapes in YAML. */
static bool is_name(const char *text, size_t max)
{
    size_t n = strlen(text);

    return n > 0 && n <= max && strspn(text, "abcdefghijklmnopqrstuvwxyz0123456789-") == n &&
           text[0] != '-' && text[n - 1] != '-';
}

static bool is_address(const char *text)
{
    struct in6_addr address;

    return inet_pton(strchr(text, ':') ? AF_INET6 : AF_INET, text, &address) == 1;
}

static int manifest(const struct cli_args *args)
{
    const struct cli_value *v = args->values;
    const char *name = v[KUBERNETES_NAME].text ? v[KUBERNETES_NAME].text : "fiber";
    const char *namespace = v[KUBERNETES_NAMESPACE].text, *master = v[KUBERNETES_MASTER].text;
    char **command = args->operands + 1;
    struct fbr_error err = {0, ""};
    struct fbr_env env = {0};

    if (!is_name(name, 50) || (namespace && !is_name(namespace, 63)))
        return cli_failed(2, "'%s' is not a name: use small letters, digits and '-'",
                          is_name(name, 50) ? namespace : name);
    if (master && !is_address(master))
        return cli_failed(2, "--master: \"%s\" is not an address", master);
    if (command[0] && !v[KUBERNETES_IMAGE].text)
        return cli_failed(2, "--image is needed for the Job that runs %s", command[0]);
    if (v[KUBERNETES_ENV].text && !command[0])
        return cli_failed(2, "--env is for the Job of a program, and there is none");
    if (run_env_list(&env, &v[KUBERNETES_ENV], "", &err) < 0) {
        fbr_env_fini(&env);
        return cli_failed(2, "%s", err.text);
    }
    printf("# For one namespace%s%s: fiber kubernetes manifest | kubectl apply -f -\n",
           namespace ? ", " : "", namespace ? namespace : "");
    kubernetes_put_rights(name, namespace);
    if (!v[KUBERNETES_NO_NETWORK].number)
        put_network(name, namespace, master);
    if (command[0])
        put_job(name, namespace, v[KUBERNETES_IMAGE].text,
                fbr_config_int(fbr_rt_any()->config, "kubernetes_user"), command, env.list);
    fbr_env_fini(&env);
    return 0;
}

static int run_kubernetes(const struct cli_args *args)
{
    const struct cli_value *v = args->values;

    if (!strcmp(args->operands[0], "manifest"))
        return manifest(args);
    if (!args->operands[1])
        return cli_failed(2, "the program is missing: fiber kubernetes run [OPTION...] -- PROGRAM "
                             "[ARGUMENT...]");
    return in_cluster_master(args, &v[KUBERNETES_ENV], v[KUBERNETES_QUIET].number > 0);
}

static const struct cli_option options[KUBERNETES_OPTIONS] = {
    [KUBERNETES_NAMESPACE] = {"namespace", 'N', CLI_TEXT, "NAMESPACE",
                              .config = "kubernetes_namespace",
                              .help = "namespace of all objects; without it kubectl decides"},
    [KUBERNETES_NAME] = {"name", 0, CLI_TEXT, "NAME",
                         .help = "name of the objects; default: fiber"},
    [KUBERNETES_IMAGE] = {"image", 'i', CLI_TEXT, "IMAGE", .config = "image",
                          .help = "image that has PROGRAM"},
    [KUBERNETES_MASTER] = {"master", 0, CLI_TEXT, "ADDRESS",
                           .help = "address of a master outside the cluster that jobs may connect "
                                   "to"},
    [KUBERNETES_NO_NETWORK] = {"no-network-policy", 0, CLI_FLAG, .help = "omits the NetworkPolicy"},
    [KUBERNETES_ENV] = {"env", 'x', CLI_LIST, "VAR[=VALUE]",
                        .help = "a variable for PROGRAM, with its value here if none is given; "
                                "may be repeated"},
    [KUBERNETES_QUIET] = {"quiet", 'q', CLI_FLAG, .help = "run: prints only PROGRAM's output"},
};

const struct cli_command cli_kubernetes = {
    .name = "kubernetes",
    .operands = "manifest|run [-- PROGRAM [ARGUMENT...]]",
    .words = "manifest run",
    .kind = CLI_PROGRAM,
    .about = "Prints what a namespace of Kubernetes needs, or runs a master there",
    .text =
        "manifest prints YAML for kubectl: service accounts of masters and of jobs, a Role with "
        "the fewest permissions that a master needs and its RoleBinding, a NetworkPolicy for jobs, "
        "and with a PROGRAM a Job that runs it as a master in the cluster.\n\n"
        "It contacts no cluster, and changes nothing.\n\n"
        "run starts a PROGRAM of the image that is a master, one that opens pools or processes of "
        "Fiber, in a pod with the manifest's account. Its output is printed here, Ctrl-C ends it, "
        "and its exit code is the exit code of fiber. For a ring there is `fiber run "
        "--in-cluster`.",
    .examples =
        "fiber kubernetes manifest -N team | kubectl apply -f -\tprepare the namespace team\n"
        "fiber kubernetes manifest -N team -i reg/x:1 -- ./train | kubectl apply -f -\t"
        "run a master there\n"
        "fiber kubernetes run -N team -i reg/x:1 -- ./train\tthe same, with its output here",
    .exit = "0\tprinted, or PROGRAM ended well\n"
            "1-255\tof PROGRAM; 128 + N when signal N ended it\n"
            "2\tthe options or the configuration are wrong\n"
            "125\tit could not be started, or its exit code is unknown",
    .options = options,
    .count = KUBERNETES_OPTIONS,
    .least = 1,
    .most = -1,
    .run = run_kubernetes,
};
