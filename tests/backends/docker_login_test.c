/* docker_login_test.c - logins of registries: files of docker and podman, helpers, the header that the engine is given.
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

#include "backends/http/base64.h"
#include "backends/docker/login.h"
#include "backends/image/image.h"

static char folder[64];
static atomic_bool go_on;

static struct json_t *parse(const char *text)
{
    struct fbr_error err = {0, ""};
    struct json_t *j = fbr_json_parse(text, strlen(text), &err);

    assert_non_null(j);
    return j;
}

/* "user:password", "token T", "helper NAME", or "none", as a file says it of an image. */
static void assert_found(const char *file, const char *image, const char *expected)
{
    struct fbr_error err = {0, ""};
    struct fbr_docker_login l;
    struct json_t *j = parse(file);
    char text[200] = "none";
    int rc = fbr_docker_login_find(&l, j, image, &err);

    assert_int_equal(rc, strcmp(expected, "none") != 0);
    if (l.helper)
        snprintf(text, sizeof(text), "helper %s", l.helper);
    else if (l.token)
        snprintf(text, sizeof(text), "token %s", l.token);
    else if (l.user)
        snprintf(text, sizeof(text), "%s:%s", l.user, l.password);
    assert_string_equal(text, expected);
    fbr_docker_login_fini(&l);
    fbr_json_free(j);
}

/* ---- Pure ---- */

static void an_image_names_its_registry(void **state)
{
    static const char *const cases[][2] = {
        {"app", "docker.io"},
        {"library/app:1", "docker.io"},
        {"docker.io/library/app", "docker.io"},
        {"index.docker.io/team/app", "docker.io"},
        {"localhost/app", "localhost"},
        {"localhost:5000/app@sha256:12", "localhost:5000"},
        {"quay.io/a/b/c:1", "quay.io"},
        {"[fd00::1]:5000/app", "[fd00::1]:5000"},
        {"app:1", "docker.io"},
        {"", "docker.io"},
    };
    char registry[FBR_DOCKER_REGISTRY_MAX];

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        fbr_docker_registry(cases[i][0], registry);
        assert_string_equal(registry, cases[i][1]);
    }
    assert_string_equal(fbr_docker_registry_key("docker.io"), "https://index.docker.io/v1/");
    assert_string_equal(fbr_docker_registry_key("quay.io"), "quay.io");
}

static void a_file_knows_registries_by_host_or_address(void **state)
{
    /* u:p, data server:pass, ns:two */
    static const char file[] =
        "{\"auths\": {\"https://index.docker.io/v1/\": {\"auth\": \"aHViOnBhc3M=\"},"
        " \"quay.io\": {\"auth\": \"dTpw\"}, \"quay.io/team\": {\"auth\": \"bnM6dHdv\"},"
        " \"https://old.example.com/v2/\": {\"username\": \"a\", \"password\": \"b:c\"},"
        " \"host:5000\": {\"identitytoken\": \"T\"}, \"empty.io\": {}}}";

    (void)state;
    assert_found(file, "app", "hub:pass");
    assert_found(file, "docker.io/team/app:3", "hub:pass");
    assert_found(file, "quay.io/other/app", "u:p");
    assert_found(file, "quay.io/team/app:1", "ns:two");
    assert_found(file, "quay.io/teams/app:1", "u:p");
    assert_found(file, "old.example.com/app", "a:b:c");
    assert_found(file, "host:5000/app", "token T");
    assert_found(file, "host:5001/app", "none");
    assert_found(file, "quay.io.evil.com/app", "none");
    assert_found(file, "empty.io/app", "none");
    assert_found("{\"auths\": {\"i\": {\"auth\": \"dTpw\"}, \"\": {\"auth\": \"dTpw\"}}}", "app",
                 "none");
    assert_found("{\"auths\": {\"docker.io\": {\"auth\": \"dTpw\"}}}", "app", "u:p");
    assert_found("[]", "app", "none");
}

