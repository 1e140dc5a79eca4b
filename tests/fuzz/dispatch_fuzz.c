/* dispatch_fuzz.c - the scheduling engine: the input is a program of events (a byte for what, some
 * for the details).
 *
 * A model of the workers and of what was delivered runs beside it. After each event the engine's
 * own invariants must hold; each task must end once; what is at most once must be handed out once;
 * and at the end one healthy worker must be able to finish all that is left.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "pool/dispatch.h"
#include "tests/support/dispatch_check.h"

#define MAPS 6
#define WORKERS 5
#define TASKS 2600 /* of a map; more than two pages of the engine */

#define REQUIRE(truth) ((truth) ? (void)0 : broken(#truth, __LINE__))

static void broken(const char *what, int line)
{
    fprintf(stderr, "line %d: not so: %s\n", line, what);
    abort();
}

struct model_map {
    uint64_t id, total, ended;
    int retries;
    bool open, timed;
    uint8_t over[TASKS];   /* taken, cancelled or failed */
    uint8_t starts[TASKS]; /* that there may have been: less those that were returned */
};

struct model_batch {
    uint64_t id, map, first;
    uint32_t seen, kept;
};

struct model_worker {
    uint64_t id;
    bool dead, draining, drained;
    unsigned n;
    struct model_batch batches[2];
};

struct model {
    struct fbr_dispatch *d;
    struct model_map maps[MAPS];
    struct model_worker workers[WORKERS];
    uint64_t now, batch;
    const uint8_t *at, *end;
};

static unsigned next_byte(struct model *m)
{
    return m->at < m->end ? *m->at++ : 0;
}

static struct model_map *map_of(struct model *m, uint64_t id)
{
    for (unsigned i = 0; i < MAPS; i++)
        if (id && m->maps[i].id == id)
            return &m->maps[i];
    return NULL;
}

static struct model_worker *worker_of(struct model *m, uint64_t id)
{
    for (unsigned i = 0; i < WORKERS; i++)
        if (id && m->workers[i].id == id)
            return &m->workers[i];
    return NULL;
}

static void task_over(struct model *m, uint64_t map, uint64_t index)
{
    struct model_map *mm = map_of(m, map);

    REQUIRE(mm && index < mm->total && !mm->over[index]);
    mm->over[index] = 1;
    mm->ended++;
}

/* ---- decisions ---- */

static void check_given(struct model_map *mm, const struct fbr_dispatch_batch *b)
{
    REQUIRE(b->count >= 1 && b->count <= FBR_DISPATCH_BATCH_MAX &&
            b->first + b->count <= mm->total);
    REQUIRE(b->count == 1 || (mm->retries != 0 && !mm->timed));
    for (uint32_t i = 0; i < b->count; i++) {
        REQUIRE(!mm->over[b->first + i]);
        mm->starts[b->first + i]++;
        REQUIRE(mm->starts[b->first + i] == 1 || mm->retries != 0);
    }
}

static void pull_batches(struct model *m)
{
    struct fbr_dispatch_batch b;

    while (fbr_dispatch_next(m->d, m->now, &b) > 0) {
        struct model_worker *w = worker_of(m, b.worker);
        struct model_map *mm = map_of(m, b.map);

        REQUIRE(w && mm && w == b.worker_user && mm == b.map_user);
        REQUIRE(!w->dead && !w->draining && w->n < 2 && b.id > m->batch);
        check_given(mm, &b);
        m->batch = b.id;
        w->batches[w->n++] = (struct model_batch){b.id, b.map, b.first, 0, b.count};
    }
}

static void pull_orders(struct model *m)
{
    struct fbr_dispatch_order o;

    while (fbr_dispatch_order(m->d, m->now, &o) > 0) {
        struct model_worker *w = worker_of(m, o.worker);

        REQUIRE(w && !w->dead && w == o.worker_user);
        REQUIRE(!o.map == !o.map_user);
        if (o.kind == FBR_DISPATCH_TIMEOUT)
            task_over(m, o.map, o.index);
        if (o.kind == FBR_DISPATCH_DRAINED) {
            REQUIRE(w->n == 0 && !w->drained);
            w->drained = w->draining = true;
        } else {
            REQUIRE(w->n > 0);
            REQUIRE(w->batches[0].id == o.batch || (w->n == 2 && w->batches[1].id == o.batch));
        }
    }
}

/* ---- events ---- */

static uint64_t size_of(void *user, uint64_t index)
{
    return index % 7 << 19;
}

static void do_map_add(struct model *m)
{
    unsigned how = next_byte(m), size = next_byte(m), more = next_byte(m);
    struct model_map *mm = NULL;
    struct fbr_dispatch_map map = {.tasks = how & 1 ? size * 10 : size % 16, .open = how & 2};

    for (unsigned i = 0; i < MAPS && !mm; i++)
        mm = m->maps[i].id ? NULL : &m->maps[i];
    if (!mm)
        return;
    memset(mm, 0, sizeof(*mm));
    map.user = mm;
    map.priority = more % 3 - 1;
    map.retries = (int)(more / 3 % 4) - 1;
    map.timeout_ns = how & 4 ? 2000000 : 0;
    map.chunk = how & 8 ? more : 0;
    map.expect_ns = how & 16 ? more * 100 : 0;
    map.task_bytes = how & 32 ? more << 10 : 0;
    map.size_of = how & 64 ? size_of : NULL;
    mm->total = map.tasks;
    mm->retries = map.retries;
    mm->open = map.open;
    mm->timed = map.timeout_ns;
    REQUIRE(fbr_dispatch_map_add(m->d, &map, &mm->id) == 0);
}

