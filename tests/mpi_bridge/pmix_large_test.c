/* pmix_large_test.c - a PMIx server is told of a job of 65,536 ranks on 1,024 nodes in little memory.
 * `pmix_large_test figures` prints what it took, for benchmarks/run.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <limits.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include <cmocka.h>

#include "runtime/program/module.h"
#include "tests/support/bridge_host_priv.h"

#define NODES 1024
#define EACH 64
#define MIB_MAX 150

struct large {
    struct bridge_host *host;
    struct fbr_bridge_job job;
    struct fbr_error err;
    char dir[192], names[NODES][HOST_NAME_MAX + 1];
    const char *hosts[NODES];
    uint32_t first[NODES + 1], agents[NODES];
    struct fbr_bridge_rank local[EACH];
    double seconds, mib;
    bool known; /* a rank of it was given its variables */
};

static const struct fbr_bridge_ops *pmix;

static double status_mib(const char *name)
{
    char line[256];
    FILE *f = fopen("/proc/self/status", "re");
    double kib = -1;

    assert_non_null(f);
    while (kib < 0 && fgets(line, sizeof(line), f))
        if (strncmp(line, name, strlen(name)) == 0)
            kib = strtod(line + strlen(name), NULL);
    fclose(f);
    assert_true(kib > 0);
    return kib / 1024;
}

/* Loop thread. */
static int notify(void *arg)
{
    struct large *l = arg;
    struct fbr_bridge *b = l->host->agents[0].bridges[0];
    double before = status_mib("VmRSS:");
    uint64_t began = fbr_now_ns();
    struct fbr_env env = {0};
    int fd = -1, rc = pmix->job(b, &l->job, &l->err);

    if (rc == 0)
        rc = pmix->rank(b, &l->job, EACH - 1, &env, &fd, &l->err);
    l->seconds = (double)(fbr_now_ns() - began) / 1e9;
    l->mib = status_mib("VmHWM:") - before;
    l->known = fbr_env_get(&env, "PMIX_NAMESPACE") != NULL;
    fbr_env_fini(&env);
    if (rc == 0 && pmix->job_end)
        pmix->job_end(b, &l->job);
    return rc;
}

static struct large *notify_of_large_job(void)
{
    struct large *l = calloc(1, sizeof(*l));

    assert_non_null(l);
    l->host = host_open(1);
    host_use(l->host, pmix);
    snprintf(l->dir, sizeof(l->dir), "%s/large", l->host->agents[0].dir);
    assert_int_equal(mkdir(l->dir, 0700), 0);
    for (uint32_t k = 0; k < NODES; k++) {
        snprintf(l->names[k], sizeof(l->names[k]), "node%u", k);
        l->hosts[k] = l->names[k];
        l->agents[k] = k;
        l->first[k + 1] = l->first[k] + EACH;
    }
    l->hosts[0] = l->host->agents[0].name;
    memset(l->names[1], 'x', HOST_NAME_MAX); /* libpmix's own notation cannot express these two */
    l->hosts[2] = "123456789012";
    for (uint32_t i = 0; i < EACH; i++)
        l->local[i] = (struct fbr_bridge_rank){.rank = i, .cpus = ""};
    l->job = (struct fbr_bridge_job){.run = "large",
                                     .nspace = "fiber-large",
                                     .size = NODES * EACH,
                                     .nodes = NODES,
                                     .first = l->first,
                                     .hosts = l->hosts,
                                     .agents = l->agents,
                                     .dir = l->dir,
                                     .master_host = l->hosts[0],
                                     .local = l->local};
    if (host_call(l->host, notify, l) < 0)
        fail_msg("%s", l->err.text);
    host_close(l->host);
    return l;
}

static void test_65536_ranks_take_little_memory(void **state)
{
    struct large *l = notify_of_large_job();
    const char *sanitizer = getenv("TEST_SANITIZER_OPTIONS");

    print_message("%d ranks on %d nodes: %.3f s, %.1f MiB\n", NODES * EACH, NODES, l->seconds,
                  l->mib);
    assert_true(l->known);
    if (!sanitizer || !strstr(sanitizer, "sanitize"))
        assert_true(l->mib <= MIB_MAX);
    free(l);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_65536_ranks_take_little_memory),
    };
    struct fbr_error err = {0};

#ifdef __SANITIZE_THREAD__
    printf("skipped: ThreadSanitizer cannot see the locks of libpmix and libevent\n");
    return 77;
#endif
    pmix = fbr_module("pmix", &err);
    if (!pmix) {
        printf("skipped: needs the module: %s\n", err.text);
        return 77;
    }
    if (argc > 1 && strcmp(argv[1], "figures") == 0) {
        struct large *l = notify_of_large_job();

        printf("{\"seconds\": %.4f, \"mib\": %.1f}\n", l->seconds, l->mib);
        free(l);
        return 0;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
