/* admit.c - admits the children of a process when they join.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include <utlist.h>

#include "runtime/proc/subjobs.h"
#include "runtime/net/relay.h"
#include "runtime/proc/process_priv.h"

int fbr_rt_keys(struct fbr_conn *conn, uint64_t link, enum fbr_aead_alg alg, struct fbr_keys *keys)
{
    int rc = fbr_conn_export(conn, "fiber data up", link, keys->up);

    keys->alg = alg;
    return rc < 0 ? rc : fbr_conn_export(conn, "fiber data down", link, keys->down);
}

/* Finds the process that waits for this caller; loop thread, on which processes end. */
static struct fiber_process *find(struct fbr_runtime *rt, const struct fbr_caller *who)
{
    struct fiber_process *p;

    pthread_mutex_lock(&rt->lock);
    DL_FOREACH(rt->processes, p)
        if (who->kind == FBR_CALLER_JOB && p->id == who->id)
            break;
    if (p && (!fbr_process_takes(p->state, P_ON_JOINED) || p->conn || p->host))
        p = NULL;
    pthread_mutex_unlock(&rt->lock);
    return p;
}

int fbr_process_secret(void *context, const struct fbr_caller *who, uint8_t secret[FBR_KEY_SIZE])
{
    struct fbr_runtime *rt = context;
    struct fiber_process *p = find(rt, who);

    if (!p && !(who->kind == FBR_CALLER_PEER && rt->admit_peer))
        return -EACCES;
    memcpy(secret, p ? p->secret : rt->peer_key, FBR_KEY_SIZE);
    return 0;
}

static void on_drained(void *user)
{
    struct fiber_process *p = user;

    fbr_process_ref(p);
    if (fbr_loop_post_own(p->rt->loop, &p->drained_post) <= 0)
        fbr_process_unref(p);
}

/* Adds the data link to START: url, id, AEAD algorithm (0: none) and heartbeat. */
static void put_link(struct fiber_process *p, const char *url, uint64_t id, uint8_t alg,
                     uint32_t beat_ms)
{
    fbr_put_str(&p->start, url);
    fbr_put_u64(&p->start, id);
    fbr_put_u8(&p->start, alg);
    fbr_put_u32(&p->start, beat_ms);
}

/* Opens the data path of a subjob, on the link of its host process. */
static int add_branch(struct fiber_process *p, struct fbr_error *err)
{
    int rc = p->host->link ? fbr_link_branch(&p->link, p->host->link, p->id, p->spec.link,
                                             p->spec.user, on_drained, p)
                           : fbr_fail(err, -ECHILD, "its host %s has no data link", p->host->name);

    put_link(p, FBR_URL_OF_HOST, p->id, 0, 0);
    return rc;
}

static int add_link(struct fiber_process *p, struct fbr_conn *conn, struct fbr_error *err)
{
    enum fbr_reach reach = p->reach;
    struct fbr_keys keys;
    struct fbr_data_server *data_server;
    const char *url;
    int rc;

    if ((rc = fbr_rt_data_server(p->rt, reach, &data_server, &url, err)) < 0 ||
        (rc = fbr_link_open(&p->link, data_server, p->spec.link, p->spec.user)) < 0)
        return rc;
    rc = fbr_rt_keys(conn, fbr_link_id(p->link), fbr_aead_preferred(), &keys);
    put_link(p, url, fbr_link_id(p->link), rc == 0 ? (uint8_t)keys.alg : 0,
             fbr_data_server_beat_ms(data_server));
    if (rc == 0)
        rc = fbr_link_seal(p->link, &keys);
    else if (rc == -ENOTSUP && reach == FBR_REACH_HOST)
        rc = 0;
    fbr_wipe(&keys, sizeof(keys));
    return rc;
}

static int refuse(struct fiber_process *p, int rc, const struct fbr_error *err)
{
    char why[256];

    snprintf(why, sizeof(why), "could not be admitted: %.200s",
             err->code ? err->text : fbr_strerror(rc));
    fbr_job_refuse(p, why);
    return rc;
}

int fbr_process_admit(void *context, const struct fbr_caller *who, struct fbr_conn *conn)
{
    struct fbr_runtime *rt = context;
    struct fiber_process *p = find(rt, who);

    if (who->kind == FBR_CALLER_PEER)
        return rt->admit_peer(rt, who, conn);
    return p ? fbr_process_attach(p, conn) : -EACCES;
}

int fbr_process_attach(struct fiber_process *p, struct fbr_conn *conn)
{
    struct fbr_error err = {0, ""};
    int rc = 0;

    if (!p->spec.link)
        put_link(p, "", 0, 0, 0);
    else
        rc = p->host ? add_branch(p, &err) : add_link(p, conn, &err);
    if (rc < 0 || (rc = fbr_conn_send_buf(conn, FBR_FRAME_START, &p->start)) < 0)
        return refuse(p, rc, &err);
    fbr_buf_fini(&p->start);
    fbr_wipe(p->secret, sizeof(p->secret)); /* a ticket is good for one join */
    p->conn = conn;
    fbr_conn_attach(conn, &fbr_job_conn_ops, p);
    fbr_job_beats(p, false);
    fbr_timer_stop(&p->timer);
    fbr_process_fds_release(p, FDS_OF_CONN);
    pthread_mutex_lock(&p->rt->lock);
    p->state = fbr_process_step(p->state, P_ON_JOINED).next;
    p->joined = p->pid != 0; /* else when its JOIN comes, with the pid */
    pthread_cond_broadcast(&p->changed);
    pthread_mutex_unlock(&p->rt->lock);
    fbr_subjobs_host_joined(p);
    return 0;
}
