/* pipe_type.c - ends of pipes: _fiber.Pipe, and _fiber.Message, the memory of a received one.
 *
 * An end may be closed while other threads wait in it: they notice within a slice of their wait,
 * and the last one of them frees the handle. All fields are guarded by the GIL, but for `closed`,
 * which a waiting call reads without it.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "binding.h"

#define FEW_BYTES 4096 /* a send of so few copies them and is over */

struct pipe {
    PyObject_HEAD struct fiber_pipe *handle; /* NULL: closed */
    int users;                               /* calls that run */
    int closed;                              /* atomic */
};

struct message {
    PyObject_HEAD struct fiber_bytes bytes;
};

static int is_closed(struct pipe *p)
{
    return __atomic_load_n(&p->closed, __ATOMIC_RELAXED);
}

static struct fiber_pipe *begin(PyObject *self)
{
    struct pipe *p = (struct pipe *)self;

    if (!p->handle || is_closed(p)) {
        PyErr_SetString(PyExc_OSError, "handle is closed");
        return NULL;
    }
    p->users++;
    return p->handle;
}

static void free_handle(struct pipe *p)
{
    struct fiber_pipe *handle = p->handle;

    p->handle = NULL;
    if (handle) {
        Py_BEGIN_ALLOW_THREADS;
        fiber_pipe_close(handle);
        Py_END_ALLOW_THREADS;
    }
}

static void end(PyObject *self)
{
    struct pipe *p = (struct pipe *)self;

    if (--p->users == 0 && is_closed(p))
        free_handle(p);
}

/* ---- Calls that wait ---- */

struct call {
    struct pipe *pipe;
    struct fiber_pipe *handle;
    const void *data;
    size_t len;
    struct fiber_bytes out;
};

static int run_send(void *arg, int timeout_ms)
{
    struct call *c = arg;

    return is_closed(c->pipe) ? -EBADF : fiber_pipe_send(c->handle, c->data, c->len, timeout_ms);
}

static int run_recv(void *arg, int timeout_ms)
{
    struct call *c = arg;

    return is_closed(c->pipe) ? -EBADF : fiber_pipe_recv(c->handle, &c->out, timeout_ms);
}

/* 0: there is something. */
static int run_poll(void *arg, int timeout_ms)
{
    struct call *c = arg;
    int rc = is_closed(c->pipe) ? -EBADF : fiber_pipe_poll(c->handle, timeout_ms);

    return rc == 0 ? -ETIMEDOUT : rc > 0 ? 0 : rc;
}

/* As multiprocessing has it, where the other end is gone: programs compare and print these. */
static PyObject *raise_end_of_file(int rc)
{
    return rc == -EPIPE ? fpy_raise_bare("builtins.EOFError") : fpy_raise(rc);
}

static PyObject *raise_broken_pipe(int rc)
{
    errno = EPIPE;
    return rc == -EPIPE ? PyErr_SetFromErrno(PyExc_OSError) : fpy_raise(rc);
}

static PyObject *raise_for(struct pipe *p, int rc, PyObject *(*raise)(int rc))
{
    if (rc == FPY_RAISED)
        return NULL;
    fpy_stay();
    if (rc == -EBADF && is_closed(p)) {
        PyErr_SetString(PyExc_OSError, "handle is closed");
        return NULL;
    }
    return raise(rc);
}

static PyObject *pipe_send(PyObject *self, PyObject *data)
{
    struct call c = {.pipe = (struct pipe *)self, .handle = begin(self)};
    PyObject *result = NULL;
    Py_buffer buffer;
    int rc;

    if (!c.handle)
        return NULL;
    if (PyObject_GetBuffer(data, &buffer, PyBUF_SIMPLE) == 0) {
        c.data = buffer.buf;
        c.len = (size_t)buffer.len;
        rc = c.len <= FEW_BYTES ? run_send(&c, 0) : -ETIMEDOUT;
        if (rc == -ETIMEDOUT)
            rc = fpy_wait(run_send, &c, -1);
        result = rc < 0 ? raise_for(c.pipe, rc, raise_broken_pipe) : Py_NewRef(Py_None);
        PyBuffer_Release(&buffer);
    }
    end(self);
    return result;
}

static PyObject *pipe_try_send(PyObject *self, PyObject *args)
{
    struct call c = {.pipe = (struct pipe *)self, .handle = begin(self)};
    PyObject *timeout, *result = NULL;
    Py_buffer buffer;
    double seconds;
    int rc;

    if (!c.handle)
        return NULL;
    if (PyArg_ParseTuple(args, "y*O:try_send", &buffer, &timeout)) {
        c.data = buffer.buf;
        c.len = (size_t)buffer.len;
        rc = fpy_timeout(timeout, &seconds) ? fpy_wait(run_send, &c, seconds) : FPY_RAISED;
        if (rc == 0 || rc == -ETIMEDOUT)
            result = PyBool_FromLong(rc == 0);
        else
            raise_for(c.pipe, rc, raise_broken_pipe);
        PyBuffer_Release(&buffer);
    }
    end(self);
    return result;
}

