/* slurm_steps_test.c - steps of an allocation, with an srun of ours that Slurm refuses: the ways to
 * end while the next try is waited for; and the component of which a step is.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "backends/slurm/steps.h"
#include "runtime/base/config.h"
#include "runtime/base/sync.h"
#include "runtime/net/loop.h"
#include "tests/support/files.h"
#include "tests/support/sync.h"

#define CANNOT_START 125
#define STEPS 3

static const char refusing_srun[] =
    "#!/bin/sh\n"
    "echo 'srun: error: Unable to create step for job 7: Unable to contact slurm controller' >&2\n"
    "exit 1\n";

/* Succeeds only as a step of the second component. */
static const char srun_of_component_1[] = "#!/bin/sh\n"
                                          "case \" $* \" in\n"
                                          "*' --nodelist=n3 '*' --het-group=1 '*) exit 0 ;;\n"
                                          "esac\n"
                                          "exit 9\n";

static const char srun_that_waits[] = "#!/bin/sh\nexec /bin/sleep 1000\n";
/* It waits for room, or is refused at the first call, and then runs. */
static const char srun_that_waits_for_room[] =
    "#!/bin/sh\n"
    "echo 'srun: Job 7 step creation temporarily disabled, retrying (Requested nodes are busy)' "
    ">&2\n"
    "echo 'srun: Step created for StepId=7.0' >&2\n"
    "exec /bin/sleep 1000\n";
static const char srun_that_is_refused_once[] =
    "#!/bin/sh\n"
    "name=${*##*--job-name=} name=${0%/*}/${name%% *}\n"
    "[ -e \"$name\" ] && exec /bin/sleep 1000\n"
    ": >\"$name\"\n"
    "echo 'srun: error: Unable to create step for job 7: Unable to contact slurm controller' >&2\n"
    "exit 1\n";
/* It waits for room at each call, and is refused then at the first one. */
static const char srun_that_waits_and_is_refused_once[] =
    "#!/bin/sh\n"
    "name=${*##*--job-name=} name=${0%/*}/${name%% *}\n"
    "echo 'srun: Job 7 step creation temporarily disabled, retrying (Requested nodes are busy)' "
    ">&2\n"
    "[ -e \"$name\" ] && exec /bin/sleep 1000\n"
    ": >\"$name\"\n"
    "echo 'srun: error: Unable to create step for job 7: Unable to contact slurm controller' >&2\n"
    "exit 1\n";
static const char squeue_without_steps[] = "#!/bin/sh\n";
static const char squeue_of_steps[] = "#!/bin/sh\n"
                                      "for i in 0 1 2; do\n"
                                      "    echo \"7.$i|fiber-run-job$i.$PARENT\"\n"
                                      "done\n";
static const char scancel[] = "#!/bin/sh\n"
                              "echo \"$*\" >\"$TOLD.$2\"\n"
                              "printf x >\"$CALLED\"\n";

struct world;

struct job {
    struct world *w;
    void *handle; /* NULL: released */
    bool again;   /* it was told that srun is tried again */
    bool runs;    /* it was told that it runs now */
    bool back;    /* after that it was told that it waits for room */
    bool kill;    /* then it is killed */
    bool ended;
    unsigned ends;
    int32_t code;
    char name[16];
};

struct world {
    char dir[64];
    struct fbr_config *config;
    struct fbr_loop *loop;
    struct fbr_slurm_settings settings;
    struct fbr_slurm_steps *steps;
    struct job jobs[STEPS];
    pthread_mutex_t lock;
    pthread_cond_t changed;
};

static void kill_step(void *arg)
{
    struct job *j = arg;

    if (j->handle)
        fbr_slurm_steps_signal(j->w->steps, j->handle, SIGKILL);
}

/* As the runtime does, it releases a job when it hears its end. */
static void on_event(void *user, const struct fbr_job_event *e)
{
    struct job *j = user;
    struct world *w = j->w;
    void *handle = j->handle;

    pthread_mutex_lock(&w->lock);
    j->again |= e->type == FBR_JOB_PENDING;
    j->back |= j->runs && e->type == FBR_JOB_PENDING && strstr(e->text, "waits for room");
    j->runs |= e->type == FBR_JOB_PENDING && e->runs;
    if (e->type == FBR_JOB_EXITED) {
        j->ends++;
        j->ended = true;
        j->code = e->code;
        j->handle = NULL;
    }
    pthread_cond_broadcast(&w->changed);
    pthread_mutex_unlock(&w->lock);
    if (e->type == FBR_JOB_PENDING && j->kill)
        fbr_loop_post(w->loop, kill_step, j);
    if (e->type == FBR_JOB_EXITED)
        fbr_slurm_steps_release(w->steps, handle);
}

/* ---- On the loop thread ---- */

static int open_steps(void *arg)
{
    struct world *w = arg;
    const struct fbr_backend_env env = {.loop = w->loop, .config = w->config, .event = on_event};

    return fbr_slurm_steps_open(&w->steps, &env, &w->settings, NULL);
}

