/* spawn.c - starts a program by clone and exec.
 *
 * The child runs in our memory, on a stack of its own, while our thread is suspended: the child may
 * only make system calls, and reports a failure by a variable of ours. posix_spawn cannot ask for
 * the death signal, which must be set in the child.
 *
 * A master of a thousand children has thousands of descriptors, and copying their table for each
 * child would cost more than the exec. So the child shares the table at first, and then copies only
 * its first few entries. The child's descriptors were put there before, in slots that are taken
 * early, while low numbers are free. Where close_range() does not work, on old kernels and in
 * containers that forbid it, the child gets a copy of the table from clone().
 *
 * Where pidfds do not work, on kernels before 5.4 and in containers that forbid them, a thread
 * waits for the end of each child.
 *
 * valgrind and qemu's emulation of another processor know clone() only as vfork() uses it, and make
 * a fork of that. The child's report is in memory that both share, so it arrives in either case.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "runtime/program/spawn.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/close_range.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "runtime/base/environ.h"
#include "runtime/base/fds.h"
#include "runtime/base/log.h"
#include "runtime/base/sync.h"

#define STACK (64 * 1024)
#define AS_VFORK (CLONE_VM | CLONE_VFORK | SIGCHLD)

/* Descriptors that reserve low numbers for the child's descriptors. */
static pthread_once_t slots_once = PTHREAD_ONCE_INIT;
static pthread_mutex_t slots_lock = PTHREAD_MUTEX_INITIALIZER; /* one spawn at a time */
static int slots[FBR_SPAWN_FDS];
static int clone_flags;
static bool under_valgrind;

/* The kernel does not know a call, or a container forbids it, if it does not say that the highest
 * number is no descriptor. */
static bool has_pidfds(void)
{
    siginfo_t none;

    return syscall(SYS_pidfd_send_signal, INT_MAX, 0, NULL, 0) < 0 && errno == EBADF &&
           waitid(P_PIDFD, INT_MAX, &none, WEXITED | WNOHANG) < 0 && errno == EBADF;
}

static void look_around(void)
{
    const char *preload = fbr_getenv("LD_PRELOAD"); /* the program may change its environment */

    under_valgrind = preload && strstr(preload, "vgpreload_");
    clone_flags = AS_VFORK;
    if (!under_valgrind && has_pidfds())
        clone_flags |= CLONE_PIDFD;
    if (!under_valgrind && syscall(SYS_close_range, ~0U, ~0U, 0) == 0) /* closes nothing */
        clone_flags |= CLONE_FILES;
    for (int i = 0; i < FBR_SPAWN_FDS; i++)
        slots[i] = open("/dev/null", O_RDWR | O_CLOEXEC);
}

/* Copies the child's descriptors into the slots. Slots are opened again if the program has closed
 * them, as some programs close unknown descriptors. */
static int fill_slots(const struct fbr_spawn *s)
{
    for (int i = 0; i < s->nfds; i++) {
        int fd = s->fds[i] >= 0 ? s->fds[i] : open("/dev/null", O_RDWR | O_CLOEXEC), rc;

        if (fd < 0)
            return -errno;
        rc = slots[i] < 0 ? fcntl(fd, F_DUPFD_CLOEXEC, 3) : dup3(fd, slots[i], O_CLOEXEC);
        if (s->fds[i] < 0)
            close(fd);
        if (rc < 0)
            return -errno;
        slots[i] = rc;
    }
    return 0;
}

static void empty_slots(void)
{
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);

    for (int i = 0; i < FBR_SPAWN_FDS && null >= 0; i++)
        if (slots[i] >= 0)
            dup3(null, slots[i], O_CLOEXEC);
    fbr_fds_close(null);
}

struct launch {
    const struct fbr_spawn *s;
    pid_t parent;
    struct rlimit descriptors; /* as they were before we raised ours; rlim_cur 0: not raised */
    volatile int code;         /* errno of the child's failed call, whose name is in step */
    const char *volatile step;
};

/* The child's functions share our memory, so a sanitizer must not take their steps for ours,
 * neither by instrumented code nor in a wrapped library function. */
#define IN_CHILD __attribute__((no_sanitize("thread", "address"), noinline))

IN_CHILD static int fail(struct launch *l, int code, const char *step)
{
    l->code = code;
    l->step = step;
    syscall(SYS_exit, 127);
    return 127;
}

