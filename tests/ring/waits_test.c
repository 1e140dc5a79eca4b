/* waits_test.c - a ring that waits: for the places of its other nodes (gang.c), for its end, in MPI_Init for
 * ranks that never call it (missing.c), and in MPI after an exception of Python (traceback.c). No
 * process runs.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "ring/ring_priv.h"

#define RANKS 3

/* On the loop thread: the line of the first check that failed; 0: none. */
#define CHECK(what)          \
    do {                     \
        if (!(what))         \
            return __LINE__; \
    } while (0)

/* A ring of two agents on one host that has started one job. */
struct world {
    struct fbr_runtime rt;
    struct fiber_ring ring;
    struct ring_agent agents[2];
    struct ring_job job;
    struct ring_rank ranks[RANKS];
    uint32_t first[2], on[1];
    const char *hosts[1];
    int (*check)(struct world *w);
};

static int run_check(void *arg)
{
    struct world *w = arg;
    struct fiber_ring *r = &w->ring;

    int line = w->check(w);

    fbr_timer_fini(&r->gang);
    fbr_timer_fini(&r->ask);
    fbr_timer_fini(&r->traceback.silence);
    fbr_timer_fini(&r->grace);
    return line;
}

/* Runs it on the loop thread, where the files of the launcher run. */
static void with_ring(const char *gang_timeout, int (*check)(struct world *w))
{
    static struct world w;
    struct fiber_ring *r = &w.ring;

    memset(&w, 0, sizeof(w));
    w.check = check;
    w.rt.config = fbr_config_new();
    assert_non_null(w.rt.config);
    assert_int_equal(fbr_config_set(w.rt.config, "gang_timeout", gang_timeout, "test", NULL), 0);
    assert_int_equal(fbr_loop_open(&w.rt.loop, NULL), 0);
    r->rt = &w.rt;
    r->size = RANKS;
    r->agents = w.agents;
    r->nagents = 2;
    for (uint32_t i = 0; i < r->nagents; i++)
        w.agents[i] = (struct ring_agent){.ring = r, .number = i};
    w.first[1] = RANKS;
    w.hosts[0] = "here";
    w.job.ring = r;
    w.job.ranks = w.ranks;
    w.job.job.info.size = RANKS;
    w.job.job.info.nodes = 1;
    w.job.job.info.first = w.first;
    w.job.job.info.agents = w.on;
    w.job.job.info.hosts = w.hosts;
    DL_APPEND(r->jobs, &w.job);
    assert_int_equal(fbr_loop_call(w.rt.loop, run_check, &w), 0);
    fbr_loop_close(w.rt.loop);
    fbr_config_free(w.rt.config);
}

/* ---- Places ---- */

static int check_places(struct world *w)
{
    struct fiber_ring *r = &w->ring;

    fbr_ring_gang_wait(r); /* without any place it keeps nobody from anything */
    CHECK(!fbr_timer_runs(&r->gang));
    w->agents[1].state = AGENT_READY;
    fbr_ring_gang_wait(r);
    CHECK(fbr_timer_runs(&r->gang));
    fbr_timer_stop(&r->gang);
    CHECK(!fbr_timer_runs(&r->gang));
    return 0;
}

static void a_ring_with_some_of_its_places_waits_for_a_time(void **state)
{
    with_ring("1h", check_places);
}

static int check_no_time(struct world *w)
{
    w->agents[1].state = AGENT_READY;
    fbr_ring_gang_wait(&w->ring);
    CHECK(!fbr_timer_runs(&w->ring.gang));
    return 0;
}

static void without_a_gang_timeout_it_waits_for_ever(void **state)
{
    with_ring("0s", check_no_time);
}

static int check_next_try(struct world *w)
{
    w->agents[1].state = AGENT_READY;
    fbr_ring_gang_wait(&w->ring);
    fbr_ring_on(&w->ring, R_ON_AGAIN);
    CHECK(w->ring.state == R_RESTARTING);
    CHECK(!fbr_timer_runs(&w->ring.gang));
    return 0;
}

static void the_next_try_has_the_whole_time_again(void **state)
{
    with_ring("1h", check_next_try);
}

/* ---- The end ---- */

static bool waits_as(struct world *w, const char *text)
{
    struct fbr_run_facts f;

    fbr_ring_facts(&w->ring, &f);
    return strcmp(f.waiting, text) == 0;
}