static void helpers_go_before_the_file(void **state)
{
    static const char file[] =
        "{\"auths\": {\"quay.io\": {\"auth\": \"dTpw\"}}, \"credsStore\": \"all\","
        " \"credHelpers\": {\"host:5000\": \"one\","
        " \"https://index.docker.io/v1/\": \"hub\"}}";
    struct fbr_error err = {0, ""};
    struct fbr_docker_login l;
    struct json_t *j;

    (void)state;
    assert_found(file, "host:5000/app", "helper one");
    assert_found(file, "quay.io/app", "helper all");
    assert_found(file, "app", "helper hub");
    j = parse("{\"credsStore\": \"../../bin/sh\"}");
    assert_int_equal(fbr_docker_login_find(&l, j, "app", &err), -EINVAL);
    assert_non_null(strstr(err.text, "is not a name"));
    fbr_json_free(j);
}

static void a_bad_entry_is_told_without_what_it_holds(void **state)
{
    static const char *const bad[] = {"{\"auths\": {\"quay.io\": {\"auth\": \"c2VjcmV0\"}}}",
                                      "{\"auths\": {\"quay.io\": {\"auth\": \"secret?\"}}}",
                                      "{\"auths\": {\"quay.io\": {\"auth\": \"OnNlY3JldA==\"}}}"};

    (void)state;
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        struct fbr_error err = {0, ""};
        struct fbr_docker_login l;
        struct json_t *j = parse(bad[i]);

        assert_int_equal(fbr_docker_login_find(&l, j, "quay.io/app", &err), -EBADMSG);
        assert_string_equal(err.text,
                            "the login of quay.io: its \"auth\" is not base64 of user:password");
        assert_null(l.user);
        fbr_json_free(j);
    }
}

static void what_a_helper_prints_is_checked(void **state)
{
    static const char *const bad[] = {"", "secret", "{}", "{\"Username\": \"u\"}",
                                      "{\"Username\": 1, \"Secret\": \"secret\"}"};
    struct fbr_error err = {0, ""};
    struct fbr_docker_login l;
    static const char good[] = "{\"ServerURL\": \"x\", \"Username\": \"u\", \"Secret\": \"p\"}\n",
                      token[] = "{\"Username\": \"<token>\", \"Secret\": \"T\"}";

    (void)state;
    assert_int_equal(fbr_docker_login_parse(&l, good, sizeof(good) - 1, &err), 0);
    assert_string_equal(l.user, "u");
    assert_string_equal(l.password, "p");
    fbr_docker_login_fini(&l);
    assert_int_equal(fbr_docker_login_parse(&l, token, sizeof(token) - 1, &err), 0);
    assert_string_equal(l.token, "T");
    assert_null(l.user);
    fbr_docker_login_fini(&l);
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        assert_int_equal(fbr_docker_login_parse(&l, bad[i], strlen(bad[i]), &err), -EBADMSG);
        assert_null(strstr(err.text, "secret"));
        assert_null(l.user);
    }
}

/* The JSON that a header carries, for free(). */
static char *carried(const char *header)
{
    char *code = strdup(header + strlen("X-Registry-Auth: ")), *text;
    size_t len;

    assert_int_equal(strncmp(header, "X-Registry-Auth: ", 17), 0);
    assert_null(strpbrk(code, "+/\r\n"));
    for (char *at = code; *at; at++)
        *at = *at == '-' ? '+' : *at == '_' ? '/' : *at;
    text = fbr_base64_decode(code, &len);
    assert_non_null(text);
    free(code);
    return text;
}

