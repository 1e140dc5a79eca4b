/* worker_main.c - the worker of a pool: its initializer and its tasks, called by the library in the
 * main thread with the GIL given up.
 *
 * A function is unpickled once, when its first task comes, and kept by the number of the common
 * input that it came in; what may change when it is called is unpickled again. The last ones are
 * kept.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "worker_main.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "pickle.h"

#define FUNCTIONS 16                       /* that are kept */
#define FUNCTIONS_BYTES ((size_t)64 << 20) /* of their pickles, but one is always kept */

/* glibc's registration of the destructor of a thread_local object. */
int __cxa_thread_atexit_impl(void (*fn)(void *), void *object, void *library);

struct function {
    uint64_t id;   /* of its common input; 0: none */
    uint64_t call; /* that it was unpickled for; 0: all */
    size_t len;    /* of its pickle */
    PyObject *callable;
};

static struct function functions[FUNCTIONS];
static unsigned newest;

/* ---- Life ---- */

/* The library ends the process by exit(). Python's own end comes before the library's,
 * because this was registered after it. */
static void end_interpreter(void)
{
    if (!Py_IsInitialized())
        return;
    PyGILState_Ensure();
    Py_FinalizeEx();
}

static void end_interpreter_of_thread(void *unused)
{
    end_interpreter();
}

/* exit() destroys the thread_local objects of C++, newest first, and then the static ones. Python's
 * end needs those of the modules that are loaded, so it is registered anew after each import. */
static int end_before_modules(void)
{
    static Py_ssize_t modules;
    Py_ssize_t loaded = PyDict_Size(PyImport_GetModuleDict());

    if (loaded <= modules)
        return 0;
    modules = loaded;
    return __cxa_thread_atexit_impl(end_interpreter_of_thread, NULL, functions);
}

/* ---- Cancelled tasks ---- */

/* A cancelled task is interrupted as by Ctrl-C: a signal to the main thread ends what it waits for.
 * That must not hit the next task, so the end of a task waits for a signal that is being sent, and
 * takes it. */
enum { IDLE, RUNS, SENDS, SENT };

static atomic_int task_state;
static pthread_t main_thread;
static pid_t worker_pid;

static void interrupt_task(void *user)
{
    int runs = RUNS;

    if (!atomic_compare_exchange_strong(&task_state, &runs, SENDS))
        return;
    pthread_kill(main_thread, SIGINT);
    atomic_store(&task_state, SENT);
}

/* False: a task within another one, which is the one to be interrupted. */
static int task_begins(void)
{
    int idle = IDLE;

    return atomic_compare_exchange_strong(&task_state, &idle, RUNS);
}

/* A signal that came between two tasks, such as an alarm that a task has left behind, is not an
 * error of the next task. */
static void handle_signals(void)
{
    while (PyErr_CheckSignals() < 0)
        PyErr_WriteUnraisable(NULL);
}

static void task_ends(void)
{
    PyObject *type, *value, *traceback;
    int runs = RUNS;

    if (atomic_compare_exchange_strong(&task_state, &runs, IDLE))
        return;
    while (atomic_load(&task_state) == SENDS)
        sched_yield();
    sched_yield(); /* a system call: the signal has come when it returns */
    PyErr_Fetch(&type, &value, &traceback);
    while (PyErr_CheckSignals() < 0)
        PyErr_Clear();
    PyErr_Restore(type, value, traceback);
    atomic_store(&task_state, IDLE);
}

int fpy_worker_init(const void *work, size_t len)
{
    PyGILState_STATE state = PyGILState_Ensure();
    int code = fpy_run_work(work, len);

    if (end_before_modules() != 0)
        code = 1;
    PyGILState_Release(state);
    if (atexit(end_interpreter) != 0) /* for exit() in another thread */
        code = 1;
    main_thread = pthread_self();
    worker_pid = getpid();
    if (fiber_task_on_cancel(interrupt_task, NULL) < 0)
        code = 1;
    return code;
}

/* ---- Tasks ---- */

/* The common input of a task. */
struct common {
    const char *data;
    size_t len;
    uint64_t id;
    uint64_t kind; /* and flags */
};

