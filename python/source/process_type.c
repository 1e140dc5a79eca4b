/* process_type.c - handles of job-backed processes: _fiber.Process.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "binding.h"

#include <limits.h>

#define UNKNOWN 255 /* the exit code of a process whose end nobody saw */

struct process {
    PyObject_HEAD struct fiber_process *handle; /* NULL: not started */
};

FPY_HANDLE_OF(process, "the process was not started")

static void free_ends(PyObject *list, struct fiber_pipe **ends, Py_ssize_t n)
{
    for (Py_ssize_t i = 0; i < n; i++)
        fpy_pipe_end(PyList_GetItem(list, i));
    PyMem_Free(ends);
}

/* The ends of pipes of a list, which stay open until free_ends(). Returns how many, or -1 with an
 * exception. */
static Py_ssize_t take_ends(PyObject *list, struct fiber_pipe ***ends)
{
    Py_ssize_t n = list ? PyList_Size(list) : 0;

    *ends = n > 0 ? PyMem_Calloc((size_t)n, sizeof(**ends)) : NULL;
    if (n > 0 && !*ends) {
        PyErr_NoMemory();
        return -1;
    }
    for (Py_ssize_t i = 0; i < n; i++) {
        (*ends)[i] = fpy_pipe_begin(PyList_GetItem(list, i));
        if (!(*ends)[i]) {
            free_ends(list, *ends, i);
            return -1;
        }
    }
    return n;
}

static int process_init(PyObject *self, PyObject *args, PyObject *kwargs)
{
    static char *words[] = {"work",    "name",    "cpus",  "gpus",   "memory", "image",
                            "backend", "workdir", "pipes", "ctrl_c", NULL};
    struct fiber_process_options o = {.size = sizeof(o)};
    struct process *p = (struct process *)self;
    struct fiber_pipe **ends;
    PyObject *pipes = NULL;
    Py_ssize_t n;
    unsigned long long memory = 0;
    const char *work;
    Py_ssize_t len;
    int rc, ctrl_c = 0;

    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "y#|$zdiKzzzO!p:Process", words, &work, &len,
                                     &o.job.name, &o.job.cpus, &o.job.gpus, &memory, &o.job.image,
                                     &o.backend, &o.job.workdir, &PyList_Type, &pipes, &ctrl_c))
        return -1;
    if (p->handle) {
        PyErr_SetString(PyExc_RuntimeError, "the process has already started");
        return -1;
    }
    n = take_ends(pipes, &ends);
    if (n < 0)
        return -1;
    o.job.memory = memory;
    o.pipes = ends;
    o.npipes = (size_t)n;
    Py_BEGIN_ALLOW_THREADS;
    rc = fiber_process_start(&p->handle, fpy_child_main, work, (size_t)len, &o);
    if (rc == 0 && ctrl_c)
        fpy_ctrl_c_follow(p->handle); /* at a limit of threads Ctrl-C ends the parent alone */
    Py_END_ALLOW_THREADS;
    free_ends(pipes, ends, n);
    if (rc < 0)
        fpy_raise(rc);
    return rc < 0 ? -1 : 0;
}

static void close_process(struct fiber_process *p)
{
    fpy_ctrl_c_leave(p);
    fiber_process_close(p);
}

FPY_DEALLOC(process, close_process)

FPY_WAIT(process, join, fpy_raise)

/* It has ended instead: no error. */
static PyObject *never_joined(int rc)
{
    return rc == -ECHILD ? PyBool_FromLong(0) : fpy_raise(rc);
}

FPY_WAIT(process, wait_joined, never_joined)

static PyObject *process_exitcode(PyObject *self, PyObject *none)
{
    struct fiber_process *handle = handle_of(self);
    int code = UNKNOWN, rc;

    if (!handle)
        return NULL;
    rc = fiber_process_exitcode(handle, &code);
    if (rc == -EAGAIN) {
        fpy_ctrl_c_again();
        Py_RETURN_NONE;
    }
    return rc < 0 && rc != -ENODATA ? fpy_raise(rc) : PyLong_FromLong(code);
}

static PyObject *process_pid(PyObject *self, PyObject *none)
{
    struct fiber_process *handle = handle_of(self);
    int64_t pid = handle ? fiber_process_pid(handle) : 0;

    if (!handle)
        return NULL;
    if (pid < 0)
        return fpy_raise((int)pid);
    if (pid == 0)
        Py_RETURN_NONE;
    return PyLong_FromLongLong(pid);
}

FPY_CALL(process, terminate)
FPY_CALL(process, kill)

static PyObject *process_signal(PyObject *self, PyObject *number)
{
    struct fiber_process *handle = handle_of(self);
    long sig = handle ? PyLong_AsLong(number) : -1;
    int rc;

    if (!handle || (sig == -1 && PyErr_Occurred()))
        return NULL;
    rc = fiber_process_signal(handle, sig < 0 || sig > INT_MAX ? -1 : (int)sig);
    return fpy_none(rc);
}

FPY_FD(process, sentinel)
FPY_TEXT(process, report)
FPY_TEXT(process, job)

static PyMethodDef methods[] = {
    {"join", process_join, METH_O,
     "join(timeout)\n--\n\nWaits until the process has ended, and tells whether it has."},
    {"wait_joined", process_wait_joined, METH_O,
     "wait_joined(timeout)\n--\n\nWaits until the process runs, or has ended, and tells whether it "
     "did run."},
    {"exitcode", process_exitcode, METH_NOARGS,
     "exitcode()\n--\n\nThe exit code, -N for signal N, None while the process lives. A process "
     "that "
     "could not\nbe started has the code 125, and one whose host was lost 255."},
    {"pid", process_pid, METH_NOARGS,
     "pid()\n--\n\nThe process id, as the process itself sees it; None until it is known."},
    {"terminate", process_terminate, METH_NOARGS, "terminate()\n--\n\nAsks the process to end."},
    {"kill", process_kill, METH_NOARGS, "kill()\n--\n\nKills the process."},
    {"signal", process_signal, METH_O, "signal(number)\n--\n\nSends the process a signal."},
    {"sentinel", process_sentinel, METH_NOARGS,
     "sentinel()\n--\n\nA descriptor that polls readable once the process has ended."},
    {"report", process_report, METH_NOARGS,
     "report()\n--\n\nHow the process ended, in a sentence; \"\" while it lives."},
    {"job", process_job, METH_NOARGS,
     "job()\n--\n\nThe name that the backend has for the job of the process."},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot slots[] = {
    {Py_tp_init, (void *)process_init},
    {Py_tp_dealloc, (void *)process_dealloc},
    {Py_tp_methods, methods},
    {Py_tp_doc,
     "Process(work, *, name=None, cpus=0.0, gpus=0, memory=0, image=None, backend=None, "
     "workdir=None, pipes=[], ctrl_c=False)\n--\n\nStarts a process that runs "
     "fiber._child.run(work). It holds the ends of pipes that\nare listed from its start on. "
     "ctrl_c: Ctrl-C ends it, too."},
    {0, NULL},
};

static PyType_Spec spec = FPY_SPEC("Process", struct process, slots, 0);

int fpy_process_add(PyObject *module)
{
    return fpy_add_type(module, &spec);
}