static int start_step(void *arg)
{
    static char *argv[] = {(char *)"true", NULL};
    static char *none[] = {NULL};
    struct job *j = arg;
    const struct fbr_job job = {
        .name = j->name, .run_uid = "run", .file = "/bin/true", .argv = argv, .env = none};
    struct fbr_error err = {0, ""};

    return fbr_slurm_steps_start(j->w->steps, &job, j, &j->handle, &err);
}

static int end_and_signal(void *arg)
{
    struct job *j = arg;

    return fbr_slurm_steps_signal(j->w->steps, j->handle, SIGTERM) < 0
               ? -1
               : fbr_slurm_steps_signal(j->w->steps, j->handle, SIGUSR1);
}

/* For each, and once more for the first. */
static int signal_all(void *arg)
{
    struct world *w = arg;

    for (int i = 0; i < STEPS; i++)
        fbr_slurm_steps_signal(w->steps, w->jobs[i].handle, SIGUSR1);
    return fbr_slurm_steps_signal(w->steps, w->jobs[0].handle, SIGUSR2);
}

static int release_step(void *arg)
{
    struct job *j = arg;

    fbr_slurm_steps_release(j->w->steps, j->handle);
    j->handle = NULL;
    return 0;
}

static int close_steps(void *arg)
{
    struct world *w = arg;

    fbr_slurm_steps_close(w->steps);
    fbr_slurm_settings_fini(&w->settings);
    return 0;
}

/* ---- The program's thread ---- */

static void set_up_srun(struct world *w, bool kill, const char *srun)
{
    memset(w, 0, sizeof(*w));
    temp_dir_make(w->dir);
    file_make(path_in(w->dir, "srun"), srun, strlen(srun), 0755);
    setenv("PATH", w->dir, 1); /* not where the machine's srun is */
    setenv("SLURM_JOB_ID", "7", 1);
    pthread_mutex_init(&w->lock, NULL);
    fbr_cond_init(&w->changed);
    assert_int_equal(fbr_config_load(&w->config, NULL), 0);
    assert_int_equal(fbr_slurm_settings_load(&w->settings, w->config, NULL), 0);
    assert_int_equal(fbr_loop_open(&w->loop, NULL), 0);
    assert_int_equal(fbr_loop_call(w->loop, open_steps, w), 0);
    for (int i = 0; i < STEPS; i++) {
        w->jobs[i].w = w;
        w->jobs[i].kill = kill;
        snprintf(w->jobs[i].name, sizeof(w->jobs[i].name), "job%d", i);
        assert_int_equal(fbr_loop_call(w->loop, start_step, &w->jobs[i]), 0);
    }
}

static void set_up(struct world *w, bool kill)
{
    unsetenv("SLURM_JOB_NODELIST");
    set_up_srun(w, kill, refusing_srun);
}

static void tear_down(struct world *w)
{
    fbr_loop_call(w->loop, close_steps, w);
    fbr_loop_close(w->loop);
    fbr_config_free(w->config);
    pthread_cond_destroy(&w->changed);
    pthread_mutex_destroy(&w->lock);
    temp_dir_remove(w->dir);
}

static void wait_for(struct job *j, const bool *fact)
{
    struct world *w = j->w;
    uint64_t deadline = fbr_deadline(TEST_LONG_MS);
    int rc = 0;

    pthread_mutex_lock(&w->lock);
    while (!*fact && rc == 0)
        rc = fbr_cond_wait(&w->changed, &w->lock, deadline);
    pthread_mutex_unlock(&w->lock);
    assert_int_equal(rc, 0);
}

static void a_kill_between_two_tries_ends_a_step_once(void **state)
{
    struct world w;

    set_up(&w, true);
    for (int i = 0; i < STEPS; i++) {
        wait_for(&w.jobs[i], &w.jobs[i].ended);
        assert_int_equal(w.jobs[i].code, -SIGKILL);
    }
    tear_down(&w);
    for (int i = 0; i < STEPS; i++)
        assert_int_equal(w.jobs[i].ends, 1);
}

static void a_try_that_cannot_begin_ends_a_step_once(void **state)
{
    struct world w;

    set_up(&w, false);
    for (int i = 0; i < STEPS; i++)
        wait_for(&w.jobs[i], &w.jobs[i].again);
    unlink(path_in(w.dir, "srun"));
    for (int i = 0; i < STEPS; i++) {
        wait_for(&w.jobs[i], &w.jobs[i].ended);
        assert_int_equal(w.jobs[i].code, CANNOT_START);
    }
    tear_down(&w);
    for (int i = 0; i < STEPS; i++)
        assert_int_equal(w.jobs[i].ends, 1);
}

/* The runtime releases what it has a handle of, also after a start that failed. */
static void a_start_that_fails_leaves_no_handle(void **state)
{
    struct job late = {.w = NULL};
    struct world w;

    set_up(&w, false);
    late.w = &w;
    unlink(path_in(w.dir, "srun"));
    assert_int_equal(fbr_loop_call(w.loop, start_step, &late), -ENOENT);
    assert_null(late.handle);
    tear_down(&w);
    assert_int_equal(late.ends, 0);
}

