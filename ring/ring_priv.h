/* ring_priv.h - declarations that the files of the launcher share.
 *
 *     ring.c             the calls of fiber.h, and their options
 *     ring_fsm.c         a ring's life as a table
 *     function.c         ranks that run a function
 *     launch.c           agents and jobs: start, frames, end
 *     gang.c             all places or none
 *     failure.c          signals; the meaning and the report of a failure
 *     missing.c          ranks that others wait for in MPI_Init
 *     traceback.c        ranks that wait in MPI after an exception of Python
 *     notes.c            remarks of agents about their hosts
 *     bridge_requests.c  requests of bridges: fences, names, spawns, streams
 *     rank_output.c      output of ranks on our streams
 *     files.c            output of ranks in files
 *     stdin.c            input of one rank
 *     terminal.c         our terminal while a rank has a pseudo-terminal
 *     ring_control.c     requests of `fiber ps` and similar commands
 *
 * A ring is used on the loop thread only, except for the members under its lock.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#pragma once

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
    AGENT_DOOMED, /* killed by us before it said hello */
    AGENT_READY,  /* it has said hello */
};

struct ring_rank {
    enum rank_state state;
    uint8_t flags; /* FBR_RANK_* */
    bool came;     /* it, or a process in its place before it, has met its server */
    struct fbr_restarts again;
    int code;
    int64_t pid;
    char how[24];
    uint64_t cpu_ns, resident;
    char cpus[64];
    struct fbr_line_stream out[2];
    int files[2];     /* of output_dir; -1: not open yet; -2: failed, or finished */
    char mark[48];    /* the line that marks its last restart; "": none */
    bool unmarked[2]; /* the stream's file does not have the mark yet */
    bool within[2];   /* the stream's file ends in the middle of a line */
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
    uint32_t missing;  /* 1 + the first rank that ended and without which MPI_Init waits; 0: none */
    bool told_missed;  /* the launcher has warned of a rank that runs alone */
    bool met;          /* one of its ranks has met its server */
    uint8_t protocols; /* by which its ranks have met their servers (missing.c) */
    bool over;         /* all its ranks have ended, and JOB_END was sent */
    uint64_t spawn;    /* the spawn request to answer once all ranks run; 0: none */
    bool refused;      /* its spawn failed and the caller knows: ends of its ranks are not judged */
    uint32_t spawn_agent;
    struct ring_service *services;
    struct ring_job *lonely; /* it spawned this job, of which no rank has come (missing.c) */
};

struct ring_agent {
    struct fiber_ring *ring;
    uint32_t number;
    enum agent_state state;
    struct fiber_process *process; /* NULL: gone */
    char host[256], address[64];   /* "": it has not said hello */
    uint32_t cpus;
    uint64_t machine; /* equal for agents that may use the same processors (cgroup.h) */
    bool idle;        /* none of its ranks lives */
    struct fbr_restarts again;
    uint64_t credit; /* bytes of output taken and not yet reported by CREDIT */
};

/* The last traceback that a rank of an MPI job printed. */
struct ring_traceback {
    struct ring_job *job;
    const struct ring_rank *rank;
    struct fbr_timer silence; /* runs from the last output after the traceback */
    bool hinted;
};

/* The first failure. */
struct ring_failure {
    int code; /* the ring's exit code; 0: there was none */
    char text[1024];
    struct ring_job *job; /* the report shows the last lines of a rank of this job; NULL: of none */
    uint32_t rank;
    char hint[512];
};

struct fiber_ring {
    struct fiber_ring *next, *prev; /* rt->rings, under rt->lock */
    struct fbr_runtime *rt;
    struct fbr_collective *collect; /* collectives of ranks that run a function; else NULL */

