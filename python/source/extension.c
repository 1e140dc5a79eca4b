/* extension.c - the extension fiber._fiber: makes the module of its parts (parts.h).
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "binding.h"

#include <string.h>

static int (*const parts[])(PyObject *module) = {
#define PART(name) fpy_##name##_add,
#include "parts.h"
#undef PART
};

int fpy_add_type(PyObject *module, PyType_Spec *spec)
{
    const char *dot = strrchr(spec->name, '.');
    PyObject *type = PyType_FromModuleAndSpec(module, spec, NULL);
    int rc;

    if (!type)
        return -1;
    rc = PyModule_AddObjectRef(module, dot ? dot + 1 : spec->name, type);
    Py_DECREF(type);
    return rc;
}

void fpy_free(PyObject *self)
{
    PyTypeObject *type = Py_TYPE(self);

    PyObject_Free(self);
    Py_DECREF(type);
}

/* The types are those of the process, and an object of one interpreter is none of another's. */
static int check_interpreter(void)
{
    static int64_t used_by = -1;
    int64_t id = PyInterpreterState_GetID(PyInterpreterState_Get());

    if (used_by < 0)
        used_by = id;
    if (id == used_by)
        return 0;
    PyErr_SetString(PyExc_ImportError, "another interpreter of this process uses fiber, which "
                                       "works in one interpreter only");
    return -1;
}

static int add_parts(PyObject *module)
{
    if (check_interpreter() < 0)
        return -1;
    for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++)
        if (parts[i](module) < 0)
            return -1;
    return 0;
}

static PyModuleDef_Slot slots[] = {{Py_mod_exec, (void *)add_parts}, {0, NULL}};

static struct PyModuleDef module = {
    PyModuleDef_HEAD_INIT,
    .m_name = "fiber._fiber",
    .m_doc = "The C library of Fiber, for the package fiber. Programs use the package.",
    .m_slots = slots,
};

PyMODINIT_FUNC PyInit__fiber(void);

PyMODINIT_FUNC PyInit__fiber(void)
{
    return PyModuleDef_Init(&module);
}
