/* stack_fold_test.c - what stands at the same place is shown once, and what stands elsewhere is told apart.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include <utlist.h>

#include "cli/stack_fold.h"

static void add_call(struct fbr_stack_thread *t, const char *function, const char *source)
{
    struct fbr_stack_frame *f = fbr_stack_add_frame(t);

    assert_non_null(f);
    snprintf(f->function, sizeof(f->function), "%s", function);
    snprintf(f->module, sizeof(f->module), "program");
    snprintf(f->source, sizeof(f->source), "%s", source);
}

/* A process whose main thread is in `where`, and one more, which is in poll. */
static void make(struct fbr_stack_process *p, const char *where, const char *source)
{
    struct fbr_stack_thread *t;

    memset(p, 0, sizeof(*p));
    snprintf(p->program, sizeof(p->program), "program");
    t = fbr_stack_add_thread(p);
    add_call(t, where, source);
    add_call(t, "main", "main.c:1");
    t = fbr_stack_add_thread(p);
    t->tid = 1;
    add_call(t, "poll", "");
}

static size_t count_of(const struct stack_fold *f)
{
    const struct stack_group *g;
    size_t n;

    LL_COUNT(f->groups, g, n);
    return n;
}

static void the_same_of_a_thousand_ranks_is_one(void **state)
{
    static struct fbr_stack_process all[1024];
    struct stack_fold f = {.groups = NULL};
    char ranges[64];

    for (int i = 0; i < 1024; i++) {
        make(&all[i], i == 700 ? "compute" : "barrier", i % 2 ? "a.c:1" : "a.c:2");
        stack_fold_add(&f, i, &all[i]);
    }
    stack_fold_sort(&f);
    assert_int_equal(count_of(&f), 3);
    assert_false(f.failed);
    stack_ranges(ranges, sizeof(ranges), f.groups->who, f.groups->nwho);
    assert_string_equal(ranges, "0-699,701-1023");
    assert_true(f.groups->main);
    assert_false(f.groups->exact);
    assert_string_equal(f.groups->thread->frames[0].function, "barrier");
    stack_ranges(ranges, sizeof(ranges), f.groups->next->who, f.groups->next->nwho);
    assert_string_equal(ranges, "700");
    assert_true(f.groups->next->main);
    assert_true(f.groups->next->exact);
    assert_false(f.groups->next->next->main);
    assert_int_equal(f.groups->next->next->threads, 1024);
    stack_fold_fini(&f);
    for (int i = 0; i < 1024; i++)
        fbr_stack_fini(&all[i]);
}

static void without_frames_the_reason_and_the_call_tell_apart(void **state)
{
    static const struct {
        const char *why, *call;
        char process_state;
    } cases[] = {{"no", "poll", 'S'},
                 {"no", "poll", 'S'},
                 {"no", "read", 'S'},
                 {"yes", "poll", 'S'},
                 {"no", "poll", 'D'}};
    struct fbr_stack_process all[5];
    struct stack_fold f = {.groups = NULL};

    memset(all, 0, sizeof(all));
    for (int i = 0; i < 5; i++) {
        struct fbr_stack_thread *t = fbr_stack_add_thread(&all[i]);

        t->state = cases[i].process_state;
        snprintf(t->call, sizeof(t->call), "%s", cases[i].call);
        snprintf(all[i].why, sizeof(all[i].why), "%s", cases[i].why);
        stack_fold_add(&f, i, &all[i]);
    }
    stack_fold_sort(&f);
    assert_int_equal(count_of(&f), 4);
    assert_int_equal(f.groups->nwho, 2);
    stack_fold_fini(&f);
    for (int i = 0; i < 5; i++)
        fbr_stack_fini(&all[i]);
}

static void other_programs_and_deeper_stacks_are_other_places(void **state)
{
    struct fbr_stack_process a, b, c;
    struct stack_fold f = {.groups = NULL};

    make(&a, "x", "");
    make(&b, "x", "");
    make(&c, "x", "");
    snprintf(b.program, sizeof(b.program), "other");
    add_call(&c.threads[0], "below", "");
    stack_fold_add(&f, 0, &a);
    stack_fold_add(&f, 1, &b);
    stack_fold_add(&f, 2, &c);
    assert_int_equal(count_of(&f), 5); /* the second threads of a and c are alike */
    stack_fold_fini(&f);
    fbr_stack_fini(&a);
    fbr_stack_fini(&b);
    fbr_stack_fini(&c);
}

static void threads_of_one_rank_name_it_once(void **state)
{
    struct fbr_stack_process p;
    struct stack_fold f = {.groups = NULL};

    make(&p, "poll", "");
    p.threads[0].nframes = 1;
    stack_fold_add(&f, 3, &p);
    assert_int_equal(count_of(&f), 1);
    assert_int_equal(f.groups->threads, 2);
    assert_int_equal(f.groups->nwho, 1);
    assert_false(f.groups->main);
    stack_fold_fini(&f);
    fbr_stack_fini(&p);
}

static void ranges_are_short_and_cut_between_numbers(void **state)
{
    static const int who[] = {0, 1, 2, 5, 7, 8, 100, 101, 102, 103};
    char out[32];

    stack_ranges(out, sizeof(out), who, 0);
    assert_string_equal(out, "");
    stack_ranges(out, sizeof(out), who, 1);
    assert_string_equal(out, "0");
    stack_ranges(out, sizeof(out), who, 10);
    assert_string_equal(out, "0-2,5,7,8,100-103");
    stack_ranges(out, 18, who, 10);
    assert_string_equal(out, "0-2,5,7,8,100-103");
    stack_ranges(out, 17, who, 10);
    assert_string_equal(out, "0-2,5,7,8...");
    stack_ranges(out, 8, who, 10);
    assert_string_equal(out, "0-2...");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_same_of_a_thousand_ranks_is_one),
        cmocka_unit_test(without_frames_the_reason_and_the_call_tell_apart),
        cmocka_unit_test(other_programs_and_deeper_stacks_are_other_places),
        cmocka_unit_test(threads_of_one_rank_name_it_once),
        cmocka_unit_test(ranges_are_short_and_cut_between_numbers),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
