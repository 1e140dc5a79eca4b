/* local.c - the backend of this machine: a job is a child process, watched by its pidfd.
 *
 * Each job leads a process group of its own, so its forked children end with it. A job that starts
 * other jobs, which have groups of their own, leads a session: so the children of those jobs end
 * with it too, whether or not the backend knows them. The kernel kills a job when its master dies
 * (spawn.c), so no job is ever left to list or remove.
 *
 * A job that requests whole processors or GPUs gets some for itself (cpu_alloc.h). If many jobs run
 * the program's own command, they are copies of its template, where there is one (copies.h).
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <utlist.h>

#include "backends/tool/kept_job.h"
#include "backends/local/cpu_alloc.h"
#include "backends/local/copies.h"
#include "runtime/base/environ.h"
#include "runtime/base/fds.h"
#include "runtime/proc/backend.h"
#include "runtime/base/log.h"
#include "runtime/net/loop.h"
#include "runtime/program/spawn.h"

#define DRAIN_MS 200     /* a grandchild may hold the pipes open */
#define CLOSE_MS 10000   /* for killed jobs to end; one may hang in the kernel */
#define LINGER_MS 600000 /* as a rule SIGKILL comes earlier, after the grace period */
#define CANNOT_START 125
#define REST_READS 32 /* a pipe holds at most 1 MiB */
#define CPU_SETS 8    /* of 1,024 processors each */
#define SIGNAL(sig) (UINT64_C(1) << ((sig)-1))

/* LINGERS: the job has ended, but not its children, which were asked to end. DEAD: the rest of its
 * output is read. TOLD: its end was reported. */
enum state { LIVES, LINGERS, DEAD, TOLD };

struct local_job {
    struct local_job *next, *prev;
    struct fbr_backend *b;
    void *user; /* NULL: released, the runtime takes no further events */
    pid_t pid;
    int pidfd;
    struct fbr_cpu_alloc *place;
    uv_poll_t watch;
    struct stream {
        struct local_job *job;
        uv_pipe_t pipe;
        bool open;
    } out[2];
    struct fbr_timer drain;
    enum state state;
    bool is_host, asked; /* asked: its group got SIGTERM */
    int32_t code;
    uint64_t peak;
    int handles;   /* handles of libuv that are not closed yet */
    char why[256]; /* why the job could not be started, as a copy or otherwise */
    /* the job waits to become a copy of the template, and has no pid yet */
    struct copy *copy;
};

/* State of a job until it is a copy of the template. */
struct copy {
    struct fbr_copies_order order;
    struct local_job *job;
    struct fbr_job *kept;
    uint64_t signals; /* to send as soon as it runs, by bit */
    int ours[2];      /* ends of its pipes, when its turn has come */
};

struct fbr_backend {
    struct fbr_backend_env env;
    struct local_job *jobs;
    struct fbr_cpu_allocs *places; /* opened when the first job requests a place */
    struct fbr_copies *template;   /* opened with the first job that may be a copy */
    bool said_image, said_memory;
};

static void local_pause_output(struct fbr_backend *b, void *handle, int paused);
static int local_signal(struct fbr_backend *b, void *handle, int sig);
static void free_copy(struct copy *c);
static void see_end(void *job);

static void notify(struct local_job *j, const struct fbr_job_event *e)
{
    if (j->user)
        j->b->env.event(j->user, e);
}

static void maybe_free(struct local_job *j)
{
    if (j->handles == 0 && !j->user && j->state == TOLD)
        free(j);
}

static void on_closed(uv_handle_t *handle)
{
    struct local_job *j = handle->data;

    j->handles--;
    maybe_free(j);
}

static int stream_number(const struct stream *s)
{
    return s == &s->job->out[0] ? 1 : 2;
}

static void close_stream(struct stream *s)
{
    if (!s->open)
        return;
    s->open = false;
    s->pipe.data = s->job;
    uv_close((uv_handle_t *)&s->pipe, on_closed);
}

