/* subjob_host_fuzz.c - hostile orders to a host of several processes: starts, signals, pauses, frames.
 *
 * The input is frames: u8 type, u16 length, so many bytes of body. The backend is one of ours that
 * starts nothing: it reads all that it is given, and says at once or by the next frame that the
 * process has ended. Each START must be answered by exactly one EXITED. Its control connection is
 * one of ours, too: what is sent there comes back, and it may end before the process or after it.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <utlist.h>

#include "runtime/proc/child.h"
#include "runtime/base/fds.h"
#include "runtime/proc/subjobs.h"
#include "runtime/net/relay.h"

struct started {
    struct started *next, *prev;
    void *user;
};

struct fbr_conn {
    struct fbr_conn *next, *prev;
    const struct fbr_conn_ops *ops;
    void *user;
};

static struct {
    void (*event)(void *job_user, const struct fbr_job_event *event);
    struct started *jobs;
    struct fbr_conn *conns;
    int orders, exits;
    volatile size_t read; /* bytes, so that each of them is looked at */
} f;

static void require(int holds)
{
    if (!holds)
        abort();
}

static void read_all(char *const *list)
{
    for (; *list; list++)
        f.read += strlen(*list);
}

static int open_it(struct fbr_backend **b, const struct fbr_backend_env *env, struct fbr_error *err)
{
    f.event = env->event;
    return 0;
}

static void close_it(struct fbr_backend *b)
{
    while (f.jobs) {
        struct started *s = f.jobs;

        DL_DELETE(f.jobs, s);
        free(s);
    }
}

static int start(struct fbr_backend *b, const struct fbr_job *job, void *user, void **handle,
                 struct fbr_error *err)
{
    const uint8_t *ticket = job->ticket;
    struct started *s;

    f.read += strlen(job->name) + strlen(job->file) + (job->workdir ? strlen(job->workdir) : 0);
    require((job->link > 2 || job->link == 0) && job->control > 2 && job->argv[0] != NULL &&
            strlen(job->name) < FBR_NAME_MAX);
    read_all(job->argv);
    read_all(job->env);
    for (size_t i = 0; i < job->ticket_len; i++)
        f.read += ticket[i];
    if (job->process % 5 == 4)
        return fbr_fail(err, -ENOENT, "there is no such program");
    s = calloc(1, sizeof(*s));
    require(s != NULL);
    s->user = user;
    DL_APPEND(f.jobs, s);
    *handle = s;
    return 0;
}

static int signal_it(struct fbr_backend *b, void *handle, int sig)
{
    struct started *s = handle;

    require(s->user != NULL);
    return 0;
}

static void pause_output(struct fbr_backend *b, void *handle, int paused)
{
    signal_it(b, handle, paused);
}

static void release(struct fbr_backend *b, void *handle)
{
    struct started *s = handle;

    DL_DELETE(f.jobs, s);
    free(s);
}

static const struct fbr_backend_ops backend = {.name = "local",
                                               .open = open_it,
                                               .close = close_it,
                                               .start = start,
                                               .signal = signal_it,
                                               .pause_output = pause_output,
                                               .release = release};

/* In place of the registry, the environment, the descriptors and the connection. */

const struct fbr_backend_ops *fbr_backend_find(const char *name, struct fbr_error *err)
{
    require(strcmp(name, "local") == 0);
    return &backend;
}

char **fbr_environ(void)
{
    return NULL;
}

char **fbr_environ_with(char *const *list, const char *const *more)
{
    size_t n = 0;
    char **env;

    while (more && more[n])
        f.read += strlen(more[n++]);
    env = calloc(n + 1, sizeof(*env));
    for (size_t i = 0; env && i < n; i++)
        env[i] = (char *)(uintptr_t)more[i];
    return env;
}

int fbr_fds_need(int now, const char *what, struct fbr_error *err)
{
    return 0;
}

const char *fbr_child_name(const struct fbr_child *c)
{
    return "process-1";
}

