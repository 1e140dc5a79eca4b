/* shared.c - memory that the processes of a host share: _fiber.Shared, and a lock in it:
 * _fiber.HostLock.
 *
 * Both export or use memory that stays mapped as long as somebody has a buffer of it, since a
 * buffer holds a reference to its object.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "binding.h"

#include <pthread.h>
#include <time.h>
#include <unistd.h>

struct shared {
    PyObject_HEAD struct fiber_shared *handle; /* NULL: not opened */
    Py_ssize_t exports;                        /* buffers that somebody has */
};

struct build {
    PyObject *fn;
    PyObject *type, *value, *trace; /* what it raised */
};

/* Runs in the thread of shared_init(), which has given up the GIL. */
static int build(void *data, size_t len, void *user)
{
    PyGILState_STATE state = PyGILState_Ensure();
    struct build *b = user;
    PyObject *view = PyMemoryView_FromMemory(data, (Py_ssize_t)len, PyBUF_WRITE), *done = NULL;

    if (view)
        done = PyObject_CallFunctionObjArgs(b->fn, view, NULL);
    if (!done)
        PyErr_Fetch(&b->type, &b->value, &b->trace);
    Py_XDECREF(done);
    Py_XDECREF(view);
    PyGILState_Release(state);
    return done ? 0 : -ECANCELED;
}

static int shared_init(PyObject *self, PyObject *args, PyObject *kwargs)
{
    static char *words[] = {"name", "length", "flags", "build", "writable", NULL};
    struct shared *s = (struct shared *)self;
    struct build b = {NULL, NULL, NULL, NULL};
    unsigned flags = 0;
    const char *name;
    Py_ssize_t len = 0;
    int writable = 1, rc;

    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "s|nIOp:Shared", words, &name, &len, &flags,
                                     &b.fn, &writable))
        return -1;
    if (s->handle || len < 0) {
        PyErr_SetString(PyExc_ValueError,
                        len < 0 ? "the length cannot be negative" : "the memory is already open");
        return -1;
    }
    if (b.fn == Py_None)
        b.fn = NULL;
    Py_BEGIN_ALLOW_THREADS;
    if (writable && !b.fn)
        rc = fiber_shared_open_writable(&s->handle, name, (size_t)len, flags);
    else
        rc = fiber_shared_open(&s->handle, name, (size_t)len, b.fn ? build : NULL, &b);
    Py_END_ALLOW_THREADS;
    if (b.type)
        PyErr_Restore(b.type, b.value, b.trace);
    else if (rc < 0)
        fpy_raise(rc);
    return rc < 0 ? -1 : 0;
}

FPY_DEALLOC(shared, fiber_shared_close)

static int shared_buffer(PyObject *self, Py_buffer *view, int flags)
{
    struct fiber_shared *handle = ((struct shared *)self)->handle;
    void *memory = handle ? fiber_shared_memory(handle) : NULL;
    const void *data = memory ? memory : handle ? fiber_shared_data(handle) : NULL;

    if (!handle) {
        view->obj = NULL;
        PyErr_SetString(PyExc_BufferError, "the memory was not opened");
        return -1;
    }
    if (PyBuffer_FillInfo(view, self, (void *)(uintptr_t)data, (Py_ssize_t)fiber_shared_len(handle),
                          memory == NULL, flags) < 0)
        return -1;
    ((struct shared *)self)->exports++;
    return 0;
}

static void shared_release(PyObject *self, Py_buffer *view)
{
    ((struct shared *)self)->exports--;
}

static PyObject *shared_delete(PyObject *type, PyObject *args)
{
    const char *name;
    int rc;

    if (!PyArg_ParseTuple(args, "s", &name))
        return NULL;
    Py_BEGIN_ALLOW_THREADS;
    rc = fiber_shared_delete(name);
    Py_END_ALLOW_THREADS;
    return fpy_none(rc);
}

