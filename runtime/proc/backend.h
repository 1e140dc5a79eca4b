/* backend.h - what a backend is: a table of functions that start, watch and end jobs.
 *
 * Contract, for each backend:
 *  - every function and every event is called on the loop thread, and none of them blocks;
 *  - start() returns at once; what becomes of the job arrives as events: any number of PENDING and
 *    OUTPUT, at most one STARTED, and exactly one EXITED as the last. A start() that returns an
 *    error sends no event;
 *  - watching is by events of the engine, never a poll for each job. "I do not know" is never
 *    EXITED: only what the engine has said ended has ended (code FBR_EXIT_UNKNOWN when it has not
 *    said how);
 *  - signal() is idempotent, and asks only: the EXITED event tells the outcome;
 *  - the ticket reaches the job by a way that is neither its arguments nor its environment: the
 *    environment has only FIBER_TICKET=<where>, "fd:3", "fd:0" or "file:/path" (ticket.h);
 *  - the caller's strings in struct fbr_job are valid during start() only.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef FBR_BACKEND_H
#define FBR_BACKEND_H

#include <stddef.h>
#include <stdint.h>

#include "runtime/base/config.h"
#include "runtime/base/error.h"
#include "runtime/net/loop.h"

#define FBR_EXIT_UNKNOWN INT32_MIN

/* The backend that each build has: processes of this host. Whatever runs in a job starts its own by
 * it. */
#define FBR_BACKEND_LOCAL "local"

/* Settings that only a process of this machine can have; for the local backend. */
struct fbr_job_local {
    int in; /* the job's standard input; -1: /dev/null. The backend closes neither in nor fd */
    /* The other end of a terminal: `in` is all of the job's standard streams, and controls its
     * session; the job's output is read here. 0: none. The backend does not close it. */
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
    char *const *env;       /* all of it, FIBER_TICKET not included */
    char *const *added_env; /* what of it is not the parent's; may be NULL */
    /* The command of the program's template, when this is one of the program's own processes; it
     * stays valid. NULL: there is none. For the local backend (backends/local/copies.h) */
    const char *const *template;
    int alike;       /* jobs like it that start together; 0: unknown */
    int own_program; /* nonzero: file and argv are those of the parent's own program */
    int is_host;     /* nonzero: it starts others in its job; here, what they forked ends with it */
    int is_master;   /* nonzero: it starts jobs with this backend itself; no ticket */
    const char *workdir; /* NULL: the parent's */
    double cpus;
    int gpus;
    uint64_t memory;
    int keep_stdin;
    /* processes that the job will start: for a backend that gives one processor unless asked */
    int width;
    /* Bytes for the child alone; NULL: the job is not a process of Fiber's, and gets no
     * FIBER_TICKET. */
    const void *ticket;
    size_t ticket_len;
    const struct fbr_job_local *local; /* NULL: none of these settings. Only with ticket NULL */
    int relayed;                       /* nonzero: its host passes its data on (relay.h) */
    /* Local backend, beside a ticket: the job's descriptors 4 and 5 (relay.h, subjobs.h); 0: none.
     * They stay the caller's. */
    int link, control;
    uint64_t process, epoch; /* identity of the process, also for deterministic names */
    int index;               /* 1 + the index of its node in its ring; 0: of no ring */
    /* Nonzero: a backend with a list of hosts (an allocation, command_hosts) starts the job on the
     * host of its index. */
    int numbered;
    /* Jobs of a run with the same text run on distinct hosts; NULL: anywhere. For numbered jobs the
     * list of hosts counts */
    const char *apart;
};

enum fbr_job_event_type {
    FBR_JOB_PENDING, /* text: why it does not run yet */
    FBR_JOB_STARTED, /* text: the engine's id of the job; pid: on its host, 0 if unknown */
    FBR_JOB_OUTPUT,  /* data, len: bytes of the job; stream 1 or 2. len 0: that stream has ended */
    /* code: exit code, -N for signal N, FBR_EXIT_UNKNOWN; text: the engine's reason or ""; peak */
    FBR_JOB_EXITED,
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
    int runs;      /* PENDING: the job runs now; the text matters if it does not join */
    /* PENDING: the job has its place, but an image or a volume is still on its way */
    int placed;
    /* EXITED: the job was evicted or preempted, or lost its node; the job itself did not fail.
     * PENDING: the same is about to happen. */
    int disrupted;
};

struct fbr_backend;

/* A job of this user that an engine still has and whose run may be over. Texts are never NULL, ""
 * is unknown. */
