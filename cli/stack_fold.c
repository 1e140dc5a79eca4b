/* stack_fold.c - groups equal stacks of many ranks.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "cli/stack_fold.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <utlist.h>

/* ---- Comparing ---- */

static bool same(const struct stack_group *g, const struct fbr_stack_process *p,
                 const struct fbr_stack_thread *t)
{
    if (g->thread->nframes != t->nframes || strcmp(g->process->program, p->program) != 0)
        return false;
    for (uint32_t i = 0; i < t->nframes; i++)
        if (strcmp(g->thread->frames[i].function, t->frames[i].function) != 0 ||
            strcmp(g->thread->frames[i].module, t->frames[i].module) != 0)
            return false;
    return t->nframes || (!strcmp(g->thread->why, t->why) && !strcmp(g->process->why, p->why) &&
                          !strcmp(g->thread->call, t->call) && g->thread->state == t->state);
}

static bool same_lines(const struct fbr_stack_thread *a, const struct fbr_stack_thread *b)
{
    for (uint32_t i = 0; i < a->nframes; i++)
        if (strcmp(a->frames[i].source, b->frames[i].source) != 0)
            return false;
    return true;
}

/* ---- Folding ---- */

static void add_who(struct stack_fold *f, struct stack_group *g, int who)
{
    if (g->nwho && g->who[g->nwho - 1] == who)
        return;
    if (fbr_grow(&g->who, g->nwho, sizeof(*g->who)))
        g->who[g->nwho++] = who;
    else
        f->failed = true;
}

static void add_thread(struct stack_fold *f, int who, const struct fbr_stack_process *p,
                       const struct fbr_stack_thread *t)
{
    struct stack_group *g;

    LL_FOREACH(f->groups, g)
        if (same(g, p, t))
            break;
    if (!g) {
        g = calloc(1, sizeof(*g));
        if (!g) {
            f->failed = true;
            return;
        }
        *g = (struct stack_group){
            .process = p, .thread = t, .main = true, .exact = true, .call = true};
        LL_PREPEND(f->groups, g);
    }
    g->main = g->main && t == p->threads;
    g->exact = g->exact && same_lines(g->thread, t);
    g->call = g->call && !strcmp(g->thread->call, t->call);
    g->threads++;
    add_who(f, g, who);
}

void stack_fold_add(struct stack_fold *f, int who, const struct fbr_stack_process *p)
{
    for (uint32_t i = 0; i < p->nthreads; i++)
        add_thread(f, who, p, &p->threads[i]);
}

static int order(const struct stack_group *a, const struct stack_group *b)
{
    if (a->main != b->main)
        return a->main ? -1 : 1;
    if (a->nwho != b->nwho)
        return a->nwho > b->nwho ? -1 : 1;
    if (!a->nwho || a->who[0] == b->who[0])
        return a->thread->tid < b->thread->tid ? -1 : a->thread->tid > b->thread->tid;
    return a->who[0] < b->who[0] ? -1 : 1;
}

void stack_fold_sort(struct stack_fold *f)
{
    LL_SORT(f->groups, order);
}

void stack_fold_fini(struct stack_fold *f)
{
    struct stack_group *g, *spare;

    LL_FOREACH_SAFE(f->groups, g, spare) {
        free(g->who);
        free(g);
    }
    *f = (struct stack_fold){.groups = NULL};
}

void stack_ranges(char *out, size_t size, const int *who, size_t n)
{
    size_t len = 0;

    snprintf(out, size, "%s", "");
    for (size_t i = 0, k; i < n; i = k) {
        char part[40];
        int wrote;

        for (k = i + 1; k < n && who[k] == who[k - 1] + 1; k++)
            ;
        wrote = k - i == 1 ? snprintf(part, sizeof(part), "%s%d", i ? "," : "", who[i])
                           : snprintf(part, sizeof(part), "%s%d%c%d", i ? "," : "", who[i],
                                      k - i == 2 ? ',' : '-', who[k - 1]);
        if (len + (size_t)wrote + (k < n ? 3 : 0) >= size) { /* leaves room for "..." */
            snprintf(out + len, size - len, "...");
            return;
        }
        len += (size_t)snprintf(out + len, size - len, "%s", part);
    }
}
