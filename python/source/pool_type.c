/* pool_type.c - _fiber.Pool and _fiber.Stream: tasks of Python functions put into a pool, their
 * results taken.
 *
 * A stream has the tasks of one function and one kind (worker_main.h). An entry says for each of
 * them whose result it is; it holds a reference to the result, and one to the stream, so that both
 * are there when it is taken.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "pool_type.h"

#include <stddef.h>
#include <stdlib.h>
#include <structmember.h>
#include <string.h>
#include <unistd.h>

#include "pickle.h"
#include "worker_main.h"

#define TAKE_MAX 256
#define PUT_MAX 64          /* tasks in one call of the library, */
#define PUT_BYTES (1 << 20) /* or so many bytes: the first ones start while others are pickled */
#define AGAIN_MAX 100
#define LOOK_S 0.1 /* how often a thread that takes looks at what others have done */

struct pool {
    PyObject_HEAD struct fiber_pool *handle;
    /* never has a task: keeps the library's pool for calls that run while it is closed */
    struct fiber_stream *keeper;
    uint64_t tasks;      /* that are not taken */
    uint64_t bytes;      /* of their inputs */
    char attend;         /* take() returns after each message, and each LOOK_S */
    unsigned long taker; /* the thread in take(); 0: none */
    char closed;
    PyObject *finished; /* hooked results that are done, for the next take() to hand out */
};

struct entry {
    struct fpy_result *owner; /* NULL: taken */
    uint64_t at;
    uint32_t count, again;
    size_t size;
    PyObject *input; /* bytes; NULL: not kept */
};

struct stream {
    PyObject_HEAD struct pool *pool;
    struct fiber_stream *handle;
    struct entry *entries;
    uint64_t base; /* index of the first entry */
    size_t n, cap;
    uint64_t tasks; /* that are not taken */
    /* of an element, and its result; 0: not known */
    uint64_t mean_ns, mean_bytes;
    int again;       /* failed tasks are put again */
    int numbered;    /* FPY_NUMBERED */
    PyObject *dumps; /* NULL: _pickle's */
};

static PyObject *stream_type;

/* ---- Entries ---- */

/* Room for one more; entries at the front that are taken make some. */
static int reserve(struct stream *s, size_t more)
{
    size_t gone = 0, cap = s->cap ? s->cap : 64;
    struct entry *entries;

    if (s->n + more <= s->cap)
        return 0;
    while (gone < s->n && !s->entries[gone].owner)
        gone++;
    if (gone) {
        memmove(s->entries, s->entries + gone, (s->n - gone) * sizeof(*s->entries));
        s->base += gone;
        s->n -= gone;
    }
    if (s->n + more <= s->cap && gone >= s->cap / 2)
        return 0;
    while (cap < 2 * (s->n + more))
        cap *= 2;
    entries = realloc(s->entries, cap * sizeof(*entries));
    if (!entries) {
        PyErr_NoMemory();
        return -1;
    }
    s->entries = entries;
    s->cap = cap;
    return 0;
}

static void add_entry(struct stream *s, const struct entry *e)
{
    s->entries[s->n++] = *e;
    s->tasks++;
    s->pool->tasks++;
    s->pool->bytes += e->size;
    Py_INCREF((PyObject *)e->owner);
    Py_XINCREF(e->input);
    Py_INCREF((PyObject *)s);
}

/* The entry's references are the caller's from now on; that to the stream is not among them. */
static struct entry take_entry(struct stream *s, uint64_t index)
{
    struct entry e = s->entries[index - s->base];

    s->entries[index - s->base] = (struct entry){.owner = NULL};
    s->tasks--;
    s->pool->tasks--;
    s->pool->bytes -= e.size;
    if (s->tasks == 0) {
        s->base += s->n;
        s->n = 0;
    }
    return e;
}

static void drop_entry(struct entry *e)
{
    Py_DECREF((PyObject *)e->owner);
    Py_XDECREF(e->input);
}

/* ---- Putting ---- */

/* An error of what is put, as a value: what is raised comes from a handler of a signal. */
static PyObject *put_error_or_none(int raised)
{
    if (raised || (PyErr_Occurred() && !PyErr_ExceptionMatches(PyExc_Exception)))
        return NULL;
    return fpy_exception();
}

