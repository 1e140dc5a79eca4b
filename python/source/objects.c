/* objects.c - _fiber.Objects: pickled objects in a store of the run, for fiber.put().
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "binding.h"

#include <string.h>

#include "pickle.h"

struct objects {
    PyObject_HEAD struct fiber_store *handle;
};

static int objects_init(PyObject *self, PyObject *args, PyObject *kwargs)
{
    static char *words[] = {"address", NULL};
    struct objects *o = (struct objects *)self;
    PyObject *bytes = NULL;
    struct fiber_address a;
    int has, rc;

    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "|O:Objects", words, &bytes) ||
        (has = fpy_read_address(bytes, &a)) < 0)
        return -1;
    Py_BEGIN_ALLOW_THREADS;
    rc = has ? fiber_store_connect(&o->handle, &a) : fiber_store_start(&o->handle, NULL);
    Py_END_ALLOW_THREADS;
    if (rc < 0)
        fpy_raise(rc);
    return rc < 0 ? -1 : 0;
}

FPY_DEALLOC(objects, fiber_store_close)

static PyObject *objects_address(PyObject *self, PyObject *none)
{
    struct fiber_address a;
    int rc = fiber_store_address(((struct objects *)self)->handle, &a);

    return fpy_address(rc, &a);
}

static PyObject *objects_set(PyObject *self, PyObject *args)
{
    struct objects *o = (struct objects *)self;
    const char *key, *data;
    Py_ssize_t len;
    int rc;

    if (!PyArg_ParseTuple(args, "sy#:set", &key, &data, &len))
        return NULL;
    Py_BEGIN_ALLOW_THREADS;
    rc = fiber_store_set(o->handle, key, data, (size_t)len);
    Py_END_ALLOW_THREADS;
    return fpy_none(rc);
}

static PyObject *objects_get(PyObject *self, PyObject *args)
{
    struct objects *o = (struct objects *)self;
    struct fiber_bytes bytes;
    PyObject *object;
    const char *key;
    int rc;

    if (!PyArg_ParseTuple(args, "s:get", &key))
        return NULL;
    Py_BEGIN_ALLOW_THREADS;
    rc = fiber_store_get(o->handle, key, &bytes, 0);
    Py_END_ALLOW_THREADS;
    if (rc < 0)
        return fpy_raise(rc);
    object = fpy_loads(bytes.data, bytes.len);
    fiber_bytes_free(&bytes);
    return object;
}

static PyObject *objects_keys(PyObject *self, PyObject *none)
{
    struct objects *o = (struct objects *)self;
    struct fiber_bytes keys;
    PyObject *set;
    int rc;

    Py_BEGIN_ALLOW_THREADS;
    rc = fiber_store_keys(o->handle, NULL, &keys);
    Py_END_ALLOW_THREADS;
    if (rc < 0)
        return fpy_raise(rc);
    set = PySet_New(NULL);
    for (size_t at = 0; set && at < keys.len; at += strlen((char *)keys.data + at) + 1) {
        PyObject *key = PyUnicode_FromString((char *)keys.data + at);

        if (!key || PySet_Add(set, key) < 0)
            Py_CLEAR(set);
        Py_XDECREF(key);
    }
    fiber_bytes_free(&keys);
    return set;
}

static PyObject *objects_delete(PyObject *self, PyObject *args)
{
    struct objects *o = (struct objects *)self;
    const char *key;
    int rc;

    if (!PyArg_ParseTuple(args, "s:delete", &key))
        return NULL;
    Py_BEGIN_ALLOW_THREADS;
    rc = fiber_store_delete(o->handle, key);
    Py_END_ALLOW_THREADS;
    if (rc < 0 && rc != -ENOENT)
        return fpy_raise(rc);
    Py_RETURN_NONE;
}

static PyMethodDef methods[] = {
    {"address", objects_address, METH_NOARGS,
     "address()\n--\n\nThe address by which other processes of the run connect."},
    {"set", objects_set, METH_VARARGS, "set(key, pickle)\n--\n\nKeeps a pickled object."},
    {"get", objects_get, METH_VARARGS, "get(key)\n--\n\nReturns a copy of the object."},
    {"keys", objects_keys, METH_NOARGS, "keys()\n--\n\nReturns the set of all keys."},
    {"delete", objects_delete, METH_VARARGS, "delete(key)\n--\n\nDrops the object."},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot slots[] = {
    {Py_tp_init, (void *)objects_init},
    {Py_tp_dealloc, (void *)objects_dealloc},
    {Py_tp_methods, methods},
    {Py_tp_doc, "Objects(address=None)\n--\n\nA store of pickled objects: a new one, or that which "
                "lives at an address."},
    {0, NULL},
};

static PyType_Spec spec = FPY_SPEC("Objects", struct objects, slots, 0);

int fpy_objects_add(PyObject *module)
{
    return fpy_add_type(module, &spec);
}
