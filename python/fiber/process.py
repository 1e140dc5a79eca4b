"""process.py - Process: multiprocessing's, started as a job.

SPDX-License-Identifier: Apache-2.0
"""
import os
import re
import signal
import sys
import threading
import weakref
from _pickle import loads
from multiprocessing import context as _mp_context
from multiprocessing import process as _mp
from multiprocessing.process import (AuthenticationString, BaseProcess, current_process,  # noqa: F401
                                     parent_process)

from . import _core, _pickling
from ._errors import with_advice

__all__ = ["BaseProcess", "Process", "active_children", "current_process", "parent_process"]

NAME_LENGTH = 63
NOT_STARTED, LOST = 125, 255  # exit codes that come from the library, which knows more than the code
SHOWN_S = 1.0  # how long the first repr() of a started process waits for its pid

pools = weakref.WeakSet()  # of this process, that may have workers

shown = threading.local()  # .quiet: this thread makes a repr, which waits for a pid once, and not for long


class Popen(_pickling.Spawning):
    """A started process, as BaseProcess wants it."""

    method = "fiber"

    def __init__(self, process):
        core = _core.start()
        self.returncode = None
        self._patience = SHOWN_S
        self.kept = []  # shared tensors in the arguments: the child opens their memory by descriptors of this process
        self.pipes = []  # ends of pipes in the process's arguments, which it holds from its start on
        try:
            self._handle = core.Process(self._work(process), name=job_name(process.name), pipes=self.pipes,
                                        ctrl_c=not hasattr(sys, "ps1"), **job_of(process))
        except BaseException:
            for end in self.pipes:  # each waits for a first process, and this one will not come
                core.Pipe(end.address()).close()
            raise
        del self.pipes
        self.sentinel = self._handle.sentinel()

    def _work(self, process):
        theirs = sys.modules.get("multiprocessing.queues")
        for arg in process._args if theirs else ():
            if issubclass(type(arg), theirs.Queue):
                from .queues import carry
                carry(arg)
        _mp_context.set_spawning_popen(self)  # the authentication key refuses to be pickled for anything else
        try:
            data = (_core.preparation(process.name, process._imports_main), _pickling.dumps_for_child(process))
        finally:
            _mp_context.set_spawning_popen(None)
        return _core.work("process", _pickling.dumps_for_child(data))

    @property
    def pid(self):
        if getattr(shown, "quiet", False):
            patience, self._patience = self._patience, 0
            self._handle.wait_joined(patience)
        else:
            self._handle.wait_joined(None)
        return self._handle.pid()

    def poll(self):
        if self.returncode is None:
            self.returncode = self._handle.exitcode()
            if self.returncode in (NOT_STARTED, LOST) and not self._handle.wait_joined(0):
                sys.stderr.write("fiber: %s\n" % with_advice(self._handle.report()))
        return self.returncode

    def wait(self, timeout=None):
        if self.returncode is None and not self._handle.join(timeout):
            return None
        return self.poll()

    def terminate(self):
        if self.returncode is None:
            self._handle.terminate()

    def kill(self):
        if self.returncode is None:
            self._handle.kill()

    def interrupt(self):
        if self.returncode is None:
            self._handle.signal(signal.SIGINT)

    def close(self):
        self._handle = None


class Process(BaseProcess):
    """A job-backed process: it runs target(*args, **kwargs), or the method run() of a subclass."""

    _start_method = None
    _imports_main = True  # in the child

    @staticmethod
    def _Popen(process):
        return Popen(process)

    def interrupt(self):
        """Sends SIGINT, which raises KeyboardInterrupt in the process."""
        self._check_closed()
        self._popen.interrupt()

    def __repr__(self):
        shown.quiet = True
        try:
            return super().__repr__()
        finally:
            shown.quiet = False


def _forget_children():
    """In a child of fork(), which has none of the processes of its parent to join or to end at its exit."""
    pools.clear()
    _mp._children.difference_update([p for p in _mp._children if isinstance(p, Process)])


os.register_at_fork(after_in_child=_forget_children)


def active_children():
    """Returns the children of this process that live, and the workers of its pools."""
    return [*_mp.active_children(), *(worker for pool in list(pools) for worker in pool._pool)]


def __getattr__(name):
    """Gives names of multiprocessing that are not here."""
    if name.startswith("__"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(_mp, name)


def job_name(name):
    """Returns the name of a job for a name that may have any characters; None: let the library choose."""
    return re.sub(r"[^a-zA-Z0-9_.-]", "-", name)[:NAME_LENGTH] or None


def job_of(process):
    """Returns what the process asks the backend for, as arguments for _fiber.Process: by @fiber.meta, or the settings."""
    from . import config, meta
    job = meta.job_of(process._target or process.run)
    if config.mem_per_job:
        job.setdefault("memory", int(config.mem_per_job) * meta.MIB)
    return job


def receive(payload):
    """In a child: becomes like the parent, and returns what it has sent to be run."""
    from multiprocessing import spawn

    from ._child import enter, take_over
    current_process()._inheriting = True
    try:
        data, sent = loads(payload)
        enter(data.pop("dir"))
        take_over(data)
        spawn.prepare(data)
        return loads(sent)
    except AttributeError as error:
        _pickling.advise(error)
        raise
    finally:
        del current_process()._inheriting


def bootstrap(process):
    """Runs a process here; returns its exit code."""
    sentinel, _ = os.pipe()  # never readable: a child does not outlive its parent
    return process._bootstrap(sentinel)


def run_child(payload):
    """Runs in a child; returns its exit code."""
    return bootstrap(receive(payload))
