"""sharedctypes.py - Value, Array, RawValue and RawArray: ctypes objects in memory that the processes of a host share.

The memory is a segment of the run: it ends with the run, also when the program is killed. Processes on other hosts have no
part in it; one that is given such an object there fails with a sentence, and Manager().Value is what it needs.

SPDX-License-Identifier: Apache-2.0
"""
import ctypes
import os
import threading
import weakref
from multiprocessing.process import current_process
from multiprocessing.sharedctypes import (Synchronized, SynchronizedArray, SynchronizedBase,  # noqa: F401
                                          SynchronizedString, synchronized, typecode_to_type)

from . import _core

__all__ = ["Array", "RawArray", "RawValue", "Value", "copy", "synchronized"]

CREATE_NEW = 2
LOCK_BYTES = 64


class Segment:
    """A piece of memory of this host, which pickles as its name. It ends with its maker's, unless it was pickled."""

    def __init__(self, size):
        self._name, self._size = "py." + os.urandom(12).hex(), max(1, size)
        shared = _core.start().Shared
        self.memory = memoryview(shared(self._name, self._size, CREATE_NEW))
        self._end = weakref.finalize(self, _delete, shared, self._name)
        self._end.atexit = False  # the run removes it

    def __reduce__(self):
        if self._end:
            self._end.detach()
        return _open_segment, (self._name, self._size)


def _delete(shared, name):
    try:
        shared.delete(name)
    except OSError:
        pass


def _open_segment(name, size):
    segment = Segment.__new__(Segment)
    segment._name, segment._size, segment._end = name, size, None
    try:
        segment.memory = memoryview(_core.start().Shared(name, size))
    except FileNotFoundError:
        raise OSError("a Value or an Array is memory of one host, and this process runs on another host; "
                      "use Manager().Value or Manager().Array (or multiprocessing has started it: use fiber.Process)") from None
    return segment


class RLock:
    """A recursive lock for processes of one host. It is free once the process that had it has died."""

    @property
    def __class__(self):
        """That of all other recursive locks, for isinstance()."""
        from .synchronize import RLock
        return RLock

    def __init__(self):
        self._open(Segment(LOCK_BYTES), True)

    def _open(self, segment, begin):
        self._segment = segment
        self._lock = _core.start().HostLock(segment.memory, begin)

    def acquire(self, block=True, timeout=None):
        """Takes the lock and returns True; False when it was not free within `timeout` seconds."""
        return self._lock.acquire(timeout if block else 0)

    def release(self):
        """Gives the lock back once. AssertionError: this thread does not have it."""
        self._lock.release()

    def __enter__(self):
        return self.acquire()

    def __exit__(self, *error):
        self.release()

    def __reduce__(self):
        return _open_lock, (self._segment,)

    def __repr__(self):
        owner, times = self._lock.owner()
        name = (None, current_process().name, "SomeOtherThread", "SomeOtherProcess")[owner]
        if owner == 1 and threading.current_thread().name != "MainThread":
            name += "|" + threading.current_thread().name
        return "<RLock(%s, %s)>" % (name, times if owner < 2 else "nonzero")


def _open_lock(segment):
    lock = RLock.__new__(RLock)
    lock._open(segment, False)
    return lock


def _new(type_):
    segment = Segment(ctypes.sizeof(type_))
    if issubclass(type_, ctypes.Array):
        return _rebuild(type_._type_, segment, type_._length_)
    return _rebuild(type_, segment, None)


def _rebuild(type_, segment, length):
    """Returns the object in the segment. It pickles as that; by default ctypes would copy its bytes into the pickle."""
    obj = (type_ if length is None else type_ * length).from_buffer(segment.memory)
    obj.__reduce_ex__ = lambda protocol: (_rebuild, (type_, segment, length))
    return obj


def RawValue(typecode_or_type, *args):
    """Returns a ctypes object in shared memory."""
    value = _new(typecode_to_type.get(typecode_or_type, typecode_or_type))
    value.__init__(*args)
    return value


def RawArray(typecode_or_type, size_or_initializer):
    """Returns a ctypes array in shared memory: zeros, or the elements of a sequence."""
    type_ = typecode_to_type.get(typecode_or_type, typecode_or_type)
    if isinstance(size_or_initializer, int):
        return _new(type_ * size_or_initializer)
    array = _new(type_ * len(size_or_initializer))
    array.__init__(*size_or_initializer)
    return array


def Value(typecode_or_type, *args, lock=True, ctx=None):
    """Returns RawValue() with a lock around it: True makes one, False means none."""
    return _with_lock(RawValue(typecode_or_type, *args), lock)


def Array(typecode_or_type, size_or_initializer, *, lock=True, ctx=None):
    """Returns RawArray() with a lock around it: True makes one, False means none."""
    return _with_lock(RawArray(typecode_or_type, size_or_initializer), lock)


def _with_lock(obj, lock):
    if lock is False:
        return obj
    if lock in (True, None):
        lock = RLock()
    if not hasattr(lock, "acquire"):
        raise AttributeError("%r has no method 'acquire'" % lock)
    return synchronized(obj, lock)


def copy(obj):
    """Returns a copy of a ctypes object in shared memory."""
    other = _new(type(obj))
    ctypes.pointer(other)[0] = obj
    return other