/* The layout that getdents64() fills in; see getdents(2). */
struct entry {
    uint64_t ino;
    int64_t off;
    uint16_t len;
    uint8_t type;
    char name[];
};

/* Closes descriptors without close_range(): those that the program has opened for all its children.
 * valgrind's own descriptors are visible here, but cannot be closed. */
IN_CHILD static void close_from(int first)
{
    _Alignas(struct entry) char some[2048];
    int dir = (int)syscall(SYS_openat, AT_FDCWD, "/proc/self/fd", O_RDONLY | O_DIRECTORY);
    long n;

    while (dir >= 0 && (n = syscall(SYS_getdents64, dir, some, sizeof(some))) > 0)
        for (const char *at = some; at < some + n;) {
            const struct entry *e = (const struct entry *)(const void *)at;
            int fd = 0;

            for (const char *c = e->name; *c >= '0' && *c <= '9'; c++)
                fd = 10 * fd + (*c - '0');
            if (fd >= first && fd != dir)
                syscall(SYS_close, fd);
            at += e->len;
        }
    if (dir >= 0)
        syscall(SYS_close, dir);
}

/* Gives the child a table of its own, with the descriptors of the slots at 0, 1, ... and nothing
 * else. */
IN_CHILD static int place_fds(const struct fbr_spawn *s)
{
    int highest = 2, parked[FBR_SPAWN_FDS];

    for (int i = 0; i < FBR_SPAWN_FDS; i++)
        highest = slots[i] > highest ? slots[i] : highest;
    if ((clone_flags & CLONE_FILES) &&
        syscall(SYS_close_range, (unsigned)highest + 1, ~0U, CLOSE_RANGE_UNSHARE) < 0)
        return -errno;
    for (int i = 0; i < s->nfds; i++) {
        parked[i] = (int)syscall(SYS_fcntl, slots[i], F_DUPFD_CLOEXEC, highest + 1);
        if (parked[i] < 0)
            return -errno;
    }
    for (int i = 0; i < s->nfds; i++)
        if (syscall(SYS_dup3, parked[i], i, 0) < 0)
            return -errno;
    if (syscall(SYS_close_range, (unsigned)s->nfds, ~0U, 0) < 0 && !under_valgrind)
        close_from(s->nfds);
    return 0;
}

/* Memory policies: the numbers of linux/mempolicy.h, which the C library's headers do not have. */
#define POLICY_BIND 2

IN_CHILD static int bind_child(const struct fbr_spawn *s)
{
    if (s->cpus && syscall(SYS_sched_setaffinity, 0, s->cpus_len, s->cpus) < 0)
        return -errno;
    /* Containers mostly forbid this call (seccomp), and nodes may have lost their memory (EINVAL).
     * Memory then comes from the processors' own node as long as the node has some. */
    if (s->nodes && syscall(SYS_set_mempolicy, POLICY_BIND, &s->nodes, 64 + 1) < 0 &&
        errno != EPERM && errno != ENOSYS && errno != EINVAL)
        return -errno;
    return 0;
}

