/* command.c - the backend for every manager that has a command which starts a job.
 *
 * The command, `ssh h2 ...` or `srun -n1 ...`, is the job: the command's end is the job's end, its
 * output is the job's output, and it receives the signals. So a job is a job of the local backend
 * whose program is the command. This file adds the command's words, the choice of the host, and the
 * ticket, which goes through standard input and so appears in no list of processes.
 *
 * With kind = detached the command only submits the job: detached.c. The ticket is then in a file.
 *
 * A start is in flight until the command has read the ticket; ssh reads the ticket when it has
 * logged in. With kind = detached it is in flight until the command has ended. At most `starts`
 * starts are in flight at once; further jobs are held, with copies of the data that they need. Jobs
 * without a ticket are not counted.
 *
 * When the command is killed, the job on the other host notices that its connection to us has
 * ended, and ends too.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <utlist.h>

#include "backends/command/detached.h"
#include "backends/command/settings.h"
#include "backends/tool/kept_job.h"
#include "backends/tool/ticket_pipe.h"
#include "backends/tool/tool.h"
#include "runtime/proc/backend.h"
#include "runtime/net/host_address.h"
#include "runtime/base/buf.h"
#include "runtime/base/fds.h"
#include "runtime/base/master_id.h"
#include "runtime/base/printable.h"

#define LOOK_UP_MS 1000
#define ASK_MS 10000
#define LOOK_MS 10 /* between two checks of the starts in flight */
#define CANNOT_START 125
#define NOT_FOUND 127         /* the exit code of env, and of shells */
#define SOMEWHERE "192.0.2.1" /* in no network that exists: its route is the default route */

extern const struct fbr_backend_ops fbr_backend_local;
static const struct fbr_backend_ops *const local = &fbr_backend_local;

struct command_job {
    struct command_job *next, *prev;
    struct fbr_backend *b;
    void *user;    /* NULL: released, the runtime takes no further events */
    void *process; /* the handle of the local backend, or of detached.c */
    struct fbr_host *host;
    struct fbr_job *held; /* its command, and what the command needs; NULL: it was started */
    char *file;           /* detached: the file with its ticket; NULL: none */
    bool in_flight;
    int reads; /* the descriptor from which the job reads its ticket meanwhile; else -1 */
    int ends;  /* the signal that ended the job while it was held */
    bool told;
};

struct fbr_backend {
    struct fbr_backend_env env;
    struct fbr_command_settings settings;
    struct fbr_backend *processes; /* the instance of the local backend */
    struct fbr_detached *detached; /* NULL: the command is the job */
    struct command_job *jobs;
    struct fbr_timer look;
    unsigned in_flight;
    char master[FBR_MASTER_ID_MAX];
};

/* ---- Events of the command ---- */

static const char *host_of(const struct command_job *j)
{
    return j->host ? j->host->name : "";
}

static void notify(struct command_job *j, const struct fbr_job_event *e)
{
    if (j->user)
        j->b->env.event(j->user, e);
}

static void free_held(struct command_job *j)
{
    fbr_kept_job_free(j->held);
    j->held = NULL;
}

static void free_ticket(struct command_job *j)
{
    if (j->file)
        unlink(j->file);
    free(j->file);
    j->file = NULL;
}

/* Whether some of the job's ticket is still unread. */
static bool is_unread(const struct command_job *j)
{
    int left = 0;

    return j->reads >= 0 && ioctl(j->reads, FIONREAD, &left) == 0 && left > 0;
}

static void landed(struct command_job *j)
{
    if (!j->in_flight)
        return;
    j->reads = fbr_fds_close(j->reads);
    j->in_flight = false;
    j->b->in_flight--;
}

static void maybe_free(struct command_job *j)
{
    if (!j->told || j->user)
        return;
    if (j->process && j->b->detached)
        fbr_detached_release(j->process);
    else if (j->process)
        local->release(j->b->processes, j->process);
    free(j);
}