static void do_map_grow(struct model *m)
{
    struct model_map *mm = &m->maps[next_byte(m) % MAPS];
    uint64_t more = next_byte(m) * 5;
    int rc;

    if (!mm->id || mm->total + more > TASKS)
        return;
    rc = fbr_dispatch_map_grow(m->d, mm->id, more);
    REQUIRE(rc == (mm->open ? 0 : -EINVAL));
    mm->total += rc ? 0 : more;
}

static void do_map_close(struct model *m)
{
    struct model_map *mm = &m->maps[next_byte(m) % MAPS];

    if (!mm->id)
        return;
    REQUIRE(dispatch_left(m->d, mm->id) == mm->total - mm->ended);
    fbr_dispatch_map_close(m->d, mm->id);
    REQUIRE(dispatch_left(m->d, mm->id) == 0);
    mm->id = 0;
}

static void do_cancel(struct model *m)
{
    struct model_map *mm = &m->maps[next_byte(m) % MAPS];
    uint64_t index = next_byte(m) * 11;
    struct fbr_dispatch_order o;
    int rc;

    if (!mm->id)
        return;
    rc = fbr_dispatch_task_cancel(m->d, mm->id, index, &o);
    if (index >= mm->total) {
        REQUIRE(rc == -ENOENT);
    } else if (mm->over[index]) {
        REQUIRE(rc == -EALREADY);
    } else {
        REQUIRE(rc == 0 || (rc == 1 && o.kind == FBR_DISPATCH_CANCEL && worker_of(m, o.worker)));
        task_over(m, mm->id, index);
    }
}

static void do_worker_add(struct model *m)
{
    unsigned i = 0, limit = next_byte(m);

    while (i < WORKERS && m->workers[i].id)
        i++;
    if (i == WORKERS)
        return;
    memset(&m->workers[i], 0, sizeof(m->workers[i]));
    REQUIRE(fbr_dispatch_worker_add(m->d, m->now, &m->workers[i], limit < 32 ? limit : 0,
                                    &m->workers[i].id) == 0);
}

static void do_drain(struct model *m)
{
    struct model_worker *w = &m->workers[next_byte(m) % WORKERS];

    if (!w->id || w->dead)
        return;
    fbr_dispatch_worker_drain(m->d, w->id);
    w->draining = true;
}

static void failed(struct model *m, int rc, const struct fbr_dispatch_failure *f)
{
    REQUIRE(rc == 0 || rc == 1);
    if (!rc)
        return;
    REQUIRE(f->why == FBR_DISPATCH_LOST || (f->deaths == 3 && f->reports == 3));
    REQUIRE(f->map_user == map_of(m, f->map));
    task_over(m, f->map, f->index);
}

static void do_dead(struct model *m)
{
    struct model_worker *w = &m->workers[next_byte(m) % WORKERS];
    unsigned flags = next_byte(m) % 3; /* 0, FBR_DISPATCH_DISRUPTION or _JOB */
    struct fbr_dispatch_failure f;
    int rc;

    if (!w->id)
        return;
    rc = fbr_dispatch_worker_dead(m->d, m->now, w->id, m->now, flags, &f);
    REQUIRE(!rc || !w->dead);
    failed(m, rc, &f);
    w->dead = true;
}

static void do_remove(struct model *m)
{
    struct model_worker *w = &m->workers[next_byte(m) % WORKERS];
    struct fbr_dispatch_failure f;

    if (!w->id)
        return;
    failed(m, fbr_dispatch_worker_remove(m->d, m->now, w->id, &f), &f);
    w->id = 0;
}

static void drop_batch(struct model_worker *w, unsigned i)
{
    if (w->batches[i].seen < w->batches[i].kept)
        return;
    w->n--;
    if (i == 0)
        w->batches[0] = w->batches[1];
}

static void report(struct model *m, struct model_worker *w, unsigned i, uint32_t n, uint64_t busy)
{
    struct model_batch *b = &w->batches[i];
    struct model_map *mm = map_of(m, b->map);
    struct fbr_dispatch_taken out;
    bool take[FBR_DISPATCH_BATCH_MAX];
    uint32_t taken = 0;

    n = n < b->kept - b->seen ? n : b->kept - b->seen;
    REQUIRE(fbr_dispatch_results(m->d, m->now, w->id, b->id, b->seen, n, busy, take, &out) == 0);
    REQUIRE(out.first == b->first + b->seen && out.map == (mm ? b->map : 0));
    for (uint32_t k = 0; k < n; k++) {
        REQUIRE(take[k] == (mm && !mm->over[out.first + k]));
        if (take[k])
            task_over(m, b->map, out.first + k);
        taken += take[k];
    }
    REQUIRE(taken == out.taken);
    b->seen += n;
    drop_batch(w, i);
}

