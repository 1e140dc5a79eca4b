"""synchronize.py - Lock, RLock, Semaphore, BoundedSemaphore, Condition, Event and Barrier for processes of all hosts.

They are proxies of objects in a manager, which the first process that makes one starts. A process that is given one makes
its own in the same manager. When a process dies, the locks that it had are free again.

SPDX-License-Identifier: Apache-2.0
"""
import errno
import itertools
import operator
import threading
import time
from io import UnsupportedOperation  # an OSError, as multiprocessing raises, and a ValueError, as threading does
from multiprocessing import process as _mp_process
from multiprocessing import util

from . import _child, _core, managers

__all__ = ["Barrier", "BoundedSemaphore", "Condition", "Event", "Lock", "RLock", "Semaphore"]


# ---- The manager ----


class LockProxy(managers.AcquirerProxy):
    _exposed_ = ("acquire", "release", "owner")


class SemaphoreProxy(managers.AcquirerProxy):
    _exposed_ = ("acquire", "release", "get_value")


class ConditionProxy(managers.ConditionProxy):
    _exposed_ = ("acquire", "release", "wait", "notify", "notify_all", "owner")


class EventProxy(managers.EventProxy):
    _exposed_ = (*managers.EventProxy._exposed_, "show")


class _ShownEvent(managers.Event):
    """An event of the manager, whose state processes of its host may see in memory: programs ask for it in loops."""

    _shown, _is_set = None, False

    @property
    def _flag(self):
        return self._is_set

    @_flag.setter
    def _flag(self, value):
        self._is_set = value
        if self._shown:
            self._shown.memory[0] = value

    def show(self):
        """Returns the name of a byte that has the state from now on; None: there is no memory."""
        from .sharedctypes import Segment
        with self._cond:
            try:
                self._shown = self._shown or Segment(1)
            except OSError:
                return None
            self._flag = self._is_set
            return self._shown._name


class _Manager(managers.SyncManager):
    """The manager of a run's locks."""

    def _new_process(self, **options):
        """Takes no number from the program's processes: the first one after a Lock() is Process-1.

        It needs nothing of the main module, which may have a lock itself.
        """
        numbers, _mp_process._process_counter = _mp_process._process_counter, itertools.count()
        try:
            process = super()._new_process(**options)
        finally:
            _mp_process._process_counter = numbers
        process._imports_main = False
        return process


_Manager.register("Lock", managers.Lock, LockProxy)
_Manager.register("RLock", managers.RLock, LockProxy)
_Manager.register("Semaphore", managers.Semaphore, SemaphoreProxy)
_Manager.register("BoundedSemaphore", managers.BoundedSemaphore, SemaphoreProxy)
_Manager.register("Condition", managers.Condition, ConditionProxy)
_Manager.register("Event", _ShownEvent, EventProxy)

_lock = threading.RLock()
_manager = None


SEM_VALUE_MAX = 2 ** 31 - 1
ASK_S = 1.0  # is_set() asks the process of the locks so often, which may have died, and else reads its memory


def _get_manager():
    global _manager
    with _lock:
        if _manager is None:
            _manager = _connect(_child.locks) if _child.locks else _start_manager()
        return _manager


def _connect(address):
    manager = _Manager(address=address)
    manager._state.value = managers.mpm.State.STARTED
    return manager


def _start_manager():
    """It is not a child of the program: it is not listed, and ends after the children that the program waits for."""
    manager = _Manager()
    manager.start()
    _mp_process._children.discard(manager._process)
    _child.locks = manager.address  # children inherit it
    arguments = manager.shutdown._args
    manager.shutdown.cancel()
    manager.shutdown = util.Finalize(None, type(manager)._finalize_manager, args=arguments, exitpriority=-100)
    return manager


def _adopt(token):
    """A process that was given an object of a manager makes its own there, too."""
    global _manager
    with _lock:
        if _manager is None:
            _manager = _connect(token.address)


# ---- Objects ----


def _kept(proxy):
    """Returns a proxy whose object stays until no daemon thread runs any more, at the end of the program."""
    arguments = proxy._close._args
    proxy._close.cancel()
    # behind leave() of _core.py, which stops them, and before the manager's end
    proxy._close = util.Finalize(proxy, managers.BaseProxy._decref, args=arguments, exitpriority=-60)
    return proxy