int fbr_child_send(struct fbr_child *c, uint8_t type, const struct fbr_buf *body)
{
    struct fbr_cur b = fbr_cur(body->data, body->len);

    require((type == FBR_SUBJOB_EVENT || type == FBR_SUBJOB_CARRIED) && !body->failed);
    fbr_get_u64(&b);
    if (type == FBR_SUBJOB_CARRIED) {
        uint8_t inner = fbr_get_u8(&b);

        require(fbr_cur_ok(&b) && (inner == 0 || inner >= FBR_FRAME_USER));
        return 0;
    }
    f.exits += fbr_get_u8(&b) == FBR_JOB_EXITED;
    require(fbr_cur_ok(&b) && f.exits <= f.orders);
    return 0;
}

size_t fbr_child_queued(const struct fbr_child *c)
{
    return 0;
}

int fbr_timer_init(struct fbr_timer *t, struct fbr_loop *l, void (*fn)(void *arg), void *arg)
{
    return 0;
}

void fbr_timer_start(struct fbr_timer *t, uint64_t after_ms, uint64_t repeat_ms)
{
}

void fbr_timer_stop(struct fbr_timer *t)
{
}

void fbr_timer_fini(struct fbr_timer *t)
{
}

int fbr_child_relay(struct fbr_child *c, struct fbr_relay **r, struct fbr_error *err)
{
    *r = (struct fbr_relay *)(void *)&f; /* nobody looks into it */
    return 0;
}

int fbr_relay_add(struct fbr_relay *r, uint64_t process, int *end, struct fbr_error *err)
{
    require(r == (struct fbr_relay *)(void *)&f);
    if (process % 7 == 6)
        return fbr_fail(err, -EMFILE, "no more descriptors");
    *end = eventfd(0, EFD_CLOEXEC);
    require(*end > 2);
    return 0;
}

void fbr_relay_end(struct fbr_relay *r, uint64_t process)
{
    require(r == (struct fbr_relay *)(void *)&f);
}

int fbr_conn_open(struct fbr_conn **out, struct fbr_loop *loop, int fd,
                  const struct fbr_conn_ops *ops, void *user, struct fbr_error *err)
{
    struct fbr_conn *c = calloc(1, sizeof(*c));

    require(c != NULL && fd > 2 && close(fd) == 0);
    c->ops = ops;
    c->user = user;
    DL_APPEND(f.conns, c);
    *out = c;
    return 0;
}

/* The process says the same. */
int fbr_conn_send(struct fbr_conn *c, uint8_t type, const void *body, size_t len)
{
    struct fbr_cur cur = fbr_cur(body, len);

    require(type >= FBR_FRAME_USER);
    c->ops->on_frame(c->user, c, type, &cur);
    return 0;
}

void fbr_conn_heartbeat(struct fbr_conn *c, unsigned interval_ms, unsigned misses)
{
    require(c->user != NULL);
}

void fbr_conn_close(struct fbr_conn *c)
{
    if (!c)
        return;
    DL_DELETE(f.conns, c);
    free(c);
}

int fbr_config_ms(const struct fbr_config *config, const char *key)
{
    return key[0];
}

int fbr_config_int(const struct fbr_config *config, const char *key)
{
    return key[0];
}

static void hang_up(struct fbr_conn *c)
{
    DL_DELETE(f.conns, c);
    c->ops->on_close(c->user, c, -EPIPE, "it hung up");
    free(c);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const struct fbr_job_event ended = {.type = FBR_JOB_EXITED, .text = "it has ended"};
    struct fbr_cur c = fbr_cur(data, size);
    struct fbr_runtime rt = {.run_uid = "0123"};
    int left = 0;
    struct started *s;

    memset(&f, 0, sizeof(f));
    while (fbr_cur_ok(&c) && fbr_cur_left(&c)) {
        uint8_t type = fbr_get_u8(&c);
        size_t len = fbr_get_u16(&c);
        struct fbr_cur body;

        len = len < fbr_cur_left(&c) ? len : fbr_cur_left(&c);
        body = fbr_cur(fbr_get(&c, len), len);
        if (type & 0x80 && f.jobs)
            f.event(f.jobs->user, &ended);
        if (type & 0x40 && f.conns)
            hang_up(f.conns);
        type &= 0x3f;
        if (!fbr_subjob_host_takes(type))
            continue;
        f.orders += type == FBR_SUBJOB_START;
        fbr_subjob_host_on_frame(&rt, type, &body);
    }
    DL_FOREACH(f.jobs, s)
        left++;
    require(f.orders == f.exits + left);
    fbr_subjob_host_close(rt.subjob_host);
    require(f.conns == NULL);
    return 0;
}
