/* kubeconfig.h - finds the API server and our credentials for it: kubeconfig files, or the service
 * account of a pod.
 *
 * The order is kubectl's: the files of $KUBECONFIG (separated by ':'; of two items with the same
 * name the first counts), else ~/.kube/config, else, inside a pod, its service account. A path in a
 * file is relative to the file's folder.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>

#include "runtime/program/args.h"
#include "runtime/base/error.h"

struct json_t;

#define FBR_KUBE_ACCOUNT "/var/run/secrets/kubernetes.io/serviceaccount"

/* A program that prints credentials (ExecCredential, client.authentication.k8s.io). */
struct fbr_kube_exec {
    struct fbr_args argv; /* empty: none */
    struct fbr_args env;  /* NAME=VALUE, added to our environment */
    char *version;        /* "client.authentication.k8s.io/v1" */
    char *hint;           /* how to install the program; may be NULL */
    bool cluster;         /* the program needs the facts about the cluster (KUBERNETES_EXEC_INFO) */
};

/* Free with fbr_kube_config_fini(). A text that was not given is NULL. */
struct fbr_kube_config {
    char *server; /* https://host:port/prefix */
    char *proxy, *server_name;
    /* the environment's; NULL: none, or there is a `proxy`, or the server is on this host */
    char *env_proxy, *no_proxy;
    char *ca; /* PEM text */
    bool insecure;
    char *cert, *key; /* PEM text */
    char *token;
    char *token_file; /* read again each minute */
    char *ca_file;    /* the same; NULL: `ca` stays */
    char *user, *password;
    char *namespace_; /* never NULL */
    char *context;    /* name of the context, for messages; NULL: in a pod */
    struct fbr_kube_exec exec;
    bool in_cluster;
};

/* Loads from the environment; `context` "" or NULL: the current context of the files. -ENOENT: no
 * configuration was found. */
int fbr_kube_config_load(struct fbr_kube_config *c, const char *context, struct fbr_error *err);
/* Loads what the files now have for the context of `c`. False, and nothing to release: it is gone,
 * or has become another cluster's. */
bool fbr_kube_config_again(const struct fbr_kube_config *c, struct fbr_kube_config *now);
/* Whether requests would cross a network unencrypted. */
bool fbr_kube_config_is_plain(const struct fbr_kube_config *c);
void fbr_kube_config_fini(struct fbr_kube_config *c);
/* Wipes and frees a secret, and sets it to NULL. */
void fbr_kube_forget(char **text);

/* ---- Parts ---- */

/* Adds the contents of one file to `all` (an object), with paths made absolute by `folder`. */
int fbr_kube_config_add(struct json_t *all, const struct json_t *file, const char *folder,
                        struct fbr_error *err);
/* Takes a context out of `all`. Reads the files that the context names. */
int fbr_kube_config_take(struct fbr_kube_config *c, const struct json_t *all, const char *context,
                         struct fbr_error *err);
/* Inside a pod: takes the two variables and the folder of the account. */
int fbr_kube_config_pod(struct fbr_kube_config *c, const char *host, const char *port,
                        const char *folder, struct fbr_error *err);