/* The process that was started is the command. The job itself reports which process it is. */
static void on_started(struct command_job *j, struct fbr_job_event *e)
{
    char id[320];

    if (j->b->detached)
        landed(j);
    snprintf(id, sizeof(id), "%.255s%s%s", host_of(j), j->host ? ":" : "", e->text);
    e->text = id;
    e->pid = 0;
    notify(j, e);
}

static void on_exited(struct command_job *j, struct fbr_job_event *e)
{
    const struct fbr_command_settings *s = &j->b->settings;
    bool unread = is_unread(j);
    char text[512];

    if (j->host)
        j->host->used--;
    landed(j);
    free_held(j);
    free_ticket(j);
    DL_DELETE(j->b->jobs, j);
    e->pid = 0;
    if (!s->detached && e->code >= 0 && e->code == s->unknown) {
        snprintf(text, sizeof(text),
                 "ended with code %d of '%.100s'%s%.200s, which means that the connection failed "
                 "or that a signal ended the job",
                 e->code, s->start.at[0], j->host ? " to " : "", host_of(j));
        e->text = text;
        e->code = FBR_EXIT_UNKNOWN;
    } else if (!s->detached && e->code == NOT_FOUND && !e->text[0]) {
        snprintf(
            text, sizeof(text),
            "exited with code 127; if it did not start, this program, or a library that it needs, "
            "is not %s%.200s at the path that it has here (command_program sets another)",
            j->host ? "on " : "there", host_of(j));
        e->text = text;
    } else if (!s->detached && s->signals && e->code > s->signals && e->code <= s->signals + 64) {
        e->code = -(e->code - s->signals);
    } else if (unread && e->code >= 0 && !e->text[0]) {
        snprintf(
            text, sizeof(text),
            "exited with code %d before it joined: nothing has read its standard input, so the "
            "command that starts jobs ('%.100s') has started no program, or one that does not "
            "call fiber_init() first",
            e->code, s->start.at[0]);
        e->text = text;
    }
    notify(j, e); /* the callback may release the job */
    j->told = true;
    maybe_free(j);
}

static void on_event(void *user, const struct fbr_job_event *event)
{
    struct command_job *j = user;
    struct fbr_job_event e = *event;

    if (e.type == FBR_JOB_STARTED)
        on_started(j, &e);
    else if (e.type == FBR_JOB_EXITED)
        on_exited(j, &e);
    else
        notify(j, &e);
}

/* ---- Starting ---- */

static int make_words(struct fbr_backend *b, const struct fbr_job *job, const struct command_job *j,
                      const char *ticket, struct fbr_args *w, struct fbr_error *err)
{
    const struct fbr_command_settings *s = &b->settings;
    char path[PATH_MAX], here[PATH_MAX] = "", label[FBR_LABEL_MAX];
    struct fbr_fill f = {.host = j->host ? j->host->name : "",
                         .name = job->name,
                         .run = job->run_uid,
                         .workdir = job->workdir,
                         .label = label,
                         .ticket = job->ticket ? ticket : NULL,
                         .env = job->added_env,
                         .program = job->file,
                         .argv = job->argv && job->argv[0] ? job->argv + 1 : NULL};

    fbr_label(label, job->run_uid, b->master, job->name);
    if (job->own_program) {
        int rc =
            s->program ? 0 : fbr_tool_own_program(path, sizeof(path), "set command_program", err);

        if (rc < 0)
            return rc;
        f.program = s->program ? s->program : path;
    }
    if (!f.workdir && getcwd(here, sizeof(here)))
        f.workdir = here;
    return fbr_template_fill(&s->start, &f, w, err);
}

/* Starts the command `words`, which is the job. */
static int attach(struct command_job *j, const struct fbr_job *job, char *const *words,
                  struct fbr_error *err)
{
    struct fbr_backend *b = j->b;
    int in = -1, rc;

    if (job->ticket &&
        (in = fbr_ticket_pipe_send(b->env.loop, job->ticket, job->ticket_len, true, err)) < 0)
        return in;
    rc = fbr_tool_start(b->processes, words, job->env, in, j, &j->process, err);
    if (rc < 0 && in >= 0)
        close(in);
    else
        j->reads = in;
    return rc;
}

