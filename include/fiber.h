/* fiber.h - programs on one machine, run on a cluster: job-backed processes, queues, pipes,
 * managers, pools.
 *
 *     int main(int argc, char **argv)
 *     {
 *         // The first call. In a child process it runs the child's work and exits.
 *         fiber_init(&argc, &argv);
 *         ...
 *     }
 *
 * A *job-backed process* is a process that a backend (this machine, a container engine, a cluster
 * manager) starts as a job, from the same image as its parent. Functions are passed to it as plain
 * C function pointers: nothing is registered; they travel as (build-id, offset), so parent and
 * child must be the same build of the program (link with -Wl,--build-id, as most distributions do
 * by default).
 *
 * Conventions, for every call unless it says otherwise:
 *  - it returns 0, or a negative errno; then fiber_last_error() returns a sentence for people,
 *    about the call of this thread that failed last. A call that fails never returns a positive
 *    code: if a function of the program (task, method, builder, source) returns one, its caller
 *    gets -EIO, and the text has the number;
 *  - a structure of options begins with its own size (-EINVAL: another size); every other member
 *    may be 0, which means its default: `struct fiber_map_options o = {.size = sizeof(o)};`
 *  - a timeout is in milliseconds; -1 waits for ever, 0 polls. When the timeout is over, the call
 *    returns -ETIMEDOUT. A call that waits for a peer returns an error when the peer is gone; it
 *    never waits for a dead peer;
 *  - it may be called from any thread, but in a callback only if the callback's comment allows it;
 *  - sizes are in bytes; the call copies its inputs before it returns, unless its comment says that
 *    they must stay valid;
 *  - memory that a call hands over in a `struct fiber_bytes` belongs to the caller, who frees it
 *    with fiber_bytes_free();
 *  - after fork() without exec the child may not use Fiber: every call that acts or waits fails
 *    there with -EPERM, and a call that returns nothing does nothing. Only these calls still
 *    answer, from memory, what was true at the fork: fiber_process_name(), _self(), _is_child() and
 *    _work(), fiber_result_count() and _done(), fiber_shared_data(), _memory(), _len() and
 *    _built(); reports and names of jobs are "". Calls on data of the thread or of the caller still
 *    work: fiber_last_error(), _strerror(), _version(), _bytes_free(), _shared_close(),
 *    _task_common(), fiber_address_format() and _parse(), and the calls on a fiber_reply.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef FIBER_H
#define FIBER_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define FIBER_VERSION_MAJOR 0
#define FIBER_VERSION_MINOR 1
#define FIBER_VERSION_PATCH 0

#if defined(__GNUC__)
#define FIBER_API __attribute__((visibility("default")))
#define FIBER_PRINTF(f, a) __attribute__((format(printf, f, a)))
#else
#define FIBER_API
#define FIBER_PRINTF(f, a)
#endif

/* ---- The library ----------------------------------------------------------------------------- */

/* Joins this process to Fiber. Make this the first call of main(), before threads are started and
 * before argc and argv are used; both may be NULL. In a process that a parent started to run a
 * function, the call runs that function and exits. It reads the configuration: an unknown key or a
 * wrong value is an error that names the file and the line. A second call does nothing. Returns 0
 * in a master, and 1 in a worker program (fiber_serve(), fiber_process_work()). */
FIBER_API int fiber_init(int *argc, char ***argv);

/* Ends everything that this process started: kills its processes, waits for them, and removes its
 * sockets and segments. Tasks of open pools fail with -ESHUTDOWN, calls that wait for them return,
 * and no callback runs after that; calls that wait at a queue or a pipe fail with -EPIPE. exit()
 * calls this function. Afterwards, handles that are still open may only be closed. If several
 * threads make this call at once, all return when the work is done. In a callback the call does not
 * wait: it kills the processes, and the program must then end. */
FIBER_API void fiber_fini(void);

/* Sets a value of the configuration, e.g. ("backend", "local") or ("heartbeat", "500ms"). The value
 * takes precedence over the environment and files. Any thread may call at any time. The value
 * applies to what begins after the call: processes, connections and waits that have begun keep the
 * old value, and `run_dir` and `bind` keep the value with which they were opened. -EINVAL: the key
 * is unknown or the value is wrong. */
FIBER_API int fiber_config_set(const char *key, const char *value);

/* Sets the command that starts this program again in a job: a NULL-terminated argv, which is
 * copied. The default is the executable of the program; a program that runs in an interpreter needs
 * the interpreter and the script. Processes, pools, managers, stores, agents of rings and the ranks
 * of a ring's function use this command if no job.command is given. The program may call this
 * function before fiber_init(). The started command must call it, too, because the processes that a
 * child starts need a command as well. The command must load the same builds of this library and of
 * the code whose functions it receives, and call fiber_init(). -EINVAL: argv is NULL or empty.
 * -EBUSY: a process was started already. */
FIBER_API int fiber_program(const char *const *argv);

/* Sets the command of a template: a NULL-terminated argv, which is copied; NULL: none, the default.
 * A template is for programs that take long to load, such as interpreters. From the fourth process
 * in a row that would run the command of fiber_program() on this host, such processes are copies of
 * the template, a process that runs this command. The template loads what the processes need, calls
 * fiber_template_serve() in place of fiber_init(), and ends with the run. A copy has its own pid,
 * environment, folder and output, and shares with the other copies only what the template had
 * loaded. A template that ends, hangs or no longer fits (the environment, limits or identity of
 * this process have changed) costs only time: processes are then started by the command of
 * fiber_program(). The setting `template` turns templates off. Any thread may call at any time.
 * -EINVAL: argv is empty. */
FIBER_API int fiber_template(const char *const *argv);

/* Makes copies of this process, which was started by the command of fiber_template(), when its
 * parent orders them. Returns 0 in each copy, which then calls fiber_init(); the calling thread
 * is the only thread of the copy. In the template itself the call does not return, but ends the
 * process when the parent has ended. Functions of pthread_atfork() are not called. -ENOTSUP:
 * this process is not a template, or the system cannot copy it. -EBUSY: this process has other
 * threads. */
FIBER_API int fiber_template_serve(void);

/* Stores the value of a setting in `value`, as text that fiber_config_set() takes. -EINVAL: the key
 * is unknown. -ERANGE: size is too small. */
FIBER_API int fiber_config_get(const char *key, char *value, size_t size);

/* Explains in a sentence why the last call of this thread that failed has failed. Returns a text
 * that stays valid until the next call of this thread that fails; never NULL. */
FIBER_API const char *fiber_last_error(void);
/* Describes an error code: "No such file or directory" for -ENOENT. Returns a static text. */
FIBER_API const char *fiber_strerror(int code);
/* Gets the version of the library. Returns a static text, such as "0.1.0". */
FIBER_API const char *fiber_version(void);

struct fiber_bytes {
    void *data;
    size_t len;
};

/* Frees bytes->data and sets it to NULL. NULL is fine. */
FIBER_API void fiber_bytes_free(struct fiber_bytes *bytes);

/* ---- Processes ------------------------------------------------------------------------------- */

struct fiber_process;

/* The function of a child. arg has len bytes, 8-byte aligned, valid during the call. Returns the
 * child's exit code, 0 to 255. */
typedef int (*fiber_process_fn)(const void *arg, size_t len);

/* Requests of a job to its backend. Zero means the backend's default. */
struct fiber_jobspec {
    const char *name;  /* shown in listings and logs; default process-N */
    const char *image; /* container image; default: the parent's own. Local jobs have none */
    double cpus; /* processors, e.g. 0.5 or 8. Local jobs are bound to whole ones of their own */
    int gpus;    /* local jobs see the nearest free ones, by CUDA_VISIBLE_DEVICES and its like */
    uint64_t memory; /* bytes; local jobs are not held to it */
    /* NULL-terminated argv of another program that links libfiber; a name without a slash is
     * searched in the PATH of the job; default: this program */
    const char *const *command;
    /* NULL-terminated NAME=VALUE, added to the child's environment. That is a copy of the parent's
     * environment, made when the process is started, or when its pool is opened. Do not pass
     * secrets here: with the backend "command" the variables are part of a command line, which all
     * users of both hosts can see */
    const char *const *env;
    const char *workdir; /* default: the parent's */
};

