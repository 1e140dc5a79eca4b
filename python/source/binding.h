/* binding.h - what the parts of the extension share: Python's stable ABI, fiber.h, errors and
 * waiting.
 *
 * Rules for every part:
 *  - a call of fiber.h that may wait, or start or end something, runs with the GIL given up;
 *    one that may wait long goes through fpy_wait();
 *  - no thread of the library takes the GIL. Functions that run in a child (child_main.c) are
 *    called in its main thread;
 *  - no lock of C is held while the GIL is wanted;
 *  - handles are heap types, whose dealloc closes with the GIL given up.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#pragma once

#define PY_SSIZE_T_CLEAN
#ifndef Py_LIMITED_API
#define Py_LIMITED_API 0x030B0000
#endif
#include <Python.h>

#include <errno.h>
#include <limits.h>
#include <stdint.h>

#include "fiber.h"

/* ---- ctrl_c.c ---- */

/* From now on Ctrl-C in a terminal sends SIGINT to that process, too, or ends it if it does not run
 * yet. Returns 0 or a negative errno. Does not need the GIL. */
int fpy_ctrl_c_follow(struct fiber_process *p);
/* The same for all of them, if the program has set another handler of SIGINT since. Call it now and
 * then, with the GIL: no handler is set meanwhile. */
void fpy_ctrl_c_again(void);
/* Call it before the handle is closed; also without fpy_ctrl_c_follow(). */
void fpy_ctrl_c_leave(struct fiber_process *p);

/* ---- extension.c ---- */

/* Makes the type and adds it under the last part of its name. Returns 0, or -1 with an
 * exception. */
int fpy_add_type(PyObject *module, PyType_Spec *spec);

/* The spec of a type: its name, the struct of its objects, its slots, flags besides the default. */
#define FPY_SPEC(type, object, table, more)                        \
    {                                                              \
        .name = "fiber._fiber." type, .basicsize = sizeof(object), \
        .flags = Py_TPFLAGS_DEFAULT | (more), .slots = (table)     \
    }

/* Defines handle_of(), which returns the handle of an object, or NULL with this exception. */
#define FPY_HANDLE_OF(type, sentence)                           \
    static struct fiber_##type *handle_of(PyObject *self)       \
    {                                                           \
        struct fiber_##type *h = ((struct type *)self)->handle; \
                                                                \
        if (!h)                                                 \
            PyErr_SetString(PyExc_ValueError, sentence);        \
        return h;                                               \
    }

/* Ends a dealloc: frees the object, and its reference to its type. */
void fpy_free(PyObject *self);

/* Defines TYPE_dealloc(), which closes the handle of an object with the GIL given up. A thread that
 * waits in a method holds a reference, so none waits then. */
#define FPY_DEALLOC(type, close)                  \
    static void type##_dealloc(PyObject *self)    \
    {                                             \
        if (((struct type *)self)->handle) {      \
            Py_BEGIN_ALLOW_THREADS;               \
            close(((struct type *)self)->handle); \
            Py_END_ALLOW_THREADS;                 \
        }                                         \
        fpy_free(self);                           \
    }

/* Define methods of the type for which FPY_HANDLE_OF() stands above: each calls
 * fiber_TYPE_METHOD() with the handle. */

/* TYPE_METHOD(): returns None. */
#define FPY_CALL(type, method)                                       \
    static PyObject *type##_##method(PyObject *self, PyObject *none) \
    {                                                                \
        struct fiber_##type *handle = handle_of(self);               \
        int rc;                                                      \
                                                                     \
        if (!handle)                                                 \
            return NULL;                                             \
        Py_BEGIN_ALLOW_THREADS;                                      \
        rc = fiber_##type##_##method(handle);                        \
        Py_END_ALLOW_THREADS;                                        \
        return fpy_none(rc);                                         \
    }

/* TYPE_METHOD(): returns a descriptor. */
#define FPY_FD(type, method)                                         \
    static PyObject *type##_##method(PyObject *self, PyObject *none) \
    {                                                                \
        struct fiber_##type *handle = handle_of(self);               \
        int fd;                                                      \
                                                                     \
        if (!handle)                                                 \
            return NULL;                                             \
        Py_BEGIN_ALLOW_THREADS;                                      \
        fd = fiber_##type##_##method(handle);                        \
        Py_END_ALLOW_THREADS;                                        \
        return fd < 0 ? fpy_raise(fd) : PyLong_FromLong(fd);         \
    }

