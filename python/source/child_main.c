/* child_main.c - the function of a process of Python: fiber._child.run(), then the end of Python.
 *
 * fiber_init() is called by Python code of the child with the GIL given up, and calls this
 * function in the same thread. It ends the interpreter itself (threads that are not daemons,
 * atexit, what was printed), because the library kills a child that lingers after it has told
 * its exit code.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "binding.h"

int fpy_run_work(const void *work, size_t len)
{
    PyObject *module = PyImport_ImportModule("fiber._child"), *answer;
    long code = 1;

    answer = module ? PyObject_CallMethod(module, "run", "y#", work, (Py_ssize_t)len) : NULL;
    if (answer) {
        code = PyLong_AsLong(answer);
        Py_DECREF(answer);
    }
    Py_XDECREF(module);
    if (PyErr_Occurred()) {
        PyErr_Print();
        code = 1;
    }
    return (int)(code & 0xff);
}

int fpy_child_main(const void *work, size_t len)
{
    int code;

    PyGILState_Ensure();
    code = fpy_run_work(work, len);
    Py_FinalizeEx();
    return code;
}