static int launch(struct command_job *j, const struct fbr_job *job, char *const *words,
                  struct fbr_error *err)
{
    struct fbr_backend *b = j->b;
    int rc = b->detached ? fbr_detached_start(b->detached, words, job->env, j, &j->process, err)
                         : attach(j, job, words, err);

    if (rc < 0 || !(job->ticket || b->detached))
        return rc;
    j->in_flight = true;
    b->in_flight++;
    fbr_timer_start(&b->look, LOOK_MS, LOOK_MS);
    return 0;
}

static bool is_full(const struct fbr_backend *b)
{
    return b->settings.starts && b->in_flight >= b->settings.starts;
}

/* Returns the next held job that can start, or that was ended; NULL: none. */
static struct command_job *next_held(struct fbr_backend *b)
{
    struct command_job *j;

    DL_FOREACH(b->jobs, j)
        if (j->held && (j->ends || !is_full(b)))
            return j;
    return NULL;
}

static void on_look(void *arg)
{
    struct fbr_backend *b = arg;
    struct command_job *j;
    struct fbr_error err = {0, ""};

    DL_FOREACH(b->jobs, j)
        if (!b->detached && !is_unread(j))
            landed(j);
    while ((j = next_held(b))) {
        struct fbr_job_event e = {.type = FBR_JOB_EXITED, .code = -j->ends, .text = ""};

        if (!j->ends && launch(j, j->held, j->held->argv, &err) == 0) {
            free_held(j);
            continue;
        }
        if (!j->ends) {
            e.code = CANNOT_START;
            e.text = err.text;
        }
        on_exited(j, &e);
    }
    if (!b->in_flight)
        fbr_timer_stop(&b->look);
}

/* Writes the ticket to a file that only this user, here and on the hosts, can read. */
static int write_ticket(struct command_job *j, const struct fbr_job *job, struct fbr_error *err)
{
    const char *dir = j->b->settings.ticket_dir;
    int fd, rc;

    if (asprintf(&j->file, "%.3000s/fiber-ticket-XXXXXX", dir) < 0) {
        j->file = NULL;
        return fbr_fail(err, -ENOMEM, "out of memory");
    }
    fd = mkostemp(j->file, O_CLOEXEC); /* mode 0600 */
    if (fd < 0)
        return fbr_fail(err, -errno, "cannot write a ticket in ticket_dir %s: %s", dir,
                        fbr_strerror(errno));
    rc = fbr_fds_write(fd, job->ticket, job->ticket_len);
    /* a remote file system reports errors here */
    if (close(fd) < 0 && rc == 0)
        rc = -errno;
    if (rc < 0)
        fbr_fail(err, rc, "cannot write its ticket to %s: %s", j->file, fbr_strerror(rc));
    return rc;
}

static int launch_or_hold(struct command_job *j, const struct fbr_job *job, struct fbr_error *err)
{
    struct fbr_backend *b = j->b;
    char where[PATH_MAX] = "fd:0";
    struct fbr_args w = {0};
    struct fbr_job command = *job;
    int rc = b->detached && job->ticket ? write_ticket(j, job, err) : 0;

    if (j->file)
        snprintf(where, sizeof(where), "file:%s", j->file);
    if (rc < 0 || (rc = make_words(b, job, j, where, &w, err)) < 0)
        return rc;
    if (is_full(b) && (job->ticket || b->detached)) {
        command.argv = w.at;
        j->held = fbr_kept_job(&command);
        rc = j->held ? 0 : fbr_fail(err, -ENOMEM, "out of memory");
    } else {
        rc = launch(j, job, w.at, err);
    }
    fbr_args_fini(&w);
    return rc;
}

/* A numbered job keeps its host, also when it is started again. There are never more jobs with
 * `apart` than there are hosts. */
static struct fbr_host *pick_host(struct fbr_hosts *h, const struct fbr_job *job)
{
    bool own = (job->numbered || job->apart) && job->index > 0 && h->n;