/* Python calls the handlers of signals in the main thread alone. */
static int may_run_handlers(void)
{
    return gettid() == getpid();
}

/* Pickles an object. An error that a second try does not have is one that the handler of a signal
 * has raised meanwhile: *raised. */
static PyObject *dumps(const struct stream *s, PyObject *object, int *raised)
{
    PyObject *pickle = fpy_dumps(object, s->dumps), *type, *value, *traceback;

    if (pickle || !PyErr_ExceptionMatches(PyExc_Exception) || !may_run_handlers())
        return pickle;
    PyErr_Fetch(&type, &value, &traceback);
    pickle = fpy_dumps(object, s->dumps);
    *raised = pickle != NULL;
    if (*raised) {
        Py_CLEAR(pickle);
        PyErr_Restore(type, value, traceback);
    } else {
        Py_XDECREF(type);
        Py_XDECREF(value);
        Py_XDECREF(traceback);
    }
    return pickle;
}

static int check_running(const struct pool *p, const void *handle)
{
    if (handle && !p->closed)
        return 0;
    PyErr_SetString(PyExc_ValueError, "Pool not running");
    return -1;
}

/* Puts pickled tasks, whose entries are there in the same order. It does not wait, so the GIL is
 * kept: indexes follow each other. */
static int put_pickles(struct stream *s, PyObject *const *pickles, struct entry *entries, size_t n)
{
    struct fiber_bytes in[PUT_MAX];
    int rc;

    if (check_running(s->pool, s->handle) < 0 || reserve(s, n) < 0)
        return -1;
    for (size_t i = 0; i < n; i++) {
        Py_ssize_t len;
        char *data;

        if (PyBytes_AsStringAndSize(pickles[i], &data, &len) < 0)
            return -1;
        in[i] = (struct fiber_bytes){data, (size_t)len};
        entries[i].size = (size_t)len;
        entries[i].input = s->again ? pickles[i] : NULL;
    }
    rc = fiber_stream_put(s->handle, in, n, NULL);
    if (rc < 0) {
        fpy_raise(rc);
        return -1;
    }
    for (size_t i = 0; i < n; i++) {
        add_entry(s, &entries[i]);
        entries[i].owner->left++;
    }
    return 0;
}

static PyObject *stream_put(PyObject *self, PyObject *args)
{
    struct stream *s = (struct stream *)self;
    struct entry e = {.count = 0};
    PyObject *owner, *object, *pickle;
    int raised = 0;

    if (!PyArg_ParseTuple(args, "OO:put", &owner, &object))
        return NULL;
    if (!fpy_is_result(owner)) {
        PyErr_SetString(PyExc_TypeError, "a task needs a Result");
        return NULL;
    }
    e.owner = (struct fpy_result *)owner;
    pickle = dumps(s, object, &raised);
    if (pickle && put_pickles(s, &pickle, &e, 1) == 0)
        e.owner->left--; /* the result of one task was made for it */
    Py_XDECREF(pickle);
    return put_error_or_none(raised);
}

struct feed {
    PyObject *list;
    Py_ssize_t next, stop, block; /* block 0: elements are tasks of their own */
    uint64_t shift;               /* from a position in the list to a place in the result */
    uint64_t call;                /* its number, for a stream that is numbered */
    struct fpy_result *owner;
    int raised; /* the exception that is set comes from a handler of a signal */
};

/* The object of the task from `next` to `end`. */
static PyObject *next_object(const struct stream *s, const struct feed *f, Py_ssize_t end)
{
    PyObject *object;

    if (f->block)
        object = PyList_GetSlice(f->list, f->next, end);
    else if ((object = PyList_GetItem(f->list, f->next)))
        Py_INCREF(object);
    if (!object || !s->numbered)
        return object;
    return Py_BuildValue("(KN)", (unsigned long long)f->call, object);
}

/* Pickles the next task. */
static PyObject *next_pickle(struct stream *s, struct feed *f, struct entry *e)
{
    Py_ssize_t end = f->next + (f->block ? f->block : 1);
    PyObject *object, *pickle;

    end = end < f->stop ? end : f->stop;
    object = next_object(s, f, end);
    if (!object)
        return NULL;
    pickle = dumps(s, object, &f->raised);
    Py_DECREF(object);
    *e = (struct entry){.owner = f->owner,
                        .at = (uint64_t)f->next + f->shift,
                        .count = f->block ? (uint32_t)(end - f->next) : 0};
    f->next = pickle ? end : f->next;
    return pickle;
}

