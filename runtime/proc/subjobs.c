/* subjobs.c - the parent's side of subjobs: processes that a host process starts for it.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "runtime/proc/subjobs.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include <utlist.h>

#include "runtime/proc/process_priv.h"

struct fbr_subjobs {
    struct fbr_subjobs *next, *prev; /* links of the host's list */
    void *user;
    uint64_t process;
    struct fbr_buf order; /* until the host has joined */
    bool ended;
};

static struct fiber_process *host_of(struct fbr_backend *b)
{
    return (struct fiber_process *)b;
}

static int start(struct fbr_backend *b, const struct fbr_job *job, void *user, void **handle,
                 struct fbr_error *err)
{
    struct fiber_process *host = host_of(b);
    struct fbr_subjobs *n = calloc(1, sizeof(*n));

    if (!n)
        return fbr_fail(err, -ENOMEM, "out of memory");
    n->user = user;
    n->process = job->process;
    fbr_put_u64(&n->order, job->process);
    fbr_put_str(&n->order, job->name);
    fbr_put_list(&n->order, job->own_program ? NULL : job->argv);
    fbr_put_list(&n->order, job->added_env);
    fbr_put_str(&n->order, job->workdir);
    fbr_put_bytes(&n->order, job->ticket, job->ticket_len);
    fbr_put_u8(&n->order, job->relayed != 0);
    if (n->order.failed || host->state == P_ENDED) {
        int rc = n->order.failed ? -ENOMEM : -ECHILD;

        fbr_buf_fini(&n->order);
        free(n);
        return fbr_fail(err, rc, rc == -ENOMEM ? "out of memory" : "its host %s has ended",
                        host->name);
    }
    DL_APPEND(host->nested, n);
    *handle = n;
    if (host->conn)
        fbr_subjobs_host_joined(host);
    return 0;
}

void fbr_subjobs_host_joined(struct fiber_process *host)
{
    struct fbr_subjobs *n;

    DL_FOREACH(host->nested, n) {
        if (!n->order.len)
            continue;
        fbr_conn_send_buf(host->conn, FBR_SUBJOB_START, &n->order);
        fbr_wipe(n->order.data, n->order.len);
        fbr_buf_fini(&n->order);
    }
}

static struct fbr_subjobs *find(struct fiber_process *host, uint64_t process)
{
    struct fbr_subjobs *n;

    DL_FOREACH(host->nested, n)
        if (n->process == process)
            break;
    return n;
}

static void notify(struct fbr_subjobs *n, const struct fbr_job_event *e)
{
    if (n->ended)
        return;
    n->ended = e->type == FBR_JOB_EXITED;
    fbr_job_event(n->user, e); /* an EXITED may release n */
}

void fbr_subjobs_on_event(struct fiber_process *host, struct fbr_cur *body)
{
    struct fbr_subjobs *n = find(host, fbr_get_u64(body));
    struct fbr_job_event e = {.type = fbr_get_u8(body)};
    char text[256];

    e.stream = fbr_get_u8(body);
    e.code = (int32_t)fbr_get_u32(body);
    e.pid = (int64_t)fbr_get_u64(body);
    fbr_get_str(body, text, sizeof(text));
    e.text = text;
    e.data = fbr_get_bytes(body, &e.len);
    if (fbr_cur_ok(body) && n && e.type <= FBR_JOB_EXITED)
        notify(n, &e);
}

/* Called for the first frame of a process, which has joined now. */
static void attach(struct fiber_process *host, struct fiber_process *p)
{
    struct fbr_conn *conn = fbr_conn_carried(host->conn, FBR_SUBJOB_CARRIED, p->id);

    if (!conn)
        fbr_job_refuse(p, "could not be admitted: out of memory");
    else if (fbr_process_attach(p, conn) < 0)
        fbr_conn_close(conn);
}

/* The connection between a process and its host has ended. */
static void lose(struct fiber_process *p, struct fbr_cur *body)
{
    int32_t why = (int32_t)fbr_get_u32(body);
    char text[FBR_ERROR_TEXT];

    fbr_get_str(body, text, sizeof(text));
    if (!fbr_cur_ok(body) || why >= 0 || why < -4095)
        fbr_conn_lost(p->conn, -EPROTO, "its host sent an invalid message");
    else
        fbr_conn_lost(p->conn, why, text);
}

