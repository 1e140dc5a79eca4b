/* run_client.c - queries runs over their control sockets.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "cli/run_client.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include "runtime/base/config_value.h"
#include "runtime/base/fds.h"
#include "runtime/base/sync.h"
#include "runtime/inspect/registry.h"
#include "runtime/inspect/spool_dir.h"

#define ORDER_MS 5000 /* a command may take longer than a query */
#define VISIT_S 60

/* ---- One run ---- */

void run_client_free(struct run_client *run)
{
    fbr_fds_close(run->fd);
    fbr_buf_fini(&run->got);
    free(run->ranks);
    free(run->before);
    free(run->coming);
    run->fd = -1;
    run->ranks = run->before = run->coming = NULL;
}

static int send_request(struct run_client *run, enum fbr_run_control_op op, int rank, int argument)
{
    const struct fbr_run_control_request r = {FBR_RUN_CONTROL_VERSION, (uint8_t)op, rank, argument};
    struct fbr_buf b = {0};
    ssize_t n;

    /* it has too many connections to accept another */
    if (run->fd < 0)
        return -ETIMEDOUT;
    fbr_run_control_put_request(&b, &r);
    n = b.failed ? -1 : send(run->fd, b.data, b.len, MSG_NOSIGNAL);
    fbr_buf_fini(&b);
    run->owed += n > 0;
    return n > 0 ? 0 : -ECONNRESET;
}

/* Receives more bytes: 0, -ETIMEDOUT, -ECONNRESET. `until`: fbr_now_ms(); UINT64_MAX: for ever. */
static int receive(struct run_client *run, uint64_t until)
{
    struct pollfd p = {.fd = run->fd, .events = POLLIN};
    size_t most = run->exact ? 1 : 1 << 16;
    void *room = fbr_buf_reserve(&run->got, most);
    ssize_t n;
    int rc;

    if (!room)
        return -ENOMEM;
    rc = TEMP_FAILURE_RETRY(poll(&p, 1, fbr_ms_until(until)));
    if (rc == 0)
        return -ETIMEDOUT;
    n = recv(run->fd, room, most, 0);
    if (n <= 0)
        return -ECONNRESET;
    fbr_buf_extend(&run->got, (size_t)n);
    return 0;
}

/* Returns the kind of the next answer, valid until the next call, or a negative errno. *used
 * becomes the number of its bytes in `got`. */
static int next_answer(struct run_client *run, uint64_t until, struct fbr_cur *c, size_t *used)
{
    int rc;

    fbr_buf_consume(&run->got, *used);
    *used = 0;
    while ((rc = fbr_run_control_frame(run->got.data, run->got.len, FBR_RUN_CONTROL_ANSWER_MAX, c,
                                       used)) == 0) {
        rc = receive(run, until);
        if (rc < 0)
            return rc;
    }
    return rc < 0 ? rc : fbr_get_u8(c);
}

static int keep_rank(struct run_client *run, struct fbr_cur *c)
{
    struct fbr_run_rank *rank = fbr_grow(&run->coming, (size_t)run->ncoming, sizeof(*rank));

    if (!rank)
        return -ENOMEM;
    if (!fbr_run_control_get_rank(c, rank))
        return -EBADMSG;
    run->ncoming++;
    return 0;
}

/* The answer is complete: its ranks replace the old ones. */
static void take_ranks(struct run_client *run)
{
    struct fbr_run_rank *old = run->before;

    run->before = run->ranks;
    run->nbefore = run->nranks;
    run->ranks = run->coming;
    run->nranks = run->ncoming;
    run->coming = old;
    run->ncoming = 0;
    run->ranks_owed = false;
}

static int no_answer(const struct run_client *run, int rc, struct fbr_error *err)
{
    if (rc == -ETIMEDOUT)
        return fbr_fail(err, rc,
                        "run %.16s: its launcher, process %lld, does not answer: it is stopped, or "
                        "the machine is very busy",
                        run->about.uid, (long long)run->about.pid);
    return fbr_fail(err, rc, "run %.16s: %s", run->about.uid,
                    rc == -ECONNRESET ? "it has ended" : fbr_strerror(rc));
}

/* Reads answers until no request is open: returns the code of the last DONE, with its text in
 * err. */
