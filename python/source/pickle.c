/* pickle.c - pickles of Python objects; see pickle.h.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "pickle.h"

static PyObject *dumps, *loads, *refusal, *protocol; /* of _pickle; found at first use */

static int find(void)
{
    PyObject *module;

    if (protocol)
        return 0;
    module = PyImport_ImportModule("_pickle");
    if (!module)
        return -1;
    dumps = PyObject_GetAttrString(module, "dumps");
    loads = PyObject_GetAttrString(module, "loads");
    refusal = PyObject_GetAttrString(module, "PicklingError");
    Py_DECREF(module);
    if (dumps && loads && refusal)
        protocol = PyLong_FromLong(5);
    return protocol ? 0 : -1;
}

/* Whether _pickle has raised for an object that it cannot pickle. PyImport_AddModule() fails while
 * an exception is set, so find() has found the class before. */
static int refused(void)
{
    return PyErr_ExceptionMatches(PyExc_TypeError) ||
           PyErr_ExceptionMatches(PyExc_AttributeError) || PyErr_ExceptionMatches(refusal);
}

static PyObject *dumps_by_others(PyObject *object)
{
    PyObject *module, *bytes = NULL;

    PyErr_Clear(); /* it is raised again if nobody can pickle it */
    module = PyImport_ImportModule("fiber._pickling");
    if (module)
        bytes = PyObject_CallMethod(module, "dumps", "(O)", object);
    Py_XDECREF(module);
    return bytes;
}

static PyObject *check_bytes(PyObject *bytes)
{
    if (!bytes || PyBytes_Check(bytes))
        return bytes;
    Py_DECREF(bytes);
    PyErr_SetString(PyExc_TypeError, "a pickle must be bytes");
    return NULL;
}

PyObject *fpy_dumps(PyObject *object, PyObject *by)
{
    PyObject *bytes;

    if (by)
        return check_bytes(PyObject_CallFunctionObjArgs(by, object, NULL));
    if (find() < 0)
        return NULL;
    bytes = PyObject_CallFunctionObjArgs(dumps, object, protocol, NULL);
    if (!bytes && refused())
        bytes = dumps_by_others(object);
    return check_bytes(bytes);
}

PyObject *fpy_loads(const void *data, size_t len)
{
    PyObject *view, *object;

    if (find() < 0)
        return NULL;
    view = PyMemoryView_FromMemory((char *)(uintptr_t)data, (Py_ssize_t)len, PyBUF_READ);
    if (!view)
        return NULL;
    object = PyObject_CallFunctionObjArgs(loads, view, NULL);
    Py_DECREF(view);
    return object;
}