struct fiber_process_options {
    size_t size; /* sizeof(struct fiber_process_options) */
    struct fiber_jobspec job;
    const char *backend; /* NULL: as configured */
    /* The time until the child has joined. 0: as configured (start_timeout); then the time in which
     * the backend has no place for the child does not count, and a message reports that wait */
    int start_timeout_ms;
    int keep_stdin; /* nonzero: the child inherits standard input; else it reads end of file */
    /* Ends of pipes whose addresses are in the argument, npipes of them. The process holds each end
     * from its start until it has connected to the end and closed it, or has ended. So the end
     * stays open until the process has connected to it, and closes if the process dies before. Read
     * only during the call */
    struct fiber_pipe *const *pipes;
    size_t npipes;
};

/* Starts fn(arg) in a new job, and does not wait until fn runs. `fn` must be a function of this
 * program or of a library that the program has loaded. The start continues in the background: a
 * process whose start fails has ended, and its report gives the reason, with the last lines of the
 * job. A process of this host has the umask, the limits and the ignored signals of the call. `opts`
 * may be NULL. *p belongs to the caller until fiber_process_close(). */
FIBER_API int fiber_process_start(struct fiber_process **p, fiber_process_fn fn, const void *arg,
                                  size_t len, const struct fiber_process_options *opts);

/* Starts another program as a job and sends bytes to it; the program gets them by
 * fiber_process_work(). job.command names the program. Everything else is as for
 * fiber_process_start(). */
FIBER_API int fiber_process_start_work(struct fiber_process **p, const void *work, size_t len,
                                       const struct fiber_process_options *opts);

/* Waits until the process has ended and its output has been written here; it stops waiting for the
 * output if no process reads it for a second. With a timeout of 0 the call does not wait for the
 * output. -ETIMEDOUT: the process has not ended. */
FIBER_API int fiber_process_join(struct fiber_process *p, int timeout_ms);
/* Waits until the process has joined, so that it runs and its pid is known. -ETIMEDOUT: the process
 * has not joined. -ECHILD: the process ended before it joined, or could not be started. */
FIBER_API int fiber_process_wait_joined(struct fiber_process *p, int timeout_ms);
/* Asks the process to end: SIGTERM, or the backend's counterpart. The call does nothing if the
 * process has ended. */
FIBER_API int fiber_process_terminate(struct fiber_process *p);
/* Kills the process: SIGKILL, or the backend's counterpart. The call does nothing if the process
 * has ended. */
FIBER_API int fiber_process_kill(struct fiber_process *p);
/* Sends the process another signal, such as SIGINT. On Kubernetes, on Slurm outside of an
 * allocation and in detached jobs of a template, the process sends it to itself when it is asked,
 * which a stopped process (SIGSTOP) does not do. If the process does not run yet, or has ended,
 * nothing is sent. -EINVAL: no such signal. */
FIBER_API int fiber_process_signal(struct fiber_process *p, int signal);
/* Checks whether the process still lives. Returns 1 until the process has ended, then 0. */
FIBER_API int fiber_process_is_alive(struct fiber_process *p);
/* Stores in *code the exit code, or -N when signal N ended the process (as multiprocessing does). A
 * process that could not be started has the code 125. -EAGAIN: the process has not ended. -ENODATA:
 * the process has ended, but its code is unknown: its host was lost, or its engine did not report
 * its end within 15 s after its connection had closed. */
FIBER_API int fiber_process_exitcode(struct fiber_process *p, int *code);
/* Gets the process id as the process itself sees it: in a container, the one that it has there.
 * Returns 0 until it is known: when the process has joined, on this host when it has been started.
 */
FIBER_API int64_t fiber_process_pid(struct fiber_process *p);
/* Gets the name of the process. Returns a text that is valid until fiber_process_close(). */
FIBER_API const char *fiber_process_name(struct fiber_process *p);
/* Gets the backend's name for the job of the process. Returns a text that is valid until
 * fiber_process_close(); "" until the name is known. */
FIBER_API const char *fiber_process_job(struct fiber_process *p);
/* Describes how the process ended, in a sentence with its last lines: "process-3 (pid 4711) was
 * killed by signal 9 (Killed)". Returns a text that is valid until fiber_process_close(); "" while
 * the process lives. */
FIBER_API const char *fiber_process_report(struct fiber_process *p);
/* Gets a descriptor that polls readable once the process has ended. The descriptor belongs to
 * Fiber: do not read or close it. Returns the descriptor. */
FIBER_API int fiber_process_sentinel(struct fiber_process *p);
/* Frees the handle. A process that still lives continues, and ends with its parent. NULL is
 * fine. */
FIBER_API void fiber_process_close(struct fiber_process *p);

/* Lists the live children of this process: processes that the program started, not the workers of
 * pools. Up to max handles are stored in `out`, which may be NULL; children whose handles the
 * program has closed are counted but not listed. Returns the number of live children. */
FIBER_API int fiber_active_children(struct fiber_process **out, int max);

/* Gets the name of the calling process. Returns the name; "main" in a master. */
FIBER_API const char *fiber_process_self(void);
/* Checks whether another process of the run started the calling process. Returns 1 or 0. */
FIBER_API int fiber_process_is_child(void);
/* Gets, in a worker program whose fiber_init() returned 1, the bytes of
 * fiber_process_start_work(). They stay valid as long as the process lives. -ENODATA: the
 * process was not started with bytes. */
FIBER_API int fiber_process_work(const void **work, size_t *len);

/* ---- Addresses ------------------------------------------------------------------------------- */

/* The address of a queue, a pipe's end, a manager or a store: plain bytes that travel inside
 * arguments and messages. Any process of the run may open the object by its address. An address is
 * a capability and contains a key: treat it as a secret. An address is valid as long as the process
 * that owns the object lives. */
struct fiber_address {
    unsigned char bytes[192];
};

#define FIBER_ADDRESS_TEXT 400 /* bytes that are enough for any address as text */

/* Writes an address as text without spaces, for files, environments and command lines;
 * FIBER_ADDRESS_TEXT bytes are enough for any address. The text is as secret as the address: pass
 * it in a file of mode 0600 or a pipe if you can. Every child inherits the environment, processes
 * of this user can read it, and everybody on the host can read an argv. -ERANGE: size is too small.
 * -EINVAL: the bytes are not an address. */
FIBER_API int fiber_address_format(const struct fiber_address *address, char *text, size_t size);
/* Reads an address from its text; white space after it is ignored. The call does not check whether
 * the object still exists; using the object does. -EINVAL: the text is not an address, or not all
 * of one. */
FIBER_API int fiber_address_parse(struct fiber_address *address, const char *text);

/* ---- Queue ----------------------------------------------------------------------------------- */

/* A queue of messages of any size, with many senders and receivers on any host. Messages of one
 * sender keep their order; but after a receiver has been frozen for 5 s, others get newer messages
 * than those that it has not taken. The queue lives in the process that opened it (its owner): when
 * the owner is gone, other processes get -EPIPE. If a receiver dies before it takes a message that
 * was sent to it, the message goes to another receiver. */
struct fiber_queue;

/* Makes a queue that this process owns. `max_messages` bounds the number of messages that wait in
 * it. With 0 the only bound is hold_max of the configuration, for messages that other processes
 * put. */
FIBER_API int fiber_queue_open(struct fiber_queue **q, size_t max_messages);
/* Stores the address with which other processes connect. -EPERM: this process is not its owner. */
FIBER_API int fiber_queue_address(struct fiber_queue *q, struct fiber_address *address);
/* Opens the queue at this address. -EPIPE: its owner is gone. If the owner lives and has closed the
 * queue, the first call that needs the queue returns -EPIPE. */