class _Synchronizer:
    """A proxy, whose pickles are its token."""

    _proxy_type = LockProxy

    def __init__(self, *args, ctx=None):
        kind = next(c.__name__ for c in type(self).__mro__ if c.__module__ == __name__)  # also of a program's own class
        self._proxy = _kept(getattr(_get_manager(), kind)(*args))

    def __getstate__(self):
        self._proxy._close.cancel()  # it lives on in the manager, for the process that gets it
        return {**self.__dict__, "_proxy": self._proxy._token}

    def __setstate__(self, state):
        token = state.pop("_proxy")
        self.__dict__.update(state)
        _adopt(token)
        self._proxy = _kept(self._proxy_type(
            token, managers.SERIALIZER, authkey=_mp_process.current_process().authkey, exposed=self._proxy_type._exposed_))

    def _call(self, method, *args):
        return self._proxy._callmethod(method, args)

    def _call_or(self, refusal, method, *args):
        """A call; when the object refuses it, by the error of threading, raises the one that multiprocessing has."""
        try:
            return self._call(method, *args)
        except (RuntimeError, ValueError) as error:
            if _is_of_server(error):
                raise refusal from None
            raise


def _is_of_server(error):
    """Tells whether a call has raised this error that the server answered, or a handler of a signal has."""
    at = error.__traceback__
    while at.tb_next:
        at = at.tb_next
    return at.tb_frame.f_code is managers.BaseProxy._callmethod.__code__


def _shown(owner, times):
    """Returns how a lock's repr() shows its owner, and how often that has it: others have no name, as in multiprocessing."""
    process, thread = _mp_process.current_process().name, threading.current_thread().name
    if owner is None or owner == (process if thread == "MainThread" else "%s|%s" % (process, thread)):
        return owner, times
    return "SomeOtherThread" if owner.partition("|")[0] == process else "SomeOtherProcess", "nonzero"


RELEASED_TOO_OFTEN = "semaphore or lock released too many times"
NOT_OWNED = "attempt to release recursive lock not owned by thread"


class _Acquirer(_Synchronizer):
    def acquire(self, block=True, timeout=None):
        """Takes it and returns True; False when it was not free within `timeout` seconds, or at once without block."""
        if not block:
            return self._call("acquire", False)
        return self._call("acquire", True) if timeout is None else self._call("acquire", True, max(0, timeout))

    def release(self):
        """Gives it back."""
        self._call("release")

    def __enter__(self):
        return self.acquire()

    def __exit__(self, kind=None, *error):
        try:
            self.release()
        except (AssertionError, ValueError):
            if kind is None or not issubclass(kind, (EOFError, OSError)):
                raise  # else the connection was lost, and the lock with it: the program is to see that error


class _Lock(_Acquirer):
    def __init__(self, *, ctx=None):
        super().__init__()

    def locked(self):
        """Tells whether somebody has it."""
        return self._call("owner")[1] > 0


class Lock(_Lock):
    """A lock; any process may release it."""

    def release(self):
        """Gives it back. ValueError: nobody has it."""
        self._call_or(ValueError(RELEASED_TOO_OFTEN), "release")

    def __repr__(self):
        return "<Lock(owner=%s)>" % _shown(*self._call("owner"))[0]


class RLock(_Lock):
    """A lock that the thread that has it may take again, and gives back as often."""

    def release(self):
        """Gives it back once. AssertionError: this thread does not have it."""
        self._call_or(AssertionError(NOT_OWNED), "release")

    def __repr__(self):
        return "<RLock(%s, %s)>" % _shown(*self._call("owner"))


def _initial(value):
    """Returns the first value of a semaphore as a number that one may have."""
    value = operator.index(value)
    if value < 0:
        raise UnsupportedOperation(errno.EINVAL, "semaphore initial value must be >= 0")
    if value > SEM_VALUE_MAX:
        raise OverflowError("semaphore initial value must be <= %d" % SEM_VALUE_MAX)
    return value


class Semaphore(_Acquirer):
    """A number that acquire() takes one from, and waits while it is 0, and release() adds one to."""

    _proxy_type = SemaphoreProxy

    def __init__(self, value=1, *, ctx=None):
        super().__init__(_initial(value))

    def get_value(self):
        """The number now."""
        return self._call("get_value")

    def locked(self):
        """Tells whether none is left."""
        return self.get_value() == 0

    def __repr__(self):
        return "<Semaphore(value=%d)>" % self.get_value()


class BoundedSemaphore(Semaphore):
    """A semaphore that never grows above the value that it began with: release() raises ValueError then."""

    def release(self):
        """Adds one. ValueError: it has the value that it began with."""
        self._call_or(ValueError(RELEASED_TOO_OFTEN), "release")

    def get_value(self):
        """The number now."""
        return self._call("get_value")[0]

    # For multiprocessing's own Queue, of which concurrent.futures.ProcessPoolExecutor has one with our locks.
    @property
    def _semlock(self):
        return self

    _get_value, _is_zero = get_value, Semaphore.locked

    def __repr__(self):
        return "<BoundedSemaphore(value=%d, maxvalue=%d)>" % self._call("get_value")