static void the_header_is_json_in_the_alphabet_of_urls(void **state)
{
    struct fbr_docker_login by_name = {.user = (char[]){"u"},
                                       .password = (char[]){"?>?~\"\r\n\xc3\xa9"}},
                            by_token = {.token = (char[]){"T"}};
    char *header = fbr_docker_login_header(&by_name, "host:5000"), *text = carried(header);
    struct json_t *j = parse(text);

    (void)state;
    assert_string_equal(fbr_json_text(j, "serveraddress", NULL), "host:5000");
    assert_string_equal(fbr_json_text(j, "username", NULL), "u");
    assert_string_equal(fbr_json_text(j, "password", NULL), by_name.password);
    fbr_json_free(j);
    free(text);
    free(header);
    header = fbr_docker_login_header(&by_token, "docker.io");
    text = carried(header);
    j = parse(text);
    assert_string_equal(fbr_json_text(j, "serveraddress", NULL), "https://index.docker.io/v1/");
    assert_string_equal(fbr_json_text(j, "identitytoken", NULL), "T");
    assert_null(fbr_json_at(j, "password", NULL));
    fbr_json_free(j);
    free(text);
    free(header);
}

static void a_refusal_is_known(void **state)
{
    (void)state;
    assert_true(fbr_image_refused("Get http://h/v2/a: no basic auth credentials"));
    assert_true(fbr_image_refused("unauthorized: authentication required"));
    assert_true(fbr_image_refused("pull access denied for a, may require 'docker login'"));
    assert_false(fbr_image_refused("manifest for a:1 not found: manifest unknown"));
    assert_false(fbr_image_refused("dial tcp: connection refused"));
}

/* ---- Files and programs ---- */

static void write_file(const char *name, const char *text, int mode)
{
    char path[200];
    int fd;

    snprintf(path, sizeof(path), "%s/%s", folder, name);
    fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, mode);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, text, strlen(text)), strlen(text));
    close(fd);
}

static void remove_file(const char *name)
{
    char path[200];

    snprintf(path, sizeof(path), "%s/%s", folder, name);
    unlink(path);
}

static void assert_look(const char *image, const char *json, const char *words)
{
    char told[400], *header = fbr_docker_login_look(image, &go_on, told, sizeof(told)), *text;

    assert_int_equal(!header, !json);
    if (header) {
        text = carried(header);
        assert_non_null(strstr(text, json));
        free(text);
    }
    free(header);
    if (!strstr(told, words))
        fail_msg("'%s' has not '%s'", told, words);
    assert_null(strstr(told, "hunter2"));
}

static void files_are_looked_for_where_docker_and_podman_keep_them(void **state)
{
    (void)state;
    assert_look("host:5000/app", NULL, "no login for host:5000 in ");
    assert_look("host:5000/app", NULL, "/containers/auth.json; try `docker login host:5000`");
    assert_look("app", NULL, "try `docker login`");
    write_file("run/containers/auth.json",
               "{\"auths\": {\"host:5000\": {\"auth\": \"cG9kbWFuOmh1bnRlcjI=\"}}}", 0600);
    assert_look("host:5000/app", "\"username\":\"podman\"", "/run/containers/auth.json was sent");
    write_file("config.json", "{\"auths\": {\"host:5000\": {\"auth\": \"ZG9ja2VyOmh1bnRlcjI=\"}}}",
               0600);
    assert_look("host:5000/app", "\"username\":\"docker\"", "/config.json was sent");
    write_file("config.json", "{\"auths\": hunter2", 0600);
    assert_look("host:5000/app", "\"username\":\"podman\"", "/run/containers/auth.json was sent");
    remove_file("run/containers/auth.json");
    assert_look("host:5000/app", NULL, "/config.json: not JSON");
    remove_file("config.json");
}

