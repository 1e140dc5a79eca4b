/* stack.h - the current state of processes: their threads' state, system call and stack, for `fiber
 * stack`.
 *
 * An exec client of a process (exec_server.c, message.h: STACK) gets a report of that target
 * process and of all processes that it has started. The facts come from /proc (stack_proc.c), the
 * frames from the program `fiber-stack` (stack_frames.c), which is installed next to Fiber's
 * modules. It is a separate program, because a process cannot trace itself, and because code that
 * stops threads of other processes and reads their memory must not be able to harm us. It stops one
 * thread at a time, by PTRACE_SEIZE, for as long as the walk of the thread's stack takes; if
 * fiber-stack dies, the kernel lets that thread go on.
 *
 * The answer's data is one record for each process. fiber-stack writes records, too; of those only
 * pid and why, and tid, why, cut and frames of the threads, count:
 *
 *     process   u32 length, u32 pid, u32 parent, i32 rank or -1, u8 1: the target process, u8
 *               state, u64 cpu ms, str program, str why, u16 n, n threads
 *     thread    u32 tid, u8 state, u64 cpu ms, u8 1: the stack goes on, str name, str wchan, str
 *               call, str why, u16 n, n frames
 *     frame     u64 bytes from the beginning of the function (its address, if the function is
 *               unknown), str function, str module, str source
 *
 * A state is a letter as in /proc: R S D T t Z I. If there are no frames, why is a sentence; in a
 * record of fiber-stack it may be an errno in decimal.
 *
 * All functions are pure, except fbr_stack_look(), fbr_stack_usage() and fbr_stack_serve().
 *
 * SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <sys/types.h>

#include "runtime/base/buf.h"
#include "runtime/base/error.h"

#define FBR_STACK_FRAMES 64       /* of a thread; further frames are cut off */
#define FBR_STACK_THREADS 512     /* of a process */
#define FBR_STACK_PROCESSES 4096  /* in an answer */
#define FBR_STACK_MAX (64u << 20) /* bytes of an answer */
#define FBR_STACK_RECORD (32u << 20)
#define FBR_STACK_PROGRAM "fiber-stack"

struct fbr_stack_frame {
    uint64_t offset;
    char function[128]; /* "": unknown */
    char module[64];    /* the file's name */
    char source[96];    /* "file.c:12", or "" */
};

struct fbr_stack_thread {
    uint32_t tid;
    char state;
    uint64_t cpu_ms;
    bool cut;
    char name[32], wchan[64], call[32];
    char why[256];
    struct fbr_stack_frame *frames; /* innermost first */
    uint32_t nframes;
};

struct fbr_stack_process {
    uint32_t pid, parent;
    int32_t rank;
    bool visited;
    char state;
    uint64_t cpu_ms;
    char program[64];
    char why[512];
    struct fbr_stack_thread *threads; /* the first is the main thread */
    uint32_t nthreads;
};

/* ---- Records ---- */

void fbr_stack_put(struct fbr_buf *b, const struct fbr_stack_process *p);
/* Reads the next record. 1: *p, which fbr_stack_fini() frees; 0: there are no more; -EBADMSG,
 * -ENOMEM. */
int fbr_stack_get(struct fbr_cur *c, struct fbr_stack_process *p);
void fbr_stack_fini(struct fbr_stack_process *p);
/* Add a zeroed element. NULL: out of memory, or there are too many. */
struct fbr_stack_thread *fbr_stack_add_thread(struct fbr_stack_process *p);
struct fbr_stack_frame *fbr_stack_add_frame(struct fbr_stack_thread *t);
/* Moves the frames of `from` to `to`, thread by thread. */
void fbr_stack_take_frames(struct fbr_stack_process *to, struct fbr_stack_process *from);

/* ---- /proc ---- */

/* The content of a stat file. */
struct fbr_stack_stat {
    uint32_t pid, parent;
    char name[32], state;
    uint64_t ticks; /* of processor time */
    uint64_t pages; /* that are resident */
};
bool fbr_stack_stat(const char *text, struct fbr_stack_stat *s); /* false: malformed */
/* Stores the processor time of all threads of a process in nanoseconds, and its resident bytes.
 * False: there is no such process. Any thread. */
bool fbr_stack_usage(pid_t pid, uint64_t *cpu_ns, uint64_t *resident);
/* Stores the name of the system call in the text of a syscall file: "futex"; "" if the thread is in
 * none, or the text names none. */
void fbr_stack_call(const char *text, char *out, size_t size);

struct fbr_stack_list {
    struct fbr_stack_process *all;
    size_t count;
};

/* Lists that process and all its descendants, without frames. `proc` is "/proc". */
int fbr_stack_look(const char *proc, uint32_t pid, struct fbr_stack_list *l, struct fbr_error *err);
void fbr_stack_list_fini(struct fbr_stack_list *l);

/* ---- Serving ---- */

/* Adds a record of this process and of each of its descendants. Takes seconds, 40 at most for each
 * run of fiber-stack; for a thread of its own. */
int fbr_stack_serve(struct fbr_buf *out, struct fbr_error *err);
