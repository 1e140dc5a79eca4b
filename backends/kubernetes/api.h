/* api.h - requests to one API server, in one namespace.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "backends/http/http.h"
#include "backends/kubernetes/kubeconfig.h"
#include "backends/kubernetes/credentials.h"
#include "runtime/base/config.h"

/* The user of a request without credentials that the server takes; in the text of the refusal. */
#define FBR_KUBE_NOBODY "\"system:anonymous\""

struct fbr_kube_request;

struct fbr_kube_api {
    struct fbr_loop *loop;
    struct fbr_kube_config config;
    struct fbr_kube_creds *creds;
    struct fbr_http *calls;             /* short requests, over few connections */
    struct fbr_http *streams;           /* watches and logs: each has a connection of its own */
    struct fbr_http_options options[2]; /* of both */
    struct fbr_kube_request *requests;  /* requests without an answer */
    /* when a stream broke or a request got no answer, by fbr_now_ms(); 0: never */
    uint64_t away_at;
    bool no_logs;  /* the missing permission to read logs was reported */
    bool had_logs; /* a log was read, so the permission exists */
    char *namespace_;
    char host[256]; /* of the server, without port and brackets */
    /* why the server last put a request off; "": it has accepted one since then */
    char refused[400];
};

/* Opens the API by `config` and the environment. */
int fbr_kube_api_open(struct fbr_kube_api **out, struct fbr_loop *loop,
                      const struct fbr_config *config, struct fbr_error *err);
void fbr_kube_api_close(struct fbr_kube_api *a);

/* Return the path in our namespace, or of its Jobs, and the formatted rest: see fbr_http_path(). */
#define fbr_kube_path(a, ...) \
    fbr_http_path("/api/v1/namespaces/", (a)->namespace_, "/", __VA_ARGS__)
#define fbr_kube_jobs_path(a, ...) \
    fbr_http_path("/apis/batch/v1/namespaces/", (a)->namespace_, "/jobs", __VA_ARGS__)

/* Sends one request: repeated for `patience_ms`, and once with new credentials after a 401. The
 * body, NUL-terminated or NULL, is copied; `done` is called once, unless the API is closed before.
 * Takes ownership of `path`. -ENOMEM. */
int fbr_kube_send(struct fbr_kube_api *a, const char *method, char *path, const char *body,
                  uint64_t patience_ms, void (*done)(void *user, const struct fbr_http_answer *),
                  void *user);
/* The objects that requests with this `user` create are no longer wanted. The requests are repeated
 * while no answer comes, because the server may have created the object; a refusal ends them. */
void fbr_kube_unwanted(struct fbr_kube_api *a, const void *user);

/* Sends one request and waits for the answer, with all repetitions for `ms`; after a 401 once more,
 * as long for new credentials, and as long for the answer to these. Returns the status, or
 * 0 if no answer came in time, or one that is not JSON. 2xx: *answer is JSON for fbr_json_free();
 * any other status sets *answer to NULL, and err. Takes ownership of `path`. */
int fbr_kube_ask(struct fbr_kube_api *a, const char *method, char *path, const char *body,
                 uint64_t ms, struct json_t **answer, struct fbr_error *err);

/* An API server that has just started refuses for some seconds requests that it will allow
 * later. */
#define FBR_KUBE_STARTING_MS 30000
bool fbr_kube_just_started(const struct fbr_kube_api *a);
/* Whether another try, a second later, may get a better answer. */
bool fbr_kube_is_passing(const struct fbr_kube_api *a, const struct fbr_http_answer *answer);

/* Describes an answer that is not 2xx, with a remedy where one is known. `what`: "create pods". */
void fbr_kube_describe(const struct fbr_kube_api *a, const struct fbr_http_answer *answer,
                       const char *what, char *out, size_t size);
