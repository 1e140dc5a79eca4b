/* docker_pull_test.c - images that are pulled by the docker or podman command: which command, with which engine, and
 * its words. The commands are scripts.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "backends/docker/pull_command.h"
#include "backends/image/image.h"

static char folder[64];
static struct fbr_docker_engine engine = {.address = "unix:///run/there.sock"};

/* Makes a command of these lines of sh; NULL: removes it. */
static void command(const char *name, const char *lines)
{
    char path[200];
    int fd;

    snprintf(path, sizeof(path), "%s/%s", folder, name);
    unlink(path);
    if (!lines)
        return;
    fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0700);
    assert_true(fd >= 0);
    dprintf(fd, "#!/bin/sh\n%s", lines);
    close(fd);
}

static void assert_pull(int rc, const char *words)
{
    struct fbr_error err = {0, ""};

    assert_int_equal(fbr_docker_pull_command(&engine, "host:5000/app:1", NULL, &err), rc);
    if (rc == 0 ? err.code != 0 : !strstr(err.text, words))
        fail_msg("'%s' is not '%s'", err.text, words);
    assert_null(strstr(err.text, "hunter2"));
}

static void a_command_uses_our_engine(void **state)
{
    command(
        "docker",
        "[ \"$*\" = 'pull -q -- host:5000/app:1' ] && [ $DOCKER_HOST = unix:///run/there.sock ] &&"
        " [ $CONTAINER_HOST = $DOCKER_HOST ] && [ $DOCKER_CERT_PATH = /of/the/user ]\n");
    assert_pull(0, "");
    snprintf(engine.certs, sizeof(engine.certs), "/of/the/context");
    command("docker", "[ $DOCKER_CERT_PATH$DOCKER_TLS_VERIFY = /of/the/context1 ]\n");
    assert_pull(0, "");
    engine.certs[0] = '\0';
    setenv("DOCKER_TLS_VERIFY", "1", 1); /* for another engine than ours, which has no TLS */
    setenv("DOCKER_TLS", "1", 1);
    command("docker", "[ -z \"${DOCKER_TLS_VERIFY+set}${DOCKER_TLS+set}\" ]\n");
    assert_pull(0, "");
    unsetenv("DOCKER_TLS_VERIFY");
    unsetenv("DOCKER_TLS");
}

static void podman_is_tried_where_docker_fails_or_is_missing(void **state)
{
    command("docker", "echo of docker >&2; exit 3\n");
    command("podman", "echo of podman >&2; exit 4\n");
    assert_pull(-EACCES, "`docker pull`, with your logins, ended with code 3: of docker; log in to "
                         "the registry with "
                         "`docker login`");
    command("podman", "exit 0\n");
    assert_pull(0, "");
    command("docker", NULL);
    assert_pull(0, "");
    command("podman", "echo of podman >&2; exit 4\n");
    assert_pull(-EACCES, "`podman pull`, with your logins, ended with code 4: of podman; ");
    command("podman", NULL);
    assert_pull(-ENOENT, "neither docker nor podman, which may have a login, is in PATH");
}

static void the_last_line_is_told_but_no_login(void **state)
{
    command("docker", "printf 'a warning\\nthe end\\n\\n' >&2; exit 1\n");
    assert_pull(-EACCES, "ended with code 1: the end; ");
    command("docker", "echo '{\"Username\": \"u\", \"Secret\": \"hunter2\"}' >&2; exit 1\n");
    assert_pull(-EACCES, "ended with code 1; log in");
    command("docker", "exit 1\n");
    assert_pull(-EACCES, "ended with code 1; log in");
    command("docker", "kill -9 $$\n");
    assert_pull(-EACCES, "ended with code -9; log in");
}

static void a_command_that_hangs_ends_when_it_is_told(void **state)
{
    struct fbr_error err = {0, ""};
    atomic_bool stop = true;

    command("docker", "exec sleep 1000\n");
    assert_int_equal(fbr_docker_pull_command(&engine, "app", &stop, &err), -ECANCELED);
    assert_non_null(strstr(err.text, "`docker pull` did not end: "));
    command("docker", NULL);
}

static void a_refusal_is_known(void **state)
{
    assert_true(fbr_image_refused("Get http://h/v2/a: no basic auth credentials"));
    assert_true(fbr_image_refused("unauthorized: authentication required"));
    assert_true(fbr_image_refused("pull access denied for a, may require 'docker login'"));
    assert_true(fbr_image_refused("toomanyrequests: You have reached your pull rate limit"));
    assert_false(fbr_image_refused("manifest for a:1 not found: manifest unknown"));
    assert_false(fbr_image_refused("dial tcp: connection refused"));
}

static int make_folder(void **state)
{
    char path[100];

    snprintf(folder, sizeof(folder), "/tmp/docker_pull_test.XXXXXX");
    if (!mkdtemp(folder))
        return -1;
    setenv("DOCKER_HOST", "unix:///not/this.sock", 1);
    setenv("DOCKER_CERT_PATH", "/of/the/user", 1);
    unsetenv("DOCKER_TLS_VERIFY");
    snprintf(path, sizeof(path), "%s", folder);
    return setenv("PATH", path, 1);
}

static int remove_folder(void **state)
{
    return rmdir(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_command_uses_our_engine),
        cmocka_unit_test(podman_is_tried_where_docker_fails_or_is_missing),
        cmocka_unit_test(the_last_line_is_told_but_no_login),
        cmocka_unit_test(a_command_that_hangs_ends_when_it_is_told),
        cmocka_unit_test(a_refusal_is_known),
    };

    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
