/* files_test.c - files of the output of ranks that a pattern names: which of them are written anew.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "ring/ring_priv.h"
#include "tests/support/sync.h"

#define RANKS 2

/* A ring on one host; its own jobs and one that it has spawned. */
struct world {
    struct fiber_ring ring;
    struct ring_job own, again, spawned;
    struct ring_rank ranks[3][RANKS];
    char dir[64], pattern[128];
};

static struct fbr_runtime rt; /* its output is never freed */
static const uint32_t first[] = {0, RANKS}, agents[] = {0};
static const char *const hosts[] = {"here"};

static void add_job(struct world *w, struct ring_job *j, uint32_t id, bool spawned)
{
    j->ring = &w->ring;
    j->ranks = w->ranks[id];
    j->job.info = (struct fbr_bridge_job){.id = id,
                                          .size = RANKS,
                                          .nodes = 1,
                                          .first = first,
                                          .agents = agents,
                                          .hosts = hosts,
                                          .spawned = spawned};
    for (int i = 0; i < RANKS; i++)
        fbr_rank_output_begin(&j->ranks[i]);
    DL_APPEND(w->ring.jobs, j);
}

static void on_room(void *user)
{
}

static int open_output(void **state)
{
    assert_int_equal(fbr_loop_open(&rt.loop, NULL), 0);
    return fbr_output_open(&rt.output, rt.loop, on_room, NULL);
}

static int close_output(void **state)
{
    fbr_output_stop(rt.output);
    fbr_loop_close(rt.loop);
    return 0;
}

/* A ring whose output goes to files of this pattern below a new directory. */
static void set_up(struct world *w, const char *pattern)
{
    memset(w, 0, sizeof(*w));
    temp_dir_make(w->dir);
    snprintf(w->pattern, sizeof(w->pattern), "%s/%s", w->dir, pattern);
    w->ring.rt = &rt;
    w->ring.size = RANKS;
    w->ring.options.output_dir = w->pattern;
    w->ring.output_pattern = true;
    add_job(w, &w->own, 0, false);
}

static void tear_down(struct world *w)
{
    struct ring_job *j;

    DL_FOREACH(w->ring.jobs, j)
        fbr_ring_files_over(j);
    fbr_output_drain(rt.output);
    temp_dir_remove(w->dir);
}

static void put(struct ring_job *j, uint32_t rank, int stream, const char *text)
{
    fbr_ring_file_put(j, rank, stream, "", text, strlen(text));
    fbr_output_drain(rt.output);
}

static void assert_file(const struct world *w, const char *name, const char *want)
{
    char path[160], text[256] = "";
    size_t n;
    FILE *f;

    snprintf(path, sizeof(path), "%s/%s", w->dir, name);
    f = fopen(path, "r");
    assert_non_null(f);
    n = fread(text, 1, sizeof(text) - 1, f);
    fclose(f);
    text[n] = '\0';
    assert_string_equal(text, want);
}

static void leave(const struct world *w, const char *name)
{
    char path[160];
    FILE *f;

    snprintf(path, sizeof(path), "%s/%s", w->dir, name);
    f = fopen(path, "w");
    assert_non_null(f);
    fputs("of a run before\n", f);
    fclose(f);
}

static void the_first_output_of_a_rank_begins_its_file(void **state)
{
    struct world w;

    set_up(&w, "rank-%t");
    leave(&w, "rank-0");
    put(&w.own, 0, 1, "out\n");
    put(&w.own, 0, 2, "err\n");
    put(&w.own, 1, 2, "other\n");
    assert_file(&w, "rank-0", "out\nerr\n");
    assert_file(&w, "rank-1", "other\n");
    tear_down(&w);
}

