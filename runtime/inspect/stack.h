/* stack.h - the current state of processes: their threads' state, system call and stack, for `fiber
 * stack`.
 *
 * A visitor of a process (exec_server.h, message.h: STACK) is told of the processes there: of the
 * visited one and of all that it has started. Facts come from /proc (stack_proc.c), frames from the
 * program `fiber-stack` (stack_frames.c), which stands beside Fiber's modules: a program of its
 * own, since a process cannot look at itself, and since code that stops threads of others and reads
 * their memory must not be able to harm us. It stops one thread at a time for as long as it takes
 * to walk its stack, by PTRACE_SEIZE: should it die, the kernel lets that thread go on.
 *
 * The answer's data is one record for each process; fiber-stack writes records, too, of which only
 * pid, why, and the threads' tid, why, cut and frames count:
 *
 *     process   u32 length, u32 pid, u32 parent, i32 rank or -1, u8 1: the visited one, u8 state,
 *               u64 cpu ms, str program, str why, u16 n, n threads
 *     thread    u32 tid, u8 state, u64 cpu ms, u8 1: the stack goes on, str name, str wchan, str
 *               call, str why, u16 n, n frames
 *     frame     u64 bytes from the beginning of the function, str function, str module, str source
 *
 * A state is a letter as in /proc: R S D T t Z I. Where there are no frames, why is a sentence.
 *
 * This part is pure but for fbr_stack_look() and fbr_stack_serve().
 *
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef FBR_STACK_H
#define FBR_STACK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "runtime/base/buf.h"
#include "runtime/base/error.h"

#define FBR_STACK_FRAMES 64       /* of a thread; what is behind them is cut off */
#define FBR_STACK_THREADS 512     /* of a process */
#define FBR_STACK_PROCESSES 4096  /* of a visited one */
#define FBR_STACK_MAX (64u << 20) /* bytes of an answer */
#define FBR_STACK_RECORD (32u << 20)
#define FBR_STACK_PROGRAM "fiber-stack"

struct fbr_stack_frame {
    uint64_t offset;
    char function[128]; /* "": it is not known */
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
    struct fbr_stack_thread *threads; /* the first is the main one */
    uint32_t nthreads;
};

/* ---- Records ---- */

void fbr_stack_put(struct fbr_buf *b, const struct fbr_stack_process *p);
/* The next one: 1 and *p, which fbr_stack_fini() frees; 0: that was all; -EBADMSG, -ENOMEM. */
int fbr_stack_get(struct fbr_cur *c, struct fbr_stack_process *p);
void fbr_stack_fini(struct fbr_stack_process *p);
/* One more, zeroed; NULL without memory, or when there are too many. */
struct fbr_stack_thread *fbr_stack_add_thread(struct fbr_stack_process *p);
struct fbr_stack_frame *fbr_stack_add_frame(struct fbr_stack_thread *t);
/* Takes the frames of the second over into the first, thread by thread. */
void fbr_stack_take_frames(struct fbr_stack_process *to, struct fbr_stack_process *from);

/* ---- /proc ---- */

/* The text of a stat file: false when it is none. */
struct fbr_stack_stat {
    uint32_t pid, parent;
    char name[32], state;
    uint64_t ticks; /* of processor time */
};
bool fbr_stack_stat(const char *text, struct fbr_stack_stat *s);
/* The text of a syscall file, as a name: "futex"; "" when it is in none, or cannot be told. */
void fbr_stack_call(const char *text, char *out, size_t size);

struct fbr_stack_list {
    struct fbr_stack_process *all;
    size_t count;
};

/* That process and all that descend from it, without frames; proc is "/proc". */
int fbr_stack_look(const char *proc, uint32_t pid, struct fbr_stack_list *l, struct fbr_error *err);
void fbr_stack_list_fini(struct fbr_stack_list *l);

/* ---- Serving ---- */

/* Looks at this process and its own, and adds a record for each. Takes seconds, 40 at most; for a
 * thread of its own. */
int fbr_stack_serve(struct fbr_buf *out, struct fbr_error *err);

#endif
