"""pool.py - Pool: multiprocessing's pool, with workers that are jobs.

The C library decides which worker gets which task, what a death means, and how tasks are packed into messages. This
module pickles tasks and hands results out. Without a chunksize it pickles about a millisecond of work at a time.

A thread that waits for a result takes the results of all (Pool._run()); other threads that wait sleep meanwhile. The
pool has a thread of its own only while one is needed: for callbacks, for `await`, for the rest of a map whose caller
does not wait, and for an iterable that may block.

SPDX-License-Identifier: Apache-2.0
"""
import abc
import builtins
import collections
import contextlib
import errno
import functools
import itertools
import math
import operator
import os
import sys
import threading
import time
import types
import warnings
from multiprocessing import context as _mp_context
from multiprocessing import pool as _mp_pool
from multiprocessing.pool import MaybeEncodingError, RemoteTraceback, ThreadPool  # noqa: F401

from . import _core, _pickling, config, meta, process
from ._errors import WorkerLost, with_advice
from ._fiber import TryLock
from ._pool_names import Names

__all__ = ["Pool", "ThreadPool", "AsyncResult", "ApplyResult", "MapResult", "IMapIterator", "MaybeEncodingError",
           "RemoteTraceback", "WorkerLost", "TimeoutError"]

TimeoutError = _mp_context.TimeoutError

RUN, CLOSE, TERMINATE = "RUN", "CLOSE", "TERMINATE"
ONE, STAR, APPLY, BLOCK, BLOCK_STAR = range(5)  # kinds of tasks, as in worker_main.h
AFRESH, NUMBERED = 8, 16  # their flags
VALUE, LIST, ARRIVE = range(3)  # kinds of results, as in pool_type.h

BLOCK_NS = 1000000  # of work in a block, where nobody says how many elements,
BLOCK_BYTES = 1 << 18  # and of its inputs and results, which may be long although they take no time
AHEAD = 8  # blocks for each worker that are put and not done
UNDER_WAY = 64 << 20  # bytes of inputs,
AT_LEAST = 2  # and so many tasks for each worker, however large they are: all work, beside any other call
WINDOW = 2048  # tasks of an imap() that are put and not done
WAITING = 1 << 16  # its results that nobody has asked for
PULL = 256  # elements that are taken from an iterable at once
RETRIES_NONE = -2  # FIBER_RETRIES_NONE of fiber.h, where 0 means as configured
STREAMS = 8  # unused ones that are kept, for their next call,
STREAM_BYTES = 64 << 20  # and the bytes of their functions, which may carry much data
LOOK_S = 0.1  # how often a thread looks that waits for what another one does
INTERRUPTED = "the call was interrupted"
LINGER_S = 1.0  # how long the thread of a pool stays when it has nothing to do
# Iterables that cannot block: the caller's own thread takes their elements.
PLAIN = frozenset(type(iter(x)) for x in ([], (), range(0), range(1 << 70), {}, {}.items(), {}.values(), set(), "", b"",
                                          bytearray(), reversed([]), collections.deque()))

_numbers = itertools.count(1)
_calls = itertools.count(1)


def _milliseconds(seconds):
    """For the library, which takes 0 for none: a shorter time than one is one."""
    return math.ceil((seconds or 0) * 1000)


def _changes(func):
    """Tells whether a call may change what is called: a bound method changes its object."""
    if isinstance(func, types.BuiltinFunctionType):
        return not isinstance(func.__self__, (types.ModuleType, type, types.NoneType))
    return not isinstance(func, (types.FunctionType, type))


def _remote(text):
    """The cause of an exception that a task has raised; printed as multiprocessing prints it."""
    return RemoteTraceback('\n"""\n%s"""' % text)


def _exception(error):
    """Makes the exception of an error that the extension tells as (code, what)."""
    code, what = error
    if code == 0:
        return what
    if code == _core.start().TASK_RAISED:
        if what[0] == "raised":
            exc, text = what[1:]
            exc.__cause__ = _remote(text)
            _pickling.advise(exc)
            return exc
        exc = MaybeEncodingError(what[1], what[2])
        exc.exc, exc.value = what[1], what[2]
        if what[3] is not None:
            exc.__cause__ = _remote(what[3])
        return exc
    if code == -errno.EOWNERDEAD:
        return WorkerLost(what)
    if code == -errno.ETIMEDOUT:
        return TimeoutError(what)
    if code in (-errno.ECHILD, -errno.ECANCELED, -errno.ESHUTDOWN):
        return _mp_context.ProcessError(with_advice(what))
    if code == -errno.ENOMEM:
        return MemoryError(what)
    if code in (-errno.EMSGSIZE, -errno.EINVAL):
        return ValueError(what)
    return OSError(-code, what)


def _report():
    """Prints the exception that is handled, as one that ends a thread."""
    threading.excepthook(threading.ExceptHookArgs((*sys.exc_info(), threading.current_thread())))


# ---- Results ----