static int check_facts_of_the_end(struct world *w)
{
    w->ring.state = R_STOPPING; /* its agents have the job, and have started no rank of it */
    CHECK(waits_as(w, "3 ranks have not ended yet"));
    w->ranks[0].state = RANK_RUNNING;
    w->job.ended = 2;
    CHECK(waits_as(w, "1 rank has not ended yet"));
    w->job.ended = RANKS;
    CHECK(waits_as(w, "its agents have not ended yet"));
    return 0;
}

static void a_ring_that_ends_waits_for_ranks_that_start_too(void **state)
{
    with_ring("1h", check_facts_of_the_end);
}

/* ---- MPI_Init ---- */

static void end_rank(struct world *w, uint32_t rank, int code, uint8_t flags)
{
    w->ranks[rank] = (struct ring_rank){.state = RANK_ENDED, .code = code, .flags = flags};
    fbr_ring_missing_ended(&w->job, rank);
}

static int check_ends_that_say_nothing(struct world *w)
{
    w->ring.state = R_RUNNING;
    fbr_ring_missing_met(&w->job, 0);
    end_rank(w, 0, 0, FBR_RANK_MET); /* it has called MPI_Init */
    end_rank(w, 1, 3, 0);            /* a failure, which is told as one */
    end_rank(w, 2, -9, 0);
    CHECK(w->job.missing == 0);
    CHECK(!fbr_timer_runs(&w->ring.ask));
    return 0;
}

static void a_rank_that_met_its_server_or_failed_is_not_missed(void **state)
{
    with_ring("1h", check_ends_that_say_nothing);
}

static int check_no_mpi(struct world *w)
{
    w->ring.state = R_RUNNING;
    end_rank(w, 1, 0, 0);
    end_rank(w, 0, 0, 0);
    CHECK(w->job.missing == 2); /* the first of them */
    CHECK(!fbr_timer_runs(&w->ring.ask));
    return 0;
}

static void where_no_rank_uses_mpi_nobody_is_asked(void **state)
{
    with_ring("1h", check_no_mpi);
}

static int check_met_first(struct world *w)
{
    w->ring.state = R_RUNNING;
    fbr_ring_missing_met(&w->job, 0);
    end_rank(w, 1, 0, 0);
    CHECK(fbr_timer_runs(&w->ring.ask));
    return 0;
}

static int check_met_later(struct world *w)
{
    w->ring.state = R_RUNNING;
    end_rank(w, 1, 0, 0);
    fbr_ring_missing_met(&w->job, 0);
    CHECK(fbr_timer_runs(&w->ring.ask));
    return 0;
}

static int check_ring_that_ends(struct world *w)
{
    w->ring.state = R_STOPPING;
    end_rank(w, 1, 0, 0);
    fbr_ring_missing_met(&w->job, 0);
    CHECK(!fbr_timer_runs(&w->ring.ask));
    return 0;
}

static void agents_are_asked_whichever_comes_first(void **state)
{
    with_ring("1h", check_met_first);
    with_ring("1h", check_met_later);
    with_ring("1h", check_ring_that_ends);
}

static int check_rank_that_waits(struct world *w)
{
    struct fiber_ring *r = &w->ring;

    r->state = R_RUNNING;
    w->ranks[0] = (struct ring_rank){.state = RANK_RUNNING, .flags = FBR_RANK_MET};
    fbr_ring_missing_waits(&w->job, 0); /* all ranks may still come */
    CHECK(r->failure.code == 0);
    end_rank(w, 2, 0, 0);
    fbr_ring_missing_waits(&w->job, 1); /* it has not met its server, so it does not wait there */
    CHECK(r->failure.code == 0);
    fbr_ring_missing_waits(&w->job, 0);
    CHECK(r->failure.code == 1);
    CHECK(strcmp(r->failure.text, "rank 2 (pid 0 on here) ended with code 0 without MPI_Init, and "
                                  "rank 0 waits for it there forever") == 0);
    CHECK(r->state == R_STOPPING);
    return 0;
}

static void a_rank_that_waits_for_one_that_ended_fails_the_ring(void **state)
{
    with_ring("1h", check_rank_that_waits);
}

static void meet(struct world *w, uint32_t rank, const char *how)
{
    w->ranks[rank] = (struct ring_rank){.state = RANK_RUNNING, .flags = FBR_RANK_MET};
    snprintf(w->ranks[rank].how, sizeof(w->ranks[rank].how), "%s", how);
    fbr_ring_missing_met(&w->job, rank);
}