static PyObject *message_of(PyObject *self, struct fiber_bytes bytes)
{
    PyObject *module = PyType_GetModule(Py_TYPE(self));
    PyObject *type = module ? PyObject_GetAttrString(module, "Message") : NULL;
    PyObject *m = type ? PyType_GenericAlloc((PyTypeObject *)type, 0) : NULL;

    Py_XDECREF(type);
    if (m)
        ((struct message *)m)->bytes = bytes;
    else
        fiber_bytes_free(&bytes);
    return m;
}

static int recv_at_once(struct call *c)
{
    int rc;

    Py_BEGIN_ALLOW_THREADS;
    rc = run_recv(c, 0);
    Py_END_ALLOW_THREADS;
    return rc;
}

/* A signal that comes while this waits has its handler called before a message is taken, which an
 * exception of the handler would lose. */
static int wait_and_recv(struct call *c)
{
    int rc = fpy_wait(run_poll, c, -1);

    if (rc == 0 && PyErr_CheckSignals() < 0)
        return FPY_RAISED;
    return rc < 0 ? rc : recv_at_once(c);
}

static PyObject *received(PyObject *self, struct call *c, int rc)
{
    PyObject *result;

    if (rc < 0)
        return raise_for(c->pipe, rc, raise_end_of_file);
    if (c->out.len > FEW_BYTES)
        return message_of(self, c->out);
    result = PyBytes_FromStringAndSize(c->out.data, (Py_ssize_t)c->out.len);
    fiber_bytes_free(&c->out);
    return result;
}

static PyObject *receive(PyObject *self, int waits)
{
    struct call c = {.pipe = (struct pipe *)self, .handle = begin(self)};
    PyObject *result;
    int rc;

    if (!c.handle)
        return NULL;
    do
        rc = waits ? wait_and_recv(&c) : recv_at_once(&c);
    while (waits && rc == -ETIMEDOUT); /* another thread has taken it */
    result = rc == -ETIMEDOUT ? Py_NewRef(Py_None) : received(self, &c, rc);
    end(self);
    return result;
}

static PyObject *pipe_recv(PyObject *self, PyObject *none)
{
    return receive(self, 1);
}

static PyObject *pipe_try_recv(PyObject *self, PyObject *none)
{
    return receive(self, 0);
}

static PyObject *pipe_poll(PyObject *self, PyObject *timeout)
{
    struct call c = {.pipe = (struct pipe *)self};
    double seconds;
    int rc;

    if (!fpy_timeout(timeout, &seconds))
        return NULL;
    c.handle = begin(self);
    if (!c.handle)
        return NULL;
    rc = fpy_wait(run_poll, &c, seconds);
    end(self);
    if (rc < 0 && rc != -ETIMEDOUT)
        return raise_for(c.pipe, rc, fpy_raise);
    return PyBool_FromLong(rc == 0);
}

/* ---- Others ---- */

static PyObject *pipe_fileno(PyObject *self, PyObject *none)
{
    struct fiber_pipe *handle = begin(self);
    int fd;

    if (!handle)
        return NULL;
    Py_BEGIN_ALLOW_THREADS;
    fd = fiber_pipe_fd(handle);
    Py_END_ALLOW_THREADS;
    end(self);
    return fd < 0 ? fpy_raise(fd) : PyLong_FromLong(fd);
}

static PyObject *pipe_address(PyObject *self, PyObject *none)
{
    struct fiber_address address;
    struct fiber_pipe *handle = begin(self);
    int rc;

    if (!handle)
        return NULL;
    Py_BEGIN_ALLOW_THREADS;
    rc = fiber_pipe_address(handle, &address);
    Py_END_ALLOW_THREADS;
    end(self);
    return fpy_address(rc, &address);
}

static PyObject *pipe_close(PyObject *self, PyObject *none)
{
    struct pipe *p = (struct pipe *)self;

    __atomic_store_n(&p->closed, 1, __ATOMIC_RELAXED);
    if (p->users == 0)
        free_handle(p);
    Py_RETURN_NONE;
}

struct fiber_pipe *fpy_pipe_begin(PyObject *object)
{
    PyObject *module = PyType_GetModule(Py_TYPE(object));
    PyObject *type = module ? PyObject_GetAttrString(module, "Pipe") : NULL;
    int is = type ? PyObject_IsInstance(object, type) : -1;

    Py_XDECREF(type);
    if (is == 0)
        PyErr_SetString(PyExc_TypeError, "this is not an end of a pipe");
    return is == 1 ? begin(object) : NULL;
}