    /* From the options; read-only once the ring runs. */
    uint32_t size;
    struct fiber_ring_options options; /* owned; the strings of its job are in `strings` */
    struct fbr_buf strings;
    struct fbr_app *programs; /* the programs of its own jobs */
    char **env;               /* environment of the agents: ours when the ring was started */
    uint32_t *ranks; /* number of ranks on each agent if the options have slots; else NULL */
    uint32_t most;   /* else: number of ranks on the first agent; no agent has more */
    struct fbr_pin_wish wish;
    uint8_t *work;
    size_t work_len;
    int grace_ms;
    uint32_t max_restarts; /* 0: nothing is started again */
    struct fbr_run_control_about about;
    bool output_pattern; /* options.output_dir names a file for each rank */

    /* Loop thread. */
    enum ring_state state;
    struct ring_agent *agents;
    uint32_t nagents, living; /* all agents; agents whose process has not ended */
    struct ring_job *jobs;
    uint32_t next_job, epoch;
    struct fbr_restarts again; /* restarts of all ranks together */
    struct fbr_exchange *exchange;
    uint32_t hosts;                  /* number of different host names of the agents */
    struct ring_note *notes, *heard; /* remarks; remarks by host, and hosts (notes.c) */
    struct ring_stream *streams;
    struct fbr_timer grace, limit, tick, gang, ask, moment, later;
    unsigned failed_starts; /* tries in a row in which an agent did not start */
    struct ring_failure failure;
    struct ring_traceback traceback;
    bool listed; /* in rt->rings */
    bool warned; /* the warning about what a replaced rank waits for was printed */
    char last_failure[512];
    bool output_full;
    int file_error;       /* errno of the first file of output_dir that could not be opened */
    unsigned losses[2];   /* fbr_output_losses() when the ring started: of files, of our output */
    struct fbr_buf block; /* output lines that are written next */
    struct ring_stdin *input;
    struct termios cooked; /* mode of our terminal before it became raw */
    bool raw;
    pid_t guard; /* child that restores the terminal when we are killed (terminal.c) */
    int guard_fd;
    struct fbr_run_control *control;
    struct fbr_spool *spool; /* NULL: output of ranks is not kept */

    /* Under the lock. */
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool ended;
    bool held; /* fbr_ring_end_all() still uses it */
    int code, sentinel;
    char *report;
};

/* gang.c: a ring gives up its places if it cannot get the others. */
/* Starts gang_timeout if an agent has joined and the timer does not run yet. */
void fbr_ring_gang_wait(struct fiber_ring *r);

/* launch.c */
int fbr_ring_start_agent(struct ring_agent *a);
int fbr_ring_begin(struct fiber_ring *r, struct fbr_error *err);
void fbr_ring_send(struct ring_agent *a, uint8_t type, const struct fbr_buf *body);
/* The same for an answer to a request of the agent; see fbr_conn_answer(). */
void fbr_ring_answer(struct ring_agent *a, uint8_t type, const struct fbr_buf *body);
void fbr_ring_send_all(struct fiber_ring *r, uint8_t type, const struct fbr_buf *body);
const char *fbr_ring_host_of(const struct ring_job *j, uint32_t rank); /* name of its host */
struct ring_agent *fbr_ring_agent_of(const struct ring_job *j, uint32_t rank);
struct ring_job *fbr_ring_job_find(struct fiber_ring *r, uint32_t id);
/* The ranks of the job that the agent has: from `first` on, before `end`; it may have none. */
struct ring_ranks {
    uint32_t first, end;
};
struct ring_ranks fbr_ring_ranks_of(const struct ring_job *j, const struct ring_agent *a);
/* The ring's own job, of its last try; NULL: no job has started. */
struct ring_job *fbr_ring_newest(struct fiber_ring *r);
/* Chooses the agents that serve a job, and the number of ranks on each. */
int fbr_ring_assign(struct fiber_ring *r, struct ring_job *j, bool spawned, struct fbr_error *err);
/* Starts a job of `size` ranks and sends it to the agents. Takes over `programs` of a spawned job
 * on success. */
int fbr_ring_job_start(struct fiber_ring *r, uint32_t size, struct fbr_app *programs, uint32_t n,
                       const struct ring_job *parent, uint32_t parent_rank, struct ring_job **job,
                       struct fbr_error *err);