    return own ? &h->at[((size_t)job->index - 1) % h->n] : fbr_hosts_pick(h);
}

static int command_start(struct fbr_backend *b, const struct fbr_job *job, void *user,
                         void **handle, struct fbr_error *err)
{
    struct command_job *j = calloc(1, sizeof(*j));
    int rc;

    if (!j)
        return fbr_fail(err, -ENOMEM, "out of memory");
    j->b = b;
    j->user = user;
    j->reads = -1;
    j->host = pick_host(&b->settings.hosts, job);
    if (j->host)
        j->host->used++;
    *handle = j;
    rc = launch_or_hold(j, job, err);
    if (rc < 0) {
        if (j->host)
            j->host->used--;
        free_ticket(j);
        free(j);
        *handle = NULL;
        return rc;
    }
    DL_APPEND(b->jobs, j);
    /* a detached start that hangs keeps its place, so those behind it need start_timeout */
    if (j->held && !b->detached)
        notify(j, &(struct fbr_job_event){.type = FBR_JOB_PENDING,
                                          .placed = 1,
                                          .text = "waits for its turn to start ('starts' limits "
                                                  "how many start at once)"});
    return 0;
}

/* ---- The rest ---- */

static void command_close(struct fbr_backend *b)
{
    struct command_job *j, *next;

    DL_FOREACH(b->jobs, j)
        if (!b->detached && j->process) /* its end is not reported any more */
            local->release(b->processes, j->process);
    fbr_detached_close(b->detached);
    if (b->processes)
        local->close(b->processes);
    DL_FOREACH_SAFE(b->jobs, j, next) {
        landed(j);
        free_held(j);
        free_ticket(j);
        free(j);
    }
    fbr_timer_fini(&b->look);
    fbr_command_settings_fini(&b->settings);
    free(b);
}

static int command_open(struct fbr_backend **out, const struct fbr_backend_env *env,
                        struct fbr_error *err)
{
    struct fbr_backend *b = calloc(1, sizeof(*b));
    const struct fbr_backend_env inner = {env->loop, env->config, on_event, NULL};
    int rc;

    if (!b)
        return fbr_fail(err, -ENOMEM, "out of memory");
    b->env = *env;
    fbr_master_id_self(b->master);
    rc = fbr_command_settings_load(&b->settings, env->config, err);
    if (rc < 0)
        goto fail;
    rc = b->settings.detached ? fbr_detached_open(&b->detached, &inner, &b->settings, err)
                              : local->open(&b->processes, &inner, err);
    if (rc < 0)
        goto fail;
    if (fbr_timer_init(&b->look, env->loop, on_look, b) < 0) {
        rc = fbr_fail(err, -ENOMEM, "out of memory");
        goto fail;
    }
    *out = b;
    return 0;
fail:
    command_close(b);
    return rc;
}

static int command_signal(struct fbr_backend *b, void *handle, int sig)
{
    struct command_job *j = handle;

    if (b->detached && sig != SIGTERM && sig != SIGKILL)
        return -ENOTSUP;
    if (j->held && sig != SIGTERM && sig != SIGKILL && sig != SIGINT && sig != SIGHUP)
        return -ENOTSUP; /* there is no program yet that receives it */
    /* the next check (on_look()) reports the end */
    if (j->held)
        j->ends = sig;
    if (j->told || j->held)
        return 0;
    return b->detached ? fbr_detached_signal(j->process, sig)
                       : local->signal(b->processes, j->process, sig);
}

static void command_pause_output(struct fbr_backend *b, void *handle, int paused)
{
    struct command_job *j = handle;

    if (j->process && !j->told && !b->detached)
        local->pause_output(b->processes, j->process, paused);
}

static void command_release(struct fbr_backend *b, void *handle)
{
    struct command_job *j = handle;

    j->user = NULL;
    if (j->held)
        j->ends = SIGKILL;
    maybe_free(j);
}

/* The address of USER@ADDRESS. */
static const char *address_of(const struct fbr_host *host)
{
    const char *at = strrchr(host->name, '@');

    return at ? at + 1 : host->name;
}

