/* plan_text.c - describes what a ring would start and where, for `fiber run --dry-run` and
 * `--display-map`. Starts nothing.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "ring/json_out.h"
#include "ring/plan.h"
#include "ring/apps.h"
#include "ring/ring.h"
#include "runtime/base/buf.h"
#include "runtime/pin/cgroup.h"
#include "runtime/pin/pin.h"
#include "runtime/proc/context.h"

/* The agents of one machine place their ranks together (agent_rank.c). If there are more ranks
 * than this, only those of the first agent are shown: they share processors anyway. */
#define TOGETHER_MAX 4096

struct picture {
    const struct fiber_ring_options *options;
    struct fbr_plan plan;
    /* places of the first ranks, if their node is this machine; NULL: not bound, or not known */
    struct fbr_pin *pins;
    uint32_t placed; /* number of pins */
    const struct fbr_pin_ops *ops;
    struct fbr_topology *machine;
    char note[256];
    char backend[32];
};

/* True if the user did not ask for a binding and no processor is ours for long: see
 * better_free() in agent_rank.c. */
static bool floats(struct picture *p, const struct fbr_pin_wish *wish)
{
    struct fbr_topology_facts facts;
    struct fbr_cgroup limits;

    p->ops->facts(p->machine, &facts);
    fbr_cgroup_read(&limits);
    if (wish->bind != FBR_BIND_DEFAULT || wish->gpus_per_rank || wish->cpus_per_rank ||
        !facts.this_machine || !fbr_cgroup_floats(&limits))
        return false;
    snprintf(p->note, sizeof(p->note),
             "ranks are not bound: the cgroup limit allows the time of %g of %u processors "
             "(use --bind-to core to bind)",
             limits.quota, limits.affinity);
    return true;
}

static int place(struct picture *p, struct fbr_error *err)
{
    struct fbr_pin_wish wish;
    int rc = fbr_ring_wish(&wish, p->options, err);

    if (rc < 0)
        return rc;
    if (strcmp(p->backend, FBR_BACKEND_LOCAL) != 0) {
        snprintf(p->note, sizeof(p->note),
                 "each agent binds its ranks on its own host, which is unknown until it starts");
        return 0;
    }
    p->ops = fbr_pin_load(err);
    if (!p->ops)
        return err->code;
    rc = p->ops->open(&p->machine, NULL, wish.gpus_per_rank ? FBR_TOPOLOGY_DEVICES : 0, err);
    if (rc < 0 || floats(p, &wish))
        return rc;
    if (wish.gpus_per_rank)
        fbr_pin_gpu_outer(fbr_pin_getenv, NULL, wish.visible);
    p->placed = p->plan.size <= TOGETHER_MAX ? p->plan.size : p->plan.first[1];
    wish.count = p->placed;
    p->pins = calloc(wish.count, sizeof(*p->pins));
    return p->pins ? p->ops->plan(p->machine, &wish, p->pins, p->note, sizeof(p->note), err)
                   : fbr_fail(err, -ENOMEM, "out of memory");
}

static int draw_up(struct picture *p, int size, const struct fiber_ring_options *o)
{
    struct fbr_runtime *rt = fbr_rt();
    struct fbr_error err = {0, ""};

    memset(p, 0, sizeof(*p));
    p->options = o;
    if (!rt)
        return fbr_kept();
    snprintf(p->backend, sizeof(p->backend), "%s", fbr_rt_backend_name(rt, o->backend));
    if (fbr_ring_plan(&p->plan, size, o, &err) < 0 || place(p, &err) < 0)
        return fbr_keep_error(&err);
    return 0;
}

static void fini(struct picture *p)
{
    if (p->ops)
        p->ops->close(p->machine);
    free(p->pins);
    fbr_plan_fini(&p->plan);
}

static void put_command(struct fbr_buf *b, const struct fiber_ring_program *program)
{
    for (size_t i = 0; program->command && program->command[i]; i++)
        fbr_putf(b, "%s%s", i ? " " : "", program->command[i]);
    fbr_putf(b, "\n");
}

static void put_ranks(struct fbr_buf *b, int first, int last)
{
    if (first == last)
        fbr_putf(b, "rank %d", first);
    else
        fbr_putf(b, "ranks %d to %d", first, last);
}

/* A single program is on the first line. If there are several, each has its own line. */
static void put_programs(struct fbr_buf *b, const struct picture *p)
{
    const struct fiber_ring_options *o = p->options;
    int n = fbr_ring_apps_count(o), size = (int)p->plan.size, first = 0;

    fbr_putf(b, "%d rank%s of ", size, size == 1 ? "" : "s");
    if (n > 1)
        fbr_putf(b, "%d programs\n", n);
    for (int i = 0; i < n; i++) {
        struct fiber_ring_program program = fbr_ring_app(o, size, i);

        if (n > 1) {
            put_ranks(b, first, first + program.count - 1);
            fbr_putf(b, ": ");
        }
        put_command(b, &program);
        first += program.count;
    }
}