FIBER_API int fiber_queue_connect(struct fiber_queue **q, const struct fiber_address *address);
/* Puts a message at the end of the queue. A message that the owner has taken is lost when the owner
 * dies. -ETIMEDOUT: the queue is full. -EPIPE: the owner is gone, or the queue was shut. -EMSGSIZE:
 * the message is longer than max_message of the configuration. -ENOBUFS: the memory that the owner
 * keeps for other processes has reached hold_max of its configuration; messages that were put
 * before and are not yet acknowledged may be lost, too, and later calls may succeed. */
FIBER_API int fiber_queue_put(struct fiber_queue *q, const void *data, size_t len, int timeout_ms);
/* Takes the next message; *out belongs to the caller. -ETIMEDOUT: the queue is empty. -EPIPE: the
 * queue was shut and is drained, or the owner is gone. */
FIBER_API int fiber_queue_get(struct fiber_queue *q, struct fiber_bytes *out, int timeout_ms);
/* Gets a descriptor to wait for messages; see fiber_wait_any(). Returns the descriptor. */
FIBER_API int fiber_queue_fd(struct fiber_queue *q);
/* Waits until everything that this process put has reached the owner. -ETIMEDOUT: some has not.
 * -EPIPE: the owner is gone. */
FIBER_API int fiber_queue_flush(struct fiber_queue *q, int timeout_ms);
/* Stores the number of messages that wait in the queue. The number may change at any time. In the
 * owner's process, messages that others are known to have taken do not count, and a receiver that
 * is frozen delays the answer by about 5 s, once. -EPIPE: the owner is gone. */
FIBER_API int fiber_queue_size(struct fiber_queue *q, size_t *messages);
/* Ends all puts, by any process. Gets continue until the queue is drained, and then fail with
 * -EPIPE. */
FIBER_API int fiber_queue_shut(struct fiber_queue *q);
/* Marks one message of the queue as finished. Any process may make this call, once for each message
 * that it took. The call waits until the owner has counted it. -ERANGE: every message that was put
 * is finished already. -EPIPE: the owner is gone. */
FIBER_API int fiber_queue_done(struct fiber_queue *q);
/* Waits until as many messages are finished as were put; the owner counts them. If a receiver dies
 * before it takes a message, another receiver gets the message. -ETIMEDOUT: some messages are
 * unfinished. -EOWNERDEAD: some messages are unfinished, and the processes that took them have
 * ended; once a process has called fiber_queue_done() for them, the call returns 0 again. -EPIPE:
 * the owner is gone. */
FIBER_API int fiber_queue_join(struct fiber_queue *q, int timeout_ms);
/* Shares the messages equally: from now on they go to the receivers in turn, not to the first
 * receiver that is free. A process is a receiver from its first fiber_queue_get() on. When a
 * receiver ends, its share goes to the others. Any process may make this call, and it applies to
 * all receivers. -EPIPE: the owner is gone. */
FIBER_API int fiber_queue_deal(struct fiber_queue *q);
/* Frees the handle; in the owner the queue ends. The call flushes first: it waits as long as the
 * owner takes messages, and for `linger` of the configuration while the owner takes none. NULL is
 * fine. */
FIBER_API void fiber_queue_close(struct fiber_queue *q);

/* ---- Pipe ------------------------------------------------------------------------------------ */

/* A connection between two ends, with messages of any size. Other processes connect to either end
 * by its address. An end may have several holders: every process with an open handle of it,
 * including the process that opened the pipe. When the last holder of an end has closed it or died,
 * the other end reads what was sent before, then gets -EPIPE. So a process that gave an end away
 * closes its own handle. If several processes receive from one end, each message goes to one that
 * waits for a message. The pipe lives in the process that opened it. */
struct fiber_pipe;

#define FIBER_PIPE_ONEWAY 1 /* ends[0] receives, ends[1] sends */

/* Makes a pipe with both ends in this process: ends[0] and ends[1]. `flags`: 0, or
 * FIBER_PIPE_ONEWAY. */
FIBER_API int fiber_pipe_open(struct fiber_pipe *ends[2], unsigned flags);
/* Stores the address of this end, with which other processes connect to it. After each call the end
 * stays open until a process has connected, or this process ends, even if it closes its handle.
 * -EPIPE: the process that opened the pipe is gone. */
FIBER_API int fiber_pipe_address(struct fiber_pipe *end, struct fiber_address *address);
/* Connects to the end of a pipe that has this address. From then on this process is a holder of the
 * end. -EPIPE: the pipe is gone. */
FIBER_API int fiber_pipe_connect(struct fiber_pipe **end, const struct fiber_address *address);
/* Sends a message to the other end. The call waits while more than about 8 MiB wait there.
 * -ETIMEDOUT: there is still no room. -EPIPE: the other end is gone. -EBADF: this is a receiving
 * end. -EMSGSIZE and -ENOBUFS as in fiber_queue_put(). */
FIBER_API int fiber_pipe_send(struct fiber_pipe *end, const void *data, size_t len, int timeout_ms);
/* Receives the next message; *out belongs to the caller. -ETIMEDOUT: no message has come. -EPIPE:
 * the other end is gone, and all that it sent has been received. -EBADF: this is a sending end. */
FIBER_API int fiber_pipe_recv(struct fiber_pipe *end, struct fiber_bytes *out, int timeout_ms);
/* Waits until there is a message, or the other end is gone. Returns 1 if fiber_pipe_recv() would
 * not wait, and 0 if nothing came within the timeout. */
FIBER_API int fiber_pipe_poll(struct fiber_pipe *end, int timeout_ms);
/* Gets a descriptor to wait for messages; see fiber_wait_any(). Returns the descriptor.
 * -EBADF: this is a sending end. */
FIBER_API int fiber_pipe_fd(struct fiber_pipe *end);
/* Frees the handle. A process that closes its last handle no longer holds the end. NULL is fine. */
FIBER_API void fiber_pipe_close(struct fiber_pipe *end);

/* ---- Manager --------------------------------------------------------------------------------- */

/* A process that owns a state and runs methods on the state, one at a time, for callers in any
 * process of the run. */
struct fiber_manager;
struct fiber_reply;
struct fiber_future;

/* Appends bytes to the answer of a manager's method or a pool's task. -ENOMEM: memory is short. */
FIBER_API int fiber_reply_write(struct fiber_reply *reply, const void *data, size_t len);
/* Appends len bytes to the answer, for the caller to fill. The first bytes of an answer are 8-byte
 * aligned. Returns a pointer to the bytes, valid until the next call with this reply; NULL if
 * memory is short. */
FIBER_API void *fiber_reply_alloc(struct fiber_reply *reply, size_t len);
/* Makes the answer an error with a text: `return fiber_reply_fail(reply, -EINVAL, "no row %d",
 * i);`. The caller gets a positive code as -EIO, with the number after the text. Returns code, or
 * -EIO if code is 0. */
FIBER_API int fiber_reply_fail(struct fiber_reply *reply, int code, const char *fmt, ...)
    FIBER_PRINTF(3, 4);
/* Makes the answer an error, as fiber_reply_fail() does, with bytes that the caller understands in
 * place of a text. Calls that return the text of an error return these bytes up to the first NUL.
 * Returns code, or -EIO if code is 0. */
FIBER_API int fiber_reply_fail_bytes(struct fiber_reply *reply, int code, const void *data,
                                     size_t len);
/* Checks, in a task of a pool, whether its result is no longer wanted, so that a long task can end
 * early. Returns 1 once the result is not wanted, else 0. */
FIBER_API int fiber_reply_cancelled(struct fiber_reply *reply);

struct fiber_class {
    size_t size; /* sizeof(struct fiber_class) */
    /* Makes the state from the bytes of fiber_manager_start(). If it returns nonzero, the manager
     * does not start. May be NULL. */
    int (*open)(void **state, const void *arg, size_t len);
    /* Runs one method. Nonzero is an error for the method's caller (with the text of
     * fiber_reply_fail(), if any): a negative code unchanged, a positive code as -EIO with the
     * number in the text. */
    int (*call)(void *state, const char *method, const void *in, size_t len,
                struct fiber_reply *reply);
    void (*close)(void *state); /* when the manager is closed in good order; may be NULL */
};

