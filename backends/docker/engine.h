/* engine.h - finds the Docker engine: where it is, which API it speaks, which image and network are
 * ours.
 *
 * All of it is requested once, when the backend opens, and may block for some seconds.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "backends/docker/engine_codec.h"
#include "backends/http/http.h"
#include "runtime/net/host_address.h"

struct fbr_docker_engine {
    struct fbr_http *http;
    char address[256]; /* unix:///path or tcp://host:port */
    char name[300];    /* for messages: "the Docker engine at unix:///var/run/docker.sock" */
    char host[256];    /* of tcp://; "" for a socket or a port of this machine */
    char certs[256];   /* the folder with the TLS files; "" without TLS */
    char api[16];      /* "1.41" */
    char version[40];  /* of the engine */
    char own[65];      /* the container in which we run; "": none */
    char own_image[128], own_network[128], own_address[FBR_HOST_ADDRESS_MAX];
    struct fbr_http_options options;
    /* texts of `options`; pem[2] is secret */
    char url[300], *pem[3];
};

int fbr_docker_engine_open(struct fbr_docker_engine *e, struct fbr_loop *loop,
                           const struct fbr_config *config, struct fbr_error *err);
void fbr_docker_engine_close(struct fbr_docker_engine *e);

/* Returns our address on the way to the containers of a network ("" for the default network). */
int fbr_docker_engine_address(struct fbr_docker_engine *e, const char *network,
                              char out[FBR_HOST_ADDRESS_MAX], struct fbr_error *err);

/* Returns "/vVERSION" of the API and the formatted rest: see fbr_http_path(). */
#define fbr_docker_path(e, ...) fbr_http_path((e)->api[0] ? "/v" : "", (e)->api, "", __VA_ARGS__)
/* Sends a request to that path, and frees the path, which may be NULL. NULL without memory. */
struct fbr_http_call *fbr_docker_send(const struct fbr_docker_engine *e, char *path,
                                      struct fbr_http_request r);

/* Sends a request to that path, frees the path, and waits `ms` for the answer. Unless `status` is
 * NULL, *status becomes the status, or 0. Returns the answer as JSON; NULL and a message if it is
 * not 2xx with JSON. */
struct json_t *fbr_docker_engine_ask(const struct fbr_docker_engine *e, const char *method,
                                     char *path, uint64_t ms, int *status, struct fbr_error *err);
/* The same for a GET. `path` may have one %s, which becomes `name`, escaped. */
struct json_t *fbr_docker_engine_get(const struct fbr_docker_engine *e, const char *path,
                                     const char *name, struct fbr_error *err);
