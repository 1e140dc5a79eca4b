/* backend.h - the contract of a backend: a table of functions that start, watch and end jobs.
 *
 * Rules for each backend:
 *
 *  - the runtime calls its functions on the loop thread, and it sends its events there. No function
 *    blocks, except those whose comment says that they may take seconds;
 *  - start() returns at once. Events report the life of the job: any number of PENDING, OUTPUT and
 *    SUSPENDED, at most one STARTED, and exactly one EXITED, the last event. A start() that returns
 *    an error sends no event;
 *  - it watches jobs by events of its engine, never by a poll for each job. It sends EXITED only
 *    for a job that the engine has reported as ended, never because it does not know. The code is
 *    FBR_EXIT_UNKNOWN if the engine did not report one;
 *  - signal() is idempotent, and only makes a request: the EXITED event reports the outcome;
 *  - the ticket does not travel in the arguments or the environment of the job. The environment has
 *    only FIBER_TICKET=<where>: "fd:3", "fd:0" or "file:/path" (ticket.h);
 *  - the caller's strings in struct fbr_job are valid during start() only.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdarg.h>
#include <stdio.h>

#include "runtime/base/config.h"
#include "runtime/base/error.h"
#include "runtime/net/host_address.h"
#include "runtime/net/loop.h"

#define FBR_EXIT_UNKNOWN INT32_MIN

/* The backend that each build has: processes of this host. The host process of a job starts its
 * subjobs with it. */
#define FBR_BACKEND_LOCAL "local"

/* Settings that apply only to a process on this machine; for the local backend. */
struct fbr_job_local {
    int in; /* the job's standard input; -1: /dev/null. The backend closes neither in nor fd */
    /* The other end of a terminal, where the job's output is read. `in` is then all three standard
     * streams of the job, and the controlling terminal of its session. 0: no terminal. The backend
     * does not close it. */
    int terminal;
    int fd;           /* the job's descriptor 3, in place of a ticket; -1: none */
    const void *cpus; /* mask of processors; NULL: ours */
    size_t cpus_len;
    uint64_t nodes;      /* NUMA nodes of the job's memory, by bit; 0: ours */
    unsigned long slack; /* slack of the job's timers, in nanoseconds; 0: ours */
};

struct fbr_job {
    const char *name;    /* unique within the run: "process-3" */
    const char *run_uid; /* uid of the run, for labels and listing */
    const char *image;   /* NULL: the parent's own */
    const char *file;    /* program */
    char *const *argv;
    char *const *env; /* the whole environment, without FIBER_TICKET */
    /* the entries of env that the parent does not have, or has with other values; may be NULL */
    char *const *added_env;
    /* The command of the program's template (fiber_template), if the job runs the program itself;
     * it stays valid. NULL: there is none. For the local backend (backends/local/copies.h) */
    const char *const *template;
    int alike;       /* number of similar jobs that start together; 0: unknown */
    int own_program; /* nonzero: file and argv are those of the parent's own program */
    /* nonzero: it starts subjobs; the local backend kills the rest of its session after its end */
    int is_host;
    int is_master;       /* nonzero: the job itself starts jobs with this backend; no ticket */
    const char *workdir; /* NULL: the parent's */
    double cpus;
    int gpus;
    uint64_t memory;
    int keep_stdin;
    /* number of processes that the job will start, for a backend that gives one processor by
     * default */
    int width;
    int reserve; /* processors that a scheduler keeps free for the job; it may use more; 0: any */
    /* Bytes that only the child may read; NULL: the job is not a process of Fiber's, and gets no
     * FIBER_TICKET. */
    const void *ticket;
    size_t ticket_len;
    const struct fbr_job_local *local; /* NULL: none of these settings. Only with ticket NULL */
    int relayed;                       /* nonzero: its host process relays its data (relay.h) */
    /* For the local backend, in addition to a ticket: the job's descriptors 4 and 5 (relay.h,
     * subjobs.h); 0: none. They stay the caller's. */
    int link, control;
    uint64_t process; /* identity of the process, also for deterministic names */
    int index;        /* 1 + the index of its node in its ring; 0: not in a ring */
    /* Nonzero: a backend with a list of hosts (an allocation, command_hosts) starts the job on the
     * host of its index. */
    int numbered;
    /* Jobs of a run with the same text run on distinct hosts; NULL: any host. For a numbered job
     * the list of hosts counts instead */
    const char *apart;
};

