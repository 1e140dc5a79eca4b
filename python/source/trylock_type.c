/* trylock_type.c - TryLock: takes a lock in a with statement, if it is free, or soon will be.
 *
 * The interpreter raises KeyboardInterrupt between two calls of Python code, also right behind an
 * acquire(blocking=False) and within the `finally` that would release: the lock is then held for
 * ever. CPython looks for signals behind calls, at jumps back and at the begin of a function, and
 * 3.14 does so behind __enter__, too, before the with statement knows that it must call __exit__.
 * So the lock is released when its TryLock goes, at the latest.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "binding.h"

struct trylock {
    PyObject_HEAD;
    PyObject *lock;
    double timeout; /* seconds */
    char taken;
};

static int trylock_init(PyObject *self, PyObject *args, PyObject *kwargs)
{
    struct trylock *t = (struct trylock *)self;
    static char *names[] = {"lock", "timeout", NULL};
    PyObject *lock;

    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O|d:TryLock", names, &lock, &t->timeout))
        return -1;
    Py_INCREF(lock);
    Py_XDECREF(t->lock);
    t->lock = lock;
    return 0;
}

static PyObject *release(struct trylock *t)
{
    if (!t->taken)
        Py_RETURN_NONE;
    t->taken = 0;
    return PyObject_CallMethod(t->lock, "release", NULL);
}

static void trylock_dealloc(PyObject *self)
{
    PyObject *error, *value, *traceback;

    PyErr_Fetch(&error, &value, &traceback);
    Py_XDECREF(release((struct trylock *)self));
    PyErr_Restore(error, value, traceback);
    Py_XDECREF(((struct trylock *)self)->lock);
    fpy_free(self);
}

static PyObject *trylock_enter(PyObject *self, PyObject *none)
{
    struct trylock *t = (struct trylock *)self;
    PyObject *taken = PyObject_CallMethod(t->lock, "acquire", "Od", Py_True, t->timeout);

    t->taken = taken == Py_True;
    return taken;
}

static PyObject *trylock_exit(PyObject *self, PyObject *args)
{
    return release((struct trylock *)self);
}

static PyMethodDef methods[] = {
    {"__enter__", trylock_enter, METH_NOARGS,
     "__enter__()\n--\n\nReturns whether the lock was taken."},
    {"__exit__", trylock_exit, METH_VARARGS, "__exit__(*exc)\n--\n\nReleases it, if it was taken."},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot slots[] = {
    {Py_tp_init, (void *)trylock_init},
    {Py_tp_dealloc, (void *)trylock_dealloc},
    {Py_tp_methods, methods},
    {Py_tp_doc, "TryLock(lock, timeout=0.0)\n--\n\n`with TryLock(lock) as taken`: takes the lock "
                "if it is free "
                "within the timeout (seconds)."},
    {0, NULL},
};

static PyType_Spec spec = FPY_SPEC("TryLock", struct trylock, slots, 0);

int fpy_trylock_add(PyObject *module)
{
    return fpy_add_type(module, &spec);
}