/* Some tasks in one call of the library. */
static int feed_some(struct stream *s, struct feed *f)
{
    PyObject *pickles[PUT_MAX];
    struct entry entries[PUT_MAX];
    Py_ssize_t begin = f->next;
    size_t n = 0;
    uint64_t bytes = 0;
    int rc = 0;

    while (n < PUT_MAX && bytes < PUT_BYTES && f->next < f->stop) {
        pickles[n] = next_pickle(s, f, &entries[n]);
        if (!pickles[n]) {
            rc = -1;
            break;
        }
        bytes += (uint64_t)PyBytes_Size(pickles[n]);
        n++;
    }
    if (rc == 0)
        rc = put_pickles(s, pickles, entries, n);
    for (size_t i = 0; i < n; i++)
        Py_DECREF(pickles[i]);
    if (rc < 0)
        f->next = begin;
    return rc;
}

/* Where the feed goes on, whatever has interrupted it. */
static void note_next(PyObject *at, Py_ssize_t next)
{
    PyObject *type, *value, *traceback;

    PyErr_Fetch(&type, &value, &traceback);
    PyList_SetItem(at, 0, PyLong_FromSsize_t(next));
    PyErr_Restore(type, value, traceback);
}

static PyObject *stream_feed(PyObject *self, PyObject *args)
{
    struct stream *s = (struct stream *)self;
    unsigned long long limit, least, shift, call;
    struct feed f = {.next = 0};
    PyObject *owner, *at;
    int rc = 0;

    if (!PyArg_ParseTuple(args, "OO!O!nnKKKK:feed", &owner, &PyList_Type, &f.list, &PyList_Type,
                          &at, &f.stop, &f.block, &shift, &call, &limit, &least))
        return NULL;
    f.next = PyList_Size(at) == 1 ? PyLong_AsSsize_t(PyList_GetItem(at, 0)) : -1;
    if (!fpy_is_result(owner) || f.next < 0 || f.stop > PyList_Size(f.list) || f.block < 0) {
        PyErr_SetString(PyExc_ValueError, "feed() needs a Result, and a range within its list");
        return NULL;
    }
    f.owner = (struct fpy_result *)owner;
    f.shift = shift;
    f.call = call;
    while (rc == 0 && f.next < f.stop && (s->pool->bytes < limit || s->tasks < least))
        rc = feed_some(s, &f);
    note_next(at, f.next);
    return put_error_or_none(f.raised);
}

/* Cancels the tasks of a result that are not done; their errors are taken like others. The last
 * ones come first: a worker whose task is interrupted would begin the next one. */
static PyObject *stream_cancel(PyObject *self, PyObject *owner)
{
    struct stream *s = (struct stream *)self;

    for (size_t i = s->n; s->handle && !s->pool->closed && i > 0; i--)
        if ((PyObject *)s->entries[i - 1].owner == owner)
            fiber_stream_cancel(s->handle, s->base + i - 1); /* -EALREADY: it is done */
    Py_RETURN_NONE;
}

/* ---- Taking ---- */

static PyObject *error_of(int code, PyObject *what)
{
    PyObject *error = what ? Py_BuildValue("(iO)", code, what) : NULL;

    Py_XDECREF(what);
    return error;
}

/* The exception that is set as the error of a task whose result cannot be unpickled here. */
static PyObject *error_here(void)
{
    return error_of(0, fpy_exception());
}

/* Adds the sum of so many values to their mean, which is above 0 from then on. */
static void measure(uint64_t *mean, uint64_t sum, uint32_t count)
{
    uint64_t value = sum / (count ? count : 1);

    value = value ? value : 1;
    *mean = *mean ? (*mean * 3 + value) / 4 : value;
}

/* The object that the bytes hold; and its time. */
static PyObject *object_of(struct stream *s, const struct entry *e, const struct fiber_bytes *b)
{
    uint64_t ns;

    if (b->len < sizeof(ns)) {
        PyErr_SetString(PyExc_RuntimeError, "a result is invalid");
        return NULL;
    }
    memcpy(&ns, b->data, sizeof(ns));
    measure(&s->mean_ns, ns, e->count);
    measure(&s->mean_bytes, e->size + b->len, e->count);
    return fpy_loads((const char *)b->data + sizeof(ns), b->len - sizeof(ns));
}