class ApplyResult(_core._fiber.Result):
    """The result of a call that runs; it can be awaited."""

    __class_getitem__ = classmethod(types.GenericAlias)

    _callbacks = None
    _watchers = ()

    def __init__(self, pool, kind, left, value=None):
        super().__init__(kind, left, value)
        self._pool = pool

    def _call_back(self, callback, error_callback):
        """Before the first task is put."""
        if callback or error_callback:
            self._callbacks = callback, error_callback
            self._hooked = True
            self._pool._need(self)

    def _is_ready(self):
        return self._done and not self._callbacks

    def ready(self):
        """Tells whether the call is done, and its callback has returned."""
        return self._is_ready() or self._pool._run(self._is_ready, self, 0)  # takes what has arrived: nobody else may

    def successful(self):
        """Tells whether the call raised nothing. ValueError: it is not done."""
        if not self.ready():
            raise ValueError("%r not ready" % self)
        return self._error is None

    def wait(self, timeout=None):
        """Waits until the call is done, or the timeout (seconds) is over."""
        if not self._is_ready():
            self._pool._run(self._is_ready, self, timeout)

    def get(self, timeout=None):
        """Waits for the result and returns it, or raises what the call has raised. TimeoutError: it is not done."""
        if not self._is_ready() and not self._pool._run(self._is_ready, self, timeout):
            raise TimeoutError
        if self._error is not None:
            _core._fiber.stay()
            raise self._raised()
        return self._value

    def _raised(self):
        """The exception: the same one each time."""
        code, what = self._error
        if code:
            self._error = (0, _exception((code, what)))
        return self._error[1]

    def _fail(self, exc):
        """No more elements are put: one less is left."""
        if self._error is None:
            self._error = (0, exc)
        self._less()
        self._pool._note_done(self)

    def _call(self):
        """On the thread of the pool, when all is done."""
        good, bad = self._callbacks or (None, None)
        call = good if self._error is None else bad
        try:
            if call:
                call(self._value if self._error is None else self._raised())
        except BaseException:  # SystemExit, too: it would end the thread, and with it all calls that wait for callbacks
            _report()
        finally:
            self._callbacks = None
            watchers, self._watchers = self._watchers, ()
            for watcher in watchers:
                watcher()

    def _watch(self, function):
        """Has the thread of the pool call a function when all is done."""
        with self._pool._cond:
            waits = not self._is_ready()
            if waits:
                self._watchers = (*self._watchers, function)
                self._hooked = True
                if not self._done:
                    self._pool._needs.add(self)
                    self._pool._cond.notify_all()
                elif not self._callbacks:  # done meanwhile
                    self._watchers, waits = self._watchers[:-1], False
        if waits:
            self._pool._start_thread()
        else:
            function()

    def future(self):
        """Returns the result as a future of concurrent.futures, for its wait() and as_completed()."""
        return _core.future_of(self.get, self._watch)

    def __await__(self):
        yield from self._wait_in_loop().__await__()
        return self.get()

    async def _wait_in_loop(self):
        import asyncio
        loop, done = asyncio.get_running_loop(), asyncio.Event()

        def tell():
            with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
                loop.call_soon_threadsafe(done.set)
        self._watch(tell)
        await done.wait()


AsyncResult = ApplyResult  # two names of one class, as in multiprocessing


class MapResult(ApplyResult):
    """The result of map_async() and starmap_async()."""

    @property
    def _number_left(self):
        """How many parts are not done: a name of multiprocessing, which programs read to show their progress."""
        self.ready()
        with self._pool._feeding:
            return self._left + sum(feed.end - feed.at[0] - 1 for feed in self._pool._feeds
                                    if getattr(feed, "result", None) is self)