static PyMethodDef shared_methods[] = {
    {"delete", shared_delete, METH_VARARGS | METH_STATIC,
     "delete(name)\n--\n\nDeletes the segments of this name; those who have one keep it."},
    {NULL, NULL, 0, NULL},
};

static PyObject *shared_exports(PyObject *self, void *none)
{
    return PyLong_FromSsize_t(((struct shared *)self)->exports);
}

static PyGetSetDef shared_members[] = {
    {"exports", shared_exports, NULL, "How many buffers of it there are.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyType_Slot shared_slots[] = {
    {Py_tp_init, (void *)shared_init},
    {Py_tp_dealloc, (void *)shared_dealloc},
    {Py_tp_methods, shared_methods},
    {Py_tp_getset, (void *)shared_members},
    {Py_bf_getbuffer, (void *)shared_buffer},
    {Py_bf_releasebuffer, (void *)shared_release},
    {Py_tp_doc,
     "Shared(name, length=0, flags=0, build=None, writable=True)\n--\n\nOpens memory "
     "that the processes of this host share, as a buffer. flags: 1 makes it, 2\nmakes it "
     "and fails where there is one. With build, a function of a writable view that "
     "fills\nit once for all, or writable=False it is read-only."},
    {0, NULL},
};

static PyType_Spec shared_spec = FPY_SPEC("Shared", struct shared, shared_slots, 0);

/* ---- A recursive lock, which a process that dies leaves free ---- */

struct held_lock {
    pthread_mutex_t mutex;
    /* Its owner, and how often it is held: set by the owner alone. Others read it to show it. */
    unsigned long thread; /* of Python, in that process */
    int pid;
    unsigned times;
};

struct host_lock {
    PyObject_HEAD Py_buffer memory;
    struct held_lock *held; /* in the memory; NULL: none */
    int pid;                /* of this process */
};

enum owner { NOBODY, THIS_THREAD, ANOTHER_THREAD, ANOTHER_PROCESS };

static int begin_mutex(pthread_mutex_t *mutex)
{
    pthread_mutexattr_t a;
    int rc;

    pthread_mutexattr_init(&a);
    pthread_mutexattr_setpshared(&a, PTHREAD_PROCESS_SHARED);
    pthread_mutexattr_setrobust(&a, PTHREAD_MUTEX_ROBUST);
    pthread_mutexattr_settype(&a, PTHREAD_MUTEX_RECURSIVE);
    rc = -pthread_mutex_init(mutex, &a);
    pthread_mutexattr_destroy(&a);
    return rc;
}

static int lock_init(PyObject *self, PyObject *args, PyObject *kwargs)
{
    static char *words[] = {"memory", "begin", NULL};
    struct host_lock *l = (struct host_lock *)self;
    PyObject *memory;
    int begin = 0;

    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O|p:HostLock", words, &memory, &begin) ||
        l->held || PyObject_GetBuffer(memory, &l->memory, PyBUF_WRITABLE) < 0)
        return -1;
    if (l->memory.len < (Py_ssize_t)sizeof(*l->held) ||
        (uintptr_t)l->memory.buf % _Alignof(struct held_lock)) {
        PyBuffer_Release(&l->memory);
        PyErr_SetString(PyExc_ValueError, "the memory is too small for a lock");
        return -1;
    }
    l->held = l->memory.buf;
    l->pid = getpid();
    if (begin)
        l->held->times = 0;
    return begin && begin_mutex(&l->held->mutex) < 0 ? (PyErr_NoMemory(), -1) : 0;
}

static void lock_dealloc(PyObject *self)
{
    struct host_lock *l = (struct host_lock *)self;

    /* The C library has a list of the locks that a thread holds, so their memory must stay. */
    if (l->held && !(l->held->times && l->held->pid == l->pid))
        PyBuffer_Release(&l->memory);
    fpy_free(self);
}

