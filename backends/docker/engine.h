/* engine.h - the Docker engine as one finds it: where it is, what it speaks, which image and
 * network are ours.
 *
 * Everything here is asked for once, at the beginning, and may block for some seconds.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef FBR_DOCKER_ENGINE_H
#define FBR_DOCKER_ENGINE_H

#include <stdbool.h>

#include "backends/docker/engine_text.h"
#include "backends/http/http.h"
#include "runtime/net/host_address.h"

struct fbr_docker_engine {
    struct fbr_http *http;
    char name[300];   /* for sentences: "the Docker engine at unix:///var/run/docker.sock" */
    char host[256];   /* of tcp://; "" for a socket, or a port, of this machine */
    char certs[256];  /* the folder with the files of TLS; "" without */
    char api[16];     /* "1.41" */
    char version[40]; /* the engine's own */
    char own[65];     /* the container that we are in, "" for none */
    char own_image[128], own_network[128], own_address[FBR_HOST_ADDRESS_MAX];
};

int fbr_docker_engine_open(struct fbr_docker_engine *e, struct fbr_loop *loop,
                           const struct fbr_config *config, struct fbr_error *err);
void fbr_docker_engine_close(struct fbr_docker_engine *e);

/* Our address on the way to containers of that network ("" for the default one). */
int fbr_docker_engine_address(struct fbr_docker_engine *e, const char *network, char *out,
                              size_t size, struct fbr_error *err);

/* Asks now, and takes the answer apart: NULL and a sentence when it is not 2xx with JSON. */
struct json_t *fbr_docker_engine_get(struct fbr_docker_engine *e, const char *path, int *status,
                                     struct fbr_error *err);

#endif
