/* library.c - the library as a whole: init, fini, program, configuration.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "binding.h"

#include <stdlib.h>

/* A copy of the list whose texts are the bytes that the system has: paths need not be UTF-8. */
static PyObject *encoded(PyObject *list)
{
    PyObject *words = PySequence_List(list);

    for (Py_ssize_t i = 0; words && i < PyList_Size(words); i++) {
        PyObject *bytes = PyUnicode_EncodeFSDefault(PyList_GetItem(words, i));

        if (!bytes || PyList_SetItem(words, i, bytes) < 0)
            Py_CLEAR(words);
    }
    return words;
}

/* Gives the command in the list to `set`. */
static PyObject *set_command(PyObject *list, int (*set)(const char *const *argv))
{
    PyObject *words = encoded(list), *none = NULL; /* holds the bytes meanwhile */
    Py_ssize_t n = words ? PyList_Size(words) : 0;
    const char **argv = words ? calloc((size_t)n + 1, sizeof(*argv)) : NULL;

    if (words && !argv)
        PyErr_NoMemory();
    for (Py_ssize_t i = 0; argv && i < n; i++)
        argv[i] = PyBytes_AsString(PyList_GetItem(words, i));
    if (argv)
        none = fpy_none(set(argv));
    free(argv);
    Py_XDECREF(words);
    return none;
}

static PyObject *library_program(PyObject *self, PyObject *list)
{
    return set_command(list, fiber_program);
}

static int set_template(const char *const *argv)
{
    return fiber_template(argv[0] ? argv : NULL);
}

static PyObject *library_template(PyObject *self, PyObject *list)
{
    return set_command(list, set_template);
}

extern char **environ;

static PyObject *environment(void)
{
    PyObject *list = PyList_New(0);

    for (char **e = environ; list && *e; e++) {
        PyObject *text = PyUnicode_DecodeFSDefault(*e);

        if (!text || PyList_Append(list, text) < 0)
            Py_CLEAR(list);
        Py_XDECREF(text);
    }
    return list;
}

/* Python's work before a fork is done once, and that after one in each copy. The GIL is kept: there
 * is no other thread. */
static PyObject *library_template_serve(PyObject *self, PyObject *none)
{
    int rc;

    PyOS_BeforeFork();
    rc = fiber_template_serve();
    if (rc < 0) {
        PyOS_AfterFork_Parent();
        return fpy_raise(rc);
    }
    PyOS_AfterFork_Child();
    return environment();
}

static PyObject *library_init(PyObject *self, PyObject *none)
{
    int rc;

    Py_BEGIN_ALLOW_THREADS;
    rc = fiber_init(NULL, NULL);
    Py_END_ALLOW_THREADS;
    return fpy_none(rc);
}

static PyObject *library_fini(PyObject *self, PyObject *none)
{
    fpy_leave();
    Py_BEGIN_ALLOW_THREADS;
    fiber_fini();
    Py_END_ALLOW_THREADS;
    Py_RETURN_NONE;
}

static PyObject *library_leave(PyObject *self, PyObject *none)
{
    fpy_leave();
    Py_RETURN_NONE;
}

static PyObject *library_stay(PyObject *self, PyObject *none)
{
    fpy_stay();
    Py_RETURN_NONE;
}

static PyObject *library_config_set(PyObject *self, PyObject *args)
{
    const char *key;
    PyObject *value;
    int rc;

    if (!PyArg_ParseTuple(args, "sO&", &key, PyUnicode_FSConverter, &value))
        return NULL;
    rc = fiber_config_set(key, PyBytes_AsString(value));
    Py_DECREF(value);
    return fpy_none(rc);
}

/* Room enough for the longest value (a list of hosts). */
#define VALUE_MAX 131072

static PyObject *library_config_get(PyObject *self, PyObject *key)
{
    const char *name = PyUnicode_AsUTF8AndSize(key, NULL);
    char *value = name ? malloc(VALUE_MAX) : NULL;
    PyObject *text = NULL;
    int rc;

    if (!name)
        return NULL;
    if (!value)
        return PyErr_NoMemory();
    rc = fiber_config_get(name, value, VALUE_MAX);
    text = rc < 0 ? fpy_raise(rc) : PyUnicode_DecodeFSDefault(value);
    free(value);
    return text;
}

static PyObject *library_version(PyObject *self, PyObject *none)
{
    return PyUnicode_FromString(fiber_version());
}

static PyObject *library_name(PyObject *self, PyObject *none)
{
    return PyUnicode_FromString(fiber_process_self());
}

static PyMethodDef functions[] = {
    {"program", library_program, METH_O,
     "program(argv)\n--\n\nSets the command that starts this program again in a job."},
    {"template", library_template, METH_O,
     "template(argv)\n--\n\nSets the command of a template of this program; none when it is "
     "empty."},
    {"template_serve", library_template_serve, METH_NOARGS,
     "template_serve()\n--\n\nMakes copies of this process, a template. Returns in each copy, with "
     "its environment as a list of 'NAME=value'."},
    {"init", library_init, METH_NOARGS,
     "init()\n--\n\nJoins this process to Fiber. In a child it does the work of the child, and "
     "does "
     "not return."},
    {"fini", library_fini, METH_NOARGS, "fini()\n--\n\nEnds everything that this process started."},
    {"leave", library_leave, METH_NOARGS,
     "leave()\n--\n\nThe interpreter ends: stay() keeps all threads but this one."},
    {"stay", library_stay, METH_NOARGS,
     "stay()\n--\n\nKeeps a daemon thread for ever that would raise while the interpreter ends."},
    {"config_set", library_config_set, METH_VARARGS,
     "config_set(key, value)\n--\n\nSets a value of the configuration."},
    {"config_get", library_config_get, METH_O,
     "config_get(key)\n--\n\nThe value of a setting as text."},
    {"version", library_version, METH_NOARGS, "version()\n--\n\nNames the version of the library."},
    {"name", library_name, METH_NOARGS,
     "name()\n--\n\nThe name of this process in the run, such as worker-7; main in a master."},
    {NULL, NULL, 0, NULL},
};

int fpy_library_add(PyObject *module)
{
    return PyModule_AddFunctions(module, functions);
}