struct fbr_orphan {
    const char *run;  /* uid of its run */
    const char *id;   /* the engine's id, for `remove` */
    const char *name; /* its name in the run: "process-3" */
    /* the master of the run, as fbr_master_id_id_self() named it (runtime/base/master_id.h) */
    const char *master;
    int64_t since_ms;  /* creation time in ms since the epoch; 0: unknown */
    int alive;         /* nonzero: the job has not ended */
    const char *fiber; /* of a master: Fiber's command on the master's host; NULL: unknown */
};
typedef void fbr_backend_found(void *user, const struct fbr_orphan *job);

/* An object that a backend has made for jobs and that no job uses any more: an image. */
enum fbr_swept_action { FBR_SWEPT_WOULD, FBR_SWEPT_REMOVED, FBR_SWEPT_KEPT, FBR_SWEPT_FAILED };
struct fbr_swept {
    const char *id, *why; /* its name for the engine; a sentence */
    enum fbr_swept_action action;
    int64_t since_ms; /* last use in ms since the epoch; 0: unknown */
    int64_t bytes;
};
typedef void fbr_backend_swept(void *user, const struct fbr_swept *thing);

/* One finding of `check`: its object, its state in a sentence, and the line that mends it ("" when
 * nothing is to be done). */
enum fbr_finding { FBR_FINDING_GOOD, FBR_FINDING_BAD, FBR_FINDING_ABSENT };
typedef void fbr_backend_report(void *user, enum fbr_finding finding, const char *what,
                                const char *text, const char *mend);

/* Reads the output of a job. Both functions are called on the loop thread. */
struct fbr_backend_reader {
    void (*out)(void *user, int stream, const void *data, size_t len);
    /* Called once, last: the reason for an early end, or "" when that is all. */
    void (*done)(void *user, const char *why);
    void *user;
};

/* The runtime's side, for a backend. */
struct fbr_backend_env {
    struct fbr_loop *loop;
    const struct fbr_config *config;
    void (*event)(void *job_user, const struct fbr_job_event *event);
    char **environ; /* the environment for a backend of a module (environ.h); NULL: its own */
};

/* The hosts that jobs can use. Zero is unknown. */
struct fbr_capacity {
    unsigned hosts; /* number of hosts */
    unsigned cpus;  /* processors of the smallest host */
    /* Only of an allocation: the names of its hosts (NULL-terminated), how many ranks the user
     * asked for on each, and in all. The caller frees both lists, and each name. NULL: there is no
     * allocation. */
    char **names;
    unsigned *slots;
    unsigned ranks, cpus_per_rank, gpus_per_rank;
    unsigned copies; /* the manager started this many copies of our program, side by side */
};

/* How jobs of this backend reach their parent. */
enum fbr_reach {
    FBR_REACH_HOST, /* same host, same user: unix sockets */
    FBR_REACH_TCP,  /* over the network */
};

/* A sign that a user means to use a backend: the first of these that is set, filled or readable.
 * NULL: none. */
struct fbr_backend_sign {
    const char *variable; /* of the environment */
    const char *key;      /* a setting that has no default */
    const char *file;     /* a leading "~" is the home directory */
};

/* The lines that mend what `fiber doctor` found. `keys` and `may` may be NULL: `bad` is said
 * then. */
struct fbr_backend_advice {
    const char *absent; /* there is no sign of the backend */
    const char *bad;    /* it cannot be used */
    const char *keys;   /* our proof of identity, or the server's, is wrong (-EKEYREJECTED) */
    const char *may;    /* we are known, but may not look (-EACCES) */
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
    void (*remove_command)(const char *id, char *out, size_t size);
    const char *job; /* what its engine calls a job: "pod"; NULL: "job" */
    /* Writes the command that runs `fiber`, a path, in the job `id`, which is a master. NULL: none
     * of its jobs can be a master. */
    void (*in_master)(const struct fbr_config *config, const char *id, const char *fiber, char *out,
                      size_t size);
    /* Variables that its jobs get from it and that are not settings; NULL at the end. */
    const char *const *variables;
    const char *hosts;   /* how a user names hosts for it, where it is not by -H: ", or ..." */
    const char *missing; /* a sentence: what to do when a rank ends with code 127 */
    int leaves_jobs;     /* nonzero: jobs may outlive their master: it has housekeeping */
    /* nonzero: its jobs cannot ask the engine, and start their own jobs locally */
    int contained;
    int in_images;    /* nonzero: its jobs run in an image, with other files than those here */
    int makes_images; /* nonzero: where no image is named it makes one of the program */
    int shows;        /* nonzero: it has show() */
};

/* Jobs and other things that an engine has after their master is gone; for gc, ps, logs and
 * kill. */
