"""futures.py - an executor of concurrent.futures over a Pool.

SPDX-License-Identifier: Apache-2.0
"""
import concurrent.futures
import threading

from . import _core
from .pool import Pool

__all__ = ["Executor"]


class _Future(concurrent.futures.Future):

    def result(self, timeout=None):
        try:
            return super().result(timeout)
        except BaseException:
            _core._fiber.stay()
            raise


class Executor(concurrent.futures.Executor):
    """Runs calls in the workers of a pool. Other keywords are the pool's."""

    def __init__(self, max_workers=None, *, initializer=None, initargs=(), **options):
        if max_workers is not None and max_workers < 1:
            raise ValueError("max_workers must be greater than 0")
        self._pool = Pool(max_workers, initializer, initargs, **options)
        self._lock = threading.Lock()
        self._pending = set()
        self._shut = False

    def submit(self, fn, /, *args, **kwargs):
        with self._lock:
            if self._shut:
                raise RuntimeError("cannot schedule new futures after shutdown")
            future = _Future()
            self._pending.add(future)
        future.add_done_callback(self._forget)

        def fail(exc):
            if future.set_running_or_notify_cancel():
                future.set_exception(exc)

        def succeed(value):
            if future.set_running_or_notify_cancel():
                future.set_result(value)
        try:
            self._pool.apply_async(fn, args, kwargs, succeed, fail)
        except BaseException:
            self._forget(future)
            raise
        return future

    def _forget(self, future):
        with self._lock:
            self._pending.discard(future)

    def map(self, fn, *iterables, timeout=None, chunksize=1):
        """Returns an iterator over fn(*elements); chunksize elements are one task."""
        if chunksize < 1:
            raise ValueError("chunksize must be >= 1.")
        result = self._pool.starmap_async(fn, zip(*iterables), chunksize)
        import time
        end = None if timeout is None else time.monotonic() + timeout

        def values():
            left = None if end is None else max(0, end - time.monotonic())
            yield from result.get(left)
        return values()

    def shutdown(self, wait=True, *, cancel_futures=False):
        with self._lock:
            self._shut = True
            pending = list(self._pending)
        if cancel_futures:
            for future in pending:
                future.cancel()
        self._pool.close()
        if wait:
            self._pool.join()
        else:
            threading.Thread(target=self._pool.join, name="fiber-shutdown", daemon=False).start()
