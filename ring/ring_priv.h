/* ring_priv.h - what the files of the launcher share.
 *
 *     ring.c          the calls of fiber.h, and the options
 *     ring_fsm.c      a ring's life as a table
 *     function.c      ranks that run a function
 *     launch.c        agents and jobs: start, news of them, end
 *     gang.c          all places or none
 *     failure.c       signals; what a failure means, and how it is told
 *     missing.c       ranks that others wait for in MPI_Init
 *     notes.c         what agents find on their hosts
 *     bridge_requests.c         what bridges ask for: fences, names, spawns, streams
 *     rank_output.c   what ranks print
 *     files.c         the same, in files
 *     stdin.c         what rank 0 reads
 *     terminal.c      our terminal while a rank has one of its own
 *     ring_control.c  what `fiber ps` and its like ask
 *
 * Everything of a ring happens on the loop thread, except what stands under its lock.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef FBR_RING_PRIV_H
#define FBR_RING_PRIV_H

#include <pthread.h>
#include <termios.h>

#define HASH_NONFATAL_OOM 1 /* an entry that could not be added has hh.tbl NULL */
#include <uthash.h>
#include <utlist.h>

#include "mpi_bridge/service.h"
#include "ring/agent.h"
#include "ring/exchange.h"
#include "ring/job_codec.h"
#include "runtime/proc/lines.h"
#include "ring/plan.h"
#include "ring/restart.h"
#include "ring/ring.h"
#include "ring/ring_fsm.h"
#include "ring/ring_wire.h"
#include "runtime/proc/fnref.h"
#include "runtime/proc/output.h"
#include "runtime/proc/process.h"
#include "runtime/inspect/spool.h"

enum rank_state { RANK_STARTING, RANK_RUNNING, RANK_ENDED };

enum agent_state {
    AGENT_GONE, /* it has no process */
    AGENT_STARTING,
    AGENT_DOOMED, /* we have killed it before it said hello */
    AGENT_READY,  /* it has said hello */
};

struct ring_rank {
    enum rank_state state;
    uint8_t flags; /* FBR_RANK_* */
    bool failed;   /* told of, and counted */
    bool unjudged; /* it ended before its job's spawn was answered */
    struct fbr_restarts again;
    int code;
    int64_t pid;
    char how[24];
    uint64_t cpu_ns, resident;
    char cpus[64];
    struct fbr_line_stream out[2];
    int files[2];     /* of output_dir; -1: not open */
    char mark[48];    /* of its last start that was not its first; "" */
    bool unmarked[2]; /* that stream's file has no such mark yet */
    bool within[2];   /* that stream's file ends within a line */
};

struct ring_service;
struct ring_stream;
struct ring_stdin;
struct ring_note;

struct ring_job {
    struct ring_job *next, *prev;
    struct fiber_ring *ring;
    struct fbr_ring_job job;
    struct ring_rank *ranks; /* [size] */
    uint32_t started, ended;
    uint32_t missing; /* 1 + the first rank that ended well without MPI_Init; 0: none */
    bool told_missed; /* of a rank that runs alone */
    bool met;         /* one of its ranks has met its server */
    bool over;        /* all agents know that it has ended */
    uint64_t spawn;   /* request to be answered once it runs; 0: none */
    bool refused; /* its spawn has failed, and who asked for it was told: nothing of it counts */
    uint32_t spawn_agent;
    struct ring_service *services;
};

struct ring_agent {
    struct fiber_ring *ring;
    uint32_t number;
    enum agent_state state;
    struct fiber_process *process; /* NULL: gone */
    char host[256], address[64];
    uint32_t cpus;
    uint64_t machine; /* equal for agents that may use the same processors (cgroup.h) */
    bool idle;        /* none of its ranks lives */
    struct fbr_restarts again;
    uint64_t credit; /* output that was taken and is to be told */
};

/* The first failure. */
struct ring_failure {
    int code; /* the ring's exit code; 0: there was none */
    char text[1024];
    struct ring_job *job; /* whose last lines are shown; NULL: nobody's */
    uint32_t rank;
    char hint[512];
};

struct fiber_ring {
    struct fiber_ring *next, *prev; /* rt->rings, under rt->lock */
    struct fbr_runtime *rt;
    struct fbr_collective *collect; /* of ranks that run a function; else NULL */

    /* From the options; read-only once it runs. */
    uint32_t size;
    struct fiber_ring_options options; /* owned: its job's strings are in `strings` */
    struct fbr_buf strings;
    const char *const *env; /* of agents: as it was when the ring was started */
    struct fbr_buf env_strings;
    uint32_t *ranks; /* on each agent, where the options have slots; else NULL */
    struct fbr_pin_wish wish;
    uint8_t *work;
    size_t work_len;
    int grace_ms, max_restarts;
    char uid[33];      /* of the ring, random */
    char command[256]; /* for people */
    int64_t started_ms;

