"""futures.py - an executor of concurrent.futures over a Pool.

The workers have few calls ahead, which count as running; the others wait here, where they can be cancelled. The thread of
the pool alone hands them out, so an interrupt of a caller loses none.

SPDX-License-Identifier: Apache-2.0
"""
import collections
import concurrent.futures
import functools
import itertools
import os
import threading
import time
import weakref
from concurrent.futures import process
from multiprocessing.context import ProcessError

from . import _core, _errors
from .pool import Pool
from .process import parent_process

__all__ = ["BrokenProcessPool", "Executor", "WorkerLost"]

SOON_S = 0.02  # calls that end so soon after they were handed out
AHEAD = 64  # let each worker have more of them ahead, up to this many

_open = weakref.WeakSet()  # the executors that were not shut down
os.register_at_fork(after_in_child=_open.clear)


def _shut_down_all():
    """Before a program ends, the calls that were submitted run, as those of concurrent.futures do.

    A child ends its pools before its threads: what waits there is dropped. A child that leaves a ProcessPoolExecutor open
    never ends.
    """
    if parent_process() is None:
        for executor in list(_open):
            executor.shutdown()


threading._register_atexit(_shut_down_all)


class BrokenProcessPool(process.BrokenProcessPool, ProcessError):
    """No worker can be started, or the pool has ended."""


class WorkerLost(process.BrokenProcessPool, _errors.WorkerLost):
    """A call killed one worker after another. The executor goes on."""


_BROKEN = {ProcessError: BrokenProcessPool, _errors.WorkerLost: WorkerLost}


class _Future(concurrent.futures.Future):

    def result(self, timeout=None):
        try:
            return super().result(timeout)
        except BaseException:
            _core._fiber.stay()
            raise

    def __reduce__(self):
        raise TypeError("a future cannot be sent to another process: send its result()")


class Executor(concurrent.futures.Executor):
    """Runs calls in the workers of a pool, by the parameters of ProcessPoolExecutor. Other keywords are the pool's."""

    def __init__(self, max_workers=None, mp_context=None, initializer=None, initargs=(), *, max_tasks_per_child=None,
                 **options):
        if max_workers is not None and max_workers < 1:
            raise ValueError("max_workers must be greater than 0")
        self._pool = Pool(max_workers, initializer, initargs,
                          **{"maxtasksperchild": max_tasks_per_child, "context": mp_context, **options})
        self._max_workers = self._pool._size  # dask and others read it
        self._lock = threading.RLock()  # a signal handler may submit a call, too
        self._waiting = collections.deque()  # calls that are not handed out
        self._running = 0  # calls that are
        self._most = self._pool._size + 1  # of them
        self._shut = False
        _open.add(self)

    def submit(self, fn, /, *args, **kwargs):
        _core.start()  # raises in a child of fork(), where nobody runs the call,
        self._pool._core  # and in one that imports its main module
        future = _Future()
        with self._lock:
            if self._shut:
                raise RuntimeError("cannot schedule new futures after shutdown")
            self._waiting.append((future, fn, args, kwargs))
        if self._running < self._most:
            self._pool._finish([self])
        return future

    def _call(self):
        """On the thread of the pool: hands out calls."""
        while self._waiting and self._running < self._most:
            future, *call = self._waiting[0]
            if future.set_running_or_notify_cancel():
                self._begin(future, *call)
            self._waiting.popleft()  # now: shutdown() closes the pool when none is left

    def _begin(self, future, fn, args, kwargs):
        begun = time.monotonic()

        def succeed(value):
            self._end(begun)
            future.set_result(value)

        def fail(exc):
            if type(exc) in _BROKEN and exc.__cause__ is None:  # of the pool, and not of the call
                exc = _BROKEN[type(exc)](*exc.args)
                if type(exc) is BrokenProcessPool:
                    self._give_up(exc)
            self._end(begun)
            future.set_exception(exc)
        self._running += 1
        try:
            self._pool.apply_async(fn, args, kwargs, succeed, fail)
        except Exception as exc:  # the pool was terminated
            self._running -= 1
            future.set_exception(exc)

    def _give_up(self, exc):
        """No worker can be started: each call that waits would find that out anew."""
        while self._waiting:
            future = self._waiting.popleft()[0]
            if future.set_running_or_notify_cancel():
                future.set_exception(exc)

    def _end(self, begun):
        size = self._pool._size
        self._most = min(2 * self._most, AHEAD * size) if time.monotonic() - begun < SOON_S else size + 1
        self._running -= 1
        self._call()

    def map(self, fn, *iterables, timeout=None, chunksize=1, **options):
        """Returns an iterator over fn(*elements); chunksize elements are one task. Python 3.14 has buffersize, too."""
        if chunksize < 1:
            raise ValueError("chunksize must be >= 1.")
        if chunksize == 1:
            return super().map(fn, *iterables, timeout=timeout, **options)
        elements = zip(*iterables)
        chunks = iter(lambda: list(itertools.islice(elements, chunksize)), [])
        return itertools.chain.from_iterable(
            super().map(functools.partial(_call_each, fn), chunks, timeout=timeout, **options))

    def shutdown(self, wait=True, *, cancel_futures=False):
        with self._lock:
            self._shut = True
        _open.discard(self)
        if cancel_futures:
            for future, *_ in list(self._waiting):
                future.cancel()
        self._pool._finish([self])
        if wait and self._pool._thread is not threading.current_thread():  # which would wait for itself
            self._join()
        else:
            threading.Thread(target=self._join, name="fiber-shutdown", daemon=False).start()

    def _join(self):
        self._pool._run(lambda: not self._waiting, None, None)
        self._pool.close()
        self._pool.join()


def _call_each(fn, chunk):
    return [fn(*arguments) for arguments in chunk]