class Feed:
    """The elements of a map that are not put yet. The result has one more left as long as it is not finished."""

    _hooked = False  # as that of a result

    def __init__(self, pool, stream, result, items, chunksize):
        self.pool, self.stream, self.result, self.items = pool, stream, result, items
        self.block = chunksize
        self.call = next(_calls)
        self.at, self.end = [0], len(items)  # the next one: Stream.feed() moves it
        self.error = None  # of what was put last
        self.stream_error = None  # which another stream may not have
        self.less = itertools.starmap(result._less, [()])  # no signal divides it

    def more(self, first=False):
        """Puts some, and tells whether all are put. If a signal interrupts it, the next call goes on."""
        if self.error is None and self.at[0] < self.end:
            self.put_some()
        if self.error is not None and first and isinstance(self.error, _mp_context.ProcessError):
            self.stream_error = self.error
        elif self.error is not None:
            self._fail(self.error)
        elif self.at[0] < self.end:
            return False
        else:
            self.finish()
        return True

    def put_some(self):
        if self.block is not None:
            self.put(self.end, 0 if self.block == 1 else self.block)
        elif self.stream.mean_ns:
            self.put_measured()
        elif self.at[0] == 0 or not self.stream.tasks:  # or those that were to be measured were lost
            self.put(min(self.end, self.at[0] + self.pool._size), 1)

    def _fail(self, exc):
        self.error = exc
        if self.result._error is None:
            self.result._error = (0, exc)
        self.finish()

    def finish(self):
        next(self.less, None)
        self.pool._note_done(self.result)

    def put(self, stop, block):
        self.error = self.stream.feed(self.result, self.items, self.at, stop, block, 0, self.call, *self.pool._bounds())

    def put_measured(self):
        workers, stream = self.pool._size, self.stream
        while self.at[0] < self.end and stream.tasks < AHEAD * workers:
            before, rest = self.at[0], self.end - self.at[0]
            most = min(BLOCK_NS // stream.mean_ns, BLOCK_BYTES // stream.mean_bytes)
            block = max(1, min(most, -(-rest // (4 * workers))))
            self.put(min(self.end, before + block * workers), block)
            if self.at[0] == before or self.error is not None:
                return


class IMapIterator(ApplyResult):
    """The results of imap(), in order; it can be awaited, for all that come, and be iterated over by `async for`."""

    ordered = True

    def __init__(self, pool, stream, iterable, chunksize):
        super().__init__(pool, ARRIVE, 1, [])
        self._stream, self._source, self._chunk = stream, iterable, chunksize
        self._part = 0, [], [0]  # place of the elements that were taken from the source last; these; the next to put
        self._source_error = None
        self.stream_error = None  # as that of a Feed
        self._pulled = False  # all
        self._pulled_less = itertools.starmap(self._less, [()])  # as that of a Feed
        self._out = None  # results of the block that is handed out
        self._place = 0  # of the next block
        self._early = {}  # place -> block
        self._batch = []  # blocks in reverse; unordered
        self._one = threading.RLock()  # of those that ask: one at a time, and handlers of signals that interrupt it
        self._look = None  # future of the thread that looks for those that await
        self._unbound = False  # no window any more
        self._thread = None

    def __iter__(self):
        return self

    def __next__(self):
        try:
            return self.next()
        except KeyboardInterrupt:
            self._pool._lost.add(self)
            self._pool._give_up_lost()
            raise

    def next(self, timeout=None):
        """Waits for the next result and returns it, or raises what its call has raised. TimeoutError: there is none."""
        if timeout is None:
            with self._one:
                return self._next(None)
        end = time.monotonic() + timeout
        with TryLock(self._one, min(max(timeout, 0), threading.TIMEOUT_MAX)) as taken:
            if not taken:  # another thread waits for the next one
                raise TimeoutError
            return self._next(max(end - time.monotonic(), 0))

    def _next(self, timeout):
        out = self._out
        if out is not None:
            for value in out:
                return value
            self._out = None
        block, done = None, False
        while block is None and not done:  # a handler of a signal may have taken the one that had arrived
            done = self._done
            if not self._arrived() and not self._wait(timeout):
                raise TimeoutError
            block = self._next_block()
        if block is None:
            if self._source_error is not None:
                exc, self._source_error = self._source_error, None
                raise exc
            raise StopIteration
        _, count, error, value = block
        if error is not None:
            _core._fiber.stay()
            raise _exception(error)
        if not count:
            return value
        self._out = iter([*self._out, *value] if self._out else value)
        return next(self._out)

    def _wait(self, timeout):
        """Waits for the next one. Meanwhile the thread of the pool takes no results for us."""
        pool = self._pool
        if not self._hooked:
            pool._needs.discard(self)
        try:
            return pool._run(self._arrived, None, timeout)
        finally:
            with pool._feeding:
                if self in pool._feeds:
                    pool._need(self, False)

    def _arrived(self):
        """Whether the next one need not be waited for; takes what arrived into order, and makes room for more."""
        if self._feedable():
            self._pool._pump()
        if not self.ordered:
            return bool(self._batch or self._value) or self._done
        early, arrived, done = self._early, self._value, self._done  # what is done has arrived
        if arrived:
            blocks = arrived[:]
            early.update((block[0], block) for block in blocks)
            del arrived[:len(blocks)]  # last: a signal may come before; others append
        return self._place in early or done

    def _next_block(self):
        if self.ordered:
            block = self._early.get(self._place)
            if block:
                self._place += block[1] or 1
                del self._early[block[0]]
            return block
        if not self._batch:
            arrived = self._value  # others may append to it
            self._batch = arrived[:]
            del arrived[:len(self._batch)]
            self._batch.reverse()
        return self._batch.pop() if self._batch else None

    # Putting. One thread at a time: the pool's _feeding lock.

    def _waiting(self):
        return len(self._value) + len(self._early) + len(self._batch)

    def _feedable(self):
        return not self._pulled and not self._thread and self._left <= WINDOW // 2

    def more(self, first=False):
        """Puts some elements, and tells whether all are put. (A feed of the pool.)"""
        while not self._pulled and (self._unbound or self._left <= WINDOW and self._waiting() < WAITING):
            if not self._has_rest() and not self._pull():
                return True
            if not self._put_some(first):
                return True
            if self._has_rest():
                return False  # enough bytes are under way
        return self._pulled

    def _has_rest(self):
        return self._part[2][0] < len(self._part[1])

    def _pull(self):
        n = self._chunk  # what may block is put before it is asked for more
        if not self._thread and n < PULL:
            n *= PULL
        self._part = self._part[0] + len(self._part[1]), [], [0]
        rest = self._part[1]
        error, ended = self._pool._core.pull(self._source, n, rest) if self._source is not None else (None, True)
        if error is not None:
            del rest[len(rest) - len(rest) % self._chunk:]
            self._source_error = error
        if error is not None or ended:
            self._source = None
            if not rest:
                self._finish()
                return False
        return True

    def _feed_to(self, stop):
        """Puts elements, and returns the error of the next one, or None."""
        place, rest, at = self._part
        return self._stream.feed(self, rest, at, stop, self._chunk if self._chunk > 1 else 0, place, 0,
                                 *self._pool._bounds())

    def _put_block_by_block(self):
        """Some element cannot be pickled, which is the error of its block alone. Returns another error, or None."""
        dumps = _by_value() or _pickling.dumps
        place, rest, at = self._part
        while at[0] < len(rest):
            stop = min(at[0] + self._chunk, len(rest))
            block = rest[at[0]:stop]
            try:
                dumps(block if self._chunk > 1 else block[0])
            except Exception as exc:
                count = len(block) if self._chunk > 1 else 0
                self._value.append((place + at[0], count, (0, exc), None))
                at[0] = stop
                self._pool._wake()
                continue
            error = self._feed_to(stop)
            if error is not None or at[0] < stop:  # enough bytes are under way
                return error

    def _put_some(self, first=False):
        error = self._feed_to(len(self._part[1]))
        if error is not None:
            error = self._put_block_by_block()
        if error is not None:
            if isinstance(error, _mp_context.ProcessError):
                self._pool._forget(self._stream)
                if first and not self._part[0] and not self._part[2][0]:
                    self.stream_error = error
                    return False
            self._source_error = self._source_error or error
        if error is not None or self._source is None and not self._has_rest():
            self._finish()
            return False
        return True

    def _is_full(self):
        if self._pool._has_enough(self._stream):
            return True
        return not self._unbound and (self._left > WINDOW or self._waiting() >= WAITING)

    def _finish(self):
        self._pool._sources.discard(self)
        if self._pulled:
            return
        next(self._pulled_less, None)
        self._pool._note_done(self)
        self._part, self._pulled = (0, [], [0]), True

    def _give_up(self):
        self._fail(_mp_context.ProcessError(INTERRUPTED))

    def _fail(self, exc):
        """The pool ends."""
        self._source_error = self._source_error or exc
        self._finish()

    # An iterable that may block has a thread.

    def _start_thread(self):
        self._pool._sources.add(self)
        self._thread = threading.Thread(target=self._run_source, name="fiber-imap", daemon=True)
        self._thread.start()

    def _run_source(self):
        pool = self._pool
        try:
            while True:
                if not self._has_rest():
                    self._pull()
                with pool._feeding:
                    if self._pulled or not self._part[1] or not self._put_some():
                        return
                pool._wake()
                pool._run(lambda: self._pulled or not self._is_full(), None, None)  # nobody else may take results
        except BaseException as exc:  # memory is short
            self._fail(exc)
        finally:
            self._thread = None
            pool._sources.discard(self)
            pool._wake()

    def _watch(self, function):
        self._unbound = True  # nobody asks for results before all are there
        super()._watch(function)

    def future(self):
        """Returns a future of the list of all results."""
        return _core.future_of(lambda: list(self), self._watch)

    def __await__(self):
        yield from self._wait_in_loop().__await__()
        return list(self)

    def __aiter__(self):
        return self

    async def __anext__(self):
        import asyncio
        loop = asyncio.get_running_loop()
        while True:  # a thread looks and takes nothing: a caller that is cancelled loses no result
            with TryLock(self._one) as taken:
                if taken and self._is_there():  # else another caller has taken it
                    try:
                        return self._next(None)
                    except StopIteration:
                        raise StopAsyncIteration from None
            look = self._look
            if look is None or look.done() or look.get_loop() is not loop:
                look = self._look = self._look_in_thread(loop)
            await asyncio.shield(look)

    def _look_in_thread(self, loop):
        """Returns a future. asyncio.run() would wait for a thread of the loop, also when the caller was cancelled."""
        look = loop.create_future()

        def run():
            tell, what = look.set_result, None
            try:
                with self._one:
                    self._pool._run(self._is_there, None, None)
            except Exception as exc:
                tell, what = look.set_exception, exc
            with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
                loop.call_soon_threadsafe(tell, what)
        threading.Thread(target=run, name="fiber-look", daemon=True).start()
        return look

    def _is_there(self):
        return operator.length_hint(self._out or ()) or self._arrived()


class IMapUnorderedIterator(IMapIterator):
    """The results of imap_unordered(), as they come."""

    ordered = False


# ---- Pool ----


class Pool(Names, _mp_pool.Pool, metaclass=abc.ABCMeta):
    """A pool of worker processes, which are jobs.

    The parameters up to context are multiprocessing's. error_handling=True tries a task that raised again, up to 100
    times. workers_per_job puts several workers into one job. With min and max the pool has as many workers as its
    backlog can use, and stops those that idle for `idle` seconds. retries: how often a task is run again after its
    worker died (None: as configured, 0: never, -1: without end). timeout: seconds that a task may take. priority:
    tasks with a higher one run first. name, image, cpus, gpus, memory (in bytes), backend and workdir are those of the
    pool's jobs.
    """

    def __init__(self, processes=None, initializer=None, initargs=(), maxtasksperchild=None, context=None, *,
                 error_handling=False, workers_per_job=None, min=None, max=None, idle=None, retries=None, timeout=None,
                 priority=0, **job):
        size = self._sizes(processes, min, max)
        if initializer is not None and not callable(initializer):
            raise TypeError("initializer must be a callable")
        if maxtasksperchild is not None and (not isinstance(maxtasksperchild, int) or maxtasksperchild <= 0):
            raise ValueError("maxtasksperchild must be a positive int or None")
        self._state = RUN
        self._ctx = context
        self._least, self._size = size
        self._options = {"again": bool(error_handling), "retries": 0 if retries is None else retries or RETRIES_NONE,
                         "priority": priority, "timeout_ms": _milliseconds(timeout)}
        self._streams = collections.OrderedDict()
        self._last = None, None  # function of apply(), its stream
        self._taking = threading.RLock()  # of the thread that takes results
        self._taken = False  # a thread has it
        self._feeding = threading.RLock()
        self._cond = threading.Condition(threading.RLock())  # a signal handler may end the pool while it is held
        self._sleepers = 0  # threads that wait at _cond for what a take may bring
        self._feeds = []
        self._sources = set()  # lazy maps whose thread takes elements, and has not taken all
        self._needs = set()  # results that the thread serves
        self._lost = set()  # results of calls that were interrupted, until their tasks are cancelled
        self._calls = collections.deque()
        self._calling = None  # the result whose callback runs
        self._thread = None
        self._asked = False  # a task was given
        self._ending = threading.Lock()  # taken for ever by the one that ends the workers
        self._ender = None  # the thread that does,
        self._ended = threading.Event()  # and that they have ended
        self._known = {}  # name of a worker -> its process
        self._opening = threading.Lock()
        self._to_open = initializer, tuple(initargs), maxtasksperchild, workers_per_job, idle, job
        if not _core.is_importing_main():
            self._core

    @staticmethod
    def _sizes(processes, least, most):
        if processes is None and most is None and least is None:
            processes = os.process_cpu_count() if hasattr(os, "process_cpu_count") else len(os.sched_getaffinity(0))
        if processes is not None and processes < 1:
            raise ValueError("Number of processes must be at least 1")
        most = most if most is not None else processes if processes is not None else least
        least = least if least is not None else processes if processes is not None and processes <= most else most
        if not 0 <= least <= most or most < 1:
            raise ValueError("a pool of %r to %r workers is invalid" % (least, most))
        return least, most

    @functools.cached_property
    def _core(self):
        """The workers: a pool that a child makes while it imports its main module has them when it is used later."""
        with self._opening:  # by the first of several threads
            if self._to_open:
                self.__dict__["_core"] = self._open(*self._to_open)
                self._to_open = None
        return self.__dict__["_core"]

    def _open(self, initializer, initargs, maxtasksperchild, workers_per_job, idle, job):
        core = _core.start()
        data = _core.preparation("PoolWorker")
        data["parent"] = (process.current_process().name, os.getpid())
        first, self._kept = _pickling.dumps_for_workers((initializer, initargs)) if initializer is not None else (None, ())
        work = _core.work("worker", _pickling.dumps((data, first)))
        if config.mem_per_job:
            job.setdefault("memory", int(config.mem_per_job) * meta.MIB)
        made = core.Pool(work, self._least, self._size, tasks_per_child=maxtasksperchild or 0,
                         workers_per_job=workers_per_job or int(config.cpu_per_job), idle=_milliseconds(idle), **job)
        process.pools.add(self)
        for _ in range(self._least):
            next(process._process_counter)  # as workers have numbers in multiprocessing
        return made

    def __repr__(self):
        return "<%s.%s state=%s pool_size=%s>" % (self.__class__.__module__, self.__class__.__qualname__, self._state,
                                                  self._size)

    def __del__(self, _warn=warnings.warn, _RUN=RUN):
        if getattr(self, "_state", None) == _RUN and "_core" in vars(self) and not sys.is_finalizing():
            _warn("unclosed running multiprocessing pool %r" % self, ResourceWarning, source=self)

    def _check_running(self):
        _core.start()  # raises in a child of fork(), whose copies of our locks may never be released
        if self._state != RUN:
            raise ValueError("Pool not running")
        self._core  # in the thread of the call, which raises while the main module is imported
        if self._lost:
            self._give_up_lost()

    # ---- Calls ----

    def apply(self, func, args=(), kwds={}):
        """Runs func(*args, **kwds) in a worker and returns what it returns."""
        self._check_running()
        result = ApplyResult(self, VALUE, 1)
        try:
            return self._apply(result, func, args, kwds).get()
        except KeyboardInterrupt:
            self._lost.add(result)
            self._give_up_lost()
            raise

    def apply_async(self, func, args=(), kwds={}, callback=None, error_callback=None):
        """Begins func(*args, **kwds) and returns an AsyncResult. The callbacks run on a thread of the pool."""
        self._check_running()
        result = ApplyResult(self, VALUE, 1)
        try:
            result._call_back(callback, error_callback)
            return self._apply(result, func, args, kwds)
        except BaseException:
            self._lost.add(result)
            self._give_up_lost()
            raise

    def _apply(self, result, func, args, kwds):
        known, stream = self._last
        if known is func:
            if stream.put(result, (args, kwds)) is None:
                return result
            self._last = None, None  # it is found out below, whose fault it is
        stream = self._put(func, APPLY, lambda stream: stream.put(result, (args, kwds)), result)
        if stream is not None and not _changes(func) and not _by_value():
            self._last = func, stream
        return result

    def map(self, func, iterable, chunksize=None):
        """Returns [func(x) for x in iterable]. The first error, in the order of the elements, is raised at the end."""
        return self._map_and_wait(func, iterable, chunksize, False)

    def map_async(self, func, iterable, chunksize=None, callback=None, error_callback=None):
        """Begins map() and returns an AsyncResult."""
        return self._map(func, iterable, chunksize, False, callback, error_callback)

    def starmap(self, func, iterable, chunksize=None):
        """Returns [func(*x) for x in iterable]."""
        return self._map_and_wait(func, iterable, chunksize, True)

    def starmap_async(self, func, iterable, chunksize=None, callback=None, error_callback=None):
        """Begins starmap() and returns an AsyncResult."""
        return self._map(func, iterable, chunksize, True, callback, error_callback)

    def imap(self, func, iterable, chunksize=1):
        """Returns an iterator over func(x) for x in iterable, in order. It takes elements ahead, from now on."""
        return self._imap(IMapIterator, func, iterable, chunksize)

    def imap_unordered(self, func, iterable, chunksize=1):
        """Returns an iterator over func(x) for x in iterable, as they are done."""
        return self._imap(IMapUnorderedIterator, func, iterable, chunksize)

    def _map_and_wait(self, func, iterable, chunksize, star):
        items = self._items(iterable, chunksize, True)
        result = self._map_result(items)
        try:
            self._begin_map(result, func, items, chunksize, star, True)
            return result.get()
        except KeyboardInterrupt:  # nobody can get the result any more
            self._lost.add(result)
            self._give_up_lost()
            raise

    def _map(self, func, iterable, chunksize, star, callback, error_callback):
        items = self._items(iterable, chunksize, False)
        result = self._map_result(items)
        try:
            if items:
                result._call_back(callback, error_callback)
            self._begin_map(result, func, items, chunksize, star, False)
            return result
        except BaseException:
            self._lost.add(result)
            self._give_up_lost()
            raise

    def _items(self, iterable, chunksize, waits):
        self._check_running()
        if chunksize is not None and chunksize < 1:
            raise ValueError("Chunksize must be 1+, not %r" % (chunksize,))
        return iterable if waits and type(iterable) is list else list(iterable)

    def _map_result(self, items):
        return MapResult(self, LIST, 1 if items else 0, [None] * len(items))

    def _begin_map(self, result, func, items, chunksize, star, waits):
        if items:
            flag = NUMBERED if chunksize is None else 0
            if chunksize is None and self._options["timeout_ms"]:  # which is that of an element, and not of a block
                chunksize = 1
            block = BLOCK_STAR if star else BLOCK
            how = flag | (block if chunksize != 1 else STAR if star else ONE)
            self._put(func, how, lambda stream: self._feed(Feed(self, stream, result, items, chunksize), waits), result)

    def _give_up_lost(self):
        """Ends calls whose callers were interrupted. Another interrupt, in here, leaves that to the next call: so a caller
        notes its result itself, for an interrupt may come at the beginning of any function."""
        for result in list(self._lost):
            self._give_up(result)
            self._needs.discard(result)  # join() does not wait for it
            self._sources.discard(result)
            self._wake()
            self._lost.discard(result)

    def _give_up(self, result):
        """Ends a call whose caller was interrupted: its tasks that run are interrupted too, the others do not begin."""
        if self._state == TERMINATE:
            return
        if isinstance(result, IMapIterator):
            result._give_up()
        with self._feeding:
            for feed in self._feeds[:]:
                if feed is result or getattr(feed, "result", None) is result:
                    feed._fail(_mp_context.ProcessError(INTERRUPTED))
                    self._needs.discard(feed)
                    self._feeds.remove(feed)
        for stream in list(self._streams.values()):
            stream.cancel(result)
        self._wake()

    def _imap(self, kind, func, iterable, chunksize):
        self._check_running()
        if chunksize < 1:
            raise ValueError("Chunksize must be 1+, not {0:n}".format(chunksize))
        iterator = iter(iterable)
        result = kind(self, None, iterator, chunksize)

        def begin(stream):
            result._stream = stream
            if type(iterator) in PLAIN:
                return self._feed(result, False)
            return result._start_thread()
        try:
            self._put(func, ONE if chunksize == 1 else BLOCK, begin, result)
            return result
        except BaseException:
            self._lost.add(result)
            self._give_up_lost()
            raise

    def _put(self, func, kind, begin, result):
        """Finds the stream of a function and begins; begin() returns None or an error. A function that cannot be pickled
        is the result's error. Exceptions of begin() come from handlers of signals, and are the caller's."""
        self._asked = True
        for _ in range(2):
            try:
                stream = self._stream(func, kind)
            except Exception as exc:
                error = exc
                break
            error = begin(stream)
            if error is None:
                return stream
            if not isinstance(error, _mp_context.ProcessError):
                break
            self._forget(stream)  # the workers could not be started; another stream tries again
            self._last = None, None
        if self._state == TERMINATE:
            raise error
        result._fail(error)

    def _stream(self, func, kind):
        by_value = _by_value()
        if not _changes(func):
            kind &= ~NUMBERED
        elif not kind & NUMBERED:
            kind |= AFRESH
        key = kind.to_bytes(8, "little") + (by_value or _pickling.dumps)(func)
        streams = self._streams
        stream = streams.get(key)
        if stream is None:
            stream = streams[key] = self._core.stream(key, by_value, **self._options)
            self._drop_streams()
        elif len(streams) > 1:
            try:
                streams.move_to_end(key)
            except KeyError:  # another thread has dropped it; it goes on all the same
                pass
        return stream

    def _forget(self, stream):
        """A stream that has failed fails each call: the next one gets another."""
        for key, other in list(self._streams.items()):
            if other is stream:
                self._streams.pop(key, None)

    def _drop_streams(self):
        """Drops the oldest streams that are too many or too large, but not the newest one."""
        streams = list(self._streams.items())
        n, size = len(streams), sum(len(key) for key, _ in streams)
        for key, stream in streams[:-1]:
            if n <= STREAMS and size <= STREAM_BYTES:
                return
            if not stream.tasks:
                n, size = n - 1, size - len(key)
                self._streams.pop(key, None)  # another thread may drop it too
                if self._last[1] is stream:
                    self._last = None, None

    # ---- Feeding ----

    def _feed(self, feed, waits):
        """Puts the first elements of a map, and returns None or an error that another stream may not have. `waits`: the
        caller does not go away, and puts the rest."""
        with self._feeding:
            try:
                feed.stream_error = None
                if feed.more(True):
                    return feed.stream_error
                self._feeds.append(feed)
                self._core.attend = True
            except BaseException:  # of a signal; nobody has the result
                feed._fail(_mp_context.ProcessError(INTERRUPTED))
                raise
        if not waits:
            self._need(feed)

    def _bounds(self):
        """How much a feed may put: see Stream.feed()."""
        return UNDER_WAY, AT_LEAST * self._size

    def _has_enough(self, stream):
        """Tells whether no more of this stream is put at the moment."""
        return self._core.bytes >= UNDER_WAY and stream.tasks >= AT_LEAST * self._size

    def _pump(self):
        """Puts more elements of maps, unless another thread does."""
        if not self._feeds or self._feeding._is_owned():
            return
        with TryLock(self._feeding) as taken:
            for feed in self._feeds[:] if taken else ():
                if feed.more():
                    if not feed._hooked:  # a lazy map that somebody awaits is needed until it is done
                        self._needs.discard(feed)
                    self._feeds.remove(feed)  # last: a signal may come before

    # ---- Taking ----

    def _run(self, ready, result, timeout):
        """Takes results until ready(), which is asked again after each message; False: the timeout is over."""
        _core.start()  # as in _check_running()
        if self._lost:
            self._give_up_lost()
        end = None if timeout is None else time.monotonic() + max(timeout, 0)
        while not ready():
            if (self._calls or self._needs) and self._thread is None:
                self._start_thread()
            left = None if end is None else max(end - time.monotonic(), 0)
            if left == 0 and timeout and timeout > 0:
                return False
            if self._feeds and not self._core.tasks:  # a thread in _pump() saw tasks, and others have taken all since
                self._pump()
            if not self._core.tasks or not self._take(ready, result, left):
                self._sleep(ready, left)
            if timeout is not None and timeout <= 0:
                return ready()
        return True

    def _take(self, ready, result, left):
        """Takes results, and tells whether it could: no other thread does."""
        core = self._core
        with TryLock(self._taking) as taken:
            if not taken:
                return False
            self._taken = True  # if an interrupt leaves it so, _sleep() takes LOOK_S, and we come here again
            try:
                if self._feeds:
                    self._pump()
                if not ready() and core.tasks:
                    core.attend = bool(self._feeds or self._sleepers or self._thread)
                    core.take(result, left, self._calls)
            finally:
                self._taken = False
        if self._calls:
            self._wake()
            self._start_thread()
        elif self._sleepers:
            self._wake()
        if self._feeds:
            self._pump()
        return True

    def _sleep(self, ready, left):
        """Waits for what another thread does."""
        with self._cond:
            self._sleepers += 1
            self._core.attend = True
            try:
                if not ready() and (self._taken or not self._core.tasks):
                    self._cond.wait(LOOK_S if left is None else min(left, LOOK_S))
            finally:
                self._sleepers -= 1

    def _wake(self):
        with self._cond:
            self._cond.notify_all()

    def _note_done(self, result):
        """One part of a result, which counted as not put, is put, or will not be."""
        if result._done:
            if result._hooked:
                self._finish([result])
            self._wake()

    def _finish(self, results):
        """Hooked results are done: the thread calls their callbacks."""
        with self._cond:
            self._calls.extend(results)
            self._cond.notify_all()
        self._start_thread()

    # ---- The thread ----

    def _need(self, what, at_once=True):
        with self._cond:
            self._needs.add(what)
            if at_once:
                self._cond.notify_all()  # the thread may linger
        self._start_thread()

    def _start_thread(self):
        """After an interrupt in here it is not there; the next call that waits starts it."""
        if self._thread is None:
            threading.Thread(target=self._serve, name="fiber-pool-%d" % next(_numbers), daemon=True).start()

    def _serve(self):
        with self._cond:
            if self._thread is not None:  # two callers saw that there was none
                return
            self._thread = threading.current_thread()
        while self._thread is threading.current_thread():
            try:
                self._serve_some()
            except BaseException:  # memory is short; without this thread others would wait without end
                _report()
                time.sleep(LOOK_S)

    def _serve_some(self):
        while self._calls:
            result = self._calling = self._calls.popleft()
            self._needs.discard(result)
            try:
                result._call()
            finally:
                result = self._calling = None  # it may be large
            self._wake()
        self._run(lambda: self._calls or not self._needs, None, None)
        with self._cond:
            if not self._calls and not self._needs:
                self._cond.wait(LINGER_S)
            if not self._calls and not self._needs:
                self._thread = None

    # ---- Workers ----

    def start_workers(self):
        """Does nothing: workers are started when the pool is made. (Of the original Fiber.)"""
        self._check_running()

    def wait_until_workers_up(self, timeout=None):
        """Waits until all workers have joined and run their initializers, and tells whether they have."""
        return self._core.wait_workers(self._least, timeout)

    def resize(self, workers, max=None):
        """Sets the number of workers; with max, the pool has from `workers` to `max` of them, by its backlog."""
        self._check_running()
        self._core.resize(workers, workers if max is None else max)
        self._least, self._size = workers, workers if max is None else max

    def stats(self):
        """Returns the figures of the pool: workers, tasks, deaths and more."""
        return self._core.stats()

    def workers(self):
        """Returns the figures of each worker: name, pid, tasks, busy, rtt, state."""
        return self._core.workers()

    def kill_worker(self, name):
        """Kills a worker, by its name in workers(). Its tasks go to others, and another worker takes its place."""
        self._core.kill_worker(name)

    def progress(self):
        """Returns how many tasks are done, and how many were given."""
        stats = self._core.stats()
        return stats["done"], stats["submitted"]

    # ---- The end ----

    def close(self):
        """Refuses more tasks. The workers end when all is done and somebody waits for it, by join() or is_alive()."""
        if self._state == RUN:
            self._state = CLOSE

    def terminate(self):
        """Ends the workers at once. Calls that are not done raise ProcessError."""
        self._state = TERMINATE
        self._end()

    def join(self):
        """Waits until all tasks are done and the workers have ended. close() or terminate() comes first."""
        if self._state == RUN:
            raise ValueError("Pool is still running")
        _core.start()  # as in _check_running()
        if self._state == CLOSE:
            if not self._ending.locked():
                self._drain()
                self._end()
            if self._ender != threading.get_ident():  # another one looked at the workers first
                self._ended.wait()
        if self._thread is not threading.current_thread() and not self._is_in_handler():
            self._run(lambda: not (self._needs or self._calls or self._calling), None, None)

    def _is_in_handler(self):
        """Tells whether we are in a signal handler, and the call that it has interrupted is to take the results."""
        return self._taking._is_owned()

    def _drain(self):
        """Waits until all is done. Initializers run also in a pool that never got a task."""
        if not self._asked:
            try:
                self._core.wait_workers(self._least, None)
            except builtins.TimeoutError:  # of a handler of a signal
                raise
            except (_mp_context.ProcessError, OSError):
                return
        self._unbind()
        self._run(lambda: not self._has_work(), None, None)

    def _unbind(self):
        for feed in (*self._feeds, *self._sources):
            feed._unbound = True

    def _has_work(self):
        return self._core.tasks or self._feeds or self._sources or self._needs or self._calls

    def _end_if_done(self):
        """Ends the workers of a closed pool that has nothing to do, for a program that waits for them without join()."""
        if self._state != CLOSE or self._ending.locked() or self._calling:
            return
        self._unbind()
        self._run(lambda: False, None, 0)  # takes what has arrived
        if self._has_work():
            return
        try:
            are_up = self._asked or self._core.wait_workers(self._least, 0)
        except (_mp_context.ProcessError, OSError):
            are_up = True  # they never will be
        if are_up:
            self._end()

    def _end(self):
        """Ends the workers, and what is not done with them; once, whichever threads and signal handlers ask for it."""
        if not self._ending.acquire(blocking=False):
            return
        self._ender = threading.get_ident()
        gone = _mp_context.ProcessError("the pool was terminated")
        try:
            self._core.close()
        finally:
            self._ended.set()
        with self._feeding:
            feeds, self._feeds = self._feeds, []
            for feed in (*feeds, *self._sources):
                self._needs.discard(feed)
                feed._fail(gone)
        if not self._is_in_handler():
            self._run(lambda: not self._core.tasks, None, None)
        self._streams.clear()
        self._last = None, None
        self._wake()


class ResilientZPool(Pool):
    """Pool(error_handling=True), as Fiber 0.2 calls it."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **{"error_handling": True, **kwargs})


Pool.register(ThreadPool)
ZPool = ClassicPool = Pool  # names of Fiber 0.2


def _by_value():
    """How objects of a program without a file are pickled; None: as all others."""
    util = sys.modules.get("fiber.util")
    if util is None:
        from . import util
    return _pickling.dumps if util.is_in_interactive_console() else None
