/* login_helper.c - looks for the login of a registry in this user's files, and runs credential
 * helpers.
 *
 * A helper reads the registry from its standard input and prints the login on its standard output,
 * so no argument or variable ever has a secret.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "backends/docker/login.h"
#include "runtime/base/buf.h"
#include "runtime/base/environ.h"
#include "runtime/program/spawn.h"
#include "runtime/program/subprocess.h"

#define HELPER_MS 30000
#define FILE_MAX (1 << 20)

/* ---- A helper ---- */

/* Returns a file in memory with the question. */
static int question(const char *text)
{
    int fd = memfd_create("fiber-registry", MFD_CLOEXEC);
    size_t len = strlen(text);

    if (fd >= 0 && (write(fd, text, len) != (ssize_t)len || lseek(fd, 0, SEEK_SET) < 0)) {
        close(fd);
        fd = -1;
    }
    return fd;
}

/* Runs a helper: *out becomes its output, NUL-terminated, *code its exit code. */
static int run(const char *command, const char *key, const atomic_bool *stop, struct fbr_buf *out,
               int *code, struct fbr_error *err)
{
    char path[PATH_MAX], *argv[] = {path, (char[]){"get"}, NULL};
    struct fbr_subprocess p = {.file = path,
                               .argv = argv,
                               .errors = STDERR_FILENO,
                               .limit_ms = HELPER_MS,
                               .max = FILE_MAX,
                               .stop = stop};
    int rc = fbr_spawn_find(command, path, sizeof(path), err);

    if (rc == -ENOENT)
        fbr_fail(err, rc, "%s is not in PATH", command);
    if (rc < 0)
        return rc;
    p.in = question(key);
    if (p.in < 0)
        return fbr_fail(err, -errno, "%s", fbr_strerror(errno));
    rc = fbr_subprocess_run(&p, out, code, err);
    close(p.in);
    if (rc < 0 && !err->code)
        fbr_fail(err, rc, "it gave no answer: %s", fbr_strerror(rc));
    fbr_put_u8(out, 0);
    return rc == 0 && out->failed ? fbr_fail(err, -ENOMEM, "out of memory") : rc;
}

/* 1: the helper has a login for the registry; 0: it has none; negative, and a message. */
static int ask(struct fbr_docker_login *l, const char *registry, const atomic_bool *stop,
               struct fbr_error *err)
{
    struct fbr_docker_login got = {0};
    const char *said;
    char command[128];
    struct fbr_buf out;
    int code = 0, rc;

    snprintf(command, sizeof(command), "docker-credential-%.100s", l->helper);
    fbr_buf_init(&out);
    rc = run(command, fbr_docker_registry_key(registry), stop, &out, &code, err);
    if (rc < 0)
        goto done;
    said = (const char *)out.data;
    if (code == 0) {
        rc = fbr_docker_login_parse(&got, said, out.len - 1, err);
        rc = rc < 0 ? rc : 1;
    } else if (!strcasestr(said, "not found")) {
        size_t n = strcspn(said, "\r\n");

        if (strchr(said, '{')) /* the output may be a login, which must not be shown */
            n = 0;
        rc = fbr_fail(err, -EACCES, "it failed with code %d%s%.*s", code, n ? ": " : "",
                      (int)(n < 100 ? n : 100), said);
    }
done:
    if (out.data)
        explicit_bzero(out.data, out.len);
    fbr_buf_fini(&out);
    fbr_docker_login_fini(l);
    *l = got;
    return rc < 0 ? fbr_wrap(err, "%s", command) : rc;
}

/* ---- Files ---- */

/* Opens a file that is regular, because other kinds might block. Returns its descriptor, or
 * -errno. */