/* Puts a failed task again: 1, or 0 when that cannot be. */
static int put_again(struct stream *s, const struct entry *e, int code)
{
    struct entry again = *e;

    if (code != FPY_TASK_RAISED || !e->input || e->again == AGAIN_MAX)
        return 0;
    again.again++;
    if (put_pickles(s, &e->input, &again, 1) < 0) {
        PyErr_Clear();
        return 0;
    }
    e->owner->left--; /* it was counted anew, and is still the same */
    return 1;
}

/* The object in the bytes of a task, or NULL with an exception. */
static PyObject *value_of(struct stream *s, const struct entry *e, const struct fiber_done *d)
{
    if (d->code == 0 || d->code == FPY_TASK_RAISED)
        return object_of(s, e, &d->bytes);
    return PyUnicode_DecodeUTF8(d->bytes.data, (Py_ssize_t)d->bytes.len, "replace");
}

/* The same; an exception that a second try does not have, or that is no Exception, comes from the
 * handler of a signal. take() raises it, when it is done with the message. */
static PyObject *value_again(struct stream *s, const struct entry *e, const struct fiber_done *d,
                             PyObject **raised)
{
    PyObject *first = fpy_exception(), *value = value_of(s, e, d);

    if (!*raised && (value || !PyErr_GivenExceptionMatches(first, PyExc_Exception)))
        *raised = first;
    else
        Py_DECREF(first);
    return value;
}

/* The result of one task goes where it belongs. */
static int deliver(struct stream *s, struct entry *e, const struct fiber_done *d, PyObject **raised)
{
    PyObject *value = value_of(s, e, d), *error = NULL;
    int rc;

    if (!value && may_run_handlers())
        value = value_again(s, e, d, raised);
    if (!value)
        error = error_here();
    if (value && d->code) {
        error = error_of(d->code, value);
        value = NULL;
    }
    if (!value && !error)
        return -1;
    rc = fpy_result_put(e->owner, e->at, e->count, error, value);
    Py_XDECREF(value);
    Py_XDECREF(error);
    return rc;
}

static int finish(struct pool *p, struct fpy_result *r)
{
    return fpy_result_less(r) && r->hooked ? PyList_Append(p->finished, (PyObject *)r) : 0;
}

/* Memory that is short ends nothing: the task has no result then, and its error says so. */
static void take_one(struct pool *p, struct fiber_done *d, PyObject **raised)
{
    struct stream *s = d->user;
    struct entry e = take_entry(s, d->index);

    if (!put_again(s, &e, d->code)) {
        if (deliver(s, &e, d, raised) < 0) {
            PyErr_Clear();
            e.owner->error = e.owner->error ? e.owner->error : Py_BuildValue("(is)", -ENOMEM, "");
            PyErr_Clear();
        }
        if (finish(p, e.owner) < 0)
            PyErr_Clear();
    }
    fiber_bytes_free(&d->bytes);
    drop_entry(&e);
    Py_DECREF((PyObject *)s);
}

/* Not in the pool: to unpickle may run a signal's handler, which may take results, too. */
struct take {
    struct pool *pool;
    struct fiber_done done[TAKE_MAX];
};

static int take_call(void *arg, int timeout_ms)
{
    struct take *t = arg;

    return fiber_pool_take(t->pool->handle, t->done, TAKE_MAX, timeout_ms);
}

/* One message, or what has come of several: how many; negative: an error of the library;
 * FPY_RAISED. */
static int take_some(struct pool *p, double timeout)
{
    PyObject *raised = NULL;
    struct take take;
    int n;

    take.pool = p;
    n = fpy_wait(take_call, &take, timeout);
    for (int i = 0; i < n; i++)
        take_one(p, &take.done[i], &raised);
    if (raised) {
        PyErr_SetObject((PyObject *)Py_TYPE(raised), raised);
        Py_DECREF(raised);
        return FPY_RAISED;
    }
    return n;
}