/* Finds our address on the way to the hosts. The loopback address reaches no other host; so if one
 * of the listed hosts is this machine, the next one is looked up. */
static int command_address(struct fbr_backend *b, char out[FBR_HOST_ADDRESS_MAX],
                           struct fbr_error *err)
{
    const struct fbr_hosts *h = &b->settings.hosts;
    const char *peer = h->n ? address_of(&h->at[0]) : SOMEWHERE;
    bool here = false;
    int rc = fbr_host_address_toward(peer, LOOK_UP_MS, out, &here);

    for (size_t i = 1; i < h->n && rc == 0 && here; i++) {
        peer = address_of(&h->at[i]);
        rc = fbr_host_address_toward(peer, LOOK_UP_MS, out, &here);
    }

    if (rc == -ENOENT && h->n)
        return fbr_fail(err, rc,
                        "the host %s is not known here: check how it is written (getent hosts %s); "
                        "if only the command knows it, set bind to the address or interface at "
                        "which it reaches this host",
                        peer, peer);
    return rc < 0 ? fbr_host_address_fail(err, rc, h->n ? peer : "another host") : 0;
}

/* ---- For fiber run --dry-run ---- */

static int command_show(const struct fbr_config *config, const struct fbr_job *job, int json,
                        char **text, struct fbr_error *err)
{
    struct fbr_backend b = {0};
    struct command_job j = {.b = &b};
    char ticket[PATH_MAX] = "fd:0";
    struct fbr_args w = {0};
    struct fbr_buf line = {0};
    int rc;

    if (json)
        return -ENOTSUP;
    rc = fbr_command_settings_load(&b.settings, config, err);
    if (rc < 0)
        return rc;
    fbr_master_id_self(b.master);
    if (b.settings.detached)
        snprintf(ticket, sizeof(ticket), "file:%.3000s/fiber-ticket-XXXXXX", b.settings.ticket_dir);
    j.host = fbr_hosts_pick(&b.settings.hosts);
    rc = make_words(&b, job, &j, ticket, &w, err);
    if (rc < 0)
        goto done;
    fbr_args_line(&w, &line);
    fbr_put(&line, "\n", 1);
    *text = fbr_buf_text(&line);
    rc = *text ? 0 : fbr_fail(err, -ENOMEM, "out of memory");
done:
    fbr_args_fini(&w);
    fbr_command_settings_fini(&b.settings);
    return rc;
}

/* ---- Jobs of dead masters ---- */

/* Runs a template and waits. Returns 0 and the command's output, NUL-terminated, in *out. */
static int ask(struct fbr_backend *b, const struct fbr_args *template, const char *key,
               const char *id, struct fbr_buf *out, struct fbr_error *err)
{
    const char *const ids[] = {id, NULL};
    const struct fbr_fill f = {.id = id, .ids = ids};
    struct fbr_args w = {0};
    char line[200] = "";
    struct fbr_buf said = {0};
    int32_t code = 0;
    int rc;

    if (template->n == 0)
        return fbr_fail(err, -ENOTSUP, "%s has no line %s = ...; add the command for it",
                        b->settings.origin, key);
    if ((rc = fbr_template_fill(template, &f, &w, err)) < 0 ||
        (rc = fbr_tool_wait(&w, NULL, ASK_MS, out, &said, &code, err)) < 0)
        goto done;
    if (code != 0) {
        fbr_printable_last_line((const char *)said.data, line, sizeof(line));
        rc = fbr_fail(err, -EIO, "%s ended with code %d%s%s", key, code, line[0] ? ": " : "", line);
    }
done:
    fbr_buf_fini(&said);
    fbr_args_fini(&w);
    return rc;
}

static int command_list(struct fbr_backend *b, fbr_backend_found *found, void *user,
                        struct fbr_error *err)
{
    char *rest = NULL;
    struct fbr_buf out = {0};
    int rc;