static int read_answers(struct run_client *run, uint64_t until, struct fbr_error *err)
{
    char text[1024] = "";
    struct fbr_cur c;
    size_t used = 0;
    int rc = 0, code = 0;

    while (run->owed > 0) {
        rc = next_answer(run, until, &c, &used);
        if (rc == FBR_RUN_CONTROL_RUN && fbr_run_control_get_run(&c, &run->about, &run->facts))
            continue;
        if (rc == FBR_RUN_CONTROL_RANK) {
            rc = keep_rank(run, &c);
            if (rc < 0)
                return no_answer(run, rc, err);
        } else if (rc == FBR_RUN_CONTROL_DONE &&
                   fbr_run_control_get_done(&c, &code, text, sizeof(text))) {
            run->owed--;
        } else {
            return no_answer(run, rc < 0 ? rc : -EBADMSG, err);
        }
    }
    fbr_buf_consume(&run->got, used);
    return code < 0 ? fbr_fail(err, code, "run %.16s: %s", run->about.uid, text) : 0;
}

int run_client_ask(struct run_client *run, enum fbr_run_control_op op, int rank, int argument,
                   struct fbr_error *err)
{
    int rc = send_request(run, op, rank, argument);

    if (rc < 0)
        return no_answer(run, rc, err);
    rc = read_answers(run, fbr_now_ms() + ORDER_MS, err);
    if (rc == -ETIMEDOUT && op != FBR_RUN_CONTROL_TUNNEL) {
        char text[FBR_ERROR_TEXT];

        snprintf(text, sizeof(text), "%s", err->text);
        return fbr_fail(err, rc,
                        "%.400s. The request was sent, and takes effect when the launcher "
                        "continues",
                        text);
    }
    return rc;
}