static int get_common(struct common *c)
{
    c->data = fiber_task_common(&c->len, &c->id);
    if (!c->data || c->len < sizeof(c->kind)) {
        PyErr_SetString(PyExc_RuntimeError, "a task arrived without its function");
        return -1;
    }
    memcpy(&c->kind, c->data, sizeof(c->kind));
    return 0;
}

static int load_function(struct function *f, const struct common *c, uint64_t call)
{
    f->id = f->len = 0;
    Py_CLEAR(f->callable);
    f->callable = fpy_loads(c->data + sizeof(c->kind), c->len - sizeof(c->kind));
    if (!f->callable)
        return -1;
    f->id = c->id;
    f->call = call;
    f->len = c->len;
    return 0;
}

/* A function may carry much data, such as the weights of a model, and another one comes with each
 * step of a training. */
static void drop_old_functions(void)
{
    size_t bytes = functions[newest].len;

    for (unsigned i = 1; i < FUNCTIONS; i++) {
        struct function *f = &functions[(newest + i) % FUNCTIONS];

        bytes += f->len;
        if (bytes <= FUNCTIONS_BYTES)
            continue;
        f->id = f->len = 0;
        Py_CLEAR(f->callable);
    }
}

/* The callable of a task of this call: borrowed, until another task runs. */
static PyObject *find_function(const struct common *c, uint64_t call)
{
    struct function *f;

    for (unsigned i = 0; i < FUNCTIONS; i++) {
        f = &functions[(newest + i) % FUNCTIONS];
        if (!f->id || f->id != c->id)
            continue;
        return f->call == call || load_function(f, c, call) == 0 ? f->callable : NULL;
    }
    newest = (newest + FUNCTIONS - 1) % FUNCTIONS;
    f = &functions[newest];
    if (load_function(f, c, call) < 0)
        return NULL;
    drop_old_functions();
    return f->callable;
}

static PyObject *call_star(PyObject *callable, PyObject *sequence)
{
    PyObject *args = PySequence_Tuple(sequence), *result;

    if (!args)
        return NULL;
    result = PyObject_CallObject(callable, args);
    Py_DECREF(args);
    return result;
}

static PyObject *call_block(PyObject *callable, PyObject *list, int star)
{
    Py_ssize_t n = PyList_Size(list);
    PyObject *results = n < 0 ? NULL : PyList_New(n);

    for (Py_ssize_t i = 0; results && i < n; i++) {
        PyObject *item = PyList_GetItem(list, i), *result;

        result =
            star ? call_star(callable, item) : PyObject_CallFunctionObjArgs(callable, item, NULL);
        if (result)
            PyList_SetItem(results, i, result);
        else
            Py_CLEAR(results);
    }
    return results;
}

/* Calls with arguments that are not a tuple or not a dict, which any iterable and any mapping may
 * stand for. The C API would crash on them; Python converts them, or has the sentence why not. */
static PyObject *call_odd(PyObject *callable, PyObject *args, PyObject *kwargs)
{
    PyObject *module = PyImport_ImportModule("fiber._worker"), *result;

    result = module ? PyObject_CallMethod(module, "call", "OOO", callable, args, kwargs) : NULL;
    Py_XDECREF(module);
    return result;
}

static PyObject *call_apply(PyObject *callable, PyObject *argument)
{
    PyObject *args = PyTuple_GetItem(argument, 0), *kwargs = PyTuple_GetItem(argument, 1);

    if (!args || !kwargs)
        return NULL;
    if (PyTuple_Check(args) && PyDict_Check(kwargs))
        return PyObject_Call(callable, args, kwargs);
    return call_odd(callable, args, kwargs);
}

static PyObject *call(uint64_t kind, PyObject *callable, PyObject *argument)
{
    switch (kind) {
    case FPY_ONE:
        return PyObject_CallFunctionObjArgs(callable, argument, NULL);
    case FPY_STAR:
        return call_star(callable, argument);
    case FPY_APPLY:
        return call_apply(callable, argument);
    case FPY_BLOCK:
    case FPY_BLOCK_STAR:
        return call_block(callable, argument, kind == FPY_BLOCK_STAR);
    default:
        PyErr_SetString(PyExc_RuntimeError, "a task of an unknown kind arrived");
        return NULL;
    }
}

