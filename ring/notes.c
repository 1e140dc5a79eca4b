/* notes.c - remarks of agents about their hosts, printed once for all hosts together.
 *
 * Agents find the same at about the same time. So a remark waits until all hosts have made it, or
 * for a moment.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ring/ring_priv.h"

#define MOMENT_MS 300

/* A remark. In the table `heard`: "host: remark", and "host" for each host. */
struct ring_note {
    UT_hash_handle hh;
    uint32_t hosts;  /* hosts that made it and were not printed yet */
    char first[256]; /* the first of these hosts */
    char text[];
};

static struct ring_note *find(struct ring_note *notes, const char *text)
{
    struct ring_note *n;

    HASH_FIND(hh, notes, text, strlen(text), n);
    return n;
}

static struct ring_note *add(struct ring_note **notes, const char *text)
{
    size_t len = strlen(text);
    struct ring_note *n = calloc(1, sizeof(*n) + len + 1);

    if (!n)
        return NULL;
    memcpy(n->text, text, len + 1);
    HASH_ADD(hh, *notes, text, len, n);
    if (n->hh.tbl)
        return n;
    free(n);
    return NULL;
}

static void print_note(struct fiber_ring *r, struct ring_note *n)
{
    if (n->hosts == 1)
        fbr_ring_print(r, "%s: %s", n->first, n->text);
    else if (n->hosts > 1)
        fbr_ring_print(r, "on %u hosts: %s", n->hosts, n->text);
    n->hosts = 0;
}

void fbr_ring_notes_flush(struct fiber_ring *r)
{
    struct ring_note *n, *next;

    fbr_timer_stop(&r->moment);
    HASH_ITER(hh, r->notes, n, next)
        print_note(r, n);
}

void fbr_ring_note_host(struct ring_agent *a)
{
    if (!find(a->ring->heard, a->host) && add(&a->ring->heard, a->host))
        a->ring->hosts++;
}

static void on_moment(void *arg)
{
    fbr_ring_notes_flush(arg);
}

void fbr_ring_note(struct ring_agent *a, const char *text)
{
    struct fiber_ring *r = a->ring;
    struct ring_note *n = find(r->notes, text);
    char heard[900];

    snprintf(heard, sizeof(heard), "%s: %s", a->host, text);
    if (find(r->heard, heard))
        return;
    add(&r->heard, heard);
    n = n ? n : add(&r->notes, text);
    if (!n)
        return;
    if (n->hosts++ == 0)
        snprintf(n->first, sizeof(n->first), "%s", a->host);
    if (n->hosts >= r->hosts)
        print_note(r, n);
    else if (fbr_timer_init(&r->moment, r->rt->loop, on_moment, r) == 0)
        fbr_timer_start(&r->moment, MOMENT_MS, 0);
}

static void drop(struct ring_note **notes)
{
    struct ring_note *n, *next;

    HASH_ITER(hh, *notes, n, next) {
        HASH_DEL(*notes, n);
        free(n);
    }
}

void fbr_ring_notes_free(struct fiber_ring *r)
{
    drop(&r->notes);
    drop(&r->heard);
}
