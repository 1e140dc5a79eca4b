/* pmix_rank.c - a rank that speaks PMIx and notes when, for ring_bench.c: `pmix_rank FILE fences
 * COUNT` or `FILE lose`.
 *
 *     fences   COUNT fences in a row: the times before and after each
 *     lose     says that it is ready, and waits until it is told of a rank that has died: the time
 *              of that
 *
 * Each rank writes into its own row of FILE (rank_times.h).
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <pmix.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../rank_times.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static double told;
static int registered; /* 1: it is; below 0: it cannot be */

static void fail(const char *what, pmix_status_t rc)
{
    fprintf(stderr, "%s: %s\n", what, PMIx_Error_string(rc));
    exit(1);
}

static void fence(void)
{
    pmix_status_t rc = PMIx_Fence(NULL, 0, NULL, 0);

    if (rc != PMIX_SUCCESS)
        fail("PMIx_Fence", rc);
}

/* ---- A death ---- */

static void on_death(size_t id, pmix_status_t status, const pmix_proc_t *source, pmix_info_t info[],
                     size_t ninfo, pmix_info_t results[], size_t nresults,
                     pmix_event_notification_cbfunc_fn_t done, void *arg)
{
    pthread_mutex_lock(&lock);
    if (told == 0)
        told = bench_now();
    pthread_cond_signal(&changed);
    pthread_mutex_unlock(&lock);
    if (done)
        done(PMIX_EVENT_ACTION_COMPLETE, NULL, 0, NULL, NULL, arg);
}

static void on_registered(pmix_status_t status, size_t id, void *arg)
{
    pthread_mutex_lock(&lock);
    registered = status == PMIX_SUCCESS ? 1 : -1;
    pthread_cond_signal(&changed);
    pthread_mutex_unlock(&lock);
}

static void lose(struct rank_times *row)
{
    pmix_status_t code = PMIX_ERR_PROC_ABORTED;

    PMIx_Register_event_handler(&code, 1, NULL, 0, on_death, on_registered, NULL);
    pthread_mutex_lock(&lock);
    while (!registered)
        pthread_cond_wait(&changed, &lock);
    pthread_mutex_unlock(&lock);
    if (registered < 0)
        fail("PMIx_Register_event_handler", PMIX_ERROR);
    fence();
    __atomic_store_n(&row->ready, 1, __ATOMIC_RELEASE);
    pthread_mutex_lock(&lock);
    while (told == 0)
        pthread_cond_wait(&changed, &lock);
    row->out[0] = told;
    pthread_mutex_unlock(&lock);
}

/* ---- Fences ---- */

static void fences(struct rank_times *row, int count)
{
    fence(); /* all are there */
    for (int i = 0; i < count; i++) {
        row->in[i] = bench_now();
        fence();
        row->out[i] = bench_now();
    }
}

int main(int argc, char **argv)
{
    struct rank_times *row;
    pmix_proc_t self;
    pmix_status_t rc;
    int count = argc > 3 ? atoi(argv[3]) : 0;

    if (argc < 3 || count > RANK_ROUNDS) {
        fprintf(stderr, "usage: pmix_rank FILE fences COUNT | FILE lose\n");
        return 2;
    }
    rc = PMIx_Init(&self, NULL, 0);
    if (rc != PMIX_SUCCESS)
        fail("PMIx_Init", rc);
    row = rank_times_map(argv[1]) + self.rank;
    if (strcmp(argv[2], "lose") == 0)
        lose(row);
    else
        fences(row, count);
    PMIx_Finalize(NULL, 0);
    return 0;
}
