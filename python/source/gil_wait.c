/* gil_wait.c - waiting calls: the GIL given up, in slices, with signals handled between them.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "binding.h"

#include <math.h>
#include <time.h>

#define SLICE_MS 100

uint64_t fpy_now_ns(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static double now(void)
{
    return (double)fpy_now_ns() / 1e9;
}

/* Rounded up: a timeout is never over too early. */
static int slice_of(double left, int slice)
{
    double ms = ceil(left * 1000);

    return ms > slice ? slice : ms < 0 ? 0 : (int)ms;
}

int fpy_wait(fpy_wait_fn fn, void *call, double timeout)
{
    return fpy_wait_longer(fn, call, timeout, SLICE_MS);
}

int fpy_wait_longer(fpy_wait_fn fn, void *call, double timeout, int slice_max)
{
    double end = timeout > 0 ? now() + timeout : 0;
    int slice = SLICE_MS, ms = timeout < 0 ? slice : slice_of(timeout, slice), rc;

    for (;;) {
        Py_BEGIN_ALLOW_THREADS;
        rc = fn(call, ms);
        Py_END_ALLOW_THREADS;
        if (rc != -ETIMEDOUT)
            return rc;
        fpy_ctrl_c_again();
        if (PyErr_CheckSignals() < 0)
            return FPY_RAISED;
        slice = 2 * slice < slice_max ? 2 * slice : slice_max;
        ms = timeout < 0 ? slice : timeout > 0 ? slice_of(end - now(), slice) : 0;
        if (ms == 0)
            return rc;
    }
}

int fpy_timeout(PyObject *object, void *timeout)
{
    double *t = timeout;

    *t = -1;
    if (object == Py_None)
        return 1;
    *t = PyFloat_AsDouble(object);
    if (*t == -1 && PyErr_Occurred())
        return 0;
    if (isnan(*t)) {
        PyErr_SetString(PyExc_ValueError, "a timeout cannot be NaN");
        return 0;
    }
    *t = *t < 0 ? 0 : *t;
    if (isinf(*t))
        *t = -1;
    return 1;
}

PyObject *fpy_wait_in_time(fpy_wait_fn fn, void *handle, PyObject *timeout,
                           PyObject *(*raise)(int rc))
{
    double seconds;
    int rc;

    if (!handle || !fpy_timeout(timeout, &seconds))
        return NULL;
    rc = fpy_wait(fn, handle, seconds);
    if (rc == FPY_RAISED)
        return NULL;
    return rc == 0 || rc == -ETIMEDOUT ? PyBool_FromLong(rc == 0) : raise(rc);
}