/* Starts the process of a manager and waits until the manager serves. `opts` may be NULL. -ECHILD:
 * the manager does not serve; fiber_last_error() says why. */
FIBER_API int fiber_manager_start(struct fiber_manager **m, const struct fiber_class *cls,
                                  const void *arg, size_t len,
                                  const struct fiber_process_options *opts);
/* Stores the address of the manager, with which other processes connect. */
FIBER_API int fiber_manager_address(struct fiber_manager *m, struct fiber_address *address);
/* Opens the manager at this address. -EPIPE: the manager is gone. */
FIBER_API int fiber_manager_connect(struct fiber_manager **m, const struct fiber_address *address);
/* Runs a method and waits for its answer; `out` may be NULL. If the method fails, the call returns
 * its code (-EIO for a positive one), with its text in fiber_last_error(). -ETIMEDOUT: there is no
 * answer yet; the method still runs, and its answer is dropped. -EPIPE: the manager is gone.
 * -EDEADLK: a method called its own manager; another thread of that process may call it. */
FIBER_API int fiber_manager_call(struct fiber_manager *m, const char *method, const void *in,
                                 size_t len, struct fiber_bytes *out, int timeout_ms);
/* Runs a method without waiting for its answer. The program may wait for futures in any order.
 * While 64 MiB of calls of this process have no answer, the call waits for one. -EPIPE: the manager
 * is gone. */
FIBER_API int fiber_manager_call_async(struct fiber_manager *m, const char *method, const void *in,
                                       size_t len, struct fiber_future **future);
/* Waits until the call is done, with an answer or an error. -ETIMEDOUT: the call is not done. */
FIBER_API int fiber_future_wait(struct fiber_future *f, int timeout_ms);
/* Waits for the answer and hands it over once; *out belongs to the caller. Errors of the call are
 * returned as by fiber_manager_call(). -ETIMEDOUT: there is no answer yet. -ENODATA: the answer was
 * handed over before. */
FIBER_API int fiber_future_get(struct fiber_future *f, struct fiber_bytes *out, int timeout_ms);
/* Gets a descriptor to wait for the answer; see fiber_wait_any(). Returns the descriptor. */
FIBER_API int fiber_future_fd(struct fiber_future *f);
/* Frees the future. A call without an answer continues, unless this process ends. NULL is fine. */
FIBER_API void fiber_future_close(struct fiber_future *f);
/* Frees the handle. The process that started the manager waits for the answers to its own calls,
 * ends the manager (and kills it if a method takes longer than `grace` of the configuration), and
 * waits for the manager's end. When another process closes its last handle, its calls without an
 * answer fail with -EPIPE. NULL is fine. */
FIBER_API void fiber_manager_close(struct fiber_manager *m);

/* ---- Store ----------------------------------------------------------------------------------- */

/* Shared state for the processes of a run, in a process of its own: a dictionary, lists, counters,
 * and locks, events, barriers and semaphores across hosts. Names are strings up to 255 bytes; each
 * kind has its own names. Each call is atomic: other processes see all of it or nothing. -EPIPE:
 * the store is gone. */
struct fiber_store;

/* Starts the process of a store and waits until the store serves. `opts` may be NULL. -ECHILD: the
 * store does not serve; fiber_last_error() says why. */
FIBER_API int fiber_store_start(struct fiber_store **s, const struct fiber_process_options *opts);
/* Stores the address of the store, with which other processes connect. */
FIBER_API int fiber_store_address(struct fiber_store *s, struct fiber_address *address);
/* Opens the store at this address. -EPIPE: the store is gone. */
FIBER_API int fiber_store_connect(struct fiber_store **s, const struct fiber_address *address);
/* Frees the handle. In the process that started the store, the store ends. When another process
 * closes its last handle, it loses all that it holds in the store, as if it had died. NULL is
 * fine. */
FIBER_API void fiber_store_close(struct fiber_store *s);

/* Sets the value of a key of the dictionary. -ENOSPC: the store has reached hold_max of the
 * configuration; every call that adds to the store may fail with this code. */
FIBER_API int fiber_store_set(struct fiber_store *s, const char *key, const void *value,
                              size_t len);
/* Gets the value of a key; *value belongs to the caller. The call waits until the key is set; with
 * a timeout of 0 it looks once. -ENOENT: the key was not set within the timeout. */
FIBER_API int fiber_store_get(struct fiber_store *s, const char *key, struct fiber_bytes *value,
                              int timeout_ms);
/* Sets a key only if it has the value `expect`, or, if `expect` is NULL, only if it is absent.
 * -ESTALE: the key has another value, which is in *found (empty if the key is absent); found may be
 * NULL. */
FIBER_API int fiber_store_swap(struct fiber_store *s, const char *key, const void *expect,
                               size_t expect_len, const void *value, size_t len,
                               struct fiber_bytes *found);
/* Deletes everything of this name at once: the key of the dictionary, the list, the counter and the
 * event. Calls that wait for one of them go on waiting. Locks, semaphores and barriers are not
 * deleted: they take no memory once no process holds them or waits for them. -ENOENT: there is
 * nothing of this name; an empty list, a counter at 0 and an event that is not set count as
 * nothing, and take no memory. */
FIBER_API int fiber_store_delete(struct fiber_store *s, const char *name);
/* Lists the keys that begin with prefix (NULL: all), sorted, each followed by a NUL byte; *keys
 * belongs to the caller. */
FIBER_API int fiber_store_keys(struct fiber_store *s, const char *prefix, struct fiber_bytes *keys);
/* Adds to a counter; an absent counter is 0. Its new value is in *value, which may be NULL.
 * -ERANGE: the counter would overflow; it is unchanged. */
FIBER_API int fiber_store_add(struct fiber_store *s, const char *counter, int64_t delta,
                              int64_t *value);

/* Appends a value to the end of a list; an absent list is empty. */
FIBER_API int fiber_store_push(struct fiber_store *s, const char *list, const void *value,
                               size_t len);
/* Takes the first value of a list; *value belongs to the caller. -ETIMEDOUT: the list stayed
 * empty. */
FIBER_API int fiber_store_pop(struct fiber_store *s, const char *list, struct fiber_bytes *value,
                              int timeout_ms);
/* Gets the value at index i of a list without taking it; *value belongs to the caller. -ENOENT: the
 * list is not that long. */
FIBER_API int fiber_store_at(struct fiber_store *s, const char *list, size_t i,
                             struct fiber_bytes *value);
/* Stores the number of values in a list. */
FIBER_API int fiber_store_length(struct fiber_store *s, const char *list, size_t *length);

/* Takes a lock for this process: other threads of the process wait for the lock, too, and any of
 * them may unlock it. -ETIMEDOUT: the lock was not taken; fiber_last_error() names the holder.
 * -EOWNERDEAD: the lock was taken, but its last holder died with it, so what it guards may be half
 * changed; only the first call after the death returns this. */
FIBER_API int fiber_store_lock(struct fiber_store *s, const char *name, int timeout_ms);
/* Releases a lock. -EPERM: this process does not hold it. */
FIBER_API int fiber_store_unlock(struct fiber_store *s, const char *name);
/* Takes a unit of a semaphore. `initial` (at least 1) is the number of units while no process holds
 * or waits for one. When a process dies, its units are released. -ETIMEDOUT: no unit was free.
 * -EINVAL: initial is less than 1. */
FIBER_API int fiber_store_acquire(struct fiber_store *s, const char *semaphore, int64_t initial,
                                  int timeout_ms);
/* Releases a unit of a semaphore. -EPERM: this process holds none. */
FIBER_API int fiber_store_release(struct fiber_store *s, const char *semaphore);
/* Sets an event: calls that wait for it return. */
FIBER_API int fiber_store_event_set(struct fiber_store *s, const char *event);
/* Clears an event: calls that wait for it wait until it is set again. */
FIBER_API int fiber_store_event_clear(struct fiber_store *s, const char *event);
/* Waits until an event is set. -ETIMEDOUT: the event is not set. */
FIBER_API int fiber_store_event_wait(struct fiber_store *s, const char *event, int timeout_ms);
/* Waits until `parties` callers wait at the barrier. *index (may be NULL) is parties - 1 for the
 * first caller and 0 for the last. -ECONNABORTED: a caller died or timed out, which breaks the
 * barrier for all callers that wait; the barrier can be used again at once. -ETIMEDOUT: this call
 * timed out. -EINVAL: another caller named another number of parties. */