/* The argument of a task, and for what call its function is unpickled: 0 for all. */
static PyObject *load_argument(const struct common *c, const void *in, size_t len, uint64_t *call)
{
    static uint64_t tasks;
    PyObject *task = fpy_loads(in, len), *argument = NULL;
    unsigned long long number;

    *call = c->kind & FPY_AFRESH ? ++tasks : 0;
    if (!task || !(c->kind & FPY_NUMBERED))
        return task;
    if (PyArg_ParseTuple(task, "KO", &number, &argument)) {
        *call = number;
        Py_INCREF(argument);
    }
    Py_DECREF(task);
    return argument;
}

static PyObject *run(const void *in, size_t len)
{
    PyObject *argument, *callable, *result = NULL;
    struct common c;
    uint64_t number;

    if (get_common(&c) < 0)
        return NULL;
    argument = load_argument(&c, in, len, &number);
    callable = argument ? find_function(&c, number) : NULL;
    if (callable) {
        Py_INCREF(callable); /* a task may run others in this thread, and replace it */
        result = call(c.kind & ~(uint64_t)(FPY_AFRESH | FPY_NUMBERED), callable, argument);
        Py_DECREF(callable);
    }
    Py_XDECREF(argument);
    return result;
}

/* The exception that is set, as bytes for the caller. `result`: it could not be pickled; NULL: the
 * task has raised. */
static PyObject *failure(PyObject *result)
{
    PyObject *value = fpy_exception(), *bytes = NULL;
    PyObject *module = PyImport_ImportModule("fiber._worker");

    if (module)
        bytes = PyObject_CallMethod(module, "failure", "OOi", value, result ? result : Py_None,
                                    result != NULL);
    Py_XDECREF(module);
    Py_DECREF(value);
    return bytes;
}

static int answer(struct fiber_reply *reply, uint64_t ns, PyObject *pickle)
{
    char *data, *at;
    Py_ssize_t len;

    if (PyBytes_AsStringAndSize(pickle, &data, &len) < 0)
        return -1;
    at = fiber_reply_alloc(reply, sizeof(ns) + (size_t)len);
    if (!at) {
        PyErr_NoMemory();
        return -1;
    }
    memcpy(at, &ns, sizeof(ns));
    memcpy(at + sizeof(ns), data, (size_t)len);
    return 0;
}

static int answer_failure(struct fiber_reply *reply, uint64_t ns, PyObject *pickle)
{
    PyObject *whole = PyBytes_FromStringAndSize((const char *)&ns, sizeof(ns));
    Py_ssize_t len;
    char *data;
    int rc = -1;

    PyBytes_Concat(&whole, pickle);
    if (whole && PyBytes_AsStringAndSize(whole, &data, &len) == 0)
        rc = fiber_reply_fail_bytes(reply, FPY_TASK_RAISED, data, (size_t)len);
    Py_XDECREF(whole);
    return rc;
}

int fpy_worker_task(const void *in, size_t len, struct fiber_reply *reply)
{
    PyGILState_STATE state = PyGILState_Ensure();
    uint64_t begin = fpy_now_ns(), ns;
    PyObject *result, *pickle;
    int rc = 0, outer;

    if (atomic_load(&task_state) == IDLE)
        handle_signals();
    outer = task_begins();
    result = run(in, len);
    if (outer)
        task_ends();
    end_before_modules();
    ns = fpy_now_ns() - begin;
    pickle = result ? fpy_dumps(result, NULL) : NULL;
    if (pickle && answer(reply, ns, pickle) == 0) {
        Py_DECREF(pickle);
    } else if (getpid() != worker_pid) { /* forked by the task: nobody takes its answer */
        Py_XDECREF(pickle);
        PyErr_Print(); /* ends it after sys.exit() */
        rc = -1;
    } else {
        Py_XDECREF(pickle);
        pickle = failure(result);
        rc = pickle ? answer_failure(reply, ns, pickle) : -1;
        Py_XDECREF(pickle);
        if (rc == -1) {
            PyErr_Print();
            rc = fiber_reply_fail(reply, -EIO,
                                  "cannot send the task's exception; see the standard error of its "
                                  "worker");
        }
    }
    Py_XDECREF(result);
    PyGILState_Release(state);
    return rc;
}
