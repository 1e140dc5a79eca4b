/* ctrl_c.c - Ctrl-C ends the processes that a program has started, as in multiprocessing.
 *
 * The kernel sends SIGINT to the process group of the terminal. Fiber's processes have groups of
 * their own, so their parent passes it on: a handler in front of Python's own wakes a thread, which
 * signals them. A SIGINT that somebody sends to the parent alone stays there, as in
 * multiprocessing.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "binding.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

struct follower {
    struct fiber_process *process;
    struct follower *next;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* guards the list */
static struct follower *followers;
static int wake = -1; /* an eventfd; it stays open */
static pid_t owner;   /* has the thread; a child of fork() has none */

static _Atomic(void (*)(int)) pythons; /* the handler behind ours */
static atomic_bool passed;

static void on_interrupt(int sig, siginfo_t *info, void *context)
{
    const uint64_t one = 1;
    int saved = errno;

    if (info->si_code == SI_KERNEL && getpid() == owner) {
        atomic_store(&passed, true);
        if (write(wake, &one, sizeof(one)) < 0)
            atomic_store(&passed, false);
    }
    errno = saved;
    atomic_load (&pythons)(sig);
}

static void *pass_on(void *none)
{
    uint64_t n;

    while (read(wake, &n, sizeof(n)) > 0 || errno == EINTR) {
        pthread_mutex_lock(&lock);
        for (struct follower *f = followers; f; f = f->next)
            if (fiber_process_pid(f->process) == 0) /* it does not run yet */
                fiber_process_terminate(f->process);
            else
                fiber_process_signal(f->process, SIGINT);
        pthread_mutex_unlock(&lock);
    }
    return none;
}

/* With the lock. The thread is not the program's, and gets no signal. */
static int start_thread(void)
{
    sigset_t all, old;
    pthread_t thread;
    int rc;

    if (wake >= 0)
        return 0;
    owner = getpid();
    wake = eventfd(0, EFD_CLOEXEC);
    if (wake < 0)
        return -errno;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    rc = pthread_create(&thread, NULL, pass_on, NULL);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    if (rc == 0) {
        pthread_detach(thread);
        return 0;
    }
    close(wake);
    wake = -1;
    return -rc;
}

/* With the lock. The program may have set its handler again since the last call. A handler that is
 * none of Python's stays alone, and so do the defaults. */
static void stand_in_front(void)
{
    struct sigaction act;

    if (sigaction(SIGINT, NULL, &act) < 0 || act.sa_flags & SA_SIGINFO ||
        act.sa_handler == SIG_DFL || act.sa_handler == SIG_IGN)
        return;
    atomic_store(&pythons, act.sa_handler);
    act.sa_flags |= SA_SIGINFO;
    act.sa_sigaction = on_interrupt;
    sigaction(SIGINT, &act, NULL);
}

int fpy_ctrl_c_follow(struct fiber_process *p)
{
    struct follower *f = malloc(sizeof(*f));
    int rc;

    if (!f)
        return -ENOMEM;
    pthread_mutex_lock(&lock);
    rc = start_thread();
    if (rc == 0) {
        stand_in_front();
        *f = (struct follower){p, followers};
        followers = f;
        f = NULL;
    }
    pthread_mutex_unlock(&lock);
    free(f);
    return rc;
}

void fpy_ctrl_c_again(void)
{
    if (getpid() != owner)
        return;
    pthread_mutex_lock(&lock);
    if (followers)
        stand_in_front();
    pthread_mutex_unlock(&lock);
}

void fpy_ctrl_c_leave(struct fiber_process *p)
{
    struct follower **f, *left = NULL;

    if (getpid() != owner)
        return;
    pthread_mutex_lock(&lock);
    for (f = &followers; *f; f = &(*f)->next)
        if ((*f)->process == p) {
            left = *f;
            *f = left->next;
            break;
        }
    pthread_mutex_unlock(&lock);
    free(left);
}

static PyObject *ctrl_c_came(PyObject *self, PyObject *none)
{
    return PyBool_FromLong(atomic_load(&passed));
}

int fpy_ctrl_c_add(PyObject *module)
{
    static PyMethodDef methods[] = {
        {"ctrl_c_came", ctrl_c_came, METH_NOARGS,
         "Tells whether a terminal has sent SIGINT, and the processes have got it, too."},
        {NULL, NULL, 0, NULL},
    };

    return PyModule_AddFunctions(module, methods);
}