static void do_results(struct model *m)
{
    struct model_worker *w = &m->workers[next_byte(m) % WORKERS];
    unsigned n = next_byte(m), busy = next_byte(m);

    if (w->id && w->n) /* a dead worker's batches may come in any order */
        report(m, w, w->dead ? n % w->n : 0, n > 200 ? 1024 : n % 8, (uint64_t)busy * busy * busy);
}

static void do_returned(struct model *m)
{
    struct model_worker *w = &m->workers[next_byte(m) % WORKERS];
    unsigned which = next_byte(m), keep = next_byte(m);
    struct model_batch *b;
    uint32_t kept;

    if (!w->id || !w->n)
        return;
    b = &w->batches[which % w->n];
    kept = b->seen + keep % (b->kept - b->seen + 1);
    if (w->dead) {
        REQUIRE(fbr_dispatch_returned(m->d, m->now, w->id, b->id, kept) == -ENOENT);
        return;
    }
    REQUIRE(fbr_dispatch_returned(m->d, m->now, w->id, b->id, kept) == 0);
    if (map_of(m, b->map))
        for (uint32_t i = kept; i < b->kept; i++)
            map_of(m, b->map)->starts[b->first + i]--;
    b->kept = kept;
    drop_batch(w, which % w->n);
}

/* What a confused worker might say changes nothing. */
static void do_nonsense(struct model *m)
{
    struct model_worker *w = &m->workers[next_byte(m) % WORKERS];
    struct model_batch *b = &w->batches[0];
    struct fbr_dispatch_taken out;
    bool take[FBR_DISPATCH_BATCH_MAX];

    REQUIRE(fbr_dispatch_results(m->d, m->now, w->id ^ 1u << 30, 1, 0, 3, 0, take, &out) ==
            -ENOENT);
    REQUIRE(fbr_dispatch_returned(m->d, m->now, w->id, m->batch + 1, 0) == -ENOENT);
    if (!w->id || !w->n || w->dead)
        return;
    REQUIRE(fbr_dispatch_results(m->d, m->now, w->id, b->id, b->seen + 1, 1, 0, take, &out) ==
            -EPROTO);
    REQUIRE(fbr_dispatch_results(m->d, m->now, w->id, b->id, b->seen, UINT32_MAX, 0, take, &out) ==
            -EPROTO);
    REQUIRE(fbr_dispatch_returned(m->d, m->now, w->id, b->id, b->kept + 1) == -EPROTO);
}

static void do_event(struct model *m)
{
    unsigned what = next_byte(m);
    static void (*const events[])(struct model *) = {
        do_map_add, do_map_grow, do_map_close, do_cancel,     do_worker_add,
        do_drain,   do_dead,     do_remove,    do_results,    do_results,
        do_results, do_returned, do_nonsense,  do_worker_add,
    };

    m->now += 1u << what / 14;
    events[what % 14](m);
    if (what % 5) {
        pull_batches(m);
        pull_orders(m);
    }
}

/* ---- the end ---- */

static void finish(struct model *m)
{
    struct fbr_dispatch_failure f;
    struct fbr_dispatch_stats stats;
    struct model_worker *w = &m->workers[0];

    for (unsigned i = 0; i < WORKERS; i++)
        if (m->workers[i].id) {
            failed(m, fbr_dispatch_worker_remove(m->d, m->now, m->workers[i].id, &f), &f);
            m->workers[i].id = 0;
        }
    memset(w, 0, sizeof(*w));
    REQUIRE(fbr_dispatch_worker_add(m->d, m->now, w, 0, &w->id) == 0);
    for (pull_batches(m); w->n; pull_batches(m)) {
        m->now += 1000;
        report(m, w, 0, 1024, 1000);
    }
    for (unsigned i = 0; i < MAPS; i++) {
        REQUIRE(!m->maps[i].id || m->maps[i].ended == m->maps[i].total);
        fbr_dispatch_map_close(m->d, m->maps[i].id);
    }
    stats = *fbr_dispatch_stats(m->d);
    REQUIRE(stats.waiting == 0 && stats.held == 0 && stats.maps == 0 && stats.workers == 1);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct model *m = calloc(1, sizeof(*m));
    unsigned step = 0;

    REQUIRE(m);
    m->d = fbr_dispatch_open(FBR_DISPATCH_BYTES_MAX);
    REQUIRE(m->d);
    m->at = data;
    m->end = data + size;
    while (m->at < m->end) {
        do_event(m);
        if (size < 128 || step++ % 16 == 0) {
            const char *wrong = dispatch_check(m->d);

            if (wrong)
                broken(wrong, __LINE__);
        }
    }
    REQUIRE(!dispatch_check(m->d));
    finish(m);
    fbr_dispatch_close(m->d);
    free(m);
    return 0;
}