struct fbr_backend_housekeeping {
    /* Jobs of all runs of this user that the engine has: calls found() for each. May take
     * some seconds. */
    int (*list)(struct fbr_backend *b, fbr_backend_found *found, void *user, struct fbr_error *err);
    /* Removes a listed job by its `id`; 0 also when the job is gone. */
    int (*remove)(struct fbr_backend *b, const char *id, struct fbr_error *err);
    /* Removes objects that the backend has made for jobs, that no run has used since that time and
     * no job uses now; `dry` only reports them. May take some seconds. NULL: the backend makes no
     * such objects. */
    int (*sweep)(struct fbr_backend *b, int64_t before_ms, int drained, fbr_backend_swept *swept,
                 void *user, struct fbr_error *err);
    /* Reads the output of a listed job by its `id`; with `follow` also its later output, until it
     * ends. Returns at once; after an error the reader is not called. Close the backend only after
     * its done(). NULL: nobody keeps the output. */
    int (*logs)(struct fbr_backend *b, const char *id, int follow,
                const struct fbr_backend_reader *reader, struct fbr_error *err);
};

struct fbr_backend_ops {
    const char *name;
    const struct fbr_backend_about *about; /* in the registry only; NULL: it is for tests */
    enum fbr_reach reach;
    int one_host; /* nonzero: all of its jobs run on one other host, or as if they did */
    int (*open)(struct fbr_backend **b, const struct fbr_backend_env *env, struct fbr_error *err);
    /* Kills all running jobs (SIGKILL) and frees everything; no event comes after it. */
    void (*close)(struct fbr_backend *b);
    int (*start)(struct fbr_backend *b, const struct fbr_job *job, void *job_user, void **handle,
                 struct fbr_error *err);
    /* Returns 0 also when the job has ended already. */
    int (*signal)(struct fbr_backend *b, void *handle, int sig);
    /* Stops or resumes reading the job's output (back-pressure from a slow terminal). Must not send
     * an event: the caller holds a lock that events need. */
    void (*pause_output)(struct fbr_backend *b, void *handle, int paused);
    /* Frees the handle after EXITED; it will not be used again. */
    void (*release)(struct fbr_backend *b, void *handle);
    /* Care for jobs that outlive their master; NULL: none can. */
    const struct fbr_backend_housekeeping *housekeeping;
    /* FBR_REACH_TCP: stores our address on the way to its jobs, where we listen when `bind` is not
     * set. NULL: 127.0.0.1. May take a second for each host that it looks up, and is not called
     * while jobs run. */
    int (*address)(struct fbr_backend *b, char *out, size_t size, struct fbr_error *err);
    /* Tells the hosts that jobs can use; the backend need not be open. `room` is zero before; the
     * caller frees its lists, also after an error. `sizes`: the caller wants hosts and cpus, too,
     * for which the engine is asked: some seconds at most. NULL: the backend knows nothing. */
    int (*room)(const struct fbr_backend_env *env, int sizes, struct fbr_capacity *room,
                struct fbr_error *err);
    /* For `fiber doctor`, with a backend that could be opened: checks versions, permissions, image,
     * the way back, GPUs. A finding about "", the backend itself, is the reason why the backend
     * cannot be used. May take some seconds. NULL: there is nothing to check. */
    void (*check)(struct fbr_backend *b, fbr_backend_report *say, void *user);
    /* Stores the request that start() would make to its engine, as text for people or, with `json`,
     * as one JSON value; for free(). It asks no engine, and holds no secret. -ENOTSUP with `json`:
     * there is text only. NULL: there is nothing to show. */
    int (*show)(const struct fbr_config *config, const struct fbr_job *job, int json, char **text,
                struct fbr_error *err);
    /* Asks the engine whether it would take that request, and makes nothing: a finding for each
     * object. 0, or -EPERM when one was refused. May take some seconds. NULL: the engine cannot
     * tell. */
    int (*would)(struct fbr_backend *b, const struct fbr_job *job, fbr_backend_report *say,
                 void *user);
};

/* The registry: one array, NULL at its end (backends/backends.c). A backend whose code is in a
 * module stands there with name, reach and facts alone; fbr_backend_find() returns the whole
 * table. */
extern const struct fbr_backend_ops *const fbr_backends[];

/* The names that users may choose from, separated by spaces: all but those for tests. */
extern const char fbr_backend_names[];

/* Returns the facts of a backend by its name; NULL: the name is unknown, or the backend is for
 * tests. */
const struct fbr_backend_about *fbr_backend_about(const char *name);

/* fiber_template_serve() in a process that has not joined: copies of it are made as a local backend
 * orders them (backends/local/copies.h). */
int fbr_copies_serve(void);

/* The table by name, or NULL and a sentence with the names that exist. */
const struct fbr_backend_ops *fbr_backend_find(const char *name, struct fbr_error *err);

#endif
