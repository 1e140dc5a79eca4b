/* exceptions.c - error codes of the library as exceptions of Python.
 *
 * The classes are those of multiprocessing, so that a program catches what it always caught.
 * They are imported when the first one is raised: a worker that never fails does not pay for the
 * import.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "binding.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <string.h>
#include <unistd.h>

static atomic_bool leaving;
static pthread_t leaver; /* before `leaving` is set */

static const struct {
    int code;
    const char *where;
} classes[] = {
    {-ETIMEDOUT, "multiprocessing.context.TimeoutError"},
    {-EACCES, "multiprocessing.context.AuthenticationError"},
    {-ECHILD, "multiprocessing.context.ProcessError"},
    {-EOWNERDEAD, "fiber._errors.WorkerLost"},
    {-EPIPE, "builtins.BrokenPipeError"},
    {-EINVAL, "builtins.ValueError"},
    {-EMSGSIZE, "builtins.ValueError"},
    {-ERANGE, "builtins.ValueError"},
    {-ENOMEM, "builtins.MemoryError"},
};

static PyObject *find_class(const char *where)
{
    const char *dot = strrchr(where, '.');
    PyObject *name = PyUnicode_FromStringAndSize(where, dot - where), *module, *class;

    if (!name)
        return NULL;
    module = PyImport_Import(name);
    Py_DECREF(name);
    if (!module)
        return NULL;
    class = PyObject_GetAttrString(module, dot + 1);
    Py_DECREF(module);
    return class;
}

static PyObject *raise_class(const char *where, int code, PyObject *text)
{
    PyObject *class = text ? find_class(where) : NULL, *value;

    if (class && PyObject_IsSubclass(class, PyExc_OSError) == 1) {
        value = Py_BuildValue("(iO)", -code, text);
        PyErr_SetObject(class, value);
        Py_XDECREF(value);
    } else if (class) {
        PyErr_SetObject(class, text);
    }
    Py_XDECREF(class);
    Py_XDECREF(text);
    return NULL;
}

PyObject *fpy_exception(void)
{
    PyObject *type, *value, *traceback;

    PyErr_Fetch(&type, &value, &traceback);
    if (!type)
        return Py_NewRef(Py_None);
    PyErr_NormalizeException(&type, &value, &traceback);
    if (traceback)
        PyException_SetTraceback(value, traceback);
    Py_DECREF(type);
    Py_XDECREF(traceback);
    return value;
}

PyObject *fpy_text(const char *text)
{
    return text ? PyUnicode_DecodeUTF8(text, (Py_ssize_t)strlen(text), "replace") : NULL;
}

static PyObject *sentence(void)
{
    return fpy_text(fiber_last_error());
}

void fpy_leave(void)
{
    if (atomic_load(&leaving))
        return;
    leaver = pthread_self();
    atomic_store(&leaving, true);
}

void fpy_stay(void)
{
    if (!atomic_load(&leaving) || pthread_equal(leaver, pthread_self()))
        return;
    Py_BEGIN_ALLOW_THREADS;
    for (;;)
        pause();
    Py_END_ALLOW_THREADS;
}

PyObject *fpy_raise(int rc)
{
    fpy_stay();
    for (size_t i = 0; i < sizeof(classes) / sizeof(classes[0]); i++)
        if (classes[i].code == rc)
            return raise_class(classes[i].where, rc, sentence());
    return raise_class("builtins.OSError", rc, sentence());
}

PyObject *fpy_none(int rc)
{
    return rc < 0 ? fpy_raise(rc) : Py_NewRef(Py_None);
}

PyObject *fpy_address(int rc, const struct fiber_address *address)
{
    return rc < 0 ? fpy_raise(rc)
                  : PyBytes_FromStringAndSize((const char *)address->bytes, sizeof(address->bytes));
}

int fpy_read_address(PyObject *bytes, struct fiber_address *address)
{
    char *data;
    Py_ssize_t len;

    if (!bytes || bytes == Py_None)
        return 0;
    if (PyBytes_AsStringAndSize(bytes, &data, &len) < 0)
        return -1;
    if (len != (Py_ssize_t)sizeof(address->bytes)) {
        PyErr_SetString(PyExc_ValueError, "these bytes are not an address of Fiber");
        return -1;
    }
    memcpy(address->bytes, data, sizeof(address->bytes));
    return 1;
}

PyObject *fpy_raise_eof(int rc)
{
    fpy_stay();
    return rc == -EPIPE ? raise_class("builtins.EOFError", rc, sentence()) : fpy_raise(rc);
}

PyObject *fpy_raise_bare(const char *where)
{
    PyObject *class = find_class(where);

    if (class)
        PyErr_SetNone(class);
    Py_XDECREF(class);
    return NULL;
}