/* Reads the rest of a pipe that another process keeps open. */
static void read_rest(struct stream *s)
{
    struct local_job *j = s->job; /* NULL: the pipe was never open */
    ssize_t n = 1;
    char *data;
    int fd;

    if (!s->open || uv_fileno((uv_handle_t *)&s->pipe, &fd) < 0)
        return;
    data = fbr_loop_scratch(j->b->env.loop);
    for (int i = 0; i < REST_READS && n > 0; i++) {
        n = read(fd, data, FBR_LOOP_SCRATCH);
        if (n > 0)
            notify(j, &(struct fbr_job_event){.type = FBR_JOB_OUTPUT,
                                              .stream = stream_number(s),
                                              .text = "",
                                              .data = data,
                                              .len = (size_t)n});
    }
}

static void finish(void *arg)
{
    struct local_job *j = arg;

    if (j->state == TOLD)
        return;
    fbr_timer_fini(&j->drain);
    for (int i = 0; i < 2; i++) {
        read_rest(&j->out[i]);
        close_stream(&j->out[i]);
    }
    j->state = TOLD;
    DL_DELETE(j->b->jobs, j);
    fbr_cpu_allocs_leave(j->b->places, j->place);
    j->place = NULL;
    notify(j, &(struct fbr_job_event){.type = FBR_JOB_EXITED,
                                      .code = j->code,
                                      .pid = j->pid,
                                      .peak = j->peak,
                                      .text = j->why});
}

static void on_output(uv_stream_t *stream, ssize_t n, const uv_buf_t *buf)
{
    struct stream *s = stream->data;
    struct local_job *j = s->job;
    struct fbr_job_event e = {.type = FBR_JOB_OUTPUT, .stream = stream_number(s), .text = ""};

    if (n == 0)
        return;
    if (n > 0) {
        e.data = buf->base;
        e.len = (size_t)n;
    }
    notify(j, &e);
    if (n > 0)
        return;
    close_stream(s);
    if (j->out[0].open || j->out[1].open)
        return;
    if (j->state == DEAD)
        finish(j);
    else if (j->state == LINGERS)
        see_end(j);
}

/* Call after its end, while the zombie still holds its pid. */
static void kill_left(const struct local_job *j)
{
    kill(-j->pid, SIGKILL);
    if (j->is_host)
        fbr_spawn_sweep(j->pid);
}

/* Children that were asked to end, too, save their work while they hold the job's output. False:
 * nothing holds it. */
static bool linger(struct local_job *j)
{
    j->asked = false;
    if ((!j->out[0].open && !j->out[1].open) ||
        fbr_timer_init(&j->drain, j->b->env.loop, see_end, j) < 0)
        return false;
    fbr_timer_start(&j->drain, LINGER_MS, 0);
    uv_poll_stop(&j->watch);
    j->state = LINGERS;
    return true;
}

/* The job has ended, and does not linger, or no longer. */
static void see_end(void *job)
{
    struct local_job *j = job;
    siginfo_t info = {0};
    struct rusage use = {0};

    /* Seen on Linux 6.18 with many threads: the descriptor can be read a moment before the process
     * can be waited for. It stays readable, so this is called again. */
    if (waitid(P_PID, (id_t)j->pid, &info, WEXITED | WNOWAIT | WNOHANG) == 0 && info.si_pid == 0)
        return;
    if (j->asked && linger(j))
        return;
    if (j->state == LINGERS)
        fbr_timer_fini(&j->drain);
    kill_left(j);
    /* the program itself waited for it */
    if (fbr_spawn_wait(j->pid, j->pidfd, &info, &use) < 0)
        j->code = FBR_EXIT_UNKNOWN;
    else
        j->code = info.si_code == CLD_EXITED ? info.si_status : -info.si_status;
    j->peak = (uint64_t)use.ru_maxrss * 1024;
    j->state = DEAD;
    uv_poll_stop(&j->watch);
    close(j->pidfd);
    j->pidfd = -1;
    uv_close((uv_handle_t *)&j->watch, on_closed);
    /* a slow reader of the output does not delay the report of the end; little output is left */
    local_pause_output(j->b, j, 0);
    if ((!j->out[0].open && !j->out[1].open) ||
        fbr_timer_init(&j->drain, j->b->env.loop, finish, j) < 0)
        finish(j);
    else
        fbr_timer_start(&j->drain, DRAIN_MS, 0);
}