static void a_release_between_two_tries_is_the_end(void **state)
{
    struct world w;

    set_up(&w, false);
    for (int i = 0; i < STEPS; i++)
        wait_for(&w.jobs[i], &w.jobs[i].again);
    for (int i = 0; i < STEPS; i++)
        fbr_loop_call(w.loop, release_step, &w.jobs[i]);
    tear_down(&w);
    for (int i = 0; i < STEPS; i++)
        assert_int_equal(w.jobs[i].ends, 0);
}

static void another_signal_does_not_replace_that_of_the_end(void **state)
{
    struct world w;

    unsetenv("SLURM_JOB_NODELIST");
    set_up_srun(&w, false, srun_that_waits);
    file_make(path_in(w.dir, "squeue"), squeue_without_steps, sizeof(squeue_without_steps) - 1,
              0755);
    for (int i = 0; i < STEPS; i++)
        assert_int_equal(fbr_loop_call(w.loop, end_and_signal, &w.jobs[i]), 0);
    for (int i = 0; i < STEPS; i++) {
        wait_for(&w.jobs[i], &w.jobs[i].ended);
        assert_int_equal(w.jobs[i].code, -SIGTERM);
    }
    tear_down(&w);
}

static void each_signal_goes_to_all_steps_at_once(void **state)
{
    static const char usr1[] = "--quiet --signal=10 7.0 7.1 7.2\n",
                      usr2[] = "--quiet --signal=12 7.0\n";
    char number[16], bytes[2];
    struct gate called;
    struct world w;

    unsetenv("SLURM_JOB_NODELIST");
    set_up_srun(&w, false, srun_that_waits);
    file_make(path_in(w.dir, "squeue"), squeue_of_steps, sizeof(squeue_of_steps) - 1, 0755);
    file_make(path_in(w.dir, "scancel"), scancel, sizeof(scancel) - 1, 0755);
    snprintf(number, sizeof(number), "%d", (int)getpid());
    setenv("PARENT", number, 1);
    setenv("TOLD", path_in(w.dir, "told"), 1);
    gate_open(&called);
    setenv("CALLED", called.path, 1);
    assert_int_equal(fbr_loop_call(w.loop, signal_all, &w), 0);
    assert_int_equal(gate_wait(&called, bytes, 2), 0);
    file_expect(path_in(w.dir, "told.--signal=10"), usr1, sizeof(usr1) - 1, 0644);
    file_expect(path_in(w.dir, "told.--signal=12"), usr2, sizeof(usr2) - 1, 0644);
    tear_down(&w);
    gate_close(&called);
}

/* From then on it has the time of start_timeout to join. */
static void a_step_that_waited_is_told_to_run(void **state)
{
    static const char *const sruns[] = {srun_that_waits_for_room, srun_that_is_refused_once};
    struct world w;

    unsetenv("SLURM_JOB_NODELIST");
    for (int k = 0; k < 2; k++) {
        set_up_srun(&w, false, sruns[k]);
        for (int i = 0; i < STEPS; i++)
            wait_for(&w.jobs[i], &w.jobs[i].runs);
        tear_down(&w);
    }
}

/* Otherwise the time of start_timeout would go on while it waits. */
static void a_step_that_waits_again_at_its_next_try_is_told_so(void **state)
{
    struct world w;

    unsetenv("SLURM_JOB_NODELIST");
    set_up_srun(&w, false, srun_that_waits_and_is_refused_once);
    for (int i = 0; i < STEPS; i++)
        wait_for(&w.jobs[i], &w.jobs[i].back);
    tear_down(&w);
}

static void a_step_is_of_the_component_that_has_its_node(void **state)
{
    struct world w;

    setenv("SLURM_HET_SIZE", "2", 1);
    setenv("SLURM_JOB_NODELIST_HET_GROUP_0", "n1", 1);
    setenv("SLURM_JOB_NODELIST_HET_GROUP_1", "n[2-3]", 1);
    setenv("SLURM_JOB_NODELIST", "n3", 1);
    set_up_srun(&w, false, srun_of_component_1);
    for (int i = 0; i < STEPS; i++) {
        wait_for(&w.jobs[i], &w.jobs[i].ended);
        assert_int_equal(w.jobs[i].code, 0);
    }
    tear_down(&w);
    unsetenv("SLURM_HET_SIZE");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_kill_between_two_tries_ends_a_step_once),
        cmocka_unit_test(a_try_that_cannot_begin_ends_a_step_once),
        cmocka_unit_test(a_start_that_fails_leaves_no_handle),
        cmocka_unit_test(a_release_between_two_tries_is_the_end),
        cmocka_unit_test(another_signal_does_not_replace_that_of_the_end),
        cmocka_unit_test(each_signal_goes_to_all_steps_at_once),
        cmocka_unit_test(a_step_that_waited_is_told_to_run),
        cmocka_unit_test(a_step_that_waits_again_at_its_next_try_is_told_so),
        cmocka_unit_test(a_step_is_of_the_component_that_has_its_node),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
