/* dryrun.c - shows a job's objects before a start: its manifest, and whether the server would
 * accept it (`fiber run --dry-run`, `--dry-run=server`, `fiber doctor`).
 *
 * The objects are those of a start, without the ticket: a ticket is a secret, and it belongs to a
 * join that does not happen. So the Secret is shown and tried without it. The server is asked with
 * dryRun=All, so admission, quota, Pod Security and the Role are checked, and nothing is created.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backends/http/json.h"
#include "backends/kubernetes/kubernetes_priv.h"
#include "runtime/base/environ.h"

#define ANSWER_MS 10000
#define SECRET_NAME "fiber-ticket"
#define NO_TICKET "not a ticket"

/* ---- YAML ---- */

struct shown_page {
    char *text;
    size_t len;
    FILE *out;
    int indent;
    bool in_item; /* the next key stands after a dash */
};

static void put_value(struct shown_page *p, const struct json_t *value);

static void put_scalar(struct shown_page *p, const struct json_t *value)
{
    char *text = fbr_json_print(value, NULL);

    fprintf(p->out, " %s\n", text ? text : "null"); /* JSON is valid YAML */
    free(text);
}

/* Whether a text needs no quotes as a key. */
static bool is_plain(const char *key)
{
    size_t n = strlen(key);

    return n &&
           strspn(key, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._/-") == n &&
           strpbrk(key, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ");
}

static void put_member(void *user, const char *key, struct json_t *value)
{
    struct shown_page *p = user;
    struct json_t *quoted;
    char *text;

    if (!p->in_item)
        fprintf(p->out, "%*s", p->indent, "");
    p->in_item = false;
    if (is_plain(key)) {
        fprintf(p->out, "%s:", key);
    } else {
        quoted = fbr_json_string(key);
        text = quoted ? fbr_json_print(quoted, NULL) : NULL;
        fprintf(p->out, "%s:", text ? text : "\"\"");
        free(text);
        fbr_json_free(quoted);
    }
    put_value(p, value);
}

static void put_list(struct shown_page *p, const struct json_t *list)
{
    putc('\n', p->out);
    for (size_t i = 0; i < fbr_json_count(list); i++) {
        const struct json_t *one = fbr_json_item(list, i);

        fprintf(p->out, "%*s-", p->indent, "");
        p->indent += 2;
        if (fbr_json_is_object(one) && fbr_json_has_members(one)) {
            putc(' ', p->out);
            p->in_item = true;
            fbr_json_each(one, put_member, p);
        } else { /* a list in a list, if a template has one, is printed as JSON */
            put_scalar(p, one);
        }
        p->indent -= 2;
    }
}

static void put_value(struct shown_page *p, const struct json_t *value)
{
    if (!fbr_json_has_members(value)) {
        put_scalar(p, value);
        return;
    }
    p->indent += 2;
    if (fbr_json_is_object(value)) {
        putc('\n', p->out);
        fbr_json_each(value, put_member, p);
    } else {
        put_list(p, value);
    }
    p->indent -= 2;
}

char *fbr_kube_show_yaml(const struct json_t *value)
{
    struct shown_page p = {.indent = 0};

    p.out = open_memstream(&p.text, &p.len);
    if (!p.out)
        return NULL;
    fbr_json_each(value, put_member, &p);
    if (fclose(p.out) == 0)
        return p.text;
    free(p.text);
    return NULL;
}

/* ---- The objects ---- */

static struct json_t *make_pod(struct fbr_backend *b, const struct fbr_job *job,
                               struct fbr_error *err)
{
    struct json_t *pod = fbr_kube_pod(job, &b->settings, err);
    char name[FBR_KUBE_NAME];
    int rc;

    if (!pod)
        return NULL;
    fbr_kube_pod_name(name, job);
    rc = fbr_kube_pod_bind(pod, job->is_master ? NULL : SECRET_NAME, name, NULL);
    if (rc < 0) {
        fbr_fail(err, rc, "out of memory");
        fbr_json_free(pod);
        return NULL;
    }
    return pod;
}

static struct json_t *make_secret(struct fbr_backend *b, const struct fbr_job *job)
{
    struct json_t *secret = fbr_kube_secret(SECRET_NAME, job->run_uid, b->user, NULL);
    char name[FBR_KUBE_NAME];

    fbr_kube_pod_name(name, job);
    if (secret && fbr_kube_secret_add(secret, name, NO_TICKET, strlen(NO_TICKET)) < 0) {
        fbr_json_free(secret);
        return NULL;
    }
    return secret;
}

int fbr_kube_show(const struct fbr_config *config, const struct fbr_job *job, int json, char **text,
                  struct fbr_error *err)
{
    struct fbr_backend b = {.env.config = config};
    const char *host = fbr_getenv("KUBERNETES_SERVICE_HOST");
    struct json_t *pod = NULL, *around = NULL;
    const struct json_t *shown;
    int rc = fbr_kube_take_config(&b, err);

    if (rc < 0)
        goto done;
    fbr_kube_set_settings(&b);
    if (!b.settings.image[0] && host && host[0])
        /* only the server knows the image of this pod */
        b.settings.image = "that-of-this-pod";
    pod = make_pod(&b, job, err);
    if (!pod) {
        rc = -EINVAL;
        goto done;
    }
    if (job->is_master)
        around = fbr_kube_master_job(pod);
    shown = job->is_master ? around : pod;
    *text = !shown ? NULL : json ? fbr_json_print(shown, NULL) : fbr_kube_show_yaml(shown);
    rc = *text ? 0 : fbr_fail(err, -ENOMEM, "out of memory");
done:
    fbr_json_free(around);
    fbr_json_free(pod);
    fbr_json_free(b.overlay);
    return rc;
}

/* ---- Whether the server would take them ---- */

static const char *what_mends(int status, const char *text)
{
    if (status == 403 && strstr(text, "quota"))
        return "ask for less (--mem, --cpus-per-rank, -n), or kubectl describe quota";
    if (strstr(text, "`fiber kubernetes manifest"))
        return ""; /* the message already has the remedy */
    return "correct the setting that it names; image, kubernetes_service_account, kubernetes_user "
           "and kubernetes_pod_template define a pod (fiber config show)";
}

/* Asks the server with a dry run. Takes ownership of `object`. */
static bool would_take(struct fbr_backend *b, const char *kind, const char *what,
                       struct json_t *object, const struct fbr_findings *to)
{
    char *body = object ? fbr_json_print(object, NULL) : NULL;
    struct fbr_error err = {0, "out of memory"};
    int status = 0;

    fbr_json_free(object);
    if (body)
        status = fbr_kube_ask(b->api, "POST",
                              fbr_kube_path(b->api, "%s" FBR_KUBE_CREATE "&dryRun=All", kind), body,
                              ANSWER_MS, NULL, &err);
    free(body);
    if (status >= 200 && status < 300) {
        fbr_report(to, FBR_FINDING_GOOD, what, "", "the server would accept it, in namespace %s",
                   b->api->namespace_);
        return true;
    }
    fbr_report(to, FBR_FINDING_BAD, what, what_mends(status, err.text), "%s%.900s",
               status ? "refused by the server: " : "", err.text);
    return false;
}

int fbr_kube_would(struct fbr_backend *b, const struct fbr_job *job, const struct fbr_findings *to)
{
    struct fbr_error err = {0, ""};
    struct json_t *pod = make_pod(b, job, &err);
    bool good;

    if (!pod) {
        fbr_report(to, FBR_FINDING_BAD, "pod", "", "%s", err.text);
        return -EPERM;
    }
    good = would_take(b, "pods", "pod", pod, to);
    if (!job->is_master) {
        good &= would_take(
            b, "configmaps", "ConfigMap",
            fbr_kube_owner_map("fiber-owner", job->run_uid, b->user, b->master, NULL), to);
        good &= would_take(b, "secrets", "Secret", make_secret(b, job), to);
    }
    return good ? 0 : -EPERM;
}