static void on_dead(uv_poll_t *watch, int status, int events)
{
    see_end(watch->data);
}

static int local_open(struct fbr_backend **out, const struct fbr_backend_env *env,
                      struct fbr_error *err)
{
    struct fbr_backend *b = calloc(1, sizeof(*b));

    if (!b)
        return fbr_fail(err, -ENOMEM, "out of memory");
    b->env = *env;
    *out = b;
    return 0;
}

/* Kills the job and its group, which the job may have left. If the program has waited for the job,
 * nothing is killed: its pid may belong to another process. */
static int kill_now(const struct local_job *j)
{
    int rc = fbr_spawn_signal(j->pid, j->pidfd, SIGKILL);

    if (rc == -ESRCH)
        return 0;
    return kill(-j->pid, SIGKILL) == 0 ? 0 : rc;
}

static bool ends_until(const struct local_job *j, uint64_t until)
{
    struct pollfd end = {.fd = j->pidfd, .events = POLLIN};
    uint64_t now;

    while ((now = fbr_now_ms()) < until)
        if (poll(&end, 1, (int)(until - now)) > 0)
            return true;
    return poll(&end, 1, 0) > 0;
}

static void local_close(struct fbr_backend *b)
{
    uint64_t until = fbr_now_ms() + CLOSE_MS;
    struct local_job *j, *next;

    fbr_copies_close(b->template);
    DL_FOREACH(b->jobs, j)
        if (j->state < DEAD && !j->copy)
            kill_now(j);
    DL_FOREACH_SAFE(b->jobs, j, next) {
        if (j->copy) {
            free_copy(j->copy);
            j->copy = NULL;
        } else if (j->state < DEAD) {
            bool ends = ends_until(j, until);

            if (!ends)
                fbr_warn("process %d does not end, although it was killed", (int)j->pid);
            kill_left(j);
            waitpid(j->pid, NULL, ends ? 0 : WNOHANG);
            uv_close((uv_handle_t *)&j->watch, on_closed);
            close(j->pidfd);
        }
        j->user = NULL;
        finish(j);
        maybe_free(j); /* a copy that was not made has no handles */
    }
    fbr_cpu_allocs_close(b->places);
    free(b);
}

static int ticket_fd(const struct fbr_job *job, struct fbr_error *err)
{
    int fd = memfd_create("fiber-ticket", MFD_CLOEXEC), why;
    ssize_t n = fd < 0 ? -1 : write(fd, job->ticket, job->ticket_len);

    if (n == (ssize_t)job->ticket_len)
        return fd;
    why = n < 0 ? errno : EFBIG; /* ulimit -f: the kernel writes what fits */
    fbr_fds_close(fd);
    return fbr_fail(err, -why, "cannot make a file in memory for the ticket: %s",
                    fbr_strerror(why));
}

/* Finds a place for the job. The job gets none if it requests none, or if nothing can be bound. */
static int find_place(struct local_job *j, const struct fbr_job *job, struct fbr_error *err)
{
    struct fbr_backend *b = j->b;
    int rc;

    if (job->local || (job->cpus < 1 && job->gpus == 0))
        return 0;
    if ((!b->places && (rc = fbr_cpu_allocs_open(&b->places, err)) < 0) ||
        (rc = fbr_cpu_allocs_take(b->places, (unsigned)job->cpus, (unsigned)job->gpus, &j->place,
                                  err)) < 0) {
        if (job->gpus)
            return rc;
        fbr_info("%s is not bound: %s", job->name, err->text);
    }
    return 0;
}

/* Returns the environment of the job; the strings stay the caller's. Free the list. */
static char **with_ticket(char *const *env, bool ticket, const struct fbr_cpu_alloc *place)
{
    const char *more[1 + sizeof(place->env) / sizeof(place->env[0])] = {ticket ? "FIBER_TICKET=fd:3"
                                                                               : "FIBER_TICKET"};

    for (size_t i = 0; place && place->env[i]; i++)
        more[i + 1] = place->env[i];
    return fbr_environ_with(env, more);
}

