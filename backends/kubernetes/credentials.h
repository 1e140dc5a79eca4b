/* credentials.h - our credentials for an API server, over time: tokens that change, and programs
 * that print credentials.
 *
 * A token file is read again each minute, and a kubeconfig when the server refuses the token in
 * it. A program (an exec plugin) runs when the backend is opened, which waits for its end. Later it
 * runs on a thread of its own: a minute before its credentials expire, and when the server refuses
 * them.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "backends/kubernetes/kubeconfig.h"
#include "runtime/base/error.h"

#define FBR_KUBE_POD_MAX 254 /* bytes for the name of a pod */

struct fbr_kube_creds;

/* `config` receives new client certificates and CAs, and must outlive *out. */
int fbr_kube_creds_open(struct fbr_kube_creds **out, struct fbr_kube_config *config,
                        struct fbr_error *err);
/* Waits for a running program, some seconds at most. */
void fbr_kube_creds_close(struct fbr_kube_creds *c);
/* Returns the bearer token, or NULL; for struct fbr_http_options. */
const char *fbr_kube_creds_token(void *creds);
/* Call when the server has refused our credentials: gets new ones, if possible. True: a repetition
 * in a moment is worthwhile. */
bool fbr_kube_creds_refused(struct fbr_kube_creds *c);
/* Whether new credentials are on their way: a repetition is worthwhile only after that. */
bool fbr_kube_creds_are_awaited(struct fbr_kube_creds *c);
/* Does as fbr_kube_creds_refused(), and waits for the new credentials. */
bool fbr_kube_creds_renew(struct fbr_kube_creds *c, uint64_t ms);

/* ---- Parts ---- */

struct fbr_kube_credential {
    char *token, *cert, *key; /* NULL: none */
    int64_t expires;          /* seconds since 1970; 0: never */
};

/* Parses the output of a credential program. */
int fbr_kube_credential_parse(struct fbr_kube_credential *c, const char *text, size_t len,
                              const char *version, struct fbr_error *err);
void fbr_kube_credential_fini(struct fbr_kube_credential *c);
/* Finds the pod for which a service account's token was made; "": the token does not name it. */
void fbr_kube_token_pod(const char *token, char out[FBR_KUBE_POD_MAX]);