FIBER_API int fiber_store_barrier(struct fiber_store *s, const char *name, int parties, int *index,
                                  int timeout_ms);

/* ---- Host-shared memory ---------------------------------------------------------------------- */

/* A named segment of memory that all processes of this run on one host share, also the ranks of its
 * rings that run a function; a rank that runs a program is a run of its own. The segments end with
 * the run. Two processes are on one host if they share a /dev/shm. On docker and kubernetes each
 * job is a container with its own /dev/shm, so only the processes of one job share segments there;
 * workers_per_job puts several workers into one job. */
struct fiber_shared;

/* Fills `data` (len zeroed bytes). Nonzero: no segment is made, and fiber_shared_open() returns the
 * code (-EIO for a positive one); the next process that opens the segment builds it. May open other
 * segments, but not the one that it builds (-EDEADLK). */
typedef int (*fiber_shared_fn)(void *data, size_t len, void *user);

/* Opens a read-only segment, such as a noise table or a data set: the first process that opens it
 * builds it, the others map it. A name has 1 to 200 of the characters a-z A-Z 0-9 - _ and the
 * period. The call waits while another process builds, and builds the segment itself if that
 * process dies. If build is NULL, the call opens only a segment that exists or is being built; if
 * len is 0, a segment of any length. -EEXIST: the segment has another length. -ENOENT: there is no
 * such segment. -ENOSPC: the host has no room for it in /dev/shm, nor in the directory of the
 * setting run_dir, which takes the segments that do not fit. -EFBIG: this process may not make so
 * long a file (ulimit -f). */
FIBER_API int fiber_shared_open(struct fiber_shared **s, const char *name, size_t len,
                                fiber_shared_fn build, void *user);

#define FIBER_SHARED_CREATE 1u    /* make it when there is none, zeroed */
#define FIBER_SHARED_EXCLUSIVE 2u /* make it, and fail with -EEXIST when there is one */

/* Opens a writable segment: each process sees what the others write, as threads of one process do.
 * Nothing is locked: use C11 atomics, a process-shared and robust pthread mutex in the segment, or
 * fiber_store_lock(). Written bytes stay when the writer dies or closes the segment, even if the
 * writer was not finished. The segment ends with the run, or once it was deleted and no process has
 * it open. The names of writable segments are separate from those of read-only segments. `flags`: 0
 * opens an existing segment of that length, or of any length if len is 0; FIBER_SHARED_CREATE and
 * FIBER_SHARED_EXCLUSIVE make a segment. -ENOENT: there is no such segment. -EEXIST: the segment
 * has another length, or it exists and FIBER_SHARED_EXCLUSIVE was given. -ENOSPC and
 * -EFBIG as in fiber_shared_open(). */
FIBER_API int fiber_shared_open_writable(struct fiber_shared **s, const char *name, size_t len,
                                         unsigned flags);
/* Deletes the segments of this name, read-only and writable. Processes that have one open keep it;
 * the next call that opens this name finds no segment, or makes a new one. -ENOENT: there is no
 * segment of this name. */
FIBER_API int fiber_shared_delete(const char *name);
/* Gets the memory of a segment. Returns its address, page-aligned, valid until
 * fiber_shared_close(). */
FIBER_API const void *fiber_shared_data(struct fiber_shared *s);
/* Gets the memory of a writable segment. Returns its address, page-aligned, valid until
 * fiber_shared_close(); NULL for a read-only segment. */
FIBER_API void *fiber_shared_memory(struct fiber_shared *s);
/* Gets the length of the segment. Returns bytes. */
FIBER_API size_t fiber_shared_len(struct fiber_shared *s);
/* Checks whether the call that opened this handle built or made the segment. Returns 1 or 0. */
FIBER_API int fiber_shared_built(struct fiber_shared *s);
/* Unmaps the segment, which stays for the other processes of the run. NULL is fine. */
FIBER_API void fiber_shared_close(struct fiber_shared *s);

/* ---- Pool ------------------------------------------------------------------------------------ */

/* An elastic set of worker processes that share one task list. Every task is executed at least
 * once, even if workers die, and its result is delivered exactly once. With retries =
 * FIBER_RETRIES_NONE a task is executed at most once. */
struct fiber_pool;
struct fiber_result;
struct fiber_imap;

/* Runs one task: reads its input (8-byte aligned, valid during the call) and writes its result into
 * reply. Nonzero is a user error: it is delivered as the result of that task, and never retried. A
 * negative code is delivered unchanged, a positive code as -EIO with the number in the text. Runs
 * in the worker's main thread. */
typedef int (*fiber_task_fn)(const void *in, size_t len, struct fiber_reply *reply);

/* Runs once in each worker before its first task; nonzero ends the worker. */
typedef int (*fiber_pool_init_fn)(const void *arg, size_t len);

/* fiber_map_options.retries */
#define FIBER_RETRIES_DEFAULT 0 /* as configured (retries): 2 */
#define FIBER_RETRIES_UNLIMITED (-1)
#define FIBER_RETRIES_NONE (-2) /* at most once */

struct fiber_pool_options {
    size_t size;  /* sizeof(struct fiber_pool_options) */
    int min, max; /* workers; min == max: fixed; both 0: one per processor that we may use */
    struct fiber_jobspec job; /* of each job */
    const char *backend;      /* NULL: as configured */
    /* Worker processes in one job; 0 or 1: one. If there are more, one process of the job forwards
     * tasks and results for all of them, which saves connections and messages. When a job is lost,
     * all its workers are lost; this counts as a death only if just one of them had tasks. If one
     * task was running when three such jobs were lost, new jobs of the pool hold one worker each,
     * so that a task that ends its job is found. */
    int workers_per_job;
    fiber_pool_init_fn init; /* may be NULL */
    const void *init_arg;
    size_t init_len;
    uint64_t tasks_per_child; /* a worker is replaced after so many tasks; 0: never */
    int serve;   /* nonzero: job.command is a program of its own that calls fiber_serve() */
    int idle_ms; /* autoscale: a worker above min that was idle for so long is stopped; 0: 2000 */
};

/* Opens a pool: starts min workers in the background, and more, up to max, when the backlog needs
 * them. The pool accepts tasks at once. `opts` may be NULL. */
FIBER_API int fiber_pool_open(struct fiber_pool **pool, const struct fiber_pool_options *opts);
/* Sets the number of workers, which is fixed from then on. Missing workers are started at once;
 * surplus workers finish their tasks before they end. */
FIBER_API int fiber_pool_resize(struct fiber_pool *pool, int workers);
/* Lets the pool choose its number of workers, from min to max, by its backlog. */
FIBER_API int fiber_pool_autoscale(struct fiber_pool *pool, int min, int max);
/* Waits until all tasks of the pool are done. -ETIMEDOUT: some tasks are not done. */
FIBER_API int fiber_pool_drain(struct fiber_pool *pool, int timeout_ms);
/* Waits until that many workers have joined and run their initializers. -ETIMEDOUT: fewer have.
 * -ECHILD: workers cannot be started; fiber_last_error() says why. -ESHUTDOWN: the pool was
 * closed. */
FIBER_API int fiber_pool_wait_workers(struct fiber_pool *pool, int workers, int timeout_ms);
/* Ends the workers. Tasks that are not done fail with -ECANCELED. Results stay readable until they
 * are closed. NULL is fine. In a callback it does not wait for the end. */
FIBER_API void fiber_pool_close(struct fiber_pool *pool);

/* Called on an internal thread, or within a call of the program that ends tasks (cancel, close),
 * one call at a time for each pool. It must be short, and may submit, cancel, and close results and
 * the pool. It may not wait: where pool calls would wait, they return -EDEADLK. When
 * fiber_result_wait() or fiber_result_close() returns, all callbacks have returned, so `user` may
 * be freed then. `code` 0: data is the result (valid during the call); negative: `data` is the text
 * of the error. */