static void a_helper_is_asked_through_its_input(void **state)
{
    (void)state;
    write_file("config.json",
               "{\"credHelpers\": {\"host:5000\": \"test\", \"other:1\": \"test\","
               " \"bad:1\": \"test\", \"worse:1\": \"test\", \"no:1\": \"missing\"}}",
               0600);
    write_file("docker-credential-test",
               "#!/bin/sh\n[ \"$*\" = get ] || exit 3\nregistry=$(cat)\ncase $registry in\n"
               "host:5000) echo '{\"Username\": \"helped\", \"Secret\": \"hunter2\"}' ;;\n"
               "other:1) echo credentials not found in native keychain; exit 1 ;;\n"
               "worse:1) echo '{\"Username\": \"u\", \"Secret\": \"hunter2\"}'; exit 1 ;;\n"
               "*) echo the keychain is locked; exit 1 ;;\nesac\n",
               0700);
    assert_look("host:5000/app", "\"username\":\"helped\",\"password\":\"hunter2\"",
                "(docker-credential-test) was sent");
    assert_look("other:1/app", NULL, "no login for other:1 in ");
    assert_look("bad:1/app", NULL,
                "docker-credential-test: it failed with code 1: the keychain is locked");
    assert_look("worse:1/app", NULL, "docker-credential-test: it failed with code 1, ");
    assert_look("no:1/app", NULL, "docker-credential-missing is not in PATH");
    remove_file("docker-credential-test");
    remove_file("config.json");
}

static void a_helper_that_hangs_ends_when_it_is_told(void **state)
{
    atomic_bool stop = true;
    char told[400];

    (void)state;
    write_file("config.json", "{\"credsStore\": \"test\"}", 0600);
    write_file("docker-credential-test", "#!/bin/sh\nexec sleep 1000\n", 0700);
    assert_null(fbr_docker_login_look("host:5000/app", &stop, told, sizeof(told)));
    assert_non_null(strstr(told, "docker-credential-test: it gave no answer"));
    remove_file("docker-credential-test");
    remove_file("config.json");
}

/* Nobody waits for the other end of a FIFO, nor reads a device to its end. */
static void what_is_no_regular_file_is_not_read(void **state)
{
    char path[200];

    (void)state;
    snprintf(path, sizeof(path), "%s/config.json", folder);
    assert_int_equal(mkfifo(path, 0600), 0);
    assert_look("host:5000/app", NULL, "/config.json: it is not a regular file");
    remove_file("config.json");
    assert_int_equal(symlink("/dev/zero", path), 0);
    assert_look("host:5000/app", NULL, "/config.json: it is not a regular file");
    remove_file("config.json");
}

static int make_folder(void **state)
{
    char path[300];

    (void)state;
    snprintf(folder, sizeof(folder), "/tmp/docker_login_test.XXXXXX");
    if (!mkdtemp(folder))
        return -1;
    snprintf(path, sizeof(path), "%s/run", folder);
    mkdir(path, 0700);
    setenv("XDG_RUNTIME_DIR", path, 1);
    strcat(path, "/containers");
    mkdir(path, 0700);
    setenv("DOCKER_CONFIG", folder, 1);
    setenv("HOME", "/nonexistent", 1);
    unsetenv("REGISTRY_AUTH_FILE");
    snprintf(path, sizeof(path), "%s:/usr/bin:/bin", folder);
    setenv("PATH", path, 1);
    return 0;
}

static int remove_folder(void **state)
{
    char path[100];

    (void)state;
    snprintf(path, sizeof(path), "%s/run/containers", folder);
    rmdir(path);
    snprintf(path, sizeof(path), "%s/run", folder);
    rmdir(path);
    return rmdir(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_image_names_its_registry),
        cmocka_unit_test(a_file_knows_registries_by_host_or_address),
        cmocka_unit_test(helpers_go_before_the_file),
        cmocka_unit_test(a_bad_entry_is_told_without_what_it_holds),
        cmocka_unit_test(what_a_helper_prints_is_checked),
        cmocka_unit_test(the_header_is_json_in_the_alphabet_of_urls),
        cmocka_unit_test(a_refusal_is_known),
        cmocka_unit_test(files_are_looked_for_where_docker_and_podman_keep_them),
        cmocka_unit_test(a_helper_is_asked_through_its_input),
        cmocka_unit_test(a_helper_that_hangs_ends_when_it_is_told),
        cmocka_unit_test(what_is_no_regular_file_is_not_read),
    };

    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
