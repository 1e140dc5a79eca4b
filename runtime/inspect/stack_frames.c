/* stack_frames.c - the program fiber-stack: walks the stacks of the processes that its arguments
 * name.
 *
 * It writes one record for each process to standard output. It stops one thread at a time: seizes
 * it, interrupts it, and detaches when it has the addresses of its frames. It looks up the names
 * afterwards. A thread that gets a signal meanwhile gets that signal at the detach; a thread that
 * was stopped before stays stopped. A thread that does not stop, because the kernel holds it, is
 * left out; if it stops while others are walked, it is detached then. An alarm ends this program in
 * any case, and the kernel detaches all threads whenever the program ends.
 *
 * It reads only files of this host, and fetches nothing from elsewhere (debuginfod).
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <ctype.h>
#include <dirent.h>
#include <elfutils/libdwfl.h>
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

#include "runtime/base/fds.h"
#include "runtime/inspect/stack.h"

#define STOP_MS 300      /* longest wait for a thread that waits for a device, maybe for ever */
#define STOP_MAX_MS 5000 /* longest wait for a thread that needs no more than a processor */
#define LIMIT_S 45       /* seconds until this program ends */

struct walk {
    uint64_t pc[FBR_STACK_FRAMES];
    bool exact[FBR_STACK_FRAMES]; /* pc is the instruction that runs, not a return address */
    uint32_t n;
    bool cut;
};

/* ---- One thread ---- */

static void detach(pid_t tid, int status)
{
    int signal = status >> 16 ? 0 : WSTOPSIG(status); /* an event of ptrace is not a signal */

    ptrace(PTRACE_DETACH, tid, NULL, (void *)(intptr_t)signal);
}

/* Detaches threads that have stopped too late. */
static void detach_late(void)
{
    int status;
    pid_t tid;

    while ((tid = waitpid(-1, &status, __WALL | WNOHANG)) > 0)
        if (WIFSTOPPED(status))
            detach(tid, status);
}

/* Whether a thread waits in the kernel where no signal wakes it. */
static bool waits_for_device(pid_t tid)
{
    char path[32], text[512], *behind;

    snprintf(path, sizeof(path), "/proc/%d/stat", (int)tid);
    fbr_fds_read_file(path, text, sizeof(text));
    behind = strrchr(text, ')'); /* the end of the thread's name */
    return !behind || !strncmp(behind, ") D", 3);
}

/* Waits for the thread to stop. Returns 0 and stores how it stopped; -ETIMEDOUT, -ESRCH. */
static int wait_stopped(pid_t tid, int *status)
{
    for (int ms = 0; ms < STOP_MAX_MS; ms++) {
        pid_t got = waitpid(tid, status, __WALL | WNOHANG);

        if (got == 0 && ms && ms % STOP_MS == 0 && waits_for_device(tid))
            break;
        if (got < 0 || (got == tid && !WIFSTOPPED(*status)))
            return -ESRCH;
        if (got == tid)
            return 0;
        poll(NULL, 0, 1);
    }
    return -ETIMEDOUT;
}

static int on_frame(Dwfl_Frame *state, void *arg)
{
    struct walk *w = arg;
    Dwarf_Addr pc;
    bool exact;

    if (!dwfl_frame_pc(state, &pc, &exact))
        return DWARF_CB_ABORT;
    if (w->n == FBR_STACK_FRAMES) {
        w->cut = true;
        return DWARF_CB_ABORT;
    }
    w->pc[w->n] = pc;
    w->exact[w->n++] = exact;
    return DWARF_CB_OK;
}

static void walk_thread(Dwfl *dwfl, pid_t tid, struct walk *w, char *why, size_t size)
{
    int status = 0, rc;

    detach_late();
    if (ptrace(PTRACE_SEIZE, tid, NULL, NULL) < 0) {
        snprintf(why, size, "%d", errno); /* stack_serve.c makes a sentence of it */
        return;
    }
    ptrace(PTRACE_INTERRUPT, tid, NULL, NULL);
    rc = wait_stopped(tid, &status);
    if (rc < 0) {
        snprintf(why, size, "%s",
                 rc == -ESRCH
                     ? "it has ended"
                     : "it does not stop: it waits in the kernel, for example in a file system");
        return;
    }
    if (dwfl_getthread_frames(dwfl, tid, on_frame, w) != 0 && !w->n)
        snprintf(why, size, "its stack cannot be read: %.200s", dwfl_errmsg(-1));
    detach(tid, status);
}