IN_CHILD static int child_main(void *arg)
{
    struct launch *l = arg;
    const struct fbr_spawn *s = l->s;
    const uint64_t zeros[4] = {0}; /* no signals; the kernel's struct sigaction with SIG_DFL */
    int rc;

    syscall(SYS_prctl, PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
    if (syscall(SYS_getppid) != l->parent)
        syscall(SYS_exit, 127);
    if (s->session)
        syscall(SYS_setsid);
    else
        syscall(SYS_setpgid, 0, 0);
    /* Yama lets only ancestors trace a process. This call also allows the other children of our
     * parent, which it starts for that purpose (stack.h). */
    syscall(SYS_prctl, PR_SET_PTRACER, (unsigned long)l->parent, 0, 0, 0);
    rc = place_fds(s);
    if (rc < 0)
        return fail(l, rc, "descriptors");
    if (s->terminal && syscall(SYS_ioctl, 0, TIOCSCTTY, 0) < 0)
        return fail(l, -errno, "terminal");
    rc = bind_child(s);
    if (rc < 0)
        return fail(l, rc, "binding to its processors");
    if (s->slack)
        syscall(SYS_prctl, PR_SET_TIMERSLACK, s->slack, 0, 0, 0);
    if (l->descriptors.rlim_cur)
        syscall(SYS_prlimit64, 0, RLIMIT_NOFILE, &l->descriptors, NULL);
    if (s->workdir && syscall(SYS_chdir, s->workdir) < 0)
        return fail(l, -errno, "working directory");
    syscall(SYS_rt_sigaction, SIGPIPE, zeros, NULL, sizeof(uint64_t));
    syscall(SYS_rt_sigaction, SIGXFSZ, zeros, NULL, sizeof(uint64_t));
    syscall(SYS_rt_sigaction, SIGCHLD, zeros, NULL, sizeof(uint64_t));
    syscall(SYS_rt_sigprocmask, SIG_SETMASK, zeros, NULL, sizeof(uint64_t));
    syscall(SYS_execve, s->file, s->argv, s->env);
    return fail(l, -errno, "exec");
}

/* The C library's own name for clone(), which sanitizers do not wrap: their wrapper takes the child
 * for a second copy of us. */
int __clone(int (*fn)(void *), void *stack, int flags, void *arg, ...);

/* Runs child_main; returns the pid, or a negative errno. Blocks all signals meanwhile, because none
 * of our handlers may run in the child, on our memory. */
static pid_t run_child(struct launch *l, int *pidfd)
{
    uint8_t *stack =
        mmap(NULL, STACK, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_STACK, -1, 0);
    /* at the end of the stack, which the child does not reach */
    struct launch *shared = (struct launch *)(void *)stack;
    sigset_t all, old;
    pid_t pid;

    if (stack == MAP_FAILED)
        return -errno;
    *shared = *l;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    pid = __clone(child_main, stack + STACK, clone_flags, shared, pidfd);
    if (pid < 0 && errno == EINVAL) { /* the first child under qemu: no pidfd is open yet */
        clone_flags = AS_VFORK;
        pid = __clone(child_main, stack + STACK, clone_flags, shared, pidfd);
    }
    if (pid < 0)
        pid = -errno;
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    *l = *shared;
    munmap(stack, STACK);
    return pid;
}

/* ---- Without pidfds ---- */

struct vigil {
    pid_t pid;
    int fd; /* closed when the process has ended */
};

static void *keep_vigil(void *arg)
{
    struct vigil v = *(struct vigil *)arg;
    siginfo_t info;

    free(arg);
    while (waitid(P_PID, (id_t)v.pid, &info, WEXITED | WNOWAIT) < 0 && errno == EINTR)
        continue;
    close(v.fd);
    return NULL;
}

/* Stands in for a pidfd: a descriptor that can be read when the process has ended. */
static int watch_child(pid_t pid, int *pidfd)
{
    struct vigil *v = malloc(sizeof(*v));
    int ends[2], rc;

    if (!v || pipe2(ends, O_CLOEXEC) < 0) {
        free(v);
        return -ENOMEM;
    }
    *v = (struct vigil){pid, ends[1]};
    rc = fbr_thread_start(NULL, keep_vigil, v);
    if (rc < 0) {
        close(ends[0]);
        close(ends[1]);
        free(v);
        return rc;
    }
    *pidfd = ends[0];
    return 0;
}

int fbr_spawn_signal(pid_t pid, int pidfd, int sig)
{
    int rc = clone_flags & CLONE_PIDFD ? (int)syscall(SYS_pidfd_send_signal, pidfd, sig, NULL, 0)
                                       : kill(pid, sig);

    return rc < 0 ? -errno : 0;
}

int fbr_spawn_wait(pid_t pid, int pidfd, siginfo_t *how, struct rusage *use)
{
    bool by_fd = clone_flags & CLONE_PIDFD;
    long rc;

    /* the system call: the C library's function does not return the usage */
    rc = TEMP_FAILURE_RETRY(
        syscall(SYS_waitid, by_fd ? P_PIDFD : P_PID, by_fd ? pidfd : pid, how, WEXITED, use));
    return rc < 0 ? -errno : 0;
}

/* Explains the kernel's error code to the person who typed the name. */
static const char *exec_hint(const struct fbr_spawn *s, int code)
{
    size_t len = strlen(s->file);
    bool python = len > 3 && !strcmp(s->file + len - 3, ".py");
    char path[4096];
    struct statvfs fs;
    struct stat st;
    int n;

    if (code == -ENOEXEC && python)
        return " (a Python script: put python3 before it)";
    if (code == -ENOEXEC)
        return " (it is neither a program for this machine nor a script that begins with #!)";
    n = snprintf(path, sizeof(path), "%s%s%s", s->file[0] != '/' && s->workdir ? s->workdir : "",
                 s->file[0] != '/' && s->workdir ? "/" : "", s->file);
    if (n >= (int)sizeof(path) || stat(path, &st) < 0)
        return strchr(s->file, ' ') ? " (the quotes make it one word; leave them out)" : "";
    if (S_ISDIR(st.st_mode))
        return " (it is a directory)";
    if (code == -EACCES && !(st.st_mode & 0111))
        return python ? " (a Python script: put python3 before it)"
                      : " (use chmod +x to make it executable)";
    if (code == -EACCES && statvfs(path, &fs) == 0 && (fs.f_flag & ST_NOEXEC))
        return " (its file system is mounted with noexec: move it to another)";
    return code == -ENOENT ? " (it exists, but the interpreter that it names does not)" : "";
}

/* Our own program by another name than /proc/self/exe. */
struct own {
    char exe[4096], library_path[4096], program[4096];
    char **argv; /* of the interpreter; NULL: it starts nothing */
};

/* Starts a file of a bundle (backends/image/bundle.h) as we were started: by the bundle's own
 * interpreter, because the image may have another C library, or none. The first argument is the
 * file, because dladdr() knows a program only by that. */
static int use_interpreter(struct fbr_spawn *s, struct own *own, int dir)
{
    char *file = strcmp(s->file, "/proc/self/exe") ? (char *)(uintptr_t)s->file : own->program;
    char *before[] = {
        own->exe, (char *)"--library-path", own->library_path, (char *)"--argv0", file, file};
    size_t more = sizeof(before) / sizeof(before[0]), n = 1;

    snprintf(own->library_path, sizeof(own->library_path), "%.*s/lib", dir, own->exe);
    snprintf(own->program, sizeof(own->program), "%.*s/bin/agent", dir, own->exe);
    while (s->argv[n])
        n++;
    own->argv = calloc(more + n, sizeof(*own->argv));
    if (!own->argv)
        return -ENOMEM;
    memcpy(own->argv, before, sizeof(before));
    memcpy(own->argv + more, s->argv + 1, (n - 1) * sizeof(*own->argv));
    s->argv = own->argv;
    s->file = own->exe;
    return 0;
}

/* Replaces a file of ours where the kernel cannot start it. It takes /proc/self/exe for valgrind's
 * program, but valgrind's readlink() returns the program that valgrind runs. In a bundle
 * /proc/self/exe is the interpreter. */
static int name_program(struct fbr_spawn *s, struct own *own)
{
    ssize_t n = readlink("/proc/self/exe", own->exe, sizeof(own->exe) - 1);
    bool is_self = !strcmp(s->file, "/proc/self/exe");
    int dir = (int)n - (int)strlen("/ld.so");

    if (n <= 0)
        return 0;
    own->exe[n] = '\0';
    if (dir > 0 && !strcmp(own->exe + dir, "/ld.so") &&
        (is_self || !strncmp(s->file, own->exe, (size_t)dir + 1)))
        return use_interpreter(s, own, dir);
    if (is_self && under_valgrind)
        s->file = own->exe;
    return 0;
}

int fbr_spawn(const struct fbr_spawn *wanted, pid_t *pid_out, int *pidfd_out, struct fbr_error *err)
{
    struct fbr_spawn copy = *wanted, *s = &copy;
    struct launch l = {.s = s, .parent = getpid()};
    struct own own;
    int pidfd = -1, rc;
    pid_t pid;

    pthread_once(&slots_once, look_around);
    own.argv = NULL;
    rc = name_program(s, &own);
    if (rc < 0)
        return fbr_fail(err, rc, "cannot start a process: %s", fbr_strerror(rc));
    if (getrlimit(RLIMIT_NOFILE, &l.descriptors) == 0)
        l.descriptors.rlim_cur = fbr_fds_before();
    pthread_mutex_lock(&slots_lock);
    rc = fill_slots(s);
    pid = rc < 0 ? rc : run_child(&l, &pidfd);
    empty_slots();
    pthread_mutex_unlock(&slots_lock);
    free(own.argv);
    if (pid < 0)
        return fbr_fail(err, pid, "cannot start a process: %s", fbr_strerror(pid));
    if (!(clone_flags & CLONE_PIDFD) && !l.code && (rc = watch_child(pid, &pidfd)) < 0) {
        kill(pid, SIGKILL);
        waitpid(pid, NULL, 0);
        return fbr_fail(err, rc, "cannot start a process: %s", fbr_strerror(rc));
    }
    if (l.code) {
        waitpid(pid, NULL, 0);
        fbr_fds_close(pidfd);
        if (!strcmp(l.step, "working directory"))
            return fbr_fail(err, l.code, "cannot start %s: its working directory %s: %s", s->file,
                            s->workdir, fbr_strerror(l.code));
        return fbr_fail(err, l.code, "cannot start %s: %s: %s%s", s->file, l.step,
                        fbr_strerror(l.code), strcmp(l.step, "exec") ? "" : exec_hint(s, l.code));
    }
    *pid_out = pid;
    *pidfd_out = pidfd;
    return 0;
}

/* ---- Leftover processes ---- */

/* Kills the processes of a session. The kernel reuses a free process id only after all others, so
 * an id still means the same process. */
static bool sweep_once(int dir, pid_t session)
{
    _Alignas(struct entry) char some[4096];
    bool found = false;
    long n;

    lseek(dir, 0, SEEK_SET);
    while ((n = syscall(SYS_getdents64, dir, some, sizeof(some))) > 0)
        for (const char *at = some; at < some + n;) {
            const struct entry *e = (const struct entry *)(const void *)at;
            pid_t pid = (pid_t)strtol(e->name, NULL, 10);

            if (pid > 1 && pid != session && getsid(pid) == session)
                found |= kill(pid, SIGKILL) == 0;
            at += e->len;
        }
    return found;
}

/* A killed process forks no more. A child that it forked meanwhile has a higher id, and is found
 * later, unless ids have just wrapped around: so there are two passes. No memory is needed. */
void fbr_spawn_sweep(pid_t leader)
{
    int dir = open("/proc", O_RDONLY | O_DIRECTORY | O_CLOEXEC);

    if (dir < 0)
        fbr_warn("cannot end the processes that process %d left: /proc: %s", (int)leader,
                 fbr_strerror(-errno));
    else if (sweep_once(dir, leader))
        sweep_once(dir, leader);
    fbr_fds_close(dir);
}

/* ---- Finding programs ---- */

static bool may_run(const char *path)
{
    struct stat st;

    return access(path, X_OK) == 0 && stat(path, &st) == 0 && S_ISREG(st.st_mode);
}

static int too_long(const char *name, char *path, size_t size, struct fbr_error *err)
{
    path[0] = '\0';
    return fbr_fail(err, -ENAMETOOLONG,
                    "the path of the program %.64s%s is longer than %zu characters; use a link "
                    "with a shorter path",
                    name, strlen(name) > 64 ? "..." : "", size - 1);
}

int fbr_spawn_find_in(char *const *env, const char *name, char *path, size_t size,
                      struct fbr_error *err)
{
    const char *found = fbr_environ_value(env, "PATH");
    const char *at = found ? found : "/usr/local/bin:/usr/bin:/bin";
    bool fits = true;

    if (strchr(name, '/')) {
        if (strlen(name) >= size)
            return too_long(name, path, size, err);
        snprintf(path, size, "%s", name);
        return may_run(path) ? 0 : -ENOENT;
    }
    for (; *at; at += *at == ':') {
        size_t n = strcspn(at, ":");
        int len = snprintf(path, size, "%.*s/%s", (int)n, at, name);

        if (*at == '/' && (size_t)len >= size)
            fits = false;
        else if (*at == '/' && may_run(path))
            return 0;
        at += n;
    }
    return fits ? -ENOENT : too_long(name, path, size, err);
}

int fbr_spawn_find(const char *name, char *path, size_t size, struct fbr_error *err)
{
    return fbr_spawn_find_in(fbr_environ(), name, path, size, err);
}

int fbr_spawn_own_path(char *path, size_t size, struct fbr_error *err)
{
    ssize_t n = readlink("/proc/self/exe", path, size - 1);

    path[n < 0 ? 0 : n] = '\0';
    return n < 0 ? fbr_fail(err, -errno, "cannot find the path of this program: %s",
                            fbr_strerror(errno))
                 : 0;
}