static int open_file(const char *path, struct fbr_error *err)
{
    int fd = open(path, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    struct stat st;

    if (fd < 0)
        return fbr_fail(err, -errno, "%s", fbr_strerror(errno));
    if (fstat(fd, &st) == 0 && S_ISREG(st.st_mode))
        return fd;
    close(fd);
    return fbr_fail(err, -EINVAL, "it is not a regular file");
}

static struct json_t *read_file(const char *path, struct fbr_error *err)
{
    int fd = open_file(path, err);
    char *text = fd < 0 ? NULL : malloc(FILE_MAX);
    ssize_t n = text ? read(fd, text, FILE_MAX) : -1;
    struct json_t *j = NULL;

    if (fd < 0)
        return NULL;
    if (!text)
        fbr_fail(err, -ENOMEM, "out of memory");
    else if (n < 0)
        fbr_fail(err, -errno, "%s", fbr_strerror(errno));
    else
        j = fbr_json_parse(text, (size_t)n, err);
    if (n > 0)
        explicit_bzero(text, (size_t)n);
    close(fd);
    free(text);
    return j;
}

static bool in_folder(char path[PATH_MAX], const char *variable, const char *rest)
{
    const char *folder = fbr_getenv(variable);

    snprintf(path, PATH_MAX, "%s%s", folder ? folder : "", rest);
    return folder && folder[0];
}

/* Finds the i-th file that may have a login; false: there are no more. `path` is "" if the place
 * does not exist for this user. */
static bool place(int i, char path[PATH_MAX])
{
    bool is = false;

    switch (i) {
    case 0:
        is = in_folder(path, "DOCKER_CONFIG", "/config.json") ||
             in_folder(path, "HOME", "/.docker/config.json");
        break;
    case 1:
        is = in_folder(path, "REGISTRY_AUTH_FILE", "") ||
             in_folder(path, "XDG_RUNTIME_DIR", "/containers/auth.json");
        break;
    case 2:
        is = in_folder(path, "HOME", "/.config/containers/auth.json");
        break;
    default:
        return false;
    }
    if (!is)
        path[0] = '\0';
    return true;
}

/* ---- All ---- */

static void add(char *told, size_t size, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

static void add(char *told, size_t size, const char *fmt, ...)
{
    size_t n = strlen(told);
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(told + n, size - n, fmt, ap);
    va_end(ap);
}

/* 1 if this file, or the helper that it names, has a login for the registry. */
static int look_in(const char *path, const char *image, const char *registry,
                   const atomic_bool *stop, struct fbr_docker_login *l, char *told, size_t size)
{
    struct fbr_error err = {0, ""};
    struct json_t *file = read_file(path, &err);
    char helper[64] = "";
    int rc = file ? fbr_docker_login_find(l, file, image, &err) : err.code == -ENOENT ? 0 : -1;

    fbr_json_free(file);
    if (rc == 1 && l->helper) {
        snprintf(helper, sizeof(helper), " (docker-credential-%.40s)", l->helper);
        rc = ask(l, registry, stop, &err);
    }
    if (rc == 1)
        snprintf(told, size, "the login for %.100s in %.120s%s was sent", registry, path, helper);
    else
        add(told, size, "%s %.100s%s%s%.140s", told[0] ? "," : "", path, helper, rc < 0 ? ": " : "",
            rc < 0 ? err.text : "");
    return rc;
}

char *fbr_docker_login_look(const char *image, const atomic_bool *stop, char *told, size_t size)
{
    char registry[FBR_DOCKER_REGISTRY_MAX], path[PATH_MAX], where[400] = "", *line = NULL;
    struct fbr_docker_login l = {0};
    int found = 0;

    fbr_docker_registry(image, registry);
    for (int i = 0; found != 1 && place(i, path); i++)
        if (path[0])
            found = look_in(path, image, registry, stop, &l, where, sizeof(where));
    if (found == 1) {
        line = fbr_docker_login_header(&l, registry);
        snprintf(told, size, "%s", where);
    } else {
        bool hub = strcmp(registry, FBR_DOCKER_HUB) == 0;

        snprintf(told, size, "no login for %.100s in%s; try `docker login%s%.100s`", registry,
                 where, hub ? "" : " ", hub ? "" : registry);
    }
    fbr_docker_login_fini(&l);
    return line;
}