/* Here and not by the caller: a KeyboardInterrupt behind take() would lose what it returned. */
static PyObject *hand_out(struct pool *p, PyObject *calls)
{
    PyObject *none;

    if (PyList_Size(p->finished) == 0)
        Py_RETURN_NONE;
    none = PyObject_CallMethod(calls, "extend", "O", p->finished);
    if (none && PyList_SetSlice(p->finished, 0, PyList_Size(p->finished), NULL) < 0)
        Py_CLEAR(none);
    return none;
}

/* Takes for LOOK_S at most. None: take() returns; NULL without an exception: it goes on. left:
 * seconds; negative: no limit. */
static PyObject *take_slice(struct pool *p, const struct fpy_result *r, double left,
                            PyObject *calls)
{
    int last = left >= 0 && left <= LOOK_S;
    int n = take_some(p, last ? left : LOOK_S);

    if (n == FPY_RAISED)
        return NULL;
    if (n < 0 && n != -ETIMEDOUT && n != -ESHUTDOWN)
        return fpy_raise(n);
    if (n == -ESHUTDOWN || (n == -ETIMEDOUT && last) || !r || r->done || p->attend ||
        PyList_Size(p->finished))
        return hand_out(p, calls);
    return NULL;
}

static PyObject *pool_take(PyObject *self, PyObject *args)
{
    struct pool *p = (struct pool *)self;
    struct fpy_result *r = NULL;
    PyObject *result, *seconds, *calls, *out = NULL;
    double timeout;
    uint64_t begin = fpy_now_ns();
    unsigned long before = p->taker; /* we: a signal's handler, that interrupted take(), calls */

    if (!PyArg_ParseTuple(args, "OOO:take", &result, &seconds, &calls) ||
        !fpy_timeout(seconds, &timeout))
        return NULL;
    if (result != Py_None && !fpy_is_result(result)) {
        PyErr_SetString(PyExc_TypeError, "take() waits for a Result, or None");
        return NULL;
    }
    if (before && before != PyThread_get_thread_ident()) {
        PyErr_SetString(PyExc_RuntimeError, "another thread is taking results");
        return NULL;
    }
    r = result == Py_None ? NULL : (struct fpy_result *)result;
    p->taker = PyThread_get_thread_ident();
    if (PyList_Size(p->finished) || (r && r->done))
        out = hand_out(p, calls);
    /* Where messages come without a pause, fpy_wait() never looks for signals. */
    while (!out && !PyErr_Occurred() && PyErr_CheckSignals() == 0) {
        double left = timeout - (double)(fpy_now_ns() - begin) / 1e9;

        out = take_slice(p, r, timeout < 0 ? -1 : left > 0 ? left : 0, calls);
    }
    p->taker = before;
    return out;
}

/* ---- Iterables ---- */

static PyObject *pool_pull(PyObject *self, PyObject *args)
{
    PyObject *iterator, *list, *item = NULL, *error;
    Py_ssize_t max, n = 0;
    int failed = 0;

    if (!PyArg_ParseTuple(args, "OnO!:pull", &iterator, &max, &PyList_Type, &list))
        return NULL;
    while (!failed && n < max) {
        item = PyIter_Next(iterator);
        if (!item)
            break;
        failed = PyList_Append(list, item) < 0;
        Py_DECREF(item);
        n++;
    }
    error = fpy_exception();
    return Py_BuildValue("(NO)", error, item || n == max ? Py_False : Py_True);
}

/* ---- Pool ---- */

static int pool_init(PyObject *self, PyObject *args, PyObject *kwargs)
{
    static char *words[] = {
        "work", "min",  "max",    "tasks_per_child", "workers_per_job", "idle",    "name",
        "cpus", "gpus", "memory", "image",           "backend",         "workdir", NULL};
    struct fiber_pool_options o = {.size = sizeof(o), .init = fpy_worker_init};
    struct pool *p = (struct pool *)self;
    unsigned long long tasks = 0, memory = 0;
    const char *work;
    Py_ssize_t len;
    int rc;

    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "y#ii|$KiizdiKzzz:Pool", words, &work, &len,
                                     &o.min, &o.max, &tasks, &o.workers_per_job, &o.idle_ms,
                                     &o.job.name, &o.job.cpus, &o.job.gpus, &memory, &o.job.image,
                                     &o.backend, &o.job.workdir))
        return -1;
    if (p->handle) {
        PyErr_SetString(PyExc_RuntimeError, "the pool is already open");
        return -1;
    }
    p->finished = PyList_New(0);
    if (!p->finished)
        return -1;
    o.init_arg = work;
    o.init_len = (size_t)len;
    o.tasks_per_child = tasks;
    o.job.memory = memory;
    Py_BEGIN_ALLOW_THREADS;
    rc = fiber_pool_open(&p->handle, &o);
    rc = rc < 0 ? rc : fiber_stream_open(&p->keeper, p->handle, fpy_worker_task, NULL, NULL);
    Py_END_ALLOW_THREADS;
    if (rc < 0)
        fpy_raise(rc);
    return rc < 0 ? -1 : 0;
}

