/* login.h - our logins to registries of images, as the docker and podman commands have written them
 * down.
 *
 * In a file (config.json of docker, auth.json of podman):
 *
 *     auths         registry -> "auth" (base64 of user:password), or "identitytoken", or "username"
 *                   and "password"
 *     credHelpers   registry -> NAME: the program docker-credential-NAME knows it
 *     credsStore    NAME: that program knows all of them
 *
 * They are asked in docker's order: a registry's own helper, the store, the file itself. A key of
 * `auths` is a host, a URL whose host counts, or, as podman has it, a host and the beginning of the
 * image's path; the longest that fits counts. The engine gets one header of one request.
 *
 * Source of the formats: docker/cli (cli/config), docker/docker-credential-helpers,
 * containers-auth.json(5), and the Engine API, version 1.41, "Authentication".
 *
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef FBR_DOCKER_LOGIN_H
#define FBR_DOCKER_LOGIN_H

#include <stdatomic.h>
#include <stdbool.h>

#include "backends/http/json.h"

#define FBR_DOCKER_REGISTRY_MAX 256
#define FBR_DOCKER_HUB "docker.io"

/* ---- Pure ---- */

/* The login for one registry: `helper` must be asked, or a token, or user and password. NULL: not
 * that. */
struct fbr_docker_login {
    char *helper, *token, *user, *password;
};

/* Wipes what is secret. */
void fbr_docker_login_fini(struct fbr_docker_login *l);

/* The registry of an image: "registry.example.com:5000"; FBR_DOCKER_HUB when it names none. */
void fbr_docker_registry(const char *image, char out[FBR_DOCKER_REGISTRY_MAX]);
/* Returns the key under which a login is kept, and asked for. */
const char *fbr_docker_registry_key(const char *registry);

/* Finds the login for the registry of an image in a file: 1, and *l is the caller's; 0: nothing;
 * negative and a sentence. */
int fbr_docker_login_find(struct fbr_docker_login *l, const struct json_t *file, const char *image,
                          struct fbr_error *err);
/* Parses the output of `docker-credential-NAME get`. */
int fbr_docker_login_parse(struct fbr_docker_login *l, const char *text, size_t len,
                           struct fbr_error *err);
/* "X-Registry-Auth: ...", to be wiped and freed; NULL without memory. */
char *fbr_docker_login_header(const struct fbr_docker_login *l, const char *registry);

/* ---- Files and programs ---- */

/* Looks for it in the files of this user. Blocks while a helper is asked, half a minute at most, or
 * until *stop. A header as above, or NULL; `told` says where it was looked for and what came of it,
 * for the sentence of a pull that is refused. */
char *fbr_docker_login_look(const char *image, const atomic_bool *stop, char *told, size_t size);

#endif