typedef void (*fiber_task_done_fn)(void *user, size_t index, int code, const void *data,
                                   size_t len);
typedef void (*fiber_progress_fn)(void *user, size_t done, size_t total);

struct fiber_map_options {
    size_t size;  /* sizeof(struct fiber_map_options) */
    int priority; /* higher first */
    /* The number of times that a task is started again after its worker died, or FIBER_RETRIES_*;
     * 0: as configured. A task that was running when three workers died is not started again,
     * however many retries are left. */
    int retries;
    /* per task, from its start in the worker: -ETIMEDOUT, the worker is replaced; 0: none */
    int timeout_ms;
    /* for all tasks together, from the call on, whether they have started or not: tasks that are
     * not done in this time are cancelled and fail with -ETIMEDOUT; 0: none */
    int map_timeout_ms;
    size_t chunk;               /* a hint for tasks per message; 0: measured */
    fiber_task_done_fn on_done; /* for each task, result or error; may be NULL */
    /* after messages of results, with the newest figures; may be NULL */
    fiber_progress_fn on_progress;
    void *user;
    /* Input that all tasks of the map share, such as the parameters of a model; NULL: none. The
     * pool copies the input, and sends it once to each worker (with workers_per_job once to each
     * host) before the worker's first task of the map. Maps of one function with equal bytes share
     * the input. The pool measures task times separately for each function and common input. */
    const void *common;
    size_t common_len;
};

/* Gets, in a task, the common input of its map. The address of the input is the same for all tasks
 * of the map; *id is a number that this process never uses for another input. Only the thread that
 * runs the task may call. Returns the address of the input; NULL if the map has none. */
FIBER_API const void *fiber_task_common(size_t *len, uint64_t *id);

/* Interrupts the task that the main thread of a worker runs. It is called on an internal thread and
 * must not block; the task may have ended meanwhile. */
typedef void (*fiber_cancel_fn)(void *user);
/* Sets the function that interrupts a task of this worker: fn is called each time the running task
 * is cancelled. If the task has not ended within `grace` after that, its worker is ended and
 * replaced by another one. NULL, the default: nothing interrupts a task, but the task may check
 * fiber_reply_cancelled(). The setting applies to the whole process; any thread may call. Returns
 * 0; -EPERM in a fork() child. */
FIBER_API int fiber_task_on_cancel(fiber_cancel_fn fn, void *user);

/* Runs fn over an array and waits: n inputs of in_size bytes each give n outputs of out_size bytes
 * each, in the same order. If a task fails, the other tasks are still done. If tasks failed, the
 * call returns the negative code of the first of them, in the order of the inputs, with its text in
 * fiber_last_error(). -EMSGSIZE: a task's result has another size. -EOWNERDEAD: a task's worker
 * died, and the task is not tried again. -ETIMEDOUT: a task, or the map, took longer than `opts`
 * allows. -ECHILD: workers cannot be started. -ESHUTDOWN: the pool was closed. */
FIBER_API int fiber_pool_map(struct fiber_pool *pool, fiber_task_fn fn, const void *in,
                             size_t in_size, void *out, size_t out_size, size_t n,
                             const struct fiber_map_options *opts);
/* Begins fiber_pool_map() and returns at once. `in` and `out` must stay valid until the result is
 * done or closed. */
FIBER_API int fiber_pool_map_array(struct fiber_pool *pool, fiber_task_fn fn, const void *in,
                                   size_t in_size, void *out, size_t out_size, size_t n,
                                   const struct fiber_map_options *opts,
                                   struct fiber_result **result);
/* Begins fn over n byte strings, each with a result of any length. The array and its bytes must
 * stay valid until the result is done. */
FIBER_API int fiber_pool_map_async(struct fiber_pool *pool, fiber_task_fn fn,
                                   const struct fiber_bytes *in, size_t n,
                                   const struct fiber_map_options *opts,
                                   struct fiber_result **result);
/* Runs one task and waits; `out` may be NULL and belongs to the caller. If the task fails, the call
 * returns its code (-EIO for a positive one), with its text in fiber_last_error(). */
FIBER_API int fiber_pool_apply(struct fiber_pool *pool, fiber_task_fn fn, const void *in,
                               size_t len, struct fiber_bytes *out);
/* Begins one task and returns at once. `in` is copied. */
FIBER_API int fiber_pool_apply_async(struct fiber_pool *pool, fiber_task_fn fn, const void *in,
                                     size_t len, const struct fiber_map_options *opts,
                                     struct fiber_result **result);

/* Waits until every task is done. -ETIMEDOUT: some are not. */
FIBER_API int fiber_result_wait(struct fiber_result *r, int timeout_ms);
/* Waits until one task is done. -ETIMEDOUT: the task is not done. -ENOENT: there is no task with
 * that index. */
FIBER_API int fiber_result_wait_task(struct fiber_result *r, size_t index, int timeout_ms);
/* Gets a descriptor to wait for the end of all tasks; see fiber_wait_any(). Returns the
 * descriptor. */
FIBER_API int fiber_result_fd(struct fiber_result *r);
/* Gets the result of a task that is done, without copying: *data stays valid until the result is
 * closed; for maps over arrays it points into `out`. If the task failed, the call returns its
 * negative code, with its text in *data and in fiber_last_error(). -EAGAIN: the task is not
 * done. */
FIBER_API int fiber_result_get(struct fiber_result *r, size_t index, const void **data,
                               size_t *len);
/* Counts the tasks of a result. Returns the number. */
FIBER_API size_t fiber_result_count(struct fiber_result *r);
/* Counts the tasks that are done, with a result or an error. Returns the number. */
FIBER_API size_t fiber_result_done(struct fiber_result *r);
/* Finds the first error, in the order of the tasks; *index (may be NULL) is the index of the task.
 * Returns the negative code of that task; 0 if there is no error. */
FIBER_API int fiber_result_error(struct fiber_result *r, size_t *index);
/* Cancels the tasks that are not done: they fail with -ECANCELED. A running task is notified by
 * fiber_reply_cancelled(), and its result is dropped. */
FIBER_API int fiber_result_cancel(struct fiber_result *r);
/* Cancels one task, as fiber_result_cancel() cancels all. -EALREADY: the task is done. -ENOENT:
 * there is no task with that index. */
FIBER_API int fiber_result_cancel_task(struct fiber_result *r, size_t index);
/* Frees the handle, and cancels the tasks that are not done. NULL is fine. */
FIBER_API void fiber_result_close(struct fiber_result *r);

#define FIBER_IMAP_UNORDERED 1

/* Gets the next input. Returns 1 with the bytes in *in (copied before the next call), 0 at the end,
 * or a negative code: an error that ends the iteration, as an input that is too long does. Called
 * from fiber_imap_next(), on the thread of its caller. */
typedef int (*fiber_source_fn)(void *user, struct fiber_bytes *in);

/* Begins fn over a lazy source. At most `window` inputs are taken from the source whose results are
 * not yet handed out; 0: four for each worker. `flags`: 0, results come in the order of the source;
 * FIBER_IMAP_UNORDERED, in the order in which they are done. */
FIBER_API int fiber_pool_imap(struct fiber_pool *pool, fiber_task_fn fn, fiber_source_fn source,
                              void *user, size_t window, unsigned flags,
                              const struct fiber_map_options *opts, struct fiber_imap **it);
/* Waits for the next result; *out belongs to the caller, and *index (may be NULL) is its place in
 * the source. If the task failed, the call returns its code, with its text in fiber_last_error(),
 * and the next call continues with the next task. Returns 1 with a result, 0 at the end.
 * -ETIMEDOUT: there is no result yet. */
FIBER_API int fiber_imap_next(struct fiber_imap *it, size_t *index, struct fiber_bytes *out,
                              int timeout_ms);
/* Frees the iteration, and cancels its tasks that are not done. NULL is fine. */
FIBER_API void fiber_imap_close(struct fiber_imap *it);

