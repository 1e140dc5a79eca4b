"""queues.py - queues between processes of all hosts: SimpleQueue, Queue, JoinableQueue, SimpleQueuePush.

A queue lives in the process that made it, and every other process of the run connects to it when it unpickles it. What
is put is pickled at once, so an object that cannot be pickled is an error of put().

SPDX-License-Identifier: Apache-2.0
"""
import types
from _pickle import loads
from queue import Empty, Full

from . import _core, _pickling

__all__ = ["Empty", "Full", "JoinableQueue", "Queue", "SimpleQueue", "SimpleQueuePush"]

# Handles of queues that were given away. Such a queue goes on when its maker drops it: its messages are for others.
_given_away = set()


class _End:
    """The receiving or the sending side of a queue, as an object with the methods of a connection."""

    def __init__(self, handle):
        self._handle = handle

    @property
    def closed(self):
        """Whether close() was called."""
        return self._handle is None

    def close(self):
        """Ends the use of this side by this process."""
        self._handle = None

    def _open(self):
        if self._handle is None:
            raise OSError("handle is closed")
        return self._handle

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.close()


class _Reader(_End):
    def recv_bytes(self):
        """Takes the next message as it was sent."""
        return self._open().get(None)

    def recv(self):
        """Takes the next object."""
        return loads(self.recv_bytes())

    get = recv

    def poll(self, timeout=0.0):
        """Tells whether there is a message, and waits for one for that long; None: without limit."""
        if timeout == 0:
            return self._open().size() > 0
        from multiprocessing.connection import wait
        return bool(wait([self], timeout))

    def fileno(self):
        """A descriptor that polls readable while there are messages."""
        return self._open().fd()


class _Writer(_End):
    def send_bytes(self, data):
        """Puts a message."""
        self._open().put(data, None)

    def send(self, obj):
        """Puts an object."""
        self.send_bytes(_pickling.dumps(obj))

    put = send


class _Base:
    """A handle and its address. Pickles are the address, so that any process of the run may get one."""

    _maxsize = 0
    __class_getitem__ = classmethod(types.GenericAlias)

    def __init__(self, maxsize=0, *, ctx=None):
        self._maxsize = max(0, maxsize)
        self._open(_core.start().Queue(self._maxsize), None)

    def _open(self, handle, address):
        self._address = address
        self._reader, self._writer = _Reader(handle), _Writer(handle)
        self._handle = handle

    def _give_away(self):
        """From now on this object has a handle like all other users, so that what belongs to it goes with it."""
        self._address = self._handle.address()
        _given_away.add(self._handle)
        self._handle = _core.start().Queue(address=self._address, before=self._handle)
        for end in self._reader, self._writer:
            if not end.closed:
                end._handle = self._handle

    def __getstate__(self):
        if self._address is None:
            self._give_away()
        return self._address, self._maxsize

    def __setstate__(self, state):
        address, self._maxsize = state
        self._open(_core.start().Queue(address=address), address)

    def __reduce__(self):
        return _rebuild, (type(self), self.__getstate__())

    @property
    def reader(self):
        """The receiving side, with recv() and poll()."""
        return self._reader

    @property
    def writer(self):
        """The sending side, with send()."""
        return self._writer


def _rebuild(cls, state):
    queue = cls.__new__(cls)
    queue.__setstate__(state)
    return queue


class SimpleQueue(_Base):
    """A queue without a bound."""

    def __init__(self, *, ctx=None):
        super().__init__()

    def put(self, obj):
        """Puts an object."""
        self._writer.send(obj)

    def get(self):
        """Takes the next object, and waits for one."""
        return self._reader.recv()

    def empty(self):
        """Tells whether there is no object."""
        return not self._reader.poll()

    def close(self):
        """Ends the use of the queue by this process."""
        self._reader.close()
        self._writer.close()


class SimpleQueuePush(SimpleQueue):
    """A queue that gives its receivers equal shares: objects go to them in turn, not to the first that is free."""

    def __init__(self, *, ctx=None):
        super().__init__(ctx=ctx)
        self._handle.deal()


class Queue(_Base):
    """A queue with the methods of queue.Queue. With a maxsize, put() waits while that many objects wait."""

    @property
    def __class__(self):
        """That of multiprocessing's, for isinstance(), which logging.config asks. A derived class has its own."""
        if type(self).__module__ != __name__:
            return type(self)
        from multiprocessing import queues
        return getattr(queues, type(self).__name__)

    def _open(self, handle, address):
        super()._open(handle, address)
        self._closed = self._used = False

    def _check_open(self):
        if self._closed:
            raise ValueError(f"Queue {self!r} is closed")

    def put(self, obj, block=True, timeout=None):
        """Puts an object. While the queue is full it waits, at most `timeout` seconds; then queue.Full is raised."""
        if self._closed:
            self._check_open()
        self._used = True
        self._handle.put(_pickling.dumps(obj), _seconds(block, timeout) if self._maxsize else None)

    def get(self, block=True, timeout=None):
        """Takes the next object. While there is none it waits, at most `timeout` seconds; then queue.Empty is raised."""
        if self._closed:
            self._check_open()
        return loads(self._handle.get(_seconds(block, timeout)))

    def put_nowait(self, obj):
        """The same as put(obj, False)."""
        self.put(obj, False)

    def get_nowait(self):
        """The same as get(False)."""
        return self.get(False)

    def qsize(self):
        """How many objects wait."""
        return self._handle.size()

    def empty(self):
        """Tells whether no object waits. OSError: this process has put objects, and closed the queue."""
        if self._closed and self._used:
            raise OSError("handle is closed")
        return self.qsize() == 0

    def full(self):
        """Tells whether put() would wait."""
        return bool(self._maxsize) and self.qsize() >= self._maxsize

    def close(self):
        """This process puts and gets nothing any more. Objects that it has put still arrive."""
        self._closed = True

    def join_thread(self):
        """Waits, after close(), until all that this process put has left it."""
        assert self._closed, f"Queue {self!r} not closed"
        try:
            self._handle.flush(None)
        except TimeoutError:  # of a handler of a signal
            raise
        except (EOFError, OSError):
            pass  # the owner is gone: nothing can arrive

    def cancel_join_thread(self):
        """Does nothing: the library sends without a thread of Python, and its wait at the end has a limit."""


class JoinableQueue(Queue):
    """A queue whose receivers say when they have finished an object."""

    def task_done(self):
        """Says that one object that was taken is finished. ValueError: all that were put are finished."""
        try:
            self._handle.done()
        except ValueError:
            raise ValueError("task_done() called too many times") from None

    def join(self):
        """Waits until all objects that were put are finished. When the processes that took them have ended without
        saying so, WorkerLost is raised: nobody else would finish them."""
        self._handle.join(None)


def carry(queue):
    """Gives a queue of multiprocessing that has our locks a pipe that reaches jobs, before it is used.

    concurrent.futures.ProcessPoolExecutor makes one, with the locks of the context that it is given.
    """
    from . import connection, synchronize
    if isinstance(queue._rlock, synchronize.Lock) and isinstance(queue._reader._handle, int) and not queue._thread:
        queue._reader.close()
        queue._writer.close()
        queue._reader, queue._writer = connection.Pipe(duplex=False)
        queue._reset()


def __getattr__(name):
    """Names that Fiber 0.2 has here."""
    if name in ("Pipe", "ZConnection", "LazyZConnection"):
        from . import connection
        return connection.Pipe if name == "Pipe" else connection.Connection
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def _seconds(block, timeout):
    return timeout if block else 0
