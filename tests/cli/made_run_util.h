/* made_run_util.h - runs that are made up: their doors are real (runtime/inspect/run_control.h), what is
 * behind them is what a test wants to be there.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <signal.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "cli/run_client.h"
#include "runtime/base/environ.h"
#include "runtime/inspect/run_control.h"
#include "tests/cli/command_util.h"
#include "tests/support/sync.h"

#define MADE_RANKS 8
#define DAY_MS (24 * 3600 * 1000LL)
#define HOUR_MS (3600 * 1000LL)

struct made_run {
    struct fbr_loop *loop;
    struct fbr_run_control *control;
    struct fbr_run_control_about about;
    struct fbr_run_facts facts;
    struct fbr_run_rank ranks[MADE_RANKS];
    int nranks, looks;
    bool is_fixed; /* its size */
    /* what it is told: "signal 10 to 3; stop; scale 4", and its answer */
    char orders[200];
    int answer;
    int code;
    const char *report;
};

static inline void made_order(struct made_run *r, const char *fmt, int a, int b)
{
    size_t n = strlen(r->orders);

    snprintf(r->orders + n, sizeof(r->orders) - n, n ? "; " : "%s", "");
    n = strlen(r->orders);
    snprintf(r->orders + n, sizeof(r->orders) - n, fmt, a, b);
}

static inline void made_facts(void *user, struct fbr_run_facts *facts)
{
    *facts = ((struct made_run *)user)->facts;
}

static inline int made_stats(void *user, struct fbr_run_rank *out, int max)
{
    struct made_run *r = user;

    for (int i = 0; i < r->nranks && i < max; i++)
        out[i] = r->ranks[i];
    return r->nranks;
}

/* A rank has used half a second more at each look. */
static inline void made_look(void *user)
{
    struct made_run *r = user;

    r->looks++;
    for (int i = 0; i < r->nranks; i++)
        r->ranks[i].stats.cpu += 0.5;
}

static inline int made_signal(void *user, int rank, int sig)
{
    made_order(user, "signal %d to %d", sig, rank);
    return ((struct made_run *)user)->answer;
}

static inline int made_stop(void *user)
{
    made_order(user, "stop", 0, 0);
    return ((struct made_run *)user)->answer;
}

static inline int made_scale(void *user, int workers)
{
    made_order(user, "scale %d", workers, 0);
    return ((struct made_run *)user)->answer;
}

static const struct fbr_run_control_ops made_ops = {.facts = made_facts,
                                                    .stats = made_stats,
                                                    .look = made_look,
                                                    .signal = made_signal,
                                                    .stop = made_stop,
                                                    .scale = made_scale};
static const struct fbr_run_control_ops made_fixed = {.facts = made_facts,
                                                      .stats = made_stats,
                                                      .look = made_look,
                                                      .signal = made_signal,
                                                      .stop = made_stop};

static inline int made_open_control(void *arg)
{
    struct made_run *r = arg;
    struct fbr_error err = {0, ""};
    int rc = fbr_run_control_open(&r->control, r->loop, r->is_fixed ? &made_fixed : &made_ops, r,
                                  &r->about, &err);

    if (rc < 0)
        print_error("%s\n", err.text);
    return rc;
}

static inline int made_close_control(void *arg)
{
    struct made_run *r = arg;

    fbr_run_control_close(r->control, r->code, r->report ? r->report : "");
    r->control = NULL;
    return 0;
}

/* A run of the local backend with two ranks that run, which began so long ago. `id` is how its uid
 * begins. */