static void watch(struct local_job *j, int out, int err)
{
    uv_loop_t *uv = fbr_loop_uv(j->b->env.loop);
    int fds[2] = {out, err};

    for (int i = 0; i < 2; i++) {
        struct stream *s = &j->out[i];

        s->job = j;
        uv_pipe_init(uv, &s->pipe, 0);
        j->handles++;
        s->open = true;
        s->pipe.data = s;
        uv_pipe_open(&s->pipe, fds[i]);
        uv_read_start((uv_stream_t *)&s->pipe, fbr_loop_alloc, on_output);
    }
    uv_poll_init(uv, &j->watch, j->pidfd);
    j->watch.data = j;
    j->handles++;
    uv_poll_start(&j->watch, UV_READABLE, on_dead);
}

/* Finds the program as a shell would, in the PATH of the job's environment: our own PATH belongs to
 * the program, whose threads may change it now. */
static int find_program(const char *name, char *const *env, char *path, size_t size,
                        struct fbr_error *err)
{
    int rc = fbr_spawn_find_in(env, name, path, size, err);

    if (rc == -ENAMETOOLONG)
        return rc;
    return rc < 0 && !strchr(name, '/')
               ? fbr_fail(err, rc, "cannot start %s: there is no such program in PATH", name)
               : 0; /* otherwise exec reports the error */
}

static int launch(struct local_job *j, const struct fbr_job *job, const int out[2],
                  struct fbr_error *err)
{
    char file[PATH_MAX];
    static const struct fbr_job_local nothing = {.in = -1, .fd = -1};
    const struct fbr_job_local *l = job->local ? job->local : &nothing;
    char **env = with_ticket(job->env, job->ticket, j->place);
    bool placed = j->place && j->place->cpus_len;
    int fd = !env          ? fbr_fail(err, -ENOMEM, "out of memory")
             : job->ticket ? ticket_fd(job, err)
                           : l->fd;
    struct fbr_spawn s = {.file = file,
                          .argv = job->argv,
                          .env = env,
                          .workdir = job->workdir,
                          .fds = {job->keep_stdin ? 0 : l->in, l->terminal ? l->in : out[0],
                                  l->terminal ? l->in : out[1], fd, job->link ? job->link : -1,
                                  job->control},
                          .nfds = job->control ? 6
                                  : fd >= 0    ? 4
                                               : 3,
                          .cpus = placed ? j->place->cpus : l->cpus,
                          .cpus_len = placed ? (size_t)j->place->cpus_len : l->cpus_len,
                          .nodes = placed ? j->place->nodes : l->nodes,
                          .slack = l->slack,
                          .session = j->is_host,
                          .terminal = l->terminal != 0};
    int rc = fd;

    if (!env || (job->ticket && fd < 0) ||
        (rc = find_program(job->file, env, file, sizeof(file), err)) < 0)
        goto done;
    rc = fbr_spawn(&s, &j->pid, &j->pidfd, err);
done:
    if (job->ticket)
        fbr_fds_close(fd);
    free(env);
    return rc;
}

/* Reports requests of a job that have no effect here. */
static void report_ignored(struct fbr_backend *b, const struct fbr_job *job)
{
    if (job->image && job->image[0] && !b->said_image) {
        b->said_image = true;
        fbr_warn("local: jobs run on this host as it is, not in image %.200s", job->image);
    }
    if (job->memory && !b->said_memory) {
        b->said_memory = true;
        fbr_warn("local: jobs may use more memory than they ask for; only engines prevent it "
                 "(docker, kubernetes, slurm)");
    }
}

static int open_pipes(int ours[2], int theirs[2], struct fbr_error *err)
{
    int ends[2];

    for (int i = 0; i < 2; i++) {
        if (pipe2(ends, O_CLOEXEC) < 0)
            return fbr_fail(err, -errno, "cannot make a pipe for its output: %s",
                            fbr_strerror(errno));
        ours[i] = ends[0];
        theirs[i] = ends[1];
    }
    return 0;
}