/* TYPE_METHOD(): returns a text of the library. */
#define FPY_TEXT(type, method)                                            \
    static PyObject *type##_##method(PyObject *self, PyObject *none)      \
    {                                                                     \
        struct fiber_##type *handle = handle_of(self);                    \
                                                                          \
        return fpy_text(handle ? fiber_##type##_##method(handle) : NULL); \
    }

/* TYPE_METHOD(timeout): waits as fpy_wait_in_time() does. */
#define FPY_WAIT(type, method, raise)                                                \
    static int wait_for_##method(void *handle, int timeout_ms)                       \
    {                                                                                \
        return fiber_##type##_##method(handle, timeout_ms);                          \
    }                                                                                \
    static PyObject *type##_##method(PyObject *self, PyObject *timeout)              \
    {                                                                                \
        return fpy_wait_in_time(wait_for_##method, handle_of(self), timeout, raise); \
    }

#define PART(name) int fpy_##name##_add(PyObject *module);
#include "parts.h"
#undef PART

/* ---- exceptions.c ---- */

/* Raises the exception for an error code of the library, with the sentence of
 * fiber_last_error(). Call it in the thread of the failed call, before another call of the
 * library. Returns NULL. */
PyObject *fpy_raise(int rc);
/* The result of a call that returns nothing: None, or fpy_raise(). */
PyObject *fpy_none(int rc);
/* The exception that is set, which is cleared, or None. */
PyObject *fpy_exception(void);
/* The address of an object as bytes, or fpy_raise(). */
PyObject *fpy_address(int rc, const struct fiber_address *address);
/* Reads such bytes. 1; 0: there are none (NULL or None); -1 with an exception. */
int fpy_read_address(PyObject *bytes, struct fiber_address *address);
/* A text of the library, which may hold bytes of others (a job's last lines). NULL: an exception is
 * set. */
PyObject *fpy_text(const char *text);
/* The same for calls that receive: -EPIPE is EOFError. */
PyObject *fpy_raise_eof(int rc);
/* From here on fpy_stay() keeps all threads but this one. */
void fpy_leave(void);
/* Keeps a thread for ever if the interpreter ends on another thread. Such a thread is a daemon, and
 * what it waited for is gone. An exception there would be printed while the interpreter closes
 * stderr, which aborts the process. In multiprocessing such a thread just waits on. */
void fpy_stay(void);
/* Raises the class "module.name" with no arguments, e.g. "queue.Empty". Returns NULL. */
PyObject *fpy_raise_bare(const char *where);

/* ---- gil_wait.c ---- */

/* Nanoseconds of the monotonic clock. */
uint64_t fpy_now_ns(void);

/* A signal's handler raised an exception, which is set. */
#define FPY_RAISED INT_MIN

/* One call of the library that waits for at most timeout_ms. */
typedef int (*fpy_wait_fn)(void *call, int timeout_ms);

/* Runs the call until it answers something else than -ETIMEDOUT, or the timeout (seconds;
 * negative: none) is over. The GIL is given up meanwhile, and signals are handled every 100 ms.
 * Returns the answer of the call, or FPY_RAISED. */
int fpy_wait(fpy_wait_fn fn, void *call, double timeout);
/* The same for a call that is costly to repeat: handles signals after 100 ms, then less and less
 * often, down to once in slice_max ms. */
int fpy_wait_longer(fpy_wait_fn fn, void *call, double timeout, int slice_max);
/* For PyArg_Parse "O&": None is no timeout (-1.0), and a negative number is 0, as in
 * multiprocessing. */
int fpy_timeout(PyObject *object, void *timeout);
/* fpy_wait() for a timeout as multiprocessing's: True, or False when it is over first. raise()
 * makes an exception of another error. NULL where the handle is NULL: the exception is set. */
PyObject *fpy_wait_in_time(fpy_wait_fn fn, void *handle, PyObject *timeout,
                           PyObject *(*raise)(int rc));

/* ---- pipe_type.c ---- */

/* The handle of a _fiber.Pipe, or NULL with an exception. It stays open until fpy_pipe_end(). */
struct fiber_pipe *fpy_pipe_begin(PyObject *object);
void fpy_pipe_end(PyObject *object);

/* ---- child_main.c ---- */

/* Runs fiber._child.run() with the bytes, in a thread that has the GIL, and returns its exit code;
 * an exception is printed, and is 1. */
int fpy_run_work(const void *work, size_t len);
/* The function of a process of Python: fiber._child.run() gets the bytes, and says their form. */
int fpy_child_main(const void *work, size_t len);
