/* kubeconfig.h - where the API server is and who we are to it: kubeconfig files, or the service
 * account of a pod.
 *
 * As kubectl: the files of $KUBECONFIG (separated by ':', of two equal names the first counts),
 * else ~/.kube/config, else inside a pod its service account. Paths in a file are relative to its
 * folder.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef FBR_KUBE_CONFIG_H
#define FBR_KUBE_CONFIG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "runtime/base/error.h"

struct json_t;

#define FBR_KUBE_ACCOUNT "/var/run/secrets/kubernetes.io/serviceaccount"

/* A program that prints credentials (ExecCredential, client.authentication.k8s.io). */
struct fbr_kube_exec {
    char *command; /* NULL: none */
    char **argv;   /* NULL-terminated, with the command in front */
    char **env;    /* NAME=VALUE, added to ours; NULL-terminated */
    char *version; /* "client.authentication.k8s.io/v1" */
    char *hint;    /* how to install it; may be NULL */
    bool cluster;  /* it wants to know the cluster (KUBERNETES_EXEC_INFO) */
};

/* All for fbr_kube_config_fini(); a text that was not given is NULL. */
struct fbr_kube_config {
    char *server; /* https://host:port/prefix */
    char *proxy, *server_name;
    char *ca; /* PEM text */
    bool insecure;
    char *cert, *key; /* PEM text */
    char *token;
    char *token_file; /* read again each minute */
    char *user, *password;
    char *namespace_; /* never NULL */
    char *context;    /* its name, for sentences; NULL: in a pod */
    struct fbr_kube_exec exec;
    bool in_cluster;
};

/* From the environment; `context` "" or NULL: the current one of the files. -ENOENT: there is
 * nothing. */
int fbr_kube_config_load(struct fbr_kube_config *c, const char *context, struct fbr_error *err);
/* Whether requests would cross a network in clear. */
bool fbr_kube_config_is_plain(const struct fbr_kube_config *c);
void fbr_kube_config_fini(struct fbr_kube_config *c);

/* ---- Of which that is made ---- */

/* Puts what one file says into `all` (an object), with its paths made absolute by `folder`. */
int fbr_kube_config_add(struct json_t *all, const struct json_t *file, const char *folder,
                        struct fbr_error *err);
/* Takes a context out of them. Reads the files that it names. */
int fbr_kube_config_take(struct fbr_kube_config *c, const struct json_t *all, const char *context,
                         struct fbr_error *err);
/* Inside a pod: the two variables and the folder of the account. */
int fbr_kube_config_pod(struct fbr_kube_config *c, const char *host, const char *port,
                        const char *folder, struct fbr_error *err);

#endif
