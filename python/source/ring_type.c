/* ring_type.c - handles of rings: _fiber.Ring, and the collectives of its ranks.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "binding.h"

struct ring {
    PyObject_HEAD struct fiber_ring *handle; /* NULL: not started */
};

/* The work says what to run; rank and size are in the environment of the rank. */
static int run_rank(int rank, int size, const void *work, size_t len)
{
    return fpy_child_main(work, len);
}

FPY_HANDLE_OF(ring, "the ring was not started")

static int ring_init(PyObject *self, PyObject *args, PyObject *kwargs)
{
    static char *words[] = {
        "work",          "size",       "name",       "cpus",     "gpus",   "memory",
        "image",         "backend",    "workdir",    "per_node", "nodes",  "on_failure",
        "max_restarts",  "timeout_ms", "grace_ms",   "bind_to",  "map_by", "cpus_per_rank",
        "gpus_per_rank", "flags",      "output_dir", NULL};
    struct fiber_ring_options o = {.size = sizeof(o)};
    struct ring *r = (struct ring *)self;
    unsigned long long memory = 0;
    int size, on_failure = 0, rc;
    const char *work;
    Py_ssize_t len;

    if (!PyArg_ParseTupleAndKeywords(
            args, kwargs, "y#i|$zdiKzzziiiiiizziiIz:Ring", words, &work, &len, &size, &o.job.name,
            &o.job.cpus, &o.job.gpus, &memory, &o.job.image, &o.backend, &o.job.workdir,
            &o.per_node, &o.nodes, &on_failure, &o.max_restarts, &o.timeout_ms, &o.grace_ms,
            &o.bind_to, &o.map_by, &o.cpus_per_rank, &o.gpus_per_rank, &o.flags, &o.output_dir))
        return -1;
    if (r->handle) {
        PyErr_SetString(PyExc_RuntimeError, "the ring has already started");
        return -1;
    }
    o.job.memory = memory;
    o.on_failure = (enum fiber_ring_policy)on_failure;
    Py_BEGIN_ALLOW_THREADS;
    rc = fiber_ring_start(&r->handle, size, run_rank, work, (size_t)len, &o);
    Py_END_ALLOW_THREADS;
    if (rc < 0)
        fpy_raise(rc);
    return rc < 0 ? -1 : 0;
}

FPY_DEALLOC(ring, fiber_ring_close)

FPY_WAIT(ring, wait, fpy_raise)

static PyObject *ring_exitcode(PyObject *self, PyObject *none)
{
    struct fiber_ring *handle = handle_of(self);
    int code = 0, rc;

    if (!handle)
        return NULL;
    rc = fiber_ring_exitcode(handle, &code);
    if (rc == -EAGAIN)
        Py_RETURN_NONE;
    return rc < 0 ? fpy_raise(rc) : PyLong_FromLong(code);
}

FPY_TEXT(ring, report)
FPY_FD(ring, sentinel)

static PyObject *ring_signal(PyObject *self, PyObject *args)
{
    struct fiber_ring *handle = handle_of(self);
    int signal, rank = -1, rc;

    if (!handle || !PyArg_ParseTuple(args, "i|i", &signal, &rank))
        return NULL;
    Py_BEGIN_ALLOW_THREADS;
    rc =
        rank < 0 ? fiber_ring_signal(handle, signal) : fiber_ring_signal_rank(handle, rank, signal);
    Py_END_ALLOW_THREADS;
    return fpy_none(rc);
}

FPY_CALL(ring, stop)

/* ---- Ranks ---- */

static PyObject *member(const struct fiber_rank_stats *s)
{
    return Py_BuildValue("(iiiiLsss)", s->rank, s->state, s->code, s->restarts, (long long)s->pid,
                         s->host, s->cpus, s->how);
}

static PyObject *ring_members(PyObject *self, PyObject *none)
{
    struct fiber_ring *handle = handle_of(self);
    int n = handle ? fiber_ring_stats(handle, NULL, 0) : 0;
    struct fiber_rank_stats *stats;
    PyObject *list;

    if (!handle)
        return NULL;
    if (n < 0)
        return fpy_raise(n);
    stats = PyMem_Calloc((size_t)n + 1, sizeof(*stats));
    if (!stats)
        return PyErr_NoMemory();
    n = fiber_ring_stats(handle, stats, n);
    list = PyList_New(0);
    for (int i = 0; list && i < n; i++) {
        PyObject *item = member(&stats[i]);

        if (!item || PyList_Append(list, item) < 0)
            Py_CLEAR(list);
        Py_XDECREF(item);
    }
    PyMem_Free(stats);
    return list;
}