enum fbr_job_event_type {
    FBR_JOB_PENDING, /* text: why it does not run yet */
    FBR_JOB_STARTED, /* text: the engine's id of the job; pid: on its host, 0 if unknown */
    /* data, len: bytes that the job printed; stream 1 or 2. len 0: that stream has ended */
    FBR_JOB_OUTPUT,
    /* code: exit code, -N for signal N, FBR_EXIT_UNKNOWN; peak; text: the engine's reason ("was
     * killed", or a sentence such as "its pod failed"), which follows the job's id, or "" */
    FBR_JOB_EXITED,
    /* code: 1: the engine has stopped the job, which cannot answer; 0: it goes on */
    FBR_JOB_SUSPENDED,
};

struct fbr_job_event {
    enum fbr_job_event_type type;
    int stream;
    int32_t code;
    int64_t pid;
    const char *text; /* never NULL */
    const void *data;
    size_t len;
    uint64_t peak; /* highest resident bytes, 0 if unknown */
    /* PENDING: the job runs now; text is the reason if it does not join. A backend that reports a
     * job as PENDING after its STARTED also sends this: the time that the job has to join begins */
    int runs;
    /* PENDING: the job has its place, but an image or a volume is still on its way */
    int placed;
    /* EXITED: the job was evicted or preempted, or lost its node; the job itself did not fail.
     * PENDING: the same is about to happen. */
    int disrupted;
};

struct fbr_backend;

/* A job of this user that an engine still has and whose run may be over. Texts other than `fiber`
 * are never NULL; "" means unknown. */
struct fbr_orphan {
    const char *run;  /* uid of its run */
    const char *id;   /* the engine's id, for `remove` */
    const char *name; /* its name in the run: "process-3" */
    /* the master of the run, as fbr_master_id_self() named it (runtime/base/master_id.h) */
    const char *master;
    int64_t since_ms;  /* creation time in ms since the epoch; 0: unknown */
    int runs;          /* nonzero: the job runs: it neither waits nor has it ended */
    const char *fiber; /* of a master: the path of `fiber` on the master's host; NULL: unknown */
};
typedef void fbr_backend_found(void *user, const struct fbr_orphan *job);

/* An object that a backend has made for jobs and that no job uses any more. */
enum fbr_swept_action { FBR_SWEPT_WOULD, FBR_SWEPT_REMOVED, FBR_SWEPT_KEPT, FBR_SWEPT_FAILED };
struct fbr_swept {
    const char *kind;     /* "image" or "directory" */
    const char *id, *why; /* the engine's name for it, or its path; a sentence */
    enum fbr_swept_action action;
    int64_t since_ms; /* last use in ms since the epoch; 0: unknown */
    int64_t bytes;    /* 0: unknown */
};
typedef void fbr_backend_swept(void *user, const struct fbr_swept *thing);

/* One finding of `check`: the object, a sentence about its state, and the line that fixes it ("" if
 * nothing needs to be done). */
enum fbr_finding { FBR_FINDING_GOOD, FBR_FINDING_BAD, FBR_FINDING_ABSENT };
struct fbr_findings {
    void (*take)(void *user, enum fbr_finding finding, const char *what, const char *text,
                 const char *mend);
    void *user;
};
/* Reports a finding. */
__attribute__((format(printf, 5, 6))) static inline void
fbr_report(const struct fbr_findings *to, enum fbr_finding finding, const char *what,
           const char *mend, const char *fmt, ...)
{
    char text[FBR_ERROR_TEXT];
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    to->take(to->user, finding, what, text, mend);
}

/* Reads the output of a job. Both functions are called on the loop thread. */
struct fbr_backend_reader {
    void (*out)(void *user, int stream, const void *data, size_t len);
    /* The last call: the reason why the output ended early, or "" at its real end. */
    void (*done)(void *user, const char *why);
    void *user;
};

/* The parts of the runtime that a backend uses. */
struct fbr_backend_env {
    struct fbr_loop *loop;
    const struct fbr_config *config;
    void (*event)(void *job_user, const struct fbr_job_event *event);
    /* the environment, for a backend that is in a module (environ.h); NULL: the process's own */
    char **environ;
};