static int check_mixture(struct world *w)
{
    struct fiber_ring *r = &w->ring;

    r->state = R_RUNNING;
    meet(w, 0, "PMIx 4.1");
    meet(w, 1, "tcpstore");
    CHECK(!fbr_timer_runs(&r->ask));
    meet(w, 2, "PMI 1.1");
    CHECK(fbr_timer_runs(&r->ask));
    fbr_ring_missing_waits(&w->job, 1); /* of torch, not of MPI */
    w->ranks[2].state = RANK_ENDED;
    fbr_ring_missing_waits(&w->job, 0); /* rank 2 is over, by itself */
    w->ranks[2].state = RANK_RUNNING;
    CHECK(r->failure.code == 0);
    fbr_ring_missing_waits(&w->job, 0);
    CHECK(r->failure.code == 1);
    CHECK(strcmp(r->failure.text,
                 "rank 0 (pid 0 on here) has called MPI_Init by PMIx and rank 2 by "
                 "PMI, and they wait for each other forever") == 0);
    return 0;
}

static void ranks_of_two_kinds_of_mpi_fail_the_ring(void **state)
{
    with_ring("1h", check_mixture);
}

static int check_lost_rank(struct world *w)
{
    struct fiber_ring *r = &w->ring;

    r->state = R_RUNNING;
    r->options.on_failure = FIBER_RING_SHRINK;
    w->ranks[0] = (struct ring_rank){.state = RANK_RUNNING, .flags = FBR_RANK_MET};
    fbr_ring_missing_met(&w->job, 0);
    end_rank(w, 1, 3, FBR_RANK_MET); /* the others are told of its loss */
    CHECK(w->job.missing == 0);
    end_rank(w, 2, -9, 0);
    CHECK(w->job.missing == 3);
    CHECK(fbr_timer_runs(&r->ask));
    w->agents[0].idle = true; /* nobody waits for the agent, so not for the rank either */
    fbr_ring_missing_waits(&w->job, 0);
    CHECK(r->failure.code == 0);
    w->agents[0].idle = false;
    w->ranks[2].state = RANK_STARTING; /* it is replaced */
    fbr_ring_missing_waits(&w->job, 0);
    CHECK(r->failure.code == 0);
    w->ranks[2].state = RANK_ENDED;
    fbr_ring_missing_waits(&w->job, 0);
    CHECK(r->failure.code == 137);
    CHECK(strcmp(r->failure.text, "rank 2 (pid 0 on here) was killed by signal 9 without MPI_Init, "
                                  "and rank 0 waits for it there forever") == 0);
    return 0;
}

static int check_replaced_rank(struct world *w)
{
    w->ring.state = R_RUNNING;
    w->ring.options.on_failure = FIBER_RING_REPLACE;
    fbr_ring_missing_met(&w->job,
                         1); /* the process before it: MPI_Init of the others has returned */
    w->ranks[1].state = RANK_ENDED;
    w->ranks[1].code = 3;
    fbr_ring_missing_ended(&w->job, 1);
    CHECK(w->job.missing == 0);
    end_rank(w, 2, 3, 0);
    CHECK(w->job.missing == 3);
    return 0;
}

static void a_rank_that_a_ring_goes_on_without_is_missed_if_it_never_came(void **state)
{
    with_ring("1h", check_lost_rank);
    with_ring("1h", check_replaced_rank);
}

static int check_spawned_job(struct world *w)
{
    struct fiber_ring *r = &w->ring;
    struct ring_rank child_rank = {.state = RANK_ENDED};
    struct ring_job child = w->job;

    r->state = R_RUNNING;
    w->ranks[0] = w->ranks[1] = (struct ring_rank){.state = RANK_RUNNING, .flags = FBR_RANK_MET};
    child.ranks = &child_rank;
    child.job.info.id = 1;
    child.job.info.size = 1;
    child.job.info.spawned = true;
    child.job.info.parent_rank = 1;
    fbr_ring_missing_ended(&child, 0);
    CHECK(fbr_timer_runs(&r->ask));
    snprintf(w->ranks[0].how, sizeof(w->ranks[0].how), "PMI 1.1"); /* where spawns return */
    fbr_ring_missing_waits(&w->job, 0);
    CHECK(r->failure.code == 0);
    w->ranks[0].how[0] = '\0';
    child.met = true; /* another rank of it has called MPI_Init */
    fbr_ring_missing_waits(&w->job, 0);
    CHECK(r->failure.code == 0);
    child.met = false;
    fbr_ring_missing_waits(&w->job, 0);
    CHECK(strcmp(r->failure.text,
                 "rank 0 of spawned job 1 (pid 0 on here) ended with code 0 without MPI_Init, and "
                 "rank 1 waits for it in MPI_Comm_spawn forever") == 0);
    return 0;
}

