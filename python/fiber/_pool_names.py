"""_pool_names.py - private names of multiprocessing's pool that programs read: its workers, and how much there is to do.

SPDX-License-Identifier: Apache-2.0
"""
import os
import signal
import time

from . import _worker, process

LOOK_S = 0.01  # how often a join() of a worker looks


class _Body:
    """The process of a worker, as BaseProcess wants it: how it has ended is known to the library alone."""

    returncode = 0

    def __init__(self, pool, name):
        self._pool, self._name = pool, name

    def _figures(self):
        return next((w for w in self._pool._figures() if w["name"] == self._name), None)

    @property
    def pid(self):
        w = self._figures()
        if w and not w["pid"]:
            self._pool.wait_until_workers_up(process.SHOWN_S if getattr(process.shown, "quiet", False) else None)
            w = self._figures()
        self.last_pid = w["pid"] if w else self.last_pid
        return self.last_pid

    last_pid = None

    def poll(self):
        return None if self._figures() else self.returncode

    def wait(self, timeout):
        end = None if timeout is None else time.monotonic() + timeout
        while self.poll() is None and (end is None or time.monotonic() < end):
            time.sleep(LOOK_S)
        return self.poll()

    def _kill(self, signal):
        try:
            self._pool.kill_worker(self._name)
            self.returncode = -signal
        except (ProcessLookupError, ValueError):  # it has ended
            pass

    def terminate(self):
        self._kill(signal.SIGTERM)

    def kill(self):
        self._kill(signal.SIGKILL)


class Worker(process.Process):
    """A worker of a pool, as active_children() lists it."""

    def __init__(self, pool, name):
        number = _worker.number_of(name)
        self._name, self._identity = "PoolWorker-%d" % number, (number,)
        this = process.current_process()
        self._config = {**this._config, "daemon": True}
        self._parent_pid, self._parent_name = os.getpid(), this.name
        self._popen, self._closed = _Body(pool, name), False


Worker.__name__ = Worker.__qualname__ = "Process"


class Names:
    """The part of a pool that has these names."""

    @property
    def _processes(self):
        """How many workers there are at most."""
        return self._size

    @property
    def _pool(self):
        """The workers that there are, as processes."""
        names = [w["name"] for w in self._figures()]
        self._known = {name: self._known.get(name) or Worker(self, name) for name in names}
        return list(self._known.values())

    def _figures(self):
        self._end_if_done()
        try:
            return self._core.workers()
        except ValueError:  # it was closed
            return []

    @property
    def _cache(self):
        """A dictionary with as many keys as tasks are not done. A call is in it until its callback has returned."""
        self._run(lambda: False, None, 0)  # takes what has arrived: nobody else may
        hooked = len(self._needs) + (self._calling is not None)
        return dict.fromkeys(range(max(self._core.tasks, hooked, len(self._sources))))

    @property
    def _taskqueue(self):
        """A queue as long as the tasks that no worker has begun."""
        return Waiting(self, max(len(self._cache) - self._size, 0))


class Waiting:
    """The length of a queue, and its end for calls that programs add to multiprocessing's Pool, such as istarmap()."""

    def __init__(self, pool, length):
        self._pool, self._length = pool, length

    def put(self, call):
        """Begins a call: its tasks, and the method of an IMapIterator that is told how many there are."""
        tasks, set_length = call
        result, n = set_length.__self__, 0
        for n, (_, i, func, args, kwds) in enumerate(tasks, 1):
            self._pool.apply_async(func, args, kwds, lambda value, i=i: result._set(i, (True, value)),
                                   lambda error, i=i: result._set(i, (False, error)))
        set_length(n)

    def qsize(self):
        """How many there are."""
        return self._length

    def empty(self):
        """Tells whether there are none."""
        return not self._length
