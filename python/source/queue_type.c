/* queue_type.c - handles of queues: _fiber.Queue.
 *
 * A handle is closed with its last reference, so a thread that waits in a method keeps it.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "binding.h"

struct queue {
    PyObject_HEAD struct fiber_queue *handle; /* NULL: not opened */
    /* Messages of calls of get() that a signal's handler has ended; NULL: none yet. */
    PyObject *kept;
    int has_kept; /* atomic: a thread that waits in get() reads it without the GIL */
};

FPY_HANDLE_OF(queue, "the queue was not opened")

/* While a bounded queue is full, each slice of the wait of a put withdraws the message and sends it
 * again: that of a long message should not keep the network busy. */
#define LONG_BYTES (64u << 10)
#define LONG_SLICE_MS 1000

static Py_ssize_t count_kept(const struct queue *q)
{
    return q->kept ? PyList_Size(q->kept) : 0;
}

static void note_kept(struct queue *q)
{
    __atomic_store_n(&q->has_kept, count_kept(q) > 0, __ATOMIC_RELAXED);
}

static int queue_init(PyObject *self, PyObject *args, PyObject *kwargs)
{
    static char *words[] = {"max_messages", "address", "before", NULL};
    struct queue *q = (struct queue *)self;
    PyObject *bytes = NULL;
    struct queue *before = NULL;
    Py_ssize_t max = 0;
    struct fiber_address a;
    int has, rc;

    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "|nOO!:Queue", words, &max, &bytes,
                                     Py_TYPE(self), &before) ||
        (has = fpy_read_address(bytes, &a)) < 0)
        return -1;
    q->kept = before ? Py_XNewRef(before->kept) : NULL;
    note_kept(q);
    Py_BEGIN_ALLOW_THREADS;
    rc = has ? fiber_queue_connect(&q->handle, &a)
             : fiber_queue_open(&q->handle, max > 0 ? (size_t)max : 0);
    Py_END_ALLOW_THREADS;
    if (rc < 0)
        fpy_raise_eof(rc);
    return rc < 0 ? -1 : 0;
}

static void queue_dealloc(PyObject *self)
{
    struct fiber_queue *handle = ((struct queue *)self)->handle;

    if (handle) {
        Py_BEGIN_ALLOW_THREADS;
        fiber_queue_close(handle);
        Py_END_ALLOW_THREADS;
    }
    Py_XDECREF(((struct queue *)self)->kept);
    fpy_free(self);
}

static PyObject *queue_address(PyObject *self, PyObject *none)
{
    struct fiber_queue *handle = handle_of(self);
    struct fiber_address a;
    int rc = handle ? fiber_queue_address(handle, &a) : 0;

    if (!handle)
        return NULL;
    return fpy_address(rc, &a);
}

struct message {
    struct fiber_queue *handle;
    struct fiber_bytes bytes;
    const int *has_kept; /* NULL: a put */
};

static int put(void *call, int timeout_ms)
{
    struct message *m = call;

    return fiber_queue_put(m->handle, m->bytes.data, m->bytes.len, timeout_ms);
}

static PyObject *queue_put(PyObject *self, PyObject *args)
{
    struct message m = {.handle = handle_of(self)};
    Py_buffer data;
    double seconds;
    int rc;

    if (!m.handle || !PyArg_ParseTuple(args, "y*O&", &data, fpy_timeout, &seconds))
        return NULL;
    m.bytes = (struct fiber_bytes){data.buf, (size_t)data.len};
    rc = m.bytes.len > LONG_BYTES ? fpy_wait_longer(put, &m, seconds, LONG_SLICE_MS)
                                  : fpy_wait(put, &m, seconds);
    PyBuffer_Release(&data);
    if (rc == FPY_RAISED)
        return NULL;
    if (rc == -ETIMEDOUT)
        return fpy_raise_bare("queue.Full");
    return fpy_none(rc);
}

#define KEPT 1

static int get(void *call, int timeout_ms)
{
    struct message *m = call;

    if (__atomic_load_n(m->has_kept, __ATOMIC_RELAXED))
        return KEPT;
    return fiber_queue_get(m->handle, &m->bytes, timeout_ms);
}

/* The first message that is kept, or NULL with an exception. */
static PyObject *take_kept(struct queue *q)
{
    PyObject *bytes = Py_XNewRef(PyList_GetItem(q->kept, 0));

    if (bytes && PyList_SetSlice(q->kept, 0, 1, NULL) < 0)
        Py_CLEAR(bytes);
    note_kept(q);
    return bytes;
}