/* A list of tasks of one function that grows while it runs. Tasks that are put while the workers
 * are busy travel together. fiber_pool_take() takes the results of all streams of a pool. */
struct fiber_stream;

/* Opens a stream. `user` comes with each result that fiber_pool_take() returns. `opts` may be NULL;
 * its on_done and on_progress must be NULL. -ESHUTDOWN: the pool was closed. */
FIBER_API int fiber_stream_open(struct fiber_stream **stream, struct fiber_pool *pool,
                                fiber_task_fn fn, const struct fiber_map_options *opts, void *user);
/* Adds n tasks, all or none, and returns without waiting. Their inputs are copied. *first (may be
 * NULL) is the index of the first task; the others follow it. -ESHUTDOWN: the pool was closed.
 * -ECHILD: the workers could not be started, and all tasks of the stream have failed; a new stream
 * tries again. */
FIBER_API int fiber_stream_put(struct fiber_stream *stream, const struct fiber_bytes *in, size_t n,
                               uint64_t *first);
/* Cancels one task: its result is -ECANCELED. -EALREADY: the task is done. -ENOENT: there is no
 * task with that index. */
FIBER_API int fiber_stream_cancel(struct fiber_stream *stream, uint64_t index);
/* Frees the handle, and cancels the tasks that are not done. Results that were not taken are freed,
 * and cannot be taken any more. NULL is fine. */
FIBER_API void fiber_stream_close(struct fiber_stream *stream);

/* A result of a stream. */
struct fiber_done {
    void *user;               /* as given to fiber_stream_open() */
    uint64_t index;           /* of the task */
    int code;                 /* 0: bytes are the result; negative: of the error, usually a text */
    struct fiber_bytes bytes; /* the caller's */
};

/* Takes up to max results of the pool's streams, in the order in which they arrived. Each result is
 * taken once. Any thread may call, even after fiber_pool_close() while a stream of the pool is
 * open. Returns the number of results. -ETIMEDOUT: there are no results. -ESHUTDOWN: there are no
 * results, and the pool was closed. */
FIBER_API int fiber_pool_take(struct fiber_pool *pool, struct fiber_done *out, int max,
                              int timeout_ms);
/* Gets a descriptor to wait for results of streams; see fiber_wait_any(). The descriptor also polls
 * readable once the pool was closed. Returns the descriptor. */
FIBER_API int fiber_pool_take_fd(struct fiber_pool *pool);

#define FIBER_POOL_BUCKETS 32

struct fiber_pool_stats {
    size_t size;                      /* sizeof(struct fiber_pool_stats), set by the caller */
    int workers, starting, busy;      /* joined; not yet joined; joined and with tasks */
    int target;                       /* the wanted number of workers */
    uint64_t submitted, done, failed; /* tasks; failed ones, as by a user error, are done, too */
    uint64_t waiting, running;        /* tasks now: not sent; sent to workers */
    uint64_t requeued, dropped;       /* tasks, after deaths; late or repeated results */
    uint64_t deaths, restarts;        /* workers that died; workers started in their place */
    uint64_t messages;                /* batches sent */
    /* Histograms: bucket i counts values of [2^i, 2^(i+1)) microseconds; the first bucket also
     * counts smaller values. */
    uint64_t task_us[FIBER_POOL_BUCKETS]; /* time in the task function, as the mean of its batch */
    /* for each batch: from sending it to its last result, minus the task time */
    uint64_t overhead_us[FIBER_POOL_BUCKETS];
};

struct fiber_worker_stats {
    char name[64];
    int64_t pid;
    uint64_t tasks; /* done */
    double busy;    /* seconds in the task function */
    double rtt;     /* seconds, of its job's last heartbeat; 0 before the first */
    int state;      /* 0 starting, 1 idle, 2 busy, 3 draining */
};

/* Gets the figures of the pool. `stats->size` must be set. */
FIBER_API int fiber_pool_stats(struct fiber_pool *pool, struct fiber_pool_stats *stats);
/* Gets the figures of up to max workers, one entry each. Returns the number of workers. */
FIBER_API int fiber_pool_worker_stats(struct fiber_pool *pool, struct fiber_worker_stats *out,
                                      int max);

/* Kills the worker with that name (struct fiber_worker_stats), on any host. Its tasks go to others,
 * as after any death, and another worker takes its place. -ESRCH: there is no worker with that name
 * now. */
FIBER_API int fiber_pool_worker_kill(struct fiber_pool *pool, const char *name);

/* Serves tasks with fn until the pool ends, in a worker program (fiber_pool_options.serve) whose
 * fiber_init() returned 1. */
FIBER_API int fiber_serve(fiber_task_fn fn);

/* ---- Ring ------------------------------------------------------------------------------------ */

/* A ring of `size` ranks that run the same program as equals. The ranks are placed on the hosts of
 * a backend and pinned. They get the variables with which MPI, torch.distributed and others find
 * each other, without mpirun, ssh or sshd. Each rank is an ordinary process with FIBER_RANK and
 * FIBER_SIZE (and the variables of the bootstraps) in its environment. */
struct fiber_ring;

/* The function of one rank. Returns the exit code of the rank, 0 to 255. Runs in a process of its
 * own, in fiber_init(). */
typedef int (*fiber_rank_fn)(int rank, int size, const void *arg, size_t len);

/* The consequence of a failed rank for the other ranks. */
enum fiber_ring_policy {
    FIBER_RING_ABORT = 0, /* they get SIGTERM and, after `grace`, SIGKILL */
    /* the same, then all start again; the program keeps its own checkpoints */
    FIBER_RING_RESTART = 1,
    FIBER_RING_SHRINK = 2, /* they are notified (MPI with fault tolerance sees it) and go on */
    /* the same, and a new rank with the number of the failed rank is started */
    FIBER_RING_REPLACE = 3,
};

#define FIBER_RING_TAG 1u       /* "[rank] " in front of each line */
#define FIBER_RING_TIMESTAMP 2u /* the time of day in front of each line */
/* report on standard error where each rank was bound, as read back from the kernel */
#define FIBER_RING_REPORT 4u
/* rank 0 reads our standard input; else every rank reads end of file */
#define FIBER_RING_STDIN 8u
#define FIBER_RING_QUIET 16u /* no summary of a failure on standard error */
/* rank pty_rank has a pseudo-terminal, connected to our standard input and output, for debuggers
 * and shells */
#define FIBER_RING_PTY 64u
#define FIBER_RING_OVERSUBSCRIBE 32u /* more ranks than processors without a warning */

/* One of several programs in a ring. */
struct fiber_ring_program {
    int count;                  /* ranks of it, at least 1 */
    const char *const *command; /* its argv, NULL-terminated */
    const char *const *env;     /* NAME=VALUE, behind the job's; NULL: none */
    const char *workdir;        /* NULL: the job's */
};

struct fiber_ring_options {
    size_t size; /* sizeof(struct fiber_ring_options) */
    /* of each agent: image, memory...; command, env and workdir are the ranks' */
    struct fiber_jobspec job;
    const char *backend; /* NULL: as configured */
    /* Ranks under one agent. 0: as in the allocation of this process (Slurm); else as many as the
     * smallest host has processors, if the backend knows that (slurm, kubernetes); else all */
    int per_node;
    /* Agents. On a cluster each agent has a host of its own; -EINVAL if there are fewer hosts. 0:
     * as many as the ranks need */
    int nodes;
    /* [nodes] the largest number of ranks on each node. The nodes are filled in this order, and a
     * node without ranks is not used. With the backend `command`, its hosts are the nodes, in their
     * order. NULL: per_node decides */
    const int *slots;
    enum fiber_ring_policy on_failure;
    /* of the ring, or of each rank with REPLACE; 0: 3. Losses that the cluster causes (eviction,
     * preemption, a lost node) are counted separately, up to 100. If an agent could not be started
     * again, a restart of all ranks waits: 1 s, then 2 s, up to 16 s */
    int max_restarts;
    int timeout_ms;                   /* for the whole run; 0: none */
    int grace_ms;                     /* from SIGTERM to SIGKILL; 0: as configured (grace) */
    const char *bind_to;              /* core hwthread l3 numa package none; NULL: chosen */
    const char *map_by;               /* compact spread core l3 numa package gpu; NULL: compact */
    int cpus_per_rank, gpus_per_rank; /* 0: as in the allocation; else chosen, and none */
    unsigned flags;                   /* FIBER_RING_* */
    /* NULL; or a directory, made if it is not there: each rank's output also goes to RANK.out and
     * RANK.err in DIR/<first 8 digits of the run's id>, and DIR/latest is a link to that directory;
     * or, with a %, the name of a file for each rank: %t and %r are the rank, %h its host, %j the
     * run, %% a percent sign */
    const char *output_dir;
    /* Several programs in one ring, in the order of their ranks; NULL: one program. MPI_APPNUM
     * (FIBER_APPNUM without MPI) is the index of a rank's program, and FIBER_APP_SIZES, as in
     * "1,8", has the number of ranks of each program. The ring's size is the sum of their counts,
     * and job.command is NULL */
    const struct fiber_ring_program *programs;
    int nprograms; /* 0: one */
    int pty_rank;  /* of FIBER_RING_PTY */
};

