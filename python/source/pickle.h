/* pickle.h - pickles of Python objects, without pickle.py, which takes milliseconds to import.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "binding.h"

/* Pickles an object for another process: a new bytes object, or NULL with an exception.
 * fiber._pickling tries the objects that _pickle refuses. `by`: a function of Python that does it
 * instead; NULL: none. */
PyObject *fpy_dumps(PyObject *object, PyObject *by);
/* Unpickles an object, which refers to none of these bytes. NULL with an exception. */
PyObject *fpy_loads(const void *data, size_t len);
