/* pmix_bridge.h - the state and functions that the files of the PMIx bridge share.
 *
 * Two threads meet here. libpmix calls us on its progress thread. There (pmix_upcall.c) a request
 * is built from copies and goes into a queue. Everything else, the work of a request too, runs on
 * the loop thread. Data that libpmix owns and keeps until it has its answer (arrays of infos,
 * queries, applications) is read in place on the loop thread.
 *
 * A request is answered exactly once; close() answers those that are left. A request that waits for
 * its host stays in the bridge's list until the host has answered, even if libpmix has had its
 * answer before.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <pthread.h>
#include <stdbool.h>

#include <pmix.h>
#include <pmix_server.h>

#include "mpi_bridge/bridge.h"

/* PMIx 4.0 is the first version with the functions that we call; 5 and 6 have the same. */
#define FBR_PMIX_OLDEST 4

enum fbr_pmix_state { FBR_PMIX_NEW, FBR_PMIX_STARTED, FBR_PMIX_MET, FBR_PMIX_LEFT, FBR_PMIX_ENDED };

struct fbr_pmix_rank {
    enum fbr_pmix_state state;
    bool came;       /* it has connected, so it may have left data */
    bool lost;       /* the job goes on without it */
    int code;        /* exit code, if it has ended */
    char missed[64]; /* the last name that it looked up and that was not there */
};

struct fbr_pmix_job {
    const struct fbr_bridge_job *job;
    struct fbr_pmix_rank *local; /* [number of local ranks] */
    char version[32];            /* PMIx version of its ranks, when it is known */
    struct fbr_pmix_job *prev, *next;
};

struct fbr_bridge {
    const struct fbr_bridge_host *host;
    struct fbr_pmix_job *jobs;
    struct fbr_pmix_request *pending; /* started and not freed */
    uint32_t last_id, groups;
    pmix_nspace_t nspace; /* our own name as a server */
    int output;           /* the file for error output of libpmix */
    bool homeless;        /* neither HOME nor the list of users has our home directory */
    bool torn;            /* a rank ended with a code other than 0: see bridge_job_end() */
    char version[32];
};

/* The kind of callback that libpmix expects. */
enum fbr_pmix_answer {
    FBR_PMIX_NOTHING,
    FBR_PMIX_OP,
    FBR_PMIX_MODEX,
    FBR_PMIX_LOOKUP,
    FBR_PMIX_SPAWN,
    FBR_PMIX_INFO
};

union fbr_pmix_call {
    pmix_op_cbfunc_t op;
    pmix_modex_cbfunc_t modex;
    pmix_lookup_cbfunc_t lookup;
    pmix_spawn_cbfunc_t spawn;
    pmix_info_cbfunc_t info;
} __attribute__((transparent_union)); /* a function takes any member as its argument */

struct fbr_pmix_found { /* the result for one key of a lookup */
    struct fbr_pmix_request *request;
    bool there;
    bool early;          /* a port of a job that we do not know: looked up without waiting, first */
    struct fbr_buf data; /* u32 job, u32 rank, then the published bytes */
};

struct fbr_pmix_request {
    struct fbr_pmix_request *next_queued;
    struct fbr_pmix_request *prev, *next; /* in fbr_bridge.pending */
    struct fbr_bridge *bridge;
    void (*start)(struct fbr_pmix_request *r); /* loop thread; answers, then or later */

    enum fbr_pmix_answer answer;
    union fbr_pmix_call call;
    void *call_data;
    bool answered;
    unsigned open; /* calls of the host without an answer */

    pmix_proc_t who;
    pmix_proc_t *procs; /* owned */
    size_t nprocs;
    char *data; /* owned: the blob of a fence, a text */
    size_t len;
    /* owned by libpmix, valid until it has its answer; infos, queries and apps likewise */
    const pmix_info_t *info;
    size_t ninfo;
    pmix_query_t *queries;
    const pmix_app_t *apps;
    size_t count; /* of queries or apps */
    int code;     /* status, operation, range */
    uint32_t agent, id;

    char **keys; /* owned */
    struct fbr_pmix_found *found;
    size_t nkeys, wanted, nfound;
    int wait_ms; /* for a lookup */
};

/* ---- pmix_request.c ---- */
/* Loop thread, all five. -EBUSY: another bridge has the queue. */
int fbr_pmix_queue_open(struct fbr_bridge *b);
/* Starts what is queued. */
void fbr_pmix_queue_drain(void);
/* Takes no more requests. Answers the queued and the pending ones with an error. */
void fbr_pmix_queue_shut(void);
/* Called after libpmix has ended. Does nothing unless the bridge has the queue. */
void fbr_pmix_queue_close(struct fbr_bridge *b);
/* Answers the requests about a job with an error. Called before libpmix drops the job: libpmix then
 * frees what it keeps for a direct modex, answered or not. */