static void pool_dealloc(PyObject *self)
{
    struct pool *p = (struct pool *)self;

    Py_BEGIN_ALLOW_THREADS;
    if (!p->closed)
        fiber_pool_close(p->handle);
    fiber_stream_close(p->keeper);
    Py_END_ALLOW_THREADS;
    Py_XDECREF(p->finished);
    fpy_free(self);
}

/* Ends the workers, then gives the tasks that are not done the error that says so. Another thread
 * may be in take(), and a signal's handler may have interrupted wait_workers(). */
static PyObject *pool_close(PyObject *self, PyObject *none)
{
    struct pool *p = (struct pool *)self;

    if (check_running(p, p->handle) < 0)
        return NULL;
    p->closed = 1;
    Py_BEGIN_ALLOW_THREADS;
    fiber_pool_close(p->handle);
    Py_END_ALLOW_THREADS;
    Py_RETURN_NONE;
}

static PyObject *pool_stream(PyObject *self, PyObject *args, PyObject *kwargs)
{
    static char *words[] = {"function", "dumps",      "again", "retries",
                            "priority", "timeout_ms", NULL};
    struct fiber_map_options o = {.size = sizeof(o)};
    struct pool *p = (struct pool *)self;
    PyObject *dumps = Py_None;
    struct stream *s;
    const char *function;
    Py_ssize_t len;
    int again = 0, rc;

    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "y#|Opiii:stream", words, &function, &len,
                                     &dumps, &again, &o.retries, &o.priority, &o.timeout_ms) ||
        check_running(p, p->handle) < 0)
        return NULL;
    s = PyObject_New(struct stream, (PyTypeObject *)stream_type);
    if (!s)
        return NULL;
    memset((char *)s + sizeof(PyObject), 0, sizeof(*s) - sizeof(PyObject));
    s->again = again;
    s->numbered = len > 0 && function[0] & FPY_NUMBERED; /* the kind is little-endian */
    if (dumps != Py_None) {
        Py_INCREF(dumps);
        s->dumps = dumps;
    }
    Py_INCREF(self);
    s->pool = p;
    o.common = function;
    o.common_len = (size_t)len;
    rc = fiber_stream_open(&s->handle, p->handle, fpy_worker_task, &o, s);
    if (rc == 0)
        return (PyObject *)s;
    fpy_raise(rc);
    Py_DECREF((PyObject *)s);
    return NULL;
}

static void stream_dealloc(PyObject *self)
{
    struct stream *s = (struct stream *)self;

    if (s->handle) {
        Py_BEGIN_ALLOW_THREADS;
        fiber_stream_close(s->handle);
        Py_END_ALLOW_THREADS;
    }
    free(s->entries); /* all are taken: each has a reference to the stream */
    Py_XDECREF(s->dumps);
    Py_XDECREF((PyObject *)s->pool);
    fpy_free(self);
}

static PyObject *pool_resize(PyObject *self, PyObject *args)
{
    struct pool *p = (struct pool *)self;
    int min, max, rc;

    if (!PyArg_ParseTuple(args, "ii:resize", &min, &max) || check_running(p, p->handle) < 0)
        return NULL;
    Py_BEGIN_ALLOW_THREADS;
    rc = fiber_pool_autoscale(p->handle, min, max);
    Py_END_ALLOW_THREADS;
    return fpy_none(rc);
}

struct wait_workers {
    struct fiber_pool *pool;
    int workers;
};

static int wait_workers_call(void *arg, int timeout_ms)
{
    struct wait_workers *w = arg;

    return fiber_pool_wait_workers(w->pool, w->workers, timeout_ms);
}