static int milliseconds(double seconds)
{
    return seconds < 0 || seconds > INT_MAX / 1000 ? -1 : (int)(seconds * 1000);
}

static PyObject *answer(int rc)
{
    return PyErr_CheckSignals() < 0 ? NULL : fpy_none(rc);
}

/* One call, not slices, here and below: a collective that timed out once does not succeed any
 * more. */
static PyObject *ring_barrier(PyObject *module, PyObject *timeout)
{
    double seconds;
    int rc;

    if (!fpy_timeout(timeout, &seconds))
        return NULL;
    Py_BEGIN_ALLOW_THREADS;
    rc = fiber_ring_barrier(milliseconds(seconds));
    Py_END_ALLOW_THREADS;
    return answer(rc);
}

static PyObject *ring_broadcast(PyObject *module, PyObject *args)
{
    Py_buffer data;
    double seconds;
    int root, rc;

    if (!PyArg_ParseTuple(args, "w*iO&:ring_broadcast", &data, &root, fpy_timeout, &seconds))
        return NULL;
    Py_BEGIN_ALLOW_THREADS;
    rc = fiber_ring_broadcast(data.buf, (size_t)data.len, root, milliseconds(seconds));
    Py_END_ALLOW_THREADS;
    PyBuffer_Release(&data);
    return answer(rc);
}

static PyObject *ring_allreduce(PyObject *module, PyObject *args)
{
    Py_buffer data;
    double seconds;
    int type, op, rc;

    if (!PyArg_ParseTuple(args, "w*iiO&:ring_allreduce", &data, &type, &op, fpy_timeout, &seconds))
        return NULL;
    Py_BEGIN_ALLOW_THREADS;
    rc = fiber_ring_allreduce(data.buf, (size_t)data.len / 8, (enum fiber_ring_type)type,
                              (enum fiber_ring_op)op, milliseconds(seconds));
    Py_END_ALLOW_THREADS;
    PyBuffer_Release(&data);
    return answer(rc);
}

static PyMethodDef methods[] = {
    {"join", ring_wait, METH_O,
     "join(timeout)\n--\n\nWaits until the ring has ended, and tells whether it has."},
    {"exitcode", ring_exitcode, METH_NOARGS,
     "exitcode()\n--\n\n0, or the code of the rank that failed first; None while the ring runs."},
    {"report", ring_report, METH_NOARGS,
     "report()\n--\n\nWhat failed first, where and why; \"\" when all went well."},
    {"sentinel", ring_sentinel, METH_NOARGS,
     "sentinel()\n--\n\nA descriptor that polls readable once the ring has ended."},
    {"signal", ring_signal, METH_VARARGS,
     "signal(number, rank=-1)\n--\n\nSends a signal to every rank, or to one."},
    {"stop", ring_stop, METH_NOARGS, "stop()\n--\n\nEnds the ring: SIGTERM, then SIGKILL."},
    {"members", ring_members, METH_NOARGS,
     "members()\n--\n\nA list of (rank, state, code, restarts, pid, host, cpus, bootstrap)."},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot slots[] = {
    {Py_tp_init, (void *)ring_init},
    {Py_tp_dealloc, (void *)ring_dealloc},
    {Py_tp_methods, methods},
    {Py_tp_doc, "Ring(work, size, **options)\n--\n\nStarts ranks that run fiber._child.run(work). "
                "The options are those of\nstruct fiber_ring_options and its job."},
    {0, NULL},
};

static PyType_Spec spec = FPY_SPEC("Ring", struct ring, slots, 0);

static PyMethodDef functions[] = {
    {"ring_barrier", ring_barrier, METH_O,
     "ring_barrier(timeout)\n--\n\nIn a rank: waits until every rank is here."},
    {"ring_broadcast", ring_broadcast, METH_VARARGS,
     "ring_broadcast(buffer, root, timeout)\n--\n\nIn a rank: fills the buffer with that of rank "
     "`root`."},
    {"ring_allreduce", ring_allreduce, METH_VARARGS,
     "ring_allreduce(buffer, type, op, timeout)\n--\n\nIn a rank: makes each element the sum, "
     "minimum or maximum of all ranks'."},
    {NULL, NULL, 0, NULL},
};

int fpy_ring_add(PyObject *module)
{
    return PyModule_AddFunctions(module, functions) < 0 ? -1 : fpy_add_type(module, &spec);
}
