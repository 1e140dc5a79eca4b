"""_worker.py - the side of a pool's worker: becomes like the pool's process, and tells of tasks that failed.

It imports neither multiprocessing nor pickle.py: each worker would pay for them. The current process of
multiprocessing is filled in when a task imports it.

SPDX-License-Identifier: Apache-2.0
"""
import os
import sys

from . import _child, _fiber, _pickling
from ._pickling import PROTOCOL
from _pickle import dumps, loads

FILLED = "multiprocessing.process"


def start(payload):
    """Runs in a new worker, before its first task; returns the exit code."""
    data, initializer = loads(payload)
    fill_in_later(data)
    if data["log_to_stderr"] or "log_level" in data:
        log_as_parent(data)
    _child.prepare(data)
    if initializer:
        function, args = loads(initializer)
        function(*args)
    return 0


def log_as_parent(data):
    """The pool's process uses the logger of multiprocessing, and so does this one, as one that spawn has started."""
    from multiprocessing import util
    if data["log_to_stderr"]:
        util.log_to_stderr()
    if "log_level" in data:
        util.get_logger().setLevel(data["log_level"])


class Filler:
    """A finder of the module that knows the current process: what is loaded is filled in."""

    def __init__(self, data):
        self.data = data

    def find_spec(self, name, path=None, target=None):
        if name != FILLED:
            return None
        sys.meta_path.remove(self)
        for finder in sys.meta_path:
            spec = finder.find_spec(name, path, target)
            if spec:
                self.loader, spec.loader = spec.loader, self
                return spec
        return None

    def create_module(self, spec):
        return self.loader.create_module(spec)

    def exec_module(self, module):
        module.__spec__.loader = module.__loader__ = self.loader
        self.loader.exec_module(module)
        fill_in(module, self.data)


def fill_in_later(data):
    if FILLED in sys.modules:
        fill_in(sys.modules[FILLED], data)
    else:
        sys.meta_path.insert(0, Filler(data))


def number_of(name):
    """Returns the number of a worker, from 1: that of its job, where the pool's process does not tell workers apart."""
    digits = name.rpartition("-")[2]
    return int(digits) if digits.isdigit() else os.getpid()


def fill_in(module, data):
    """Makes the main process of the module the worker of a pool."""
    this = module.current_process()
    number = number_of(_fiber.name())
    this._name = "PoolWorker-%d" % number
    this._identity = (number,)
    this._parent_name, this._parent_pid = data["parent"]
    # It says that it is a daemon, but its configuration does not: it may have children, which inherit that.
    this.__class__ = type("Process", (type(this),), {"daemon": type(this).daemon.getter(lambda self: True)})
    this._config["authkey"] = module.AuthenticationString(data["authkey"])
    module._parent_process = module._ParentProcess(data["parent"][0], data["parent"][1], None)


def call(function, args, kwargs):
    """Calls with arguments that may be any iterable and any mapping."""
    return function(*args, **kwargs)


def failure(exc, result, unpicklable):
    """Returns a task's exception for the caller, pickled: what was raised and its traceback as text, or only texts."""
    if unpicklable:
        return dumps(("encoding", safe_repr(exc), safe_repr(result), None), PROTOCOL)
    text = traceback_of(exc)
    if not isinstance(exc, Exception):  # SystemExit, KeyboardInterrupt: they would end the caller
        exc = RuntimeError("a task raised %s%s" % (type(exc).__name__, ": %s" % exc if str(exc) else ""))
    try:
        data = _pickling.dumps(("raised", exc, text))
        loads(data)
    except Exception as problem:
        data = dumps(("encoding", safe_repr(problem), safe_repr(exc), text), PROTOCOL)
    return data


def traceback_of(exc):
    import traceback
    try:
        return "".join(traceback.format_exception(exc))
    except Exception as problem:
        return "%s (its traceback cannot be shown: %s)\n" % (type(exc).__name__, safe_repr(problem))


def safe_repr(obj):
    try:
        return repr(obj)
    except Exception:
        return "<a %s that has no text>" % type(obj).__name__
