/* login.h - our logins to image registries, as the docker and podman commands store them.
 *
 * A file (config.json of docker, auth.json of podman) has
 *
 *     auths         registry -> "auth" (base64 of user:password), or "identitytoken", or "username"
 *                   and "password"
 *     credHelpers   registry -> NAME: the program docker-credential-NAME has the login
 *     credsStore    NAME: that program has all logins
 *
 * The order is docker's: the registry's own helper, the store, the file itself. A key of `auths` is
 * a host, a URL of which only the host counts, or, with podman, a host and the beginning of the
 * image's path; the longest key that matches is used. The engine gets the login in one header of
 * one request.
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

/* The login for one registry: a helper to ask, or a token, or user and password. The other fields
 * are NULL. */
struct fbr_docker_login {
    char *helper, *token, *user, *password;
};

/* Wipes the secrets and frees the login. */
void fbr_docker_login_fini(struct fbr_docker_login *l);

/* Returns the registry of an image: "registry.example.com:5000"; FBR_DOCKER_HUB if it names
 * none. */
void fbr_docker_registry(const char *image, char out[FBR_DOCKER_REGISTRY_MAX]);
/* Returns the key under which files and helpers keep the login of a registry. */
const char *fbr_docker_registry_key(const char *registry);

/* Finds the login for the registry of an image in a file. 1: *l is the caller's; 0: no login;
 * negative, and a message. */
int fbr_docker_login_find(struct fbr_docker_login *l, const struct json_t *file, const char *image,
                          struct fbr_error *err);
/* Parses the output of `docker-credential-NAME get`. */
int fbr_docker_login_parse(struct fbr_docker_login *l, const char *text, size_t len,
                           struct fbr_error *err);
/* Returns "X-Registry-Auth: ...", which the caller wipes and frees; NULL without memory. */
char *fbr_docker_login_header(const struct fbr_docker_login *l, const char *registry);

/* ---- Files and programs ---- */

/* Looks for the login in the files of this user. Blocks while a helper runs, half a minute at most,
 * or until *stop. Returns a header as above, or NULL; `told` lists the places that were searched
 * and the results, for the message of a refused pull. */
char *fbr_docker_login_look(const char *image, const atomic_bool *stop, char *told, size_t size);

#endif