static void label(void *user, unsigned i, char *out, size_t size)
{
    snprintf(out, size, "%u", i);
}

char *fbr_ring_plan_text(int size, const struct fiber_ring_options *o, const char *const *hosts)
{
    struct picture p;
    struct fbr_buf b = {0};
    char *map = NULL;

    if (draw_up(&p, size, o) < 0) {
        fini(&p);
        return NULL;
    }
    put_programs(&b, &p);
    fbr_putf(&b, "backend %s, %u agent%s\n", p.backend, p.plan.nodes, p.plan.nodes == 1 ? "" : "s");
    for (uint32_t k = 0; k < p.plan.nodes; k++) {
        fbr_putf(&b, "node %u%s%s: ", k, hosts ? ", " : "", hosts ? hosts[k] : "");
        put_ranks(&b, (int)p.plan.first[k], (int)p.plan.first[k + 1] - 1);
        fbr_putf(&b, "\n");
        for (uint32_t i = p.plan.first[k]; i < p.placed && i < p.plan.first[k + 1]; i++)
            fbr_putf(&b, "  rank %u: %s%s%s\n", i,
                     p.pins[i].where[0] ? p.pins[i].where : "not bound",
                     p.pins[i].cpus[0] ? ", cpus " : "", p.pins[i].cpus);
    }
    if (p.note[0])
        fbr_putf(&b, "%s\n", p.note);
    if (p.pins)
        map = p.ops->draw(p.machine, p.pins, p.placed, label, NULL);
    if (map)
        fbr_putf(&b, "%s", map);
    free(map);
    fini(&p);
    return fbr_buf_text(&b);
}

static void put_rank(struct fbr_json *j, const struct picture *p, uint32_t rank)
{
    const struct fbr_pin *pin = rank < p->placed ? &p->pins[rank] : NULL;

    fbr_json_object(j);
    fbr_json_int(j, "rank", rank);
    fbr_json_str(j, "cpus", pin && pin->cpus[0] ? pin->cpus : NULL);
    fbr_json_str(j, "where", pin && pin->where[0] ? pin->where : NULL);
    fbr_json_array(j, "gpus");
    for (unsigned g = 0; pin && g < pin->ngpus; g++)
        fbr_json_str(j, NULL, pin->gpus[g].bus_id);
    fbr_json_end_array(j);
    fbr_json_end_object(j);
}

static void put_json_command(struct fbr_json *j, const struct fiber_ring_program *program)
{
    fbr_json_array(j, "command");
    for (size_t i = 0; program->command && program->command[i]; i++)
        fbr_json_str(j, NULL, program->command[i]);
    fbr_json_end_array(j);
}

/* Writes the command. For several programs writes a list, each with its count. */
static void put_json_programs(struct fbr_json *j, int size, const struct fiber_ring_options *o)
{
    struct fiber_ring_program program = fbr_ring_app(o, size, 0);

    if (o->nprograms < 2) {
        put_json_command(j, &program);
        return;
    }
    fbr_json_array(j, "programs");
    for (int i = 0; i < o->nprograms; i++) {
        program = fbr_ring_app(o, size, i);
        fbr_json_object(j);
        fbr_json_int(j, "count", program.count);
        put_json_command(j, &program);
        fbr_json_end_object(j);
    }
    fbr_json_end_array(j);
}

char *fbr_ring_plan_json(int size, const struct fiber_ring_options *o, const char *const *hosts)
{
    struct fbr_json j = {0};
    struct picture p;

    if (draw_up(&p, size, o) < 0) {
        fini(&p);
        return NULL;
    }
    fbr_json_object(&j);
    fbr_json_int(&j, "size", p.plan.size);
    fbr_json_str(&j, "backend", p.backend);
    put_json_programs(&j, size, o);
    fbr_json_array(&j, "nodes");
    for (uint32_t k = 0; k < p.plan.nodes; k++) {
        fbr_json_object(&j);
        fbr_json_int(&j, "node", k);
        fbr_json_str(&j, "host", hosts ? hosts[k] : NULL);
        fbr_json_array(&j, "ranks");
        for (uint32_t r = p.plan.first[k]; r < p.plan.first[k + 1]; r++)
            put_rank(&j, &p, r);
        fbr_json_end_array(&j);
        fbr_json_end_object(&j);
    }
    fbr_json_end_array(&j);
    fbr_json_str(&j, "note", p.note[0] ? p.note : NULL);
    fbr_json_end_object(&j);
    fini(&p);
    return fbr_json_take(&j);
}