void fbr_subjobs_on_carried(struct fiber_process *host, struct fbr_cur *body)
{
    struct fbr_subjobs *n = find(host, fbr_get_u64(body));
    uint8_t type = fbr_get_u8(body);
    struct fiber_process *p = n ? n->user : NULL;

    if (!fbr_cur_ok(body) || !p || !host->conn)
        return;
    /* A process that was killed does not join any more, because its host process may have reported
     * its end already. That report came on the data link, where nothing listened yet, so the end of
     * the process would wait for it. */
    if (!p->conn && type == FBR_FRAME_JOIN && p->state == P_STARTING)
        attach(host, p);
    else if (p->conn && type == 0)
        lose(p, body);
    else if (p->conn)
        fbr_conn_came(p->conn, type, body);
}

/* The host's connection is gone, and with it all connections that it carried. */
void fbr_subjobs_host_lost(struct fiber_process *host, int why, const char *text)
{
    struct fiber_process *p;
    struct fbr_subjobs *n;

    do {
        p = NULL;
        DL_FOREACH(host->nested, n)
            if (((struct fiber_process *)n->user)->conn)
                p = n->user;
        /* reads the list again for each: this call may release its entry */
        if (p)
            fbr_conn_lost(p->conn, why, text);
    } while (p);
}

void fbr_subjobs_host_ended(struct fiber_process *host, const char *report)
{
    struct fbr_subjobs *n, *next;
    char text[256];

    fbr_subjobs_host_lost(host, -EPIPE, "its host has ended");
    snprintf(text, sizeof(text), "ended with its host: %.200s", report);
    DL_FOREACH_SAFE(host->nested, n, next) {
        struct fiber_process *p = n->user;

        fbr_process_ref(p);
        notify(n, &(struct fbr_job_event){
                      .type = FBR_JOB_EXITED, .code = FBR_EXIT_UNKNOWN, .text = text});
        fbr_job_drained(p); /* one that has ended before may wait for its data */
    }
}

static void send_order(struct fiber_process *host, uint8_t type, const struct fbr_subjobs *n,
                       const void *arg, size_t len)
{
    struct fbr_buf out = {0};

    fbr_put_u64(&out, n->process);
    fbr_put(&out, arg, len);
    fbr_conn_send_buf(host->conn, type, &out);
    fbr_buf_fini(&out);
}

static int order_signal(struct fbr_backend *b, void *handle, int sig)
{
    struct fiber_process *host = host_of(b);
    struct fbr_subjobs *n = handle;
    uint32_t number = (uint32_t)sig;

    if (n->ended)
        return 0;
    if (host->conn)
        send_order(host, FBR_SUBJOB_SIGNAL, n, &number, sizeof(number));
    /* If the order was not sent, the process was never started, and never will be. Otherwise it
     * ends when its host process ends. */
    else if (n->order.len)
        notify(n, &(struct fbr_job_event){.type = FBR_JOB_EXITED, .code = -sig, .text = ""});
    return 0;
}

static void pause_output(struct fbr_backend *b, void *handle, int paused)
{
    struct fiber_process *host = host_of(b);
    struct fbr_subjobs *n = handle;
    uint8_t pause = paused != 0;

    if (!n->ended && host->conn)
        send_order(host, FBR_SUBJOB_PAUSE, n, &pause, sizeof(pause));
}

static void release(struct fbr_backend *b, void *handle)
{
    struct fbr_subjobs *n = handle;

    DL_DELETE(host_of(b)->nested, n);
    fbr_buf_fini(&n->order);
    free(n);
}

const struct fbr_backend_ops fbr_backend_subjobs = {
    .name = "nested",
    .reach = FBR_REACH_HOST, /* in fact that of the host process: struct fiber_process */
    .start = start,
    .signal = order_signal,
    .pause_output = pause_output,
    .release = release,
};
