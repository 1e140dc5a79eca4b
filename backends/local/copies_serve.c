/* copies_serve.c - the side of a template: makes copies of itself on order.
 *
 * A copy is made by the system call, because the C library's fork() cannot make it a child of our
 * parent (CLONE_PARENT). So the child's part of fork() is done here: the C library learns the
 * number of the main thread, and the word that the kernel clears when the thread ends and the list
 * of robust mutexes are registered anew. There are no other threads whose locks a copy would find
 * taken; a template that has other threads is refused.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "backends/local/copies.h"
#include "runtime/base/error.h"
#include "runtime/proc/backend.h"

#define NOT_WANTED 127
#define DESCRIPTION_MAX 8192 /* bytes that the C library may keep about a thread */

extern char **environ;

/* State of the C library that a copy must take over. */
struct self {
    int *tid;     /* where the C library keeps our thread number */
    int *cleared; /* what the kernel clears when our thread ends */
    void *robust;
    size_t robust_len;
    pid_t parent;
};

struct order {
    char *text; /* variables, each with its NUL */
    size_t len;
    int fds[FBR_COPIES_FDS];
};

static int count_threads(void)
{
    DIR *d = opendir("/proc/self/task");
    struct dirent *e;
    int n = 0;

    while (d && (e = readdir(d)))
        n += e->d_name[0] != '.';
    if (d)
        closedir(d);
    return n;
}

/* A recursive mutex remembers which thread has locked it, and may lock it again. */
static bool is_thread_number(int *at)
{
    pthread_mutex_t mutex;
    pthread_mutexattr_t attr;
    const int tid = *at;
    bool others;

    pthread_mutexattr_init(&attr);
    pthread_mutexattr_settype(&attr, PTHREAD_MUTEX_RECURSIVE);
    pthread_mutex_init(&mutex, &attr);
    pthread_mutexattr_destroy(&attr);
    *at = tid + 1;
    pthread_mutex_lock(&mutex);
    *at = tid;
    others = pthread_mutex_trylock(&mutex) == EBUSY;
    if (!others)
        pthread_mutex_unlock(&mutex);
    *at = tid + 1;
    pthread_mutex_unlock(&mutex);
    *at = tid;
    pthread_mutex_destroy(&mutex);
    return others;
}

/* Before glibc 2.43 the kernel clears the thread number itself; since then a word behind it in the
 * description of the thread. */
static int *find_thread_number(int *cleared)
{
    const int tid = (int)syscall(SYS_gettid);
    const uintptr_t begin = (uintptr_t)pthread_self(), end = (uintptr_t)cleared;

    if (*cleared == tid)
        return is_thread_number(cleared) ? cleared : NULL;
    if (end < begin || end - begin > DESCRIPTION_MAX)
        return NULL;
    for (int *at = cleared; (uintptr_t)at > begin; at--)
        if (at[-1] == tid && is_thread_number(at - 1))
            return at - 1;
    return NULL;
}

static int look_at_ourselves(struct self *s)
{
    int type = 0;
    socklen_t len = sizeof(type);

    s->parent = getppid();
    if (getsockopt(FBR_COPIES_FD, SOL_SOCKET, SO_TYPE, &type, &len) < 0 || type != SOCK_SEQPACKET)
        return fbr_keep(-ENOTSUP, "fiber_template_serve: this process is not a template");
    if (count_threads() != 1)
        return fbr_keep(-EBUSY, "fiber_template_serve: a template may have one thread only");
    if (prctl(PR_GET_TID_ADDRESS, &s->cleared, 0, 0, 0) < 0 || !s->cleared ||
        !(s->tid = find_thread_number(s->cleared)) ||
        syscall(SYS_get_robust_list, 0, &s->robust, &s->robust_len) < 0)
        return fbr_keep(-ENOTSUP,
                        "fiber_template_serve: this system does not support copies of a process");
    return 0;
}