/* Starts `size` ranks of fn(arg) or, if fn is NULL, of opts->job.command or opts->programs. The
 * call returns at once; the start continues in the background. The output of the ranks appears on
 * our standard output and error in whole lines. `opts` may be NULL if fn is not. */
FIBER_API int fiber_ring_start(struct fiber_ring **ring, int size, fiber_rank_fn fn,
                               const void *arg, size_t len, const struct fiber_ring_options *opts);
/* Waits until the ring has ended. -ETIMEDOUT: the ring has not ended. */
FIBER_API int fiber_ring_wait(struct fiber_ring *ring, int timeout_ms);
/* Stores in *code 0 if every rank ended well, else the exit code of the rank that failed first: 128
 * + N if signal N ended it, 125 if it could not be started; 124 if timeout_ms was over. -EAGAIN:
 * the ring has not ended. */
FIBER_API int fiber_ring_exitcode(struct fiber_ring *ring, int *code);
/* Describes what failed first, where, why, and what to try, in several lines for people. Returns a
 * text that is valid until fiber_ring_close(); "" if all went well. */
FIBER_API const char *fiber_ring_report(struct fiber_ring *ring);
/* Gets a descriptor that polls readable once the ring has ended. The descriptor belongs to Fiber:
 * do not read or close it. Returns the descriptor. */
FIBER_API int fiber_ring_sentinel(struct fiber_ring *ring);
/* Sends a signal to every live rank. */
FIBER_API int fiber_ring_signal(struct fiber_ring *ring, int signal);
/* Sends a signal to one rank, on any host. -ESRCH: there is no rank with that number, or the ring
 * has ended. */
FIBER_API int fiber_ring_signal_rank(struct fiber_ring *ring, int rank, int signal);
/* Ends the ring as a failure does: the ranks get SIGTERM and, if they have not ended after the
 * grace, SIGKILL. */
FIBER_API int fiber_ring_stop(struct fiber_ring *ring);
/* Frees the handle, and kills the running ranks. NULL is fine. */
FIBER_API void fiber_ring_close(struct fiber_ring *ring);
/* Starts a ring, waits for its end and closes it. Returns the exit code of the ring, or a negative
 * errno when it could not be started. */
FIBER_API int fiber_ring_run(int size, fiber_rank_fn fn, const void *arg, size_t len,
                             const struct fiber_ring_options *opts);

/* Collectives, for ranks that run a function of fiber_ring_start() and have no MPI. Every rank
 * calls the same collectives in the same order, with the same sizes. Collectives go through the
 * launcher, so use them for occasional values, not for gradients: with 64 ranks a collective takes
 * about as long as 64 messages. A rank runs one collective at a time; its other threads wait. After
 * a collective has failed, none succeeds before the ring starts again (FIBER_RING_RESTART); with
 * SHRINK and REPLACE no collective works after a death.
 *
 * -ETIMEDOUT: not all ranks have called; -ECONNABORTED: another rank has ended, or timed out;
 * -EINVAL: the ranks do not make the same call; -EMSGSIZE: the data is longer than max_message;
 * -EPIPE: the launcher is gone; -EPERM: this process is not a rank that runs a function. */
enum fiber_ring_type { FIBER_RING_INT64 = 1, FIBER_RING_DOUBLE = 2 };
enum fiber_ring_op { FIBER_RING_SUM = 1, FIBER_RING_MIN = 2, FIBER_RING_MAX = 3 };

/* Waits, in a rank, until every rank is in this call. -ETIMEDOUT: some are not. */
FIBER_API int fiber_ring_barrier(int timeout_ms);
/* Copies len bytes from rank `root` to `data` of every other rank. -ETIMEDOUT: some ranks have not
 * made this call. */
FIBER_API int fiber_ring_broadcast(void *data, size_t len, int root, int timeout_ms);
/* Sets data[i], in every rank, to the sum, the minimum or the maximum of data[i] of all ranks, for
 * n elements of 8 bytes. A sum is built in the order of the ranks, so it is the same each time, and
 * wraps around for int64_t. A NaN makes all three NaN. -ETIMEDOUT: some ranks have not called. */
FIBER_API int fiber_ring_allreduce(void *data, size_t n, enum fiber_ring_type type,
                                   enum fiber_ring_op op, int timeout_ms);

struct fiber_rank_stats {
    int rank;
    int state; /* 0 starting, 1 running, 2 ended */
    int code;  /* once it has ended: exit code or -signal */
    int restarts;
    int64_t pid; /* on its host */
    char host[64];
    char cpus[64];   /* where it is bound, "" when it is not */
    char how[32];    /* the bootstrap that it met: "PMIx", "PMI-1", "TCPStore"; "" when none yet */
    double cpu;      /* seconds of processor time, at the last look */
    uint64_t memory; /* resident bytes, at the last look */
};

/* Gets the figures of up to max ranks, one entry each. Returns the number of ranks. */
FIBER_API int fiber_ring_stats(struct fiber_ring *ring, struct fiber_rank_stats *out, int max);

/* ---- Waiting for several things -------------------------------------------------------------- */

/* Something to wait for: one of the handles is set. An entry without a handle is ignored. */
struct fiber_wait {
    struct fiber_process *process; /* the process has ended */
    struct fiber_ring *ring;       /* the ring has ended */
    struct fiber_queue *queue;     /* there is a message, or none will come any more */
    struct fiber_pipe *pipe;       /* the same, for an end that receives */
    struct fiber_result *result;   /* all tasks are done, and the callbacks have returned */
    struct fiber_future *future;   /* there is an answer, or the manager is gone */
    int ready;                     /* set by the call: 1 or 0 */
};

/* Waits until at least one of n things is ready. Any thread may call, and several threads may wait
 * for the same thing. Returns the number of ready things. -ETIMEDOUT: none is ready. -EINVAL: no
 * entry has a handle.
 *
 * A program with its own loop (poll, epoll, libuv) gets descriptors instead, from
 * fiber_process_sentinel(), fiber_ring_sentinel(), fiber_queue_fd(), fiber_pipe_fd(),
 * fiber_result_fd(), fiber_future_fd() and fiber_pool_take_fd(), each of which returns a negative
 * errno on failure. Such a descriptor
 *  - polls readable (POLLIN, EPOLLIN, UV_READABLE) while the call to get, receive or wait would not
 *    wait, even if that call would return an error such as -EPIPE;
 *  - belongs to Fiber: do not read, write or close it. It stays the same until the handle is
 *    closed; remove it from the loop before that;
 *  - may be readable although there is nothing, because another thread or process was faster. So
 *    call with a timeout of 0, and wait again on -ETIMEDOUT. All processes that watch a queue wake
 *    up for a message, and one of them gets it;
 *  - is made on the first request; without a request it costs nothing. While a consumer watches a
 *    queue, the other consumers fetch each message when they need it, not ahead. */
FIBER_API int fiber_wait_any(struct fiber_wait *things, int n, int timeout_ms);

#ifdef __cplusplus
}
#endif
#endif