static void a_spawned_job_that_never_came_fails_the_ring(void **state)
{
    with_ring("1h", check_spawned_job);
}

/* waits_for_spawned() looks at the rank that has spawned. */
static int check_spawn_by_nobody(struct world *w)
{
    char *argv[] = {(char *)(uintptr_t) "x", NULL}, *env[] = {NULL};
    struct fiber_ring *r = &w->ring;
    struct fbr_buf b = {0};
    struct fbr_cur c;

    r->state = R_RUNNING;
    w->agents[0].state = AGENT_READY;
    CHECK(fbr_ring_requests_open(r) == 0);
    fbr_put_u64(&b, 1); /* request */
    fbr_put_u32(&b, w->job.job.info.id);
    fbr_put_u32(&b, RANKS); /* there is no such rank */
    fbr_put_u32(&b, 1);     /* size */
    fbr_put_u32(&b, 1);     /* programs */
    fbr_put_u32(&b, 0);
    fbr_put_list(&b, argv);
    fbr_put_list(&b, env);
    fbr_put_str(&b, "");
    CHECK(!b.failed);
    c = fbr_cur(b.data, b.len);
    fbr_ring_requests_frame(&w->agents[0], FBR_RING_SPAWN, &c);
    CHECK(!w->job.next);
    fbr_buf_fini(&b);
    fbr_ring_requests_close(r);
    return 0;
}

static void a_rank_that_does_not_exist_spawns_nothing(void **state)
{
    with_ring("1h", check_spawn_by_nobody);
}

/* ---- Tracebacks ---- */

static bool hint_waits_after(struct world *w, int stream, const char *text)
{
    fbr_timer_stop(&w->ring.traceback.silence);
    fbr_ring_traceback_output(&w->job, 1, stream, text, strlen(text));
    return fbr_timer_runs(&w->ring.traceback.silence);
}

static int check_tracebacks(struct world *w)
{
    static const char header[] = "step 3\nTraceback (most recent call last):\n";

    CHECK(!hint_waits_after(w, 2, header)); /* no rank uses MPI */
    w->job.met = true;
    CHECK(!hint_waits_after(w, 2, "loss 0.5\n"));
    CHECK(!hint_waits_after(w, 1, header)); /* an exception goes to standard error */
    CHECK(hint_waits_after(w, 2, header));
    CHECK(w->ring.traceback.rank == &w->ranks[1]);
    w->job.job.info.size = 1; /* one rank waits for nobody */
    CHECK(!hint_waits_after(w, 2, header));
    w->job.job.info.size = RANKS;
    w->ring.traceback.hinted = true;
    CHECK(!hint_waits_after(w, 2, header));
    return 0;
}

static void a_traceback_of_an_mpi_rank_starts_the_wait_for_the_hint(void **state)
{
    with_ring("1h", check_tracebacks);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_ring_with_some_of_its_places_waits_for_a_time),
        cmocka_unit_test(without_a_gang_timeout_it_waits_for_ever),
        cmocka_unit_test(the_next_try_has_the_whole_time_again),
        cmocka_unit_test(a_ring_that_ends_waits_for_ranks_that_start_too),
        cmocka_unit_test(a_rank_that_met_its_server_or_failed_is_not_missed),
        cmocka_unit_test(where_no_rank_uses_mpi_nobody_is_asked),
        cmocka_unit_test(agents_are_asked_whichever_comes_first),
        cmocka_unit_test(a_rank_that_waits_for_one_that_ended_fails_the_ring),
        cmocka_unit_test(ranks_of_two_kinds_of_mpi_fail_the_ring),
        cmocka_unit_test(a_rank_that_a_ring_goes_on_without_is_missed_if_it_never_came),
        cmocka_unit_test(a_spawned_job_that_never_came_fails_the_ring),
        cmocka_unit_test(a_rank_that_does_not_exist_spawns_nothing),
        cmocka_unit_test(a_traceback_of_an_mpi_rank_starts_the_wait_for_the_hint),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