static int take(void *call, int timeout_ms)
{
    struct held_lock *held = call;
    struct timespec until;
    int rc;

    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_nsec += (long)(timeout_ms % 1000) * 1000000;
    until.tv_sec += timeout_ms / 1000 + until.tv_nsec / 1000000000;
    until.tv_nsec %= 1000000000;
    rc = timeout_ms ? pthread_mutex_timedlock(&held->mutex, &until)
                    : pthread_mutex_trylock(&held->mutex);
    if (rc == EOWNERDEAD) {
        pthread_mutex_consistent(&held->mutex);
        held->times = 0;
        rc = 0;
    }
    return rc == EBUSY ? -ETIMEDOUT : -rc;
}

static PyObject *lock_acquire(PyObject *self, PyObject *timeout)
{
    struct host_lock *l = (struct host_lock *)self;
    double seconds;
    int rc;

    if (!fpy_timeout(timeout, &seconds))
        return NULL;
    rc = take(l->held, 0); /* cannot wait: the GIL stays */
    if (rc == -ETIMEDOUT)
        rc = fpy_wait(take, l->held, seconds);
    if (rc == 0 && PyErr_CheckSignals() < 0) { /* a signal came while it waited */
        pthread_mutex_unlock(&l->held->mutex);
        return NULL;
    }
    if (rc == FPY_RAISED)
        return NULL;
    if (rc < 0 && rc != -ETIMEDOUT)
        return PyErr_Format(PyExc_OSError, "the lock cannot be taken: %s", fiber_strerror(rc));
    if (rc == 0) {
        l->held->thread = PyThread_get_thread_ident();
        l->held->pid = l->pid;
        l->held->times++;
    }
    return PyBool_FromLong(rc == 0);
}

static enum owner owner_of(const struct host_lock *l)
{
    if (!l->held->times)
        return NOBODY;
    if (l->held->pid != l->pid)
        return ANOTHER_PROCESS;
    return l->held->thread == PyThread_get_thread_ident() ? THIS_THREAD : ANOTHER_THREAD;
}

static PyObject *lock_release(PyObject *self, PyObject *none)
{
    struct host_lock *l = (struct host_lock *)self;

    if (owner_of(l) == THIS_THREAD) {
        l->held->times--;
        if (pthread_mutex_unlock(&l->held->mutex) == 0)
            Py_RETURN_NONE;
        l->held->times++; /* a child of fork(), where this thread is another one */
    }
    PyErr_SetString(PyExc_AssertionError, "attempt to release recursive lock not owned by thread");
    return NULL;
}

static PyObject *lock_owner(PyObject *self, PyObject *none)
{
    struct host_lock *l = (struct host_lock *)self;

    return Py_BuildValue("iI", owner_of(l), l->held->times);
}

static PyMethodDef lock_methods[] = {
    {"acquire", lock_acquire, METH_O,
     "acquire(timeout)\n--\n\nTakes the lock, and tells whether it has it. It is free once the "
     "process that had it\nhas died."},
    {"release", lock_release, METH_NOARGS, "release()\n--\n\nGives the lock back once."},
    {"owner", lock_owner, METH_NOARGS,
     "owner()\n--\n\nWho has the lock (0 nobody, 1 this thread, 2 another one, 3 another process), "
     "and how\noften."},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot lock_slots[] = {
    {Py_tp_init, (void *)lock_init},
    {Py_tp_dealloc, (void *)lock_dealloc},
    {Py_tp_methods, lock_methods},
    {Py_tp_doc, "HostLock(memory, begin=False)\n--\n\nA recursive lock in memory that processes "
                "share; 64 bytes are enough. begin: it is new."},
    {0, NULL},
};

static PyType_Spec lock_spec = FPY_SPEC("HostLock", struct host_lock, lock_slots, 0);

int fpy_shared_add(PyObject *module)
{
    return fpy_add_type(module, &shared_spec) < 0 ? -1 : fpy_add_type(module, &lock_spec);
}
