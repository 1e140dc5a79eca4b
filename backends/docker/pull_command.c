/* pull_command.c - pulls an image by the docker or podman command, which has this user's logins to
 * registries.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "backends/docker/pull_command.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/environ.h"
#include "runtime/base/printable.h"
#include "runtime/program/spawn.h"
#include "runtime/program/subprocess.h"

#define LIMIT_MS 86400000 /* a day: an image may have 100 GB */
#define OUTPUT_MAX (1 << 20)

static int run(const char *command, const char *image, char *const *env, const atomic_bool *stop,
               struct fbr_error *err)
{
    char path[PATH_MAX];
    const char *const words[] = {command, "pull", "-q", "--", image, NULL};
    char line[201] = "";
    struct fbr_buf said = {0};
    struct fbr_subprocess p = {.file = path,
                               .argv = (char *const *)(uintptr_t)words,
                               .env = env,
                               .in = -1,
                               .errors = -1,
                               .said = &said,
                               .limit_ms = LIMIT_MS,
                               .max = OUTPUT_MAX,
                               .stop = stop};
    int code = 0, rc = fbr_spawn_find(command, path, sizeof(path), err);

    if (rc < 0)
        return rc;
    rc = fbr_subprocess_run(&p, NULL, &code, err);
    if (rc < 0 && !err->code)
        fbr_fail(err, rc, "`%s pull` did not end: %s", command, fbr_strerror(rc));
    if (rc >= 0 && code != 0) {
        fbr_put_u8(&said, 0);
        /* The output of a helper that fails is quoted by docker, and may be a login. */
        if (!said.failed && !strchr((char *)said.data, '{'))
            fbr_printable_last_line((char *)said.data, line, sizeof(line));
        rc = fbr_fail(err, -EACCES,
                      "`%s pull`, with your logins, ended with code %d%s%.200s; log in to the "
                      "registry with `%s login`",
                      command, code, line[0] ? ": " : "", line, command);
    }
    if (said.data)
        explicit_bzero(said.data, said.len);
    fbr_buf_fini(&said);
    return rc;
}

int fbr_docker_pull_command(const struct fbr_docker_engine *e, const char *image,
                            const atomic_bool *stop, struct fbr_error *err)
{
    char host[300], podman[300], certs[300];
    /* the user's own variables may be for another engine */
    const char *const more[] = {host,
                                podman,
                                "DOCKER_TLS",
                                e->certs[0] ? "DOCKER_TLS_VERIFY=1" : "DOCKER_TLS_VERIFY",
                                e->certs[0] ? certs : NULL,
                                NULL};
    char **env;
    struct fbr_error by_docker = {0, ""}, by_podman = {0, ""};
    int rc, other;

    snprintf(host, sizeof(host), "DOCKER_HOST=%s", e->address);
    snprintf(podman, sizeof(podman), "CONTAINER_HOST=%s", e->address);
    snprintf(certs, sizeof(certs), "DOCKER_CERT_PATH=%s", e->certs);
    env = fbr_environ_with(fbr_environ(), more);
    if (!env)
        return fbr_fail(err, -ENOMEM, "out of memory");
    rc = run("docker", image, env, stop, &by_docker);
    other = rc < 0 ? run("podman", image, env, stop, &by_podman) : 0;
    free(env);
    if (other == 0)
        return 0;
    *err = rc == -ENOENT ? by_podman : by_docker;
    if (rc == -ENOENT && other == -ENOENT)
        return fbr_fail(err, rc, "neither docker nor podman, which may have a login, is in PATH");
    return rc == -ENOENT ? other : rc;
}