/* ---- The copy ---- */

static void take_over(const struct self *s)
{
    *s->tid = (int)syscall(SYS_gettid);
    syscall(SYS_set_tid_address, s->cleared);
    syscall(SYS_set_robust_list, s->robust, s->robust_len);
}

/* Waits for GO, as runtime/program/spawn.c does for other children. */
static void pass_gate(const struct self *s, int gate)
{
    char go = 0;
    ssize_t n;

    prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
    if (getppid() != s->parent)
        _exit(NOT_WANTED);
    while ((n = recv(gate, &go, 1, 0)) < 0 && errno == EINTR)
        continue;
    if (n != 1 || go != FBR_COPIES_GO)
        _exit(NOT_WANTED);
    setpgid(0, 0);
    prctl(PR_SET_PTRACER, (unsigned long)s->parent, 0, 0, 0);
}

/* Puts the descriptors in place; the ticket replaces the socket. */
static int place_fds(const struct order *o)
{
    int rc = fchdir(o->fds[FBR_COPIES_FOLDER]);

    if (dup2(o->fds[FBR_COPIES_OUT], 1) < 0 || dup2(o->fds[FBR_COPIES_ERR], 2) < 0 ||
        dup2(o->fds[FBR_COPIES_TICKET], FBR_COPIES_FD) < 0)
        rc = -1;
    for (int i = 0; i < FBR_COPIES_FDS; i++)
        close(o->fds[i]);
    return rc;
}

static int place_env(const struct order *o)
{
    for (char *at = o->text; at < o->text + o->len; at += strlen(at) + 1) {
        char *equals = strchr(at, '=');
        int rc;

        if (!equals)
            continue;
        *equals = '\0';
        rc = setenv(at, equals + 1, 1);
        *equals = '=';
        if (rc < 0)
            return rc;
    }
    return 0;
}

static int become(const struct self *s, const struct order *o)
{
    take_over(s);
    pass_gate(s, o->fds[FBR_COPIES_GATE]);
    if (place_fds(o) < 0 || place_env(o) < 0)
        _exit(NOT_WANTED);
    return 0;
}

/* ---- The template ---- */

/* Receives an order; ends if our parent is gone, or the order is malformed. */
static void receive(struct order *o)
{
    o->len =
        fbr_copies_receive(FBR_COPIES_FD, o->text, FBR_COPIES_MESSAGE, o->fds, FBR_COPIES_FDS, 0);
    if (!o->len || o->text[o->len - 1] != '\0')
        _exit(0);
}

int fbr_copies_serve(void)
{
    const char hello = FBR_COPIES_HELLO;
    struct order o = {.text = NULL};
    struct self self;
    int rc = look_at_ourselves(&self);
    int pidfd = -1; /* old kernels do not set it: we end, and jobs are started without us */

    if (rc < 0)
        return rc;
    fcntl(FBR_COPIES_FD, F_SETFD, FD_CLOEXEC);
    o.text = malloc(FBR_COPIES_MESSAGE);
    if (!o.text)
        return fbr_keep(-ENOMEM, "fiber_template_serve: out of memory");
    if (send(FBR_COPIES_FD, &hello, 1, MSG_NOSIGNAL) != 1)
        _exit(0);
    for (;;) {
        int32_t pid;

        receive(&o);
        pid = (int32_t)syscall(SYS_clone, CLONE_PARENT | CLONE_PIDFD | SIGCHLD, NULL, &pidfd, NULL,
                               NULL);
        if (pid == 0)
            break;
        if (pid < 0 || fbr_copies_send(FBR_COPIES_FD, &pid, sizeof(pid), &pidfd, 1) < 0)
            _exit(1);
        close(pidfd);
        for (int i = 0; i < FBR_COPIES_FDS; i++)
            close(o.fds[i]);
    }
    rc = become(&self, &o);
    free(o.text);
    return rc;
}
