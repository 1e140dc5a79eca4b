/* run_plan.c - shows a run without starting it.
 *
 * The plan is the ring's own. After it stands the request that a backend would send to its engine
 * for one of the ring's agents, made from the same job as in a start. The other agents differ only
 * in their names, and in their index in the ring. The request has no ticket. If the master runs in
 * the cluster, its Job and its rights follow.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "cli/run_plan.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "cli/backend_client.h"
#include "cli/in_cluster.h"
#include "ring/json_out.h"
#include "ring/plan.h"
#include "ring/ring.h"
#include "runtime/proc/context.h"

#define COULD_NOT_START 125

struct plan {
    const struct cli_args *args;
    const struct fbr_backend_ops *ops;
    struct fbr_job job; /* of one agent */
    uint32_t agents;
    bool json, server;
    bool inside;                   /* the master runs in the cluster, too */
    struct in_cluster_draft draft; /* then: of the master */
    char *master;                  /* then: its Job */
    struct fbr_json *findings;
};

/* Makes the agent's job, as ring/launch.c starts it. */
static int make_job(struct plan *p, const struct run_options *s, struct fbr_error *err)
{
    static char *const argv[] = {(char *)(uintptr_t) "fiber-worker", NULL};
    struct fbr_plan plan = {0};
    int ranks, rc = fbr_ring_plan(&plan, s->size, &s->ring, err);

    if (rc < 0)
        return rc;
    p->agents = plan.nodes;
    ranks = (int)plan.first[1];
    fbr_plan_fini(&plan);
    p->job = (struct fbr_job){.name = "agent-1",
                              .run_uid = "dry-run",
                              .image = s->ring.job.image,
                              .file = "/proc/self/exe",
                              .argv = argv,
                              .own_program = 1,
                              .cpus = s->ring.job.cpus,
                              .gpus = s->ring.job.gpus,
                              .memory = s->ring.job.memory,
                              .ticket = "",
                              .process = 1,
                              .index = 1};
    if (!(s->ring.flags & FIBER_RING_OVERSUBSCRIBE))
        p->job.width = ranks * (s->ring.cpus_per_rank ? s->ring.cpus_per_rank : 1);
    p->job.reserve = s->ring.cpus_per_rank ? p->job.width : 0;
    p->job.numbered = s->ring.slots != NULL;
    p->job.apart = s->ring.nodes > 1 && !s->ring.slots ? "dry-run" : NULL;
    if (p->job.gpus == 0)
        p->job.gpus = s->ring.gpus_per_rank * ranks;
    return 0;
}

static void on_finding(void *user, enum fbr_finding finding, const char *what, const char *text,
                       const char *mend)
{
    struct plan *p = user;
    bool good = finding == FBR_FINDING_GOOD;

    if (p->findings) {
        fbr_json_object(p->findings);
        fbr_json_str(p->findings, "object", what);
        fbr_json_bool(p->findings, "accepted", good);
        fbr_json_str(p->findings, "text", text);
        fbr_json_end_object(p->findings);
    } else if (good) {
        printf("# %s: %s\n", what, text);
    }
    if (!good) {
        cli_flush();
        cli_failed(0, "%s: %s%s%s", what, text, mend[0] ? "; try: " : "", mend);
    }
}

static int ask_server(struct plan *p)
{
    const struct fbr_findings to = {on_finding, p};
    struct cli_ask would = {.op = BACKEND_WOULD, .job = &p->job, .to = &to};
    struct fbr_error err = {0, ""};
    struct cli_backend b;
    int rc = cli_backend_open(&b, p->ops->name, &err);

    if (rc < 0)
        return cli_failed(COULD_NOT_START, "%s", err.text);
    rc = cli_backend_ask(&b, &would, NULL);
    would.job = &p->draft.job;
    if (p->inside && cli_backend_ask(&b, &would, NULL) < 0)
        rc = -EPERM;
    cli_backend_close(&b);
    return rc < 0 ? COULD_NOT_START : 0;
}

/* ---- As text, and as JSON ---- */

/* Prints the master's Job, and the objects that the master and its ring need. */
static void show_master(const struct plan *p)
{
    const struct fbr_config *c = fbr_rt()->config;
    const char *space = fbr_config_str(c, "kubernetes_namespace");

    printf("\n# the master\n---\n%s\n# to create what it needs: fiber kubernetes manifest\n",
           p->master);
    kubernetes_put_rights(fbr_config_str(c, "kubernetes_master_account"), space[0] ? space : NULL);
}

static int show_text(struct plan *p, const char *plan, const char *manifest)
{
    const struct fbr_backend_about *about = p->ops ? fbr_backend_about(p->ops->name) : NULL;
    const char *what = about && about->job ? about->job : "job";
    size_t len = strlen(plan);

    printf("%s%s", plan, len && plan[len - 1] != '\n' ? "\n" : "");
    if (manifest)
        printf("\n# one of %u %s%s%s\n%s", p->agents, what, p->agents == 1 ? "" : "s",
               p->agents == 1 ? "" : ", which differ in their names and index", manifest);
    if (p->master)
        show_master(p);
    return p->server ? ask_server(p) : 0;
}