static PyObject *pool_wait_workers(PyObject *self, PyObject *args)
{
    struct pool *p = (struct pool *)self;
    struct wait_workers w = {p->handle, 0};
    PyObject *timeout;

    if (!PyArg_ParseTuple(args, "iO:wait_workers", &w.workers, &timeout) ||
        check_running(p, p->handle) < 0)
        return NULL;
    return fpy_wait_in_time(wait_workers_call, &w, timeout, fpy_raise);
}

static PyObject *pool_kill_worker(PyObject *self, PyObject *args)
{
    struct pool *p = (struct pool *)self;
    const char *name;
    int rc;

    if (!PyArg_ParseTuple(args, "s:kill_worker", &name) || check_running(p, p->handle) < 0)
        return NULL;
    rc = fiber_pool_worker_kill(p->handle, name);
    return fpy_none(rc);
}

/* ---- Figures ---- */

static PyObject *pool_stats(PyObject *self, PyObject *none)
{
    struct pool *p = (struct pool *)self;
    struct fiber_pool_stats s = {.size = sizeof(s)};
    int rc;

    if (check_running(p, p->handle) < 0)
        return NULL;
    rc = fiber_pool_stats(p->handle, &s);
    if (rc < 0)
        return fpy_raise(rc);
    return Py_BuildValue(
        "{s:i,s:i,s:i,s:i,s:K,s:K,s:K,s:K,s:K,s:K,s:K,s:K,s:K,s:K}", "workers", s.workers,
        "starting", s.starting, "busy", s.busy, "target", s.target, "submitted",
        (unsigned long long)s.submitted, "done", (unsigned long long)s.done, "failed",
        (unsigned long long)s.failed, "waiting", (unsigned long long)s.waiting, "running",
        (unsigned long long)s.running, "requeued", (unsigned long long)s.requeued, "dropped",
        (unsigned long long)s.dropped, "deaths", (unsigned long long)s.deaths, "restarts",
        (unsigned long long)s.restarts, "messages", (unsigned long long)s.messages);
}

static PyObject *worker_item(const struct fiber_worker_stats *w)
{
    static const char *const states[] = {"starting", "idle", "busy", "draining"};

    return Py_BuildValue("{s:s,s:L,s:K,s:d,s:d,s:s}", "name", w->name, "pid", (long long)w->pid,
                         "tasks", (unsigned long long)w->tasks, "busy", w->busy, "rtt", w->rtt,
                         "state", states[w->state & 3]);
}

static PyObject *pool_workers(PyObject *self, PyObject *none)
{
    struct pool *p = (struct pool *)self;
    struct fiber_worker_stats *w;
    PyObject *list = NULL;
    int max, n;

    if (check_running(p, p->handle) < 0)
        return NULL;
    n = fiber_pool_worker_stats(p->handle, NULL, 0);
    if (n < 0)
        return fpy_raise(n);
    max = n + 16; /* some may come meanwhile */
    w = calloc((size_t)max, sizeof(*w));
    if (!w)
        return PyErr_NoMemory();
    n = fiber_pool_worker_stats(p->handle, w, max);
    list = PyList_New(0);
    for (int i = 0; list && i < n && i < max; i++) {
        PyObject *item = worker_item(&w[i]);

        if (!item || PyList_Append(list, item) < 0)
            Py_CLEAR(list);
        Py_XDECREF(item);
    }
    free(w);
    return list;
}

/* ---- Tables ---- */

static PyMethodDef pool_methods[] = {
    {"stream", (PyCFunction)(void (*)(void))pool_stream, METH_VARARGS | METH_KEYWORDS,
     "stream(function, dumps=None, again=False, retries=0, priority=0, timeout_ms=0)\n--\n\n"
     "Opens a stream of tasks of one function."},
    {"take", pool_take, METH_VARARGS,
     "take(result, timeout, calls)\n--\n\nTakes results until `result` is done, or hooked ones "
     "are, "
     "which are appended to the deque `calls`, or the timeout is over.\nNone as the result: "
     "returns "
     "after each message and each 0.1 s, and so it does while `attend` is set."},
    {"pull", pool_pull, METH_VARARGS | METH_STATIC,
     "pull(iterator, n, list)\n--\n\nAppends up to n elements to the list. Returns (exception or "
     "None, whether that was all)."},
    {"close", pool_close, METH_NOARGS, "close()\n--\n\nEnds the workers."},
    {"resize", pool_resize, METH_VARARGS,
     "resize(min, max)\n--\n\nSets how many workers there are."},
    {"wait_workers", pool_wait_workers, METH_VARARGS,
     "wait_workers(workers, timeout)\n--\n\nWaits until so many have joined, and tells whether "
     "they have."},
    {"kill_worker", pool_kill_worker, METH_VARARGS,
     "kill_worker(name)\n--\n\nKills a worker; another one takes its place."},
    {"stats", pool_stats, METH_NOARGS, "stats()\n--\n\nThe figures of the pool."},
    {"workers", pool_workers, METH_NOARGS, "workers()\n--\n\nThe figures of each worker."},
    {NULL, NULL, 0, NULL},
};