static void close_ends(int ends[2])
{
    for (int i = 0; i < 2; i++) {
        ends[i] = fbr_fds_close(ends[i]);
    }
}

/* The job runs. */
static void begin(struct local_job *j, const int ours[2])
{
    char id[24];

    watch(j, ours[0], ours[1]);
    snprintf(id, sizeof(id), "%d", (int)j->pid);
    notify(j, &(struct fbr_job_event){.type = FBR_JOB_STARTED, .text = id, .pid = j->pid});
}

static int start_now(struct local_job *j, const struct fbr_job *job, int ours[2],
                     struct fbr_error *err)
{
    int theirs[2] = {-1, -1}, rc = open_pipes(ours, theirs, err);

    if (rc < 0)
        goto done;
    if (job->local && job->local->terminal && dup3(job->local->terminal, ours[0], O_CLOEXEC) < 0) {
        rc = fbr_fail(err, -errno, "cannot open its terminal: %s", fbr_strerror(errno));
        goto done;
    }
    rc = launch(j, job, theirs, err);
done:
    close_ends(theirs);
    if (rc < 0)
        close_ends(ours);
    return rc;
}

/* ---- Copies of the template ---- */

static void free_copy(struct copy *c)
{
    close_ends(c->ours);
    for (int i = 0; i < FBR_COPIES_GATE; i++)
        fbr_fds_close(c->order.fds[i]);
    free((void *)(uintptr_t)c->order.env);
    fbr_kept_job_free(c->kept);
    free(c);
}

static int on_turn(struct fbr_copies_order *o)
{
    struct copy *c = (struct copy *)(void *)o;
    const char *folder = c->kept->workdir ? c->kept->workdir : ".";
    struct fbr_error err;

    if (open_pipes(c->ours, &o->fds[FBR_COPIES_OUT], &err) < 0)
        return -EIO;
    o->fds[FBR_COPIES_TICKET] = ticket_fd(c->kept, &err);
    o->fds[FBR_COPIES_FOLDER] = open(folder, O_PATH | O_DIRECTORY | O_CLOEXEC);
    return o->fds[FBR_COPIES_TICKET] < 0 || o->fds[FBR_COPIES_FOLDER] < 0 ? -EIO : 0;
}

/* The exit code of a job that start() could not start, as shells have it: the runtime knows by it
 * whether another such job could run. */
static int32_t code_of_failure(int rc)
{
    return rc == -ENOENT ? 127 : rc == -EACCES || rc == -ENOEXEC ? 126 : CANNOT_START;
}

/* The job runs as a copy, or is started in the other way. */
static void on_copy(struct fbr_copies_order *o, pid_t pid, int pidfd)
{
    struct copy *c = (struct copy *)(void *)o;
    struct local_job *j = c->job;
    struct fbr_error err;
    int rc;

    j->copy = NULL;
    j->pid = pid;
    j->pidfd = pidfd;
    if (!pid) {
        close_ends(c->ours);
        rc = start_now(j, c->kept, c->ours, &err);
        if (rc < 0) {
            j->code = code_of_failure(rc);
            snprintf(j->why, sizeof(j->why), "could not be started: %.200s", err.text);
        }
    }
    if (j->pid) {
        begin(j, c->ours);
        c->ours[0] = c->ours[1] = -1;
        for (int sig = 1; sig <= 64; sig++)
            if (c->signals & SIGNAL(sig))
                local_signal(j->b, j, sig);
    } else {
        finish(j);
    }
    free_copy(c);
}

/* Whether the job gets only its ticket, and this backend reads its output. */
static bool may_be_copied(const struct local_job *j, const struct fbr_job *job)
{
    return job->template && job->ticket && !job->local && !job->link && !job->control &&
           !job->keep_stdin && !j->is_host && !j->place;
}