/* The hosts that jobs can use. Zero is unknown. */
struct fbr_capacity {
    unsigned hosts; /* number of hosts */
    unsigned cpus;  /* processors of the smallest host */
    unsigned gpus;  /* GPUs of the host that has the fewest; 0: no host has one, or not known */
    /* Only for an allocation: the names of its hosts (NULL-terminated), and the number of ranks
     * that the user asked for, on each host and in all. The caller frees both lists, and each name.
     * NULL: there is no allocation. */
    char **names;
    unsigned *slots;
    unsigned ranks, cpus_per_rank, gpus_per_rank;
    unsigned copies; /* the manager started this many copies of our program in parallel */
};

/* How jobs of this backend reach their parent. */
enum fbr_reach {
    FBR_REACH_HOST, /* same host, same user: unix sockets */
    FBR_REACH_TCP,  /* over the network */
};

/* A sign that the user intends to use a backend: the variable is set, the key has a value, or the
 * file can be read. The first member that is not NULL counts. */
struct fbr_backend_sign {
    const char *variable; /* of the environment */
    const char *key;      /* a setting that has no default */
    const char *file;     /* a path; a leading "~" is the home directory */
};

/* Lines that tell the user how to fix what `fiber doctor` found. `keys`, `may` and `setting` may be
 * NULL: then `bad` is used. */
struct fbr_backend_advice {
    const char *absent;  /* there is no sign of the backend */
    const char *bad;     /* it cannot be used */
    const char *keys;    /* our credentials, or the server's, are wrong (-EKEYREJECTED) */
    const char *may;     /* the engine knows us, but does not let us look (-EACCES) */
    const char *setting; /* a setting is wrong (-EINVAL) */
};

/* The constant facts of a backend, known without opening or loading it: settings, detection and
 * advice. Each pointer may be NULL. */
struct fbr_backend_about {
    const struct fbr_config_key *keys; /* its settings; their names begin with its name */
    size_t nkeys;
    const struct fbr_backend_sign *signs;
    size_t nsigns;
    const struct fbr_backend_advice *advice; /* NULL: it can always be used */
    /* why the backend is not probed without a sign of it */
    const char *unset;
    /* Nonzero: this process runs in one of its jobs or allocations, so `backend = auto` means this
     * backend. */
    int (*here)(void);
    /* Writes the command of its engine that removes a job by its `id`. */
    void (*remove_command)(const struct fbr_config *config, const char *id, char *out, size_t size);
    const char *job; /* the engine's word for a job: "pod"; NULL: "job" */
    /* Writes the command that runs `fiber`, a path, in the job `id`, which is a master. NULL: none
     * of its jobs can be a master. */
    void (*in_master)(const struct fbr_config *config, const char *id, const char *fiber, char *out,
                      size_t size);
    /* Variables that it sets for its jobs and that are not settings; NULL-terminated. */
    const char *const *variables;
    const char *hosts;   /* how a user names its hosts, if not by -H: ", or ..." */
    const char *missing; /* a sentence: what to do when a rank ends with code 127 */
    int leaves_jobs;     /* nonzero: jobs may outlive their master: it has housekeeping */
    /* nonzero: its jobs cannot ask the engine, and start their own jobs locally */
    int contained;
    int in_images;    /* nonzero: its jobs run in an image, with other files than those here */
    int makes_images; /* nonzero: if no image is named, it makes one of the program */
    int shows;        /* nonzero: it has show() */
};

/* Functions for jobs and other things that an engine still has when their master is gone: for gc,
 * ps, logs and kill. */
struct fbr_backend_housekeeping {
    /* Calls found() for each job that the engine has of any run of this user. May take some
     * seconds. */
    int (*list)(struct fbr_backend *b, fbr_backend_found *found, void *user, struct fbr_error *err);
    /* Removes a listed job by its `id`; 0 also when the job is gone. */
    int (*remove)(struct fbr_backend *b, const char *id, struct fbr_error *err);
    /* Removes objects that the backend made for jobs, if no job uses them now and no run has used
     * them since before_ms, or none can use them again; with `dry` nonzero, only reports them. May
     * take some seconds. NULL: the backend makes no such objects. */
    int (*sweep)(struct fbr_backend *b, int64_t before_ms, int dry, fbr_backend_swept *swept,
                 void *user, struct fbr_error *err);
    /* Reads the output of a listed job by its `id`; with `follow` also its later output, until the
     * job ends. May take some seconds, and call the reader before it returns; after an error the
     * reader is not called. Close the backend only after the reader's done(). NULL: the engine
     * keeps no output. */
    int (*logs)(struct fbr_backend *b, const char *id, int follow,
                const struct fbr_backend_reader *reader, struct fbr_error *err);
};