static PyMemberDef pool_members[] = {
    {"tasks", T_ULONGLONG, offsetof(struct pool, tasks), READONLY,
     "Tasks whose results are not taken."},
    {"bytes", T_ULONGLONG, offsetof(struct pool, bytes), READONLY, "Bytes of their inputs."},
    {"attend", T_BOOL, offsetof(struct pool, attend), 0,
     "Whether take() returns after each message and each 0.1 s."},
    {NULL, 0, 0, 0, NULL},
};

static PyType_Slot pool_slots[] = {
    {Py_tp_init, (void *)pool_init},
    {Py_tp_dealloc, (void *)pool_dealloc},
    {Py_tp_methods, pool_methods},
    {Py_tp_members, pool_members},
    {Py_tp_doc, "Pool(work, min, max, *, tasks_per_child=0, workers_per_job=0, idle=0, name=None, "
                "cpus=0.0, gpus=0, memory=0, image=None, backend=None, workdir=None)\n--\n\n"
                "Opens a pool whose workers run fiber._child.run(work) first. idle: milliseconds."},
    {0, NULL},
};

static PyType_Spec pool_spec = FPY_SPEC("Pool", struct pool, pool_slots, 0);

static PyMethodDef stream_methods[] = {
    {"put", stream_put, METH_VARARGS,
     "put(result, argument)\n--\n\nPuts a task for this result, and returns None or its error."},
    {"feed", stream_feed, METH_VARARGS,
     "feed(result, list, at, stop, block, shift, call, limit, least)\n--\n\nPuts elements of a "
     "list as tasks, from at[0] on, in blocks (0: each alone), while the pool has\nfewer than "
     "`limit` bytes under way, or the stream fewer than `least` tasks. Moves at[0], also when a "
     "handler\nof a signal raises, and returns None or the error of what is there."},
    {"cancel", stream_cancel, METH_O,
     "cancel(result)\n--\n\nCancels the tasks of this result that are not done."},
    {NULL, NULL, 0, NULL},
};

static PyMemberDef stream_members[] = {
    {"tasks", T_ULONGLONG, offsetof(struct stream, tasks), READONLY,
     "Tasks whose results are not taken."},
    {"mean_ns", T_ULONGLONG, offsetof(struct stream, mean_ns), READONLY,
     "Nanoseconds of an element; 0: not known."},
    {"mean_bytes", T_ULONGLONG, offsetof(struct stream, mean_bytes), READONLY,
     "Bytes of an element and its result; 0: not known."},
    {NULL, 0, 0, 0, NULL},
};

static PyType_Slot stream_slots[] = {
    {Py_tp_dealloc, (void *)stream_dealloc},
    {Py_tp_methods, stream_methods},
    {Py_tp_members, stream_members},
    {Py_tp_doc, "A stream of tasks; see Pool.stream()."},
    {0, NULL},
};

static PyType_Spec stream_spec =
    FPY_SPEC("Stream", struct stream, stream_slots, Py_TPFLAGS_DISALLOW_INSTANTIATION);

int fpy_pool_add(PyObject *module)
{
    if (PyModule_AddIntConstant(module, "TASK_RAISED", FPY_TASK_RAISED) < 0 ||
        fpy_result_add(module) < 0 || fpy_add_type(module, &pool_spec) < 0 ||
        fpy_add_type(module, &stream_spec) < 0)
        return -1;
    stream_type = PyObject_GetAttrString(module, "Stream");
    return stream_type ? 0 : -1;
}