/* Whether the template makes the job. */
static bool order_copy(struct local_job *j, const struct fbr_job *job)
{
    struct fbr_backend *b = j->b;
    struct copy *c;

    if (!may_be_copied(j, job) || (!b->template && fbr_copies_open(&b->template, b->env.loop) < 0))
        return false;
    if (!fbr_copies_takes(b->template, job))
        return false;
    c = calloc(1, sizeof(*c));
    if (!c)
        return false;
    *c = (struct copy){
        .order = {.turn = on_turn, .done = on_copy, .fds = {-1, -1, -1, -1}},
        .job = j,
        .kept = fbr_kept_job(job),
        .ours = {-1, -1},
    };
    c->order.env = c->kept ? with_ticket(c->kept->env, true, NULL) : NULL;
    if (!c->order.env) {
        free_copy(c);
        return false;
    }
    j->copy = c;
    return true;
}

/* A child inherits niceness and processors from the thread that starts it. nice() and
 * sched_setaffinity() of a program change its main thread alone, maybe when ours runs already. */
static void follow_main_thread(void)
{
    cpu_set_t own[CPU_SETS] = {0}, theirs[CPU_SETS] = {0};
    int nice = getpriority(PRIO_PROCESS, (id_t)getpid());

    if (nice != getpriority(PRIO_PROCESS, 0))
        setpriority(PRIO_PROCESS, 0, nice);
    if (sched_getaffinity(getpid(), sizeof(theirs), theirs) == 0 &&
        sched_getaffinity(0, sizeof(own), own) == 0 && memcmp(own, theirs, sizeof(own)) != 0)
        sched_setaffinity(0, sizeof(theirs), theirs);
}

static int local_start(struct fbr_backend *b, const struct fbr_job *job, void *user, void **handle,
                       struct fbr_error *err)
{
    struct local_job *j = calloc(1, sizeof(*j));
    int ours[2] = {-1, -1}, rc;

    if (!j)
        return fbr_fail(err, -ENOMEM, "out of memory");
    follow_main_thread();
    j->b = b;
    j->user = user;
    j->is_host = job->is_host || (job->local && job->local->terminal);
    report_ignored(b, job);
    if ((rc = find_place(j, job, err)) < 0 ||
        (!order_copy(j, job) && (rc = start_now(j, job, ours, err)) < 0)) {
        fbr_cpu_allocs_leave(b->places, j->place);
        free(j);
        return rc;
    }
    DL_APPEND(b->jobs, j);
    *handle = j;
    if (j->copy)
        fbr_copies_order(b->template, &j->copy->order);
    else
        begin(j, ours);
    return 0;
}

static int local_signal(struct fbr_backend *b, void *handle, int sig)
{
    struct local_job *j = handle;
    int rc;

    if (j->state >= DEAD)
        return 0;
    if (j->copy) {
        j->copy->signals |= SIGNAL(sig);
        if (sig == SIGCONT) /* it undoes a stop before it */
            j->copy->signals &= ~SIGNAL(SIGSTOP);
        return 0;
    }
    if (sig < 0) {
        j->asked = j->asked || sig == -SIGTERM;
        return kill(-j->pid, -sig) == 0 ? 0 : -errno;
    }
    if (sig == SIGKILL) {
        rc = kill_now(j);
        j->asked = false;
        if (j->state == LINGERS)
            see_end(j);
        return rc;
    }
    rc = fbr_spawn_signal(j->pid, j->pidfd, sig);
    return rc == -ESRCH ? 0 : rc;
}

static void local_pause_output(struct fbr_backend *b, void *handle, int paused)
{
    struct local_job *j = handle;

    for (int i = 0; i < 2; i++) {
        if (!j->out[i].open)
            continue;
        if (paused)
            uv_read_stop((uv_stream_t *)&j->out[i].pipe);
        else
            uv_read_start((uv_stream_t *)&j->out[i].pipe, fbr_loop_alloc, on_output);
    }
}

static void local_release(struct fbr_backend *b, void *handle)
{
    struct local_job *j = handle;

    j->user = NULL;
    maybe_free(j);
}

static const struct fbr_backend_about about = {.keys = NULL};

const struct fbr_backend_ops fbr_backend_local = {
    .name = "local",
    .about = &about,
    .reach = FBR_REACH_HOST,
    .open = local_open,
    .close = local_close,
    .start = local_start,
    .signal = local_signal,
    .pause_output = local_pause_output,
    .release = local_release,
};