struct fbr_backend_ops {
    const char *name;
    const struct fbr_backend_about *about; /* only in the tables of the registry; NULL: for tests */
    enum fbr_reach reach;
    int one_host; /* nonzero: all of its jobs run on one other host, or as if they did */
    int (*open)(struct fbr_backend **b, const struct fbr_backend_env *env, struct fbr_error *err);
    /* Kills all running jobs (SIGKILL) and frees everything; no event comes after it. */
    void (*close)(struct fbr_backend *b);
    /* Stores *handle before the job's first event. After an error *handle is NULL, or unchanged. */
    int (*start)(struct fbr_backend *b, const struct fbr_job *job, void *job_user, void **handle,
                 struct fbr_error *err);
    /* Returns 0 also when the job has ended already. -ENOTSUP: the backend cannot send this signal,
     * so a child that has joined is asked to send it to itself. Local only: -sig for the job's
     * group; after SIGTERM its children have time until SIGKILL, even if the job's first process
     * ends. */
    int (*signal)(struct fbr_backend *b, void *handle, int sig);
    /* Stops or resumes reading the job's output (back-pressure from a slow terminal). Must not send
     * an event: the caller holds a lock that events need. */
    void (*pause_output)(struct fbr_backend *b, void *handle, int paused);
    /* Frees the handle after EXITED; it will not be used again. */
    void (*release)(struct fbr_backend *b, void *handle);
    /* for jobs that outlive their master; NULL: no job does */
    const struct fbr_backend_housekeeping *housekeeping;
    /* FBR_REACH_TCP: stores the address of ours that its jobs can reach; we listen there if `bind`
     * is not set. NULL: 127.0.0.1. May take a second for each host that it looks up, and is not
     * called while jobs run. */
    int (*address)(struct fbr_backend *b, char out[FBR_HOST_ADDRESS_MAX], struct fbr_error *err);
    /* Stores the hosts that jobs can use; the backend need not be open. `room` is zero before the
     * call; the caller frees its lists, also after an error. With `sizes` it also asks the engine
     * for hosts and cpus, which takes some seconds at most. NULL: the backend does not know its
     * hosts. */
    int (*room)(const struct fbr_backend_env *env, int sizes, struct fbr_capacity *room,
                struct fbr_error *err);
    /* For `fiber doctor`, with a backend that could be opened: checks versions, permissions, image,
     * the network path from a job back to us, GPUs. A finding about the object "" is about the
     * backend itself: the reason why it cannot be used. May take some seconds. NULL: there is
     * nothing to check. */
    void (*check)(struct fbr_backend *b, const struct fbr_findings *to);
    /* Stores the request that start() would make to its engine, as text for people or, with `json`,
     * as one JSON value; the caller calls free(). It does not ask the engine, and the text holds no
     * secret. -ENOTSUP with `json`: there is text only. NULL: there is nothing to show. */
    int (*show)(const struct fbr_config *config, const struct fbr_job *job, int json, char **text,
                struct fbr_error *err);
    /* Asks the engine whether it would accept that request, makes nothing, and reports a finding
     * for each object. Returns 0, or -EPERM if the engine refused one. May take some seconds. NULL:
     * the engine cannot answer this. */
    int (*would)(struct fbr_backend *b, const struct fbr_job *job, const struct fbr_findings *to);
};

/* The registry: a NULL-terminated array (backends/backends.c). Its entry for a backend that is in a
 * module has only name, reach and facts; fbr_backend_find() returns the whole table. */
extern const struct fbr_backend_ops *const fbr_backends[];

/* The names that users may choose from, separated by spaces: all except those for tests. */
extern const char fbr_backend_names[];

/* Returns the facts of a backend by its name; NULL: the name is unknown, or the backend is for
 * tests. */
const struct fbr_backend_about *fbr_backend_about(const char *name);

/* fiber_template_serve() for a process that has not joined: makes copies of the process as a local
 * backend orders them (backends/local/copies.h). */
int fbr_copies_serve(void);

/* Returns the table by name, or NULL and a sentence with the names that exist. */
const struct fbr_backend_ops *fbr_backend_find(const char *name, struct fbr_error *err);
