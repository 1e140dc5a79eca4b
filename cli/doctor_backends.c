/* doctor_backends.c - the checks of the backends for `fiber doctor`: each is opened as a run would
 * open it.
 *
 * The check runs in a process of its own, which sends its findings through a pipe. So an engine
 * that hangs, or a library that crashes, becomes a line of the report like any other.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cli/backend_client.h"
#include "cli/doctor.h"
#include "runtime/net/host_address.h"

#define PATIENCE_MS 10000

/* Smaller than PIPE_BUF, so that a finding arrives whole or not at all. */
struct finding {
    enum fbr_finding state;
    char what[48]; /* "": the backend itself */
    char text[FBR_ERROR_TEXT], mend[320];
};

/* ---- In the process that checks ---- */

struct looker {
    int fd;
    bool told; /* the backend itself was reported */
};

static void send_finding(void *user, enum fbr_finding state, const char *what, const char *text,
                         const char *mend)
{
    struct looker *l = user;
    struct finding f = {.state = state};

    l->told = l->told || !what[0];
    snprintf(f.what, sizeof(f.what), "%s", what);
    snprintf(f.text, sizeof(f.text), "%s", text);
    snprintf(f.mend, sizeof(f.mend), "%s", mend);
    TEMP_FAILURE_RETRY(write(l->fd, &f, sizeof(f)));
}

/* Finds the address that the backend's jobs connect to, as the runtime does. */
static int way_back(struct cli_backend *b, char out[FBR_HOST_ADDRESS_MAX], struct fbr_error *err)
{
    const struct cli_ask ask = {.op = BACKEND_ADDRESS, .out = out};
    const char *bind = fbr_config_str(b->config, "bind");

    if (!bind[0])
        return cli_backend_ask(b, &ask, err);
    if (fbr_host_address_find(bind, out) == 0)
        return 0;
    return fbr_fail(err, -EADDRNOTAVAIL, "bind = %s: this host has no such address or interface",
                    bind);
}

static void look(const struct fbr_backend_ops *p, int fd)
{
    static const char module[] = "install all of Fiber (cmake --install): its modules belong in "
                                 "PREFIX/lib/fiber; to build them, install libcurl, jansson, "
                                 "libyaml and libarchive";
    const struct fbr_backend_advice *advice = p->about->advice;
    struct looker l = {fd, false};
    const struct fbr_findings to = {send_finding, &l};
    const struct cli_ask ask = {.op = BACKEND_CHECK, .to = &to};
    struct fbr_error err = {0, ""};
    struct cli_backend b;
    char address[FBR_HOST_ADDRESS_MAX];
    int rc = cli_backend_open(&b, p->name, &err);

    if (rc < 0) {
        bool absent = rc == -ENOENT && !cli_backend_is_configured(p->name);

        fbr_report(&to, absent ? FBR_FINDING_ABSENT : FBR_FINDING_BAD, "",
                   strstr(err.text, "Fiber's module")    ? module
                   : absent                              ? advice->absent
                   : rc == -EKEYREJECTED && advice->keys ? advice->keys
                   : rc == -EACCES && advice->may        ? advice->may
                   : rc == -EINVAL && advice->setting    ? advice->setting
                                                         : advice->bad,
                   "%s", err.text);
        return;
    }
    cli_backend_ask(&b, &ask, &err);
    if (l.told) { /* the backend is unusable, and a query for the address would take long */
        cli_backend_close(&b);
        return;
    }
    rc = b.ops->reach == FBR_REACH_HOST ? -ENOTSUP : way_back(&b, address, &err);
    if (rc == 0 || rc == -ENOTSUP)
        fbr_report(&to, FBR_FINDING_GOOD, "", "", "can be used%s%s",
                   rc == 0 ? "; its jobs reach this host at " : "", rc == 0 ? address : "");
    else
        fbr_report(&to, FBR_FINDING_BAD, "",
                   "export FIBER_BIND=ADDRESS, an address of this host that jobs can reach", "%s",
                   err.text);
    cli_backend_close(&b);
}

/* ---- In our process ---- */

