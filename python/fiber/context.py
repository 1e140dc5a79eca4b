"""context.py - FiberContext: multiprocessing's context with job-backed parts.

SPDX-License-Identifier: Apache-2.0
"""
from multiprocessing import context as _mp_context
from multiprocessing.context import (AuthenticationError, BaseContext, BufferTooShort, ProcessError,  # noqa: F401
                                     TimeoutError, assert_spawning, get_spawning_popen, set_spawning_popen)

from . import _core
from .process import Process, active_children, parent_process

__all__ = ["DefaultContext", "FiberContext", "Process", "default"]

METHODS = ("spawn", "fiber")


class FiberContext(BaseContext):
    """A context as multiprocessing.get_context() returns it, with the parts of Fiber. Every method loads its part when called."""

    Process = Process
    active_children = staticmethod(active_children)

    @property
    def reducer(self):
        """The module reduction, or the object that a program has set in its place."""
        from . import reduction
        found = BaseContext.reducer.fget(self)
        return reduction if getattr(found, "__name__", None) == "multiprocessing.reduction" else found

    @reducer.setter
    def reducer(self, reduction):
        BaseContext.reducer.fset(self, reduction)

    def Manager(self):
        """Starts a process that has objects which other processes use by proxies."""
        from .managers import SyncManager
        manager = SyncManager(ctx=self.get_context())
        manager.start()
        return manager

    def Pipe(self, duplex=True):
        """Returns the two ends of a connection."""
        from .connection import Pipe
        return Pipe(duplex)

    def Pool(self, processes=None, initializer=None, initargs=(), maxtasksperchild=None, **options):
        """Returns a pool of worker processes; help(fiber.pool.Pool) has its options."""
        from .pool import Pool
        return Pool(processes, initializer, initargs, maxtasksperchild, context=self.get_context(), **options)

    def Queue(self, maxsize=0):
        """Returns a queue that many processes put into and get from."""
        from .queues import Queue
        return Queue(maxsize, ctx=self.get_context())

    def JoinableQueue(self, maxsize=0):
        """Returns a queue with task_done() and join()."""
        from .queues import JoinableQueue
        return JoinableQueue(maxsize, ctx=self.get_context())

    def SimpleQueue(self):
        """Returns a queue with put(), get() and empty()."""
        from .queues import SimpleQueue
        return SimpleQueue(ctx=self.get_context())

    def Lock(self):
        """Returns a lock that processes of all hosts share."""
        from .synchronize import Lock
        return Lock(ctx=self.get_context())

    def RLock(self):
        """Returns a lock that its holder may take again."""
        from .synchronize import RLock
        return RLock(ctx=self.get_context())

    def Condition(self, lock=None):
        """Returns a condition variable."""
        from .synchronize import Condition
        return Condition(lock, ctx=self.get_context())

    def Semaphore(self, value=1):
        """Returns a semaphore."""
        from .synchronize import Semaphore
        return Semaphore(value, ctx=self.get_context())

    def BoundedSemaphore(self, value=1):
        """Returns a semaphore that refuses to be released too often."""
        from .synchronize import BoundedSemaphore
        return BoundedSemaphore(value, ctx=self.get_context())

    def Event(self):
        """Returns an event."""
        from .synchronize import Event
        return Event(ctx=self.get_context())

    def Barrier(self, parties, action=None, timeout=None):
        """Returns a barrier."""
        from .synchronize import Barrier
        return Barrier(parties, action, timeout, ctx=self.get_context())

    def Value(self, typecode_or_type, *args, lock=True):
        """Returns a ctypes object that processes of this host share, with a lock."""
        from .sharedctypes import Value
        return Value(typecode_or_type, *args, lock=lock, ctx=self.get_context())

    def Array(self, typecode_or_type, size_or_initializer, *, lock=True):
        """Returns a ctypes array that processes of this host share, with a lock."""
        from .sharedctypes import Array
        return Array(typecode_or_type, size_or_initializer, lock=lock, ctx=self.get_context())

    def RawValue(self, typecode_or_type, *args):
        """Returns a ctypes object that processes of this host share."""
        from .sharedctypes import RawValue
        return RawValue(typecode_or_type, *args)

    def RawArray(self, typecode_or_type, size_or_initializer):
        """Returns a ctypes array that processes of this host share."""
        from .sharedctypes import RawArray
        return RawArray(typecode_or_type, size_or_initializer)

    def freeze_support(self):
        """Becomes the child, if this is one: a frozen executable runs the main module, whatever its arguments are."""
        from . import _child
        _child.start_frozen()

    def set_executable(self, executable):
        """Sets the interpreter of jobs; it must be called before anything is started."""
        super().set_executable(executable)
        _core.set_executable()

    def set_forkserver_preload(self, module_names, *, on_error="ignore"):
        """Sets modules that the template of this program imports once for all its copies.

        The copies share the state of a module after its import. There is no template if a module starts a thread. If a
        module cannot be imported, each process that needs it imports it itself; `on_error` ("ignore", "warn", "fail", of
        Python 3.15) makes no difference.
        """
        if on_error not in ("ignore", "warn", "fail"):
            raise ValueError("on_error must be 'ignore', 'warn', or 'fail', not %r" % (on_error,))
        if not all(type(name) is str for name in module_names):
            raise TypeError("module_names must be a list of strings")
        _core.set_template(module_names)

    def get_context(self, method=None):
        """Returns a context: "spawn" and "fiber" are names of this one."""
        if method is None or method in METHODS:
            return self
        raise ValueError("cannot find context for %r: use 'spawn', which starts jobs" % method)

    def get_start_method(self, allow_none=False):
        """Returns "spawn": children are new interpreters."""
        return "spawn"

    def set_start_method(self, method, force=False):
        """Raises ValueError: a context that get_context() returned keeps its method."""
        raise ValueError("cannot set start method of concrete context")

    def get_all_start_methods(self):
        """Returns the start methods that there are."""
        return ["spawn"]


SpawnProcess, SpawnContext = Process, FiberContext  # names of multiprocessing, from which programs derive classes
_concrete = FiberContext()


class DefaultContext(FiberContext):
    """The context of the functions of the module: its start method may be set, once."""

    def __init__(self):
        self._actual = None

    def get_context(self, method=None):
        """Returns a context: "spawn" and "fiber" are names of the same one."""
        if method is not None:
            return _concrete.get_context(method)
        self._actual = self._actual or _concrete
        return self._actual

    def get_start_method(self, allow_none=False):
        """Returns "spawn": children are new interpreters. With allow_none, None until it is set or used; in a child it is."""
        if self._actual is None and allow_none and parent_process() is None:
            return None
        return self.get_context().get_start_method()

    def set_start_method(self, method, force=False):
        """Accepts "spawn" and "fiber"; there is no other start method. RuntimeError: it is set, or in use, already."""
        if self._actual is not None and not force:
            raise RuntimeError("context has already been set")
        self._actual = None if method is None and force else self.get_context(method)


default = DefaultContext()
_default_context = default  # its name in multiprocessing and in Fiber 0.2