static inline void made_run_init(struct made_run *r, const char *id, const char *name,
                                 int64_t ago_ms)
{
    struct fbr_run_control_about *a = &r->about;

    memset(r, 0, sizeof(*r));
    memset(a->uid, '0', 32);
    memcpy(a->uid, id, strlen(id));
    snprintf(a->name, sizeof(a->name), "%s", name);
    snprintf(a->command, sizeof(a->command), "./%s --fast", name);
    snprintf(a->backend, sizeof(a->backend), "local");
    a->pid = getpid();
    a->started_ms = fbr_wall_ms() - ago_ms;
    a->size = 2;
    r->facts.size = r->facts.running = 2;
    r->facts.agents = 1;
    r->nranks = 2;
    for (int i = 0; i < MADE_RANKS; i++) {
        struct fiber_rank_stats *s = &r->ranks[i].stats;

        *s = (struct fiber_rank_stats){.rank = i, .state = 1, .pid = 100 + i, .memory = 3 << 20};
        snprintf(s->host, sizeof(s->host), "node%d", 9 - i);
        snprintf(s->cpus, sizeof(s->cpus), "%d", i);
        snprintf(s->how, sizeof(s->how), "PMIx");
    }
}

/* A pool in place of the ring. */
static inline void made_run_pool(struct made_run *r)
{
    r->about.kind = FBR_RUN_POOL;
    snprintf(r->facts.doing, sizeof(r->facts.doing), "7 of 9 tasks");
    for (int i = 0; i < MADE_RANKS; i++) {
        r->ranks[i].tasks = (uint64_t)(10 * (i + 1));
        r->ranks[i].busy = 1.5;
    }
}

static inline void made_run_begin(struct made_run *r)
{
    struct fbr_error err = {0, ""};

    assert_int_equal(fbr_loop_open(&r->loop, &err), 0);
    assert_int_equal(fbr_loop_call(r->loop, made_open_control, r), 0);
}

/* It has ended so, and is listed as ended. */
static inline void made_run_end(struct made_run *r, int code, const char *report)
{
    if (!r->loop)
        return;
    r->code = code;
    r->report = report;
    fbr_loop_call(r->loop, made_close_control, r);
    fbr_loop_close(r->loop);
    r->loop = NULL;
}

/* The run is over and nothing is known of how. */
static inline void made_run_close(struct made_run *r)
{
    made_run_end(r, FBR_REGISTRY_LOST, "it was closed before its end");
}

/* Its launcher is there, and says nothing: a socket that nobody accepts at. The caller closes it. */
static inline int made_run_silent(const struct made_run *r)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    struct fbr_error err = {0, ""};
    char dir[FBR_REGISTRY_MAX];
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

    assert_true(fd >= 0);
    assert_int_equal(fbr_registry_add(&r->about, dir, &err), 0);
    snprintf(address.sun_path, sizeof(address.sun_path), "%.90s/control", dir);
    assert_int_equal(bind(fd, (struct sockaddr *)&address, sizeof(address)), 0);
    assert_int_equal(listen(fd, 8), 0);
    return fd;
}

/* Its launcher was killed. */
static inline void made_run_lost(const struct made_run *r)
{
    close(made_run_silent(r));
}

/* ---- Where they are ---- */

static char made_root[64];

/* A registry and a home of the test's own; no sign of an engine. */
static inline int made_set_up(void **state)
{
    static const char *const signs[] = {"DOCKER_HOST", "KUBECONFIG", "FIBER_BACKEND",
                                        "SLURM_JOB_ID"};

    signal(SIGPIPE, SIG_IGN);
    temp_dir_make(made_root);
    setenv("XDG_RUNTIME_DIR", made_root, 1);
    setenv("XDG_STATE_HOME", made_root, 1);
    setenv("XDG_CONFIG_HOME", made_root, 1);
    setenv("HOME", made_root, 1);
    for (size_t i = 0; i < COUNT(signs); i++)
        unsetenv(signs[i]);
    fbr_environ_keep(); /* fiber_init() has kept that of the test before */
    return 0;
}

static inline int made_tear_down(void **state)
{
    temp_dir_remove(made_root);
    return 0;
}

#define made_test(f) cmocka_unit_test_setup_teardown(f, made_set_up, made_tear_down)