static int fork_looker(const struct fbr_backend_ops *p, pid_t *pid)
{
    int ends[2];

    if (pipe2(ends, O_CLOEXEC) < 0)
        return -errno;
    fflush(NULL);
    *pid = fork();
    if (*pid == 0) {
        setpgid(0, 0);
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        signal(SIGPIPE, SIG_IGN);
        close(ends[0]);
        look(p, ends[1]);
        _exit(0);
    }
    close(ends[1]);
    if (*pid < 0) {
        close(ends[0]);
        return -errno;
    }
    return ends[0];
}

struct report {
    struct doctor *d;
    const struct fbr_backend_ops *p;
    bool needed;
};

static void show(void *user, enum fbr_finding finding, const char *what, const char *text,
                 const char *mend)
{
    static const enum doctor_state states[] = {[FBR_FINDING_GOOD] = DOCTOR_GOOD,
                                               [FBR_FINDING_BAD] = DOCTOR_BAD,
                                               [FBR_FINDING_ABSENT] = DOCTOR_ABSENT};
    const struct report *r = user;
    enum doctor_state state = states[finding];
    const char *backend = r->p->name;
    size_t len = strlen(backend);
    bool named = !strncmp(what, backend, len) && what[len] == ' ';
    char name[80];

    if (what[0])
        snprintf(name, sizeof(name), "%s%s%s", named ? "" : backend, named ? "" : " ", what);
    else
        snprintf(name, sizeof(name), "backend %s", backend);
    if (!what[0] && r->needed && state == DOCTOR_ABSENT)
        state = DOCTOR_BAD;
    /* the tools are installed, but the backend may be unused here */
    if (!r->needed && state == DOCTOR_BAD)
        state = cli_backend_is_configured(backend) ? DOCTOR_BAD : DOCTOR_ABSENT;
    doctor_report(r->d, name, state, mend, "%s", text);
}

/* Reports each finding, until the other end closes the pipe: 0, or -ETIMEDOUT. */
static int receive(struct report *r, int fd)
{
    uint64_t until = fbr_now_ms() + PATIENCE_MS;
    struct finding f;
    ssize_t n;

    do {
        struct pollfd in = {.fd = fd, .events = POLLIN};
        uint64_t now = fbr_now_ms();

        if (now >= until || poll(&in, 1, (int)(until - now)) == 0)
            return -ETIMEDOUT;
        n = read(fd, &f, sizeof(f));
        if (n == (ssize_t)sizeof(f))
            show(r, f.state, f.what, f.text, f.mend);
    } while (n > 0 || (n < 0 && errno == EINTR));
    return 0;
}

static void check(struct doctor *d, const struct fbr_backend_ops *p, bool needed)
{
    struct report r = {d, p, needed};
    const struct fbr_findings to = {show, &r};
    const char *mend = p->about->advice->bad;
    int status = 0, rc, fd;
    char name[80];
    pid_t pid = -1;

    if (p->about->unset && !needed && !cli_backend_is_configured(p->name)) {
        snprintf(name, sizeof(name), "backend %s", p->name);
        doctor_report(d, name, DOCTOR_ABSENT, p->about->advice->absent, "%s", p->about->unset);
        return;
    }
    fd = fork_looker(p, &pid);
    if (fd < 0) {
        fbr_report(&to, FBR_FINDING_BAD, "", mend, "cannot check: %s", fbr_strerror(fd));
        return;
    }
    rc = receive(&r, fd);
    if (kill(-pid, SIGKILL) < 0) /* with its tools; its process group may not exist yet */
        kill(pid, SIGKILL);
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
        ;
    close(fd);
    if (rc == -ETIMEDOUT)
        fbr_report(&to, FBR_FINDING_BAD, "", mend, "no answer within %d s", PATIENCE_MS / 1000);
    else if (WIFSIGNALED(status) && WTERMSIG(status) != SIGKILL)
        fbr_report(&to, FBR_FINDING_BAD, "", mend, "the check was ended by signal %d",
                   WTERMSIG(status));
}

void doctor_backends(struct doctor *d, const char *only)
{
    for (size_t i = 0; fbr_backends[i]; i++) {
        const struct fbr_backend_ops *b = fbr_backends[i];
        char name[80];

        if (!b->about || (only && strcmp(only, b->name) != 0))
            continue;
        if (b->about->advice) {
            check(d, b, only != NULL);
            continue;
        }
        snprintf(name, sizeof(name), "backend %s", b->name);
        doctor_report(d, name, DOCTOR_GOOD, "", "always");
    }
}