int run_client_tunnel(struct run_client *run, int rank, struct fbr_error *err)
{
    const struct timeval patience = {.tv_sec = VISIT_S};
    int rc;

    run->exact = true; /* the bytes of the process may come at once */
    rc = run_client_ask(run, FBR_RUN_CONTROL_TUNNEL, rank, 0, err);
    if (rc < 0)
        return rc;
    fcntl(run->fd, F_SETFL, fcntl(run->fd, F_GETFL) & ~O_NONBLOCK);
    setsockopt(run->fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
    setsockopt(run->fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof(patience));
    return 0;
}

int run_client_ranks(struct run_client *run, unsigned patience_ms, struct fbr_error *err)
{
    int rc;

    if (run->fd < 0)
        run->fd = fbr_registry_call(run->about.uid);
    if (run->fd < 0)
        return no_answer(run, run->fd == -EAGAIN ? -ETIMEDOUT : -ECONNRESET, err);
    rc = run->ranks_owed ? 0 : send_request(run, FBR_RUN_CONTROL_STATUS, -1, 1);
    if (rc < 0)
        return no_answer(run, rc, err);
    run->ranks_owed = true;
    rc = read_answers(run, fbr_now_ms() + patience_ms, err);
    if (rc < 0)
        return rc;
    take_ranks(run);
    return 0;
}

/* ---- All runs ---- */

struct listing {
    struct run_client *runs;
    size_t count;
    bool failed;
};

static struct run_client *add(struct listing *l, const struct fbr_run_control_about *about)
{
    struct run_client *run = fbr_grow(&l->runs, l->count, sizeof(*run));

    if (!run) {
        l->failed = true;
        return NULL;
    }
    l->count++;
    run->fd = -1;
    run->about = *about;
    run->facts.size = about->size;
    return run;
}

static void on_run(void *user, int fd, const struct fbr_run_control_about *about)
{
    struct run_client *run = add(user, about);

    if (run) {
        run->fd = fd;
        run->state = fd < 0 ? CLIENT_SILENT : CLIENT_RUNNING;
    } else if (fd >= 0) {
        close(fd);
    }
}

static bool is_listed(const struct listing *l, const char *uid)
{
    for (size_t i = 0; i < l->count; i++)
        if (!strcmp(l->runs[i].about.uid, uid))
            return true;
    return false;
}

static void on_ended(void *user, const struct fbr_run_control_about *about,
                     const struct fbr_run_facts *facts, int code, const char *report)
{
    struct run_client *run = is_listed(user, about->uid) ? NULL : add(user, about);

    if (!run)
        return;
    run->facts = *facts;
    run->state = code == FBR_REGISTRY_LOST ? CLIENT_LOST : CLIENT_ENDED;
    run->code = code;
    snprintf(run->report, sizeof(run->report), "%s", report);
}

static void on_kept(void *user, const struct fbr_spool_run *run)
{
    if (run->ended)
        on_ended(user, &run->about, &run->facts, run->code, run->report);
}

static int by_start(const void *a, const void *b)
{
    const struct run_client *x = a, *y = b;

    return x->about.started_ms < y->about.started_ms ? -1
                                                     : x->about.started_ms > y->about.started_ms;
}

/* The run has ended, or has too many connections to accept another. */
static enum run_client_state hung_up(const struct run_client *run)
{
    int fd = fbr_registry_call(run->about.uid);

    fbr_fds_close(fd);
    return fd >= 0 || fd == -EAGAIN ? CLIENT_SILENT : CLIENT_ENDED;
}

/* Sends the requests to all runs before it waits for the first answer; the time limit of one answer
 * applies to all together. Removes a run that ends meanwhile: its record has its exit code. */
static void ask_all(struct listing *l)
{
    uint64_t until = fbr_now_ms() + CLIENT_PATIENCE_MS;
    struct fbr_error err;
    size_t left = 0;

    for (size_t i = 0; i < l->count; i++)
        if (l->runs[i].fd >= 0 && send_request(&l->runs[i], FBR_RUN_CONTROL_STATUS, -1, 0) < 0)
            l->runs[i].state = hung_up(&l->runs[i]);
    for (size_t i = 0; i < l->count; i++)
        if (l->runs[i].owed > 0 && read_answers(&l->runs[i], until, &err) < 0)
            l->runs[i].state = err.code == -ECONNRESET ? hung_up(&l->runs[i]) : CLIENT_SILENT;
    for (size_t i = 0; i < l->count; i++)
        if (l->runs[i].state == CLIENT_ENDED)
            run_client_free(&l->runs[i]);
        else
            l->runs[left++] = l->runs[i];
    l->count = left;
}

int run_client_list(struct run_client **runs, size_t *count, bool ended, const char *kept,
                    struct fbr_error *err)
{
    struct listing l = {NULL, 0, false};
    int rc;

    rc = fbr_registry_each(on_run, &l, err);
    if (rc < 0)
        goto fail;
    ask_all(&l);
    if (ended && (rc = fbr_registry_ended(on_ended, &l, err)) < 0)
        goto fail;
    if (kept)
        fbr_spool_each(kept, on_kept, &l);
    if (l.failed) {
        rc = fbr_fail(err, -ENOMEM, "out of memory");
        goto fail;
    }
    if (l.count)
        qsort(l.runs, l.count, sizeof(*l.runs), by_start);
    *runs = l.runs;
    *count = l.count;
    return 0;
fail:
    run_client_list_free(l.runs, l.count);
    return rc;
}

void run_client_list_free(struct run_client *runs, size_t count)
{
    for (size_t i = 0; i < count; i++)
        run_client_free(&runs[i]);
    free(runs);
}

/* Moves an entry from the list to the caller. */
static void take_over(struct run_client *run, struct run_client *listed)
{
    *run = *listed;
    listed->fd = -1;
    fbr_buf_init(&listed->got);
    listed->ranks = listed->before = listed->coming = NULL;
}

/* If two living runs are of one program, a user means its pool or ring rather than its other
 * processes. NULL: either may be meant. */
static struct run_client *meant(struct run_client *a, struct run_client *b)
{
    if (a->about.pid != b->about.pid)
        return NULL;
    return a->about.kind == FBR_RUN_PROGRAM ? b : b->about.kind == FBR_RUN_PROGRAM ? a : NULL;
}

int run_client_find(const char *typed, struct run_client *run, struct fbr_error *err)
{
    struct run_client *runs, *found = NULL, *other;
    size_t count, living = 0;
    int rc = run_client_list(&runs, &count, true, NULL, err);

    if (rc < 0)
        return rc;
    for (size_t i = 0; i < count; i++) { /* the youngest last */
        bool lives = runs[i].state <= CLIENT_SILENT;

        if (!fbr_registry_is_called(&runs[i].about, typed) || (living && !lives))
            continue;
        other = living ? meant(found, &runs[i]) : NULL;
        living += lives && !other;
        found = other ? other : &runs[i];
    }
    if (!found)
        rc = fbr_fail(
            err, -ENOENT,
            "no run of yours on this host has the name %.64s, or an id that begins with it; see "
            "`fiber ps -a` and, for runs that only an engine knows, `fiber ps --all-backends`",
            typed);
    else if (living > 1)
        rc = fbr_fail(err, -EEXIST,
                      "%zu runs have the name %.64s; use the id of one, see `fiber ps`", living,
                      typed);
    else
        take_over(run, found);
    run_client_list_free(runs, count);
    return rc;
}

/* The end of a run whose launcher was killed is unknown, but later than its start. */
static int64_t end_of(const struct run_client *run)
{
    return run->facts.ended_ms ? run->facts.ended_ms : run->about.started_ms;
}

int run_client_only(struct run_client *run, bool ended, struct fbr_error *err)
{
    struct run_client *runs, *found = NULL, *other;
    size_t count, living = 0, len = 0;
    int rc = run_client_list(&runs, &count, ended, NULL, err);
    char names[256] = "";

    if (rc < 0)
        return rc;
    for (size_t i = 0; i < count; i++) {
        bool lives = runs[i].state <= CLIENT_SILENT;

        other = lives && living ? meant(found, &runs[i]) : NULL;
        if (other) {
            found = other;
            continue;
        }
        if (lives && len < sizeof(names))
            len += (size_t)snprintf(names + len, sizeof(names) - len, "%s%.8s %.64s",
                                    living ? ", " : "", runs[i].about.uid, runs[i].about.name);
        living += lives;
        if (lives || (!living && (!found || end_of(&runs[i]) >= end_of(found))))
            found = &runs[i];
    }
    if (living > 1)
        rc = fbr_fail(err, -EEXIST, "%zu runs go on: use the id or name of one: %s%s", living,
                      names, len < sizeof(names) ? "" : "...");
    else if (found)
        take_over(run, found);
    else
        rc = fbr_fail(err, -ENOENT,
                      ended ? "there is no run of yours on this host; see `fiber ps --all-backends`"
                            : "no run of yours goes on here; see `fiber ps -a`");
    run_client_list_free(runs, count);
    return rc;
}

int run_client_again(const struct run_client *run, struct run_client *again, struct fbr_error *err)
{
    int fd = fbr_registry_call(run->about.uid);

    if (fd < 0)
        return no_answer(run, fd == -EAGAIN ? -ETIMEDOUT : -ECONNRESET, err);
    memset(again, 0, sizeof(*again));
    again->about = run->about;
    again->fd = fd;
    return 0;
}

/* ---- For listings ---- */

const struct run_client_words *run_client_words(const struct fbr_run_control_about *about)
{
    static const struct run_client_words words[] = {
        [FBR_RUN_RING] = {"ring", "rank", "ranks", "RANK"},
        [FBR_RUN_POOL] = {"pool", "worker", "workers", "WORKER"},
        [FBR_RUN_PROGRAM] = {"program", "process", "processes", "NUMBER"}};

    return &words[about->kind <= FBR_RUN_PROGRAM ? about->kind : FBR_RUN_RING];
}

int run_client_size(const struct run_client *run)
{
    bool lives = run->state <= CLIENT_SILENT;

    return run->about.kind == FBR_RUN_RING || (run->about.kind == FBR_RUN_POOL && !lives)
               ? run->about.size
               : run->facts.size;
}

void run_client_age(char out[32], int64_t ms)
{
    long long s = ms < 0 ? 0 : ms / 1000;

    if (s < 60)
        snprintf(out, 32, "%llds", s);
    else if (s < 3600)
        snprintf(out, 32, "%lldm %llds", s / 60, s % 60);
    else if (s < 86400)
        snprintf(out, 32, "%lldh %lldm", s / 3600, s / 60 % 60);
    else
        snprintf(out, 32, "%lldd %lldh", s / 86400, s / 3600 % 24);
}

void run_client_bytes(char out[32], uint64_t bytes)
{
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB"};
    double v = (double)bytes;
    size_t i = 0;

    for (; v >= 1024 && i < sizeof(units) / sizeof(units[0]) - 1; i++)
        v /= 1024;
    snprintf(out, 32, i && v < 100 ? "%.1f %s" : "%.0f %s", v, units[i]);
}

const char *run_client_rank_state(const struct fiber_rank_stats *s, char out[48])
{
    if (s->state == 0)
        return "starting";
    if (s->state == 1)
        return "running";
    if (s->code < 0)
        snprintf(out, 48, "signal %d", -s->code);
    else
        snprintf(out, 48, "exit %d", s->code);
    return out;
}

int run_client_split(const char *typed, char *run, size_t size, const char **rank)
{
    const char *slash = strrchr(typed, '/');

    if (slash && slash[1] && slash[1 + strspn(slash + 1, "0123456789")] == '\0')
        *rank = slash + 1;
    else
        slash = NULL;
    return snprintf(run, size, "%.*s", slash ? (int)(slash - typed) : (int)strlen(typed), typed) <
                   (int)size
               ? 0
               : -EINVAL;
}

int run_client_job(const char *text, const struct run_client *run, struct fbr_error *err)
{
    bool pool = run->about.kind == FBR_RUN_POOL;
    const char *dash = pool ? strrchr(text, '-') : NULL;
    int64_t v;

    text = dash ? dash + 1 : text;
    if (!fbr_number(text, 0, INT32_MAX, &v))
        return fbr_fail(err, -EINVAL, "\"%.64s\" is not a %s's number", text,
                        pool ? "rank" : run_client_words(&run->about)->one);
    /* the numbers of workers and processes grow */
    if (run->about.kind == FBR_RUN_RING && run->about.size && v >= run->about.size &&
        v >= run->facts.size)
        return fbr_fail(err, -EINVAL, "there is no rank %d: the run has %d, from 0", (int)v,
                        run->about.size);
    return (int)v;
}
