/* pool_type.h - results, streams and pools of the extension.
 *
 * A Result is one for the program: of one call, or of a map of many. Each task belongs to one, at a
 * place in it. Results arrive by Pool.take(), which puts them there; Python code decides who calls
 * it when. Everything here is guarded by the GIL.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "binding.h"

enum fpy_result_kind {
    FPY_RESULT_ONE,    /* value: what the task returned */
    FPY_RESULT_LIST,   /* value: a list that is as long as the map; the caller makes it */
    FPY_RESULT_ARRIVE, /* value: a list of (place, count, error, value) in the order of arrival */
    FPY_RESULT_KINDS
};

struct fpy_result {
    PyObject_HEAD;
    PyObject *value;
    PyObject *error; /* NULL: none yet; (code, what): the first one, by place */
    uint64_t error_at;
    uint64_t left; /* tasks that are not done, and one while more are being put */
    int kind;
    char done;
    char hooked; /* take() hands it out when it is done */
};

/* Adds a type that Python code may derive from to the module; a new reference, or NULL. */
int fpy_result_add(PyObject *module);
int fpy_is_result(PyObject *object);
/* One task at `at` is done: takes over `value` (`error` 0) or what the error says. `count`: results
 * in a block; 0: it is not a block. Returns -1 with an exception when memory is short. */
int fpy_result_put(struct fpy_result *r, uint64_t at, uint32_t count, PyObject *error,
                   PyObject *value);
/* One less is left: 1 when that was the last. */
int fpy_result_less(struct fpy_result *r);