void fbr_ring_on(struct fiber_ring *r, enum ring_event event);
/* Ends jobs whose ranks have all ended, and steps the ring by what is left. */
void fbr_ring_check(struct fiber_ring *r);
void fbr_ring_free_job(struct ring_job *j);
void fbr_ring_end_all(struct fbr_runtime *rt);

/* function.c */
/* Writes the start record of ranks that run fn(arg) into r->work. Called on the program's
 * thread. */
int fbr_ring_make_work(struct fiber_ring *r, fiber_rank_fn fn, const void *arg, size_t len,
                       struct fbr_error *err);

/* ring_control.c */
void fbr_ring_control_open(void *ring);
/* Sets r->about, except for its random uid, which its files have in their names. */
void fbr_ring_describe(struct fiber_ring *r, const struct fiber_ring_options *o);

/* failure.c */
/* j NULL: all jobs. */
void fbr_ring_signal(struct fiber_ring *r, struct ring_job *j, uint32_t rank, int sig);
/* Signals one rank of the ring's own job, or all ranks (-1). -ESRCH: there is no such rank, or
 * the ring has ended. */
int fbr_ring_signal_one(struct fiber_ring *r, int rank, int sig);
void fbr_ring_rank_failed(struct ring_job *j, uint32_t rank, const char *kernel);
/* True if others may wait for a rank that ended in this way: it has failed, or it never left its
 * server. */
bool fbr_ring_is_loss(int code, uint8_t flags);
/* True if the end of the rank is a failure: a loss, or it ran alone with an MPI library. */
bool fbr_ring_is_failure(const struct ring_rank *k);
void fbr_ring_rank_aborted(struct ring_job *j, uint32_t rank, int code, const char *why);
/* `taken`: the cluster took the agent's job away. */
void fbr_ring_agent_lost(struct ring_agent *a, const char *report, bool taken);
/* code: as that of a rank, an exit code or -signal. */
void fbr_ring_fail(struct fiber_ring *r, struct ring_job *j, uint32_t rank, int code,
                   const char *hint, const char *fmt, ...) __attribute__((format(printf, 6, 7)));
/* Writes "rank 3 (pid 4711 on host)", with the program if the job has several. */
void fbr_ring_name_rank(const struct ring_job *j, uint32_t rank, char *out, size_t size);
/* Warns, once for a job, that the rank loaded MPI some seconds ago and has not met its server. */
void fbr_ring_rank_missed(struct ring_job *j, uint32_t rank);
void fbr_ring_stop(struct fiber_ring *r);
/* Sends SIGTERM to every rank, and SIGKILL after the grace period. */
void fbr_ring_end_ranks(struct fiber_ring *r);
void fbr_ring_kill(struct fiber_ring *r);
/* Kills agents that have not said hello: they have no ranks and do not serve frames yet. */
void fbr_ring_kill_unready(struct fiber_ring *r);
/* True while an agent that we killed still lives: its end must not count as a failure of the
 * next try. */
bool fbr_ring_any_killed(const struct fiber_ring *r);
/* The number of ranks, of all jobs, that have not ended: also those that still start. */
uint32_t fbr_ring_living(const struct fiber_ring *r);
const char *fbr_ring_backend(const struct fiber_ring *r); /* name of its backend */
/* `kept`: the report is read later, so it has the last lines even if they are the last text on the
 * screen now. The caller frees it. NULL: out of memory. */
char *fbr_ring_report(struct fiber_ring *r, bool kept);
/* Prints the report on standard error, line by line. */
void fbr_ring_print_report(struct fiber_ring *r, const char *report);

/* missing.c */
void fbr_ring_missing_ended(struct ring_job *j, uint32_t rank);
void fbr_ring_missing_met(struct ring_job *j, uint32_t rank);
void fbr_ring_missing_waits(struct ring_job *j, uint32_t rank); /* the rank waits in MPI_Init */