    rc = ask(b, &b->settings.list, "list", NULL, &out, err);
    for (char *line = rc == 0 ? strtok_r((char *)out.data, "\n", &rest) : NULL; line;
         line = strtok_r(NULL, "\n", &rest)) {
        struct fbr_labelled l;

        if (fbr_label_line(line, &l))
            found(user,
                  &(struct fbr_orphan){
                      .id = l.id, .run = l.run, .name = l.name, .master = l.master, .runs = 1});
    }
    fbr_buf_fini(&out);
    return rc;
}

static int command_remove(struct fbr_backend *b, const char *id, struct fbr_error *err)
{
    return ask(b, &b->settings.cancel, "cancel", id, NULL, err);
}

static int command_logs(struct fbr_backend *b, const char *id, int follow,
                        const struct fbr_backend_reader *r, struct fbr_error *err)
{
    struct fbr_buf out = {0};
    int rc;

    if (follow)
        return fbr_fail(err, -ENOTSUP,
                        "the command for logs prints what a job wrote, and cannot follow it");
    rc = ask(b, &b->settings.logs, "logs", id, &out, err);
    if (rc == 0) {
        r->out(r->user, 1, out.data, out.len - 1);
        r->done(r->user, "");
    }
    fbr_buf_fini(&out);
    return rc;
}

static int command_room(const struct fbr_backend_env *env, int sizes, struct fbr_capacity *room,
                        struct fbr_error *err)
{
    struct fbr_command_settings s;
    int rc = sizes ? fbr_command_settings_load(&s, env->config, err) : 0;

    if (!sizes || rc < 0)
        return rc;
    if (fbr_template_has(&s.start, "{host}"))
        room->hosts = (unsigned)s.hosts.n;
    fbr_command_settings_fini(&s);
    return 0;
}

/* ---- The table ---- */

static const struct fbr_config_key keys[] = {
    {"command_file", "FIBER_COMMAND_FILE", FBR_CONFIG_STR, "", 0, FBR_CONFIG_TEXT_MAX, NULL,
     "backend command: file with the commands of a manager (backends/command/templates has some)"},
    {"command_start", "FIBER_COMMAND_START", FBR_CONFIG_STR, "", 0, FBR_CONFIG_TEXT_MAX, NULL,
     "backend command: what starts a job, e.g. \"ssh {host}\"; it is the job"},
    {"command_hosts", "FIBER_COMMAND_HOSTS", FBR_CONFIG_STR, "", 0, FBR_CONFIG_LIST_MAX, NULL,
     "backend command: hosts, e.g. \"h1 h2:4\" (with slots), or the path of a file with them"},
    {"command_program", "FIBER_COMMAND_PROGRAM", FBR_CONFIG_STR, "", 0, FBR_CONFIG_TEXT_MAX, NULL,
     "backend command: path of this program on the hosts; empty: the same as here"},
};

static const struct fbr_backend_sign signs[] = {
    {NULL, "command_file", NULL},
    {NULL, "command_start", NULL},
};

static const struct fbr_backend_advice advice = {
    .absent = "set command_start, e.g. \"ssh {host}\", or command_file",
    .bad = "correct command_file or command_start; fiber config show prints where they are set",
};

static const struct fbr_backend_about about = {
    .keys = keys,
    .nkeys = sizeof(keys) / sizeof(keys[0]),
    .signs = signs,
    .nsigns = sizeof(signs) / sizeof(signs[0]),
    .advice = &advice,
    .unset = "no command is configured",
    .leaves_jobs = 1,
    .shows = 1,
};

static const struct fbr_backend_housekeeping housekeeping = {
    .list = command_list,
    .remove = command_remove,
    .logs = command_logs,
};

const struct fbr_backend_ops fbr_backend_command = {
    .name = "command",
    .about = &about,
    .reach = FBR_REACH_TCP,
    .room = command_room,
    .open = command_open,
    .close = command_close,
    .start = command_start,
    .signal = command_signal,
    .pause_output = command_pause_output,
    .release = command_release,
    .housekeeping = &housekeeping,
    .address = command_address,
    .show = command_show,
};
