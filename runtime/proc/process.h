/* process.h - job-backed processes, as the other parts of Fiber start and watch them.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "runtime/proc/context.h"

/* Callbacks of a process, on the loop thread. Any may be NULL. */
struct fbr_process_ops {
    void (*on_frame)(void *user, struct fiber_process *p, uint8_t type, struct fbr_cur *body);
    /* The process has printed this, which is shown, too; stream 1 or 2. */
    void (*on_output)(void *user, struct fiber_process *p, int stream, const void *data,
                      size_t len);
    /* The process has ended, or could not start. fiber_process_exitcode and _report have the
     * details. After this call no part of Fiber may send on its data link. */
    void (*on_end)(void *user, struct fiber_process *p);
    /* The last callback: the data link is closed, and nothing more comes from the process. */
    void (*on_gone)(void *user, struct fiber_process *p);
};

/* The use of its host by a process. As bytes: u64 cpu_ns, u64 resident, str host. */
struct fbr_process_use {
    uint64_t cpu_ns, resident; /* processor time; bytes */
    char host[64];             /* "": unknown yet */
};

struct fbr_process_spec {
    fiber_process_fn fn; /* NULL: `arg` is work for the program that job.command names */
    const void *arg;
    size_t len;
    const char *prefix; /* prefix of default names: "worker" gives worker-7 */
    const struct fiber_process_options *options;
    /* the whole environment; NULL: our current one, with the options' additions */
    char *const *env;
    const struct fbr_process_ops *ops;
    void *user;
    int width;   /* number of processes that it will start in its job; 0: unknown */
    int reserve; /* processors that a scheduler keeps free for it; 0: any */
    int alike;   /* number of similar processes that start together; 0: unknown */
    /* it starts others in its job: subjobs, which name it as their host, or programs of its own */
    bool is_host;
    bool in_run;   /* a pool or a ring shows it, and keeps its output */
    int index;     /* 1 + the index of its node in its ring; 0: not in a ring */
    bool numbered; /* if the backend has a list of hosts, it runs on the host of its index */
    /* processes with the same text run on distinct hosts (backend.h). The caller owns the string */
    const char *apart;
    /* not NULL: the process is a subjob of this process of ours, an is_host that need not have
     * joined */
    struct fiber_process *host;
    /* not NULL: the child gets a data link to us (fbr_child_data_client) */
    const struct fbr_link_ops *link;
};

int fbr_process_start(struct fiber_process **p, const struct fbr_process_spec *spec);
/* Sends a frame to the child, on the control channel. Any thread; frames of one thread keep their
 * order. */
int fbr_process_send(struct fiber_process *p, uint8_t type, const struct fbr_buf *body);
/* The same, for a frame that answers a request of the child: see fbr_conn_answer(). Loop thread. */
int fbr_process_answer(struct fiber_process *p, uint8_t type, const struct fbr_buf *body);
/* Notes that this process sends nothing from now on, because it will be stopped, or that it goes
 * on: see fbr_conn_silent(). Returns the number of bytes that are still queued. Loop thread. */
size_t fbr_process_silent(struct fiber_process *p, bool silent);
size_t fbr_process_queued(const struct fiber_process *p);
/* Returns the data link of the process, which closes with it; NULL before the join. */
struct fbr_link *fbr_process_link(struct fiber_process *p);
/* Returns why the job does not run yet, in its backend's words; NULL: the job runs, or the reason
 * is unknown. Loop thread. */
const char *fbr_process_pending(const struct fiber_process *p);
/* Whether the process does not run because its job has no place yet. Loop thread. */
bool fbr_process_wants_place(const struct fiber_process *p);
double fbr_process_rtt(struct fiber_process *p); /* seconds, of the last heartbeat. Any thread */
/* Whether the backend took the process from us (evicted, preempted, node lost). Loop thread, from
 * on_end on. */
bool fbr_process_disrupted(const struct fiber_process *p);
/* Whether its program is missing or cannot be executed, so that another process would not run
 * either. Loop thread, from on_end on. */
bool fbr_process_cannot_run(const struct fiber_process *p);
/* Asks the process what it uses: fbr_process_use() has it some milliseconds later, whatever the
 * process does. Loop thread. */
void fbr_process_look(struct fiber_process *p);
/* Stores what it used at the last look. Any thread. */
void fbr_process_use(struct fiber_process *p, struct fbr_process_use *use);
/* Opens a tunnel (tunnel.h) from the client at this socket to the process; takes the socket over on
 * success. The client gets `first` (may be NULL) before all else. -EAGAIN: the process has not
 * joined, or has ended. Loop thread. */
int fbr_process_tunnel(struct fiber_process *p, int fd, const struct fbr_buf *first,
                       struct fbr_error *err);
/* Kills the process for a reason that its report will give. Any thread. */
int fbr_process_abandon(struct fiber_process *p, const char *why);
/* Returns the command of fiber_program(), which is fixed once a process was started; NULL: the
 * executable. Any thread. */
const char *const *fbr_process_program(void);
/* Returns the command of fiber_template(), which stays valid; NULL: there is none. Any thread. */
const char *const *fbr_process_template(void);
/* Returns the number of the process: 7 for "worker-7". Any thread. */
int fbr_process_number(const struct fiber_process *p);
bool fbr_process_has_joined(const struct fiber_process *p); /* loop thread */
/* Whether output of the process has been handled. Loop thread. */
bool fbr_process_has_printed(const struct fiber_process *p);
/* Returns fbr_now_ms() when it started. Loop thread. */
uint64_t fbr_process_since_ms(const struct fiber_process *p);
/* Returns the next process behind `p` (NULL: the first one) that has not ended and is not in a run
 * of a pool or a ring. Loop thread. */
struct fiber_process *fbr_process_next_own(struct fbr_runtime *rt, struct fiber_process *p);

/* The run of the program's own processes; runtime/inspect/program_control.c defines these
 * functions. Loop thread.
 *
 * A process starts; it has printed this. */
void fbr_program_started(struct fbr_runtime *rt);
void fbr_program_output(struct fbr_runtime *rt, struct fiber_process *p, int stream,
                        const void *data, size_t len);
/* The end of the run. Not the loop thread. */
void fbr_program_close(struct fbr_runtime *rt);

void fbr_process_end_all(struct fbr_runtime *rt);
void fbr_process_kill_all(struct fbr_runtime *rt); /* loop thread; does not wait */