void fpy_pipe_end(PyObject *object)
{
    end(object);
}

/* ---- Life ---- */

static int pipe_init(PyObject *self, PyObject *args, PyObject *kwargs)
{
    struct pipe *p = (struct pipe *)self;
    struct fiber_address address;
    static char *words[] = {"address", NULL};
    PyObject *bytes;
    int rc;

    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "S:Pipe", words, &bytes) ||
        fpy_read_address(bytes, &address) < 0)
        return -1;
    Py_BEGIN_ALLOW_THREADS;
    rc = fiber_pipe_connect(&p->handle, &address);
    Py_END_ALLOW_THREADS;
    if (rc < 0)
        fpy_raise(rc);
    return rc < 0 ? -1 : 0;
}

static PyObject *pipe_pair(PyObject *class, PyObject *oneway)
{
    struct fiber_pipe *ends[2];
    PyObject *pair[2] = {NULL, NULL}, *result = NULL;
    int flags = PyObject_IsTrue(oneway), rc;

    if (flags < 0)
        return NULL;
    Py_BEGIN_ALLOW_THREADS;
    rc = fiber_pipe_open(ends, flags ? FIBER_PIPE_ONEWAY : 0);
    Py_END_ALLOW_THREADS;
    if (rc < 0)
        return fpy_raise(rc);
    for (int i = 0; i < 2; i++) {
        pair[i] = PyType_GenericAlloc((PyTypeObject *)class, 0);
        if (pair[i])
            ((struct pipe *)pair[i])->handle = ends[i];
        else
            fiber_pipe_close(ends[i]);
    }
    if (pair[0] && pair[1])
        result = PyTuple_Pack(2, pair[0], pair[1]);
    Py_XDECREF(pair[0]);
    Py_XDECREF(pair[1]);
    return result;
}

static void pipe_dealloc(PyObject *self)
{
    free_handle((struct pipe *)self);
    fpy_free(self);
}

static void message_dealloc(PyObject *self)
{
    fiber_bytes_free(&((struct message *)self)->bytes);
    fpy_free(self);
}

static int message_buffer(PyObject *self, Py_buffer *view, int flags)
{
    struct fiber_bytes *b = &((struct message *)self)->bytes;

    return PyBuffer_FillInfo(view, self, b->data, (Py_ssize_t)b->len, 1, flags);
}

static Py_ssize_t message_len(PyObject *self)
{
    return (Py_ssize_t)((struct message *)self)->bytes.len;
}

static PyMethodDef methods[] = {
    {"pair", pipe_pair, METH_O | METH_CLASS,
     "pair(oneway)\n--\n\nOpens a pipe and returns its two ends."},
    {"send", pipe_send, METH_O, "send(data)\n--\n\nSends a message."},
    {"try_send", pipe_try_send, METH_VARARGS,
     "try_send(data, timeout)\n--\n\nSends a message, and tells whether there was room in time."},
    {"recv", pipe_recv, METH_NOARGS,
     "recv()\n--\n\nReceives a message: bytes, or a Message when it is long."},
    {"try_recv", pipe_try_recv, METH_NOARGS,
     "try_recv()\n--\n\nReceives a message if there is one, else returns None. No handler of a "
     "signal runs in it."},
    {"poll", pipe_poll, METH_O,
     "poll(timeout)\n--\n\nWaits for a message, and tells whether there is one, or the end."},
    {"fileno", pipe_fileno, METH_NOARGS,
     "fileno()\n--\n\nA descriptor that polls readable while recv() would not wait."},
    {"address", pipe_address, METH_NOARGS,
     "address()\n--\n\nThe address of this end, a secret. Pipe(address) connects to it."},
    {"close", pipe_close, METH_NOARGS, "close()\n--\n\nCloses this handle of the end."},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot slots[] = {
    {Py_tp_init, (void *)pipe_init},
    {Py_tp_dealloc, (void *)pipe_dealloc},
    {Py_tp_methods, methods},
    {Py_tp_doc, "Pipe(address)\n--\n\nAn end of a pipe, connected by its address."},
    {0, NULL},
};

static PyType_Spec spec = FPY_SPEC("Pipe", struct pipe, slots, 0);

static PyType_Slot message_slots[] = {
    {Py_tp_dealloc, (void *)message_dealloc},
    {Py_bf_getbuffer, (void *)message_buffer},
    {Py_sq_length, (void *)message_len},
    {Py_tp_doc, "A message that was received, as a buffer."},
    {0, NULL},
};

static PyType_Spec message_spec =
    FPY_SPEC("Message", struct message, message_slots, Py_TPFLAGS_DISALLOW_INSTANTIATION);

int fpy_pipe_add(PyObject *module)
{
    return fpy_add_type(module, &spec) < 0 ? -1 : fpy_add_type(module, &message_spec);
}