/* traceback.c */
void fbr_ring_traceback_output(struct ring_job *j, uint32_t rank, int stream, const void *data,
                               size_t len);

/* notes.c */
void fbr_ring_note(struct ring_agent *a, const char *text);
void fbr_ring_note_host(struct ring_agent *a); /* the agent's host has joined */
/* Prints the remarks that still wait for other hosts to make them. */
void fbr_ring_notes_flush(struct fiber_ring *r);
void fbr_ring_notes_free(struct fiber_ring *r);

/* bridge_requests.c */
int fbr_ring_requests_open(struct fiber_ring *r);
void fbr_ring_requests_close(struct fiber_ring *r);
/* Does nothing if the frame is not a request of a bridge. */
void fbr_ring_requests_frame(struct ring_agent *a, uint8_t type, struct fbr_cur *body);
void fbr_ring_requests_agent_gone(struct ring_agent *a);
void fbr_ring_requests_job_end(struct ring_job *j);
/* The advice to the user when a rank of the job is replaced; NULL: none is needed. */
const char *fbr_ring_requests_replaced(const struct ring_job *j);
/* Sets whether fences need not wait for the agent. */
void fbr_ring_requests_idle(struct ring_agent *a, bool idle);
void fbr_ring_requests_spawned(struct ring_job *j, int code);

/* rank_output.c */
void fbr_rank_output_begin(struct ring_rank *k);
/* Ends the record that `fiber logs` reads. */
void fbr_ring_keep_end(struct fiber_ring *r, const char *report);
/* The rank starts again: a mark separates its new output from the old. */
void fbr_rank_output_again(struct ring_job *j, uint32_t rank, uint32_t times);
void fbr_rank_output_job(struct ring_job *j); /* sets when unfinished lines are shown */
/* `show`: nothing follows for now, so the unfinished line is shown. */
void fbr_rank_output_print(struct ring_job *j, uint32_t rank, int stream, const void *data,
                           size_t len, bool show);
/* prints what is left of its last lines */
void fbr_rank_output_end(struct ring_job *j, uint32_t rank);
/* True if the stream's last lines are the last text on the screen of standard error. */
bool fbr_ring_shown_last(const struct ring_job *j, uint32_t rank, int stream);
/* A user has typed a line: the cursor is at the beginning of the next line. */
void fbr_ring_typed(struct fiber_ring *r);
void fbr_ring_print(struct fiber_ring *r, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
void fbr_ring_send_credit(struct fiber_ring *r);

/* files.c */
int fbr_ring_files_open(struct fiber_ring *r, struct fbr_error *err);
/* `time` goes in front of each line. Returns true if the writer is behind. */
bool fbr_ring_file_put(struct ring_job *j, uint32_t rank, int stream, const char *time,
                       const void *data, size_t len);
/* No rank of the job writes any more: closes its files, because restarts and spawns would use up
 * our descriptors. */
void fbr_ring_files_over(struct ring_job *j);

/* terminal.c */
/* Sets the job's members for its reader's pseudo-terminal, if the options ask for one. */
void fbr_ring_terminal_job(struct ring_job *j);
void fbr_ring_terminal_set_raw(struct fiber_ring *r); /* makes our terminal raw */
void fbr_ring_terminal_restore(struct fiber_ring *r); /* restores its mode; at any time */

/* stdin.c */
int fbr_ring_stdin_open(struct fiber_ring *r, struct fbr_error *err);
void fbr_ring_stdin_room(struct fiber_ring *r, uint64_t bytes);
/* The rank runs: if it reads input that has ended before, it is told of the end, too. */
void fbr_ring_stdin_started(struct ring_job *j, uint32_t rank);
/* If the rank is the reader, nobody will take the input that was sent to it. */
void fbr_ring_stdin_rank_ended(struct ring_job *j, uint32_t rank);
void fbr_ring_stdin_close(struct ring_stdin *i); /* NULL is fine */