/* ---- Names ---- */

static void name_frame(Dwfl *dwfl, uint64_t pc, bool exact, struct fbr_stack_frame *f)
{
    uint64_t at = exact || !pc ? pc : pc - 1; /* within the call */
    Dwfl_Module *module = dwfl_addrmodule(dwfl, at);
    const char *name, *file = NULL, *source;
    GElf_Off offset = 0;
    Dwfl_Line *line;
    GElf_Sym symbol;
    int number = 0;

    f->offset = pc;
    if (!module)
        return;
    dwfl_module_info(module, NULL, NULL, NULL, NULL, NULL, &file, NULL);
    snprintf(f->module, sizeof(f->module), "%s", file ? basename(file) : "");
    name = dwfl_module_addrinfo(module, at, &offset, &symbol, NULL, NULL, NULL);
    if (!name)
        return;
    snprintf(f->function, sizeof(f->function), "%s", name);
    f->offset = offset + (pc - at);
    line = dwfl_module_getsrc(module, at);
    source = line ? dwfl_lineinfo(line, NULL, &number, NULL, NULL, NULL) : NULL;
    if (source)
        snprintf(f->source, sizeof(f->source), "%.80s:%d", basename(source), number);
}

/* ---- One process ---- */

static char no_path[] = "";
static char *debug_path = no_path;
static const Dwfl_Callbacks callbacks = {
    .find_elf = dwfl_linux_proc_find_elf,
    .find_debuginfo = dwfl_standard_find_debuginfo,
    .debuginfo_path = &debug_path,
};

static void look_at_thread(Dwfl *dwfl, struct fbr_stack_process *p, pid_t tid)
{
    struct fbr_stack_thread *t = fbr_stack_add_thread(p);
    struct walk w = {.n = 0};

    if (!t)
        return;
    t->tid = (uint32_t)tid;
    walk_thread(dwfl, tid, &w, t->why, sizeof(t->why));
    t->cut = w.cut;
    for (uint32_t i = 0; i < w.n; i++) {
        struct fbr_stack_frame *f = fbr_stack_add_frame(t);

        if (f)
            name_frame(dwfl, w.pc[i], w.exact[i], f);
    }
}

static void look_at(Dwfl *dwfl, struct fbr_stack_process *p)
{
    char path[64];
    struct dirent *e;
    DIR *d;

    snprintf(path, sizeof(path), "/proc/%u/task", p->pid);
    d = opendir(path);
    if (!d || dwfl_linux_proc_report(dwfl, (pid_t)p->pid) != 0 ||
        dwfl_report_end(dwfl, NULL, NULL) != 0)
        snprintf(p->why, sizeof(p->why), "%d", d ? EPERM : ESRCH);
    else if (dwfl_linux_proc_attach(dwfl, (pid_t)p->pid, true) != 0)
        snprintf(p->why, sizeof(p->why), "its stack cannot be read: %.200s", dwfl_errmsg(-1));
    else
        while ((e = readdir(d)))
            if (isdigit((unsigned char)e->d_name[0]))
                look_at_thread(dwfl, p, (pid_t)strtol(e->d_name, NULL, 10));
    if (d)
        closedir(d);
}

int main(int argc, char **argv)
{
    unsetenv("DEBUGINFOD_URLS");
    alarm(LIMIT_S);
    for (int i = 1; i < argc; i++) {
        struct fbr_stack_process p = {.pid = (uint32_t)strtoul(argv[i], NULL, 10), .rank = -1};
        Dwfl *dwfl = dwfl_begin(&callbacks);
        struct fbr_buf b = {0};

        if (dwfl)
            look_at(dwfl, &p);
        else
            snprintf(p.why, sizeof(p.why), "its stack cannot be read: %.200s", dwfl_errmsg(-1));
        fbr_stack_put(&b, &p);
        if (b.failed || fbr_fds_write(STDOUT_FILENO, b.data, b.len) < 0)
            return 1;
        fbr_buf_fini(&b);
        fbr_stack_fini(&p);
        dwfl_end(dwfl);
    }
    return 0;
}