/* A signal came while get() waited, and a message after it: the exception of the signal's handler
 * ends the call, and the next one returns the message. */
static PyObject *keep_if_interrupted(struct queue *q, PyObject *bytes)
{
    PyObject *type, *value, *traceback;

    if (!bytes || PyErr_CheckSignals() == 0)
        return bytes;
    PyErr_Fetch(&type, &value, &traceback);
    if (!q->kept)
        q->kept = PyList_New(0);
    if (!q->kept || PyList_Insert(q->kept, 0, bytes) < 0)
        PyErr_Clear();
    note_kept(q);
    Py_DECREF(bytes);
    PyErr_Restore(type, value, traceback);
    return NULL;
}

static PyObject *queue_get(PyObject *self, PyObject *timeout)
{
    struct queue *q = (struct queue *)self;
    struct message m = {.handle = handle_of(self), .has_kept = &q->has_kept};
    PyObject *bytes;
    double seconds;
    int rc;

    if (!m.handle || !fpy_timeout(timeout, &seconds))
        return NULL;
    do
        rc = fpy_wait(get, &m, seconds);
    while (rc == KEPT && count_kept(q) == 0); /* another thread has taken it */
    if (rc == KEPT)
        return take_kept(q);
    if (rc == FPY_RAISED)
        return NULL;
    if (rc == -ETIMEDOUT)
        return fpy_raise_bare("queue.Empty");
    if (rc < 0)
        return fpy_raise_eof(rc);
    bytes = PyBytes_FromStringAndSize(m.bytes.data, (Py_ssize_t)m.bytes.len);
    fiber_bytes_free(&m.bytes);
    return keep_if_interrupted(q, bytes);
}

static PyObject *queue_size(PyObject *self, PyObject *none)
{
    struct fiber_queue *handle = handle_of(self);
    size_t n = 0;
    int rc;

    if (!handle)
        return NULL;
    Py_BEGIN_ALLOW_THREADS;
    rc = fiber_queue_size(handle, &n);
    Py_END_ALLOW_THREADS;
    n += (size_t)count_kept((const struct queue *)self);
    return rc < 0 ? fpy_raise_eof(rc) : PyLong_FromSize_t(n);
}

FPY_FD(queue, fd)
FPY_CALL(queue, shut)
FPY_CALL(queue, done)
FPY_CALL(queue, deal)
FPY_WAIT(queue, flush, fpy_raise_eof)
FPY_WAIT(queue, join, fpy_raise_eof)

static PyMethodDef methods[] = {
    {"address", queue_address, METH_NOARGS,
     "address()\n--\n\nThe address by which other processes connect. Only the owner has it."},
    {"put", queue_put, METH_VARARGS,
     "put(data, timeout)\n--\n\nPuts a message; queue.Full after the timeout."},
    {"get", queue_get, METH_O,
     "get(timeout)\n--\n\nTakes the next message; queue.Empty after the timeout, EOFError when the "
     "queue has\nended."},
    {"size", queue_size, METH_NOARGS, "size()\n--\n\nHow many messages wait in the queue."},
    {"fd", queue_fd, METH_NOARGS,
     "fd()\n--\n\nA descriptor that polls readable while get() need not wait."},
    {"shut", queue_shut, METH_NOARGS, "shut()\n--\n\nEnds all puts, by any process."},
    {"done", queue_done, METH_NOARGS,
     "done()\n--\n\nSays that one message is finished; ValueError when all are."},
    {"deal", queue_deal, METH_NOARGS,
     "deal()\n--\n\nFrom now on messages go to the receivers in turn."},
    {"flush", queue_flush, METH_O,
     "flush(timeout)\n--\n\nWaits until the owner has all that this process put, and tells whether "
     "it has."},
    {"join", queue_join, METH_O,
     "join(timeout)\n--\n\nWaits until all messages are finished, and tells whether they are."},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot slots[] = {
    {Py_tp_init, (void *)queue_init},
    {Py_tp_dealloc, (void *)queue_dealloc},
    {Py_tp_methods, methods},
    {Py_tp_doc,
     "Queue(max_messages=0, address=None, before=None)\n--\n\nOpens a queue of this process, or "
     "connects to the one that has the address. before: the handle in whose place this "
     "one is used, of the same queue."},
    {0, NULL},
};

static PyType_Spec spec = FPY_SPEC("Queue", struct queue, slots, 0);

int fpy_queue_add(PyObject *module)
{
    return fpy_add_type(module, &spec);
}