void fbr_pmix_forget(struct fbr_bridge *b, const struct fbr_bridge_job *job);

/* Any thread. Returns NULL without memory. */
struct fbr_pmix_request *fbr_pmix_request_new(void (*start)(struct fbr_pmix_request *r),
                                              const pmix_proc_t *who);
/* Any thread, for a request that was not posted; else loop thread. */
void fbr_pmix_request_free(struct fbr_pmix_request *r);
/* Any thread. Takes over r, even on failure; then r is not answered. */
pmix_status_t fbr_pmix_request_post(struct fbr_pmix_request *r);
/* Loop thread. Adds r to the bridge's list. fbr_pmix_request_back() (any thread) puts it into
 * the queue once more, to be started again. */
void fbr_pmix_request_attach(struct fbr_bridge *b, struct fbr_pmix_request *r);
void fbr_pmix_request_back(struct fbr_pmix_request *r);

/* Loop thread. Each answers a request, at most once, and frees it unless its host still has to
 * answer. */
/* answers with a status only, 0 too */
void fbr_pmix_fail(struct fbr_pmix_request *r, pmix_status_t status);
void fbr_pmix_reply_modex(struct fbr_pmix_request *r, char *data, size_t len); /* takes over data */
/* `list`: a PMIx info list, which it takes over */
void fbr_pmix_reply_info(struct fbr_pmix_request *r, pmix_status_t status, void *list);
void fbr_pmix_reply_spawn(struct fbr_pmix_request *r, const char *nspace);
/* The host has answered one call of r. True: r lives, and may be answered. False: r was answered
 * before, and may be gone. */
bool fbr_pmix_request_answered(struct fbr_pmix_request *r);

pmix_status_t fbr_pmix_status(int code); /* of 0 or a negative errno */
struct fbr_pmix_job *fbr_pmix_job_named(struct fbr_bridge *b, const char *nspace);
struct fbr_pmix_job *fbr_pmix_job_numbered(struct fbr_bridge *b, uint32_t id);
/* Every agent that has ranks of a job that we know has a number below this. */
uint32_t fbr_pmix_agents_end(const struct fbr_bridge *b);
/* The state of a local rank, or NULL. */
struct fbr_pmix_rank *fbr_pmix_local(struct fbr_pmix_job *j, uint32_t rank);

/* ---- pmix_port.c ---- */
/* Called before the server starts. */
void fbr_pmix_guard_port(void);

/* ---- pmix_upcall.c ---- */
extern const pmix_server_module_t fbr_pmix_module;

/* ---- pmix_job.c ---- */
int fbr_pmix_register(struct fbr_bridge *b, const struct fbr_bridge_job *job,
                      struct fbr_error *err);
int fbr_pmix_register_rank(const struct fbr_bridge_job *job, uint32_t rank, struct fbr_error *err);
/* The PMIx version of the job's ranks, after one of them has connected; "" before. */
const char *fbr_pmix_version(struct fbr_pmix_job *j);

/* ---- pmix_fence.c ---- */
enum {
    FBR_PMIX_FENCE = 'F',
    FBR_PMIX_JOIN = 'J', /* connect or disconnect */
    FBR_PMIX_GROUP = 'G',
    FBR_PMIX_UNGROUP = 'U'
};
void fbr_pmix_start_fence(struct fbr_pmix_request *r);

/* ---- pmix_message.c ---- */
void fbr_pmix_start_dmodex(struct fbr_pmix_request *r);
void fbr_pmix_start_notify(struct fbr_pmix_request *r);
void fbr_pmix_message(struct fbr_bridge *b, uint32_t agent, struct fbr_cur *data);
void fbr_pmix_lost(struct fbr_bridge *b, const struct fbr_bridge_job *job, uint32_t rank, int code);
extern const char fbr_pmix_relayed[]; /* the key of an info: the event came from another agent */

/* ---- pmix_names.c ---- */
void fbr_pmix_start_publish(struct fbr_pmix_request *r);
void fbr_pmix_start_lookup(struct fbr_pmix_request *r);
void fbr_pmix_start_unpublish(struct fbr_pmix_request *r);
/* A rank aborts. If the last name that it looked up was not there, prints where names are
 * visible. */
void fbr_pmix_report_missed(struct fbr_bridge *b, struct fbr_pmix_job *j, uint32_t rank);

/* ---- pmix_control.c ---- */
void fbr_pmix_start_spawn(struct fbr_pmix_request *r);
void fbr_pmix_start_query(struct fbr_pmix_request *r);
void fbr_pmix_start_log(struct fbr_pmix_request *r);
void fbr_pmix_start_control(struct fbr_pmix_request *r);