    /* Loop thread. */
    enum ring_state state;
    struct ring_agent *agents;
    uint32_t nagents, living; /* agents; of them those whose process has not ended */
    struct ring_job *jobs;
    uint32_t next_job, epoch;
    struct fbr_restarts again; /* of all ranks */
    struct fbr_exchange *exchange;
    uint32_t hosts;                  /* that agents are on, by name */
    struct ring_note *notes, *heard; /* remarks; with the hosts that made them */
    struct ring_stream *streams;
    uint64_t next_stream;
    struct fbr_timer grace, limit, tick, gang, ask, moment;
    struct ring_failure failure;
    bool listed;         /* in rt->rings */
    uint32_t lost_ranks; /* that the ring goes on without */
    bool warned;         /* of what MPI_Init does in a rank that was started anew */
    char last_failure[512];
    bool output_full;
    int file_error;       /* of the first file of output_dir that could not be opened; an errno */
    struct fbr_buf block; /* lines on their way out */
    void (*follow)(void *user, int rank, int stream, const void *data, size_t len);
    void *follow_user;
    struct ring_stdin *input;
    struct termios cooked; /* our terminal as it was, while it is raw */
    bool raw;
    pid_t guard; /* terminal.c: the child that makes it so again when we are killed */
    int guard_fd;
    struct fbr_run_control *control;
    struct fbr_spool *spool; /* NULL: what ranks print is not kept */

    /* Under the lock. */
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool ended;
    bool held; /* by fbr_ring_end_all() */
    int code, sentinel;
    char *report;
};

/* gang.c: no ring keeps places for ever that it cannot use. */
int fbr_ring_gang_init(struct fiber_ring *r);
/* Some of its agents may have joined, and others are waited for. */
void fbr_ring_gang_wait(struct fiber_ring *r);
void fbr_ring_gang_end(struct fiber_ring *r); /* it waits no more */

/* launch.c */
int fbr_ring_start_agent(struct ring_agent *a);
int fbr_ring_begin(struct fiber_ring *r, struct fbr_error *err);
void fbr_ring_send(struct ring_agent *a, uint8_t type, const struct fbr_buf *body);
/* The same, of something that the agent has asked for: see fbr_conn_answer(). */
void fbr_ring_answer(struct ring_agent *a, uint8_t type, const struct fbr_buf *body);
void fbr_ring_send_all(struct fiber_ring *r, uint8_t type, const struct fbr_buf *body);
uint32_t fbr_ring_node_of(const struct ring_job *j, uint32_t rank);
struct ring_job *fbr_ring_job_find(struct fiber_ring *r, uint32_t id);
/* A new job of `size` ranks, whose programs it takes over; sends it to the agents. */
/* Which agents serve a job, and how many ranks each. */
int fbr_ring_assign(struct fiber_ring *r, struct ring_job *j, bool spawned, struct fbr_error *err);
int fbr_ring_job_start(struct fiber_ring *r, uint32_t size, struct fbr_app *programs, uint32_t n,
                       const struct ring_job *parent, uint32_t parent_rank, struct ring_job **job,
                       struct fbr_error *err);
void fbr_ring_on(struct fiber_ring *r, enum ring_event event);
/* Tells of all that has ended. */
void fbr_ring_check(struct fiber_ring *r);
void fbr_ring_free_job(struct ring_job *j);
void fbr_ring_end_all(struct fbr_runtime *rt);

/* function.c */
/* Writes the start record of ranks that run fn(arg) into r->work. The program's thread. */
int fbr_ring_make_work(struct fiber_ring *r, fiber_rank_fn fn, const void *arg, size_t len,
                       struct fbr_error *err);

/* ring_control.c */
void fbr_ring_control_open(void *ring);
void fbr_ring_about(const struct fiber_ring *r, struct fbr_run_control_about *about);

/* failure.c */
/* j NULL: all jobs */
void fbr_ring_signal(struct fiber_ring *r, struct ring_job *j, uint32_t rank, int sig);
/* A rank of the ring's own job, or all (-1). -ESRCH: there is none of that number. */
int fbr_ring_signal_one(struct fiber_ring *r, int rank, int sig);
void fbr_ring_rank_failed(struct ring_job *j, uint32_t rank, int code, const char *text);
void fbr_ring_rank_aborted(struct ring_job *j, uint32_t rank, int code, const char *text);
/* `taken`: the cluster took its job away. */
void fbr_ring_agent_lost(struct ring_agent *a, const char *report, bool taken);
void fbr_ring_fail(struct fiber_ring *r, struct ring_job *j, uint32_t rank, int code,
                   const char *hint, const char *fmt, ...) __attribute__((format(printf, 6, 7)));