/* The plan is one JSON object: further members are inserted before its last brace. */
static int show_json(struct plan *p, const char *plan, const char *manifest)
{
    struct fbr_json findings = {0};
    char *text = NULL;
    int code = 0;

    fbr_json_array(&findings, NULL);
    p->findings = &findings;
    if (p->server)
        code = ask_server(p);
    fbr_json_end_array(&findings);
    text = fbr_json_take(&findings);
    if (!text)
        return cli_failed(COULD_NOT_START, "out of memory");
    printf("%.*s", (int)(strlen(plan) - (manifest != NULL)), plan);
    if (manifest)
        printf(",\"manifest\":%s", manifest);
    if (manifest && p->master)
        printf(",\"master\":%s", p->master);
    if (manifest)
        printf("%s%s}", p->server ? ",\"server\":" : "", p->server ? text : "");
    putchar('\n');
    free(text);
    return code;
}

/* Turns plain text into a JSON value. */
static int make_string(char **text, struct fbr_error *err)
{
    struct fbr_json j = {0};

    fbr_json_str(&j, NULL, *text);
    free(*text);
    *text = fbr_json_take(&j);
    return *text ? 0 : fbr_fail(err, -ENOMEM, "out of memory");
}

static int show_job(const struct plan *p, const struct fbr_job *job,
                    const struct fbr_config *config, char **manifest, struct fbr_error *err)
{
    int rc;

    if (!p->ops->show)
        return 0;
    rc = p->ops->show(config, job, p->json, manifest, err);
    if (rc != -ENOTSUP || !p->json)
        return rc;
    rc = p->ops->show(config, job, 0, manifest, err);
    return rc < 0 ? rc : make_string(manifest, err);
}

/* Makes the engine's part of the plan: NULL and 0 if there is none to show. */
static int make_manifest(struct plan *p, const struct run_options *s,
                         const struct fbr_config *config, char **manifest, struct fbr_error *err)
{
    int rc;

    if ((rc = make_job(p, s, err)) < 0 || (rc = show_job(p, &p->job, config, manifest, err)) < 0 ||
        !p->inside || (rc = in_cluster_draft(&p->draft, s, p->args, err)) < 0)
        return rc;
    return show_job(p, &p->draft.job, config, &p->master, err);
}

/* A backend without a dry run need not be loaded, nor its libraries. */
static int find_backend(struct plan *p, const char *name, struct fbr_error *err)
{
    const struct fbr_backend_about *about = fbr_backend_about(name);

    if (!p->server && about && !about->shows)
        return 0;
    p->ops = fbr_backend_find(name, err);
    if (!p->ops)
        return -ENOENT;
    return p->server && !p->ops->would
               ? fbr_fail(err, -EINVAL,
                          "--dry-run=server needs the API server of Kubernetes, but the backend is "
                          "%s: omit =server, or add --backend kubernetes",
                          name)
               : 0;
}

static int show(struct plan *p, const struct run_options *s, const char *plan)
{
    struct fbr_runtime *rt = fbr_rt();
    struct fbr_error err = {0, ""};
    char *manifest = NULL;
    const char *backend = p->inside ? in_cluster_backend(p->args->values[RUN_BACKEND].text)
                                    : fbr_rt_backend_name(rt, NULL);
    int rc, code;

    if (!backend)
        return 2;
    rc = find_backend(p, backend, &err);
    if (rc == -EINVAL)
        return cli_failed(2, "%s", err.text);
    if (rc == 0 && p->ops)
        rc = make_manifest(p, s, rt->config, &manifest, &err);
    p->server &= rc == 0;
    code = p->json ? show_json(p, plan, manifest) : show_text(p, plan, manifest);
    free(manifest);
    free(p->master);
    in_cluster_draft_fini(&p->draft);
    return rc < 0 ? cli_failed(COULD_NOT_START, "%s", err.text) : code;
}

int run_plan_show(const struct run_options *s, const struct cli_args *args)
{
    struct plan p = {.args = args,
                     .json = args->values[RUN_JSON].number > 0,
                     .inside = args->values[RUN_IN_CLUSTER].number > 0,
                     .server = !strcmp(args->values[RUN_DRY_RUN].text, "server")};
    struct fiber_ring_options ring = s->ring;
    char *plan;
    int code;

    if (p.inside)
        ring.backend = in_cluster_backend(NULL);
    plan = p.json ? fbr_ring_plan_json(s->size, &ring, s->names)
                  : fbr_ring_plan_text(s->size, &ring, s->names);
    code = plan ? show(&p, s, plan) : cli_failed(COULD_NOT_START, "%s", fiber_last_error());

    free(plan);
    return code;
}
