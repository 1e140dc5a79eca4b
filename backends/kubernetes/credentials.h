/* credentials.h - who we are to an API server, over time: tokens that change, and programs that
 * give credentials.
 *
 * A token file is read again each minute. A program (an exec plugin) is run when the backend is
 * opened, which waits for it, and then, on a thread of its own, a minute before what it gave
 * expires and when the server refuses it.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef FBR_KUBE_CREDS_H
#define FBR_KUBE_CREDS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "backends/kubernetes/kubeconfig.h"
#include "runtime/base/error.h"

struct fbr_kube_creds;

/* `config` gets the client certificate that a program gives, and must outlive it. */
int fbr_kube_creds_open(struct fbr_kube_creds **out, struct fbr_kube_config *config,
                        struct fbr_error *err);
/* Waits for a program that runs, some seconds at most. */
void fbr_kube_creds_close(struct fbr_kube_creds *c);
/* The bearer token, or NULL; for struct fbr_http_options. */
const char *fbr_kube_creds_token(void *creds);
/* The server has refused us: gets new ones, if that is possible. True: a repetition in a moment is
 * worth it. */
bool fbr_kube_creds_refused(struct fbr_kube_creds *c);
/* The same, and waits for them. */
bool fbr_kube_creds_renew(struct fbr_kube_creds *c, uint64_t ms);

/* ---- Of which that is made ---- */

struct fbr_kube_credential {
    char *token, *cert, *key; /* NULL: none */
    int64_t expires;          /* seconds since 1970; 0: never */
};

/* Parses the output of a credential program. */
int fbr_kube_credential_parse(struct fbr_kube_credential *c, const char *text, size_t len,
                              const char *version, struct fbr_error *err);
void fbr_kube_credential_fini(struct fbr_kube_credential *c);

#endif