class Condition(_Acquirer):
    """A condition variable: a lock, and processes that wait for a notice."""

    _proxy_type = ConditionProxy

    def __init__(self, lock=None, *, ctx=None):
        if lock is not None and not issubclass(type(lock), (Lock, RLock)):
            lock.acquire  # as multiprocessing, which needs nothing else; ours must be in the manager, too
            raise TypeError("the lock of a Condition is a Lock or an RLock of fiber, not %s.%s" %
                            (type(lock).__module__, type(lock).__name__))
        self._of_lock = isinstance(lock, Lock)
        super().__init__(*(() if lock is None else (lock._proxy,)))

    def release(self):
        """Gives the lock back. It raises what the lock raises."""
        self._call_or(ValueError(RELEASED_TOO_OFTEN) if self._of_lock else AssertionError(NOT_OWNED), "release")

    def wait(self, timeout=None):
        """Gives the lock back, waits for a notice, and takes the lock again. False: none came within the timeout.

        AssertionError, here and in notify(): this thread does not have the lock.
        """
        times = self._call("owner")[0][1]
        try:
            return self._call_or(AssertionError("must acquire() condition before using wait()"), "wait", timeout)
        except BaseException:
            if self._proxy._tls.connection.lost:  # a signal: a program that catches it has the lock, as before
                for _ in range(times):
                    self.acquire()
            raise

    def wait_for(self, predicate, timeout=None):
        """Waits until predicate() is true, and returns its last answer."""
        return managers.ConditionProxy.wait_for(self, predicate, timeout)

    def notify(self, n=1):
        """Wakes n of those that wait."""
        self._call_or(AssertionError("lock is not owned"), "notify", n)

    def notify_all(self):
        """Wakes all that wait."""
        self._call_or(AssertionError("lock is not owned"), "notify_all")

    def __repr__(self):
        owner, waiting = self._call("owner")
        name, times = _shown(*owner)
        lock = "<Lock(owner=%s)>" % name if self._of_lock else "<RLock(%s, %s)>" % (name, times)
        return "<Condition(%s, %d)>" % (lock, waiting)


class Event(_Synchronizer):
    """A flag that processes wait for."""

    _proxy_type = EventProxy
    _seen = None  # memory of this host that has the flag; b"": there is none
    _until = 0.0  # the time of the next question

    def __init__(self, *, ctx=None):
        super().__init__()

    def __getstate__(self):
        return {**super().__getstate__(), "_seen": None}

    def is_set(self):
        """Tells whether the flag is set."""
        if self._seen and time.monotonic() < self._until:
            return self._seen[0] == 1
        if self._seen is None:
            self._seen = self._look(self._call("show"))
        self._until = time.monotonic() + ASK_S
        return self._call("is_set")

    @staticmethod
    def _look(name):
        try:
            return memoryview(_core.start().Shared(name, 1)) if name else b""
        except FileNotFoundError:  # the manager runs on another host
            return b""

    def set(self):
        """Sets the flag. All that wait for it go on."""
        self._call("set")

    def clear(self):
        """Clears the flag."""
        self._call("clear")

    def wait(self, timeout=None):
        """Waits until the flag is set, and tells whether it is."""
        return self._call("wait", timeout)

    def __repr__(self):
        return "<Event at %#x %s>" % (id(self), "set" if self.is_set() else "unset")


class _Numbers(_Synchronizer):
    """A few numbers that processes share."""

    _proxy_type = managers.ListProxy

    def __init__(self, count):
        self._proxy = _kept(_get_manager().list([0] * count))

    def __getitem__(self, i):
        return self._call("__getitem__", i)

    def __setitem__(self, i, value):
        self._call("__setitem__", i, value)


class Barrier(threading.Barrier):
    """A place where `parties` processes wait for each other. One of them runs the action then."""

    def __init__(self, parties, action=None, timeout=None, *, ctx=None):
        if parties < 1:
            raise ValueError("parties must be > 0")
        self._numbers = _Numbers(2)
        self.__setstate__((parties, action, timeout, Condition(), self._numbers))

    def __getstate__(self):
        return self._parties, self._action, self._timeout, self._cond, self._numbers

    def __setstate__(self, state):
        self._parties, self._action, self._timeout, self._cond, self._numbers = state

    @property
    def _state(self):
        return self._numbers[0]

    @_state.setter
    def _state(self, value):
        self._numbers[0] = value

    @property
    def _count(self):
        return self._numbers[1]

    @_count.setter
    def _count(self, value):
        self._numbers[1] = value