/* Rank 1 prints nothing before it is started again. */
static void a_restart_goes_on_with_files_of_its_run_only(void **state)
{
    struct world w;

    set_up(&w, "rank-%r");
    leave(&w, "rank-1");
    put(&w.own, 0, 1, "first\n");
    fbr_ring_files_over(&w.own);
    w.ring.epoch = 1;
    add_job(&w, &w.again, 1, false);
    put(&w.again, 0, 1, "again\n");
    put(&w.again, 1, 1, "at last\n");
    assert_file(&w, "rank-0", "first\nagain\n");
    assert_file(&w, "rank-1", "at last\n");
    tear_down(&w);
}

/* A rank that was killed may have left a line unfinished; the other stream's file is whole. */
static void the_mark_of_a_restart_begins_a_line(void **state)
{
    struct world w;
    char want[256];

    set_up(&w, "rank-%r");
    put(&w.own, 0, 1, "step 1\nste");
    fbr_rank_output_again(&w.own, 0, 1); /* the rank alone */
    put(&w.own, 0, 1, "step 1");
    snprintf(want, sizeof(want), "step 1\nste\n%sstep 1", w.own.ranks[0].mark);
    assert_file(&w, "rank-0", want);
    add_job(&w, &w.again, 1, false);
    fbr_rank_output_again(&w.again, 0, 2); /* all ranks */
    fbr_rank_output_again(&w.again, 1, 1);
    put(&w.again, 0, 1, "\n");
    put(&w.again, 1, 1, "here\n");
    snprintf(want + strlen(want), sizeof(want) - strlen(want), "\n%s\n", w.again.ranks[0].mark);
    assert_file(&w, "rank-0", want);
    snprintf(want, sizeof(want), "%shere\n", w.again.ranks[1].mark);
    assert_file(&w, "rank-1", want);
    tear_down(&w);
}

static void spawned_ranks_with_files_of_their_own_begin_them(void **state)
{
    struct world w;

    set_up(&w, "rank-%t");
    leave(&w, "rank-2.1");
    put(&w.own, 1, 1, "parent\n");
    add_job(&w, &w.spawned, 2, true);
    put(&w.spawned, 1, 1, "child\n");
    assert_file(&w, "rank-1", "parent\n");
    assert_file(&w, "rank-2.1", "child\n");
    tear_down(&w);
}

/* A ring of one rank needs no rank in the pattern, and the ranks that it spawns share its file. */
static void spawned_ranks_do_not_empty_a_file_that_others_write(void **state)
{
    struct world w;

    set_up(&w, "all%%t");
    put(&w.own, 0, 1, "parent\n");
    add_job(&w, &w.spawned, 2, true);
    put(&w.spawned, 0, 1, "child\n");
    put(&w.spawned, 1, 1, "sister\n");
    assert_file(&w, "all%t", "parent\nchild\nsister\n");
    tear_down(&w);
}

/* An open of a FIFO without a reader would hold up the loop, and all ranks with it. */
static void a_fifo_is_written_if_a_program_reads_it(void **state)
{
    char path[160], text[16] = "";
    struct world w;
    int reader;

    set_up(&w, "rank-%t");
    for (int i = 0; i < RANKS; i++) {
        snprintf(path, sizeof(path), "%s/rank-%d", w.dir, i);
        assert_int_equal(mkfifo(path, 0600), 0);
    }
    reader = open(path, O_RDONLY | O_NONBLOCK);
    put(&w.own, 0, 1, "lost\n");
    assert_int_equal(w.ring.file_error, ENXIO);
    put(&w.own, 1, 1, "read\n");
    assert_int_equal(read(reader, text, sizeof(text)), 5);
    assert_string_equal(text, "read\n");
    close(reader);
    tear_down(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_first_output_of_a_rank_begins_its_file),
        cmocka_unit_test(a_restart_goes_on_with_files_of_its_run_only),
        cmocka_unit_test(the_mark_of_a_restart_begins_a_line),
        cmocka_unit_test(spawned_ranks_with_files_of_their_own_begin_them),
        cmocka_unit_test(spawned_ranks_do_not_empty_a_file_that_others_write),
        cmocka_unit_test(a_fifo_is_written_if_a_program_reads_it),
    };

    return cmocka_run_group_tests(tests, open_output, close_output);
}
