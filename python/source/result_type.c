/* result_type.c - _fiber.Result: where results of tasks go; see pool_type.h.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "pool_type.h"

#include <stddef.h>
#include <structmember.h>

static PyObject *result_type;

static int result_init(PyObject *self, PyObject *args, PyObject *kwargs)
{
    struct fpy_result *r = (struct fpy_result *)self;
    unsigned long long left;
    PyObject *value = NULL;
    int kind;

    if (kwargs && PyDict_Size(kwargs)) {
        PyErr_SetString(PyExc_TypeError, "Result takes no keywords");
        return -1;
    }
    if (!PyArg_ParseTuple(args, "iK|O:Result", &kind, &left, &value))
        return -1;
    if (kind < 0 || kind >= FPY_RESULT_KINDS ||
        (kind != FPY_RESULT_ONE && !(value && PyList_Check(value)))) {
        PyErr_SetString(PyExc_ValueError, "a result of this kind needs a list");
        return -1;
    }
    Py_XINCREF(value);
    Py_XDECREF(r->value);
    r->value = value;
    r->kind = kind;
    r->left = left;
    r->done = left == 0;
    return 0;
}

/* The exception that get() raises has a traceback, whose frames have the result. */
static int result_traverse(PyObject *self, visitproc visit, void *arg)
{
    struct fpy_result *r = (struct fpy_result *)self;

    Py_VISIT(Py_TYPE(self));
    Py_VISIT(r->value);
    Py_VISIT(r->error);
    return 0;
}

static int result_clear(PyObject *self)
{
    struct fpy_result *r = (struct fpy_result *)self;

    Py_CLEAR(r->value);
    Py_CLEAR(r->error);
    return 0;
}

static void result_dealloc(PyObject *self)
{
    PyTypeObject *type = Py_TYPE(self);
    freefunc release = (freefunc)PyType_GetSlot(type, Py_tp_free);

    PyObject_GC_UnTrack(self);
    result_clear(self);
    release(self);
    Py_DECREF(type);
}

int fpy_is_result(PyObject *object)
{
    return PyObject_TypeCheck(object, (PyTypeObject *)result_type);
}

int fpy_result_less(struct fpy_result *r)
{
    if (r->left == 0 || --r->left > 0)
        return 0;
    r->done = 1;
    return 1;
}

static int put_error(struct fpy_result *r, uint64_t at, PyObject *error)
{
    if (r->error && r->error_at <= at)
        return 0;
    Py_INCREF(error);
    Py_XDECREF(r->error);
    r->error = error;
    r->error_at = at;
    return 0;
}

static int put_arrived(struct fpy_result *r, uint64_t at, uint32_t count, PyObject *error,
                       PyObject *value)
{
    PyObject *item = Py_BuildValue("(KIOO)", (unsigned long long)at, (unsigned)count,
                                   error ? error : Py_None, value ? value : Py_None);
    int rc = item ? PyList_Append(r->value, item) : -1;

    Py_XDECREF(item);
    return rc;
}

int fpy_result_put(struct fpy_result *r, uint64_t at, uint32_t count, PyObject *error,
                   PyObject *value)
{
    if (r->kind == FPY_RESULT_ARRIVE)
        return put_arrived(r, at, count, error, value);
    if (error)
        return put_error(r, at, error);
    Py_INCREF(value);
    if (r->kind == FPY_RESULT_ONE) {
        Py_XDECREF(r->value);
        r->value = value;
        return 0;
    }
    if (!count)
        return PyList_SetItem(r->value, (Py_ssize_t)at, value);
    count = (uint32_t)PyList_SetSlice(r->value, (Py_ssize_t)at, (Py_ssize_t)(at + count), value);
    Py_DECREF(value);
    return (int)count;
}

/* ---- For Python ---- */

static PyObject *result_less(PyObject *self, PyObject *none)
{
    return PyBool_FromLong(fpy_result_less((struct fpy_result *)self));
}

static PyObject *get_error(PyObject *self, void *none)
{
    PyObject *error = ((struct fpy_result *)self)->error;

    return Py_NewRef(error ? error : Py_None);
}

static int set_error(PyObject *self, PyObject *error, void *none)
{
    struct fpy_result *r = (struct fpy_result *)self;

    Py_XINCREF(error);
    Py_XDECREF(r->error);
    r->error = error;
    r->error_at = 0;
    return 0;
}

static PyMemberDef members[] = {
    {"_done", T_BOOL, offsetof(struct fpy_result, done), READONLY, "Whether all tasks are done."},
    {"_left", T_ULONGLONG, offsetof(struct fpy_result, left), READONLY,
     "How many tasks are not done."},
    {"_value", T_OBJECT, offsetof(struct fpy_result, value), READONLY, "The results."},
    {"_hooked", T_BOOL, offsetof(struct fpy_result, hooked), 0,
     "Whether Pool.take() hands it out when it is done."},
    {NULL, 0, 0, 0, NULL},
};

static PyGetSetDef fields[] = {
    {"_error", get_error, set_error, "None, or (code, what) of the first error.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyMethodDef methods[] = {
    {"_less", result_less, METH_NOARGS,
     "_less()\n--\n\nOne less is left; tells whether that was the last."},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot slots[] = {
    {Py_tp_init, (void *)result_init},
    {Py_tp_dealloc, (void *)result_dealloc},
    {Py_tp_traverse, (void *)result_traverse},
    {Py_tp_clear, (void *)result_clear},
    {Py_tp_methods, methods},
    {Py_tp_members, members},
    {Py_tp_getset, fields},
    {Py_tp_doc, "Result(kind, left, value=None)\n--\n\nWhere results of tasks go."},
    {0, NULL},
};

static PyType_Spec spec =
    FPY_SPEC("Result", struct fpy_result, slots, Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC);

int fpy_result_add(PyObject *module)
{
    if (fpy_add_type(module, &spec) < 0)
        return -1;
    result_type = PyObject_GetAttrString(module, "Result");
    return result_type ? 0 : -1;
}
