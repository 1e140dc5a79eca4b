/* process.h - job-backed processes, for the other parts of Fiber (fiber.h has what a program sees).
 *
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef FBR_PROCESS_H
#define FBR_PROCESS_H

#include "runtime/proc/context.h"

/* What happens to a process, on the loop thread. Any may be NULL. */
struct fbr_process_ops {
    void (*on_joined)(void *user, struct fiber_process *p);
    void (*on_frame)(void *user, struct fiber_process *p, uint8_t type, struct fbr_cur *body);
    /* It has ended, or could not start. fiber_process_exitcode and _report have the details. After
     * this call nobody may send on its data link. */
    void (*on_end)(void *user, struct fiber_process *p);
    /* The last one: its data link is closed, nothing more comes from it. */
    void (*on_gone)(void *user, struct fiber_process *p);
};

struct fbr_process_spec {
    fiber_process_fn fn; /* NULL: `arg` is work for a program of its own */
    const void *arg;
    size_t len;
    const char *prefix; /* names without a name of their own: "worker" gives worker-7 */
    const struct fiber_process_options *options;
    const char *const
        *env; /* its whole environment; NULL: ours as it is now, and what options add */
    const struct fbr_process_ops *ops;
    void *user;
    int width;     /* processes that it will start in its job; 0: nobody knows */
    bool is_host;  /* it starts others in its job: those whose host it is, or programs of its own */
    int index;     /* 1 + which of its ring's nodes it is; 0: of no ring */
    bool numbered; /* its host is the one of its index, where the backend has a list of hosts */
    const char *apart; /* its host is no other's with the same text (backend.h). The caller's */
    struct fiber_process
        *host; /* not NULL: started by this one of ours, an is_host; it need not have joined */
    const struct fbr_link_ops
        *link; /* not NULL: the child gets a data link to us (fbr_child_uplink) */
};

int fbr_process_start(struct fiber_process **p, const struct fbr_process_spec *spec);
/* As fiber_active_children(), with those of pools, rings, managers and stores. */
int fbr_process_active(struct fiber_process **out, int max);
/* To the child, on the control channel. Any thread; frames of one thread keep their order. */
int fbr_process_send(struct fiber_process *p, uint8_t type, const struct fbr_buf *body);
/* The same, of something that it has asked for: see fbr_conn_answer(). Loop thread. */
int fbr_process_answer(struct fiber_process *p, uint8_t type, const struct fbr_buf *body);
/* This process says nothing from now on (it will be stopped), or goes on: see fbr_conn_silent.
 * Answers how many bytes are still to leave. Loop thread. */
size_t fbr_process_silent(struct fiber_process *p, bool silent);
size_t fbr_process_queued(const struct fiber_process *p);
struct fbr_link *fbr_process_link(
    struct fiber_process *p); /* NULL before on_joined; the process's, closed with it */
/* Why its job does not run yet, in its backend's words; NULL: it runs, or nobody has said. Loop thread. */
const char *fbr_process_pending(const struct fiber_process *p);
/* The same of all that are starting or run. */
void fbr_process_pending_all(struct fbr_runtime *rt, struct fbr_pending *out);
/* Whether it does not run because it has no place yet. Loop thread. */
bool fbr_process_wants_place(const struct fiber_process *p);
double fbr_process_rtt(struct fiber_process *p); /* seconds, of the last heartbeat. Any thread */
/* Whether it ended because its backend took it from us (evicted, preempted, its node lost). Loop
 * thread, from on_end on. */
bool fbr_process_disrupted(const struct fiber_process *p);
/* Whether its program is not there, or cannot be executed: the next one would not run either. Loop
 * thread, from on_end on. */
bool fbr_process_cannot_run(const struct fiber_process *p);
/* Passes the caller at this socket on to it (visit.h), after `first` (may be NULL), which the caller gets before all
 * else; takes the socket over on success. -EAGAIN: it has not joined, or has ended. Loop thread. */
int fbr_process_visit(struct fiber_process *p, int fd, const struct fbr_buf *first,
                      struct fbr_error *err);
/* Kills it for a reason that its report will give. Any thread. */
int fbr_process_give_up(struct fiber_process *p, const char *why);
/* The command of fiber_program(), which stays as it is once something was started; NULL: the executable. Any thread. */
const char *const *fbr_process_program(void);
/* The command of fiber_template(); NULL: there is none. It stays valid. Any thread. */
const char *const *fbr_process_template(void);
/* An environment with these NAME=VALUE instead or in addition; the list is the caller's to free, not its strings. NULL:
 * out of memory. */
char **fbr_env_with(char *const *ours, const char *const *more);
/* A copy of that and of the environment as it is, whose strings are in `strings`. In the program's thread, for whoever
 * starts processes later, on the loop thread: the program may change its environment meanwhile. */
int fbr_env_keep(const char *const **env, struct fbr_buf *strings, const char *const *more);
/* What backends call with a process as the job's user (backend.h). Loop thread. */
void fbr_job_event(void *process, const struct fbr_job_event *event);
/* Loop thread: more output may be read. */
void fbr_process_resume_output(struct fbr_runtime *rt);

#endif