/* "rank 3 (pid 4711 on host)", with its program where there are several. */
void fbr_ring_name_rank(const struct ring_job *j, uint32_t rank, char *out, size_t size);
/* The rank loaded MPI a while ago, and has not met its server. */
void fbr_ring_rank_missed(struct ring_job *j, uint32_t rank);
void fbr_ring_stop(struct fiber_ring *r);
/* Tells every rank, and kills those that do not listen. */
void fbr_ring_end_ranks(struct fiber_ring *r);
void fbr_ring_kill(struct fiber_ring *r);
/* Agents that have not said hello: they have no ranks, and will not hear what they are told. */
void fbr_ring_kill_unready(struct fiber_ring *r);
/* One lives yet that we have killed: its end is not a failure of what comes next. */
bool fbr_ring_any_killed(const struct fiber_ring *r);
const char *fbr_ring_backend(const struct fiber_ring *r); /* its name */
char *fbr_ring_report(struct fiber_ring *r);
void fbr_ring_print_failure(struct fiber_ring *r);
void fbr_ring_print_report(struct fiber_ring *r,
                           const char *report); /* on standard error, line by line */

/* missing.c */
int fbr_ring_missing_init(struct fiber_ring *r);
void fbr_ring_missing_fini(struct fiber_ring *r);
void fbr_ring_missing_ended(struct ring_job *j, uint32_t rank);
void fbr_ring_missing_met(struct ring_job *j);
void fbr_ring_missing_waits(struct ring_job *j, uint32_t rank); /* that rank waits in MPI_Init */

/* notes.c */
void fbr_ring_note(struct ring_agent *a, const char *text);
void fbr_ring_note_host(struct ring_agent *a); /* it is there */
void fbr_ring_notes_flush(
    struct fiber_ring *r); /* those that wait for other hosts to say the same */
void fbr_ring_notes_free(struct fiber_ring *r);

/* bridge_requests.c */
int fbr_ring_requests_open(struct fiber_ring *r);
void fbr_ring_requests_close(struct fiber_ring *r);
/* false: not one of its */
bool fbr_ring_requests_frame(struct ring_agent *a, uint8_t type, struct fbr_cur *body);
void fbr_ring_requests_agent_gone(struct ring_agent *a);
void fbr_ring_requests_job_end(struct ring_job *j);
void fbr_ring_requests_idle(struct ring_agent *a,
                            bool idle); /* whether fences need not wait for it */
void fbr_ring_requests_spawned(struct ring_job *j, int code);

/* rank_output.c */
void fbr_rank_output_begin(struct ring_rank *k);
/* of what is kept for `fiber logs` */
void fbr_ring_keep_end(struct fiber_ring *r, const char *report);
/* The rank starts once more: a mark separates its new output from the old. */
void fbr_rank_output_again(struct ring_job *j, uint32_t rank, uint32_t times);
void fbr_rank_output_job(struct ring_job *j); /* when its unfinished lines are shown */
/* show: nothing follows for now. */
void fbr_rank_output_print(struct ring_job *j, uint32_t rank, int stream, const void *data,
                           size_t len, bool show);
void fbr_rank_output_end(struct ring_job *j, uint32_t rank); /* what is left of its last lines */
/* Whether that stream's last lines stand on standard error's screen, with nothing below them. */
bool fbr_ring_shown_last(const struct ring_job *j, uint32_t rank, int stream);
/* Somebody has typed a line: the cursor is at the beginning of the next one. */
void fbr_ring_typed(struct fiber_ring *r);
void fbr_ring_print(struct fiber_ring *r, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
void fbr_ring_capacity(struct fiber_ring *r);

/* files.c */
int fbr_ring_files_open(struct fiber_ring *r, struct fbr_error *err);
/* `time` is put in front of each line. True: what is to be written piles up. */
bool fbr_ring_file_put(struct ring_job *j, uint32_t rank, int stream, const char *time,
                       const void *data, size_t len);
/* Nothing more comes of any rank of it: restarts and spawns would use up our descriptors. */
void fbr_ring_files_over(struct ring_job *j);

/* terminal.c */
/* the pseudo-terminal of its reader, if it has one */
void fbr_ring_terminal_job(struct ring_job *j);
void fbr_ring_terminal_set_raw(struct fiber_ring *r); /* ours becomes raw */
void fbr_ring_terminal_restore(struct fiber_ring *r); /* and what it was; at any time */

/* stdin.c */
int fbr_ring_stdin_open(struct fiber_ring *r, struct fbr_error *err);
void fbr_ring_stdin_room(struct fiber_ring *r, uint64_t bytes);
void fbr_ring_stdin_close(struct ring_stdin *i); /* NULL is fine */

#endif
